//! The files that a user names for a command's output: pictures, pages, reports, captures.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use sqm_files::Fresh;

use crate::output;

/// Writes a file in one step: after an error the old file is still there, or none. It is no error if `path` is a pipe and its
/// reader closes it early.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut file = OutputFile::begin(path)?;
    match file.write_all(bytes.as_ref()) {
        Err(error) if output::is_closed_by_reader(&error) => return Ok(()),
        written => written.with_context(|| format!("cannot write {}", path.display()))?,
    }
    file.commit()
}

/// A file that is being written.
#[derive(Debug)]
pub enum OutputFile {
    /// A regular file, which gets its name when it is complete.
    Fresh(Fresh),
    /// A terminal, a pipe or a device, which is written to directly.
    Stream(File),
}

impl OutputFile {
    /// Opens a stream, or creates a file that gets its name with [`Self::commit`].
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

    /// Gives the file its name, after its bytes are on the disk. Without it the file is removed.
    pub fn commit(self) -> anyhow::Result<()> {
        match self {
            Self::Fresh(fresh) => Ok(fresh.commit()?),
            Self::Stream(mut stream) => Ok(stream.flush()?),
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Fresh(fresh) => fresh.write(bytes),
            Self::Stream(stream) => stream.write(bytes).map_err(output::mark_closed_pipe),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Fresh(fresh) => fresh.flush(),
            Self::Stream(stream) => stream.flush().map_err(output::mark_closed_pipe),
        }
    }
}

/// `true` if `path` must be written to and not replaced: a FIFO, a device, or `/dev/stdout`, even if that is a regular file.
fn is_stream(path: &Path) -> bool {
    let is_special = || {
        path.metadata()
            .is_ok_and(|found| !found.is_file() && !found.is_dir())
    };
    path.starts_with("/dev") || path.starts_with("/proc") || is_special()
}

/// The permissions of a new file by the process's umask.
fn mode() -> u32 {
    /// The umask to use if the kernel does not report it: the default of most distributions.
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
    fn a_fifo_is_written_to_and_not_replaced() {
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
    fn a_pipe_that_its_reader_closes_is_marked() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut stream = OutputFile::Stream(File::from(std::os::fd::OwnedFd::from(writer)));
        let error = stream.write_all(b"text").unwrap_err();
        assert!(output::is_closed_by_reader(&error), "{error}");
        assert!(output::caused(&anyhow::Error::from(error)));
    }

    #[test]
    fn a_file_that_is_not_committed_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("picture.svg");
        let mut written = OutputFile::begin(&file).unwrap();
        written.write_all(b"half").unwrap();
        drop(written);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        write(&file, "whole").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "whole");
    }
}
