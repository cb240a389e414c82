//! Former names of commands. Each fails with a message that names the new command.

use anyhow::anyhow;
use clap::Subcommand;
use sqm_process::Failure;

/// A command that was renamed, with its arguments.
#[derive(Subcommand)]
pub(super) enum Command {
    #[command(hide = true, disable_help_flag = true)]
    Lab(Words),
    #[command(hide = true, disable_help_flag = true)]
    Bench(Words),
    #[command(hide = true, disable_help_flag = true)]
    Report(Words),
}

#[derive(clap::Args)]
pub(super) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Command {
    /// The error that names the new command.
    pub(super) fn answer(&self) -> Failure {
        let (old, new, words) = match self {
            Self::Lab(words) => ("lab", "sqm-lab", words),
            Self::Bench(words) => ("bench", "sqm-lab bench", words),
            Self::Report(words) => ("report", "sqm bugreport", words),
        };
        let all: Vec<&str> = [new]
            .into_iter()
            .chain(words.words.iter().map(String::as_str))
            .collect();
        Failure::Usage(anyhow!("'sqm {old}' was renamed: run '{}'", all.join(" ")))
    }
}
