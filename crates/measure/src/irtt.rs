//! The messages of irtt's protocol, version 1, that ask an `irtt server` for the time. Pure.
//!
//! Numbers are little-endian. Every message begins with three bytes of magic and one byte of flags. A server keeps a connection,
//! identified by a token, for each client that opens one, and forgets it after a minute without a message. It does not answer
//! messages without such a token. A server with a key (`--hmac`) answers only clients with the key, which this client does not have.

/// The default UDP port.
pub const DEFAULT_PORT: u16 = 2112;

/// Length of a probe and of its answer, bytes: a header and two timestamps.
const LENGTH: usize = STAMPS + 16;
const MAGIC: [u8; 3] = [0x14, 0xa7, 0x5b];
const TOKEN: usize = 4;
const SEQUENCE: usize = 12;
const STAMPS: usize = 16;

const OPEN: u8 = 1;
const REPLY: u8 = 2;
const CLOSE: u8 = 4;
const WITH_HMAC: u8 = 8;

/// Parameters of a connection. Each is encoded as its number and a zigzag varint.
mod parameter {
    pub(super) const VERSION: u64 = 1;
    pub(super) const DURATION: u64 = 2;
    pub(super) const INTERVAL: u64 = 3;
    pub(super) const LENGTH: u64 = 4;
    pub(super) const STAMP_AT: u64 = 6;
    pub(super) const CLOCK: u64 = 7;
}

/// The server records both when a probe arrives and when its answer leaves.
const BOTH: i64 = 3;
const MONOTONIC: i64 = 2;

/// A message from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The connection is open.
    Opened {
        /// Identifies the connection. Never zero.
        token: u64,
        /// True if its answers will have both times.
        stamps_both: bool,
    },
    /// The answer to a probe. Its times are not checked.
    Echo {
        /// Identifies the connection.
        token: u64,
        /// The probe's number.
        sequence: u32,
        /// When it arrived, by the server's monotonic clock in nanoseconds. Meaningful if the connection
        /// [has both times](Self::Opened::stamps_both).
        received_ns: i64,
        /// When the answer left.
        sent_ns: i64,
        /// The server has closed the connection, because it has lasted as long as the server allows.
        is_last: bool,
    },
}

/// Asks for a connection whose answers have both times.
pub fn open() -> Vec<u8> {
    // A server shortens a duration beyond its limit, and does not mind probes that come more slowly than the interval.
    let (an_hour_ns, interval_ns) = (3_600_000_000_000, 25_000_000);
    let mut bytes = [MAGIC.as_slice(), &[OPEN]].concat();
    for (number, value) in [
        (parameter::VERSION, 1),
        (parameter::DURATION, an_hour_ns),
        (parameter::INTERVAL, interval_ns),
        (parameter::LENGTH, LENGTH as i64),
        (parameter::STAMP_AT, BOTH),
        (parameter::CLOCK, MONOTONIC),
    ] {
        put_varint(&mut bytes, number);
        put_varint(&mut bytes, zigzag(value));
    }
    bytes
}

/// A probe. It is as large as its answer.
pub fn probe(token: u64, sequence: u32) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..3].copy_from_slice(&MAGIC);
    bytes[TOKEN..SEQUENCE].copy_from_slice(&token.to_le_bytes());
    bytes[SEQUENCE..STAMPS].copy_from_slice(&sequence.to_le_bytes());
    bytes
}

/// Parses a message from a server. `None` for anything else, also if the server did not open the connection. Never panics.
pub fn parse(bytes: &[u8]) -> Option<Reply> {
    let flags = *bytes.strip_prefix(&MAGIC)?.first()?;
    if flags & REPLY == 0 || flags & WITH_HMAC != 0 || flags & OPEN != 0 && flags & CLOSE != 0 {
        return None;
    }
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let token = long(TOKEN).filter(|token| *token != 0)?;
    if flags & OPEN != 0 {
        let stamps_both = grants_both_stamps(&bytes[SEQUENCE..])?;
        return Some(Reply::Opened { token, stamps_both });
    }
    Some(Reply::Echo {
        token,
        sequence: u32::from_le_bytes(*bytes.get(SEQUENCE..)?.first_chunk()?),
        received_ns: long(STAMPS).unwrap_or(0) as i64,
        sent_ns: long(STAMPS + 8).unwrap_or(0) as i64,
        is_last: flags & CLOSE != 0,
    })
}

/// True if the parameters that the server has granted include both times. `None` if they cannot be parsed.
fn grants_both_stamps(mut parameters: &[u8]) -> Option<bool> {
    let (mut stamp_at, mut clock) = (0, 0);
    while !parameters.is_empty() {
        let number = take_varint(&mut parameters)?;
        let value = take_varint(&mut parameters)?;
        let value = (value >> 1) as i64 ^ -((value & 1) as i64);
        match number {
            parameter::STAMP_AT => stamp_at = value,
            parameter::CLOCK => clock = value,
            _ => {}
        }
    }
    Some(stamp_at == BOTH && clock == MONOTONIC)
}

const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The answer of a server to [`open`] with these values of [`parameter::STAMP_AT`] and [`parameter::CLOCK`].
    fn opened(flags: u8, token: u64, stamp_at: i64, clock: i64) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[flags], &token.to_le_bytes()].concat();
        for (number, value) in [(1, 1), (parameter::STAMP_AT, stamp_at), (parameter::CLOCK, clock)] {
            put_varint(&mut bytes, number);
            put_varint(&mut bytes, zigzag(value));
        }
        bytes
    }

    #[test]
    fn an_opened_connection_has_its_token_and_the_granted_parameters() {
        let token = 0x0102_0304_0506_0708;
        for (stamp_at, clock, stamps_both) in [(3, 2, true), (4, 2, false), (0, 2, false), (3, 3, false)] {
            assert_eq!(
                parse(&opened(OPEN | REPLY, token, stamp_at, clock)),
                Some(Reply::Opened { token, stamps_both })
            );
        }
        for flags in [OPEN, OPEN | REPLY | CLOSE, OPEN | REPLY | WITH_HMAC] {
            assert_eq!(parse(&opened(flags, token, 3, 2)), None, "{flags}");
        }
        assert_eq!(parse(&opened(OPEN | REPLY, 0, 3, 2)), None);
        let cut = opened(OPEN | REPLY, token, 3, 2);
        assert_eq!(parse(&cut[..cut.len() - 1]), None);
    }

    #[test]
    fn an_answer_has_the_number_of_its_probe_and_two_times() {
        let mut bytes = probe(7, 0x1_0203);
        assert_eq!(parse(&bytes), None, "no answer");
        bytes[3] = REPLY | CLOSE;
        bytes[16..24].copy_from_slice(&1_000_000_007u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&1_000_000_009u64.to_le_bytes());
        let answer = Reply::Echo {
            token: 7,
            sequence: 0x1_0203,
            received_ns: 1_000_000_007,
            sent_ns: 1_000_000_009,
            is_last: true,
        };
        assert_eq!(parse(&bytes), Some(answer));
        assert_eq!(parse(&bytes[..15]), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(flags: u8, rest in proptest::collection::vec(any::<u8>(), 0..60), is_ours: bool) {
            let ours = [MAGIC.as_slice(), &[flags], &rest].concat();
            let _ = parse(if is_ours { &ours } else { &rest });
        }

        #[test]
        fn varints_decode_to_what_was_encoded(value: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut left = bytes.as_slice();
            prop_assert_eq!(take_varint(&mut left), Some(value));
            prop_assert!(left.is_empty());
        }
    }
}
