//! Groups the list of commands in `--help`. clap itself puts all commands under one heading.

use std::fmt::Write as _;

use clap::Command;

/// Width of the column with command names, characters.
const WIDTH: usize = 12;

/// Replaces the list of commands by one in groups, each a heading with names of commands. Names that this build lacks
/// are left out.
pub(crate) fn grouped(command: Command, groups: &[(&str, &[&str])]) -> Command {
    let mut list = String::new();
    for (heading, names) in groups {
        let present = names.iter().filter_map(|name| command.find_subcommand(name));
        let lines: Vec<String> = present.map(line).collect();
        if !lines.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(list, "{heading}:\n{}\n\n", lines.join("\n"));
        }
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
}

fn line(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let about = about.trim_end_matches('.');
    format!("  {:<WIDTH$}  {about}", command.get_name())
}

#[cfg(test)]
mod tests {
    use crate::{Cli, Program, cli::described};

    #[test]
    fn every_command_is_in_one_group() {
        let command = described::<Cli>();
        for shown in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let name = shown.get_name();
            let groups = Cli::GROUPS.iter().filter(|(_, names)| names.contains(&name));
            assert_eq!(groups.count(), 1, "{name}");
        }
    }
}
