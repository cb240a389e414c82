//! Asks `sqm serve` or `irtt server` for the time by UDP, outside a test. Pure.
//!
//! Both protocols begin with a handshake: the server issues a token, and a client that sends it back has proved its address. If
//! the handshake is lost, or if the server forgets the token, the client repeats it.

use crate::irtt;
use crate::protocol::{Echo, Probe, Token};

/// Larger times of a server's clock are refused, in nanoseconds: 36 years. Differences of differences of accepted times cannot
/// overflow.
const LONGEST_NS: i64 = 1 << 60;

/// The protocol of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `sqm serve`.
    Sqm,
    /// `irtt server`.
    Irtt,
}

/// The meaning of a message from the reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The handshake is done.
    Introduced {
        /// The number of the message that it answers, if the protocol has it.
        number: Option<u32>,
    },
    /// The answer to a probe.
    Echo {
        /// The number that was given to [`Conversation::ask`].
        number: u32,
        /// When the probe arrived and when the answer left, by the reflector's clock, if the answer has both.
        times_ns: Option<(i64, i64)>,
    },
}

/// The exchange with one reflector.
#[derive(Clone, Debug)]
pub struct Conversation(State);

#[derive(Clone, Copy, Debug)]
enum State {
    Sqm(Option<Token>),
    Irtt(Option<Connection>),
}

/// A connection that an `irtt server` has opened.
#[derive(Clone, Copy, Debug)]
struct Connection {
    token: u64,
    /// Answers have the times of arrival and departure.
    stamps_both: bool,
}

impl Conversation {
    /// An exchange that begins with the handshake.
    pub const fn new(protocol: Protocol) -> Self {
        Self(match protocol {
            Protocol::Sqm => State::Sqm(None),
            Protocol::Irtt => State::Irtt(None),
        })
    }

    /// True if the next message asks for the time. Otherwise it is the handshake.
    pub const fn is_introduced(&self) -> bool {
        matches!(self.0, State::Sqm(Some(_)) | State::Irtt(Some(_)))
    }

    /// Begins again with the handshake: the reflector has forgotten the token, or is another one.
    pub const fn forget(&mut self) {
        self.0 = match self.0 {
            State::Sqm(_) => State::Sqm(None),
            State::Irtt(_) => State::Irtt(None),
        };
    }

    /// The next message to send. `number` comes back with the answer.
    pub fn ask(&self, number: u32) -> Vec<u8> {
        match self.0 {
            State::Irtt(Some(connection)) => irtt::probe(connection.token, number).to_vec(),
            State::Irtt(None) => irtt::open(),
            State::Sqm(token) => {
                let probe = Probe {
                    token: token.unwrap_or(Probe::NO_TOKEN),
                    series: Probe::NO_TEST,
                    tos: 0,
                    sequence: number,
                    echo: Echo::default(),
                };
                probe.encode().to_vec()
            }
        }
    }

    /// The meaning of a message from the reflector. `None` if it is not valid. Never panics.
    pub fn hear(&mut self, bytes: &[u8]) -> Option<Answer> {
        match self.0 {
            State::Sqm(_) => self.hear_sqm(Probe::decode(bytes)?),
            State::Irtt(connection) => self.hear_irtt(irtt::parse(bytes)?, connection),
        }
    }

    fn hear_sqm(&mut self, answer: Probe) -> Option<Answer> {
        if answer.series != Probe::NO_TEST || answer.token == Probe::NO_TOKEN {
            return None;
        }
        // Each answer has the token to use from now on.
        self.0 = State::Sqm(Some(answer.token));
        let Echo {
            arrived_ns,
            held_ns,
            window,
            ..
        } = answer.echo;
        if window == 0 {
            let number = Some(answer.sequence);
            return Some(Answer::Introduced { number });
        }
        let arrived = i64::try_from(arrived_ns).ok()?;
        let left = arrived.checked_add(i64::from(held_ns))?;
        Some(Answer::Echo {
            number: answer.sequence,
            times_ns: Some(plausible(arrived, left)?),
        })
    }

    fn hear_irtt(&mut self, reply: irtt::Reply, connection: Option<Connection>) -> Option<Answer> {
        match (reply, connection) {
            (irtt::Reply::Opened { token, stamps_both }, None) => {
                self.0 = State::Irtt(Some(Connection { token, stamps_both }));
                Some(Answer::Introduced { number: None })
            }
            (
                irtt::Reply::Echo {
                    token,
                    sequence,
                    received_ns,
                    sent_ns,
                    is_last,
                },
                Some(connection),
            ) if token == connection.token => {
                if is_last {
                    self.forget();
                }
                let times_ns = match connection.stamps_both {
                    true => Some(plausible(received_ns, sent_ns)?),
                    false => None,
                };
                Some(Answer::Echo {
                    number: sequence,
                    times_ns,
                })
            }
            _ => None,
        }
    }
}

/// The two times, if they are plausible: not negative, in order, and within [`LONGEST_NS`].
fn plausible(arrived_ns: i64, left_ns: i64) -> Option<(i64, i64)> {
    (0 <= arrived_ns && arrived_ns <= left_ns && left_ns <= LONGEST_NS).then_some((arrived_ns, left_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The answer of an `sqm serve` to a message.
    fn answered(bytes: &[u8], token: [u8; 16], window: u64) -> Vec<u8> {
        let probe = Probe::decode(bytes).unwrap();
        let echo = Echo {
            arrived_ns: 5_000,
            held_ns: 20,
            window,
            ..Echo::default()
        };
        let token = Token(token);
        Probe { token, echo, ..probe }.encode().to_vec()
    }

    #[test]
    fn a_client_first_receives_a_token_and_then_the_time() {
        let mut talk = Conversation::new(Protocol::Sqm);
        let first = talk.ask(1);
        assert_eq!(
            talk.hear(&answered(&first, [7; 16], 0)),
            Some(Answer::Introduced { number: Some(1) })
        );
        let second = talk.ask(2);
        assert_eq!(Probe::decode(&second).unwrap().token, Token([7; 16]));
        let expected = Answer::Echo {
            number: 2,
            times_ns: Some((5_000, 5_020)),
        };
        assert_eq!(talk.hear(&answered(&second, [8; 16], 1)), Some(expected));
        assert_eq!(
            Probe::decode(&talk.ask(3)).unwrap().token,
            Token([8; 16]),
            "tokens are renewed"
        );
        for made_up in [u64::MAX, 1 << 62] {
            let mut probe = Probe::decode(&answered(&talk.ask(3), [9; 16], 1)).unwrap();
            probe.echo.arrived_ns = made_up;
            assert_eq!(talk.hear(&probe.encode()), None);
        }
        talk.forget();
        assert_eq!(Probe::decode(&talk.ask(4)).unwrap().token, Probe::NO_TOKEN);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(messages in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..70), 1..4), is_irtt: bool) {
            let mut talk = Conversation::new(if is_irtt { Protocol::Irtt } else { Protocol::Sqm });
            for message in messages {
                let _ = talk.hear(&message);
                let _ = talk.ask(1);
            }
        }
    }
}
