//! Probes reflectors. A reflector that stamps when a probe arrived and when its reply left shows the one-way delay of each
//! direction; the others show the round trip.

mod reflector_protocol;
mod sockets;

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::event::{PollFd, poll};
use sqm_autorate::{Sample, Signal};
use sqm_core::units::{Instant, Nanos};
use sqm_plan::settings::Reflector;

use crate::clock::{monotonic, timespec};
use reflector_protocol::{ReflectorSession, Reply};
use sockets::{Kind, Sockets};
use sqm_api::status::ReflectorStatus;

/// A probe without a reply is lost after this; a choice.
const PROBE_TIMEOUT: Nanos = Nanos::from_millis(5000);
/// A reflector that loses this many probes in a row is paused; a choice.
const MAX_LOST_IN_A_ROW: u32 = 4;
/// How long a silent reflector is paused; a choice.
const PAUSE: Nanos = Nanos::from_millis(30_000);
/// The time between two probes while all reflectors are paused; a choice.
const ALL_PAUSED_INTERVAL: Nanos = Nanos::from_millis(1000);
/// The controller needs no others if this many reflectors show one-way delays; a choice.
const ENOUGH_ONE_WAY: usize = 3;
/// Then one in this many probes goes to the others, so that they have a baseline if they are needed. A choice.
const OTHERS_DIVISOR: u32 = 8;

/// The reflectors, and the sockets for their probes.
pub(super) struct Prober {
    icmp: Sockets,
    udp: Sockets,
    targets: Vec<Target>,
    /// The index of the reflector whose turn it is.
    next: usize,
    /// The index of the reflector without one-way delays whose turn it is.
    next_other: usize,
    /// The number of the last probe.
    number: u32,
    sent: u64,
    sent_at: Option<Instant>,
}

/// The state of one reflector.
struct Target {
    reflector: Reflector,
    session: ReflectorSession,
    /// Unanswered probes, oldest first: number and time.
    outstanding: VecDeque<(u32, Instant)>,
    /// Its replies show one-way delays.
    is_one_way: bool,
    lost_in_a_row: u32,
    paused_until: Option<Instant>,
    /// The last round trip.
    rtt: Option<Nanos>,
    answers: u64,
    lost: u64,
}

impl Prober {
    pub(super) fn new(reflectors: &[Reflector], device: Option<String>) -> Self {
        // Distinguishes replies to our probes from those to other processes. It is not a secret.
        let cookie = (monotonic().0 ^ u64::from(std::process::id()) << 40).to_be_bytes();
        let mut targets: Vec<Target> = Vec::new();
        for reflector in reflectors {
            let session = ReflectorSession::new(*reflector, cookie);
            // A reflector that is configured twice is probed as one.
            if !targets
                .iter()
                .any(|target| target.session.is_from(session.kind(), session.address()))
            {
                targets.push(Target::new(*reflector, session));
            }
        }
        Self {
            icmp: Sockets::new(Kind::Icmp, device.clone()),
            udp: Sockets::new(Kind::Udp, device),
            targets,
            next: 0,
            next_other: 0,
            number: 0,
            sent: 0,
            sent_at: None,
        }
    }

    /// Sends a probe to the next reflector in turn that is not paused.
    pub(super) fn send(&mut self, now: Instant) {
        let is_paused = |target: &Target| target.is_paused(now);
        // If all are silent, the line may be down: probe one from time to time.
        let all_paused = self.targets.iter().all(is_paused);
        if all_paused && self.sent_at.is_some_and(|at| now.since(at) < ALL_PAUSED_INTERVAL) {
            return;
        }
        let prefers_one_way = self.has_one_way_delays(now);
        let is_other = |target: &Target| !is_paused(target) && !target.is_one_way;
        if prefers_one_way && self.number.is_multiple_of(OTHERS_DIVISOR) {
            let sent;
            (sent, self.next_other) = self.send_to_next(self.next_other, now, is_other);
            if sent {
                return;
            }
        }
        let is_wanted =
            |target: &Target| all_paused || !is_paused(target) && (!prefers_one_way || target.is_one_way);
        (_, self.next) = self.send_to_next(self.next, now, is_wanted);
    }

    /// Sends a probe to the first reflector from `next` on that is wanted and can be probed. Returns `false` if there is none, and the
    /// one whose turn it is then.
    fn send_to_next(
        &mut self,
        next: usize,
        now: Instant,
        is_wanted: impl Fn(&Target) -> bool,
    ) -> (bool, usize) {
        let count = self.targets.len();
        for index in (0..count).map(|step| (next + step) % count) {
            if is_wanted(&self.targets[index]) && self.probe(index, now) {
                self.sent_at = Some(now);
                return (true, (index + 1) % count);
            }
        }
        (false, next)
    }

    /// `true` if enough reflectors show one-way delays.
    pub(super) fn has_one_way_delays(&self, now: Instant) -> bool {
        let is_one_way = |target: &&Target| target.is_one_way && !target.is_paused(now);
        self.targets.iter().filter(is_one_way).count() >= ENOUGH_ONE_WAY
    }

    /// The kinds of probes that bypass a queue, by the reflectors whose probes do: most of those of this kind that answer.
    pub(super) fn kinds_of(&self, bypassing: impl Iterator<Item = u16>, now: Instant) -> Vec<String> {
        let bypassing: Vec<u16> = bypassing.collect();
        let is_most = |kind: &Kind| {
            let (mut answering, mut counted) = (0, 0);
            for (target, number) in self.targets.iter().zip(0u16..) {
                if target.session.kind() == *kind && target.answers > 0 && !target.is_paused(now) {
                    answering += 1;
                    counted += usize::from(bypassing.contains(&number));
                }
            }
            counted * 2 > answering
        };
        let kinds = [Kind::Icmp, Kind::Udp].into_iter().filter(is_most);
        kinds.map(|kind| kind.name().to_owned()).collect()
    }

    /// Sends a probe to a reflector. Returns `false` if that is not possible now.
    fn probe(&mut self, index: usize, now: Instant) -> bool {
        let number = self.number.wrapping_add(1);
        let target = &mut self.targets[index];
        let sockets = match target.session.kind() {
            Kind::Icmp => &mut self.icmp,
            Kind::Udp => &mut self.udp,
        };
        let Some(message) = target.session.build_probe(number, now) else {
            return false;
        };
        if !sockets.send(target.session.address(), &message, now) {
            return false;
        }
        target.session.on_sent(number, now);
        target.outstanding.push_back((number, now));
        self.number = number;
        self.sent += 1;
        true
    }

    /// Waits for replies for up to `timeout`. Returns `true` if there may be some.
    pub(super) fn wait(&self, timeout: Nanos) -> bool {
        let mut watched: Vec<PollFd<'_>> = self.icmp.poll_fds().chain(self.udp.poll_fds()).collect();
        let timeout = timespec(timeout);
        // A signal only shortens the wait.
        poll(&mut watched, Some(&timeout)) != Ok(0)
    }

    /// Reads all replies that have arrived, and adds their samples.
    pub(super) fn receive(&mut self, samples: &mut Vec<Sample>) {
        let mut buffer = [0; 512];
        for sockets in [&self.icmp, &self.udp] {
            for v6 in [false, true] {
                while let Some((length, from)) = sockets.receive(v6, &mut buffer) {
                    let now = monotonic();
                    let bytes = &buffer[..length];
                    on_message(&mut self.targets, sockets.kind(), from, bytes, now, samples);
                }
            }
        }
    }

    /// Adds samples for probes that are lost or late.
    pub(super) fn overdue(&mut self, now: Instant, samples: &mut Vec<Sample>) {
        for (index, target) in self.targets.iter_mut().enumerate() {
            target.overdue(index as u16, now, samples);
        }
    }

    /// Why probes cannot be sent: text that continues "reflectors cannot be probed".
    pub(super) fn error(&self) -> Option<String> {
        let icmp = self.icmp.error().map(|why| format!("by ICMP: {why}"));
        icmp.or_else(|| self.udp.error().map(|why| format!("by UDP: {why}")))
    }

    /// The number of probes sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The status of all reflectors.
    pub(super) fn reflectors(&self) -> Vec<ReflectorStatus> {
        let status = |target: &Target| ReflectorStatus {
            address: target.reflector.to_string(),
            rtt_ms: target.rtt.map(|rtt| rtt.0 as f64 / 1e6),
            is_one_way: target.is_one_way,
            answers: target.answers,
            lost: target.lost,
        };
        self.targets.iter().map(status).collect()
    }
}

/// Passes a message to the reflector that has sent it.
fn on_message(
    targets: &mut [Target],
    kind: Kind,
    from: SocketAddr,
    bytes: &[u8],
    now: Instant,
    samples: &mut Vec<Sample>,
) {
    let is_sender = |target: &Target| target.session.is_from(kind, from);
    if let Some(index) = targets.iter().position(is_sender)
        && let Some(reply) = targets[index].session.parse_reply(bytes)
    {
        targets[index].on_reply(index as u16, &reply, now, samples);
    }
}

impl Target {
    fn new(reflector: Reflector, session: ReflectorSession) -> Self {
        Self {
            reflector,
            session,
            outstanding: VecDeque::new(),
            is_one_way: false,
            lost_in_a_row: 0,
            paused_until: None,
            rtt: None,
            answers: 0,
            lost: 0,
        }
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    fn on_reply(&mut self, reflector: u16, reply: &Reply, now: Instant, samples: &mut Vec<Sample>) {
        let mut outstanding = self.outstanding.iter();
        let Some(place) = outstanding.position(|(number, _)| reply.probe.matches(*number)) else {
            return;
        };
        let (_, sent) = self.outstanding[place];
        // Older probes count as lost.
        for _ in self.outstanding.drain(..=place).take(place) {
            self.lost += 1;
            let signal = Signal::Lost { reflector };
            samples.push(Sample { at: now, signal });
        }
        self.lost_in_a_row = 0;
        self.paused_until = None;
        if reply.is_introduction {
            return;
        }
        let rtt = now.since(sent);
        self.rtt = Some(rtt);
        self.answers += 1;
        let signal = match reply.times_ns {
            Some((there, back)) => {
                self.is_one_way = true;
                // The clocks have an unknown offset: only changes of these delays count.
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

    /// Adds samples for probes that are lost, and for the oldest one that is still waiting.
    fn overdue(&mut self, reflector: u16, now: Instant, samples: &mut Vec<Sample>) {
        while let Some((_, sent)) = self.outstanding.front()
            && now.since(*sent) >= PROBE_TIMEOUT
        {
            self.outstanding.pop_front();
            self.lost += 1;
            if self.answers > 0 || self.session.expects_replies() {
                self.lost_in_a_row += 1;
            }
            if self.lost_in_a_row >= MAX_LOST_IN_A_ROW {
                self.paused_until = Some(now + PAUSE);
                self.lost_in_a_row = MAX_LOST_IN_A_ROW - 1;
                self.session.reset();
            }
            let signal = Signal::Lost { reflector };
            samples.push(Sample { at: now, signal });
        }
        // The silence of a reflector that has never answered is no signal.
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

    /// Starts a server of `sqm serve` on this machine, with its own key for tokens. It runs until the tests end.
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

    /// Sends probes until each reflector has answered three more of them. Returns the samples.
    fn probe_three_times(prober: &mut Prober) -> Vec<Sample> {
        let mut samples = Vec::new();
        let until: Vec<u64> = prober.targets.iter().map(|target| target.answers + 3).collect();
        for _ in 0..1000 {
            prober.send(monotonic());
            if prober.wait(Nanos::from_millis(20)) {
                prober.receive(&mut samples);
            }
            prober.overdue(monotonic(), &mut samples);
            let mut each = prober.targets.iter().zip(&until);
            if each.all(|(target, until)| target.answers >= *until) {
                return samples;
            }
        }
        panic!("no replies: {:?}", prober.reflectors());
    }

    #[test]
    fn sqm_serve_shows_one_way_delays() {
        let [v4, v6] = ["127.0.0.1:0", "[::1]:0"].map(serve);
        let mut prober = prober(&[
            format!("sqm://{v4}"),
            format!("sqm://{v6}"),
            format!("sqm://{v4}"),
        ]);
        assert_eq!(prober.targets.len(), 2);
        let mut known = 0;
        for sample in probe_three_times(&mut prober) {
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
            // The sum of both delays is the round trip less the server's processing time, whatever its clock shows.
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
    fn reflectors_without_one_way_delays_take_turns_for_one_probe_in_eight() {
        let sockets = [(); 6].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
        let mut prober = prober(&addresses.map(|address| format!("sqm://{address}")));
        for target in prober.targets.iter_mut().take(3) {
            target.is_one_way = true;
        }
        // A reflector that does not answer is sent an introduction a second.
        let begin = monotonic();
        for n in 0..48 {
            prober.send(begin + Nanos::from_millis(n * 1000));
        }
        let sent: Vec<usize> = prober
            .targets
            .iter()
            .map(|target| target.outstanding.len())
            .collect();
        assert_eq!(sent, [14, 14, 14, 2, 2, 2]);
    }

    #[test]
    fn a_kind_is_named_if_most_reflectors_that_answer_are_bypassing() {
        let mut prober = prober(
            &[
                "192.0.2.1",
                "192.0.2.2",
                "192.0.2.3",
                "sqm://192.0.2.4",
                "192.0.2.5",
            ]
            .map(str::to_owned),
        );
        let now = monotonic();
        let kinds =
            |prober: &Prober, bypassing: &[u16]| prober.kinds_of(bypassing.iter().copied(), now).join(" ");
        assert_eq!(kinds(&prober, &[0, 1, 2, 3]), "", "none has answered");
        prober
            .targets
            .iter_mut()
            .take(4)
            .for_each(|target| target.answers = 1);
        assert_eq!(kinds(&prober, &[0]), "");
        assert_eq!(kinds(&prober, &[0, 2]), "icmp");
        assert_eq!(kinds(&prober, &[3]), "udp");
        assert_eq!(kinds(&prober, &[0, 1, 2, 3]), "icmp udp");
        prober.targets[1].paused_until = Some(now + PAUSE);
        prober.targets[2].paused_until = Some(now + PAUSE);
        assert_eq!(kinds(&prober, &[0]), "icmp");
    }

    #[test]
    fn a_server_that_restarts_is_probed_on() {
        // Two servers with different keys stand for one server before and after its restart; a proxy leads to one of them.
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
                    true => client.expect("a client has sent a probe"),
                    false => {
                        client = Some(from);
                        server
                    }
                };
                proxy.send_to(&buffer[..length], to).unwrap();
            }
        });
        let mut prober = prober(&[format!("sqm://{address}")]);
        probe_three_times(&mut prober);
        switch.send(()).unwrap();
        probe_three_times(&mut prober);
        assert_eq!(prober.reflectors()[0].lost, 0);
    }
}
