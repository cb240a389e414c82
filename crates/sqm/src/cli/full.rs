//! Commands that a router does without: the server of tests, tune, the page, replays, and what makes a package. They are compiled with the feature `full` only.

use std::process::ExitCode;

use clap::Subcommand;
use sqm_process::Failure;

use super::{autorate, calc, compare, manual, replay, serve, tune, web};

#[derive(Subcommand)]
#[command(defer = true)]
pub(super) enum Command {
    Autorate(autorate::Args),
    Calc(calc::Args),
    Compare(compare::Args),
    Completions(manual::Completions),
    Manual(manual::Manual),
    Replay(replay::Args),
    Serve(serve::Args),
    Tune(tune::Args),
    Web(web::Args),
}

impl Command {
    pub(super) fn is_output_its_product(&self) -> bool {
        match self {
            Self::Manual(_) | Self::Serve(_) | Self::Web(_) => false,
            Self::Tune(args) => !args.changes_something(),
            Self::Autorate(_) | Self::Calc(_) | Self::Compare(_) | Self::Completions(_) | Self::Replay(_) => {
                true
            }
        }
    }

    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Autorate(args) => args.run(),
            Self::Calc(args) => args.run(),
            Self::Compare(args) => args.run(),
            Self::Completions(args) => args.run(),
            Self::Manual(args) => args.run(),
            Self::Replay(args) => args.run(),
            Self::Serve(args) => args.run(),
            Self::Tune(args) => args.run(),
            Self::Web(args) => args.run(),
        }
    }
}
