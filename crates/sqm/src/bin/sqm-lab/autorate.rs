//! `sqm-lab autorate`: works with the controllers of `option autorate`.

mod bench;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;

use sqm_process::failure::Failure;

/// Compare controllers of rates in virtual time
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(Box<bench::Args>),
}

/// `autorate-bench`, as the bench was called before.
#[derive(clap::Args)]
pub(super) struct FormerName {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Bench(args) => args.run(),
        }
    }
}

impl FormerName {
    /// The error that names the new command.
    pub(super) fn answer(&self) -> Failure {
        let words = self.words.join(" ");
        Failure::Usage(anyhow!(
            "'sqm-lab autorate-bench' was renamed: run 'sqm-lab autorate bench {words}'"
        ))
    }
}
