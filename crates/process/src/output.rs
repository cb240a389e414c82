//! Standard output and standard error, which may be closed or full.
//!
//! `println!` panics when it cannot write, so `sqm status | head -1` would end with a panic, and a daemon would die when its
//! log goes away. The macros of this module do not panic. If the reader of standard output closes it, output ends and nothing
//! else happens. Any other error of standard output is stored, and [`conclude`] reports it when the command has ended. An
//! error of standard error cannot be reported.
//!
//! Everything that the macros print goes through [`printable`](crate::printable), so that text from elsewhere cannot send
//! commands to the terminal.

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::colour::{self, Colour};
use crate::printable::Printable;

/// `print!`, to [`crate::output::stdout`].
#[macro_export]
macro_rules! out {
    ($($word:tt)*) => { $crate::output::print(format_args!($($word)*)) };
}

/// `println!`, to [`crate::output::stdout`].
#[macro_export]
macro_rules! outln {
    () => { $crate::out!("\n") };
    ($($word:tt)*) => { $crate::out!("{}\n", format_args!($($word)*)) };
}

/// `eprint!` that cannot fail.
#[macro_export]
macro_rules! err {
    ($($word:tt)*) => { $crate::output::print_error(format_args!($($word)*)) };
}

/// `eprintln!` that cannot fail.
#[macro_export]
macro_rules! errln {
    () => { $crate::err!("\n") };
    ($($word:tt)*) => { $crate::err!("{}\n", format_args!($($word)*)) };
}

/// Set after an error of standard output.
static IS_LOST: AtomicBool = AtomicBool::new(false);
/// The first error of standard output other than a closed pipe.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Standard output that stores its error for [`conclude`].
#[derive(Debug)]
pub struct Stdout;

/// Standard output for bytes that must not be altered, such as a script. A command may end with an error of it: [`conclude`]
/// reports the error.
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

/// Marks an error of standard output, as opposed to an error of a file or a connection.
#[derive(Debug)]
struct Lost(io::Error);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl std::error::Error for Lost {}

/// `true` if further output is useless: the reader has closed standard output, or writing to it failed.
pub fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed) || has_no_reader()
}

/// `true` if the reader of standard output has closed it. Notices that without a write.
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
    // `Stdout` stores the error.
    let _ = Printable(Stdout).write_fmt(text);
}

/// Prints on standard error; [`err!`](crate::err) calls it.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = Printable(io::stderr()).write_fmt(text);
}

/// Prints on standard output in a colour, if that shows colours.
pub fn print_in(colour: Colour, text: fmt::Arguments<'_>) {
    coloured(Stdout, colour::shows(&io::stdout()).then_some(colour), text);
}

/// Prints on standard error in a colour, if that shows colours.
pub fn print_error_in(colour: Colour, text: fmt::Arguments<'_>) {
    coloured(io::stderr(), colour::shows(&io::stderr()).then_some(colour), text);
}

/// The control sequences of the colour would be escaped in the text, so they are written beside it.
fn coloured(mut stream: impl Write, colour: Option<Colour>, text: fmt::Arguments<'_>) {
    // `Stdout` stores the error; one of standard error cannot be reported.
    if let Some(colour) = colour {
        let _ = stream.write_all(colour.begin().as_bytes());
    }
    let _ = Printable(&mut stream).write_fmt(text);
    if colour.is_some() {
        let _ = stream.write_all(colour::END.as_bytes());
    }
}

/// `true` if `error` is an error of standard output, or of another pipe for output that its reader has closed.
pub fn caused(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.get_ref().is_some_and(|inner| inner.is::<Lost>()))
}

/// Marks an error of a pipe that the user named for output: if its reader has closed it, the command ends as if the reader of
/// standard output had. All other errors are returned unchanged.
pub fn mark_closed_pipe(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, Lost(error)),
        _ => error,
    }
}

/// `true` if `error` says that the reader of standard output, or of a pipe for output, has closed it.
pub fn is_closed_by_reader(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe && error.get_ref().is_some_and(|inner| inner.is::<Lost>())
}

/// The exit code of a command that ended with `code`, after its output.
///
/// Reports an error of standard output. The command then has failed if its output `is_its_product`; a command that changes
/// something has done so even if its output was lost. It is no error if the reader of standard output closes it early.
pub fn conclude(code: ExitCode, is_its_product: bool) -> ExitCode {
    // `Stdout` stores the error.
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

/// Stores an error of standard output for [`conclude`], and marks it for [`caused`].
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
