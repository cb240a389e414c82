//! fq_codel's parameters and their `tc` words.

use crate::units::{Bytes, Nanos};

/// Every parameter of one fq_codel instance; [`Default`] is what the kernel does when no word is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// Packets held by the whole qdisc.
    pub limit: u32,
    /// Number of queues; fixed once created.
    pub flows: u32,
    /// Acceptable standing delay.
    pub target: Nanos,
    /// Window in which the delay must have fallen below target once.
    pub interval: Nanos,
    /// Bytes a flow may send per round; `None` is the device's MTU with its link header.
    pub quantum: Option<u32>,
    /// Mark instead of dropping where the packet allows it.
    pub ecn: bool,
    /// Mark above this delay at once; `None` is off.
    pub ce_threshold: Option<Nanos>,
    /// Packets dropped in one go on overflow.
    pub drop_batch: u32,
    /// Memory held by the whole qdisc.
    pub memory_limit: Bytes,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self {
            limit: 10240,
            flows: 1024,
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            quantum: None,
            ecn: true,
            ce_threshold: None,
            drop_batch: 64,
            memory_limit: Bytes(32 << 20),
        }
    }
}
