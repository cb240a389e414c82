//! Result files on disk: which format they have, their compression, and limits for what is read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::Error;
use crate::result::TestResult;
use crate::room::Room;
#[cfg(not(feature = "full"))]
use no_flent as flent_file;

#[cfg(feature = "full")]
mod flent_file;
#[cfg(not(feature = "full"))]
mod no_flent;

/// The longest text that is read, in bytes. A test of one hour with eight flows and four series of probes has less. A small compressed
/// file can expand to any size, so that there must be a limit.
const MAX_TEXT: usize = 96 << 20;
/// The longest quoted string in the text, in bytes. A choice.
const MAX_QUOTED: usize = 1 << 20;
/// Permissions of a new result file: everybody may read it.
const READABLE: u32 = 0o644;
/// The first bytes of a gzip member.
impl TestResult {
    /// Reads a result file, ours or Flent's, compressed or not.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::load_within(path, &Room::default())
    }

    /// Reads one of several result files that share a limit of memory: the memory for its samples is taken from `room`.
    pub fn load_within(path: &Path, room: &Room) -> Result<Self, Error> {
        let text = read(path)?;
        Self::from_text(&text, room).map_err(|reason| Error::Format {
            path: path.to_owned(),
            reason,
        })
    }

    /// Reads a result from the bytes of a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        Self::from_text(&unpack(bytes).map_err(|e| e.to_string())?, &Room::default())
    }

    fn from_text(text: &str, room: &Room) -> Result<Self, String> {
        let result = if is_flent(text) {
            flent_file::parse(text, room)
        } else {
            Self::from_json_within(text, room)
        }?;
        room.take(result.size())?;
        Ok(result)
    }

    /// Writes a result file. A name that ends in `.gz` gets the Flent format, which Flent and sqm read; any other gets our JSON.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write(path, self)
    }
}

/// The text of a file, decompressed if it was compressed with gzip.
fn read(path: &Path) -> Result<String, Error> {
    let file = File::open(path).map_err(|reason| Error::Read {
        path: path.to_owned(),
        reason,
    })?;
    unpack(file).map_err(|reason| Error::Read {
        path: path.to_owned(),
        reason,
    })
}

/// True if a text has Flent's format and not ours.
fn is_flent(text: &str) -> bool {
    // Our format begins with its `format` field; our serializer keeps the order of fields.
    let head: String = text.chars().filter(|c| !c.is_whitespace()).take(20).collect();
    !head.starts_with("{\"format\":")
}

/// Writes a result atomically: a reader never sees a part of it.
fn write(path: &Path, result: &TestResult) -> Result<(), Error> {
    let error = |reason| Error::Write {
        path: path.to_owned(),
        reason,
    };
    let bytes = if path.extension().is_some_and(|extension| extension == "gz") {
        flent_file::pack(result).map_err(error)?
    } else {
        (result.to_json() + "\n").into_bytes()
    };
    sqm_files::replace(path, READABLE, &bytes).map_err(|reason| match reason {
        sqm_files::Error::System { reason, .. } => error(reason),
        other => error(io::Error::other(other)),
    })
}

/// How a file begins that is compressed with gzip (RFC 1952, section 2.3.1).
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The text of a file, within the limits of this module.
pub(crate) fn unpack(mut source: impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    (&mut source).take(GZIP.len() as u64).read_to_end(&mut head)?;
    let compressed = head == GZIP;
    let whole = io::Cursor::new(head).chain(source);
    let mut text = Text::default();
    if compressed {
        flent_file::unpack(&mut text, whole)?;
    } else {
        text.read(whole)?;
    }
    text.end_word();
    String::from_utf8(text.bytes)
        .map_err(|_| invalid("it is not text in UTF-8, nor compressed with gzip".to_owned()))
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// JSON that is being read. Python writes `NaN` and `Infinity`, which JSON does not have; they become null.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// The letters outside of quotes since the last other byte, at most sixteen.
    word: Vec<u8>,
    /// Bytes since the opening quote; `None` outside of quotes.
    quoted: Option<usize>,
    is_escaped: bool,
}

impl Text {
    fn read(&mut self, mut source: impl Read) -> io::Result<()> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let length = match source.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let mut rest = &chunk[..length];
            while let Some((byte, after)) = rest.split_first() {
                self.take(*byte)?;
                let (plain, others) = after.split_at(self.plain(after));
                self.bytes.extend_from_slice(plain);
                rest = others;
            }
            if self.bytes.len() > MAX_TEXT {
                return Err(invalid(format!(
                    "it holds more than {} MiB of text",
                    MAX_TEXT >> 20
                )));
            }
        }
    }

    /// The number of bytes at the start that [`take`](Self::take) would only copy: lists of numbers are most of a file.
    fn plain(&self, bytes: &[u8]) -> usize {
        if self.quoted.is_some() || !self.word.is_empty() {
            return 0;
        }
        let mut count = 0;
        while count < bytes.len()
            && !bytes[count].is_ascii_alphabetic()
            && !matches!(bytes[count], b'-' | b'"')
        {
            count += 1;
        }
        count
    }

    fn take(&mut self, byte: u8) -> io::Result<()> {
        let Some(length) = &mut self.quoted else {
            if byte.is_ascii_alphabetic() || byte == b'-' {
                self.word.push(byte);
                // No word of JSON is that long: give the letters back as they are.
                if self.word.len() > 16 {
                    self.end_word();
                }
                return Ok(());
            }
            self.end_word();
            if byte == b'"' {
                self.quoted = Some(0);
            }
            self.bytes.push(byte);
            return Ok(());
        };
        *length += 1;
        if *length > MAX_QUOTED {
            let most = MAX_QUOTED >> 20;
            return Err(invalid(format!(
                "it holds a quoted string of more than {most} MiB"
            )));
        }
        // An escaped quote does not end the string.
        if self.is_escaped || byte == b'\\' {
            self.is_escaped = !self.is_escaped;
        } else if byte == b'"' {
            self.quoted = None;
        }
        self.bytes.push(byte);
        Ok(())
    }

    fn end_word(&mut self) {
        let word = match self.word.as_slice() {
            b"NaN" | b"Infinity" | b"-Infinity" => b"null",
            word => word,
        };
        self.bytes.extend_from_slice(word);
        self.word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinity_become_null_outside_of_strings_only() {
        let text = r#"{"a":[NaN,-Infinity,Infinity,1],"b":"NaN \" NaN","é":"\\","c":NaN}"#;
        let plain = r#"{"a":[null,null,null,1],"b":"NaN \" NaN","é":"\\","c":null}"#;
        assert_eq!(unpack(text.as_bytes()).unwrap(), plain);
    }
}
