//! Access technologies: what a line adds to each IP packet.
//!
//! Sizes are of the frame as the narrowest part of the line carries it. Where sources differ the larger stands here:
//! too much costs a little throughput, too little costs latency.

use sqm_core::spec::cake::Cells;

/// A kind of line, and the bytes that it adds to each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The word of the option `link`.
    pub name: &'static str,
    /// The line in words.
    pub about: &'static str,
    /// Cell framing.
    pub layer: LinkLayer,
    /// Bytes above the IP packet.
    pub overhead: i32,
    /// Least size of a frame, overhead included, bytes.
    pub mpu: u32,
    /// True if the bytes of a VLAN tag are among them.
    pub vlan: bool,
    /// True if the bytes of PPPoE are among them.
    pub pppoe: bool,
    /// The parts of the overhead, and the source.
    pub source: &'static str,
}

/// How packets are cut up on the line: what the option `linklayer` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// The kernel's length of a packet counts, without any overhead.
    None,
    /// Whole packets.
    Ethernet,
    /// 48 bytes of payload in 53-byte cells; the option also takes `adsl`.
    Atm,
    /// 64b/65b coding of VDSL2: one byte in 65 is lost.
    Ptm,
}

impl LinkLayer {
    /// The cell framing that CAKE computes with.
    pub(crate) const fn cells(self) -> Cells {
        match self {
            Self::Atm => Cells::Atm,
            Self::Ptm => Cells::Ptm,
            Self::None | Self::Ethernet => Cells::None,
        }
    }
}

/// Bytes of a VLAN tag (IEEE 802.1Q).
pub const VLAN: i32 = 4;
/// Bytes of PPPoE (RFC 2516: six) and PPP (two).
pub const PPPOE: i32 = 8;

/// All of them.
pub const PRESETS: [Preset; 30] = [
    preset(
        "ethernet",
        "plain Ethernet as the bottleneck",
        LinkLayer::Ethernet,
        38,
        84,
        "8 preamble, 14 header, 4 check sequence, 12 gap; IEEE 802.3, tc-cake(8) 'ethernet'",
    ),
    preset(
        "ethernet-vlan",
        "Ethernet with a VLAN tag",
        LinkLayer::Ethernet,
        42,
        84,
        "as ethernet, 4 for the tag; tc-cake(8) 'ethernet ether-vlan'",
    )
    .vlan(),
    preset(
        "ethernet-pppoe",
        "Ethernet with PPPoE",
        LinkLayer::Ethernet,
        46,
        84,
        "as ethernet, 8 for PPPoE; RFC 2516",
    )
    .pppoe(),
    preset(
        "ethernet-vlan-pppoe",
        "Ethernet with a VLAN tag and PPPoE",
        LinkLayer::Ethernet,
        50,
        84,
        "as ethernet, 4 and 8; OpenWrt's SQM documentation",
    )
    .vlan()
    .pppoe(),
    preset(
        "docsis",
        "cable",
        LinkLayer::Ethernet,
        18,
        64,
        "14 header, 4 check sequence, whichever side shapes; DOCSIS MULPI, tc-cake(8) 'docsis'",
    ),
    preset(
        "vdsl2",
        "VDSL2 or G.fast, IP over Ethernet",
        LinkLayer::Ptm,
        22,
        64,
        "14 header, 4 check sequence, 4 of PTM; ITU-T G.992.3 annex N, tc-cake(8) 'bridged-ptm'",
    ),
    preset(
        "vdsl2-vlan",
        "VDSL2 or G.fast with a VLAN tag",
        LinkLayer::Ptm,
        26,
        64,
        "as vdsl2, 4 for the tag; OpenWrt's SQM documentation",
    )
    .vlan(),
    preset(
        "vdsl2-pppoe",
        "VDSL2 or G.fast with PPPoE",
        LinkLayer::Ptm,
        30,
        64,
        "as vdsl2, 8 for PPPoE; tc-cake(8) 'pppoe-ptm'",
    )
    .pppoe(),
    preset(
        "vdsl2-vlan-pppoe",
        "VDSL2 or G.fast with a VLAN tag and PPPoE",
        LinkLayer::Ptm,
        34,
        64,
        "as vdsl2, 4 and 8; OpenWrt's SQM documentation",
    )
    .vlan()
    .pppoe(),
    preset(
        "adsl",
        "ADSL, encapsulation not known",
        LinkLayer::Atm,
        44,
        0,
        "the largest usual one with a check sequence; OpenWrt's SQM documentation",
    )
    .vlan()
    .pppoe(),
    preset(
        "adsl-ipoa-vcmux",
        "ADSL, IPoA, VC multiplexing",
        LinkLayer::Atm,
        8,
        0,
        "8 of AAL5; RFC 2684, tc-cake(8) 'ipoa-vcmux'",
    )
    .vlan()
    .pppoe(),
    preset(
        "adsl-ipoa-llc",
        "ADSL, IPoA, LLC/SNAP",
        LinkLayer::Atm,
        16,
        0,
        "8 of AAL5, 8 of LLC/SNAP; RFC 2684, tc-cake(8) 'ipoa-llcsnap'",
    )
    .vlan()
    .pppoe(),
    preset(
        "adsl-bridged-vcmux",
        "ADSL, bridged, VC multiplexing",
        LinkLayer::Atm,
        24,
        0,
        "8 of AAL5, 2 padding, 14 header; RFC 2684, tc-cake(8) 'bridged-vcmux'",
    ),
    preset(
        "adsl-bridged-llc",
        "ADSL, bridged, LLC/SNAP",
        LinkLayer::Atm,
        32,
        0,
        "8 of AAL5, 10 of LLC/SNAP and padding, 14 header; RFC 2684, tc-cake(8) 'bridged-llcsnap'",
    ),
    preset(
        "adsl-pppoa-vcmux",
        "ADSL, PPPoA, VC multiplexing",
        LinkLayer::Atm,
        10,
        0,
        "8 of AAL5, 2 of PPP; RFC 2364, tc-cake(8) 'pppoa-vcmux'",
    )
    .vlan()
    .pppoe(),
    preset(
        "adsl-pppoa-llc",
        "ADSL, PPPoA, LLC",
        LinkLayer::Atm,
        14,
        0,
        "8 of AAL5, 4 of LLC, 2 of PPP; RFC 2364, tc-cake(8) 'pppoa-llc'",
    )
    .vlan()
    .pppoe(),
    preset(
        "adsl-pppoe-vcmux",
        "ADSL, PPPoE, VC multiplexing",
        LinkLayer::Atm,
        32,
        0,
        "as adsl-bridged-vcmux, 8 for PPPoE; RFC 2684, RFC 2516, tc-cake(8) 'pppoe-vcmux'",
    )
    .pppoe(),
    preset(
        "adsl-pppoe-llc",
        "ADSL, PPPoE, LLC/SNAP",
        LinkLayer::Atm,
        40,
        0,
        "as adsl-bridged-llc, 8 for PPPoE; RFC 2684, RFC 2516, tc-cake(8) 'pppoe-llcsnap'",
    )
    .pppoe(),
    preset(
        "gpon",
        "GPON or XGS-PON fibre",
        LinkLayer::Ethernet,
        44,
        84,
        "no agreed value (GEM 5, Ethernet 18); the advice for fibre, generous",
    ),
    preset(
        "gpon-vlan",
        "GPON or XGS-PON fibre with a VLAN tag",
        LinkLayer::Ethernet,
        48,
        84,
        "as gpon, 4 for the tag",
    )
    .vlan(),
    preset(
        "gpon-pppoe",
        "GPON or XGS-PON fibre with PPPoE",
        LinkLayer::Ethernet,
        52,
        84,
        "as gpon, 8 for PPPoE",
    )
    .pppoe(),
    preset(
        "gpon-vlan-pppoe",
        "GPON or XGS-PON fibre with a VLAN tag and PPPoE",
        LinkLayer::Ethernet,
        56,
        84,
        "as gpon, 4 and 8",
    )
    .vlan()
    .pppoe(),
    preset(
        "epon",
        "EPON fibre",
        LinkLayer::Ethernet,
        38,
        84,
        "Ethernet frames as they are; IEEE 802.3ah",
    ),
    preset(
        "epon-vlan",
        "EPON fibre with a VLAN tag",
        LinkLayer::Ethernet,
        42,
        84,
        "as epon, 4 for the tag",
    )
    .vlan(),
    preset(
        "lte",
        "LTE or 5G",
        LinkLayer::Ethernet,
        44,
        64,
        "no agreed value; the rate varies more than the overhead weighs",
    ),
    preset(
        "satellite",
        "satellite",
        LinkLayer::Ethernet,
        44,
        64,
        "no agreed value; the rate varies more than the overhead weighs",
    ),
    preset(
        "wisp",
        "fixed wireless",
        LinkLayer::Ethernet,
        38,
        84,
        "usually an Ethernet port limits; as ethernet",
    ),
    preset(
        "ds-lite",
        "IPv4 inside IPv6 over Ethernet",
        LinkLayer::Ethernet,
        78,
        84,
        "as ethernet, 40 for the IPv6 header; RFC 6333",
    ),
    preset(
        "conservative",
        "not known, and may be ATM",
        LinkLayer::Atm,
        48,
        0,
        "more than any usual line; tc-cake(8) 'conservative'",
    )
    .vlan()
    .pppoe(),
    preset(
        "unknown",
        "not known, but not ATM",
        LinkLayer::Ethernet,
        44,
        64,
        "OpenWrt's SQM documentation: when in doubt",
    )
    .vlan()
    .pppoe(),
];

const fn preset(
    name: &'static str,
    about: &'static str,
    layer: LinkLayer,
    overhead: i32,
    mpu: u32,
    source: &'static str,
) -> Preset {
    Preset {
        name,
        about,
        layer,
        overhead,
        mpu,
        vlan: false,
        pppoe: false,
        source,
    }
}

impl Preset {
    /// The encapsulations of the device stack that this preset does not count.
    pub fn missing(&self, stack: &[Encapsulation]) -> Vec<Encapsulation> {
        stack
            .iter()
            .copied()
            .filter(|layer| match layer {
                Encapsulation::Vlan => !self.vlan,
                Encapsulation::Pppoe => !self.pppoe,
                Encapsulation::Tunnel { .. } => true,
            })
            .collect()
    }

    const fn vlan(mut self) -> Self {
        self.vlan = true;
        self
    }

    const fn pppoe(mut self) -> Self {
        self.pppoe = true;
        self
    }
}

/// A layer between the shaped device and the line that adds bytes to each packet, seen in the device stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// A VLAN tag.
    Vlan,
    /// PPPoE.
    Pppoe,
    /// A tunnel.
    Tunnel {
        /// Its kind, such as `sit`.
        kind: &'static str,
        /// Bytes of its headers.
        bytes: i32,
    },
}

/// Tunnels and the bytes of their headers: the outer IP header and what stands behind it.
const TUNNELS: [(&str, i32); 7] = [
    // 6in4 and 6rd (RFC 4213): an IPv4 header.
    ("sit", 20),
    ("ipip", 20),
    // DS-Lite and its like (RFC 2473): an IPv6 header. Linux adds a destination option of 8 bytes unless told not to.
    ("ip6tnl", 40),
    ("gre", 24),
    ("ip6gre", 44),
    ("vti", 20),
    // Over IPv4: 20, 8 of UDP, 32 of its own (20 more over IPv6).
    ("wireguard", 60),
];

impl Encapsulation {
    /// The layer that a device of this kind (`IFLA_INFO_KIND`) adds.
    pub fn of_kind(kind: &str) -> Option<Self> {
        match kind {
            "vlan" => Some(Self::Vlan),
            "ppp" => Some(Self::Pppoe),
            _ => TUNNELS
                .iter()
                .find(|(name, _)| *name == kind)
                .map(|&(kind, bytes)| Self::Tunnel { kind, bytes }),
        }
    }

    /// The bytes that it adds to each packet.
    pub const fn bytes(self) -> i32 {
        match self {
            Self::Vlan => VLAN,
            Self::Pppoe => PPPOE,
            Self::Tunnel { bytes, .. } => bytes,
        }
    }
}

impl std::fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Vlan => f.write_str("a VLAN tag"),
            Self::Pppoe => f.write_str("PPPoE"),
            Self::Tunnel { kind, .. } => write!(f, "the {kind} tunnel"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once() {
        for (n, preset) in PRESETS.iter().enumerate() {
            assert!(
                PRESETS[..n].iter().all(|other| other.name != preset.name),
                "{}",
                preset.name
            );
        }
    }

    #[test]
    fn presets_that_cake_knows_have_cakes_numbers() {
        use sqm_core::spec::cake::Cake;
        for (name, words) in [
            ("ethernet", "ethernet"),
            ("ethernet-vlan", "ethernet ether-vlan"),
            ("docsis", "docsis"),
            ("vdsl2", "bridged-ptm mpu 64"),
            ("vdsl2-pppoe", "pppoe-ptm mpu 64"),
            ("adsl-ipoa-vcmux", "ipoa-vcmux"),
            ("adsl-ipoa-llc", "ipoa-llcsnap"),
            ("adsl-bridged-vcmux", "bridged-vcmux"),
            ("adsl-bridged-llc", "bridged-llcsnap"),
            ("adsl-pppoa-vcmux", "pppoa-vcmux"),
            ("adsl-pppoa-llc", "pppoa-llc"),
            ("adsl-pppoe-vcmux", "pppoe-vcmux"),
            ("adsl-pppoe-llc", "pppoe-llcsnap"),
            ("conservative", "conservative"),
        ] {
            let preset = PRESETS.iter().find(|preset| preset.name == name).unwrap();
            let mut cake = Cake::default();
            cake.apply(words).unwrap();
            let cells = match preset.layer {
                LinkLayer::Atm => Cells::Atm,
                LinkLayer::Ptm => Cells::Ptm,
                LinkLayer::None | LinkLayer::Ethernet => Cells::None,
            };
            assert_eq!(
                (
                    i32::from(cake.framing.overhead),
                    u32::from(cake.framing.mpu),
                    cake.framing.cells
                ),
                (preset.overhead, preset.mpu, cells),
                "{name}"
            );
        }
    }

    #[test]
    fn a_layer_that_the_preset_counts_is_not_counted_again() {
        let preset = |name| PRESETS.iter().find(|preset| preset.name == name).unwrap();
        let stack = [Encapsulation::Pppoe, Encapsulation::Vlan];
        assert_eq!(preset("vdsl2").missing(&stack), stack);
        assert_eq!(preset("vdsl2-pppoe").missing(&stack), [Encapsulation::Vlan]);
        assert_eq!(preset("vdsl2-vlan-pppoe").missing(&stack), []);
    }
}
