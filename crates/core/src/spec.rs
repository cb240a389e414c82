//! What a queueing discipline is asked to be, as typed data, with the `tc` words for it.
//!
//! A specification holds every parameter with its effective value: what `tc` leaves unsaid is filled with the
//! kernel's default here, so that two specifications can be compared field by field and the kernel's answer can
//! be compared with the plan. Words come in through `parse`, in `tc`'s order semantics (a later word wins), and go
//! out through `Display` in a canonical order that parses back to the same value.

pub mod cake;
pub mod fq_codel;

/// One queueing discipline with all its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Qdisc {
    /// Common Applications Kept Enhanced.
    Cake(cake::Cake),
    /// Flow Queue CoDel (RFC 8290).
    FqCodel(fq_codel::FqCodel),
    /// Hierarchical token bucket: the root that carries [`HtbClass`]es.
    Htb(Htb),
}

/// The root of an HTB hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Htb {
    /// Minor number of the class that takes unclassified packets (`default 10` is class `1:10`, hexadecimal).
    pub default: u32,
}

/// One HTB class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbClass {
    /// Guaranteed rate.
    pub rate: crate::units::Rate,
    /// Rate up to which it may borrow.
    pub ceil: crate::units::Rate,
    /// Priority among siblings that borrow; lower goes first.
    pub prio: u32,
    /// Bytes served per round when borrowing.
    pub quantum: u32,
    /// Bytes that may leave at once at `rate`.
    pub burst: crate::units::Bytes,
    /// Bytes that may leave at once at `ceil`.
    pub cburst: crate::units::Bytes,
}

/// A size table on a root qdisc (`tc-stab`): how many bytes a packet really costs on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stab {
    /// Largest packet the table covers, bytes.
    pub mtu: u32,
    /// Entries in the table.
    pub tsize: u32,
    /// Least size a packet is counted with, bytes.
    pub mpu: u32,
    /// Bytes added to each packet, on top of the length the kernel knows.
    pub overhead: i32,
    /// Cell framing of the line.
    pub linklayer: LinkLayer,
}

/// The cell framing that a size table or an HTB class can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Whole packets.
    Ethernet,
    /// 48 bytes of payload in 53-byte cells.
    Atm,
}
