//! The program: one command line over the libraries. The only crate that knows all others.

// Standard output may be closed or full: the macros of `output` can bear that.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod output;
mod child;
mod cli;
mod configuration;
mod daemon;
mod doctor;
mod failure;
mod http;
mod plan_json;
mod png;
mod queues;
mod rates;
mod redact;
mod replay;
mod revision;
mod tune;
mod web;

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
    output::conclude(code, is_its_product)
}
