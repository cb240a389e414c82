//! The program: one command line over the libraries. The only crate that knows all others.

mod cli;
mod failure;
mod png;
mod replay;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
