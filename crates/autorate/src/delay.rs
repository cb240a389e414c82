//! What the delay samples of many reflectors and flows say together of the queue at the line.

use alloc::vec::Vec;

use crate::Signal;
use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

/// All paths that were heard of lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayEstimator {
    paths: Vec<Source>,
    /// The last probe that came back without a queue: when it was sent, and when it was back.
    free: Option<(Instant, Instant)>,
    /// Which directions have rested for a while.
    rests: [bool; 2],
}

/// What the paths agree on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayEstimate {
    /// Delay above the baselines: what more than one path says at least.
    pub(crate) queue: Nanos,
    /// What more than one path says at most; more than [`Self::queue`] while bursts come and go.
    pub(crate) upper_median: Nanos,
    /// When the probe was sent that says so.
    pub(crate) sent: Instant,
    /// Whether it is a silence that says so.
    pub(crate) is_overdue: bool,
}

/// A queue is heard of this long after a round trip: three of four votes.
pub(crate) const SEEN_AFTER: Nanos = Nanos::from_millis(200);
/// More paths than this are not kept: the one silent for longest makes room.
const PATHS: usize = 32;
/// Votes that are counted.
const VOTERS: usize = 4;
/// Voters of a kind without which the other kind is asked.
const ENOUGH: usize = 2;
/// An older answer counts only where there is no younger one: six reflectors take turns within 300 ms.
const FRESH: Nanos = Nanos::from_millis(450);
/// A flow that tells less often knows less than reflectors do.
const FRESH_FLOW: Nanos = Nanos::from_millis(150);
/// With slow probing an answer may be this old.
const FRESH_SLOW: Nanos = Nanos::from_millis(1600);
/// A probe unanswered for longer than this above the baseline is dead rather than late.
const DEAD: Nanos = Nanos::from_millis(3000);
/// A path by a geostationary satellite takes 500 ms and more, one on earth hardly as much as this.
const LONG: Nanos = Nanos::from_millis(300);
/// A path that answered less than this of 256 lately is not believed when it is silent.
const RELIABLE: u32 = 205;
/// A path agrees with the vote if it is within this of it, or within half of it: replies of one queue come apart.
const TIE: i64 = 30_000_000;
/// Of 1024: a path that disagreed more often than this lately has no vote.
const DISCORD: u32 = 512;
/// No path is longer, whatever its reflector's clock says.
const FARTHEST: Nanos = Nanos::from_millis(10_000);
/// An answer without more delay than this met no queue that holds others back.
const LITTLE: i64 = 15_000_000;
/// A one-way delay that moves by more than this was a clock, not a queue.
const CLOCK_STEP: i64 = 10_000_000_000;

impl DelayEstimator {
    pub(crate) fn add(&mut self, now: Instant, at: Instant, signal: Signal) {
        match signal {
            Signal::Echo { reflector, sent, rtt } => {
                let delay = i64::try_from(rtt.0).unwrap_or(LONGEST);
                let id = SourceId::Reflector(reflector);
                self.answer(now, id, at, sent, [Some(delay); 2], DelayKind::RoundTrip);
            }
            Signal::OneWay {
                reflector,
                sent,
                download,
                upload,
            } => {
                let delays = [Some(download), Some(upload)];
                self.answer(
                    now,
                    SourceId::Reflector(reflector),
                    at,
                    sent,
                    delays,
                    DelayKind::OneWay,
                );
            }
            Signal::Flow {
                flow,
                sent,
                download,
                upload,
            } => {
                let delays = [Some(download), upload];
                self.answer(now, SourceId::Flow(flow), at, sent, delays, DelayKind::OneWay);
            }
            Signal::Waiting { reflector, sent } => {
                if let Some(path) = self
                    .paths
                    .iter_mut()
                    .find(|path| path.id == SourceId::Reflector(reflector))
                {
                    path.waiting = Some(sent).filter(|sent| !path.is_overtaken(*sent, self.free));
                }
            }
            Signal::Lost { reflector } => {
                if let Some(path) = self
                    .paths
                    .iter_mut()
                    .find(|path| path.id == SourceId::Reflector(reflector))
                {
                    path.reliability -= path.reliability / 8;
                }
            }
            Signal::Traffic { .. } | Signal::Hour(_) => {}
        }
    }

    /// The delay that the paths agree on; none while they are silent, or most of them contradict each other.
    ///
    /// What only a round trip or a silence says counts for a `blamed` direction; another one has no queue as far as that
    /// is known.
    pub(crate) fn vote(&self, direction: Direction, now: Instant, blamed: bool) -> Option<DelayEstimate> {
        let (ballots, kind) = self.ballots(direction, now, blamed, Source::is_trusted);
        let speaking = || {
            self.paths
                .iter()
                .filter(|path| path.kind == kind && path.speaks(direction, now))
        };
        let trusted = speaking().filter(|path| path.is_trusted()).count();
        if trusted * 2 < speaking().count() {
            return None;
        }
        let chosen = lower_median(&ballots)?;
        let others = match kind {
            DelayKind::RoundTrip => self.others(direction, now),
            DelayKind::OneWay => None,
        };
        let counts = blamed || kind == DelayKind::OneWay;
        let delay = |delay: i64| {
            let delay = u64::try_from(delay - others.unwrap_or(0)).ok();
            Nanos(delay.filter(|_| counts).unwrap_or(0))
        };
        Some(DelayEstimate {
            queue: delay(chosen.delay),
            upper_median: delay(ballots.upper_median().unwrap_or(chosen.delay)),
            sent: chosen.sent,
            is_overdue: chosen.is_overdue,
        })
    }

    /// What the newest trusted path says alone, whosever queue it is: enough to ask sooner, not to decide.
    pub(crate) fn newest(&self, now: Instant) -> Nanos {
        let newest = Direction::BOTH.into_iter().filter_map(|direction| {
            let (ballots, _) = self.ballots(direction, now, true, Source::is_trusted);
            ballots.newest()
        });
        Nanos(u64::try_from(newest.max().unwrap_or(0)).unwrap_or(0))
    }

    /// Whether a direction is known by itself, not from round trips alone.
    pub(crate) fn knows(&self, direction: Direction, now: Instant) -> bool {
        self.voters(direction, now, Source::is_trusted).0 == DelayKind::OneWay
    }

    /// Whether a direction is known from more than one path: what a single one says is small now and then by chance.
    pub(crate) fn is_agreed_on(&self, direction: Direction, now: Instant) -> bool {
        let (kind, voters) = self.voters(direction, now, Source::is_trusted);
        kind == DelayKind::OneWay && voters >= ENOUGH
    }

    /// Whether more than one reflector tells of a direction by itself: sooner, and more often, than flows do.
    pub(crate) fn is_reflected(&self, direction: Direction, now: Instant) -> bool {
        let telling = self.reflectors(direction, now);
        telling.filter(|path| path.kind == DelayKind::OneWay).count() >= ENOUGH
    }

    /// Whether nothing that counts tells the directions apart.
    pub(crate) fn is_round_trip_only(&self, now: Instant) -> bool {
        !Direction::BOTH
            .into_iter()
            .any(|direction| self.knows(direction, now))
    }

    /// What of a round trip is the other direction's, where that is known by itself: the most that was said of it lately.
    fn others(&self, direction: Direction, now: Instant) -> Option<i64> {
        let (ballots, kind) = self.ballots(direction.other(), now, false, Source::is_trusted);
        let most = ballots.iter().map(|ballot| ballot.delay).max();
        most.filter(|_| kind == DelayKind::OneWay)
    }

    /// The round trip of the nearest path without any queue.
    pub(crate) fn rtt(&self) -> Nanos {
        let rtts = self.paths.iter().filter_map(Source::rtt);
        Nanos(u64::try_from(rtts.min().unwrap_or(0)).unwrap_or(0)).min(FARTHEST)
    }

    /// Whether the nearest path is one on which news of the line is old.
    pub(crate) fn is_high_rtt(&self) -> bool {
        self.rtt() >= LONG
    }

    /// Whether more probes are lost than by chance: at a full buffer, not on a longer path.
    pub(crate) fn is_losing_probes(&self) -> bool {
        let reflectors = self
            .paths
            .iter()
            .filter(|path| matches!(path.id, SourceId::Reflector(_)));
        let (count, losing) = reflectors.fold((0, 0), |(count, losing), path| {
            (count + 1, losing + usize::from(path.reliability < RELIABLE))
        });
        losing * 2 > count
    }

    /// Takes note of the directions that have had too little traffic for a queue for a while, in the order of [`Direction::BOTH`]:
    /// what their delays are then is the path's.
    pub(crate) const fn set_idle(&mut self, rests: [bool; 2]) {
        self.rests = rests;
    }

    /// Takes the present delays for the new baselines.
    pub(crate) fn rebase(&mut self, direction: Direction) {
        for path in &mut self.paths {
            path.rebase(direction);
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        id: SourceId,
        at: Instant,
        sent: Instant,
        delays: Delays,
        kind: DelayKind,
    ) {
        let delays = delays.map(|delay| delay.map(|delay| delay.clamp(-LONGEST, LONGEST)));
        let index = self.index(id, kind, at);
        self.paths[index].add(at, sent, delays, kind, self.rests);
        // The vote of all of its kind, or nobody could win back what it lost; a round trip and one way are never the same. What is not
        // answered yet is no vote here: it would be one on both directions, and contradict every answer on that without a queue.
        let votes = Direction::BOTH.map(|direction| {
            let (ballots, voting) = self.ballots(direction, now, false, |_| true);
            lower_median(&ballots).filter(|_| voting == kind)
        });
        if votes.iter().any(Option::is_some) {
            self.paths[index].compare(delays, votes);
        }
        let told = |direction| self.paths[index].ballots(direction, now, false).next();
        let has_queue = || {
            Direction::BOTH
                .into_iter()
                .filter_map(told)
                .any(|ballot| ballot.delay > LITTLE)
        };
        let is_last = self.free.is_none_or(|(last, _)| last < sent);
        if is_last && !id.is_flow() && !has_queue() {
            self.free = Some((sent, at));
            for path in &mut self.paths {
                path.waiting = path.waiting.filter(|sent| !path.is_overtaken(*sent, self.free));
            }
        }
    }

    fn index(&mut self, id: SourceId, kind: DelayKind, at: Instant) -> usize {
        if let Some(index) = self.paths.iter().position(|path| path.id == id) {
            return index;
        }
        let path = Source::new(id, kind);
        if self.paths.len() < PATHS {
            self.paths.push(path);
            return self.paths.len() - 1;
        }
        let silent = self.paths.iter().enumerate();
        let (index, _) = silent
            .max_by_key(|(_, path)| at.since(path.heard_at))
            .expect("there are paths");
        self.paths[index] = path;
        index
    }

    /// The newest votes, newest first, no path having more than its share; and of what kind they are.
    fn ballots(
        &self,
        direction: Direction,
        now: Instant,
        silence_counts: bool,
        may_vote: impl Fn(&Source) -> bool,
    ) -> (NewestSamples, DelayKind) {
        let (kind, voters) = self.voters(direction, now, &may_vote);
        let share = VOTERS.div_ceil(voters.max(1));
        let mut ballots = NewestSamples::default();
        let voting = || {
            self.paths
                .iter()
                .filter(|path| path.kind == kind && may_vote(path) && path.speaks(direction, now))
        };
        let most = voting()
            .any(|path| path.id.is_flow())
            .then(|| self.reflected(direction, now))
            .flatten();
        for path in voting() {
            let most = most.filter(|_| path.id.is_flow());
            for ballot in path.ballots(direction, now, silence_counts).take(share) {
                ballots.offer(ballot.at_most(most));
            }
        }
        (ballots, kind)
    }

    /// The most that a reflector says of late. What a flow says beyond it waited behind another line than ours, or at its far host.
    fn reflected(&self, direction: Direction, now: Instant) -> Option<i64> {
        let newest = self
            .reflectors(direction, now)
            .filter_map(|path| path.ballots(direction, now, true).next());
        newest.map(|ballot| ballot.delay).max()
    }

    /// Those that are believed and were heard of lately.
    fn reflectors(&self, direction: Direction, now: Instant) -> impl Iterator<Item = &Source> {
        self.paths
            .iter()
            .filter(move |path| !path.id.is_flow() && path.is_trusted() && path.is_recent(direction, now))
    }

    /// Those who vote on a direction: of which kind, and how many.
    fn voters(
        &self,
        direction: Direction,
        now: Instant,
        may_vote: impl Fn(&Source) -> bool,
    ) -> (DelayKind, usize) {
        let voting = |kind| {
            self.paths
                .iter()
                .filter(move |path| path.kind == kind)
                .filter(|path| may_vote(path))
        };
        let recent = |kind| voting(kind).filter(|path| path.is_recent(direction, now));
        let speaks = |path: &&Source| path.speaks(direction, now) && !path.id.is_flow();
        let counts = |kind| match recent(kind).count() {
            recent @ ENOUGH.. => recent,
            _ => voting(kind).filter(speaks).count().min(1),
        };
        let (one_ways, round_trips) = (counts(DelayKind::OneWay), counts(DelayKind::RoundTrip));
        // One-way delays are better where there are enough of them to vote, or reflectors to confirm what a flow says.
        let are_confirmed = one_ways >= ENOUGH
            || round_trips >= ENOUGH && recent(DelayKind::OneWay).any(|path| path.id.is_flow());
        if are_confirmed || one_ways > 0 && round_trips < ENOUGH {
            (DelayKind::OneWay, one_ways.max(1))
        } else {
            (DelayKind::RoundTrip, round_trips)
        }
    }
}

/// 36 years: far beyond the difference of any two clocks, one of which may show the time of day and the other that since the
/// start; far from overflow.
const LONGEST: i64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceId {
    Reflector(u16),
    Flow(u64),
}

impl SourceId {
    const fn is_flow(self) -> bool {
        matches!(self, Self::Flow(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelayKind {
    RoundTrip,
    OneWay,
}

/// By direction, as far as it is known.
type Delays = [Option<i64>; 2];

/// One reflector or flow.
#[derive(Clone, Debug)]
struct Source {
    id: SourceId,
    kind: DelayKind,
    /// By direction; of a round trip both are the same.
    baselines: [Baseline; 2],
    /// The last answers, newest last: when sent, when heard, delays.
    answers: [Option<Answer>; VOTERS],
    waiting: Option<Instant>,
    heard_at: Instant,
    /// Share of probes answered lately, of 256.
    reliability: u32,
    /// Share of answers that contradicted the vote lately, of 1024.
    outlier_score: u32,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    sent: Instant,
    at: Instant,
    delays: Delays,
}

impl Source {
    fn new(id: SourceId, kind: DelayKind) -> Self {
        Self {
            id,
            kind,
            baselines: [Baseline::default(); 2],
            answers: [None; VOTERS],
            waiting: None,
            heard_at: Instant(0),
            reliability: 256,
            outlier_score: 0,
        }
    }

    const fn is_trusted(&self) -> bool {
        self.outlier_score <= DISCORD
    }

    /// Notes whether its newest answer is as the vote of all.
    fn compare(&mut self, delays: Delays, votes: [Option<DelaySample>; 2]) {
        let above = |channel: usize| Some(delays[channel]?.saturating_sub(self.baselines[channel].least()?));
        let disagrees = (0..2).any(|channel| match (above(channel), votes[channel]) {
            (Some(above), Some(vote)) => (above - vote.delay).abs() > TIE.max(vote.delay / 2),
            _ => false,
        });
        self.outlier_score =
            self.outlier_score - self.outlier_score / 8 + if disagrees { 1024 / 8 } else { 0 };
    }

    fn add(&mut self, at: Instant, sent: Instant, delays: Delays, kind: DelayKind, rests: [bool; 2]) {
        if kind != self.kind {
            *self = Self::new(self.id, kind);
        }
        let span = at.since(self.heard_at);
        let rests = match kind {
            DelayKind::RoundTrip => [rests == [true; 2]; 2],
            DelayKind::OneWay => rests,
        };
        for ((baseline, delay), rests) in self.baselines.iter_mut().zip(delays).zip(rests) {
            let Some(delay) = delay else { continue };
            if baseline
                .least()
                .is_some_and(|least| (delay - least).abs() > CLOCK_STEP)
            {
                *baseline = Baseline::default();
                self.answers = [None; VOTERS];
            }
            baseline.add(span, delay, rests);
        }
        self.answers.rotate_left(1);
        self.answers[VOTERS - 1] = Some(Answer { sent, at, delays });
        self.heard_at = at;
        self.waiting = self.waiting.filter(|waiting| *waiting > sent);
        self.reliability += (256 - self.reliability) / 8;
    }

    /// Whether a probe that was sent later has come back without a queue when this one should have been back, too: then it is in no
    /// queue, but lost, or late elsewhere.
    fn is_overtaken(&self, waiting: Instant, free: Option<(Instant, Instant)>) -> bool {
        let usual = u64::try_from(self.rtt().unwrap_or(LONGEST)).unwrap_or(0);
        free.is_some_and(|(sent, at)| waiting < sent && at.since(waiting).0 >= usual)
    }

    fn is_recent(&self, direction: Direction, now: Instant) -> bool {
        let fresh = if self.id.is_flow() { FRESH_FLOW } else { FRESH };
        self.was_heard_within(direction, now, fresh) || self.overdue(now).is_some()
    }

    /// Whether it has anything to say of now.
    fn speaks(&self, direction: Direction, now: Instant) -> bool {
        self.was_heard_within(direction, now, FRESH_SLOW) || self.overdue(now).is_some()
    }

    fn was_heard_within(&self, direction: Direction, now: Instant, span: Nanos) -> bool {
        let mut known = self.answers.iter().rev().flatten();
        let newest = known.find(|answer| answer.delays[channel(direction)].is_some());
        newest.is_some_and(|answer| now.since(answer.at) <= span)
    }

    /// What it says of a direction, newest first.
    fn ballots(
        &self,
        direction: Direction,
        now: Instant,
        silence_counts: bool,
    ) -> impl Iterator<Item = DelaySample> {
        let channel = channel(direction);
        let least = self.baselines[channel].least();
        let mut answers = self
            .answers
            .iter()
            .rev()
            .flatten()
            .filter(move |answer| now.since(answer.at) <= FRESH_SLOW)
            .filter_map(move |answer| {
                Some(DelaySample {
                    delay: answer.delays[channel]?.saturating_sub(least?).max(0),
                    sent: answer.sent,
                    is_recent: now.since(answer.at) <= FRESH,
                    is_overdue: false,
                })
            });
        let newest = answers.next();
        // Silence says only that the delay is at least its age: news if that is more than what was heard last.
        let overdue = self.overdue(now).filter(|_| silence_counts);
        let overdue = overdue.filter(|overdue| newest.is_none_or(|heard| overdue.delay > heard.delay));
        overdue.into_iter().chain(newest).chain(answers)
    }

    /// What its silence says; not of which direction.
    fn overdue(&self, now: Instant) -> Option<DelaySample> {
        let sent = self.waiting?;
        let usual = self.rtt()?;
        let late = i64::try_from(now.since(sent).0).ok()?.saturating_sub(usual);
        let believed = self.reliability >= RELIABLE && late > 0 && late < i64::try_from(DEAD.0).unwrap_or(0);
        believed.then_some(DelaySample {
            delay: late,
            sent,
            is_recent: true,
            is_overdue: true,
        })
    }

    /// Round trip without a queue: of one-way delays the sum, in which the clocks cancel.
    fn rtt(&self) -> Option<i64> {
        let [download, upload] = [self.baselines[0].least()?, self.baselines[1].least()?];
        Some(match self.kind {
            DelayKind::RoundTrip => download,
            DelayKind::OneWay => download.saturating_add(upload).max(0),
        })
    }

    fn rebase(&mut self, direction: Direction) {
        let channels = match self.kind {
            DelayKind::RoundTrip => 0..2,
            DelayKind::OneWay => channel(direction)..channel(direction) + 1,
        };
        for channel in channels {
            // The last two: older ones may be of the old path.
            let present = self.answers.iter().rev().take(2).flatten();
            let present = present.filter_map(|answer| answer.delays[channel]);
            if let Some(present) = present.min() {
                self.baselines[channel] = Baseline::default();
                self.baselines[channel].add(Nanos(0), present, false);
            }
        }
    }
}

const fn channel(direction: Direction) -> usize {
    match direction {
        Direction::Download => 0,
        Direction::Upload => 1,
    }
}

/// The least delay of the last [`Self::BUCKETS`] × [`Self::SPAN`] in which the path was in use. Idle time does not
/// count, or the first burst after a pause would set it. While its direction rests only the last [`Self::BUCKETS`] answers count:
/// they met no queue, and a load that begins must not be blamed for a path that has become longer meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline {
    /// Newest last.
    buckets: [Option<i64>; Self::BUCKETS],
    /// Nanoseconds in the newest.
    filled: u64,
}

impl Baseline {
    const BUCKETS: usize = 6;
    const SPAN: Nanos = Nanos::from_millis(5000);
    /// A longer silence counts as this much use.
    const LONGEST_STEP: u64 = 1_000_000_000;

    fn add(&mut self, since_last: Nanos, delay: i64, rests: bool) {
        self.filled += since_last.0.min(Self::LONGEST_STEP);
        if rests || self.filled >= Self::SPAN.0 {
            self.filled = 0;
            self.buckets.rotate_left(1);
            self.buckets[Self::BUCKETS - 1] = None;
        }
        let newest = &mut self.buckets[Self::BUCKETS - 1];
        *newest = Some(newest.map_or(delay, |least| least.min(delay)));
    }

    fn least(&self) -> Option<i64> {
        self.buckets.iter().flatten().copied().min()
    }
}

#[derive(Clone, Copy, Debug)]
struct DelaySample {
    delay: i64,
    sent: Instant,
    /// Slow probing leaves old ones, which count only where there are none better.
    is_recent: bool,
    is_overdue: bool,
}

impl DelaySample {
    fn at_most(self, most: Option<i64>) -> Self {
        let delay = most.map_or(self.delay, |most| self.delay.min(most));
        Self { delay, ..self }
    }
}

/// The newest few, newest first.
#[derive(Clone, Copy, Debug, Default)]
struct NewestSamples([Option<DelaySample>; VOTERS]);

impl NewestSamples {
    fn offer(&mut self, ballot: DelaySample) {
        let mut offered = Some(ballot);
        for place in &mut self.0 {
            if place.is_none_or(|held| offered.is_some_and(|new| new.sent > held.sent)) {
                core::mem::swap(place, &mut offered);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &DelaySample> {
        // One alone proves nothing.
        let any_recent = self.0.iter().flatten().filter(|ballot| ballot.is_recent).count() >= 2;
        self.0
            .iter()
            .flatten()
            .filter(move |ballot| ballot.is_recent || !any_recent)
    }

    fn newest(&self) -> Option<i64> {
        self.0.first().copied().flatten().map(|ballot| ballot.delay)
    }

    /// The second largest of three or more, the smallest of fewer.
    fn upper_median(&self) -> Option<i64> {
        let delays = || self.iter().map(|ballot| ballot.delay);
        if delays().count() < 3 {
            return delays().min();
        }
        let largest = delays().enumerate().max_by_key(|(_, delay)| *delay)?.0;
        let others = delays().enumerate().filter(|(index, _)| *index != largest);
        others.map(|(_, delay)| delay).max()
    }
}

/// The second smallest of three or more, the smallest of fewer.
fn lower_median(ballots: &NewestSamples) -> Option<DelaySample> {
    let mut sorted = [None; VOTERS];
    let mut count = 0;
    for (place, ballot) in sorted.iter_mut().zip(ballots.iter()) {
        *place = Some(*ballot);
        count += 1;
    }
    sorted[..count].sort_by_key(|ballot| ballot.map(|ballot| ballot.delay));
    let chosen = sorted[usize::from(count >= 3)]?;
    // What counts as its time is that of the newest vote that says as much.
    let sent = ballots
        .iter()
        .filter(|ballot| ballot.delay >= chosen.delay)
        .map(|ballot| ballot.sent);
    Some(DelaySample {
        sent: sent.max().unwrap_or(chosen.sent),
        ..chosen
    })
}
