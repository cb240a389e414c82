//! `sqm autorate`: works with the logs of the rate controller.

mod replay;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;
use sqm_process::Failure;

/// Replay and examine the decisions of `option autorate`; needs no privileges.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Replay(replay::Args),
    #[command(hide = true, disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Replay(args) => args.run(),
            Command::Bench { words } => Err(Failure::Usage(anyhow!(
                "'sqm autorate bench' was renamed: run 'sqm-lab autorate bench {}'",
                words.join(" ")
            ))),
        }
    }
}
