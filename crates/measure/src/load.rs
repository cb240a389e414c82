//! The flows of one end: a thread for each flow that sends or receives, and one thread that takes samples.
//!
//! Client and server both run this code.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use portable_atomic::AtomicU64;

use crate::protocol::{Seen, Window};
use crate::result::Sample;
use crate::socket;
use crate::tcp_info::TcpInfo;

/// The time between two samples, unless there would be more than [`MAX_SAMPLES`].
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Largest number of samples of all flows in a test. It limits the memory that a client can make a server use.
const MAX_SAMPLES: u64 = 100_000;
/// How often the sampling thread checks whether the load has been stopped.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);
/// `TCP_INFO` is kept with every second sample.
const SAMPLES_PER_INFO: u32 = 2;
/// The longest write of a flow that ends before the load does: it checks the time at least this often.
const LONGEST_WRITE: Duration = Duration::from_millis(100);
/// Attempts to read two counters of a connection without an arrival in between.
const ATTEMPTS: usize = 8;
/// Bytes per write.
const WRITE_SIZE: usize = 128 << 10;
/// Bytes per read.
const READ_SIZE: usize = 256 << 10;
/// Bytes that wake a reader. Because not every packet wakes it, one slow core can receive a gigabit per second.
const WAKE_AT: usize = 16 << 10;

/// Pseudo-random, so that a compressing link cannot shrink it.
static PAYLOAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(WRITE_SIZE)
    .collect()
});

/// The bytes that every flow sends again and again.
pub(crate) fn payload() -> &'static [u8] {
    &PAYLOAD
}

/// The role of this end in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Send,
    Receive,
}

/// A connection that carries load.
pub(crate) struct LoadFlow {
    pub(crate) stream: TcpStream,
    pub(crate) role: Role,
    /// The part of the load in which the sender sends. `None` for the whole load.
    pub(crate) window: Option<Window>,
}

/// A running load. Dropping it ends it.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    flows: Arc<Vec<Flow>>,
    workers: Vec<JoinHandle<()>>,
    sampler: Option<JoinHandle<Vec<Seen>>>,
}

/// One flow.
struct Flow {
    stream: TcpStream,
    role: Role,
    window: Option<Window>,
    /// The kernel's figures when the sender ended the connection, at the end of its window.
    last: OnceLock<TcpInfo>,
    /// Bytes that the reader has read.
    read: AtomicU64,
    /// Bytes that the kernel had counted before the load and that had already been read. `None` if unknown.
    before: Option<u64>,
}

impl Flow {
    fn new(LoadFlow { stream, role, window }: LoadFlow) -> Self {
        // Bytes may arrive between the two system calls. Then both are repeated.
        let look = || {
            let counted = || TcpInfo::of(&stream).ok().map(|info| info.bytes_received);
            let (count, waiting) = (counted()?, rustix::io::ioctl_fionread(&stream).ok()?);
            (counted() == Some(count)).then(|| count.saturating_sub(waiting))
        };
        let before = (0..ATTEMPTS).find_map(|_| look());
        Self {
            stream,
            role,
            window,
            last: OnceLock::new(),
            read: AtomicU64::new(0),
            before,
        }
    }

    /// The kernel's figures now, or those at the end of the connection.
    fn info(&self) -> Option<TcpInfo> {
        // The kernel forgets its figures when the sender ends the connection, which is after it has stored them.
        let now = TcpInfo::of(&self.stream).ok();
        self.last.get().copied().or(now)
    }

    /// True if the flow may carry data at this moment of the load.
    fn is_active(&self, t_ms: f64) -> bool {
        let inside = |w: Window| t_ms >= w.from_ms as f64 && t_ms <= w.to_ms as f64;
        self.window.is_none_or(inside)
    }

    /// Bytes that have arrived: those that were read, and those that still are in the socket.
    fn arrived(&self) -> u64 {
        if self.role == Role::Send {
            return 0;
        }
        // The counter of the kernel is one figure. The fallback for kernels before 4.1, which have no counter, adds two figures, and
        // misses the bytes that the reader reads between them.
        let counted = self
            .before
            .zip(self.info())
            .map(|(before, info)| info.bytes_received.saturating_sub(before));
        counted.filter(|bytes| *bytes > 0).unwrap_or_else(|| {
            let read = self.read.load(Ordering::Acquire);
            read + rustix::io::ioctl_fionread(&self.stream).unwrap_or(0)
        })
    }
}

impl Load {
    /// Starts all flows, and takes samples until `length` after `start`. `max_rate` is the rate limit for all flows of one
    /// direction together, bytes per second.
    pub(crate) fn start(
        flows: Vec<LoadFlow>,
        start: Instant,
        length: Duration,
        max_rate: Option<u64>,
    ) -> std::io::Result<Self> {
        let flows: Vec<_> = flows.into_iter().map(Flow::new).collect();
        // Flows of one direction share the rate if they are active at the same time.
        let share = |flow: &Flow| {
            let is_sharer = |other: &&Flow| other.role == flow.role && other.window == flow.window;
            let sharers = flows.iter().filter(is_sharer).count() as u64;
            max_rate.map(|rate| (rate / sharers.max(1)).max(1))
        };
        let shares: Vec<Option<u64>> = flows.iter().map(share).collect();
        for (flow, share) in flows.iter().zip(&shares) {
            socket::reset_on_close(&flow.stream)?;
            match flow.role {
                Role::Receive => socket::wake_reader_at(&flow.stream, WAKE_AT)?,
                Role::Send => share.map_or(Ok(()), |rate| socket::pace(&flow.stream, rate))?,
            }
        }
        let mut load = Self {
            stop: Arc::new(AtomicBool::new(false)),
            flows: Arc::new(flows),
            workers: Vec::new(),
            sampler: None,
        };
        for (index, share) in shares.into_iter().enumerate() {
            let (stop, flows) = (load.stop.clone(), load.flows.clone());
            load.workers.push(match (flows[index].role, flows[index].window) {
                (Role::Receive, _) => spawn("sink", move || sink(&flows[index], share, &stop))?,
                (Role::Send, None) => spawn("source", move || source(&flows[index].stream, &stop))?,
                (Role::Send, Some(window)) => {
                    let moment = |ms| start + Duration::from_millis(ms).min(length);
                    let active = moment(window.from_ms)..moment(window.to_ms);
                    spawn("source", move || source_within(&flows[index], &active, &stop))?
                }
            });
        }
        let (stop, flows) = (load.stop.clone(), load.flows.clone());
        load.sampler = Some(spawn("sampler", move || sample(&flows, start, length, &stop))?);
        Ok(load)
    }

    /// Bytes that have arrived so far on each flow that this end receives.
    pub(crate) fn received(&self) -> Vec<u64> {
        let receiving = self.flows.iter().filter(|flow| flow.role == Role::Receive);
        receiving.map(Flow::arrived).collect()
    }

    /// Payload bytes of all flows that this end sends and that have arrived at the other end so far, those behind a gap included.
    pub(crate) fn delivered(&self) -> u64 {
        let sending = self.flows.iter().filter(|flow| flow.role == Role::Send);
        let infos = sending.filter_map(Flow::info);
        infos.map(|info| info.delivered_bytes()).sum()
    }

    /// Ends the load early. [`finish`](Self::finish) returns what was measured until then.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Waits for the last sample, ends all flows, and returns the measurements of each, in the order given.
    pub(crate) fn finish(mut self) -> Vec<Seen> {
        let sampler = self.sampler.take();
        let mut seen = sampler
            .and_then(|sampler| sampler.join().ok())
            .unwrap_or_default();
        self.end();
        // The senders have stopped, so that their counters include all that was sent.
        for (flow, seen) in self.flows.iter().zip(&mut seen) {
            if flow.role == Role::Send
                && let Some(info) = flow.info()
            {
                seen.totals = Some(info.totals());
            }
        }
        seen
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        for flow in &*self.flows {
            // Wakes a blocked writer. An error means that the peer is gone already.
            let _ = flow.stream.shutdown(Shutdown::Both);
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
        if let Some(sampler) = self.sampler.take() {
            let _ = sampler.join();
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

fn source(mut stream: &TcpStream, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) && stream.write_all(payload()).is_ok() {}
}

/// Sends from the beginning to the end of `active`, and then ends the connection. Data that has not left by then is discarded: it would
/// load the line in the next phase.
fn source_within(flow: &Flow, active: &Range<Instant>, stop: &AtomicBool) {
    let is_stopped = || stop.load(Ordering::Acquire);
    while Instant::now() < active.start && !is_stopped() {
        socket::sleep_until(active.start.min(Instant::now() + LONGEST_SLEEP));
    }
    // If the limit cannot be set, a write may last longer, and the flow ends a little late.
    let _ = flow.stream.set_write_timeout(Some(LONGEST_WRITE));
    while Instant::now() < active.end && !is_stopped() {
        match (&flow.stream).write(payload()) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
    }
    if let Ok(info) = TcpInfo::of(&flow.stream)
        && !is_stopped()
    {
        // Another value is there only if this function had run twice.
        let _ = flow.last.set(info);
        // The kernel resets the connection and discards its buffer. An error means that the peer is gone already.
        let _ = rustix::net::connect_unspec(&flow.stream);
    }
}

fn sink(flow: &Flow, max_rate: Option<u64>, stop: &AtomicBool) {
    /// How far a flow that was late may catch up, as time at its rate. With more, a flow after a pause would exceed its rate for long.
    /// A choice.
    const BURST: Duration = Duration::from_millis(50);
    /// Bytes in the receive buffer count as received, so that a large buffer would exceed the rate. The buffer holds a quarter of a
    /// second at the rate, and at least this many bytes.
    const LEAST_WINDOW: u64 = 128 << 10;
    if let Some(rate) = max_rate {
        let window = usize::try_from((rate / 4).max(LEAST_WINDOW)).unwrap_or(usize::MAX);
        // If it fails, the flow is a little above the rate at first.
        let _ = socket2::SockRef::from(&flow.stream).set_recv_buffer_size(window);
    }
    let mut due = Instant::now();
    let mut buffer = vec![0; READ_SIZE];
    while !stop.load(Ordering::Acquire) {
        // Blocks until data arrives, so that an idle flow takes no processor time.
        match (&flow.stream).read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                flow.read.fetch_add(n as u64, Ordering::AcqRel);
                if let Some(rate) = max_rate {
                    let now = Instant::now();
                    due = due.max(now.checked_sub(BURST).unwrap_or(now));
                    due += Duration::from_secs_f64(n as f64 / rate as f64);
                    // While the reader waits, the receive window fills and slows the sender down to the rate.
                    socket::sleep_until(due);
                }
            }
        }
    }
}

fn sample(flows: &[Flow], start: Instant, length: Duration, stop: &AtomicBool) -> Vec<Seen> {
    let interval = sample_interval(length, flows.len());
    let mut seen = vec![Seen::default(); flows.len()];
    let mut counted = vec![0; flows.len()];
    let mut elapsed = Duration::ZERO;
    let mut round = 0;
    while elapsed < length && !stop.load(Ordering::Acquire) {
        elapsed = (elapsed + interval).min(length);
        while Instant::now() < start + elapsed && !stop.load(Ordering::Acquire) {
            socket::sleep_until((start + elapsed).min(Instant::now() + LONGEST_SLEEP));
        }
        let now_ms = millis(start.elapsed());
        for ((flow, seen), counted) in flows.iter().zip(&mut seen).zip(&mut counted) {
            if flow.role == Role::Receive {
                let total = flow.arrived().max(*counted);
                seen.samples.push(Sample {
                    t_ms: now_ms,
                    bytes: total - *counted,
                });
                *counted = total;
            }
        }
        if round % SAMPLES_PER_INFO == 0 || elapsed == length {
            for (flow, seen) in flows.iter().zip(&mut seen) {
                if flow.is_active(now_ms) {
                    add_tcp_info(flow, seen, now_ms);
                }
            }
        }
        round += 1;
    }
    seen
}

/// Adds a sample of `TCP_INFO` of one flow. On an error the sample is missing.
fn add_tcp_info(flow: &Flow, seen: &mut Seen, now_ms: f64) {
    let Some(info) = flow.info() else {
        return;
    };
    seen.ecn = Some(info.ecn);
    seen.mss = Some(info.mss);
    match flow.role {
        Role::Send => {
            seen.tcp.push(info.sender_sample(now_ms));
            seen.totals = Some(info.totals());
        }
        Role::Receive => seen.tcp.push(info.receiver_sample(now_ms)),
    }
}

/// The time between two samples for a load of this length with this number of flows.
pub(crate) fn sample_interval(length: Duration, flows: usize) -> Duration {
    let at_least = length.as_micros() as u64 * flows as u64 / MAX_SAMPLES;
    SAMPLE_INTERVAL.max(Duration::from_micros(at_least))
}

/// A duration in milliseconds, rounded down to microseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tests_with_many_flows_take_fewer_samples() {
        assert_eq!(sample_interval(Duration::from_secs(60), 8), SAMPLE_INTERVAL);
        assert_eq!(
            sample_interval(Duration::from_secs(3600), 128),
            Duration::from_micros(4_608_000)
        );
    }
}
