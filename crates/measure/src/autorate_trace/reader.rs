//! The logs that `sqm daemon` writes with `option autorate_log`, read line by line. What a line holds is in
//! [`sqm_autorate::trace`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use sqm_autorate::trace::{Entry, HEADER};

use crate::foreign::MAX_REASON;
use crate::{Error, foreign};

/// A line is not longer; the daemon's have a tenth of it.
const LONGEST: u64 = 1 << 16;

/// The longest log, in bytes; the daemon begins another file after a quarter of it. A device may have no end.
const LONGEST_LOG: u64 = 32 << 20;

/// A line that is not whole, where that has a cause that is no mistake: whoever wrote it was interrupted, or the beginning of the
/// file was cut away. It is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedLine {
    /// Counted from one.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Why a text is not a log.
#[derive(Debug)]
pub enum ReadError {
    /// It cannot be read.
    Read(io::Error),
    /// This line, counted from one, is wrong.
    Line(usize, String),
}

/// Whether a file looks like a log, and not like a test's result: by its first byte.
pub fn is_trace(path: &Path) -> bool {
    // A pipe gives its first byte only once.
    if !path.is_file() {
        return false;
    }
    let mut first = [0];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    // That of the names of the columns, or of a time.
    read.is_ok() && (first[0] == HEADER.as_bytes()[0] || first[0].is_ascii_digit())
}

/// Gives `take` each line with its number, and answers which ones were cut off.
pub fn read(path: &Path, take: &mut dyn FnMut(usize, Row)) -> Result<Vec<TruncatedLine>, Error> {
    let cannot = |reason| Error::Read {
        path: path.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(cannot)?;
    let mut source = BufReader::new(file.take(LONGEST_LOG + 1));
    let cuts = read_from(&mut source, take);
    if source.get_ref().limit() == 0 {
        let reason = format!("it is longer than {} MiB", LONGEST_LOG >> 20);
        return Err(cannot(io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    cuts.map_err(|trouble| match trouble {
        ReadError::Read(reason) => cannot(reason),
        ReadError::Line(line, reason) => Error::Log {
            path: path.to_owned(),
            line,
            reason,
        },
    })
}

/// The same of any source.
pub fn read_from(
    mut source: impl BufRead,
    take: &mut dyn FnMut(usize, Row),
) -> Result<Vec<TruncatedLine>, ReadError> {
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
            // Behind the first: logs one after the other.
            cuts.extend(broken.take());
            continue;
        }
        match (row(text), broken.take()) {
            (Ok(row), before) => {
                // A beginning cut away; or somebody was interrupted, and began anew.
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
        // The end is still to come, or never did.
        Some(cut) if is_open && rows > 0 => cuts.push(cut),
        Some(cut) => return Err(wrong(cut)),
        None if rows == 0 => return Err(ReadError::Line(1, "nothing was logged".to_owned())),
        None => {}
    }
    Ok(cuts)
}

fn row(text: &[u8]) -> Result<Entry, String> {
    let text = str::from_utf8(text).map_err(|_| "not text".to_owned())?;
    if text.len() as u64 > LONGEST {
        return Err(format!("longer than {LONGEST} bytes"));
    }
    Entry::parse(text).map_err(|trouble| foreign::brief(&trouble.to_string(), MAX_REASON))
}

fn wrong(TruncatedLine { line, reason }: TruncatedLine) -> ReadError {
    let hint = match line {
        1 => "; is this a log of option autorate_log, written by this version?",
        _ => "",
    };
    ReadError::Line(line, reason + hint)
}

/// A line with its end, if it has one; of one that is too long no more than shows that it is.
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
    fn what_was_cut_off_is_left_out() {
        let whole = format!("{HEADER}\n{BEGIN}\n{ROW}\n");
        assert_eq!(lines(whole.as_bytes()), Ok((vec![2, 3], vec![])));
        // While a line was written, at each of its bytes.
        for end in whole.len() - ROW.len()..whole.len() - 1 {
            assert_eq!(lines(&whole.as_bytes()[..end]), Ok((vec![2], vec![3])), "{end}");
            // And then went on.
            let next = format!("{}\n{BEGIN}\n{ROW}\n", &whole[..end]);
            assert_eq!(lines(next.as_bytes()), Ok((vec![2, 4, 5], vec![3])), "{end}");
        }
        // A whole line without its end.
        assert_eq!(lines(whole.trim_end().as_bytes()), Ok((vec![2, 3], vec![])));
        // A power cut leaves what the disk never wrote.
        let zeros = format!("{whole}\0\0\0\0\n{BEGIN}\n");
        assert_eq!(lines(zeros.as_bytes()), Ok((vec![2, 3, 5], vec![4])));
        // The first bytes are gone.
        let tail = format!("{}\n{ROW}\n", &ROW[9..]);
        assert_eq!(lines(tail.as_bytes()), Ok((vec![2], vec![1])));
        // Two logs as one.
        assert_eq!(
            lines(format!("{whole}{whole}").as_bytes()),
            Ok((vec![2, 3, 5, 6], vec![]))
        );
    }

    #[test]
    fn what_is_broken_is_refused_with_its_line() {
        let line = |text: &str| lines(text.as_bytes()).expect_err("a broken log");
        assert_eq!(line("").0, 1);
        assert_eq!(line(&format!("{HEADER}\n")).0, 1);
        let (number, reason) = line(&format!("{HEADER}\n{BEGIN}\n{ROW}\nwhat\n{ROW}\n"));
        assert_eq!((number, reason.as_str()), (4, "1 columns instead of 10"));
        // Broken, and not cut off.
        assert_eq!(line(&format!("{HEADER}\n{ROW}\nwhat\n")).0, 3);
        let (number, reason) = line("unix_ms,download_bits_per_sec\n1,2\n");
        assert!(number == 1 && reason.contains("this version"), "{reason}");
        assert_eq!(line("{\"format\":\"sqm-test\"}").0, 1);
        let long = "x".repeat(200_000);
        let (number, reason) = line(&format!("{HEADER}\n{ROW}\n{long}\n{ROW}\n"));
        assert!(number == 3 && reason.contains("65536"), "{reason}");
    }
}
