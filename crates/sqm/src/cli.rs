//! The command line: one module per family of commands, each with its arguments and its `run`.

pub(crate) mod autorate;
pub(crate) mod bench;
pub(crate) mod calc;
pub(crate) mod compare;
pub(crate) mod config;
pub(crate) mod confirm;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod import;
pub(crate) mod lab;
pub(crate) mod manual;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod shape;
mod status;
pub(crate) mod test;
pub(crate) mod tune;
pub(crate) mod web;

use std::borrow::Cow;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use sqm_process::failure::Failure;
use sqm_process::output;
use sqm_process::printable::printable;

/// Smart Queue Management for any Linux machine: ends bufferbloat, and proves it.
#[derive(Parser)]
#[command(name = "sqm", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Autorate(autorate::Args),
    Bench(bench::Args),
    Calc(calc::Args),
    Confirm(confirm::Confirm),
    Compare(compare::Args),
    Completions(manual::Completions),
    Daemon(daemon::Args),
    Doctor(doctor::Args),
    Import(import::Args),
    Lab(lab::Args),
    Manual(manual::Manual),
    Plan(plan::Args),
    Reload(shape::Reload),
    Replay(replay::Args),
    Report(report::Args),
    Serve(serve::Args),
    Setup(setup::Args),
    Start(shape::Start),
    Status(shape::Status),
    Stop(shape::Stop),
    Test(Box<test::Args>),
    Tune(tune::Args),
    Verify(shape::Verify),
    Web(web::Args),
}

/// Prints what clap has to say: a mistake in the arguments, or the help that was asked for.
pub(crate) fn explain(said: &clap::Error) -> ExitCode {
    let code = u8::try_from(said.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    let text = said.render().to_string();
    match (printable(&text), said.use_stderr()) {
        // It quotes arguments with control characters: without colours.
        (Cow::Owned(text), true) => err!("{text}"),
        (Cow::Owned(text), false) => out!("{text}"),
        // Nobody can be told that standard error failed.
        (Cow::Borrowed(_), true) => drop(said.print()),
        (Cow::Borrowed(_), false) => drop(said.print().map_err(output::remember)),
    }
    output::conclude(code, true)
}

impl Cli {
    /// Whether a command is of no use if its output cannot be written. The others change something, or serve.
    pub(crate) fn is_output_its_product(&self) -> bool {
        match &self.command {
            Command::Confirm(_)
            | Command::Daemon(_)
            | Command::Manual(_)
            | Command::Reload(_)
            | Command::Serve(_)
            | Command::Start(_)
            | Command::Stop(_)
            | Command::Web(_) => false,
            Command::Doctor(args) => !args.changes_something(),
            Command::Import(args) => !args.changes_something(),
            Command::Lab(args) => !args.changes_something(),
            Command::Report(args) => args.is_printed(),
            Command::Setup(args) => !args.changes_something(),
            Command::Tune(args) => !args.changes_something(),
            Command::Autorate(_)
            | Command::Bench(_)
            | Command::Calc(_)
            | Command::Compare(_)
            | Command::Completions(_)
            | Command::Plan(_)
            | Command::Replay(_)
            | Command::Status(_)
            | Command::Test(_)
            | Command::Verify(_) => true,
        }
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Autorate(args) => args.run(),
            Command::Bench(args) => args.run(),
            Command::Calc(args) => args.run(),
            Command::Confirm(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Daemon(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::Import(args) => args.run(),
            Command::Lab(args) => args.run(),
            Command::Manual(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Reload(args) => args.run(),
            Command::Replay(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Serve(args) => args.run(),
            Command::Setup(args) => args.run(),
            Command::Start(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Stop(args) => args.run(),
            Command::Test(args) => args.run(),
            Command::Tune(args) => args.run(),
            Command::Verify(args) => args.run(),
            Command::Web(args) => args.run(),
        }
    }
}
