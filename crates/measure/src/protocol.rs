//! What client and server say to each other.
//!
//! One TCP port and the UDP port of the same number. A TCP connection is either the one *control* connection of a
//! test, or one *data* connection, as its first frame says. A frame is its length as four bytes, most significant
//! first, and that many bytes of JSON. The server's replies may be large (the samples of every flow), the client's may not.
//!
//! ```text
//! client                               server
//! control: Hello::Control           →
//!                                   ←  Welcome (token)
//! UDP: probe with the token         ⇄  echo                   from here to the end
//! data:    Hello::Data              →                          one connection per flow
//!                                   ←  Attached (congestion control in use)
//! control: Start                    →
//! data:    bytes                    ⇄  bytes                   for the time agreed
//!                                   ←  Progress                every second
//!                                   ←  Results (bytes received, per flow)
//! control: closes
//! ```
//!
//! The token is sixteen random bytes: who knows it, and has the address that the control connection came from, takes part in the
//! test. A probe's echo is never larger than the probe and goes only to such an address, so the server is of no use
//! for amplifying a forged flood.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::result::{Direction, Sample};

/// The port, TCP and UDP, unless another is named.
pub const DEFAULT_PORT: u16 = 35353;
/// Changes whenever an old peer would misunderstand a new one.
pub const VERSION: u32 = 1;
/// The largest frame that a server reads, in bytes.
pub const MAX_REQUEST: usize = 4096;
/// The largest frame that a client reads, in bytes: [`MAX_FLOWS`] flows of [`MAX_LOAD_MS`] in samples of 100 ms.
pub const MAX_REPLY: usize = 16 << 20;
/// Flows in one direction of a test.
pub const MAX_FLOWS: u32 = 64;
/// The longest load, in milliseconds, that any server grants: one hour.
pub const MAX_LOAD_MS: u64 = 3_600_000;
/// The longest idle phase in milliseconds.
pub const MAX_IDLE_MS: u64 = 60_000;

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "hello", rename_all = "snake_case")]
pub enum Hello {
    /// Opens a test.
    Control {
        /// [`VERSION`] of the client.
        version: u32,
        /// Flows from server to client.
        down: u32,
        /// Flows from client to server.
        up: u32,
        /// Length of the load in milliseconds.
        load_ms: u64,
        /// Congestion control for the server's sending sockets; none keeps the system's own.
        congestion: Option<String>,
    },
    /// Adds one flow to a test.
    Data {
        /// From [`Welcome`](Reply::Welcome).
        token: Token,
        /// Which way the bytes go.
        direction: Direction,
        /// Which of the flows of this direction, from zero.
        flow: u32,
        /// DSCP for the packets that the server sends on this connection, 0 to 63.
        dscp: u8,
    },
}

/// What a client says on the control connection after [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The load begins now.
    Start,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The test may go on.
    Welcome {
        /// [`VERSION`] of the server.
        version: u32,
        /// Names this test.
        token: Token,
        /// Version of the server program.
        program: String,
        /// The server's kernel release.
        kernel: String,
    },
    /// A flow is in place.
    Attached {
        /// The congestion control of the server's socket, as the kernel reports it.
        congestion: String,
    },
    /// The load runs.
    Progress {
        /// Since the beginning of the load, on the server's clock.
        elapsed_ms: u64,
        /// Bytes received from the client until then, all flows together.
        received: u64,
    },
    /// The load is over.
    Results {
        /// What arrived at the server, one list per upload flow in their order.
        uploads: Vec<Vec<Sample>>,
    },
    /// The server will not go on, and why.
    Error {
        /// For the user to read.
        reason: String,
    },
}

/// Sixteen random bytes, in hexadecimal on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(pub [u8; 16]);

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Token {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.as_bytes();
        let mut token = [0; 16];
        if digits.len() != 2 * token.len() {
            return Err("a token has 32 hexadecimal digits");
        }
        for (byte, pair) in token.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| {
                (d as char)
                    .to_digit(16)
                    .ok_or("a token has hexadecimal digits only")
            };
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Self(token))
    }
}

/// Bytes that are no frame of ours.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than the reader accepts.
    #[error("a frame of {length} bytes where at most {limit} are allowed")]
    TooLong {
        /// Bytes announced.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Not the message expected here.
    #[error("not a message of sqm's: {0}")]
    Malformed(String),
}

/// One message as a frame.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let body =
        serde_json::to_vec(message).expect("messages have no keys but strings and no failing serializers");
    let length = u32::try_from(body.len()).expect("flows and samples are bounded far below 4 GB");
    [length.to_be_bytes().as_slice(), &body].concat()
}

/// The message at the head of `buffer` and the bytes that it occupies; none while it is incomplete.
///
/// Never panics, whatever the bytes; announces an oversized frame as soon as its length is there.
pub fn decode<M: DeserializeOwned>(buffer: &[u8], limit: usize) -> Result<Option<(M, usize)>, FrameError> {
    let Some((head, rest)) = buffer.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*head) as usize;
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let message = serde_json::from_slice(body).map_err(|e| FrameError::Malformed(e.to_string()))?;
    Ok(Some((message, head.len() + length)))
}

/// A probe on its way there or back: [`Probe::LENGTH`] bytes of UDP payload, as `ping` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The test.
    pub token: Token,
    /// Counts up from zero.
    pub sequence: u64,
    /// The client's clock when it was sent, in nanoseconds from an origin of the client's own.
    pub sent_ns: u64,
    /// The server's clock when it was there, in nanoseconds from an origin of the server's own; zero on the way there.
    pub server_ns: u64,
}

impl Probe {
    /// Bytes of UDP payload: that of `ping`, 56.
    pub const LENGTH: usize = 56;
    const MAGIC: [u8; 4] = *b"sqm1";

    /// The datagram, padded with zeros.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..20].copy_from_slice(&self.token.0);
        bytes[20..28].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes[36..44].copy_from_slice(&self.server_ns.to_be_bytes());
        bytes
    }

    /// A datagram of exactly the right length and magic; never panics.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().map(|n| u64::from_be_bytes(*n));
        (bytes[..4] == Self::MAGIC).then_some(())?;
        Some(Self {
            token: Token(*bytes[4..].first_chunk()?),
            sequence: number(20)?,
            sent_ns: number(28)?,
            server_ns: number(36)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_come_back_whole_and_only_when_whole() {
        let hello = Hello::Data {
            token: Token([0xa5; 16]),
            direction: Direction::Up,
            flow: 3,
            dscp: 46,
        };
        let frame = encode(&hello);
        for cut in 0..frame.len() {
            assert_eq!(decode::<Hello>(&frame[..cut], MAX_REQUEST), Ok(None));
        }
        let two = [frame.clone(), frame.clone()].concat();
        assert_eq!(decode(&two, MAX_REQUEST), Ok(Some((hello, frame.len()))));
    }

    #[test]
    fn an_oversized_frame_is_refused_by_its_length_alone() {
        let head = (MAX_REQUEST as u32 + 1).to_be_bytes();
        assert!(matches!(
            decode::<Hello>(&head, MAX_REQUEST),
            Err(FrameError::TooLong { length: 4097, .. })
        ));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Hello>(&bytes, MAX_REQUEST);
            let _ = decode::<Reply>(&bytes, MAX_REPLY);
            let _ = Probe::decode(&bytes);
        }

        #[test]
        fn random_json_in_a_good_frame_never_panics(body in "[\\[\\]{}\":,0-9a-z_ ]{0,80}") {
            let frame = [(body.len() as u32).to_be_bytes().as_slice(), body.as_bytes()].concat();
            let _ = decode::<Hello>(&frame, MAX_REQUEST);
            let _ = decode::<Request>(&frame, MAX_REQUEST);
        }

        #[test]
        fn probes_come_back(token: [u8; 16], sequence: u64, sent_ns: u64, server_ns: u64) {
            let probe = Probe { token: Token(token), sequence, sent_ns, server_ns };
            prop_assert_eq!(Probe::decode(&probe.encode()), Some(probe));
        }

        #[test]
        fn tokens_come_back(token: [u8; 16]) {
            let text = String::from(Token(token));
            prop_assert_eq!(Token::try_from(text), Ok(Token(token)));
        }
    }
}
