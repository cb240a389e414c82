//! What is said to one reflector, and what its answers mean.

use std::net::{IpAddr, SocketAddr};

use sqm_core::units::{Instant, Nanos};
use sqm_measure::icmp::{IcmpEcho, IcmpTimestamp};
use sqm_measure::reflect::{Answer, Conversation, Protocol};
use sqm_measure::{irtt, protocol};
use sqm_plan::settings::{Reflector, ReflectorProtocol};

use super::sockets::Kind;

/// So many timestamps without an answer, and echoes are sent.
const TRIES: u32 = 3;
/// An introduction without an answer is made again after this, at the earliest.
const INTRODUCE: Nanos = Nanos::from_millis(1000);
/// `irtt server` forgets whom it has not heard for a minute; to `sqm serve` it is but one more message.
const FORGOTTEN: Nanos = Nanos::from_millis(50_000);

/// Marks our messages of ICMP: the identifier of timestamps, the beginning of an echo's payload.
pub(super) type Cookie = [u8; 8];

/// What an answer means.
pub(super) struct Heard {
    /// Which probe it answers; of timestamps the lower half of its number.
    pub(super) number: Number,
    /// When the probe arrived and when the answer left, in nanoseconds by the other's clock.
    pub(super) times_ns: Option<(i64, i64)>,
    /// Of an introduction its delay means nothing: the other makes itself ready.
    pub(super) is_introduction: bool,
}

pub(super) enum Number {
    Whole(u32),
    Lower(u16),
}

impl Number {
    pub(super) const fn is(&self, number: u32) -> bool {
        match *self {
            Self::Whole(whole) => whole == number,
            Self::Lower(lower) => lower == number as u16,
        }
    }
}

pub(super) enum Speech {
    Icmp {
        address: IpAddr,
        cookie: Cookie,
        /// Messages that were sent. The first of them are timestamps, and the others, too, if it answers those.
        tries: u32,
        answers_timestamps: bool,
    },
    Udp {
        address: SocketAddr,
        conversation: Conversation,
        /// The last introduction.
        introduction: Option<(u32, Instant)>,
        said_at: Option<Instant>,
    },
}

impl Speech {
    pub(super) fn new(reflector: Reflector, cookie: Cookie) -> Self {
        let udp = |protocol, port| Self::Udp {
            address: SocketAddr::new(reflector.address, port),
            conversation: Conversation::new(protocol),
            introduction: None,
            said_at: None,
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

    /// Where it is said; ICMP knows no port.
    pub(super) const fn to(&self) -> SocketAddr {
        match self {
            Self::Icmp { address, .. } => SocketAddr::new(*address, 0),
            Self::Udp { address, .. } => *address,
        }
    }

    /// Whether an answer from there is of this one.
    pub(super) fn is_from(&self, kind: Kind, from: SocketAddr) -> bool {
        let to = self.to();
        self.kind() == kind && to.ip() == from.ip() && (kind == Kind::Icmp || to.port() == from.port())
    }

    /// The message with this number; none while it is too early for one.
    pub(super) fn say(&mut self, number: u32, now: Instant) -> Option<Vec<u8>> {
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
                said_at,
                ..
            } => {
                if said_at.is_some_and(|at| now.since(at) >= FORGOTTEN) {
                    conversation.forget();
                }
                let is_early = introduction.is_some_and(|(_, at)| now.since(at) < INTRODUCE);
                (conversation.is_introduced() || !is_early).then(|| conversation.ask(number))
            }
        }
    }

    /// It is on its way.
    pub(super) const fn was_said(&mut self, number: u32, now: Instant) {
        match self {
            Self::Icmp { tries, .. } => *tries = tries.saturating_add(1),
            Self::Udp {
                conversation,
                introduction,
                said_at,
                ..
            } => {
                if !conversation.is_introduced() {
                    *introduction = Some((number, now));
                }
                *said_at = Some(now);
            }
        }
    }

    /// What it answered; none if that is no answer to us.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Option<Heard> {
        match self {
            Self::Icmp {
                address,
                cookie,
                answers_timestamps,
                ..
            } => {
                let heard = hear_icmp(bytes, address.is_ipv6(), *cookie)?;
                *answers_timestamps |= heard.times_ns.is_some();
                Some(heard)
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
                let number = Number::Whole(number);
                Some(Heard {
                    number,
                    times_ns,
                    is_introduction,
                })
            }
        }
    }

    /// It does not answer any more.
    pub(super) const fn forget(&mut self) {
        if let Self::Udp { conversation, .. } = self {
            conversation.forget();
        }
    }

    /// Whether silence means anything, or only that it knows no timestamps.
    pub(super) const fn is_understood(&self) -> bool {
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
            } => address.is_ipv4() && (*answers_timestamps || *tries < TRIES),
            Self::Udp { .. } => false,
        }
    }
}

fn hear_icmp(bytes: &[u8], v6: bool, cookie: Cookie) -> Option<Heard> {
    let echo = IcmpEcho::parse_reply(bytes, v6).filter(|echo| echo.cookie == cookie);
    let timestamp = (!v6).then(|| IcmpTimestamp::parse_reply(bytes)).flatten();
    let timestamp = timestamp.filter(|timestamp| timestamp.identifier == identifier(cookie));
    let (number, times_ns) = match (echo, timestamp) {
        (Some(echo), _) => (Number::Whole(echo.number), None),
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
            (Number::Lower(sequence), Some((there, back)))
        }
        _ => return None,
    };
    Some(Heard {
        number,
        times_ns,
        is_introduction: false,
    })
}

fn identifier(cookie: Cookie) -> u16 {
    u16::from_be_bytes([cookie[6], cookie[7]])
}
