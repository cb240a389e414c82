//! Latency probes: small UDP packets on a fixed timetable, and the wait for their echoes.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::load::millis;
use crate::protocol::{self, Token};
use crate::result::Probe;
use crate::socket;

/// How long after the last probe replies are waited for: lines exist whose buffers hold several seconds.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// The thread that sends, receives and keeps the books.
pub(crate) struct Prober {
    thread: Option<JoinHandle<Vec<Echo>>>,
    shared: Arc<Shared>,
    origin: Instant,
}

/// What the thread and its owner tell each other.
struct Shared {
    /// When to stop sending.
    until: Mutex<Instant>,
    /// The newest round trip in microseconds; zero before the first.
    newest_us: AtomicU64,
}

/// One probe and what became of it.
#[derive(Clone, Copy)]
struct Echo {
    due: Instant,
    sent: Instant,
    rtt: Option<Duration>,
    server: Duration,
}

impl Prober {
    /// Probes through a connected `socket` every `interval` from now until `until`.
    pub(crate) fn start(
        socket: UdpSocket,
        token: Token,
        interval: Duration,
        until: Instant,
    ) -> std::io::Result<Self> {
        let origin = Instant::now();
        let shared = Arc::new(Shared {
            until: Mutex::new(until),
            newest_us: AtomicU64::new(0),
        });
        let course = Course {
            socket,
            token,
            interval,
            origin,
            echoes: Vec::new(),
            waiting: 0,
        };
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name("prober".to_owned())
            .spawn(move || course.run(&theirs))?;
        Ok(Self {
            thread: Some(thread),
            shared,
            origin,
        })
    }

    /// The newest round trip, once there is one.
    pub(crate) fn newest(&self) -> Option<Duration> {
        Some(Duration::from_micros(
            self.shared.newest_us.load(Ordering::Relaxed),
        ))
        .filter(|rtt| !rtt.is_zero())
    }

    /// Moves the end.
    pub(crate) fn set_until(&self, until: Instant) {
        *self.shared.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Waits for the last replies; times count from `load_start`.
    pub(crate) fn finish(mut self, load_start: Instant) -> Vec<Probe> {
        let offset_ms = millis(load_start - self.origin);
        let since_load = |moment: Instant| to_microseconds(millis(moment - self.origin) - offset_ms);
        let echoes = self
            .thread
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        echoes
            .iter()
            .map(|echo| Probe {
                due_ms: since_load(echo.due),
                t_ms: since_load(echo.sent),
                rtt_ms: echo.rtt.map(millis),
                server_ms: echo.rtt.map(|_| millis(echo.server)),
                ..Probe::default()
            })
            .collect()
    }
}

/// A test that fails half-way sends no more probes.
impl Drop for Prober {
    fn drop(&mut self) {
        self.set_until(self.origin);
    }
}

/// Takes off the noise that a subtraction of floats leaves behind the third decimal.
fn to_microseconds(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

/// The thread's own state.
struct Course {
    socket: UdpSocket,
    token: Token,
    interval: Duration,
    /// Zero of the timestamps in the probes.
    origin: Instant,
    echoes: Vec<Echo>,
    /// Probes without a reply so far.
    waiting: usize,
}

impl Course {
    fn run(mut self, shared: &Shared) -> Vec<Echo> {
        // The deadlines are absolute: a probe sent late does not delay the next.
        let mut due = self.origin;
        loop {
            let until = *shared.until.lock().unwrap_or_else(PoisonError::into_inner);
            if due >= until {
                self.collect(until + STRAGGLERS, shared);
                return self.echoes;
            }
            while socket::wait_readable(&self.socket, due).unwrap_or(false) {
                self.receive(shared);
            }
            self.send(due);
            due += self.interval;
        }
    }

    fn send(&mut self, due: Instant) {
        let sent = Instant::now();
        let probe = protocol::Probe {
            token: self.token,
            sequence: self.echoes.len() as u64,
            sent_ns: (sent - self.origin).as_nanos() as u64,
            server_ns: 0,
        };
        // A full queue in this machine loses the probe like a full queue anywhere else.
        let _ = self.socket.send(&probe.encode());
        self.echoes.push(Echo {
            due,
            sent,
            rtt: None,
            server: Duration::ZERO,
        });
        self.waiting += 1;
    }

    fn receive(&mut self, shared: &Shared) {
        let mut buffer = [0; protocol::Probe::LENGTH + 1];
        // An error is an ICMP message about an earlier probe; that one is then simply lost.
        let Ok(length) = self.socket.recv(&mut buffer) else {
            return;
        };
        let arrived = Instant::now();
        let Some(probe) = protocol::Probe::decode(&buffer[..length]).filter(|p| p.token == self.token) else {
            return;
        };
        let Some(echo) = usize::try_from(probe.sequence)
            .ok()
            .and_then(|i| self.echoes.get_mut(i))
        else {
            return;
        };
        // The first of duplicates counts.
        if echo.rtt.is_none() {
            let rtt = arrived.saturating_duration_since(echo.sent);
            echo.rtt = Some(rtt);
            echo.server = Duration::from_nanos(probe.server_ns);
            self.waiting -= 1;
            shared
                .newest_us
                .store((rtt.as_micros() as u64).max(1), Ordering::Relaxed);
        }
    }

    fn collect(&mut self, deadline: Instant, shared: &Shared) {
        while self.waiting > 0 && socket::wait_readable(&self.socket, deadline).unwrap_or(false) {
            self.receive(shared);
        }
    }
}
