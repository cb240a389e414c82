//! The queues of sqm, the units, and the typed `tc` grammar of their specifications.
//!
//! This crate knows no clock and no I/O: time and randomness are arguments, and `no_std` makes that a compile
//! error rather than a review comment.
//!
//! * [`packet`], [`qdisc`]: packets as queues see them, and the contract of all queues.
//! * [`profile`]: the kernel's known defects, reproduced or repaired.
//! * [`units`]: [`Rate`](units::Rate), [`Bytes`](units::Bytes), [`Nanos`](units::Nanos), never bare integers.
//! * [`direction`]: download and upload, and a value for each.
//! * [`frame`]: packets that are bytes, parsed as far as queues need them.
//! * [`flow_hash`], [`rng`]: keyed hashes and seeded randomness.
//! * [`fifo`], [`codel`], [`fq_codel`], [`cake`], [`tbf`], [`htb`], [`hfsc`]: the queues; [`tree`] puts them together,
//!   with [`filter`]s and a [`size_table`].
//! * [`spec`]: the typed `tc` grammar, which reads and prints words.
//! * [`nearest`]: the word that was probably meant, for messages.
#![no_std]
#![forbid(unsafe_code)]
// A number that does not fit must not pass unseen: `narrow` has conversions whose names say what happens to it.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

extern crate alloc;

mod ack_filter;
pub mod cake;
mod cobalt;
pub mod codel;
pub mod diffserv;
pub mod direction;
pub mod fifo;
pub mod filter;
pub mod flow;
pub mod flow_hash;
pub mod fq_codel;
pub mod frame;
pub mod framing;
pub mod handle;
pub mod hfsc;
pub mod htb;
mod narrow;
pub mod nearest;
pub mod packet;
mod packet_list;
pub mod peekable;
pub mod profile;
pub mod qdisc;
pub mod rate_cost;
pub mod rng;
mod shaper;
pub mod size_table;
mod sorted;
pub mod spec;
pub mod tbf;
#[cfg(test)]
mod test_packet;
pub mod tree;
pub mod units;
// No unit test needs it, and it would compile every queue once more for its own packets.
#[cfg(not(test))]
pub mod workload;
