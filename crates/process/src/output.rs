//! Standard output and standard error, which may be closed or full.
//!
//! `println!` panics when it cannot write, so that `sqm status | head -1` would end in a panic, and a daemon whose log goes away
//! would die. These macros do not. A reader that goes away ends the output and nothing else. Any other failure to write standard
//! output is remembered, and [`conclude`] reports it when the command has ended. Nobody can be told that standard error failed.
//!
//! All that they print is [`printable`](crate::printable): what others wrote cannot command the terminal.

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::printable::Printable;

/// `print!`, to [`stdout`](crate::output::stdout).
#[macro_export]
macro_rules! out {
    ($($word:tt)*) => { $crate::output::print(format_args!($($word)*)) };
}

/// `println!`, to [`stdout`](crate::output::stdout).
#[macro_export]
macro_rules! outln {
    () => { $crate::out!("\n") };
    ($($word:tt)*) => { $crate::out!("{}\n", format_args!($($word)*)) };
}

/// `eprint!` that cannot fail.
#[macro_export]
macro_rules! err {
    ($($word:tt)*) => { $crate::output::complain(format_args!($($word)*)) };
}

/// `eprintln!` that cannot fail.
#[macro_export]
macro_rules! errln {
    () => { $crate::err!("\n") };
    ($($word:tt)*) => { $crate::err!("{}\n", format_args!($($word)*)) };
}

/// Whether standard output could not be written.
static IS_LOST: AtomicBool = AtomicBool::new(false);
/// Why not, unless its reader had gone.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Standard output that remembers how it failed.
#[derive(Debug)]
pub struct Stdout;

/// Standard output for bytes that are to come out as they are, such as a script. Its errors may be handed to the caller: they
/// end the command, and [`conclude`] reports them.
pub const fn stdout() -> Stdout {
    Stdout
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(remember)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(remember)
    }
}

/// An error of standard output, as opposed to one of a file or a connection.
#[derive(Debug)]
struct Lost(io::Error);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl std::error::Error for Lost {}

/// Whether it is of no use to go on writing: the reader has gone, or nothing can be written.
pub fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed) || has_no_reader()
}

/// Whether whoever read has gone, though nothing was written since.
fn has_no_reader() -> bool {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Prints on standard output; [`out!`](crate::out) calls it.
pub fn print(text: fmt::Arguments<'_>) {
    // What went wrong is remembered.
    let _ = Printable(Stdout).write_fmt(text);
}

/// Prints on standard error; [`err!`](crate::err) calls it.
pub fn complain(text: fmt::Arguments<'_>) {
    let _ = Printable(io::stderr()).write_fmt(text);
}

/// Whether this is an error of standard output, or of another output whose reader has gone.
pub fn is_origin_of(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.get_ref().is_some_and(|inner| inner.is::<Lost>()))
}

/// Marks the error of a pipe that a user named for the output: if its reader has gone, that ends the command like the end of standard
/// output's. All other errors stay what they are.
pub fn left(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, Lost(error)),
        _ => error,
    }
}

/// Whether the reader of an output has gone.
pub fn is_without_reader(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe && error.get_ref().is_some_and(|inner| inner.is::<Lost>())
}

/// The exit code of a command that ended with `code`. If its output `is_its_product` and could not be written, it has failed. A
/// command that changed something has done so all the same. A reader that went away wanted no more: that is no failure.
pub fn conclude(code: ExitCode, is_its_product: bool) -> ExitCode {
    // An error is remembered.
    let _ = Stdout.flush();
    let failed = FAILED.lock().ok().and_then(|mut failed| failed.take());
    let Some(error) = failed else { return code };
    errln!("sqm: cannot write to standard output: {error}");
    if is_its_product && code == ExitCode::SUCCESS {
        ExitCode::FAILURE
    } else {
        code
    }
}

/// Takes note of an error of standard output.
pub fn remember(error: io::Error) -> io::Error {
    let kind = error.kind();
    if kind == ErrorKind::Interrupted {
        return error;
    }
    IS_LOST.store(true, Ordering::Relaxed);
    if kind != ErrorKind::BrokenPipe
        && let Ok(mut failed) = FAILED.lock()
    {
        let known = error
            .raw_os_error()
            .map_or_else(|| io::Error::from(kind), io::Error::from_raw_os_error);
        failed.get_or_insert(known);
    }
    io::Error::new(kind, Lost(error))
}
