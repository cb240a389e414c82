//! The command line over the libraries. This crate is the only one that depends on all others.

// Standard output may be closed or full. The macros of `sqm_process` handle that; `println!` would panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod cli;
mod doctor;
pub mod json;
#[cfg(feature = "full")]
mod png;
mod rate_controllers;
mod redact;

/// Entry points for fuzz targets. They are compiled for tests as well, so that `make lint` checks them.
#[cfg(any(test, fuzzing))]
pub mod fuzz {
    /// Judges facts of the doctor, given as JSON.
    pub fn judge(bytes: &[u8]) {
        crate::doctor::fuzz(bytes);
    }
}

use std::process::ExitCode;

use sqm_process::Failure;

pub use cli::Cli;
#[cfg(feature = "full")]
pub use cli::duration::parse_delay;
pub use cli::suggested::{self, Suggested};

/// A program with a command line.
pub trait Program: clap::Parser {
    /// The commands in the order and under the headings in which `--help` lists them.
    const GROUPS: &'static [(&'static str, &'static [&'static str])];

    /// True if the command's only purpose is its output. Other commands change something, or serve.
    fn is_output_its_product(&self) -> bool;

    /// Runs the command.
    ///
    /// # Errors
    ///
    /// The variant of the failure determines the exit code.
    fn run(self) -> Result<ExitCode, Failure>;
}

/// Answers a shell that asks what `sqm` could go on with. `None` if this process was not started for that.
#[cfg(feature = "full")]
pub fn complete() -> Option<ExitCode> {
    cli::complete()
}

/// A program for routers completes nothing.
#[cfg(not(feature = "full"))]
pub fn complete() -> Option<ExitCode> {
    None
}

/// Runs the command line of this process.
pub fn main<P: Program>() -> ExitCode {
    let program = match parsed::<P>(&mut P::command()) {
        Ok(program) => program,
        // This is help, or an error, which may name any command: both come from the description of all.
        Err(_) => {
            let mut command = cli::with_exit_codes(cli::grouped(cli::described::<P>(), P::GROUPS));
            match parsed::<P>(&mut command) {
                Ok(program) => program,
                Err(error) => {
                    let hint = cli::alternatives(&command, std::env::args_os().skip(1), &error);
                    return cli::explain(&error, hint.as_deref());
                }
            }
        }
    };
    let is_its_product = program.is_output_its_product();
    let code = match program.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    sqm_process::output::conclude(code, is_its_product)
}

fn parsed<P: Program>(command: &mut clap::Command) -> Result<P, clap::Error> {
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    P::from_arg_matches_mut(&mut matches)
}
