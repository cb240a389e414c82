//! Reads a log of `option autorate_log`, or one of cake-autorate, line by line. [`sqm_autorate::trace`] parses a line of ours,
//! [`cake_autorate`](super::cake_autorate) one of theirs.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sqm_autorate::trace::{Entry, HEADER};

use super::cake_autorate;

use crate::file::GZIP;
use crate::foreign::MAX_REASON;
use crate::{Error, foreign};

/// Longest line that is read, bytes. A choice: ten times the length of the daemon's lines.
const LONGEST: u64 = 1 << 16;

/// Longest log that is read, bytes: four times the length at which the daemon begins a new file. A device may have no end.
const LONGEST_LOG: u64 = 32 << 20;

/// How much of a compressed file is read for its first byte, bytes: the header of a gzip member with its name, and some data.
const HEAD: u64 = 4096;

/// A line that is cut off for a good reason: the daemon was interrupted while it wrote the line, or the beginning of the file was cut
/// away. It is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedLine {
    /// Number of the line, from one.
    pub line: usize,
    /// The mistake in it.
    pub reason: String,
}

/// Why a log cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// Reading failed.
    Read(io::Error),
    /// This line, counted from one, is not valid.
    Line(usize, String),
}

/// True if the first byte of a file is that of a log, and not that of a test result.
pub fn is_trace(path: &Path) -> bool {
    // A pipe gives its first byte only once.
    if !path.is_file() {
        return false;
    }
    let mut first = [0];
    let read = File::open(path).and_then(|file| unpacked(file.take(HEAD))?.read_exact(&mut first));
    // The first byte of the column names, of a time, or of a line of cake-autorate.
    read.is_ok()
        && (first[0] == HEADER.as_bytes()[0]
            || first[0].is_ascii_digit()
            || cake_autorate::begins_with(first[0]))
}

/// Passes each line with its number to `take`. Returns the lines that were cut off.
pub fn read(path: &Path, take: &mut dyn FnMut(usize, Entry)) -> Result<Vec<TruncatedLine>, Error> {
    let cannot = |reason| Error::Read {
        path: path.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(cannot)?;
    // Text that is compressed to nothing could be of any length, and so could a compressed file without text.
    let text = unpacked(file.take(LONGEST_LOG + 1)).map_err(cannot)?;
    let mut source = BufReader::new(text.take(LONGEST_LOG + 1));
    let cuts = read_from(&mut source, take);
    if source.get_ref().limit() == 0 {
        let reason = format!("it is longer than {} MiB", LONGEST_LOG >> 20);
        return Err(cannot(io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    cuts.map_err(|error| match error {
        ReadError::Read(reason) => cannot(reason),
        ReadError::Line(line, reason) => Error::Log {
            path: path.to_owned(),
            line,
            reason,
        },
    })
}

/// The text of a file, decompressed if it was compressed with gzip.
fn unpacked<'a>(file: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut file = BufReader::new(file);
    Ok(match file.fill_buf()?.starts_with(&GZIP) {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    })
}

/// Like [`read`], from any source.
pub fn read_from(
    mut source: impl BufRead,
    take: &mut dyn FnMut(usize, Entry),
) -> Result<Vec<TruncatedLine>, ReadError> {
    let first = source.fill_buf().map_err(ReadError::Read)?.first().copied();
    if first.is_some_and(cake_autorate::begins_with) {
        return cake_autorate::read_lines(|| next_line(&mut source), take);
    }
    let (mut cuts, mut rows) = (Vec::new(), 0_usize);
    let mut broken: Option<TruncatedLine> = None;
    let mut is_open = false;
    for line in 1.. {
        let Some(bytes) = next_line(&mut source).map_err(ReadError::Read)? else {
            break;
        };
        is_open = bytes.last() != Some(&b'\n');
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if text == HEADER.as_bytes() {
            // Another log follows.
            cuts.extend(broken.take());
            continue;
        }
        match (row(text), broken.take()) {
            (Ok(row), before) => {
                // The line before may be cut off at the beginning of the file, or if a new controller begins here.
                match before {
                    Some(cut) if cut.line > 1 && row.start.is_none() => return Err(wrong(cut)),
                    before => cuts.extend(before),
                }
                rows += 1;
                take(line, row);
            }
            (Err(_), Some(before)) => return Err(wrong(before)),
            (Err(reason), None) => broken = Some(TruncatedLine { line, reason }),
        }
    }
    match broken {
        // The last line has no end: the daemon is still writing it, or was interrupted.
        Some(cut) if is_open && rows > 0 => cuts.push(cut),
        Some(cut) => return Err(wrong(cut)),
        None if rows == 0 => return Err(ReadError::Line(1, "it has no lines".to_owned())),
        None => {}
    }
    Ok(cuts)
}

fn row(text: &[u8]) -> Result<Entry, String> {
    let text = str::from_utf8(text).map_err(|_| "not text".to_owned())?;
    if text.len() as u64 > LONGEST {
        return Err(format!("longer than {LONGEST} bytes"));
    }
    Entry::parse(text).map_err(|error| foreign::brief(&error.to_string(), MAX_REASON))
}

fn wrong(TruncatedLine { line, reason }: TruncatedLine) -> ReadError {
    let hint = match line {
        1 => "; is this a log of cake-autorate or of option autorate_log, written by this version?",
        _ => "",
    };
    ReadError::Line(line, reason + hint)
}

/// The next line with its line end, if it has one. A line that is too long is cut just behind the limit.
fn next_line(source: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let length = source.by_ref().take(LONGEST + 1).read_until(b'\n', &mut bytes)?;
    if length as u64 > LONGEST && bytes.last() != Some(&b'\n') {
        source.skip_until(b'\n')?;
        bytes.push(b'\n');
    }
    Ok((length > 0).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "1,2,0,4,5,grow,7,8,grow,\"step\"";
    const BEGIN: &str = "1,2,0,4,5,grow,7,8,grow,\"begin:x:-:-:-:-:-:- step\"";

    fn lines(text: &[u8]) -> Result<(Vec<usize>, Vec<usize>), (usize, String)> {
        let mut numbers = Vec::new();
        match read_from(text, &mut |line, _| numbers.push(line)) {
            Ok(cuts) => Ok((numbers, cuts.iter().map(|cut| cut.line).collect())),
            Err(ReadError::Line(line, reason)) => Err((line, reason)),
            Err(ReadError::Read(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn lines_that_are_cut_off_are_left_out() {
        let whole = format!("{HEADER}\n{BEGIN}\n{ROW}\n");
        assert_eq!(lines(whole.as_bytes()), Ok((vec![2, 3], vec![])));
        // Cut while a line was written, at each of its bytes.
        for end in whole.len() - ROW.len()..whole.len() - 1 {
            assert_eq!(lines(&whole.as_bytes()[..end]), Ok((vec![2], vec![3])), "{end}");
            // The daemon then started again.
            let next = format!("{}\n{BEGIN}\n{ROW}\n", &whole[..end]);
            assert_eq!(lines(next.as_bytes()), Ok((vec![2, 4, 5], vec![3])), "{end}");
        }
        // A complete line without a line end.
        assert_eq!(lines(whole.trim_end().as_bytes()), Ok((vec![2, 3], vec![])));
        // A power cut leaves zeros.
        let zeros = format!("{whole}\0\0\0\0\n{BEGIN}\n");
        assert_eq!(lines(zeros.as_bytes()), Ok((vec![2, 3, 5], vec![4])));
        // The beginning of the file is cut away.
        let tail = format!("{}\n{ROW}\n", &ROW[9..]);
        assert_eq!(lines(tail.as_bytes()), Ok((vec![2], vec![1])));
        // Two logs in one file.
        assert_eq!(
            lines(format!("{whole}{whole}").as_bytes()),
            Ok((vec![2, 3, 5, 6], vec![]))
        );
    }

    #[test]
    fn an_invalid_line_is_refused_with_its_number() {
        let line = |text: &str| lines(text.as_bytes()).expect_err("a broken log");
        assert_eq!(line("").0, 1);
        assert_eq!(line(&format!("{HEADER}\n")).0, 1);
        let (number, reason) = line(&format!("{HEADER}\n{BEGIN}\n{ROW}\nwhat\n{ROW}\n"));
        assert_eq!((number, reason.as_str()), (4, "1 columns instead of 10"));
        // Invalid, and not cut off.
        assert_eq!(line(&format!("{HEADER}\n{ROW}\nwhat\n")).0, 3);
        let (number, reason) = line("unix_ms,download_bits_per_sec\n1,2\n");
        assert!(number == 1 && reason.contains("this version"), "{reason}");
        assert_eq!(line("{\"format\":\"sqm-test\"}").0, 1);
        let long = "x".repeat(200_000);
        let (number, reason) = line(&format!("{HEADER}\n{ROW}\n{long}\n{ROW}\n"));
        assert!(number == 3 && reason.contains("65536"), "{reason}");
    }
}
