//! Keeps a shaper's rate just under that of a line whose rate varies: many samples in, one rate per direction out.
//!
//! [`Controller::step`] is a pure function of its state and its arguments. The caller keeps the clock, sends the
//! probes, counts the bytes and writes the rates. [`Autorate`] is our controller; [`cake_autorate`] reproduces the
//! arithmetic of cake-autorate for comparison.
//!
//! # How `Autorate` decides
//!
//! * **Delay.** Each reflector and each TCP flow is a [`path`](evidence) with its own baseline, the least delay of its
//!   last 30 active seconds. What it shows above that is its vote on the queue. The second smallest of the four newest
//!   votes counts, so that one reflector can neither cut the rate nor hide a queue. A probe that is overdue votes with
//!   its age, so that a collapse is seen before its replies arrive; unless a later one has overtaken it without a queue. Votes that
//!   contradict each other count as none. While there may be a queue, probes follow each other twice as fast. A flow has no more
//!   than reflectors confirm, if there are any: its far end may wait behind another line. Of a round trip a direction has what the other is not known to have.
//! * **Capacity.** While there is a queue, the line is busy: what arrives from it is what it carries, and of what is sent
//!   to it it carries `sent * time / (time + growth of the delay)`. The rate is that, less what empties the queue down to
//!   5 ms in a tenth of a second or two, to 6.5 ms together where both directions are loaded and nothing tells them apart.
//!   Where several paths do, an upload beside a download keeps 1.5 ms, as that one's acknowledgements wait in its queue, and
//!   begins again a little lower; and a restless line as much more as its dips take away. A download keeps seven tenths of
//!   the rate: its queue goes as senders reduce, once in a round trip, of which our own queue would be a part.
//! * **A fall.** When senders fall silent and probes are overdue, the line is taken to carry what still passes, and all that
//!   was under way to wait in its buffer. If the other direction's senders are as silent, it is held to what passed last.
//! * **Growth.** Quick far below what was found last, slow near it, faster and faster beyond it; never far before it is heard of.
//! * **A moment's outage.** A download's queue that is gone before its senders can have heard of the cut leaves the rate as it was.
//! * **Old news.** On a path of 300 ms and more what the line varies by is not searched for: the rate is [the least](law) that was found
//!   lately and goes slowly beyond it. A download that begins has half until its senders have left slow start, a cut of it lasts
//!   until they can know of it, a queue that is gone sooner was a burst, and what probes met is measured by what was sent then.
//! * **Whose queue.** Where only round trips are known and both directions are loaded, one at a time is tried out while the
//!   other stays below what was found, and a little lower while a small queue stands. The first is accused of a queue, unless the
//!   arrivals say otherwise, or only the other explores or has just had a queue. What does not help is taken back, and the other
//!   is accused: also if a download's senders send no more than our shaper lets pass, and the queue stays.
//! * **Not our queue.** A delay that stays when the rate is cut, and loses no probes, is a new path: the baseline
//!   moves and the rate comes back. So is one that stays while [ever more](law) of a download arrives, and what is left of a round
//!   trip when a download's senders obey and both directions are cut for it. While a direction rests, what it has is the path's.
//! * **No load**: the rate stays, probes stop; after a rest it is the most that was found lately, for a load that begins.
//! * **No signals**: the rate stays for a while, then goes to base.
//!
//! # Sources
//!
//! The capacity estimate is that of packet trains (Dovrolis et al., INFOCOM 2001); aiming at a small queue follows PIE (RFC
//! 8033 section 4.2) in spirit, its size CoDel (RFC 8289 section 4.3), growth around what was found CUBIC (RFC 9438 section
//! 4.1), windowed minimum baselines BBR and LEDBAT (RFC 6817 section 3.4.2).
//!
//! # How it is tested
//!
//! Unit tests with explicit times and property tests here; against modelled lines in `sqm-sim`, whose figures
//! `docs/results/autorate-bench.md` holds.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attribution;
mod autorate;
pub mod cake_autorate;
pub mod capacity_by_hour;
mod controller;
mod delay;
mod observation;
mod signal;
mod throughput;
pub mod trace;

#[cfg(test)]
mod tests;

pub use autorate::Autorate;
pub use capacity_by_hour::CapacityByHour;
pub use signal::{Bounds, Choice, Controller, Decision, Probes, Reason, Sample, Signal};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// `value * numerator / denominator`, rounded down, saturating; a zero denominator counts as one.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
