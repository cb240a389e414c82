//! Which direction a longer round trip is attributed to, while both are busy and neither is measured by itself.
//!
//! Two observations tell the directions apart. While the line holds a queue of the download, less arrives than our shaper lets
//! pass. And a direction whose rate is well below its recent traffic is unlikely to have caused a queue. On a line that varies, each
//! direction answers for the share that these observations give it.
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
    /// The line varies so little that this direction stays below its known capacity while the other one explores.
    pub(crate) waits_for_turn: bool,
    /// The rate by the highest recent traffic.
    pub(crate) rate_by_highest: f64,
}

/// The evidence about both directions together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) now: Instant,
    pub(crate) directions: PerDirection<Evidence>,
    /// Queue delay of both directions together, milliseconds.
    pub(crate) queue: f64,
    /// Round trip without a queue, milliseconds.
    pub(crate) base_rtt: f64,
    /// The share of what the download is allowed that does not arrive.
    pub(crate) deficit: f64,
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
    /// The direction that was busy alone until now.
    alone: Option<Direction>,
    suspect: Suspect,
    shares: PerDirection<f64>,
    is_ambiguous: bool,
    /// Each direction was busy at the last step, or when the queue began.
    was_busy: PerDirection<bool>,
}

impl Attribution {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            turn: (Direction::Download, now),
            alone: None,
            suspect: Suspect::None,
            shares: PerDirection {
                download: 1.0,
                upload: 1.0,
            },
            is_ambiguous: false,
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
        let shares = self.likely_shares(params, situation);
        self.update_suspect(params, situation, shares);
        self.shares = match self.suspect {
            Suspect::First(suspect) | Suspect::Second(suspect) => {
                PerDirection::from_fn(|direction| if direction == suspect { 1.0 } else { 0.0 })
            }
            Suspect::None | Suspect::Both => shares,
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

    /// The share of a round trip's queue delay that a direction answers for, 0 to 1. Both answer for all of it if they are
    /// equally suspect.
    pub(crate) fn share(&self, direction: Direction) -> f64 {
        self.shares[direction]
    }

    /// True if a queue in one direction may be the other one's.
    pub(crate) const fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// True if a direction may grow beyond its known capacity: only one does at a time, where the directions are not told apart.
    pub(crate) fn may_explore(&self, direction: Direction) -> bool {
        !self.is_ambiguous || self.turn.0 == direction
    }

    /// True if a queue that a direction is cut for shows its capacity: no other direction is cut for it.
    pub(crate) fn teaches(&self, direction: Direction) -> bool {
        let is_suspect = match self.suspect {
            Suspect::First(suspect) | Suspect::Second(suspect) => suspect == direction,
            Suspect::None | Suspect::Both => false,
        };
        is_suspect || !self.is_ambiguous
    }

    /// A deep cut of a direction had no effect.
    pub(crate) fn acquit(&mut self, direction: Direction) {
        self.suspect = match self.suspect {
            Suspect::First(_) => Suspect::Second(direction.other()),
            Suspect::Second(_) => Suspect::Both,
            Suspect::None | Suspect::Both => self.suspect,
        };
    }

    fn change_turns(&mut self, params: &Params, situation: &Situation) {
        let is_quiet = self.suspect == Suspect::None
            && !situation.directions.download.is_cut
            && !situation.directions.upload.is_cut;
        if is_quiet && seconds(situation.now.since(self.turn.1)) > params.turn {
            self.turn = (self.turn.0.other(), situation.now);
        }
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

    fn update_suspect(&mut self, params: &Params, situation: &Situation, shares: PerDirection<f64>) {
        let varies_little = Direction::BOTH
            .into_iter()
            .any(|direction| situation.directions[direction].waits_for_turn);
        if !self.is_ambiguous || !varies_little || situation.queue < params.target_both_ms {
            self.suspect = Suspect::None;
        } else if situation.queue > params.sudden_ms {
            self.suspect = Suspect::Both;
        } else if self.suspect == Suspect::None {
            let is_upload = shares.upload > shares.download;
            self.suspect = Suspect::First(if is_upload {
                Direction::Upload
            } else {
                Direction::Download
            });
        }
    }

    /// The shares by the evidence of this moment alone.
    fn likely_shares(&self, params: &Params, situation: &Situation) -> PerDirection<f64> {
        let whole = |is_ours| if is_ours { 1.0 } else { 0.0 };
        let PerDirection { download, upload } = situation.directions;
        match (download.is_busy, upload.is_busy) {
            (true, true) if download.is_known != upload.is_known => return PerDirection::from_fn(|_| 1.0),
            (true, true) => {}
            (false, false) => return PerDirection::from_fn(|_| 1.0),
            (download, upload) => {
                return PerDirection {
                    download: whole(download),
                    upload: whole(upload),
                };
            }
        }
        let is_near_capacity = |direction: Direction| {
            let evidence = situation.directions[direction];
            let beyond = (evidence.rate_by_highest - params.below_highest) / params.below_highest_span;
            let is_sudden = situation.queue > params.sudden_ms;
            let waits = !is_sudden && evidence.waits_for_turn && self.turn.0 != direction;
            beyond.clamp(params.suspicion_min, 1.0) * if waits { params.suspicion_min } else { 1.0 }
        };
        let line_limits = line_limits(params, situation);
        let download = (line_limits + params.download_suspicion) * is_near_capacity(Direction::Download);
        let upload = (1.0 - params.acquittal * line_limits) * is_near_capacity(Direction::Upload);
        let share = |suspicion: f64| (2.0 * suspicion / (upload + download)).min(1.0);
        PerDirection {
            download: share(download),
            upload: share(upload),
        }
    }
}

/// How certain it is that the line holds the download back, 0 to 1. If the capacity has dropped to what arrives, the senders have
/// gone on for a round trip, and the excess is in the queue. If the queue is shorter than that, the senders have stopped instead,
/// because no acknowledgements reach them.
fn line_limits(params: &Params, situation: &Situation) -> f64 {
    let Situation { deficit, queue, .. } = *situation;
    let is_short = ((deficit - params.deficit) / params.deficit_span).clamp(0.0, 1.0);
    let excess = deficit / (1.0 - deficit).max(0.01);
    let queue_by_rtt = queue / situation.base_rtt.max(1.0);
    is_short * (params.excess_factor * queue_by_rtt / excess.max(0.01)).clamp(0.0, 1.0)
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both directions are busy at their usual rates, with a queue of 20 ms on a path of 20 ms.
    fn situation() -> Situation {
        let evidence = Evidence {
            is_busy: true,
            has_traffic: true,
            is_known: false,
            is_cut: false,
            waits_for_turn: false,
            rate_by_highest: 1.0,
        };
        Situation {
            now: Instant(0),
            directions: PerDirection::from_fn(|_| evidence),
            queue: 20.0,
            base_rtt: 20.0,
            deficit: 0.0,
        }
    }

    fn shares(situation: &Situation) -> PerDirection<f64> {
        Attribution::new(Instant(0)).likely_shares(&Params::default(), situation)
    }

    fn updated(situation: &Situation) -> Attribution {
        let mut attribution = Attribution::new(Instant(0));
        attribution.update(&Params::default(), situation);
        attribution
    }

    #[test]
    fn a_download_that_arrives_short_of_its_rate_answers_for_the_queue() {
        let shares = shares(&Situation {
            deficit: 0.3,
            ..situation()
        });
        assert!(shares.download >= 1.0 && shares.upload < 0.7, "{shares:?}");
    }

    /// The senders of the download wait for acknowledgements, which wait in the upload's queue.
    #[test]
    fn a_short_queue_does_not_explain_a_large_deficit_of_the_download() {
        let shares = shares(&Situation {
            deficit: 0.9,
            queue: 4.0,
            ..situation()
        });
        assert!(shares.upload >= 1.0 && shares.download < 1.0, "{shares:?}");
    }

    #[test]
    fn a_direction_well_below_its_recent_traffic_is_hardly_suspect() {
        let near = shares(&situation());
        assert!(near.upload > near.download, "{near:?}");
        let mut slow_upload = situation();
        slow_upload.directions.upload.rate_by_highest = 0.5;
        let upload = shares(&slow_upload);
        assert!(upload.upload < 0.5 && upload.download >= 1.0, "{upload:?}");
        let mut slow_download = situation();
        slow_download.directions.download.rate_by_highest = 0.5;
        slow_download.deficit = 0.3;
        let download = shares(&slow_download);
        assert!(download.download < 0.5 && download.upload >= 1.0, "{download:?}");
    }

    #[test]
    fn a_direction_alone_answers_for_all() {
        let mut alone = situation();
        alone.directions.download.is_busy = false;
        alone.deficit = 0.9;
        let shares = shares(&alone);
        assert!(shares.download <= 0.0 && shares.upload >= 1.0, "{shares:?}");
    }

    /// The line varies little: one direction waits while the other one explores.
    fn steady() -> Situation {
        let mut steady = situation();
        for direction in Direction::BOTH {
            steady.directions[direction].waits_for_turn = true;
        }
        steady
    }

    #[test]
    fn the_direction_that_explores_is_suspect_where_the_line_varies_little() {
        // The turn begins with the download, although the upload would be the more likely one.
        let attribution = updated(&steady());
        assert!(attribution.may_explore(Direction::Download) && !attribution.may_explore(Direction::Upload));
        assert!(attribution.share(Direction::Download) >= 1.0 && attribution.share(Direction::Upload) <= 0.0);
        assert!(attribution.teaches(Direction::Download) && !attribution.teaches(Direction::Upload));
    }

    #[test]
    fn a_suspect_whose_cut_has_no_effect_is_acquitted() {
        let steady = steady();
        let mut attribution = updated(&steady);
        attribution.acquit(Direction::Download);
        attribution.update(&Params::default(), &steady);
        assert!(attribution.share(Direction::Download) <= 0.0 && attribution.share(Direction::Upload) >= 1.0);
        attribution.acquit(Direction::Upload);
        attribution.update(&Params::default(), &steady);
        assert!(Direction::BOTH.map(|direction| attribution.share(direction) > 0.0) == [true; 2]);
        assert!(
            !attribution.teaches(Direction::Download),
            "both are cut: {attribution:?}"
        );
    }

    #[test]
    fn a_queue_that_is_older_than_a_load_is_not_that_loads() {
        let mut both = steady();
        both.directions.upload.is_cut = true;
        let mut alone = both;
        alone.directions.download.is_busy = false;
        let mut attribution = updated(&alone);
        attribution.update(&Params::default(), &both);
        assert!(attribution.share(Direction::Upload) >= 1.0 && attribution.share(Direction::Download) <= 0.0);
        assert!(
            attribution.may_explore(Direction::Download),
            "a load that begins has the turn"
        );
    }

    #[test]
    fn a_direction_whose_traffic_collapsed_with_the_line_stays_suspect_as_long_as_the_queue_lasts() {
        let mut collapsed = situation();
        let mut attribution = updated(&collapsed);
        collapsed.directions.download.is_busy = false;
        attribution.update(&Params::default(), &collapsed);
        assert!(attribution.share(Direction::Download) > 0.0 && attribution.is_ambiguous());
        collapsed.queue = 0.0;
        attribution.update(&Params::default(), &collapsed);
        assert!(!attribution.is_ambiguous(), "{attribution:?}");
    }

    #[test]
    fn a_queue_that_is_too_long_for_an_explorer_is_attributed_to_both_directions() {
        let attribution = updated(&Situation {
            queue: 400.0,
            deficit: 0.9,
            ..steady()
        });
        assert!(Direction::BOTH.map(|direction| attribution.share(direction) > 0.3) == [true; 2]);
        assert!(!attribution.teaches(Direction::Download));
    }

    #[test]
    fn both_directions_of_a_line_that_varies_answer_for_their_shares() {
        let attribution = updated(&situation());
        assert!(attribution.share(Direction::Upload) >= 1.0);
        assert!((0.1..0.9).contains(&attribution.share(Direction::Download)));
    }
}
