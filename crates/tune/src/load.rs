//! A load that goes on until whoever looks at it has seen enough, while the shaper's rates change.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use sqm_measure::client::{Hooks, Outcome, Progress, Stage};
use sqm_measure::result::{Direction, Settings, TestResult};
use sqm_measure::{Error, stats};

use super::carried::Carried;
use super::framing::Framing;
use super::server::Server;
use crate::log::Trouble;

/// A load that is not ended by its owner ends by itself.
const LONGEST: Duration = Duration::from_secs(60);
/// A test that says nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(15);
/// How often signals are looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// Words of the load that wait to be looked at: it has a few each second.
const MOST_PROGRESS: usize = 1024;
/// A load whose flows are told to end is over after so long, whatever it says.
const OVER: Duration = Duration::from_secs(10);
/// What a failed load says of the reason is waited for so long.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What the server has to tell of a load that has ended is waited for so long.
const RESULTS: Duration = Duration::from_secs(15);
/// Fewer round trips have no median worth the name. Who is asked less often than `sqm serve` is looked at for longer, up to so
/// often the time.
const ENOUGH: usize = 20;
const LONGEST_LOOK: u32 = 2;
/// A queue that falls to this share within a look is left from flows that took up the rate: it stays or grows at a rate above
/// the line's.
const FALLS: f64 = 0.8;

/// What the line is loaded with, and where it is looked at.
pub(crate) struct Loading<'a> {
    pub(crate) server: &'a Server,
    /// With the flows that load it; how long is not theirs to say.
    pub(crate) settings: Settings,
    pub(crate) title: Option<&'static str>,
    /// The device that leads to the line.
    pub(crate) interface: &'a str,
    pub(crate) framing: Framing,
    pub(crate) stop: &'a AtomicBool,
}

impl Loading<'_> {
    /// Loads the line until `see` has seen enough.
    pub(crate) fn run<T>(
        self,
        see: impl FnOnce(&View<'_>) -> Result<T, Trouble>,
    ) -> Result<(T, Load), Trouble> {
        let end = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::sync_channel(MOST_PROGRESS);
        let (tell, outcome) = mpsc::channel();
        let (theirs, server, title) = (end.clone(), self.server.clone(), self.title);
        let settings = Settings {
            load_ms: LONGEST.as_millis() as u64,
            after_ms: 0,
            ..self.settings.clone()
        };
        // Never joined: a load that does not end is left behind.
        thread::spawn(move || {
            let hooks = Hooks {
                // What nobody looks at in time is lost.
                progress: &mut |progress| drop(sender.try_send(progress.clone())),
                stop: &theirs,
                gauges: None,
            };
            drop(tell.send(server.load(settings, title, hooks)));
        });
        let load = Load(outcome);
        let view = View::new(receiver, &self);
        let seen = see(&view);
        end.store(true, Ordering::Release);
        match seen {
            Ok(seen) => {
                // The flows have ended then. What the server has to tell of them may come later.
                view.until_over();
                Ok((seen, load))
            }
            // The load's own words say more than that it fell silent.
            Err(Trouble::Measuring(error)) => Err(Trouble::Measuring(match load.ends_within(LAST_WORDS) {
                Some(Err(own)) => own,
                Some(Ok(outcome)) => outcome.failure.unwrap_or(error),
                None => error,
            })),
            Err(trouble) => {
                drop(load.ends_within(LAST_WORDS));
                Err(trouble)
            }
        }
    }
}

/// A load that has ended, but for what the server has to tell of it.
pub(crate) struct Load(Receiver<Result<Outcome, Error>>);

impl Load {
    fn ends_within(&self, patience: Duration) -> Option<Result<Outcome, Error>> {
        self.0.recv_timeout(patience).ok()
    }

    /// The load up to `end`, as a test of its own that counts what comes after `settled`. Times are since its beginning.
    pub(crate) fn part(self, settled: Duration, end: Duration, title: &str) -> Option<TestResult> {
        let result = self.ends_within(RESULTS)?.ok()?.result;
        let mut meta = result.meta;
        meta.partial = None;
        meta.title = Some(title.to_owned());
        meta.settings.settle_ms = settled.as_millis() as u64;
        meta.settings.load_ms = end.as_millis() as u64;
        let end_ms = meta.settings.load_ms as f64;
        let flows = result.flows.into_iter().map(|mut flow| {
            flow.samples.retain(|sample| sample.t_ms <= end_ms);
            flow.sender.retain(|sample| sample.t_ms <= end_ms);
            flow.receiver.retain(|sample| sample.t_ms <= end_ms);
            flow.totals = None;
            flow
        });
        let probes = result.probes.into_iter().map(|mut series| {
            series.samples.retain(|probe| probe.due_ms <= end_ms);
            series
        });
        let (flows, probes) = (flows.collect(), probes.collect());
        Some(TestResult::new(meta, Vec::new(), flows, probes))
    }
}

/// The load as it is seen from here.
pub(crate) struct View<'a> {
    receiver: Receiver<Progress>,
    interface: &'a str,
    framing: Framing,
    stop: &'a AtomicBool,
    /// Whose rate is looked at where only one is loaded.
    direction: Direction,
    /// When the interface's counter was last read, and what it said.
    counted: Cell<(Instant, u64)>,
    /// When the load began.
    begun: Cell<Instant>,
}

/// What was seen for a while.
pub(crate) struct Seen {
    round_trips_ms: Vec<f64>,
    /// Gross.
    pub(crate) carried: Carried,
    length: Duration,
}

impl Seen {
    pub(crate) fn p95_ms(&self) -> f64 {
        self.percentile_ms(95.0)
    }

    pub(crate) fn median_ms(&self) -> f64 {
        self.percentile_ms(50.0)
    }

    /// The shortest, a few aside.
    pub(crate) fn shortest_ms(&self) -> f64 {
        self.percentile_ms(5.0)
    }

    /// How many round trips these figures are of.
    pub(crate) fn heard(&self) -> usize {
        self.round_trips_ms.len()
    }

    /// For how long was looked.
    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Whether the queue became shorter.
    pub(crate) fn falls(&self, idle_ms: f64) -> bool {
        let (early, late) = self.round_trips_ms.split_at(self.round_trips_ms.len() / 2);
        let standing = |round_trips| stats::median(round_trips).map(|ms| ms - idle_ms);
        let both = standing(early).zip(standing(late));
        both.is_some_and(|(early, late)| late < early * FALLS)
    }

    fn percentile_ms(&self, percent: f64) -> f64 {
        // A queue so long that nothing came back is no short one.
        stats::percentile(&self.round_trips_ms, percent).unwrap_or(f64::INFINITY)
    }
}

impl<'a> View<'a> {
    fn new(receiver: Receiver<Progress>, loading: &Loading<'a>) -> Self {
        let now = Instant::now();
        Self {
            receiver,
            interface: loading.interface,
            framing: loading.framing,
            stop: loading.stop,
            direction: match loading.settings.down {
                0 => Direction::Up,
                _ => Direction::Down,
            },
            counted: Cell::new((now, received(loading.interface))),
            begun: Cell::new(now),
        }
    }

    /// What the line carries now, Mbit/s. Downwards the interface knows, whatever order the packets come in; upwards it
    /// knows only what it sends, and TCP knows what arrives.
    fn gross_mbit(&self, progress: &Progress) -> f64 {
        let framing = self.framing;
        let (now, bytes) = (Instant::now(), received(self.interface));
        let (before, last) = self.counted.replace((now, bytes));
        match self.direction {
            Direction::Down => {
                let seconds = (now - before).as_secs_f64().max(0.001);
                bytes.saturating_sub(last) as f64 * 8.0 / 1e6 / seconds * framing.per_counted()
            }
            Direction::Up => progress.upload_mbit * framing.per_good() + framing.probes_mbit(),
        }
    }

    fn next(&self) -> Result<Progress, Trouble> {
        let begun = Instant::now();
        let what = loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(Trouble::Interrupted);
            }
            match self.receiver.recv_timeout(LOOK) {
                Ok(progress) => return Ok(progress),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < SILENCE => {}
                Err(RecvTimeoutError::Timeout) => break "the test says nothing any more",
                Err(RecvTimeoutError::Disconnected) => break "the test ended before the search did",
            }
        };
        Err(Trouble::Measuring(Error::Settings(what.to_owned())))
    }

    /// The idle line's round trips.
    pub(crate) fn until_load(&self) -> Result<Vec<f64>, Trouble> {
        let mut round_trips = Vec::new();
        loop {
            let progress = self.next()?;
            if progress.stage == Stage::Load {
                self.begun.set(Instant::now());
                return Ok(round_trips);
            }
            round_trips.extend(progress.round_trips.iter().map(|rtt| rtt.as_secs_f64() * 1000.0));
        }
    }

    /// Since the beginning of the load.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.get().elapsed()
    }

    /// Until there is no load any more, or the search is to end.
    fn until_over(&self) {
        let begun = Instant::now();
        while begun.elapsed() < OVER {
            match self.next() {
                Ok(progress) if progress.stage != Stage::Collect => {}
                _ => return,
            }
        }
    }

    /// Looks for so long.
    pub(crate) fn look(&self, length: Duration) -> Result<Seen, Trouble> {
        let mut seen = self.nothing();
        self.look_on(&mut seen, |seen| seen.length >= length)?;
        Ok(seen)
    }

    /// The same, but for longer at a line of which too little is heard.
    pub(crate) fn look_well(&self, length: Duration) -> Result<Seen, Trouble> {
        let mut seen = self.nothing();
        self.look_on(&mut seen, |seen| {
            seen.length >= length && (seen.heard() >= ENOUGH || seen.length >= length * LONGEST_LOOK)
        })?;
        Ok(seen)
    }

    /// Goes on looking until enough is seen.
    pub(crate) fn look_on(&self, seen: &mut Seen, is_over: impl Fn(&Seen) -> bool) -> Result<(), Trouble> {
        let before = seen.length;
        let begin = Instant::now();
        while !is_over(seen) {
            let progress = self.next()?;
            let round_trips = progress.round_trips.iter();
            seen.round_trips_ms
                .extend(round_trips.map(|rtt| rtt.as_secs_f64() * 1000.0));
            seen.length = before + begin.elapsed();
            seen.carried.note(seen.length, self.gross_mbit(&progress));
        }
        Ok(())
    }

    fn nothing(&self) -> Seen {
        Seen {
            round_trips_ms: Vec::new(),
            carried: Carried::new(self.framing.packet_mbit()),
            length: Duration::ZERO,
        }
    }

    /// Waits until the newest round trips are this short, but not for longer than `most`.
    pub(crate) fn until_flat(&self, limit_ms: f64, most: Duration) -> Result<(), Trouble> {
        let end = Instant::now() + most;
        while Instant::now() < end {
            let progress = self.next()?;
            let newest = progress.round_trips.iter().map(|rtt| rtt.as_secs_f64() * 1000.0);
            let mut newest = newest.peekable();
            if newest.peek().is_some() && newest.all(|ms| ms <= limit_ms) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Bytes that an interface has received so far.
fn received(interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_bytes");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}
