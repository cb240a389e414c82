//! Evidence that a reflector's probes bypass the queue in which the user's packets wait.
//!
//! Some carriers treat ICMP, or other small probes, specially: at the same moment a ping takes 31 ms and a TCP segment 240 ms. Then
//! several connections agree on a queue that the reflector does not show. The evidence is the time for which they did, less the time
//! for which the reflector showed the queue, too. While there is no queue, nothing can be told.

use alloc::vec::Vec;

use sqm_core::units::Nanos;

/// A shorter queue than this is no evidence. A choice: above the queues that the controllers aim at.
const CLEAR_QUEUE: Nanos = Nanos::from_millis(15);
/// A reflector that shows less than one part in this of the queue does not show it. A choice.
const SHARE: u64 = 2;
/// This much evidence is a proof. A choice: a queue that builds up or drains lasts less long.
const PROOF: Nanos = Nanos::from_millis(5000);
/// If the probes bypass the queue of the other direction, this much less is needed. A choice.
const LIKELY: Nanos = Nanos::from_millis(4000);
/// More evidence is not collected, so that it takes this long to withdraw a proof. A choice.
const MOST: Nanos = Nanos::from_millis(15_000);
/// One answer counts for at most this long. A choice: reflectors in turn answer every 300 ms under load.
const ANSWER_LASTS: Nanos = Nanos::from_millis(1000);

/// The evidence about one reflector in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Disagreement {
    /// Nanoseconds.
    evidence: u64,
    /// True from the proof on, until the reflector has shown the queue for as long.
    pub(super) is_proven: bool,
}

impl Disagreement {
    /// Adds an answer, `since_last` after the previous one: the queue delays that the newest answers show, newest first, and the one
    /// that the connections agree on. Returns true if this proves that the probes bypass the queue.
    ///
    /// None of the answers may show the queue, because it may have just begun. The newest two must show it to count against a proof,
    /// because a single one may be late by chance.
    pub(super) fn add(&mut self, since_last: Nanos, shown: &[Nanos], agreed: Nanos) -> bool {
        if agreed <= CLEAR_QUEUE {
            return false;
        }
        let shows = |delay: &Nanos| delay.0 >= agreed.0 / SHARE;
        let lasts = since_last.0.min(ANSWER_LASTS.0);
        let was_proven = self.is_proven;
        if !shown.iter().any(shows) {
            self.evidence = (self.evidence + lasts).min(MOST.0);
            self.is_proven |= self.evidence >= PROOF.0;
        } else if shown.iter().take(2).all(shows) {
            self.evidence = self.evidence.saturating_sub(lasts);
            self.is_proven &= self.evidence > 0;
        }
        self.is_proven && !was_proven
    }

    /// Makes a proof easier, because the probes bypass the queue of the other direction.
    pub(super) fn expect(&mut self) {
        self.evidence = self.evidence.max(LIKELY.0);
    }
}

/// The delay that connections agree on: at least `needed` of them, and more than half, report this much or more. `None` if there are
/// too few.
pub(super) fn agreed_delay(mut delays: Vec<Nanos>, needed: usize) -> Option<Nanos> {
    let needed = needed.max(delays.len() / 2 + 1);
    delays.sort_unstable();
    delays.len().checked_sub(needed).map(|index| delays[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Nanos = Nanos::from_millis(300);
    const QUEUE: Nanos = Nanos::from_millis(240);

    /// Adds answers in turn for some seconds.
    fn add(evidence: &mut Disagreement, seconds: u64, shown: u64, agreed: u64) -> bool {
        for _ in 0..seconds * 1000 / 300 {
            evidence.add(TURN, &[Nanos::from_millis(shown)], Nanos::from_millis(agreed));
        }
        evidence.is_proven
    }

    #[test]
    fn a_queue_that_the_reflector_does_not_show_for_five_seconds_is_a_proof() {
        let mut evidence = Disagreement::default();
        assert!(!add(&mut evidence, 4, 6, 240));
        assert!(add(&mut evidence, 2, 6, 240));
    }

    #[test]
    fn a_queue_that_both_show_withdraws_the_proof_and_no_queue_does_not() {
        let mut evidence = Disagreement::default();
        assert!(add(&mut evidence, 60, 6, 240));
        assert!(add(&mut evidence, 3600, 1, 8), "no queue");
        assert!(add(&mut evidence, 14, 50, 60));
        assert!(!add(&mut evidence, 2, 50, 60));
        assert!(!add(&mut evidence, 4, 6, 240), "it must be proven again");
    }

    #[test]
    fn a_queue_that_the_reflector_shows_half_of_the_time_is_no_proof() {
        let mut evidence = Disagreement::default();
        for _ in 0..100 {
            assert!(!add(&mut evidence, 2, 6, 240));
            assert!(!add(&mut evidence, 2, 240, 240));
        }
    }

    #[test]
    fn answers_of_which_some_show_the_queue_say_nothing() {
        let mut evidence = Disagreement::default();
        for proven in [false, true] {
            for _ in 0..100 {
                evidence.add(TURN, &[QUEUE, Nanos(0), Nanos(0), Nanos(0)], QUEUE);
                assert_eq!(evidence.is_proven, proven);
            }
            add(&mut evidence, 60, 6, 240);
        }
    }

    #[test]
    fn a_proof_for_the_other_direction_leaves_one_second_to_be_proven() {
        let mut evidence = Disagreement::default();
        evidence.expect();
        assert!(!evidence.is_proven);
        assert!(add(&mut evidence, 2, 6, 240));
    }

    #[test]
    fn rare_answers_are_no_proof_of_the_time_between_them() {
        let mut evidence = Disagreement::default();
        for _ in 0..4 {
            evidence.add(Nanos::from_millis(60_000), &[Nanos(0)], QUEUE);
        }
        assert!(!evidence.is_proven);
    }

    #[test]
    fn connections_agree_if_three_and_more_than_half_of_them_do() {
        for (delays, agreed) in [
            (&[240, 230][..], None),
            (&[240, 230, 250], Some(230)),
            (&[240, 0, 0], Some(0)),
            (&[240, 230, 1], Some(1)),
            (&[240, 230, 250, 0], Some(230)),
            (&[240, 230, 250, 0, 2, 3], Some(3)),
        ] {
            let nanos = delays.iter().copied().map(Nanos).collect();
            assert_eq!(agreed_delay(nanos, 3), agreed.map(Nanos), "{delays:?}");
        }
        assert_eq!(agreed_delay([240, 230].map(Nanos).to_vec(), 2), Some(Nanos(230)));
    }
}
