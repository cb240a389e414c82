//! Which direction a longer round trip is attributed to, while both are busy and neither is measured by itself.
//!
//! On a line that varies, no sign tells the directions apart in time. A queue of the upload holds back acknowledgements, so that less
//! of a download arrives, just as if the line held the download back. Both directions are cut, and neither learns a capacity.
//!
//! On a line that varies little, one direction explores at a time, while the other one waits below its known capacity. A new queue
//! is then most likely the explorer's, and only one direction is cut. If a deep cut does not shorten the queue, the other direction
//! is cut instead; if that does not help either, both are. Both are cut at once for a queue that is too long for an explorer: the
//! line has lost much of its capacity.

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos};

use crate::params::Params;

/// The evidence about one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// There is, or was a moment ago, enough traffic for a queue.
    pub(crate) is_busy: bool,
    /// Some traffic passes now.
    pub(crate) has_traffic: bool,
    /// Its delay is known by itself.
    pub(crate) is_known: bool,
    /// A cut is in progress.
    pub(crate) is_cut: bool,
}

/// The evidence about both directions together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) now: Instant,
    pub(crate) directions: PerDirection<Evidence>,
    /// A direction varies so little that it stays below its known capacity while the other one explores.
    pub(crate) varies_little: bool,
    /// Queue delay of both directions together, milliseconds.
    pub(crate) queue: f64,
}

impl Situation {
    /// True if a queue in a direction may be the other one's. The known queue of the other one is no part of it.
    fn is_ambiguous(&self) -> bool {
        let PerDirection { download, upload } = self.directions;
        download.is_busy && upload.is_busy && !download.is_known && !upload.is_known
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspect {
    None,
    /// The first suspect of this queue.
    First(Direction),
    /// The other one, because cutting the first had no effect.
    Second(Direction),
    Both,
}

/// Attributes queues to directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribution {
    /// The direction that explores, and since when.
    turn: (Direction, Instant),
    /// The direction that is busy alone.
    alone: Option<Direction>,
    suspect: Suspect,
    is_ambiguous: bool,
    /// No direction was cut at the last step.
    was_quiet: bool,
    /// Each direction was busy at the last step, or when the queue began.
    was_busy: PerDirection<bool>,
}

impl Attribution {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            turn: (Direction::Download, now),
            alone: None,
            suspect: Suspect::None,
            is_ambiguous: false,
            was_quiet: true,
            was_busy: PerDirection {
                download: false,
                upload: false,
            },
        }
    }

    /// Takes in the present evidence.
    pub(crate) fn update(&mut self, params: &Params, situation: &Situation) {
        let situation = &self.with_memory(params, *situation);
        self.change_turns(params, situation);
        self.begin_load(situation);
        self.is_ambiguous = situation.is_ambiguous();
        self.suspect = self.suspect(params, situation);
    }

    /// True if a direction answers for a queue that round trips show.
    pub(crate) fn answers(&self, direction: Direction) -> bool {
        match self.suspect {
            Suspect::First(suspect) | Suspect::Second(suspect) => suspect == direction,
            Suspect::None | Suspect::Both => self.alone.is_none_or(|alone| alone == direction),
        }
    }

    /// True if a queue in one direction may be the other one's.
    pub(crate) const fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// True if a direction may grow beyond its known capacity: only one does at a time, where the directions are not told apart.
    pub(crate) fn may_explore(&self, direction: Direction) -> bool {
        let is_others = self.suspect != Suspect::None && !self.answers(direction);
        !self.is_ambiguous || self.turn.0 == direction && !is_others
    }

    /// True if a queue that a direction is cut for shows its capacity: no other direction is cut for it.
    pub(crate) fn teaches(&self, direction: Direction) -> bool {
        !self.is_ambiguous || self.answers(direction) && !self.answers(direction.other())
    }

    /// A deep cut of a direction had no effect.
    pub(crate) fn acquit(&mut self, direction: Direction) {
        self.suspect = match self.suspect {
            Suspect::First(_) => Suspect::Second(direction.other()),
            Suspect::Second(_) => Suspect::Both,
            Suspect::None | Suspect::Both => self.suspect,
        };
    }

    /// The situation, with each direction busy that was busy when the queue began: on a line that has lost most of its capacity, the
    /// traffic is far below the rate.
    fn with_memory(&mut self, params: &Params, mut situation: Situation) -> Situation {
        for direction in Direction::BOTH {
            let evidence = &mut situation.directions[direction];
            evidence.is_busy |=
                situation.queue >= params.target_both_ms && self.was_busy[direction] && evidence.has_traffic;
            self.was_busy[direction] = evidence.is_busy;
        }
        situation
    }

    fn change_turns(&mut self, params: &Params, situation: &Situation) {
        let is_quiet = self.suspect == Suspect::None
            && !situation.directions.download.is_cut
            && !situation.directions.upload.is_cut;
        let lasts = seconds(situation.now.since(self.turn.1));
        let is_over = lasts > params.turn && !self.was_quiet || lasts > 2.0 * params.turn;
        if is_quiet && is_over {
            self.turn = (self.turn.0.other(), situation.now);
        }
        self.was_quiet = is_quiet;
    }

    /// Gives the next turn to a load that begins: a queue that appears now is most likely its. An older queue is the other direction's.
    fn begin_load(&mut self, situation: &Situation) {
        let Situation { now, directions, .. } = *situation;
        match (directions.download.is_busy, directions.upload.is_busy) {
            (true, true) => {
                if let Some(older) = self.alone.take() {
                    self.turn = (older.other(), now);
                    if directions[older].is_cut {
                        self.suspect = Suspect::First(older);
                    }
                }
            }
            (true, false) => self.alone = Some(Direction::Download),
            (false, true) => self.alone = Some(Direction::Upload),
            (false, false) => self.alone = None,
        }
    }

    fn suspect(&self, params: &Params, situation: &Situation) -> Suspect {
        if !self.is_ambiguous || situation.queue < params.target_both_ms {
            return Suspect::None;
        }
        let is_sudden = situation.queue > params.sudden_ms;
        match self.suspect {
            Suspect::None if situation.varies_little && !is_sudden => Suspect::First(self.turn.0),
            Suspect::None => Suspect::Both,
            Suspect::First(_) if is_sudden => Suspect::Both,
            suspect => suspect,
        }
    }
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Both directions of a line that varies are busy, with a queue of 20 ms.
    fn situation() -> Situation {
        let evidence = Evidence {
            is_busy: true,
            has_traffic: true,
            is_known: false,
            is_cut: false,
        };
        Situation {
            now: Instant(0),
            directions: PerDirection::from_fn(|_| evidence),
            varies_little: false,
            queue: 20.0,
        }
    }

    fn steady() -> Situation {
        Situation {
            varies_little: true,
            ..situation()
        }
    }

    fn updated(situation: &Situation) -> Attribution {
        let mut attribution = Attribution::new(Instant(0));
        attribution.update(&Params::default(), situation);
        attribution
    }

    /// The directions that answer for the queue.
    fn answering(attribution: &Attribution) -> Vec<Direction> {
        Direction::BOTH
            .into_iter()
            .filter(|direction| attribution.answers(*direction))
            .collect()
    }

    #[test]
    fn a_direction_alone_answers_for_all() {
        let mut alone = situation();
        alone.directions.download.is_busy = false;
        assert_eq!(answering(&updated(&alone)), [Direction::Upload]);
        assert!(updated(&alone).teaches(Direction::Upload));
    }

    #[test]
    fn both_directions_of_a_line_that_varies_answer_and_learn_nothing() {
        let attribution = updated(&situation());
        assert_eq!(answering(&attribution), Direction::BOTH);
        assert!(
            !Direction::BOTH
                .into_iter()
                .any(|direction| attribution.teaches(direction))
        );
    }

    #[test]
    fn the_direction_that_explores_is_suspect_where_the_line_varies_little() {
        // The turn begins with the download.
        let attribution = updated(&steady());
        assert!(attribution.may_explore(Direction::Download) && !attribution.may_explore(Direction::Upload));
        assert_eq!(answering(&attribution), [Direction::Download]);
        assert!(attribution.teaches(Direction::Download) && !attribution.teaches(Direction::Upload));
    }

    #[test]
    fn a_suspect_whose_cut_has_no_effect_is_acquitted() {
        let steady = steady();
        let mut attribution = updated(&steady);
        attribution.acquit(Direction::Download);
        attribution.update(&Params::default(), &steady);
        assert_eq!(answering(&attribution), [Direction::Upload]);
        attribution.acquit(Direction::Upload);
        attribution.update(&Params::default(), &steady);
        assert_eq!(answering(&attribution), Direction::BOTH);
    }

    #[test]
    fn a_queue_that_is_older_than_a_load_is_not_that_loads() {
        let mut both = situation();
        both.directions.upload.is_cut = true;
        let mut alone = both;
        alone.directions.download.is_busy = false;
        let mut attribution = updated(&alone);
        attribution.update(&Params::default(), &both);
        assert_eq!(answering(&attribution), [Direction::Upload]);
        assert!(!attribution.may_explore(Direction::Download), "there is a queue");
        both.queue = 0.0;
        attribution.update(&Params::default(), &both);
        assert!(
            attribution.may_explore(Direction::Download),
            "a load that begins has the turn"
        );
    }

    #[test]
    fn a_turn_ends_when_the_queue_of_the_explorer_has_drained_or_after_twice_its_time() {
        // The time at which the upload explores, if the download is cut during this time, seconds.
        let upload_explores_at = |cut: core::ops::Range<f64>| {
            let mut attribution = Attribution::new(Instant(0));
            let mut situation = Situation {
                queue: 0.0,
                ..steady()
            };
            attribution.update(&Params::default(), &situation);
            while !attribution.may_explore(Direction::Upload) {
                situation.now = situation.now + Nanos::from_millis(50);
                situation.directions.download.is_cut =
                    cut.contains(&seconds(situation.now.since(Instant(0))));
                attribution.update(&Params::default(), &situation);
            }
            seconds(situation.now.since(Instant(0)))
        };
        assert!((8.0..8.2).contains(&upload_explores_at(0.0..0.0)));
        assert!((8.0..8.2).contains(&upload_explores_at(3.0..3.5)));
        assert!((5.0..5.2).contains(&upload_explores_at(4.5..5.0)));
        assert!((9.0..9.2).contains(&upload_explores_at(7.5..9.0)));
    }

    #[test]
    fn a_direction_whose_traffic_collapsed_with_the_line_stays_suspect_as_long_as_the_queue_lasts() {
        let mut collapsed = situation();
        let mut attribution = updated(&collapsed);
        collapsed.directions.download.is_busy = false;
        attribution.update(&Params::default(), &collapsed);
        assert!(attribution.answers(Direction::Download) && attribution.is_ambiguous());
        collapsed.queue = 0.0;
        attribution.update(&Params::default(), &collapsed);
        assert!(!attribution.is_ambiguous(), "{attribution:?}");
    }

    #[test]
    fn a_queue_that_is_too_long_for_an_explorer_is_attributed_to_both_directions() {
        let mut attribution = updated(&steady());
        attribution.update(
            &Params::default(),
            &Situation {
                queue: 400.0,
                ..steady()
            },
        );
        assert_eq!(answering(&attribution), Direction::BOTH);
    }
}
