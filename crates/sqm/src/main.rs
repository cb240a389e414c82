//! The program: one command line over the libraries. The only crate that knows all others.

mod cli;
mod daemon;
mod doctor;
mod failure;
mod plan_json;
mod png;
mod queues;
mod redact;
mod replace;
mod replay;
mod tune;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
