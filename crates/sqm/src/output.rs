//! Standard output and standard error, which may be closed or full.
//!
//! `println!` panics when it cannot write, so that `sqm status | head -1` would end in a panic, and a daemon whose log goes away
//! would die. These macros do not. A reader that goes away ends the output and nothing else. Any other failure to write standard
//! output is remembered, and [`conclude`] reports it when the command has ended. Nobody can be told that standard error failed.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// `print!`, to [`stdout`].
macro_rules! out {
    ($($word:tt)*) => { $crate::output::print(format_args!($($word)*)) };
}

/// `println!`, to [`stdout`].
macro_rules! outln {
    () => { out!("\n") };
    ($($word:tt)*) => { out!("{}\n", format_args!($($word)*)) };
}

/// `eprint!` that cannot fail.
macro_rules! err {
    ($($word:tt)*) => { $crate::output::complain(format_args!($($word)*)) };
}

/// `eprintln!` that cannot fail.
macro_rules! errln {
    () => { err!("\n") };
    ($($word:tt)*) => { err!("{}\n", format_args!($($word)*)) };
}

/// Whether whoever read standard output has gone.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
/// Why standard output could not be written first, unless its reader had gone.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Standard output that remembers how it failed.
#[derive(Debug)]
pub(crate) struct Stdout;

/// Standard output for what writes much: it should end at the first error, and may hand that error to its caller.
pub(crate) const fn stdout() -> Stdout {
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

/// Whether it is of no use to go on writing.
pub(crate) fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

pub(crate) fn print(text: fmt::Arguments<'_>) {
    // What went wrong is remembered.
    let _ = Stdout.write_fmt(text);
}

pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Whether this error is the one of a reader of standard output who has gone: no failure of ours.
pub(crate) fn is_of_the_reader(error: &anyhow::Error) -> bool {
    let kind =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<io::Error>().map(io::Error::kind);
    is_closed()
        && error
            .chain()
            .filter_map(kind)
            .any(|kind| kind == ErrorKind::BrokenPipe)
}

/// The exit code of a command that ended with `code`. If its output `is_its_product` and could not be written, it has failed;
/// a command that changed something has done so all the same.
pub(crate) fn conclude(code: ExitCode, is_its_product: bool) -> ExitCode {
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

fn remember(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::BrokenPipe {
        IS_CLOSED.store(true, Ordering::Relaxed);
    } else if error.kind() != ErrorKind::Interrupted
        && let Ok(mut failed) = FAILED.lock()
    {
        let known = error
            .raw_os_error()
            .map_or_else(|| io::Error::from(error.kind()), io::Error::from_raw_os_error);
        failed.get_or_insert(known);
    }
    error
}
