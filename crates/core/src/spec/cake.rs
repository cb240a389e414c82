//! CAKE's parameters and their `tc` words.

use crate::units::{Bytes, Nanos, Rate};

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
    /// What the flows are hashed on.
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
    /// What a packet costs on the line.
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

/// What CAKE keeps apart, and among whom it is fair.
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
    /// Drop those that carry no news.
    Filter,
    /// Drop more of them.
    Aggressive,
}

/// What a packet costs on the line, as CAKE counts it.
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
            framing: Framing { from_ip: false, overhead: 0, mpu: 0, cells: Cells::None },
        }
    }
}
