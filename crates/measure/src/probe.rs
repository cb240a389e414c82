//! Latency probes: small packets on a fixed timetable, and their answers.
//!
//! Each series has a thread. The times of sending are absolute: neither a probe that is sent late nor the fate of earlier probes changes
//! the timetable.

mod connect;
#[cfg(feature = "full")]
mod dns;
mod icmp;
mod socket;
mod udp;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) use connect::Connect;
#[cfg(feature = "full")]
pub(crate) use dns::Dns;
pub(crate) use icmp::Icmp;
pub(crate) use socket::{Answer, ProbeSocket, Received};
pub(crate) use udp::Udp;

use portable_atomic::AtomicU64;
use sqm_core::direction::Direction;

use crate::clock::{Exchange, Offset};
use crate::load::millis;
use crate::result::Probe;

/// How long to wait for the answer to a probe. A choice: some lines have buffers of several seconds.
const STRAGGLERS: Duration = Duration::from_secs(5);
/// How often the thread checks whether its end has moved.
const SLICE: Duration = Duration::from_millis(200);
/// How far the clocks of two machines may drift apart within one round trip. A choice.
const CLOCK_ERROR: Duration = Duration::from_millis(1);
/// Number of packets that are read after the next probe is due. A choice: late answers are still received, and a flood of packets does
/// not delay the timetable.
const LATE_READS: u32 = 16;

/// A series of probes with its thread.
pub(crate) struct Prober {
    thread: Option<JoinHandle<ProbeLog>>,
    shared: Arc<Shared>,
    origin: Instant,
}

/// A series that has ended.
pub(crate) struct Finished {
    log: ProbeLog,
    /// From `origin` to the beginning of the load.
    offset_ms: f64,
    origin: Instant,
}

/// When a series ends.
#[derive(Clone, Copy)]
struct End {
    /// No probe is sent from this moment on.
    until: Instant,
    /// The thread does not wait for answers after this moment.
    give_up: Option<Instant>,
}

/// State that the thread shares with its owner.
struct Shared {
    end: Mutex<End>,
    /// The first impossible answer, in words.
    contradiction: Mutex<Option<String>>,
    /// The newest round trip in microseconds. Zero before the first.
    newest_us: AtomicU64,
    /// Number of answers so far.
    answers: AtomicU64,
    /// Round trips since the last [`Prober::take_recent`].
    recent: Mutex<Vec<Duration>>,
}

/// The probes of a series.
#[derive(Default)]
struct ProbeLog {
    entries: Vec<Entry>,
    /// Traffic class bytes (DSCP and ECN) of the probes on arrival, with their numbers.
    tos_at_server: BTreeMap<u8, u64>,
    /// Traffic class bytes of the answers on arrival.
    tos_at_client: BTreeMap<u8, u64>,
}

/// One probe and its answer.
#[derive(Clone, Copy)]
struct Entry {
    due: Instant,
    sent: Instant,
    answer: Option<Answer>,
    /// A later answer says that this probe reached the server.
    reached_server: bool,
}

impl Prober {
    /// Sends a probe every `interval`, from `start` until `until`.
    pub(crate) fn start(
        socket: Box<dyn ProbeSocket>,
        interval: Duration,
        start: Instant,
        until: Instant,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(until));
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name("prober".to_owned())
            .spawn(move || run(socket, interval, start, &theirs))?;
        Ok(Self {
            thread: Some(thread),
            shared,
            origin: start,
        })
    }

    /// The newest round trip. `None` before the first.
    pub(crate) fn newest(&self) -> Option<Duration> {
        Some(Duration::from_micros(
            self.shared.newest_us.load(Ordering::Relaxed),
        ))
        .filter(|rtt| !rtt.is_zero())
    }

    /// The round trips of the answers since the last call.
    pub(crate) fn take_recent(&self) -> Vec<Duration> {
        std::mem::take(&mut *lock(&self.shared.recent))
    }

    /// Number of answers so far.
    pub(crate) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// The first impossible answer, in words.
    pub(crate) fn contradiction(&self) -> Option<String> {
        lock(&self.shared.contradiction).clone()
    }

    /// Moves the end of the series.
    pub(crate) fn set_until(&self, until: Instant) {
        lock(&self.shared.end).until = until;
    }

    /// Ends the series. Waits for the last answers, at most until `deadline`.
    pub(crate) fn finish(mut self, load_start: Instant, deadline: Instant) -> Finished {
        {
            let mut end = lock(&self.shared.end);
            end.until = end.until.min(deadline);
            end.give_up = Some(deadline);
        }
        let log = self
            .thread
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        Finished {
            log,
            offset_ms: millis(load_start.saturating_duration_since(self.origin)),
            origin: self.origin,
        }
    }
}

/// Ends the thread: a test that fails must not go on probing.
impl Drop for Prober {
    fn drop(&mut self) {
        let end = self.origin;
        *lock(&self.shared.end) = End {
            until: end,
            give_up: Some(end),
        };
    }
}

impl Shared {
    fn new(until: Instant) -> Self {
        let give_up = None;
        Self {
            end: Mutex::new(End { until, give_up }),
            contradiction: Mutex::default(),
            newest_us: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            recent: Mutex::default(),
        }
    }

    fn end(&self) -> End {
        *lock(&self.end)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Finished {
    /// Traffic class bytes of the probes on arrival at the server, with the number of probes that had each.
    pub(crate) fn tos_at_server(&self) -> BTreeMap<u8, u64> {
        self.log.tos_at_server.clone()
    }

    /// Traffic class bytes of the answers on arrival, with the number of answers that had each.
    pub(crate) fn tos_at_client(&self) -> BTreeMap<u8, u64> {
        self.log.tos_at_client.clone()
    }

    /// The answered probes that were sent from `from_ms` to `to_ms` after the load began, with the times of both clocks.
    pub(crate) fn exchanges(&self, from_ms: f64, to_ms: f64) -> Vec<Exchange> {
        let entries = self.log.entries.iter();
        let exchanges = entries.filter_map(|entry| self.exchange(entry));
        exchanges
            .filter(|exchange| exchange.sent_ms >= from_ms && exchange.sent_ms < to_ms)
            .collect()
    }

    /// Every probe, with one-way delays if the offset of the server's clock is known.
    pub(crate) fn probes(&self, offset: Option<&Offset>) -> Vec<Probe> {
        let entries = self.log.entries.iter();
        entries.map(|entry| self.probe(entry, offset)).collect()
    }

    fn probe(&self, entry: &Entry, offset: Option<&Offset>) -> Probe {
        let exchange = self.exchange(entry);
        let one_way = exchange.zip(offset).map(|(e, offset)| offset.one_way_ms(&e));
        let echoes = entry.answer.and_then(|answer| answer.echo);
        let knows_losses = self
            .log
            .entries
            .iter()
            .any(|e| e.answer.is_some_and(|a| a.echo.is_some()));
        let lost = (entry.answer.is_none() && knows_losses).then_some(if entry.reached_server {
            Direction::Download
        } else {
            Direction::Upload
        });
        Probe {
            due_ms: self.since_load(entry.due),
            t_ms: self.since_load(entry.sent),
            rtt_ms: entry.round_trip().map(millis),
            up_ms: one_way.map(|(up, _)| to_microseconds(up)),
            down_ms: one_way.map(|(_, down)| to_microseconds(down)),
            server_ms: echoes.map(|echo| to_microseconds(echo.arrived_ns as f64 / 1e6)),
            lost,
        }
    }

    fn exchange(&self, entry: &Entry) -> Option<Exchange> {
        let echo = entry.answer?.echo?;
        let sent_ms = self.since_load(entry.sent);
        Some(Exchange {
            sent_ms,
            there_ms: echo.arrived_ns as f64 / 1e6,
            back_ms: sent_ms + millis(entry.round_trip()?),
        })
    }

    fn since_load(&self, moment: Instant) -> f64 {
        to_microseconds(millis(moment.saturating_duration_since(self.origin)) - self.offset_ms)
    }
}

impl Entry {
    /// The contradiction if the server claims to have held the probe for longer than the whole round trip. Such a claim could hide any
    /// delay.
    fn contradiction(&self, answer: &Answer) -> Option<String> {
        let held = Duration::from_nanos(answer.echo?.held_ns.into());
        let away = answer.at.saturating_duration_since(self.sent);
        (held > away + CLOCK_ERROR).then(|| {
            format!(
                "it held a probe for {:.1} ms, and the answer arrived {:.1} ms after the probe had left",
                millis(held),
                millis(away)
            )
        })
    }

    /// From sending until the arrival of the answer, without the time that the server held the probe.
    fn round_trip(&self) -> Option<Duration> {
        let answer = self.answer?;
        let held = Duration::from_nanos(answer.echo.map_or(0, |echo| echo.held_ns.into()));
        Some(
            answer
                .at
                .saturating_duration_since(self.sent)
                .saturating_sub(held),
        )
    }
}

impl ProbeLog {
    fn note_sent(&mut self, due: Instant, sent: Instant) {
        self.entries.push(Entry {
            due,
            sent,
            answer: None,
            reached_server: false,
        });
    }

    /// When the newest probe without an answer was sent. `None` if all have an answer.
    fn newest_waiting(&self) -> Option<Instant> {
        let newest = self.entries.iter().rfind(|entry| entry.answer.is_none())?;
        Some(newest.sent)
    }

    fn note(&mut self, answer: Answer, shared: &Shared) {
        let index = answer.sequence as usize;
        // The first of duplicates counts. An answer to a probe that was not sent is ignored.
        let Some(entry) = self.entries.get_mut(index).filter(|e| e.answer.is_none()) else {
            return;
        };
        if let Some(contradiction) = entry.contradiction(&answer) {
            lock(&shared.contradiction).get_or_insert(contradiction);
            return;
        }
        entry.answer = Some(answer);
        if let Some(rtt) = entry.round_trip() {
            lock(&shared.recent).push(rtt);
            shared
                .newest_us
                .store((rtt.as_micros() as u64).max(1), Ordering::Relaxed);
        }
        shared.answers.fetch_add(1, Ordering::Relaxed);
        if let Some(tos) = answer.tos {
            *self.tos_at_client.entry(tos).or_default() += 1;
        }
        if let Some(echo) = answer.echo {
            *self.tos_at_server.entry(echo.tos_arrived).or_default() += 1;
            for back in 1..64.min(index + 1) {
                if echo.window >> back & 1 == 1 {
                    self.entries[index - back].reached_server = true;
                }
            }
        }
    }
}

/// Rounds to microseconds: a subtraction of floats leaves errors behind the third decimal.
fn to_microseconds(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

fn run(mut socket: Box<dyn ProbeSocket>, interval: Duration, start: Instant, shared: &Shared) -> ProbeLog {
    let mut log = ProbeLog::default();
    let mut due = start;
    while due < shared.end().until {
        // In slices, because the end may move meanwhile.
        receive_until(&mut *socket, due.min(Instant::now() + SLICE), &mut log, shared);
        let sent = Instant::now();
        if sent < due {
            continue;
        }
        // A probe that a full queue of this machine drops is lost like any other.
        let _ = socket.send(log.entries.len() as u32);
        log.note_sent(due, sent);
        due += interval;
    }
    while let Some(newest) = log.newest_waiting() {
        let (now, latest) = (Instant::now(), newest + STRAGGLERS);
        let end = shared.end().give_up.map_or(latest, |end| end.min(latest));
        if now >= end {
            break;
        }
        if let Received::Answer(answer) = socket.receive(end.min(now + SLICE)) {
            log.note(answer, shared);
        }
    }
    log
}

/// Receives answers until `deadline`.
fn receive_until(socket: &mut dyn ProbeSocket, deadline: Instant, log: &mut ProbeLog, shared: &Shared) {
    let mut late = 0;
    while late < LATE_READS {
        late += u32::from(Instant::now() >= deadline);
        match socket.receive(deadline) {
            Received::TimedOut => return,
            Received::Ignored => {}
            Received::Answer(answer) => log.note(answer, shared),
        }
    }
}

/// Answers a series of probes with the messages of a fuzzer. The figures must stay possible.
#[cfg(any(test, fuzzing))]
pub fn answered_with(messages: &[&[u8]]) {
    const PROBES: u32 = 70;
    let (origin, shared) = (Instant::now(), Shared::new(Instant::now()));
    let mut log = ProbeLog::default();
    for n in 0..PROBES {
        let sent = origin + Duration::from_millis(20) * n;
        log.note_sent(sent, sent);
    }
    for (n, message) in messages.iter().enumerate() {
        if let Some(probe) = crate::protocol::Probe::decode(message) {
            let at = origin + Duration::from_millis(17) * n as u32;
            log.note(
                Answer {
                    sequence: probe.sequence,
                    at,
                    tos: Some(probe.tos),
                    echo: Some(probe.echo),
                },
                &shared,
            );
        }
    }
    let finished = Finished {
        log,
        offset_ms: 300.0,
        origin,
    };
    let exchanges = finished.exchanges(f64::NEG_INFINITY, f64::INFINITY);
    let (before, after) = exchanges.split_at(exchanges.len() / 2);
    let offset = Offset::estimate(before, after);
    let probes = finished.probes(offset.as_ref());
    assert_eq!(probes.len(), PROBES as usize);
    for probe in probes {
        assert!(probe.rtt_ms.is_none_or(|rtt| (0.0..1e9).contains(&rtt)));
        assert!(
            [probe.up_ms, probe.down_ms, probe.server_ms]
                .into_iter()
                .flatten()
                .all(f64::is_finite)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Echo;

    /// Ten probes with a round trip of 20 ms. The third is lost on its way to the server, the answer to the fifth on its way back.
    #[test]
    fn losses_have_a_direction_and_the_servers_time_is_subtracted() {
        let shared = Shared::new(Instant::now());
        let origin = Instant::now();
        let mut log = ProbeLog::default();
        for i in 0..10u32 {
            let sent = origin + Duration::from_millis(100) * i;
            log.note_sent(sent, sent);
        }
        let mut window = 0;
        for sequence in 0..10u32 {
            window <<= 1;
            if sequence == 2 {
                continue;
            }
            window |= 1;
            if sequence == 4 {
                continue;
            }
            let echo = Echo {
                tos_arrived: 0xb8,
                arrived_ns: u64::from(sequence) * 100_000_000,
                held_ns: 3_000_000,
                window,
            };
            let at = origin + Duration::from_millis(100) * sequence + Duration::from_millis(23);
            let answer = Answer {
                sequence,
                at,
                tos: Some(0),
                echo: Some(echo),
            };
            log.note(answer, &shared);
            log.note(answer, &shared);
        }
        let finished = Finished {
            log,
            offset_ms: 200.0,
            origin,
        };
        let probes = finished.probes(None);
        let lost: Vec<_> = probes.iter().map(|p| p.lost).collect();
        assert_eq!(lost[2], Some(Direction::Upload));
        assert_eq!(lost[4], Some(Direction::Download));
        assert_eq!(lost.iter().flatten().count(), 2);
        assert_eq!((probes[0].t_ms, probes[0].rtt_ms), (-200.0, Some(20.0)));
        assert_eq!(shared.answers.load(Ordering::Relaxed), 8);
        assert_eq!(finished.tos_at_server(), BTreeMap::from([(0xb8, 8)]));
        assert_eq!(finished.exchanges(-200.0, 0.0).len(), 2);
    }

    #[test]
    fn a_server_cannot_hold_a_probe_for_longer_than_its_round_trip() {
        let shared = Shared::new(Instant::now());
        let sent = Instant::now();
        let mut log = ProbeLog::default();
        log.note_sent(sent, sent);
        let answer = |held_ns| Answer {
            sequence: 0,
            at: sent + Duration::from_millis(10),
            tos: None,
            echo: Some(Echo {
                held_ns,
                ..Echo::default()
            }),
        };
        log.note(answer(12_000_000), &shared);
        let contradiction = lock(&shared.contradiction).clone().expect("a contradiction");
        assert!(
            contradiction.contains("12.0 ms") && contradiction.contains("10.0 ms"),
            "{contradiction}"
        );
        assert_eq!(log.entries[0].round_trip(), None, "it is no answer");
        log.note(answer(9_000_000), &shared);
        assert_eq!(log.entries[0].round_trip(), Some(Duration::from_millis(1)));
    }

    /// A socket with endless answers.
    struct Flood(u32);

    impl ProbeSocket for Flood {
        fn send(&mut self, sequence: u32) -> io::Result<()> {
            self.0 = sequence;
            Ok(())
        }

        fn receive(&mut self, _: Instant) -> Received {
            Received::Answer(Answer {
                sequence: self.0 / 2,
                at: Instant::now(),
                tos: None,
                echo: None,
            })
        }
    }

    #[test]
    fn a_flood_of_answers_delays_neither_the_probes_nor_the_end() {
        let start = Instant::now();
        let socket = Box::new(Flood(0));
        let far = start + Duration::from_secs(1000);
        let prober = Prober::start(socket, Duration::from_millis(10), start, far).unwrap();
        while prober.answers() < 5 {
            std::thread::yield_now();
        }
        let finished = prober.finish(start, Instant::now());
        assert!(finished.log.entries.len() >= 10);
        assert!(start.elapsed() < Duration::from_secs(100));
    }
}
