//! Asks reflectors for the time it takes: ICMP timestamps of those that answer them, which tell the directions apart, and
//! echoes of the others.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};
use sqm_core::autorate::{Sample, Signal};
use sqm_core::units::{Instant, Nanos};
use sqm_measure::icmp::{IcmpEcho, IcmpTimestamp};

use super::Reflector;
use crate::daemon::monotonic;

/// A probe without an answer for so long is lost.
const GIVE_UP: Nanos = Nanos::from_millis(5000);
/// So many lost in a row, and a reflector is left alone for a while.
const DEAD: u32 = 4;
const REST: Nanos = Nanos::from_millis(30_000);
/// So many timestamps without an answer, and echoes are sent.
const TRIES: u32 = 3;
/// The shortest time between two attempts where there is little hope: to open a socket without a device, to ask when nobody
/// answers.
const REOPEN: Nanos = Nanos::from_millis(1000);
/// So many that tell the directions apart are enough to decide by, and the others are asked with one probe in so many, to
/// know them when they are needed.
const ENOUGH: usize = 3;
const OTHERS: u32 = 8;

/// Probes and whom they ask.
pub(super) struct Prober {
    /// The device that they leave by.
    device: Option<String>,
    sockets: [Option<Socket>; 2],
    /// Why nobody can be asked.
    trouble: Option<String>,
    opened_at: Option<Instant>,
    /// Marks our probes: the identifier of timestamps, the beginning of an echo's payload.
    cookie: [u8; 8],
    asked: Vec<Asked>,
    next: usize,
    number: u32,
    sent: u64,
    sent_at: Option<Instant>,
}

struct Asked {
    address: IpAddr,
    outstanding: VecDeque<(u32, Instant)>,
    /// Timestamps that were tried; it answers them, or no more are sent.
    tries: u32,
    answers_timestamps: bool,
    lost_in_a_row: u32,
    rests_until: Option<Instant>,
    rtt: Option<Nanos>,
    answers: u64,
    lost: u64,
}

impl Asked {
    fn new(address: IpAddr) -> Self {
        Self {
            address,
            outstanding: VecDeque::new(),
            tries: 0,
            answers_timestamps: false,
            lost_in_a_row: 0,
            rests_until: None,
            rtt: None,
            answers: 0,
            lost: 0,
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    fn wants_timestamp(&self) -> bool {
        self.address.is_ipv4() && (self.answers_timestamps || self.tries < TRIES)
    }
}

impl Prober {
    pub(super) fn new(reflectors: &[IpAddr], device: Option<String>) -> Self {
        // Only to tell our answers from those to others: no secret.
        let cookie = (monotonic().0 ^ u64::from(std::process::id()) << 40).to_be_bytes();
        Self {
            device,
            sockets: [None, None],
            trouble: None,
            opened_at: None,
            cookie,
            asked: reflectors.iter().copied().map(Asked::new).collect(),
            next: 0,
            number: 0,
            sent: 0,
            sent_at: None,
        }
    }

    /// Asks the next reflector in turn that is not left alone.
    pub(super) fn send(&mut self, now: Instant) {
        self.open(now);
        let rests = |asked: &Asked| asked.rests(now);
        // Where all are silent it may be the line: one is asked now and then.
        let all_rest = self.asked.iter().all(rests);
        if all_rest && self.sent_at.is_some_and(|at| now.since(at) < REOPEN) {
            return;
        }
        let only_one_way = self.tells_directions_apart(now) && !self.number.is_multiple_of(OTHERS);
        for _ in 0..self.asked.len() {
            let index = self.next;
            self.next = (index + 1) % self.asked.len();
            let asked = &self.asked[index];
            let is_wanted = all_rest || !rests(asked) && (!only_one_way || asked.answers_timestamps);
            if is_wanted && self.ask(index, now) {
                self.sent_at = Some(now);
                return;
            }
        }
    }

    /// Whether enough reflectors tell each direction alone.
    pub(super) fn tells_directions_apart(&self, now: Instant) -> bool {
        let one_way = |asked: &&Asked| asked.answers_timestamps && !asked.rests(now);
        self.asked.iter().filter(one_way).count() >= ENOUGH
    }

    fn ask(&mut self, index: usize, now: Instant) -> bool {
        let number = self.number.wrapping_add(1);
        let asked = &self.asked[index];
        let v6 = asked.address.is_ipv6();
        let Some(socket) = &self.sockets[usize::from(v6)] else {
            return false;
        };
        let is_timestamp = asked.wants_timestamp();
        let message = if is_timestamp {
            IcmpTimestamp::request(self.identifier(), number as u16).to_vec()
        } else {
            let echo = IcmpEcho {
                sequence: number as u16,
                cookie: self.cookie,
                number,
            };
            echo.request(v6, IcmpEcho::USUAL)
        };
        let to = SocketAddr::new(asked.address, 0);
        if let Err(error) = socket.send_to(&message, &to.into()) {
            // No way there: no word about the reflector. A device that is gone needs another socket.
            if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) {
                self.sockets = [None, None];
            }
            return false;
        }
        let asked = &mut self.asked[index];
        if is_timestamp && !asked.answers_timestamps {
            asked.tries += 1;
        }
        asked.outstanding.push_back((number, now));
        self.number = number;
        self.sent += 1;
        true
    }

    fn identifier(&self) -> u16 {
        u16::from_be_bytes([self.cookie[6], self.cookie[7]])
    }

    /// Waits for answers, at most so long; whether there may be some.
    pub(super) fn wait(&self, most: Nanos) -> bool {
        let mut watched: Vec<PollFd<'_>> = self
            .sockets
            .iter()
            .flatten()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        let most = Timespec {
            tv_sec: (most.0 / 1_000_000_000) as i64,
            tv_nsec: (most.0 % 1_000_000_000) as i64,
        };
        // Interrupted, it is only shorter.
        poll(&mut watched, Some(&most)) != Ok(0)
    }

    /// Takes the answers that have come.
    pub(super) fn receive(&mut self, samples: &mut Vec<Sample>) {
        for v6 in [false, true] {
            let mut buffer = [0; 512];
            while let Some(socket) = &self.sockets[usize::from(v6)]
                && let Ok((length, _, from)) = recvfrom(socket, &mut buffer[..], RecvFlags::empty())
            {
                let now = monotonic();
                if let Some(Ok(from)) = from.map(SocketAddr::try_from) {
                    self.on_answer(&buffer[..length], from.ip(), v6, now, samples);
                }
            }
        }
    }

    /// Takes what has not come.
    pub(super) fn overdue(&mut self, now: Instant, samples: &mut Vec<Sample>) {
        for (index, asked) in self.asked.iter_mut().enumerate() {
            asked.overdue(index as u16, now, samples);
        }
    }

    fn on_answer(&mut self, bytes: &[u8], from: IpAddr, v6: bool, now: Instant, samples: &mut Vec<Sample>) {
        let Some(index) = self.asked.iter().position(|asked| asked.address == from) else {
            return;
        };
        let identifier = self.identifier();
        let echo = IcmpEcho::parse_reply(bytes, v6).filter(|echo| echo.cookie == self.cookie);
        let timestamp = (!v6).then(|| IcmpTimestamp::parse_reply(bytes)).flatten();
        let timestamp = timestamp.filter(|timestamp| timestamp.identifier == identifier);
        let asked = &mut self.asked[index];
        let is_it = |number: u32| match (&echo, &timestamp) {
            (Some(echo), _) => echo.number == number,
            (_, Some(timestamp)) => timestamp.sequence == number as u16,
            _ => false,
        };
        let Some(place) = asked.outstanding.iter().position(|(number, _)| is_it(*number)) else {
            return;
        };
        let (_, sent) = asked.outstanding[place];
        for _ in asked.outstanding.drain(..=place).take(place) {
            asked.lost += 1;
            let signal = Signal::Lost {
                reflector: index as u16,
            };
            samples.push(Sample { at: now, signal });
        }
        let reflector = index as u16;
        let rtt = now.since(sent);
        asked.rtt = Some(rtt);
        asked.answers += 1;
        asked.lost_in_a_row = 0;
        asked.rests_until = None;
        let signal = match timestamp {
            Some(timestamp) => {
                asked.answers_timestamps = true;
                // Against our own monotonic clock: only changes count.
                let there = i64::from(timestamp.received_ms) * 1_000_000;
                let back = i64::from(timestamp.sent_ms) * 1_000_000;
                Signal::OneWay {
                    reflector,
                    sent,
                    ingress: now.0 as i64 - back,
                    egress: there - sent.0 as i64,
                }
            }
            None => Signal::Echo { reflector, sent, rtt },
        };
        samples.push(Sample { at: now, signal });
    }

    /// Why nobody can be asked.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn reflectors(&self) -> Vec<Reflector> {
        let reflector = |asked: &Asked| Reflector {
            address: asked.address,
            rtt_ms: asked.rtt.map(|rtt| rtt.0 as f64 / 1e6),
            is_one_way: asked.answers_timestamps,
            answers: asked.answers,
            lost: asked.lost,
        };
        self.asked.iter().map(reflector).collect()
    }

    fn open(&mut self, now: Instant) {
        let is_early = self.opened_at.is_some_and(|at| now.since(at) < REOPEN);
        if is_early || self.sockets.iter().any(Option::is_some) {
            return;
        }
        self.opened_at = Some(now);
        let open = |domain, protocol| -> std::io::Result<Socket> {
            let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
            socket.set_nonblocking(true)?;
            if let Some(device) = &self.device {
                socket.bind_device(Some(device.as_bytes()))?;
            }
            Ok(socket)
        };
        let opened = [
            open(Domain::IPV4, Protocol::ICMPV4),
            open(Domain::IPV6, Protocol::ICMPV6),
        ];
        // One version of IP is enough.
        self.trouble = match &opened {
            [Err(error), Err(_)] => Some(error.to_string()),
            _ => None,
        };
        self.sockets = opened.map(Result::ok);
    }
}

impl Asked {
    /// What has not come: given up, or late.
    fn overdue(&mut self, reflector: u16, now: Instant, samples: &mut Vec<Sample>) {
        while let Some((_, sent)) = self.outstanding.front()
            && now.since(*sent) >= GIVE_UP
        {
            self.outstanding.pop_front();
            self.lost += 1;
            // It may only not answer timestamps.
            if self.answers_timestamps || self.answers > 0 || self.tries >= TRIES || self.address.is_ipv6() {
                self.lost_in_a_row += 1;
            }
            if self.lost_in_a_row >= DEAD {
                self.rests_until = Some(now + REST);
                self.lost_in_a_row = DEAD - 1;
            }
            let signal = Signal::Lost { reflector };
            samples.push(Sample { at: now, signal });
        }
        // Silence of one that never answered tells nothing.
        if let Some((_, sent)) = self.outstanding.front().filter(|_| self.answers > 0) {
            let signal = Signal::Waiting {
                reflector,
                sent: *sent,
            };
            samples.push(Sample { at: now, signal });
        }
    }
}
