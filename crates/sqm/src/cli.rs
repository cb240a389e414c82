//! The command line: one module per family of commands, each with its arguments and its `run`.

pub(crate) mod lab;
pub(crate) mod plan;
pub(crate) mod serve;
pub(crate) mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Smart Queue Management for any Linux machine: ends bufferbloat, and proves it.
#[derive(Parser)]
#[command(name = "sqm", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Lab(lab::Args),
    Plan(plan::Args),
    Serve(serve::Args),
    Test(test::Args),
}

impl Cli {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Lab(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Serve(args) => args.run(),
            Command::Test(args) => args.run(),
        }
    }
}
