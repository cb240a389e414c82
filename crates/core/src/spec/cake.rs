//! CAKE's parameters and their `tc` words (`sch_cake.c`; iproute2 `tc/q_cake.c`).
//!
//! A later word wins over an earlier one on the same subject, with three exceptions that come from iproute2:
//!
//! * the named link layers *add* to the overhead collected so far, while `overhead`, `conservative` and `raw` set
//!   it: `overhead 22 bridged-ptm` is 44 bytes, `bridged-ptm overhead 22` is 22;
//! * `raw` anywhere on the line keeps counting from the link header, whatever overhead is added;
//! * `bandwidth` and `unlimited` switch `autorate-ingress` off, so that it must come after them.

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Words};
use crate::units::{Bytes, Nanos, Rate};

/// The kernel's name for it.
pub(crate) const KIND: &str = "cake";
pub(crate) const KIND_MQ: &str = "cake_mq";

/// Least and greatest `overhead`, bytes.
pub const OVERHEAD: core::ops::RangeInclusive<i64> = -64..=256;

/// Least and greatest `mpu`, bytes.
pub const MPU: core::ops::RangeInclusive<i64> = 0..=256;

/// Every parameter of one CAKE instance; [`Default`] is what the kernel does when no word is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cake {
    /// Shaped rate; `None` is `unlimited`.
    pub bandwidth: Option<Rate>,
    /// `autorate-ingress`: follow the arriving rate.
    pub autorate_ingress: bool,
    /// `rtt`: CoDel's interval; target is a twentieth of it.
    pub rtt: Nanos,
    /// How DSCP chooses a tin.
    pub tins: Tins,
    /// The fields by which packets are hashed to flows.
    pub isolation: Isolation,
    /// Look up the addresses before NAT.
    pub nat: bool,
    /// Clear DSCP after classification.
    pub wash: bool,
    /// Thin out TCP acknowledgements.
    pub ack_filter: AckFilter,
    /// `ingress`: count dropped packets against the rate, because they crossed the link already.
    pub ingress: bool,
    /// Split super-packets into frames.
    pub split_gso: bool,
    /// Buffer limit; `None` lets the kernel compute one.
    pub memlimit: Option<Bytes>,
    /// Mask of the firewall mark that overrides the tin; 0 is off.
    pub fwmark: u32,
    /// The size of a packet on the line.
    pub framing: Framing,
}

/// How CAKE divides the rate among priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tins {
    /// One tin.
    Besteffort,
    /// Eight, by the old IP precedence bits.
    Precedence,
    /// Bulk, best effort, voice.
    Diffserv3,
    /// Bulk, best effort, video, voice.
    Diffserv4,
    /// Eight.
    Diffserv8,
}

/// The flows that CAKE keeps apart, and the hosts among which it is fair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// One queue for all.
    Flowblind,
    /// One queue per source address.
    Srchost,
    /// One queue per destination address.
    Dsthost,
    /// One queue per pair of addresses.
    Hosts,
    /// One queue per five-tuple.
    Flows,
    /// Fair between source addresses, then between flows.
    DualSrchost,
    /// Fair between destination addresses, then between flows.
    DualDsthost,
    /// Fair between addresses on both sides, then between flows.
    TripleIsolate,
}

/// How CAKE treats acknowledgements that later ones make redundant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckFilter {
    /// Leave them alone.
    Off,
    /// Drop those that a later one makes redundant.
    Filter,
    /// Drop more of them.
    Aggressive,
}

/// The size of a packet on the line, as CAKE computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// True once any word supplied an overhead: sizes are then counted from the IP header. False (`raw`) counts
    /// the length the kernel knows, link header included.
    pub from_ip: bool,
    /// Bytes added per packet, -64 to 256.
    pub overhead: i16,
    /// Least counted size, 0 to 256 bytes.
    pub mpu: u16,
    /// Cell framing.
    pub cells: Cells,
}

/// Cell framing below the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Whole packets (`noatm`).
    None,
    /// 48 bytes of payload in 53-byte cells.
    Atm,
    /// 64b/65b coding of VDSL2.
    Ptm,
}

impl Default for Cake {
    fn default() -> Self {
        Self {
            bandwidth: None,
            autorate_ingress: false,
            rtt: Nanos::from_millis(100),
            tins: Tins::Diffserv3,
            isolation: Isolation::TripleIsolate,
            nat: false,
            wash: false,
            ack_filter: AckFilter::Off,
            ingress: false,
            split_gso: true,
            memlimit: None,
            fwmark: 0,
            framing: Framing {
                from_ip: false,
                overhead: 0,
                mpu: 0,
                cells: Cells::None,
            },
        }
    }
}

impl Cake {
    /// Lets the words of `text` change these parameters, as if they stood at the end of the same command: the way
    /// a user's options follow those of a setup script.
    ///
    /// On an error the parameters are as they were.
    pub fn apply(&mut self, text: &str) -> Result<(), ParseError> {
        let mut changed = self.clone();
        changed.read(Words::of(text).within(KIND))?;
        *self = changed;
        Ok(())
    }

    /// Lets the words of `text` change these parameters as `tc qdisc change` does, which reads them as a command of
    /// their own: what it does not mention stays, overhead is added up from 0. `mpu`, `memlimit` and `fwmark` cannot be
    /// set back to 0, because `tc` does not tell the kernel of such a 0.
    ///
    /// On an error the parameters are as they were.
    pub fn change(&mut self, text: &str) -> Result<(), ParseError> {
        let mut changed = self.clone();
        if sets_overhead(text) {
            changed.framing.overhead = 0;
        }
        changed.apply(text)?;
        if changed.framing.mpu == 0 {
            changed.framing.mpu = self.framing.mpu;
        }
        changed.memlimit = changed.memlimit.or(self.memlimit);
        if changed.fwmark == 0 {
            changed.fwmark = self.fwmark;
        }
        *self = changed;
        Ok(())
    }

    pub(super) fn read(&mut self, mut words: Words<'_>) -> Result<(), ParseError> {
        let mut raw = false;
        let mut preset: Option<&'static str> = None;
        while let Some(word) = words.next() {
            let framing = &mut self.framing;
            match word.text {
                "bandwidth" => {
                    let rate = words.rate(word, "bandwidth")?;
                    self.bandwidth = (rate.bits_per_sec() > 0).then_some(rate);
                    self.autorate_ingress = false;
                }
                "unlimited" => (self.bandwidth, self.autorate_ingress) = (None, false),
                "autorate-ingress" => self.autorate_ingress = true,
                "rtt" => self.rtt = words.time(word, "rtt", 1)?,
                "nat" => self.nat = true,
                "nonat" => self.nat = false,
                "wash" => self.wash = true,
                "nowash" => self.wash = false,
                "ingress" => self.ingress = true,
                "egress" => self.ingress = false,
                "split-gso" => self.split_gso = true,
                "no-split-gso" => self.split_gso = false,
                "memlimit" => {
                    let limit = words.size(word, "memlimit")?;
                    self.memlimit = (limit.0 > 0).then_some(limit);
                }
                "fwmark" => {
                    const EXPECTED: &str = "a mask, such as 0xff";
                    let value = words.value(word, EXPECTED)?;
                    self.fwmark = mask(value.text).ok_or_else(|| {
                        words.error(
                            value,
                            ParseErrorKind::BadValue {
                                keyword: "fwmark",
                                expected: EXPECTED,
                            },
                        )
                    })?;
                }
                "overhead" => {
                    framing.overhead = words.number(word, "overhead", OVERHEAD)?;
                    framing.from_ip = true;
                }
                "mpu" => framing.mpu = words.number(word, "mpu", MPU)?,
                "atm" => framing.cells = Cells::Atm,
                "ptm" => framing.cells = Cells::Ptm,
                "noatm" => framing.cells = Cells::None,
                "raw" => {
                    raw = true;
                    framing.overhead = 0;
                    framing.cells = Cells::None;
                }
                "conservative" => {
                    *framing = Framing {
                        from_ip: true,
                        overhead: 48,
                        cells: Cells::Atm,
                        mpu: framing.mpu,
                    };
                }
                // Kept by iproute2 for scripts of its first years; it says nothing.
                "via-ethernet" => {}
                text => {
                    if let Some(&(_, tins)) = TINS.iter().find(|(name, _)| *name == text) {
                        self.tins = tins;
                    } else if let Some(&(_, isolation)) = ISOLATION.iter().find(|(name, _)| *name == text) {
                        self.isolation = isolation;
                    } else if let Some(&(_, filter)) = ACK_FILTER.iter().find(|(name, _)| *name == text) {
                        self.ack_filter = filter;
                    } else if let Some(&(name, micros)) = RTT_PRESETS.iter().find(|(name, _)| *name == text) {
                        if let Some(first) = preset.replace(name) {
                            return Err(words.error(word, ParseErrorKind::SecondPreset { first }));
                        }
                        self.rtt = Nanos::from_micros(micros);
                    } else if let Some(link) = LINK_LAYERS.iter().find(|link| link.name == text) {
                        let overhead = framing.overhead + link.overhead;
                        if i64::from(overhead) > *OVERHEAD.end() {
                            return Err(words.error(word, ParseErrorKind::TooMuchOverhead));
                        }
                        framing.overhead = overhead;
                        framing.from_ip = true;
                        framing.cells = link.cells.unwrap_or(framing.cells);
                        framing.mpu = link.mpu.unwrap_or(framing.mpu);
                    } else {
                        return Err(words.unknown(word, ParseErrorKind::UnknownWord, keywords()));
                    }
                }
            }
        }
        if raw {
            self.framing.from_ip = false;
        }
        Ok(())
    }
}

/// True if the words of `text` set the overhead, or whether sizes count from the IP header.
pub fn sets_overhead(text: &str) -> bool {
    let sets = |word: &str| {
        matches!(word, "overhead" | "raw" | "conservative")
            || LINK_LAYERS.iter().any(|link| link.name == word)
    };
    text.split_whitespace().any(sets)
}

/// Prints all that `tc qdisc show` would print, in its order, except what a new CAKE does anyway and `tc` does not
/// mention: `egress`, no `mpu`, no `memlimit`, no `fwmark`.
impl fmt::Display for Cake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, KIND)
    }
}

impl Cake {
    pub(super) fn print(&self, f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        f.write_str(kind)?;
        match self.bandwidth {
            Some(rate) => write!(f, " bandwidth {rate}")?,
            None => f.write_str(" unlimited")?,
        }
        if self.autorate_ingress {
            f.write_str(" autorate-ingress")?;
        }
        write!(f, " {}", name_in(&TINS, self.tins))?;
        write!(f, " {}", name_in(&ISOLATION, self.isolation))?;
        f.write_str(if self.nat { " nat" } else { " nonat" })?;
        f.write_str(if self.wash { " wash" } else { " nowash" })?;
        if self.ingress {
            f.write_str(" ingress")?;
        }
        write!(f, " {}", name_in(&ACK_FILTER, self.ack_filter))?;
        f.write_str(if self.split_gso {
            " split-gso"
        } else {
            " no-split-gso"
        })?;
        write!(f, " rtt {} {}", self.rtt, self.framing)?;
        if let Some(limit) = self.memlimit {
            write!(f, " memlimit {limit}")?;
        }
        if self.fwmark != 0 {
            write!(f, " fwmark {:#x}", self.fwmark)?;
        }
        Ok(())
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = match (self.cells, self.from_ip) {
            (Cells::None, true) => "noatm ",
            (Cells::None, false) => "",
            (Cells::Atm, _) => "atm ",
            (Cells::Ptm, _) => "ptm ",
        };
        let raw = if self.from_ip { "" } else { "raw " };
        write!(f, "{raw}{cells}overhead {}", self.overhead)?;
        match self.mpu {
            0 => Ok(()),
            mpu => write!(f, " mpu {mpu}"),
        }
    }
}

/// First name of each is the one printed.
const TINS: [(&str, Tins); 6] = [
    ("besteffort", Tins::Besteffort),
    ("precedence", Tins::Precedence),
    ("diffserv3", Tins::Diffserv3),
    ("diffserv4", Tins::Diffserv4),
    ("diffserv", Tins::Diffserv4),
    ("diffserv8", Tins::Diffserv8),
];

const ISOLATION: [(&str, Isolation); 8] = [
    ("flowblind", Isolation::Flowblind),
    ("srchost", Isolation::Srchost),
    ("dsthost", Isolation::Dsthost),
    ("hosts", Isolation::Hosts),
    ("flows", Isolation::Flows),
    ("dual-srchost", Isolation::DualSrchost),
    ("dual-dsthost", Isolation::DualDsthost),
    ("triple-isolate", Isolation::TripleIsolate),
];

const ACK_FILTER: [(&str, AckFilter); 3] = [
    ("no-ack-filter", AckFilter::Off),
    ("ack-filter", AckFilter::Filter),
    ("ack-filter-aggressive", AckFilter::Aggressive),
];

/// Round-trip times with a name, microseconds. Their targets are the twentieth that `rtt` would give, too.
const RTT_PRESETS: [(&str, u64); 8] = [
    ("datacentre", 100),
    ("lan", 1000),
    ("metro", 10_000),
    ("regional", 30_000),
    ("internet", 100_000),
    ("oceanic", 300_000),
    ("satellite", 1_000_000),
    // The man page says 3600 s; the source of tc says this.
    ("interplanetary", 1_000_000_000),
];

/// A named framing. `None` leaves what stands.
struct Link {
    name: &'static str,
    /// Added, bytes.
    overhead: i16,
    cells: Option<Cells>,
    mpu: Option<u16>,
}

const fn link(name: &'static str, overhead: i16, cells: Option<Cells>, mpu: Option<u16>) -> Link {
    Link {
        name,
        overhead,
        cells,
        mpu,
    }
}

const LINK_LAYERS: [Link; 13] = [
    link("ipoa-vcmux", 8, Some(Cells::Atm), None),
    link("ipoa-llcsnap", 16, Some(Cells::Atm), None),
    link("bridged-vcmux", 24, Some(Cells::Atm), None),
    link("bridged-llcsnap", 32, Some(Cells::Atm), None),
    link("pppoa-vcmux", 10, Some(Cells::Atm), None),
    link("pppoa-llc", 14, Some(Cells::Atm), None),
    link("pppoe-vcmux", 32, Some(Cells::Atm), None),
    link("pppoe-llcsnap", 40, Some(Cells::Atm), None),
    // 2 PPP, 6 PPPoE, 14 Ethernet, 4 check sequence, 4 of PTM's own.
    link("pppoe-ptm", 30, Some(Cells::Ptm), None),
    link("bridged-ptm", 22, Some(Cells::Ptm), None),
    // 8 preamble, 14 header, 4 check sequence, 12 gap. The man page says noatm; the source leaves the cells alone.
    link("ethernet", 38, None, Some(84)),
    link("ether-vlan", 4, None, None),
    link("docsis", 18, Some(Cells::None), Some(64)),
];

/// Every keyword, for suggestions.
fn keywords() -> impl Iterator<Item = &'static str> {
    const PLAIN: [&str; 22] = [
        "bandwidth",
        "unlimited",
        "autorate-ingress",
        "rtt",
        "nat",
        "nonat",
        "wash",
        "nowash",
        "ingress",
        "egress",
        "split-gso",
        "no-split-gso",
        "memlimit",
        "fwmark",
        "overhead",
        "mpu",
        "atm",
        "ptm",
        "noatm",
        "raw",
        "conservative",
        "via-ethernet",
    ];
    PLAIN
        .into_iter()
        .chain(TINS.iter().map(|(name, _)| *name))
        .chain(ISOLATION.iter().map(|(name, _)| *name))
        .chain(ACK_FILTER.iter().map(|(name, _)| *name))
        .chain(RTT_PRESETS.iter().map(|(name, _)| *name))
        .chain(LINK_LAYERS.iter().map(|link| link.name))
}

/// The first name of `value`. Each table names every value.
fn name_in<T: PartialEq + Copy>(table: &[(&'static str, T)], value: T) -> &'static str {
    table
        .iter()
        .find(|(_, named)| *named == value)
        .map_or("", |(name, _)| name)
}

/// A 32-bit mask in decimal or, after `0x`, hexadecimal.
fn mask(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    u32::from_str_radix(digits, radix)
        .ok()
        .filter(|_| !digits.starts_with('+'))
}

#[cfg(test)]
mod tests;
