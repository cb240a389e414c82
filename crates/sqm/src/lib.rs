//! The program: one command line over the libraries. The only crate that knows all others.

// Standard output may be closed or full: the macros of `sqm_process` can bear that.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod cli;
mod doctor;
#[cfg(feature = "full")]
mod png;
mod redact;

/// What fuzz targets reach of the program. Compiled in tests too, so that `make lint` reads it.
#[cfg(any(test, fuzzing))]
pub mod fuzz {
    /// The doctor's facts, as JSON.
    pub fn judge(bytes: &[u8]) {
        crate::doctor::fuzz(bytes);
    }
}

use std::process::ExitCode;

use sqm_process::Failure;

pub use cli::Cli;

/// A program with a command line.
pub trait Program: clap::Parser {
    /// The commands in the order and under the headings in which `--help` lists them.
    const GROUPS: &'static [(&'static str, &'static [&'static str])];

    /// True if a command is of no use when its output cannot be written. Other commands change something, or serve.
    fn is_output_its_product(&self) -> bool;

    /// Carries out the command.
    ///
    /// # Errors
    ///
    /// The variant of the failure decides the exit code.
    fn run(self) -> Result<ExitCode, Failure>;
}

/// Carries out the command line of this process.
pub fn main<P: Program>() -> ExitCode {
    let mut command = cli::grouped(P::command(), P::GROUPS);
    let parsed = command
        .try_get_matches_from_mut(std::env::args_os())
        .and_then(|mut matches| P::from_arg_matches_mut(&mut matches));
    let program = match parsed {
        Ok(program) => program,
        Err(error) => return cli::explain(&error),
    };
    let is_its_product = program.is_output_its_product();
    let code = match program.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    sqm_process::output::conclude(code, is_its_product)
}
