//! The figures of a tree that `tc -s` shows, as plain data.

use alloc::vec::Vec;

use crate::handle::Handle;
use crate::qdisc::{Backlog, Counters};
use crate::{cake, codel, fq_codel, hfsc, htb, tbf};

/// A discipline or class as it stands now.
#[derive(Clone, Debug)]
pub struct NodeStats {
    /// Its own handle; `0:` for the queue that a class has while nothing hangs in it.
    pub handle: Handle,
    /// The parent; `None` is the root.
    pub parent: Option<Handle>,
    /// `htb`, `fq_codel`; of a class, its discipline's.
    pub kind: &'static str,
    /// Sent, dropped, held up.
    pub counters: Counters,
    /// Queued here and below.
    pub backlog: Backlog,
    /// Figures that only its kind has.
    pub details: Details,
}

/// Figures of one kind of discipline or class.
#[derive(Clone, Debug)]
pub enum Details {
    /// Nothing more.
    Fifo,
    /// `codel`.
    Codel {
        /// Its parameters.
        params: codel::Params,
        /// Its state.
        state: codel::State,
        /// Its own counters.
        stats: codel::Stats,
        /// Packets refused because the queue was full.
        drop_overlimit: u64,
    },
    /// `fq_codel`.
    FqCodel {
        /// Its parameters.
        params: fq_codel::Params,
        /// Its own counters.
        stats: fq_codel::Stats,
        /// The flows that wait for their turn.
        flows: Vec<fq_codel::FlowStats>,
    },
    /// `cake`.
    Cake {
        /// The whole of it and its tins.
        stats: cake::Stats,
        /// The queues that were ever used.
        queues: Vec<cake::QueueStats>,
    },
    /// `tbf`.
    Tbf(tbf::Stats),
    /// `htb`.
    Htb {
        /// Packets that no class took.
        direct_packets: u64,
    },
    /// A class of `htb`.
    HtbClass(htb::ClassStats),
    /// `hfsc`.
    Hfsc,
    /// A class of `hfsc`.
    HfscClass(hfsc::ClassStats),
}
