//! Result files on disk: compression, bounds, and the text inside.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::result::TestResult;
use crate::{Error, flent};

/// The longest text that is read, in bytes: an hour with sixteen flows has half of it. A small file can unfold to
/// any size, so that something must end it.
const MAX_TEXT: u64 = 256 << 20;
/// The most values that are read. Text is denser than what it stands for: `{},` is a sample.
const MAX_VALUES: usize = 12_000_000;
/// Of a new result.
const MODE: u32 = 0o644;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The text of a file, uncompressed if it was compressed with gzip.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let file = File::open(path).map_err(|reason| Error::Read {
        path: path.to_owned(),
        reason,
    })?;
    unpack(file).map_err(|reason| Error::Read {
        path: path.to_owned(),
        reason,
    })
}

/// Whether a text has the form of Flent's rather than of ours.
pub(crate) fn is_flent(text: &str) -> bool {
    // Ours begins with its name; serializers keep the order.
    let head: String = text.chars().filter(|c| !c.is_whitespace()).take(20).collect();
    !head.starts_with("{\"format\":")
}

/// Writes a result under a temporary name first, so that nobody sees half of it.
pub(crate) fn write(path: &Path, result: &TestResult) -> Result<(), Error> {
    let attempt = || -> io::Result<()> {
        let bytes = if path.extension().is_some_and(|extension| extension == "gz") {
            pack(&flent::to_json(result))?
        } else {
            (result.to_json() + "\n").into_bytes()
        };
        Ok(sqm_files::replace(path, MODE, &bytes)?)
    };
    attempt().map_err(|reason| Error::Write {
        path: path.to_owned(),
        reason,
    })
}

fn pack(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// The text within bytes, bounded in length and in number of values.
pub(crate) fn unpack(mut source: impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    (&mut source).take(GZIP.len() as u64).read_to_end(&mut head)?;
    let compressed = head == GZIP;
    let whole = io::Cursor::new(head).chain(source);
    let mut bytes = Vec::new();
    if compressed {
        MultiGzDecoder::new(whole)
            .take(MAX_TEXT + 1)
            .read_to_end(&mut bytes)?;
    } else {
        whole.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    }
    let bad = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    if bytes.len() as u64 > MAX_TEXT {
        return bad(format!("it holds more than {} MiB of text", MAX_TEXT >> 20));
    }
    if bytes.iter().filter(|byte| **byte == b',').count() > MAX_VALUES {
        return bad(format!("it holds more than {MAX_VALUES} values"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(without_nan(text)),
        Err(_) => bad("it is not text in UTF-8, nor compressed with gzip".to_owned()),
    }
}

/// Python writes values that JSON does not have, `NaN` and `Infinity`. They become null.
fn without_nan(text: String) -> String {
    const WORDS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    if !text.contains("NaN") && !text.contains("Infinity") {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        let word = WORDS.iter().find(|word| !quoted && rest.starts_with(**word));
        let taken = match (word, c) {
            (Some(word), _) => {
                plain.push_str("null");
                rest = &rest[word.len()..];
                continue;
            }
            // What is escaped does not end the text.
            (None, '\\') if quoted => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, c) => c.len_utf8(),
        };
        quoted ^= c == '"';
        plain.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_json_lacks_become_null_outside_of_texts_only() {
        let text = r#"{"a":[NaN,-Infinity,Infinity,1],"b":"NaN \" NaN","é":"\\","c":NaN}"#;
        let plain = r#"{"a":[null,null,null,1],"b":"NaN \" NaN","é":"\\","c":null}"#;
        assert_eq!(without_nan(text.to_owned()), plain);
    }

    #[test]
    fn a_small_file_cannot_unfold_without_end() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let zeros = vec![b'0'; 1 << 20];
        for _ in 0..=(MAX_TEXT >> 20) {
            encoder.write_all(&zeros).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 1 << 20);
        let error = unpack(&bomb[..]).unwrap_err().to_string();
        assert_eq!(error, "it holds more than 256 MiB of text");
        let commas = vec![b','; MAX_VALUES + 1];
        assert!(unpack(&commas[..]).unwrap_err().to_string().contains("values"));
    }

    #[test]
    fn what_is_packed_comes_back() {
        assert_eq!(unpack(&pack("{\"é\":1}").unwrap()[..]).unwrap(), "{\"é\":1}");
        assert_eq!(unpack(&b""[..]).unwrap(), "");
        assert!(unpack(&[0x1f, 0x8b, 0][..]).is_err());
        assert!(unpack(&[0xff, 0xfe][..]).is_err());
    }
}
