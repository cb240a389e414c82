//! Flent's result files: JSON compressed with gzip.

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::{MAX_TEXT, Text, invalid};
use crate::flent;
use crate::result::TestResult;
use crate::room::Room;

/// The most that is read of a compressed file, in bytes: gzip makes incompressible data longer, but by less than the added 1 MiB.
const MAX_PACKED: u64 = MAX_TEXT as u64 + (1 << 20);
/// The largest number of gzip members in one file (RFC 1952, section 2.2). Each member takes time, even an empty one. A choice.
const MAX_MEMBERS: usize = 1000;

/// Parses a text of Flent's.
pub(super) fn parse(text: &str, room: &Room) -> Result<TestResult, String> {
    flent::from_json_within(text, room)
}

/// A result as Flent writes it.
pub(super) fn pack(result: &TestResult) -> io::Result<Vec<u8>> {
    compress(&flent::to_json(result))
}

/// Decompresses all members of a file.
pub(super) fn unpack(text: &mut Text, source: impl Read) -> io::Result<()> {
    let mut packed = BufReader::new(source.take(MAX_PACKED));
    for _ in 0..MAX_MEMBERS {
        let member = text.read(GzDecoder::new(&mut packed));
        if packed.get_ref().limit() == 0 {
            let most = MAX_PACKED >> 20;
            return Err(invalid(format!("it is compressed and longer than {most} MiB")));
        }
        member?;
        if packed.fill_buf()?.is_empty() {
            return Ok(());
        }
    }
    Err(invalid(format!(
        "it is made of more than {MAX_MEMBERS} gzip members"
    )))
}

fn compress(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::super::unpack;
    use super::*;

    #[test]
    fn a_small_compressed_file_cannot_expand_without_limit() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let zeros = vec![b'0'; 1 << 20];
        for _ in 0..=(MAX_TEXT >> 20) {
            encoder.write_all(&zeros).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 1 << 20);
        let error = unpack(&bomb[..]).unwrap_err().to_string();
        assert_eq!(error, "it holds more than 96 MiB of text");
        let quoted = [b"\"".as_slice(), &zeros, &zeros].concat();
        assert!(
            unpack(&quoted[..])
                .unwrap_err()
                .to_string()
                .contains("a quoted string")
        );
    }

    #[test]
    fn gzip_members_are_concatenated_and_their_number_is_limited() {
        let member = |text| compress(text).unwrap();
        let two = [member("{\"a\":"), member(""), member("1}")].concat();
        assert_eq!(unpack(&two[..]).unwrap(), "{\"a\":1}");
        let many = member("").repeat(MAX_MEMBERS + 1);
        let error = unpack(&many[..]).unwrap_err().to_string();
        assert_eq!(error, "it is made of more than 1000 gzip members");
        // Endless empty blocks (RFC 1951, section 3.2.4): the header of a gzip file, then blocks that are not the last.
        let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        let blocks = [0, 0, 0, 0xff, 0xff].repeat(20_000);
        let endless = Endless {
            bytes: &blocks,
            rest: &[],
        };
        let error = unpack(header.chain(endless)).unwrap_err().to_string();
        assert_eq!(error, "it is compressed and longer than 97 MiB");
    }

    /// A source that repeats its bytes for ever.
    struct Endless<'a> {
        bytes: &'a [u8],
        rest: &'a [u8],
    }

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.rest.is_empty() {
                self.rest = self.bytes;
            }
            self.rest.read(buffer)
        }
    }

    #[test]
    fn packed_text_unpacks_to_the_same_text() {
        assert_eq!(unpack(&compress("{\"é\":1}").unwrap()[..]).unwrap(), "{\"é\":1}");
        assert_eq!(unpack(&b""[..]).unwrap(), "");
        assert!(unpack(&[0x1f, 0x8b, 0][..]).is_err());
        assert!(unpack(&[0xff, 0xfe][..]).is_err());
    }
}
