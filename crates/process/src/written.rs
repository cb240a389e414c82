//! Files that a user names for what a command makes: pictures, pages, reports, captures.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use sqm_files::Fresh;

use crate::output;

/// Writes a file whole. After a failure the old one is there, or none. That a pipe's reader has gone is no failure: he has what he
/// wanted, and the command goes on.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut to = Written::begin(path)?;
    match to.write_all(bytes.as_ref()) {
        Err(error) if output::is_without_reader(&error) => return Ok(()),
        written => written.with_context(|| format!("cannot write {}", path.display()))?,
    }
    to.commit()
}

/// A file while it is written.
#[derive(Debug)]
pub enum Written {
    /// It takes its place when it is whole.
    Fresh(Fresh),
    /// A terminal, a pipe or a device is written to: there is nothing to take the place of.
    Stream(File),
}

impl Written {
    /// Opens a stream, or begins a file that takes its name with [`Self::commit`].
    pub fn begin(path: &Path) -> anyhow::Result<Self> {
        let begun = if is_stream(path) {
            let stream = OpenOptions::new().write(true).open(path);
            stream.map(Self::Stream).map_err(anyhow::Error::from)
        } else {
            let fresh = Fresh::begin(path, mode());
            fresh.map(Self::Fresh).map_err(anyhow::Error::from)
        };
        begun.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Gives the file its name, once its bytes are on the disk.
    pub fn commit(self) -> anyhow::Result<()> {
        match self {
            Self::Fresh(fresh) => Ok(fresh.commit()?),
            Self::Stream(mut stream) => Ok(stream.flush()?),
        }
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Fresh(fresh) => fresh.write(bytes),
            Self::Stream(stream) => stream.write(bytes).map_err(output::left),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Fresh(fresh) => fresh.flush(),
            Self::Stream(stream) => stream.flush().map_err(output::left),
        }
    }
}

/// Whether it is to be written to, not replaced: a FIFO, a device, and `/dev/stdout`, whatever that leads to.
fn is_stream(path: &Path) -> bool {
    let is_special = || {
        path.metadata()
            .is_ok_and(|found| !found.is_file() && !found.is_dir())
    };
    path.starts_with("/dev") || path.starts_with("/proc") || is_special()
}

/// Permissions of a new file, as the user's umask has them.
fn mode() -> u32 {
    /// Where the kernel tells none.
    const USUAL: u32 = 0o022;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    0o666 & !umask.unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_is_an_error_that_names_it() {
        let error = write(Path::new("/dev/full"), "text").unwrap_err();
        assert!(format!("{error:#}").contains("/dev/full"), "{error:#}");
    }

    #[test]
    fn a_fifo_is_written_to_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || std::fs::read_to_string(fifo).unwrap())
        };
        write(&fifo, "text").unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_reader_that_leaves_is_no_failure() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut stream = Written::Stream(File::from(std::os::fd::OwnedFd::from(writer)));
        let error = stream.write_all(b"text").unwrap_err();
        assert!(output::is_without_reader(&error), "{error}");
        assert!(output::is_origin_of(&anyhow::Error::from(error)));
    }

    #[test]
    fn what_is_not_committed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("picture.svg");
        let mut written = Written::begin(&file).unwrap();
        written.write_all(b"half").unwrap();
        drop(written);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        write(&file, "whole").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "whole");
    }
}
