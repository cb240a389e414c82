//! The program: one command line over the libraries. The only crate that knows all others.

mod child;
mod cli;
mod daemon;
mod doctor;
mod failure;
mod http;
mod plan_json;
mod png;
mod queues;
mod rates;
mod redact;
mod replace;
mod replay;
mod revision;
mod tune;
mod web;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
