//! Asks reflectors for the time it takes: those that stamp when a probe came and when its answer left tell the directions
//! apart, the others answer echoes.

mod sockets;
mod speech;

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::event::{PollFd, Timespec, poll};
use sqm_autorate::{Sample, Signal};
use sqm_core::units::{Instant, Nanos};
use sqm_plan::settings::Reflector;

use super::ReflectorStatus;
use crate::clock::monotonic;
use sockets::{Kind, Sockets};
use speech::{Heard, Speech};

/// A probe without an answer for so long is lost.
const GIVE_UP: Nanos = Nanos::from_millis(5000);
/// So many lost in a row, and a reflector is left alone for a while.
const DEAD: u32 = 4;
const REST: Nanos = Nanos::from_millis(30_000);
/// The shortest time between two attempts where there is little hope: nobody answers.
const HOPELESS: Nanos = Nanos::from_millis(1000);
/// So many that tell the directions apart are enough to decide by, and the others are asked with one probe in so many, to
/// know them when they are needed.
const ENOUGH: usize = 3;
const OTHERS: u32 = 8;

/// Probes and whom they ask.
pub(super) struct Prober {
    icmp: Sockets,
    udp: Sockets,
    asked: Vec<Asked>,
    next: usize,
    number: u32,
    sent: u64,
    sent_at: Option<Instant>,
}

struct Asked {
    reflector: Reflector,
    speech: Speech,
    outstanding: VecDeque<(u32, Instant)>,
    is_one_way: bool,
    lost_in_a_row: u32,
    rests_until: Option<Instant>,
    rtt: Option<Nanos>,
    answers: u64,
    lost: u64,
}

impl Prober {
    pub(super) fn new(reflectors: &[Reflector], device: Option<String>) -> Self {
        // Only to tell our answers from those to others: no secret.
        let cookie = (monotonic().0 ^ u64::from(std::process::id()) << 40).to_be_bytes();
        let mut asked: Vec<Asked> = Vec::new();
        for reflector in reflectors {
            let speech = Speech::new(*reflector, cookie);
            // Named twice, it is still one.
            if !asked
                .iter()
                .any(|asked| asked.speech.is_from(speech.kind(), speech.to()))
            {
                asked.push(Asked::new(*reflector, speech));
            }
        }
        Self {
            icmp: Sockets::new(Kind::Icmp, device.clone()),
            udp: Sockets::new(Kind::Udp, device),
            asked,
            next: 0,
            number: 0,
            sent: 0,
            sent_at: None,
        }
    }

    /// Asks the next reflector in turn that is not left alone.
    pub(super) fn send(&mut self, now: Instant) {
        let rests = |asked: &Asked| asked.rests(now);
        // Where all are silent it may be the line: one is asked now and then.
        let all_rest = self.asked.iter().all(rests);
        if all_rest && self.sent_at.is_some_and(|at| now.since(at) < HOPELESS) {
            return;
        }
        let only_one_way = self.tells_directions_apart(now) && !self.number.is_multiple_of(OTHERS);
        for _ in 0..self.asked.len() {
            let index = self.next;
            self.next = (index + 1) % self.asked.len();
            let asked = &self.asked[index];
            let is_wanted = all_rest || !rests(asked) && (!only_one_way || asked.is_one_way);
            if is_wanted && self.ask(index, now) {
                self.sent_at = Some(now);
                return;
            }
        }
    }

    /// Whether enough reflectors tell each direction alone.
    pub(super) fn tells_directions_apart(&self, now: Instant) -> bool {
        let one_way = |asked: &&Asked| asked.is_one_way && !asked.rests(now);
        self.asked.iter().filter(one_way).count() >= ENOUGH
    }

    fn ask(&mut self, index: usize, now: Instant) -> bool {
        let number = self.number.wrapping_add(1);
        let asked = &mut self.asked[index];
        let sockets = match asked.speech.kind() {
            Kind::Icmp => &mut self.icmp,
            Kind::Udp => &mut self.udp,
        };
        let Some(message) = asked.speech.say(number, now) else {
            return false;
        };
        if !sockets.send(asked.speech.to(), &message, now) {
            return false;
        }
        asked.speech.was_said(number, now);
        asked.outstanding.push_back((number, now));
        self.number = number;
        self.sent += 1;
        true
    }

    /// Waits for answers, at most so long; whether there may be some.
    pub(super) fn wait(&self, most: Nanos) -> bool {
        let mut watched: Vec<PollFd<'_>> = self.icmp.watched().chain(self.udp.watched()).collect();
        let most = Timespec {
            tv_sec: (most.0 / 1_000_000_000) as i64,
            tv_nsec: (most.0 % 1_000_000_000) as i64,
        };
        // Interrupted, it is only shorter.
        poll(&mut watched, Some(&most)) != Ok(0)
    }

    /// Takes the answers that have come.
    pub(super) fn receive(&mut self, samples: &mut Vec<Sample>) {
        let mut buffer = [0; 512];
        for sockets in [&self.icmp, &self.udp] {
            for v6 in [false, true] {
                while let Some((length, from)) = sockets.receive(v6, &mut buffer) {
                    let now = monotonic();
                    let bytes = &buffer[..length];
                    on_answer(&mut self.asked, sockets.kind(), from, bytes, now, samples);
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

    /// Why somebody cannot be asked.
    pub(super) fn trouble(&self) -> Option<String> {
        let icmp = self.icmp.trouble().map(|why| format!("by ICMP: {why}"));
        icmp.or_else(|| self.udp.trouble().map(|why| format!("by UDP: {why}")))
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn reflectors(&self) -> Vec<ReflectorStatus> {
        let told = |asked: &Asked| ReflectorStatus {
            address: asked.reflector.to_string(),
            rtt_ms: asked.rtt.map(|rtt| rtt.0 as f64 / 1e6),
            is_one_way: asked.is_one_way,
            answers: asked.answers,
            lost: asked.lost,
        };
        self.asked.iter().map(told).collect()
    }
}

/// Finds out whose answer it is.
fn on_answer(
    all: &mut [Asked],
    kind: Kind,
    from: SocketAddr,
    bytes: &[u8],
    now: Instant,
    samples: &mut Vec<Sample>,
) {
    let is_whose = |asked: &Asked| asked.speech.is_from(kind, from);
    if let Some(index) = all.iter().position(is_whose)
        && let Some(heard) = all[index].speech.hear(bytes)
    {
        all[index].on_answer(index as u16, &heard, now, samples);
    }
}

impl Asked {
    fn new(reflector: Reflector, speech: Speech) -> Self {
        Self {
            reflector,
            speech,
            outstanding: VecDeque::new(),
            is_one_way: false,
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

    fn on_answer(&mut self, reflector: u16, heard: &Heard, now: Instant, samples: &mut Vec<Sample>) {
        let mut outstanding = self.outstanding.iter();
        let Some(place) = outstanding.position(|(number, _)| heard.number.is(*number)) else {
            return;
        };
        let (_, sent) = self.outstanding[place];
        for _ in self.outstanding.drain(..=place).take(place) {
            self.lost += 1;
            let signal = Signal::Lost { reflector };
            samples.push(Sample { at: now, signal });
        }
        self.lost_in_a_row = 0;
        self.rests_until = None;
        if heard.is_introduction {
            return;
        }
        let rtt = now.since(sent);
        self.rtt = Some(rtt);
        self.answers += 1;
        let signal = match heard.times_ns {
            Some((there, back)) => {
                self.is_one_way = true;
                // Against our own monotonic clock: only changes count.
                Signal::OneWay {
                    reflector,
                    sent,
                    download: now.0 as i64 - back,
                    upload: there - sent.0 as i64,
                }
            }
            None => Signal::Echo { reflector, sent, rtt },
        };
        samples.push(Sample { at: now, signal });
    }

    /// What has not come: given up, or late.
    fn overdue(&mut self, reflector: u16, now: Instant, samples: &mut Vec<Sample>) {
        while let Some((_, sent)) = self.outstanding.front()
            && now.since(*sent) >= GIVE_UP
        {
            self.outstanding.pop_front();
            self.lost += 1;
            if self.answers > 0 || self.speech.is_understood() {
                self.lost_in_a_row += 1;
            }
            if self.lost_in_a_row >= DEAD {
                self.rests_until = Some(now + REST);
                self.lost_in_a_row = DEAD - 1;
                self.speech.forget();
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

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::thread;

    use sqm_measure::server::{Config, Server};

    use super::*;

    /// A server of sqm's on this machine, with its own key for tokens; it lives as long as the test.
    fn serve(listen: &str) -> SocketAddr {
        let config = Config {
            listen: Some(listen.parse().unwrap()),
            https: false,
            ..Config::default()
        };
        let server = Server::bind(config, |_| {}).unwrap();
        let address = server.local_addr().unwrap();
        thread::spawn(move || server.run());
        address
    }

    fn prober(reflectors: &[String]) -> Prober {
        let reflectors: Vec<Reflector> = reflectors.iter().map(|word| word.parse().unwrap()).collect();
        Prober::new(&reflectors, None)
    }

    /// Asks until there are three more answers of each reflector; what they came to.
    fn asked(prober: &mut Prober) -> Vec<Sample> {
        let mut samples = Vec::new();
        let until: Vec<u64> = prober.asked.iter().map(|asked| asked.answers + 3).collect();
        for _ in 0..1000 {
            prober.send(monotonic());
            if prober.wait(Nanos::from_millis(20)) {
                prober.receive(&mut samples);
            }
            prober.overdue(monotonic(), &mut samples);
            let mut each = prober.asked.iter().zip(&until);
            if each.all(|(asked, until)| asked.answers >= *until) {
                return samples;
            }
        }
        panic!("no answers: {:?}", prober.reflectors());
    }

    #[test]
    fn servers_of_tests_tell_the_directions_apart() {
        let [v4, v6] = ["127.0.0.1:0", "[::1]:0"].map(serve);
        let mut prober = prober(&[
            format!("sqm://{v4}"),
            format!("sqm://{v6}"),
            format!("sqm://{v4}"),
        ]);
        assert_eq!(prober.asked.len(), 2);
        let mut known = 0;
        for sample in asked(&mut prober) {
            let Signal::OneWay {
                sent,
                download,
                upload,
                ..
            } = sample.signal
            else {
                continue;
            };
            known += 1;
            // Both ways are the round trip without what the server took, whatever its clock says.
            let both = download + upload;
            let round_trip = sample.at.since(sent).0 as i64;
            assert!((0..round_trip).contains(&both), "{both} of {round_trip}");
        }
        assert!(known >= 6, "{known}");
        let status = &prober.reflectors()[1];
        assert_eq!((status.is_one_way, status.lost), (true, 0), "{status:?}");
        assert_eq!(status.address, format!("sqm://{v6}"));
    }

    #[test]
    fn a_server_that_begins_anew_is_asked_on() {
        // Two servers with keys of their own stand for one before and after: a proxy leads to either.
        let servers = ["127.0.0.1:0", "127.0.0.1:0"].map(serve);
        let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = proxy.local_addr().unwrap();
        let (switch, switched) = std::sync::mpsc::channel::<()>();
        thread::spawn(move || {
            let mut server = servers[0];
            let mut client = None;
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = proxy.recv_from(&mut buffer) {
                if switched.try_recv().is_ok() {
                    server = servers[1];
                }
                let to = match servers.contains(&from) {
                    true => client.expect("somebody asked"),
                    false => {
                        client = Some(from);
                        server
                    }
                };
                proxy.send_to(&buffer[..length], to).unwrap();
            }
        });
        let mut prober = prober(&[format!("sqm://{address}")]);
        asked(&mut prober);
        switch.send(()).unwrap();
        asked(&mut prober);
        assert_eq!(prober.reflectors()[0].lost, 0);
    }
}
