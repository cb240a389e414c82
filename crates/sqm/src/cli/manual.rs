//! `sqm manual` and `sqm completions`: generate the man pages and completions that packages ship, from the
//! description of the command line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use sqm_process::failure::Failure;
use sqm_process::output;
use sqm_process::output_file;

/// Write the manual pages (sqm.8, sqm-start.8 and so on) into a folder.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm manual /tmp/pages && man /tmp/pages/sqm.8")]
pub(crate) struct Manual {
    /// An existing folder.
    folder: PathBuf,
}

/// Print a shell's completions for commands and options.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm completions bash >/etc/bash_completion.d/sqm
  sqm completions fish >~/.config/fish/completions/sqm.fish")]
pub(crate) struct Completions {
    shell: Shell,
}

impl Manual {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut command = Cli::command();
        command.build();
        write_pages(&command, &self.folder)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a page for the command and for each of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> Result<(), Failure> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let path = folder.join(format!("{name}.8"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name)
        .section("8")
        .render(&mut page)
        .context("writing a page")?;
    output_file::write(&path, page)?;
    let shown = |below: &&Command| !below.is_hide_set() && below.get_name() != "help";
    command
        .get_subcommands()
        .filter(shown)
        .try_for_each(|below| write_pages(below, folder))
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        // Generated into memory: `clap_complete` panics if it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "sqm", &mut script);
        output::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
