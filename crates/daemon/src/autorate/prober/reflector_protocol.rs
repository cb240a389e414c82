//! The session with one reflector: builds probes, and parses replies.

use std::net::{IpAddr, SocketAddr};

use sqm_core::units::{Instant, Nanos};
use sqm_measure::icmp::{IcmpEcho, IcmpTimestamp};
use sqm_measure::reflect::{Answer, Conversation, Protocol};
use sqm_measure::{irtt, protocol};
use sqm_plan::settings::{Reflector, ReflectorProtocol};

use super::sockets::Kind;

/// The number of ICMP timestamp requests after which echo requests are sent, if none was answered; a choice.
const TIMESTAMP_TRIES: u32 = 3;
/// The shortest time between two introductions without a reply; a choice.
const INTRODUCTION_INTERVAL: Nanos = Nanos::from_millis(1000);
/// After a silence of this length the client introduces itself again. `irtt server` forgets a client after a minute; for
/// `sqm serve` an introduction costs one more message.
const SESSION_TIMEOUT: Nanos = Nanos::from_millis(50_000);

/// Identifies our own ICMP messages: its end is the identifier of timestamp requests, and all of it begins the payload of echo
/// requests.
pub(super) type Cookie = [u8; 8];

/// A reflector's reply.
pub(super) struct Reply {
    /// The probe that it answers.
    pub(super) probe: ProbeId,
    /// When the probe arrived and when the reply left, nanoseconds on the reflector's clock.
    pub(super) times_ns: Option<(i64, i64)>,
    /// The reply to an introduction. Its delay is not measured: it includes the work of the reflector to set up a session.
    pub(super) is_introduction: bool,
}

/// The number of a probe in a reply.
pub(super) enum ProbeId {
    Full(u32),
    /// The lower 16 bits: ICMP timestamps carry no more.
    Lower(u16),
}

impl ProbeId {
    /// `true` if this is the probe `number`.
    pub(super) const fn matches(&self, number: u32) -> bool {
        match *self {
            Self::Full(full) => full == number,
            Self::Lower(lower) => lower == number as u16,
        }
    }
}

/// The protocol state of one reflector.
pub(super) enum ReflectorSession {
    Icmp {
        address: IpAddr,
        cookie: Cookie,
        /// The number of requests sent so far. The first ones are timestamp requests, and so are all others if the reflector answers
        /// them.
        tries: u32,
        answers_timestamps: bool,
    },
    Udp {
        address: SocketAddr,
        conversation: Conversation,
        /// The last introduction: its probe number and its time.
        introduction: Option<(u32, Instant)>,
        /// When the last probe was sent.
        sent_at: Option<Instant>,
    },
}

impl ReflectorSession {
    pub(super) fn new(reflector: Reflector, cookie: Cookie) -> Self {
        let udp = |protocol, port| Self::Udp {
            address: SocketAddr::new(reflector.address, port),
            conversation: Conversation::new(protocol),
            introduction: None,
            sent_at: None,
        };
        match reflector.protocol {
            ReflectorProtocol::Icmp => Self::Icmp {
                address: reflector.address,
                cookie,
                tries: 0,
                answers_timestamps: false,
            },
            ReflectorProtocol::Sqm(port) => udp(Protocol::Sqm, port.unwrap_or(protocol::DEFAULT_PORT)),
            ReflectorProtocol::Irtt(port) => udp(Protocol::Irtt, port.unwrap_or(irtt::DEFAULT_PORT)),
        }
    }

    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Icmp { .. } => Kind::Icmp,
            Self::Udp { .. } => Kind::Udp,
        }
    }

    /// The reflector's address; the port is 0 for ICMP.
    pub(super) const fn address(&self) -> SocketAddr {
        match self {
            Self::Icmp { address, .. } => SocketAddr::new(*address, 0),
            Self::Udp { address, .. } => *address,
        }
    }

    /// `true` if a message from this sender is from this reflector.
    pub(super) fn is_from(&self, kind: Kind, from: SocketAddr) -> bool {
        let to = self.address();
        self.kind() == kind && to.ip() == from.ip() && (kind == Kind::Icmp || to.port() == from.port())
    }

    /// Builds the probe with this number; `None` if it is too early to send one.
    pub(super) fn build_probe(&mut self, number: u32, now: Instant) -> Option<Vec<u8>> {
        let wants_timestamp = self.wants_timestamp();
        match self {
            Self::Icmp { cookie, .. } if wants_timestamp => {
                Some(IcmpTimestamp::request(identifier(*cookie), number as u16).to_vec())
            }
            Self::Icmp { address, cookie, .. } => {
                let echo = IcmpEcho {
                    sequence: number as u16,
                    cookie: *cookie,
                    number,
                };
                Some(echo.request(address.is_ipv6(), IcmpEcho::USUAL))
            }
            Self::Udp {
                conversation,
                introduction,
                sent_at,
                ..
            } => {
                if sent_at.is_some_and(|at| now.since(at) >= SESSION_TIMEOUT) {
                    conversation.forget();
                }
                let is_early = introduction.is_some_and(|(_, at)| now.since(at) < INTRODUCTION_INTERVAL);
                (conversation.is_introduced() || !is_early).then(|| conversation.ask(number))
            }
        }
    }

    /// Records that the probe has been sent.
    pub(super) const fn on_sent(&mut self, number: u32, now: Instant) {
        match self {
            Self::Icmp { tries, .. } => *tries = tries.saturating_add(1),
            Self::Udp {
                conversation,
                introduction,
                sent_at,
                ..
            } => {
                if !conversation.is_introduced() {
                    *introduction = Some((number, now));
                }
                *sent_at = Some(now);
            }
        }
    }

    /// Parses a message from the reflector; `None` if it is no reply to one of our probes.
    pub(super) fn parse_reply(&mut self, bytes: &[u8]) -> Option<Reply> {
        match self {
            Self::Icmp {
                address,
                cookie,
                answers_timestamps,
                ..
            } => {
                let reply = parse_icmp(bytes, address.is_ipv6(), *cookie)?;
                *answers_timestamps |= reply.times_ns.is_some();
                Some(reply)
            }
            Self::Udp {
                conversation,
                introduction,
                ..
            } => {
                let (number, times_ns, is_introduction) = match conversation.hear(bytes)? {
                    Answer::Echo { number, times_ns } => (number, times_ns, false),
                    Answer::Introduced { number } => {
                        let last = introduction.map(|(number, _)| number);
                        (number.or(last)?, None, true)
                    }
                };
                Some(Reply {
                    probe: ProbeId::Full(number),
                    times_ns,
                    is_introduction,
                })
            }
        }
    }

    /// Starts a new session with the next probe, because the reflector has stopped answering.
    pub(super) const fn reset(&mut self) {
        if let Self::Udp { conversation, .. } = self {
            conversation.forget();
        }
    }

    /// `true` if a missing reply counts as a loss. Until a reflector has answered, it may not support ICMP timestamps.
    pub(super) const fn expects_replies(&self) -> bool {
        match self {
            Self::Icmp {
                answers_timestamps, ..
            } => *answers_timestamps || !self.wants_timestamp(),
            Self::Udp { .. } => true,
        }
    }

    const fn wants_timestamp(&self) -> bool {
        match self {
            Self::Icmp {
                address,
                tries,
                answers_timestamps,
                ..
            } => address.is_ipv4() && (*answers_timestamps || *tries < TIMESTAMP_TRIES),
            Self::Udp { .. } => false,
        }
    }
}

fn parse_icmp(bytes: &[u8], v6: bool, cookie: Cookie) -> Option<Reply> {
    let echo = IcmpEcho::parse_reply(bytes, v6).filter(|echo| echo.cookie == cookie);
    let timestamp = (!v6).then(|| IcmpTimestamp::parse_reply(bytes)).flatten();
    let timestamp = timestamp.filter(|timestamp| timestamp.identifier == identifier(cookie));
    let (probe, times_ns) = match (echo, timestamp) {
        (Some(echo), _) => (ProbeId::Full(echo.number), None),
        (
            _,
            Some(IcmpTimestamp {
                sequence,
                received_ms,
                sent_ms,
                ..
            }),
        ) => {
            let [there, back] = [received_ms, sent_ms].map(|ms| i64::from(ms) * 1_000_000);
            (ProbeId::Lower(sequence), Some((there, back)))
        }
        _ => return None,
    };
    Some(Reply {
        probe,
        times_ns,
        is_introduction: false,
    })
}

fn identifier(cookie: Cookie) -> u16 {
    u16::from_be_bytes([cookie[6], cookie[7]])
}
