//! Round trips of the user's own TCP connections between the device and their far ends, from the time stamps (RFC 7323) of
//! packets that pass: a stamp that leaves comes back as an echo. Pure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use sqm_core::autorate::{Sample, Signal};
use sqm_core::frame::{Frame, LinkType};
use sqm_core::packet::{Addresses, Packet, Tuple};
use sqm_core::units::{Instant, Nanos};

use super::tap::Way;

/// How TCP options begin in nearly all segments of a connection with time stamps: two of padding, then kind 8, length 10
/// (RFC 7323 appendix A).
pub(super) const USUAL_OPTIONS: u32 = 0x0101_080a;

/// So many connections are followed: those that were there first.
const MOST_FLOWS: usize = 8;
/// So many stamps without an echo are remembered, and so long.
const MOST_STAMPS: usize = 1024;
const FORGET: Nanos = Nanos::from_millis(5000);
/// Of each connection at most ten samples a second.
const BETWEEN: Nanos = Nanos::from_millis(100);
/// After a pause the other end has had nothing to send, and its echo is as old as the pause.
const PAUSE: Nanos = Nanos::from_millis(1000);

/// What one segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamps {
    /// The same in both directions.
    flow: u64,
    value: u32,
    echo: u32,
}

impl Stamps {
    /// Of a packet from its IP header on; nothing is changed in it.
    pub(super) fn of(bytes: &mut [u8], way: Way) -> Option<Self> {
        let length = bytes.len() as u32;
        let frame = Frame::new(LinkType::Raw, bytes, length);
        let tcp = frame.tcp().filter(|tcp| !tcp.later_fragment)?;
        let [begin, value, echo] = [0, 4, 8].map(|at| {
            let word = tcp.options.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_be_bytes(*word))
        });
        (begin? == USUAL_OPTIONS).then_some(Self {
            flow: flow(tcp.tuple, way),
            value: value?,
            echo: echo?,
        })
    }
}

/// The same number for both directions of a connection.
fn flow(tuple: Tuple, way: Way) -> u64 {
    let mut ends = match tuple.addresses {
        Addresses::V4 { source, destination } => [source.to_ipv6_mapped(), destination.to_ipv6_mapped()],
        Addresses::V6 { source, destination } => [source, destination],
        Addresses::None => return 0,
    };
    let mut ports = [tuple.source_port, tuple.destination_port];
    if way == Way::Arriving {
        ends.reverse();
        ports.reverse();
    }
    let mut hasher = DefaultHasher::new();
    (ends, ports).hash(&mut hasher);
    hasher.finish()
}

/// The connections that are followed.
#[derive(Default)]
pub(super) struct Flows {
    /// When each stamp left for the first time.
    sent: HashMap<(u64, u32), Instant>,
    flows: HashMap<u64, Flow>,
}

struct Flow {
    matched_at: Instant,
    told_at: Option<Instant>,
}

impl Flows {
    /// A segment has left.
    pub(super) fn leaves(&mut self, at: Instant, stamps: Stamps) {
        if self.sent.len() >= MOST_STAMPS {
            self.sent.retain(|_, sent| at.since(*sent) < FORGET);
        }
        if self.sent.len() < MOST_STAMPS {
            self.sent.entry((stamps.flow, stamps.value)).or_insert(at);
        }
    }

    /// A segment has arrived: the first echo of a stamp ends a round trip.
    pub(super) fn arrives(&mut self, at: Instant, stamps: Stamps, samples: &mut Vec<Sample>) {
        let Some(sent) = self.sent.remove(&(stamps.flow, stamps.echo)) else {
            return;
        };
        let rtt = at.since(sent);
        self.flows.retain(|_, flow| at.since(flow.matched_at) < FORGET);
        if rtt >= FORGET || self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&stamps.flow) {
            return;
        }
        let is_new = Flow {
            // So that its first round trip is not told: it may have begun with a pause.
            matched_at: Instant(0),
            told_at: None,
        };
        let flow = self.flows.entry(stamps.flow).or_insert(is_new);
        let after_a_pause = at.since(flow.matched_at) > PAUSE;
        flow.matched_at = at;
        if after_a_pause || flow.told_at.is_some_and(|told| at.since(told) < BETWEEN) {
            return;
        }
        flow.told_at = Some(at);
        let flow = stamps.flow;
        let signal = Signal::TcpRtt { flow, rtt };
        samples.push(Sample { at, signal });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn stamps(flow: u64, value: u32, echo: u32) -> Stamps {
        Stamps { flow, value, echo }
    }

    /// An IPv4 segment from port 1000 to 2000 or back, with these stamps.
    fn segment(back: bool, value: u32, echo: u32) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 52, 0, 0, 0, 0, 64, 6, 0, 0];
        let mut ends = [([10, 0, 0, 1], 1000_u16), ([192, 0, 2, 7], 2000)];
        if back {
            ends.reverse();
        }
        ends.iter().for_each(|(address, _)| bytes.extend(address));
        ends.iter().for_each(|(_, port)| bytes.extend(port.to_be_bytes()));
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x80, 0x10, 0, 0, 0, 0, 0, 0]);
        bytes.extend(USUAL_OPTIONS.to_be_bytes());
        bytes.extend(value.to_be_bytes());
        bytes.extend(echo.to_be_bytes());
        bytes
    }

    #[test]
    fn both_directions_are_one_flow() {
        let there = Stamps::of(&mut segment(false, 7, 8), Way::Leaving).expect("stamps");
        let back = Stamps::of(&mut segment(true, 9, 7), Way::Arriving).expect("stamps");
        assert_eq!(there.flow, back.flow);
        assert_eq!((there.value, back.echo), (7, 7));
        assert_ne!(
            there.flow,
            Stamps::of(&mut segment(true, 7, 8), Way::Leaving)
                .expect("stamps")
                .flow
        );
        let mut bytes = segment(false, 7, 8);
        for length in 0..bytes.len() {
            assert_eq!(Stamps::of(&mut bytes[..length], Way::Leaving), None);
        }
    }

    #[test]
    fn a_round_trip_ends_with_the_first_echo() {
        let (mut flows, mut samples) = (Flows::default(), Vec::new());
        for n in 0..20_u32 {
            let at = Instant(1000 * MS + u64::from(n) * 50 * MS);
            flows.leaves(at, stamps(1, n, 0));
            flows.leaves(at + Nanos(MS), stamps(1, n, 0));
            flows.arrives(at + Nanos(30 * MS), stamps(1, 0, n), &mut samples);
            flows.arrives(at + Nanos(45 * MS), stamps(1, 0, n), &mut samples);
        }
        // The first is not told, and of the rest every second: ten a second.
        assert_eq!(samples.len(), 10);
        for sample in samples {
            let rtt = Nanos(30 * MS);
            assert_eq!(sample.signal, Signal::TcpRtt { flow: 1, rtt });
        }
    }

    #[test]
    fn an_echo_after_a_pause_tells_nothing() {
        let (mut flows, mut samples) = (Flows::default(), Vec::new());
        for (n, left, came) in [(1, 0, 30), (2, 100, 130), (3, 200, 2000), (4, 2010, 2040)] {
            let at = |ms: u64| Instant(1000 * MS + ms * MS);
            flows.leaves(at(left), stamps(1, n, 0));
            flows.arrives(at(came), stamps(1, 0, n), &mut samples);
        }
        let told: Vec<_> = samples.iter().map(|sample| sample.at.0 / MS - 1000).collect();
        assert_eq!(told, [130, 2040]);
    }

    #[test]
    fn what_never_comes_back_is_forgotten() {
        let (mut flows, mut samples) = (Flows::default(), Vec::new());
        for n in 0..10 * MOST_STAMPS as u32 {
            flows.leaves(Instant(u64::from(n) * MS), stamps(u64::from(n), n, 0));
        }
        assert!(flows.sent.len() <= MOST_STAMPS);
        for n in 0..100 {
            let at = Instant(20_000 * MS + n * MS);
            flows.leaves(at, stamps(n, 1, 0));
            flows.arrives(at + Nanos(MS), stamps(n, 0, 1), &mut samples);
        }
        assert!(flows.flows.len() <= MOST_FLOWS);
    }
}
