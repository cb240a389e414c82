//! The exit codes at the end of every command's help.

use clap::Command;

/// The first words of the paragraph.
pub(crate) const HEADING: &str = "Exit codes:";

/// For a command that has no paragraph of its own, because it needs no privileges and has no code with a special
/// meaning.
const USUAL: &str = "Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration";

/// Adds the usual exit codes to the help of each command without a paragraph about them.
pub(crate) fn with_exit_codes(command: Command) -> Command {
    let command = command.mut_subcommands(with_exit_codes);
    let text = match command.get_after_help().map(ToString::to_string) {
        None => USUAL.to_owned(),
        Some(text) if text.contains(HEADING) => return command,
        Some(text) => format!("{text}\n\n{USUAL}"),
    };
    command.after_help(text)
}
