//! The manual page of a command, from its description for clap.

use clap::{Arg, Command};

use super::roff::{Page, bold, escape, italic};
use crate::cli::exit_codes::HEADING;

/// The page of a command. `related` are the names of further pages, such as `sqm-stop`.
pub(super) fn page(command: &Command, related: &[String]) -> String {
    let name = name(command);
    let mut page = Page::new(&name, 8);
    page.section("Name");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.line(&format!(
        "{} \\- {}",
        escape(&name),
        escape(about.trim_end_matches('.'))
    ));
    page.section("Synopsis");
    page.line(&synopsis(command));
    page.section("Description");
    let long = command.get_long_about().or_else(|| command.get_about());
    page.paragraph(&long.map(ToString::to_string).unwrap_or_default());
    arguments(&mut page, command);
    commands(&mut page, command);
    let after = command
        .get_after_long_help()
        .or_else(|| command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let after = After::of(&after);
    if !after.examples.is_empty() {
        page.section("Examples");
        page.verbatim(after.examples.iter().copied());
    }
    page.section("Exit status");
    page.paragraph(&after.exit_codes);
    files(&mut page, command);
    page.section("See also");
    let others = related.iter().map(|name| format!("{}(8)", bold(name)));
    let others: Vec<String> = others.chain([format!("{}(5)", bold("sqm.conf"))]).collect();
    page.line(&others.join(",\n"));
    page.finish()
}

/// The name of the command's page.
pub(super) fn name(command: &Command) -> String {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned()
}

/// The commands below one that have a page.
pub(super) fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

/// The parts of the text that follows a command's options in its help.
#[derive(Debug, PartialEq)]
struct After<'a> {
    examples: Vec<&'a str>,
    exit_codes: String,
}

impl<'a> After<'a> {
    fn of(text: &'a str) -> Self {
        let examples = text.lines().filter_map(|line| line.strip_prefix("  "));
        let exit_codes = text.split_once(HEADING).map_or("", |(_, codes)| codes);
        let mut exit_codes = exit_codes.trim().replace('\n', " ");
        if !exit_codes.ends_with('.') {
            exit_codes.push('.');
        }
        Self {
            examples: examples.collect(),
            exit_codes,
        }
    }
}

fn synopsis(command: &Command) -> String {
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        visible(command).partition(|argument| argument.is_positional());
    let spoken = name(command).replace('-', " ");
    let spoken = match command.get_bin_name() {
        Some(name) => name.to_owned(),
        None => spoken,
    };
    let words = [bold(&spoken)].into_iter();
    let words = words.chain(options.into_iter().chain(positional).map(in_synopsis));
    let below = shown(command).next().map(|_| italic("COMMAND"));
    words.chain(below).collect::<Vec<String>>().join("\n")
}

fn visible(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !argument.is_hide_set())
}

fn in_synopsis(argument: &Arg) -> String {
    let flag = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => bold(&format!("--{long}")),
        (None, Some(short)) => bold(&format!("-{short}")),
        (None, None) => String::new(),
    };
    let words = [flag, values(argument)];
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.is_empty())
        .collect();
    match argument.is_required_set() {
        true => words.join(" "),
        false => format!("[{}]", words.join(" ")),
    }
}

/// The names of an argument's values, with dots if it takes more.
fn values(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let range = argument.get_num_args().unwrap_or_default();
    let names = match argument.get_value_names() {
        Some(names) => names.iter().map(ToString::to_string).collect(),
        None => vec![argument.get_id().to_string().to_uppercase()],
    };
    let mut text = names
        .iter()
        .map(|name| italic(name))
        .collect::<Vec<String>>()
        .join(" ");
    if range.max_values() > names.len() {
        text += " ...";
    }
    match range.min_values() == 0 && !argument.is_positional() {
        true => format!("[{text}]"),
        false => text,
    }
}

fn arguments(page: &mut Page, command: &Command) {
    let mut headings: Vec<&str> = Vec::new();
    for argument in visible(command) {
        let heading = heading(argument);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for title in headings {
        page.section(title);
        for argument in visible(command).filter(|argument| heading(argument) == title) {
            page.entry(&term(argument), &about(argument));
        }
    }
}

fn heading(argument: &Arg) -> &str {
    match argument.is_positional() {
        true => "Arguments",
        false => argument.get_help_heading().unwrap_or("Options"),
    }
}

fn term(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| bold(&format!("-{short}")));
    let long = argument.get_long().map(|long| bold(&format!("--{long}")));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let words = [flags.join(", "), values(argument)];
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

fn about(argument: &Arg) -> String {
    let text = argument.get_long_help().or_else(|| argument.get_help());
    let mut text = text.map(ToString::to_string).unwrap_or_default();
    let possible = argument.get_possible_values();
    let possible: Vec<String> = possible
        .iter()
        .filter(|value| !value.is_hide_set() && argument.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("{} ({help})", value.get_name()),
            None => value.get_name().to_owned(),
        })
        .collect();
    if !possible.is_empty() && !argument.is_hide_possible_values_set() {
        text += &format!("\n\nPossible values: {}.", possible.join(", "));
    }
    let defaults: Vec<&str> = argument
        .get_default_values()
        .iter()
        .filter_map(|value| value.to_str())
        .collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        text += &format!("\n\nDefault: {}.", defaults.join(" "));
    }
    if let Some(variable) = argument.get_env() {
        text += &format!("\n\nEnvironment: {}.", variable.to_string_lossy());
    }
    text
}

fn commands(page: &mut Page, command: &Command) {
    if shown(command).next().is_some() {
        page.section("Commands");
    }
    for below in shown(command) {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        page.entry(&format!("{}(8)", bold(&name(below))), &about);
    }
}

/// The files that a command, or one below it, uses unless an option names others.
fn files(page: &mut Page, command: &Command) {
    let mut found = Vec::new();
    collect_files(command, &mut found);
    if !found.is_empty() {
        page.section("Files");
    }
    for (path, about) in found {
        page.entry(&italic(&path), &about);
    }
}

fn collect_files(command: &Command, found: &mut Vec<(String, String)>) {
    for argument in visible(command) {
        let defaults = argument
            .get_default_values()
            .iter()
            .filter_map(|value| value.to_str());
        for path in defaults.filter(|value| value.starts_with('/')) {
            if found.iter().all(|(other, _)| other != path) {
                let about = argument.get_help().map(ToString::to_string);
                found.push((path.to_owned(), about.unwrap_or_default()));
            }
        }
    }
    for below in shown(command) {
        collect_files(below, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_exit_codes_are_found_in_the_text_after_the_options() {
        let after = After::of("Examples:\n  sqm a\n  sqm b 'c'\n\nExit codes: 0 done,\n1 failed");
        assert_eq!(after.examples, ["sqm a", "sqm b 'c'"]);
        assert_eq!(after.exit_codes, "0 done, 1 failed.");
    }

    #[test]
    fn a_synopsis_has_the_values_of_options() {
        let command = Command::new("sqm")
            .arg(Arg::new("config").long("config").value_name("FILE"))
            .arg(Arg::new("v4").short('4').action(clap::ArgAction::SetTrue))
            .arg(Arg::new("HOST").required(true).num_args(1..));
        let mut command = command.disable_help_flag(true);
        command.build();
        assert_eq!(
            synopsis(&command),
            "\\fBsqm\\fR\n[\\fB\\-\\-config\\fR \\fIFILE\\fR]\n[\\fB\\-4\\fR]\n\\fIHOST\\fR ..."
        );
    }
}
