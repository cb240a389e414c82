//! What client and server say to each other.
//!
//! One TCP port and the UDP port of the same number. A TCP connection is either the one *control* connection of a
//! test, or one *data* connection, as its first frame says. A frame is its length as four bytes, most significant
//! first, and that many bytes of JSON. The server's replies may be large (the samples of a flow), the client's may not.
//!
//! ```text
//! client                               server
//! control: Hello::Control           →
//!                                   ←  Challenge                if the server has a secret
//! control: Proof                    →
//!                                   ←  Welcome (token)
//! UDP: probe with the token         ⇄  echo                     from here to the end
//! data:    Hello::Data              →                           one connection per flow
//!                                   ←  Attached (what the kernel made of it)
//! control: Start                    →
//! data:    bytes                    ⇄  bytes                    for the time agreed
//!                                   ←  Progress                 every second
//! control: Stop                     →                           only to end before the time
//!                                   ←  Flow                     what the server saw of each flow
//!                                   ←  Done
//! control: closes
//! ```
//!
//! The token is sixteen random bytes: who knows it, and has the address that the control connection came from, takes part in the
//! test. A probe's echo is exactly as large as the probe and goes only to such an address, so the server is of no use
//! for amplifying a forged flood.
//!
//! Outside a test everybody may ask for the time, as often as the server allows to an address:
//!
//! ```text
//! client                               server
//! UDP: probe of no test, stranger   →
//!                                   ←  probe with a token       for this address, within an hour or two; without times
//! UDP: probe of no test, token      ⇄  echo, with a newer token
//! ```

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::foreign::{self, MAX_REASON};
use crate::result::{Direction, Sample, TcpSample, TcpTotals};

/// The port, TCP and UDP, unless another is named.
pub const DEFAULT_PORT: u16 = 35353;
/// Changes whenever an old peer would misunderstand a new one.
pub const VERSION: u32 = 2;
/// The largest frame that a server reads, in bytes.
pub const MAX_REQUEST: usize = 4096;
/// The largest frame that a client reads, in bytes: the samples of one flow.
pub const MAX_REPLY: usize = 4 << 20;
/// Flows in one direction of a test.
pub const MAX_FLOWS: u32 = 64;
/// The longest load, in milliseconds, that any server grants: one hour.
pub const MAX_LOAD_MS: u64 = 3_600_000;
/// The longest idle phase in milliseconds.
pub const MAX_IDLE_MS: u64 = 60_000;
/// Series of UDP probes in one test.
pub const MAX_PROBES: u16 = 16;

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
        /// Congestion control for the server's socket; none keeps the system's own.
        congestion: Option<String>,
    },
}

/// What a client says on the control connection after [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The client knows the secret: [`secret::proof`](crate::secret::proof) of the challenge.
    Proof {
        /// HMAC-SHA-256 in hexadecimal.
        mac: String,
    },
    /// The load begins now.
    Start,
    /// The load ends now; what was seen so far is the result.
    Stop,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Show that you know the secret.
    Challenge {
        /// Never used twice.
        nonce: Token,
    },
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
        /// Probes per second that are answered, all series together.
        max_probes_per_s: u32,
    },
    /// A flow is in place.
    Attached {
        /// The congestion control of the server's socket, as the kernel reports it.
        congestion: String,
        /// DSCP of the connection's first packet as it arrived; none if the server's kernel does not tell.
        dscp_arrived: Option<u8>,
    },
    /// The load runs.
    Progress {
        /// Since the beginning of the load, on the server's clock.
        elapsed_ms: u64,
        /// Bytes received from the client until then, per upload flow.
        received: Vec<u64>,
    },
    /// What the server saw of one flow; one such message for each.
    Flow {
        /// Which way it went.
        direction: Direction,
        /// Which of the flows of this direction, from zero.
        flow: u32,
        /// What it saw.
        seen: Seen,
    },
    /// Every flow has been told about.
    Done {
        /// Share of the time that the server's busiest processor was busy during the load, 0 to 1; none if unknown.
        busiest_cpu: Option<f64>,
    },
    /// The server will not go on, and why.
    Error {
        /// For the user to read.
        reason: String,
    },
}

/// One end's view of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// What arrived, at the receiver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// The kernel's view over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpSample>,
    /// The kernel's account at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TcpTotals>,
    /// Largest segment that this end sends, bytes of payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// Whether both ends agreed on ECN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
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
    let Some(body) = body(buffer, limit)? else {
        return Ok(None);
    };
    let message = serde_json::from_slice(body)
        .map_err(|e| FrameError::Malformed(foreign::brief(&e.to_string(), MAX_REASON)))?;
    Ok(Some((message, size_of::<u32>() + body.len())))
}

/// What the frame at the head of `buffer` holds; none while it is incomplete.
pub(crate) fn body(buffer: &[u8], limit: usize) -> Result<Option<&[u8]>, FrameError> {
    let Some((head, rest)) = buffer.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*head) as usize;
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    Ok(rest.get(..length))
}

/// A probe on its way there or back: at least [`Probe::LENGTH`] bytes of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The test.
    pub token: Token,
    /// Which of the test's series, below [`MAX_PROBES`], or [`NO_TEST`](Self::NO_TEST).
    pub series: u16,
    /// The byte with DSCP and ECN that the echo shall bear.
    pub mark: u8,
    /// Counts up from zero in each series.
    pub sequence: u32,
    /// Filled in by the server.
    pub echo: Echo,
}

/// What the server adds to a probe; all zero on the way there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echo {
    /// The byte with DSCP and ECN with which the probe arrived.
    pub mark_arrived: u8,
    /// When it arrived, by the server's clock, in nanoseconds from an origin of the server's own.
    pub arrived_ns: u64,
    /// How long the server held it, in nanoseconds.
    pub held_ns: u32,
    /// Which probes of the series arrived before: bit n stands for the n-th before this, bit 0 for this one. Of no test only
    /// this one is told, and of a stranger none.
    pub window: u64,
}

impl Probe {
    /// Bytes of UDP payload unless more are wanted: that of `ping`, 56.
    pub const LENGTH: usize = 56;
    /// The most, which fits a packet of 1500 bytes on either protocol.
    pub const MAX_LENGTH: usize = 1452;
    /// The series of a probe that belongs to no test: it asks for the time only.
    pub const NO_TEST: u16 = u16::MAX;
    /// What a client of no test bears until the server has given it a token.
    pub const STRANGER: Token = Token([0; 16]);
    const MAGIC: [u8; 4] = *b"sqm2";

    /// The datagram's head; the rest of a longer one is padding.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..20].copy_from_slice(&self.token.0);
        bytes[20..22].copy_from_slice(&self.series.to_be_bytes());
        bytes[22] = self.mark;
        bytes[23] = self.echo.mark_arrived;
        bytes[24..28].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.echo.arrived_ns.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.echo.held_ns.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.echo.window.to_be_bytes());
        bytes
    }

    /// A datagram of a permitted length with the right magic; never panics.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > Self::MAX_LENGTH {
            return None;
        }
        let bytes: &[u8; Self::LENGTH] = bytes.first_chunk()?;
        (bytes[..4] == Self::MAGIC).then_some(())?;
        let u32_at = |at: usize| bytes[at..].first_chunk().map(|n| u32::from_be_bytes(*n));
        let u64_at = |at: usize| bytes[at..].first_chunk().map(|n| u64::from_be_bytes(*n));
        Some(Self {
            token: Token(*bytes[4..].first_chunk()?),
            series: u16::from_be_bytes([bytes[20], bytes[21]]),
            mark: bytes[22],
            sequence: u32_at(24)?,
            echo: Echo {
                mark_arrived: bytes[23],
                arrived_ns: u64_at(28)?,
                held_ns: u32_at(36)?,
                window: u64_at(40)?,
            },
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
            congestion: Some("cubic".to_owned()),
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
        fn probes_come_back_at_any_length(
            (token, series, mark, sequence) in any::<([u8; 16], u16, u8, u32)>(),
            (mark_arrived, arrived_ns, held_ns, window) in any::<(u8, u64, u32, u64)>(),
            padding in 0..=Probe::MAX_LENGTH - Probe::LENGTH + 1,
        ) {
            let echo = Echo { mark_arrived, arrived_ns, held_ns, window };
            let probe = Probe { token: Token(token), series, mark, sequence, echo };
            let mut datagram = probe.encode().to_vec();
            datagram.resize(Probe::LENGTH + padding, 0);
            let expected = (datagram.len() <= Probe::MAX_LENGTH).then_some(probe);
            prop_assert_eq!(Probe::decode(&datagram), expected);
        }

        #[test]
        fn tokens_come_back(token: [u8; 16]) {
            let text = String::from(Token(token));
            prop_assert_eq!(Token::try_from(text), Ok(Token(token)));
        }
    }
}
