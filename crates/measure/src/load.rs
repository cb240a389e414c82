//! The bulk transfers of one end: threads that write, threads that read, and one that takes samples of what was read.
//!
//! Both ends of a test run this same code, each with its own sending and receiving sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::result::Sample;
use crate::socket;

/// The time between two samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes handed to the kernel at once.
const WRITE_SIZE: usize = 128 << 10;
/// Bytes taken from the kernel at once.
const READ_SIZE: usize = 256 << 10;
/// Bytes that wake a reader: not every packet does, which is what lets one slow core take in a gigabit per second.
const WAKE_AT: usize = 16 << 10;

/// A running load. Dropping it ends it.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    streams: Vec<Arc<TcpStream>>,
    receivers: Arc<Vec<Receiver>>,
    workers: Vec<JoinHandle<()>>,
    sampler: Option<JoinHandle<Vec<Vec<Sample>>>>,
}

/// One receiving flow and what its reader has taken out of the socket.
struct Receiver {
    stream: Arc<TcpStream>,
    read: AtomicU64,
}

impl Receiver {
    /// Bytes that have arrived: those read and those in the socket that the reader has not come round to.
    fn arrived(&self) -> u64 {
        // In this order a read in between makes the figure too small for one sample, never too large.
        let read = self.read.load(Ordering::Acquire);
        read + rustix::io::ioctl_fionread(&*self.stream).unwrap_or(0)
    }
}

impl Load {
    /// Starts to write on `senders` and to read from `receivers`, and to sample the latter until `length` after `start`.
    pub(crate) fn start(
        senders: Vec<TcpStream>,
        receivers: Vec<TcpStream>,
        start: Instant,
        length: Duration,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let receivers: Vec<Receiver> = receivers
            .into_iter()
            .map(|s| Receiver {
                stream: Arc::new(s),
                read: AtomicU64::new(0),
            })
            .collect();
        let senders: Vec<_> = senders.into_iter().map(Arc::new).collect();
        let streams: Vec<_> = receivers
            .iter()
            .map(|r| &r.stream)
            .chain(&senders)
            .cloned()
            .collect();
        for stream in &streams {
            socket::reset_on_close(stream)?;
        }
        for receiver in &receivers {
            socket::wake_reader_at(&*receiver.stream, WAKE_AT)?;
        }
        let mut load = Self {
            stop,
            streams,
            receivers: Arc::new(receivers),
            workers: Vec::new(),
            sampler: None,
        };
        for index in 0..load.receivers.len() {
            let (stop, receivers) = (load.stop.clone(), load.receivers.clone());
            load.workers
                .push(spawn("sink", move || sink(&receivers[index], &stop))?);
        }
        for stream in senders {
            let stop = load.stop.clone();
            load.workers
                .push(spawn("source", move || source(&stream, &stop))?);
        }
        let (stop, receivers) = (load.stop.clone(), load.receivers.clone());
        load.sampler = Some(spawn("sampler", move || {
            sample(&receivers, start, length, &stop)
        })?);
        Ok(load)
    }

    /// Bytes that have arrived so far, all flows together.
    pub(crate) fn received(&self) -> u64 {
        self.receivers.iter().map(Receiver::arrived).sum()
    }

    /// Waits for the last sample, ends all flows, and answers the samples of each receiver.
    pub(crate) fn finish(mut self) -> Vec<Vec<Sample>> {
        self.sampler
            .take()
            .and_then(|sampler| sampler.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for stream in &self.streams {
            // Wakes a blocked writer; that the peer may be gone already is no matter.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
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
    // Pseudo-random, so that a compressing link cannot shrink it.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let buffer: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(WRITE_SIZE)
    .collect();
    while !stop.load(Ordering::Acquire) && stream.write_all(&buffer).is_ok() {}
}

fn sink(receiver: &Receiver, stop: &AtomicBool) {
    let mut stream = &*receiver.stream;
    let mut buffer = vec![0; READ_SIZE];
    while !stop.load(Ordering::Acquire) {
        // Blocks while nothing is there, so an idle flow costs nothing.
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                receiver.read.fetch_add(n as u64, Ordering::AcqRel);
            }
        }
    }
}

fn sample(receivers: &[Receiver], start: Instant, length: Duration, stop: &AtomicBool) -> Vec<Vec<Sample>> {
    let mut samples = vec![Vec::new(); receivers.len()];
    let mut counted = vec![0; receivers.len()];
    let mut elapsed = Duration::ZERO;
    while elapsed < length && !stop.load(Ordering::Acquire) {
        elapsed = (elapsed + SAMPLE_INTERVAL).min(length);
        socket::sleep_until(start + elapsed);
        let now_ms = millis(start.elapsed());
        for ((receiver, series), counted) in receivers.iter().zip(&mut samples).zip(&mut counted) {
            let total = receiver.arrived().max(*counted);
            series.push(Sample {
                t_ms: now_ms,
                bytes: total - *counted,
            });
            *counted = total;
        }
    }
    samples
}

/// Milliseconds, to the microsecond.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
