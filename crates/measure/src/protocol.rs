//! The protocol between client and server.
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
//! The token is sixteen random bytes. A client takes part in the test if it knows the token and has the address of the control
//! connection. The answer to a probe is exactly as large as the probe and goes only to such an address, so that no sender can use the
//! server to amplify a flood with forged addresses.
//!
//! Outside a test every client may ask for the time, up to the rate that the server allows for an address:
//!
//! ```text
//! client                               server
//! UDP: probe of no test, no token   →
//!                                   ←  probe with a token       for this address, within an hour or two; without times
//! UDP: probe of no test, token      ⇄  echo, with a newer token
//! ```

mod reply;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqm_core::direction::Direction;

use crate::foreign::{self, MAX_REASON};
use crate::result::direction_word;
use crate::result::{Sample, TcpSample, TcpTotals};

/// The default port, of TCP and of UDP.
pub const DEFAULT_PORT: u16 = 35353;
/// Version of the protocol. It changes when an old peer would misunderstand a new one.
pub const VERSION: u32 = 2;
/// The largest frame that a server reads, in bytes.
pub const MAX_REQUEST: usize = 4096;
/// The largest frame that a client reads, in bytes: the samples of one flow.
pub const MAX_REPLY: usize = 4 << 20;
/// Largest number of flows in one direction of a test.
pub const MAX_FLOWS: u32 = 64;
/// The longest load, in milliseconds, that any server grants: one hour.
pub const MAX_LOAD_MS: u64 = 3_600_000;
/// The longest idle phase in milliseconds.
pub const MAX_IDLE_MS: u64 = 60_000;
/// Largest number of series of UDP probes in one test.
pub const MAX_PROBES: u16 = 16;

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "hello", rename_all = "snake_case")]
pub enum Hello {
    /// Asks for a test.
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
    /// Adds a flow to a test.
    Data {
        /// The token in [`Welcome`](Reply::Welcome).
        token: Token,
        /// Direction of the flow.
        #[serde(with = "direction_word")]
        direction: Direction,
        /// Number of the flow in this direction, from zero.
        flow: u32,
        /// DSCP for the packets that the server sends on this connection, 0 to 63.
        dscp: u8,
        /// Congestion control for the server's socket. `None` keeps the default of the system.
        congestion: Option<String>,
        /// When the flow carries data. `None` for the whole load. Only for a server whose [`Welcome`](Reply::Welcome) says `windows`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<Window>,
    },
}

/// The part of the load in which a flow carries data, in milliseconds since the load began. At its end the sender resets the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its beginning.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
}

/// A message from the client on the control connection after [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Proves that the client knows the secret: [`secret::proof`](crate::secret::proof) of the challenge.
    Proof {
        /// HMAC-SHA-256 in hexadecimal.
        mac: String,
    },
    /// The load begins now.
    Start,
    /// The load ends now, and the server sends what it has measured.
    Stop,
}

/// A message from the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", try_from = "reply::Fields")]
pub enum Reply {
    /// Asks the client to prove that it knows the secret.
    Challenge {
        /// Random bytes that are never used twice.
        nonce: Token,
    },
    /// The server accepts the test.
    Welcome {
        /// [`VERSION`] of the server.
        version: u32,
        /// Identifies the test.
        token: Token,
        /// Version of the server program.
        program: String,
        /// The server's kernel release.
        kernel: String,
        /// Probes per second that the server answers, in all series together.
        max_probes_per_s: u32,
        /// True if the server ends each flow at the end of its [`Window`]. A server of an earlier version says nothing here.
        #[serde(default)]
        windows: bool,
    },
    /// The flow is attached to the test.
    Attached {
        /// The congestion control of the server's socket, as the kernel reports it.
        congestion: String,
        /// DSCP of the first packet of the connection on arrival. `None` if the server's kernel does not report it.
        dscp_arrived: Option<u8>,
    },
    /// Progress of the load.
    Progress {
        /// Time since the beginning of the load, by the server's clock.
        elapsed_ms: u64,
        /// Bytes received until then on each upload flow.
        received: Vec<u64>,
    },
    /// The results of one flow.
    Flow {
        /// Direction of the flow.
        #[serde(with = "direction_word")]
        direction: Direction,
        /// Number of the flow in this direction, from zero.
        flow: u32,
        /// The results.
        seen: Seen,
    },
    /// All results have been sent.
    Done {
        /// Busy share of the server's busiest processor during the load, 0 to 1. `None` if unknown.
        busiest_cpu: Option<f64>,
    },
    /// The server refuses to go on.
    Error {
        /// The reason, for the user.
        reason: String,
    },
}

/// The measurements of a flow at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Bytes that arrived. Only the receiver has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// `TCP_INFO` over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpSample>,
    /// The counters of the sender's kernel at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TcpTotals>,
    /// Largest segment that this end sends, in bytes of payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// True if both ends agreed on ECN. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
}

/// Sixteen random bytes, in hexadecimal on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(pub [u8; 16]);

impl From<Token> for String {
    fn from(token: Token) -> Self {
        hex::encode(token.0)
    }
}

impl TryFrom<String> for Token {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut token = [0; 16];
        if text.len() != 2 * token.len() {
            return Err("a token has 32 hexadecimal digits");
        }
        hex::decode_to_slice(text, &mut token).map_err(|_| "a token has hexadecimal digits only")?;
        Ok(Self(token))
    }
}

/// The error for bytes that are not a frame of this protocol.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than the reader accepts.
    #[error("a frame of {length} bytes where at most {limit} are allowed")]
    TooLong {
        /// Bytes announced.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The frame does not hold the expected message.
    #[error("not a message of this protocol: {0}")]
    Malformed(String),
}

/// Encodes a message as a frame.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let body =
        serde_json::to_vec(message).expect("messages have no keys but strings and no failing serializers");
    let length = u32::try_from(body.len()).expect("flows and samples are bounded far below 4 GB");
    [length.to_be_bytes().as_slice(), &body].concat()
}

/// The message at the head of `buffer`, and the number of bytes that it takes. `None` while it is incomplete.
///
/// Never panics. Refuses an oversized frame as soon as its length is there.
pub fn decode<M: DeserializeOwned>(buffer: &[u8], limit: usize) -> Result<Option<(M, usize)>, FrameError> {
    let Some(body) = body(buffer, limit)? else {
        return Ok(None);
    };
    let message = serde_json::from_slice(body)
        .map_err(|e| FrameError::Malformed(foreign::brief(&e.to_string(), MAX_REASON)))?;
    Ok(Some((message, size_of::<u32>() + body.len())))
}

/// The body of the frame at the head of `buffer`. `None` while it is incomplete.
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

/// A probe or its answer: at least [`Probe::LENGTH`] bytes of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The token of the test, or of a client outside a test.
    pub token: Token,
    /// Number of the series in the test, below [`MAX_PROBES`], or [`NO_TEST`](Self::NO_TEST).
    pub series: u16,
    /// The traffic class byte (DSCP and ECN) that the answer shall have.
    pub tos: u8,
    /// Counts up from zero in each series.
    pub sequence: u32,
    /// The server fills it in.
    pub echo: Echo,
}

/// The part of a probe that the server fills in. All zero on the way to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echo {
    /// The traffic class byte (DSCP and ECN) of the probe on arrival.
    pub tos_arrived: u8,
    /// When it arrived, by the server's clock, in nanoseconds. The origin is arbitrary.
    pub arrived_ns: u64,
    /// How long the server held it, in nanoseconds.
    pub held_ns: u32,
    /// Which probes of the series have arrived: bit n stands for the n-th before this one, bit 0 for this one. Outside a test only bit 0
    /// is set, and no bit if the client had no token.
    pub window: u64,
}

impl Probe {
    /// Default length of the UDP payload, bytes: that of `ping`.
    pub const LENGTH: usize = 56;
    /// Largest length of the UDP payload, bytes: a packet of 1500 bytes over IPv6.
    pub const MAX_LENGTH: usize = 1452;
    /// The series number of a probe outside a test, which only asks for the time.
    pub const NO_TEST: u16 = u16::MAX;
    /// The token of a client outside a test until the server has issued it one.
    pub const NO_TOKEN: Token = Token([0; 16]);
    const MAGIC: [u8; 4] = *b"sqm2";

    /// The probe as bytes. The rest of a longer datagram is padding.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..20].copy_from_slice(&self.token.0);
        bytes[20..22].copy_from_slice(&self.series.to_be_bytes());
        bytes[22] = self.tos;
        bytes[23] = self.echo.tos_arrived;
        bytes[24..28].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.echo.arrived_ns.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.echo.held_ns.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.echo.window.to_be_bytes());
        bytes
    }

    /// The probe in a datagram. `None` if the length or the magic is wrong. Never panics.
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
            tos: bytes[22],
            sequence: u32_at(24)?,
            echo: Echo {
                tos_arrived: bytes[23],
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
    fn a_frame_decodes_only_when_it_is_complete() {
        let hello = Hello::Data {
            token: Token([0xa5; 16]),
            direction: Direction::Upload,
            flow: 3,
            dscp: 46,
            congestion: Some("cubic".to_owned()),
            window: None,
        };
        let frame = encode(&hello);
        for cut in 0..frame.len() {
            assert_eq!(decode::<Hello>(&frame[..cut], MAX_REQUEST), Ok(None));
        }
        let two = [frame.clone(), frame.clone()].concat();
        assert_eq!(decode(&two, MAX_REQUEST), Ok(Some((hello, frame.len()))));
    }

    #[test]
    fn an_oversized_frame_is_refused_by_its_length() {
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
        fn probes_of_any_length_decode_to_what_was_encoded(
            (token, series, tos, sequence) in any::<([u8; 16], u16, u8, u32)>(),
            (tos_arrived, arrived_ns, held_ns, window) in any::<(u8, u64, u32, u64)>(),
            padding in 0..=Probe::MAX_LENGTH - Probe::LENGTH + 1,
        ) {
            let echo = Echo { tos_arrived, arrived_ns, held_ns, window };
            let probe = Probe { token: Token(token), series, tos, sequence, echo };
            let mut datagram = probe.encode().to_vec();
            datagram.resize(Probe::LENGTH + padding, 0);
            let expected = (datagram.len() <= Probe::MAX_LENGTH).then_some(probe);
            prop_assert_eq!(Probe::decode(&datagram), expected);
        }

        #[test]
        fn tokens_parse_to_what_was_printed(token: [u8; 16]) {
            let text = String::from(Token(token));
            prop_assert_eq!(Token::try_from(text), Ok(Token(token)));
        }
    }
}
