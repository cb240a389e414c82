//! The command line: one module per family of commands, each with its arguments and its `run`.

mod alternatives;
#[cfg(feature = "full")]
pub(crate) mod autorate;
#[cfg(feature = "full")]
pub(crate) mod calc;
#[cfg(feature = "full")]
pub(crate) mod compare;
#[cfg(feature = "full")]
mod completion;
pub(crate) mod config;
pub(crate) mod confirm;
pub(crate) mod daemon;
pub(crate) mod doctor;
#[cfg(feature = "router")]
mod dscp;
pub(crate) mod duration;
mod exit_codes;
#[cfg(all(feature = "fleet", feature = "full"))]
pub(crate) mod fleet;
pub(crate) mod fleet_check;
#[cfg(feature = "full")]
mod full;
#[cfg(feature = "router")]
mod graded;
mod groups;
pub(crate) mod import;
mod log_level;
#[cfg(feature = "full")]
pub(crate) mod manual;
mod moved;
pub(crate) mod plan;
#[cfg(feature = "full")]
pub(crate) mod replay;
pub(crate) mod report;
#[cfg(feature = "full")]
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod shape;
mod status;
pub mod suggested;
#[cfg(feature = "router")]
pub(crate) mod test;
#[cfg(feature = "full")]
pub(crate) mod tune;
#[cfg(feature = "full")]
pub(crate) mod web;

use std::borrow::Cow;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub(crate) use alternatives::alternatives;
#[cfg(feature = "full")]
pub(crate) use completion::answer as complete;
pub(crate) use exit_codes::with_exit_codes;
pub(crate) use groups::grouped;

use sqm_process::failure::Failure;
use sqm_process::output;
use sqm_process::printable::printable;

/// Smart Queue Management for any Linux machine: ends bufferbloat, and proves it.
#[derive(Parser)]
#[command(name = "sqm", version, max_term_width = 110)]
#[command(after_help = "Examples:
  sudo sqm setup                 set up a line and shape it
  sqm test server.example        measure latency under load
  sudo sqm tune server.example   find the best rates
  sqm doctor                     find faults

Documentation: the manual pages sqm(8) and sqm.conf(5), and the guide,
/usr/share/doc/sqm/guide/README.md (docs/guide in the source)

Exit codes: 0 done, 1 failed (the previous state is restored) or something was found, 2 wrong arguments or
configuration, 3 needs root, 4 not supported on this machine")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[command(defer = true)]
enum Command {
    Confirm(confirm::Confirm),
    Daemon(daemon::Args),
    Doctor(doctor::Args),
    #[cfg(all(feature = "fleet", feature = "full"))]
    Fleet(fleet::Args),
    #[command(name = "fleet-check")]
    FleetCheck(fleet_check::Args),
    Import(import::Args),
    Plan(plan::Args),
    Reload(shape::Reload),
    #[command(name = "bugreport")]
    BugReport(report::Args),
    Setup(setup::Args),
    Start(shape::Start),
    Status(shape::Status),
    Stop(shape::Stop),
    #[cfg(feature = "router")]
    Test(Box<test::Args>),
    Verify(shape::Verify),
    #[command(name = sqm_configuration::watchdog::COMMAND, hide = true)]
    Watchdog(confirm::Watchdog),
    #[cfg(feature = "full")]
    #[command(flatten)]
    Full(full::Command),
    #[command(flatten)]
    Moved(moved::Command),
}

/// The description of a program with that of each command. [`clap::CommandFactory::command`] leaves the latter for the time when a
/// command is run, because describing all of them takes longer than most commands do.
pub(crate) fn described<P: crate::Program>() -> clap::Command {
    let mut built = P::command();
    built.build();
    P::command().mut_subcommands(|command| match built.find_subcommand(command.get_name()) {
        Some(described) => described.clone(),
        None => command,
    })
}

/// Prints clap's message, an error in the arguments or the requested help, and returns its exit code. `hint` follows an error.
pub(crate) fn explain(said: &clap::Error, hint: Option<&str>) -> ExitCode {
    let code = u8::try_from(said.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    let text = said.render().to_string();
    match (printable(&text), said.use_stderr()) {
        // The text quotes arguments with control characters, which have been escaped. It is printed without colours.
        (Cow::Owned(text), true) => err!("{text}"),
        (Cow::Owned(text), false) => out!("{text}"),
        // An error on standard error cannot be reported anywhere.
        (Cow::Borrowed(_), true) => drop(said.print()),
        (Cow::Borrowed(_), false) => drop(said.print().map_err(output::remember)),
    }
    if let Some(hint) = hint {
        errln!("{}", printable(hint));
    }
    output::conclude(code, true)
}

impl crate::Program for Cli {
    const GROUPS: &'static [(&'static str, &'static [&'static str])] = &[
        ("Set up", &["setup", "import", "calc"]),
        (
            "Shape",
            &["plan", "start", "confirm", "reload", "stop", "status", "verify"],
        ),
        ("Run and watch", &["daemon", "web", "doctor", "bugreport"]),
        ("Measure", &["test", "serve", "tune", "compare"]),
        ("Many routers", &["fleet", "fleet-check"]),
        ("Replay and examine", &["replay", "autorate"]),
        ("Package", &["manual", "completions"]),
    ];

    fn is_output_its_product(&self) -> bool {
        match &self.command {
            Command::Confirm(_)
            | Command::Daemon(_)
            | Command::Reload(_)
            | Command::Start(_)
            | Command::Stop(_)
            | Command::Watchdog(_)
            | Command::Moved(_) => false,
            Command::Doctor(args) => !args.changes_something(),
            Command::Import(args) => !args.changes_something(),
            Command::BugReport(args) => args.is_printed(),
            Command::Setup(args) => !args.changes_something(),
            #[cfg(all(feature = "fleet", feature = "full"))]
            Command::Fleet(args) => args.is_output_its_product(),
            Command::FleetCheck(_) | Command::Plan(_) | Command::Status(_) | Command::Verify(_) => true,
            #[cfg(feature = "router")]
            Command::Test(_) => true,
            #[cfg(feature = "full")]
            Command::Full(command) => command.is_output_its_product(),
        }
    }

    fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Confirm(args) => args.run(),
            Command::Daemon(args) => args.run(),
            Command::Doctor(args) => args.run(),
            #[cfg(all(feature = "fleet", feature = "full"))]
            Command::Fleet(args) => args.run(),
            Command::FleetCheck(args) => args.run(),
            Command::Import(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Reload(args) => args.run(),
            Command::BugReport(args) => args.run(),
            Command::Setup(args) => args.run(),
            Command::Start(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Stop(args) => args.run(),
            #[cfg(feature = "router")]
            Command::Test(args) => args.run(),
            Command::Verify(args) => args.run(),
            Command::Watchdog(args) => args.run(),
            #[cfg(feature = "full")]
            Command::Full(command) => command.run(),
            Command::Moved(command) => Err(command.answer()),
        }
    }
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use clap::ArgAction;

    use super::*;

    /// Files may have commas in their names, and two rates are one value.
    #[test]
    fn every_option_that_takes_a_list_takes_it_with_commas() {
        let mut commands = vec![described::<Cli>()];
        let mut lists = 0;
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let options = command.get_arguments().filter(|argument| {
                let names = argument.get_value_names().unwrap_or_default();
                let is_file = names.iter().any(|name| name.as_str() == "FILE");
                let is_list = matches!(argument.get_action(), ArgAction::Append);
                is_list && !argument.is_positional() && !argument.is_hide_set() && !is_file && names.len() < 2
            });
            for option in options {
                lists += 1;
                let (name, delimiter) = (command.get_name(), option.get_value_delimiter());
                assert_eq!(delimiter, Some(','), "{name}: {option}");
            }
        }
        assert!(lists >= 5, "{lists}");
    }
}
