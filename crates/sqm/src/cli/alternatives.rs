//! The arguments that may be given in place of a missing one. clap's message names the missing one only.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// A sentence with the alternatives to the missing arguments, if there are any. `words` are those of the command line.
pub(crate) fn alternatives(
    command: &Command,
    words: impl Iterator<Item = OsString>,
    error: &Error,
) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let mut command = command;
    for word in words {
        command = command.find_subcommand(&word).unwrap_or(command);
    }
    let argument = command
        .get_arguments()
        .find(|one| missing.contains(&one.to_string()))?;
    let others = command.get_arg_conflicts_with(argument);
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    match others.is_empty() {
        true => None,
        false => Some(format!("In place of {argument} give {}", others.join(" or "))),
    }
}
