//! Commands beyond shaping: measurement, tune, web UI, replay. They are compiled with the feature `full` only.

use std::process::ExitCode;

use clap::Subcommand;
use sqm_process::Failure;

use super::{autorate, compare, replay, serve, test, tune, web};

#[derive(Subcommand)]
pub(super) enum Command {
    Autorate(autorate::Args),
    Compare(compare::Args),
    Replay(replay::Args),
    Serve(serve::Args),
    Test(Box<test::Args>),
    Tune(tune::Args),
    Web(web::Args),
}

impl Command {
    pub(super) fn is_output_its_product(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Web(_) => false,
            Self::Tune(args) => !args.changes_something(),
            Self::Autorate(_) | Self::Compare(_) | Self::Replay(_) | Self::Test(_) => true,
        }
    }

    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Autorate(args) => args.run(),
            Self::Compare(args) => args.run(),
            Self::Replay(args) => args.run(),
            Self::Serve(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Tune(args) => args.run(),
            Self::Web(args) => args.run(),
        }
    }
}
