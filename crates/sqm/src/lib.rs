//! The program: one command line over the libraries. The only crate that knows all others.

// Standard output may be closed or full: the macros of `sqm_process` can bear that.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod cli;
mod doctor;
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

use clap::Parser;

/// Carries out the command line of this process.
pub fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::explain(&error),
    };
    let is_its_product = cli.is_output_its_product();
    let code = match cli.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    sqm_process::output::conclude(code, is_its_product)
}
