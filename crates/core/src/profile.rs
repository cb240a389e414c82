//! The known defects of Linux's queueing disciplines, one switch each: reproduced for comparison, repaired by default.
//!
//! Each was measured in Linux 6.12.117.

/// Which of the kernel's defects are reproduced; `true` reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// COBALT: the first episode in each queue signals at its second late packet instead of after one interval, because
    /// the inverse square root starts at 0, and so does the episode that begins with the first packet after a pause, because
    /// the pause is taken for lateness.
    pub cobalt_first_episode: bool,
    /// COBALT: the control law takes the interval modulo 2³² ns, which is wrong above 4.29 s.
    pub cobalt_interval_32_bits: bool,
    /// CAKE: autorate-ingress reconfigures at every window's end, its 250 ms guard never being armed.
    pub autorate_unguarded: bool,
    /// CAKE: `capacity_estimate` stays at the bandwidth of the qdisc's creation.
    pub capacity_estimate_stale: bool,
    /// CAKE: a shaped tin's deficit sinks without bound, and a change to unlimited then spins until it is paid.
    pub tin_deficit_unbounded: bool,
    /// CAKE: the computed buffer limit is cut to 32 bits.
    pub buffer_limit_32_bits: bool,
    /// CAKE: the overflow heap sinks an entry by one level only, so that the victim is not always the fattest queue.
    pub overflow_heap_shallow: bool,
    /// CAKE: a flow whose share of the quantum is small is visited and credited once per round until it may send. Repaired,
    /// it is credited for all those rounds at once and sits them out.
    pub round_by_round: bool,
    /// CAKE's ACK filter takes later fragments of a datagram for TCP headers.
    pub ack_filter_fragments: bool,
    /// CoDel: times are 32 bits of 1.024 µs, so that "recently" comes again every 2200 s.
    pub codel_clock_32_bits: bool,
}

impl Profile {
    /// Packet-exact with Linux 6.12.
    pub const KERNEL: Self = Self {
        cobalt_first_episode: true,
        cobalt_interval_32_bits: true,
        autorate_unguarded: true,
        capacity_estimate_stale: true,
        tin_deficit_unbounded: true,
        buffer_limit_32_bits: true,
        overflow_heap_shallow: true,
        round_by_round: true,
        ack_filter_fragments: true,
        codel_clock_32_bits: true,
    };

    /// All repaired.
    pub const FIXED: Self = Self {
        cobalt_first_episode: false,
        cobalt_interval_32_bits: false,
        autorate_unguarded: false,
        capacity_estimate_stale: false,
        tin_deficit_unbounded: false,
        buffer_limit_32_bits: false,
        overflow_heap_shallow: false,
        round_by_round: false,
        ack_filter_fragments: false,
        codel_clock_32_bits: false,
    };
}

impl Default for Profile {
    fn default() -> Self {
        Self::FIXED
    }
}
