//! One of the host's processors for each guest.
//!
//! User Mode Linux uses one processor at a time: at each system call and page fault of a guest process, that process and the kernel
//! wait for each other. The host's scheduler spreads them over all processors, and each of them has to wake the processor of the
//! other one: a test of the lab took 4.0 s of processor time on two processors, and 2.4 s on one. So the kernel is bound to one
//! processor, and its processes inherit that.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The number of this program's guests on each processor that has one.
static GUESTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A processor that a guest uses until this value is dropped.
#[derive(Debug)]
pub(crate) struct Processor(usize);

impl Processor {
    /// The processor with the fewest guests of this program, among those that this program may use. `None` if the host does not
    /// say which they are.
    pub(crate) fn with_fewest_guests() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n)).collect();
        // Programs that run at the same time begin at different processors.
        let first = std::process::id() as usize % allowed.len().max(1);
        let (before, after) = allowed.split_at(first);
        let mut guests = guests();
        let count = |n: &usize| guests.get(n).copied().unwrap_or(0);
        let chosen = after.iter().chain(before).copied().min_by_key(count)?;
        *guests.entry(chosen).or_default() += 1;
        Some(Self(chosen))
    }

    /// Binds the calling thread, and the processes that it starts, to this processor.
    pub(crate) fn bind_thread(&self) {
        let mut set = CpuSet::new();
        set.set(self.0);
        // A guest that may run on any processor is slower, and nothing else.
        let _ = sched_setaffinity(None, &set);
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        if let Some(count) = guests().get_mut(&self.0) {
            *count -= 1;
        }
    }
}

fn guests() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    GUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_spread_over_the_processors() {
        let known = sched_getaffinity(None)
            .expect("Linux says which they are")
            .count() as usize;
        let taken: Vec<Processor> = (0..2 * known)
            .map(|_| Processor::with_fewest_guests().expect("there is one"))
            .collect();
        for processor in &taken {
            assert_eq!(taken.iter().filter(|other| other.0 == processor.0).count(), 2);
        }
    }
}
