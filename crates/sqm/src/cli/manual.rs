//! `sqm manual` and `sqm completions`: generate the man pages and completions that packages ship, from the
//! description of the command line.

mod configuration;
mod page;
mod roff;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

use super::completion;
use super::{Cli, described, with_exit_codes};
use crate::Program as _;
use sqm_process::failure::Failure;
use sqm_process::output_file;

/// Write the manual pages into a folder: sqm.8, sqm-start.8 and so on, and sqm.conf.5 about the configuration.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mkdir pages && sqm manual pages
  man pages/sqm.8
  man pages/sqm.conf.5")]
pub(crate) struct Manual {
    /// An existing folder.
    folder: PathBuf,
}

/// Print a script with which a shell completes commands, options, their values, and the names of interfaces.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm completions bash >/etc/bash_completion.d/sqm
  sqm completions fish >~/.config/fish/completions/sqm.fish")]
pub(crate) struct Completions {
    shell: Shell,
}

impl Manual {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut command = with_exit_codes(described::<Cli>());
        command.build();
        let top = page::name(&command);
        output_file::write(&self.folder.join("sqm.conf.5"), configuration::page())?;
        write(&command, &[], &self.folder)?;
        for below in page::shown(&command) {
            let name = below.get_name();
            let group = Cli::GROUPS.iter().find(|(_, names)| names.contains(&name));
            let neighbours = group.into_iter().flat_map(|(_, names)| names.iter());
            let neighbours =
                neighbours.filter(|other| **other != name && command.find_subcommand(other).is_some());
            let related = neighbours.map(|other| format!("{top}-{other}"));
            write_with_commands(below, &top, related.collect(), &self.folder)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the pages of a command and of those below it. `parent` is the page of the command above.
fn write_with_commands(
    command: &Command,
    parent: &str,
    related: Vec<String>,
    folder: &Path,
) -> Result<(), Failure> {
    let related: Vec<String> = [parent.to_owned()].into_iter().chain(related).collect();
    write(command, &related, folder)?;
    let name = page::name(command);
    page::shown(command).try_for_each(|below| {
        let neighbours = page::shown(command).filter(|other| other.get_name() != below.get_name());
        write_with_commands(below, &name, neighbours.map(page::name).collect(), folder)
    })
}

fn write(command: &Command, related: &[String], folder: &Path) -> Result<(), Failure> {
    let path = folder.join(format!("{}.8", page::name(command)));
    output_file::write(&path, page::page(command, related))?;
    Ok(())
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        completion::write_script(&self.shell.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}
