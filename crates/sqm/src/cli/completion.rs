//! Completion in a shell: of commands, options and their values, and of the names of this machine's interfaces.
//!
//! The scripts of `sqm completions` ask this program at each TAB, because only the program knows which interfaces there are.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Command, CommandFactory as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe;
use sqm_process::output;

use super::{Cli, described};

/// The variable with which a script asks. Its value is the name of the shell.
const VARIABLE: &str = "SQM_COMPLETE";

/// The names of the interfaces that can be shaped, for an argument.
pub(super) fn interfaces() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let begun = begun.to_string_lossy();
        let names = links().into_iter().filter(Link::leads_out).map(|link| link.name);
        let mut names: Vec<String> = names.filter(|name| name.starts_with(&*begun)).collect();
        names.sort();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The interfaces of this machine; none if the kernel does not answer, because a completion has no place for errors.
fn links() -> Vec<Link> {
    Socket::open()
        .ok()
        .and_then(|mut socket| observe::links(&mut socket).ok())
        .unwrap_or_default()
}

/// Answers the script of a shell. `None` if this process was not started by one.
pub(crate) fn answer() -> Option<ExitCode> {
    let folder = std::env::current_dir().ok();
    let complete = CompleteEnv::with_factory(described::<Cli>).var(VARIABLE);
    match complete.try_complete(std::env::args_os(), folder.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(error) => Some(super::explain(&error, None)),
    }
}

/// Writes the script of a shell.
pub(super) fn write_script(shell: &str) -> io::Result<()> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells
        .completer(shell)
        .ok_or_else(|| io::Error::other("the shell is unknown"))?;
    let name = Command::get_name(&Cli::command()).to_owned();
    shell.write_registration(VARIABLE, &name, &name, &name, &mut script)?;
    if shell.name() == "zsh" {
        // zsh loads the script at the first TAB, as the function that shall complete already then.
        script.extend(ZSH_FIRST_CALL.as_bytes());
    }
    output::stdout().write_all(&script)
}

const ZSH_FIRST_CALL: &str =
    "if [ \"$funcstack[1]\" = \"_sqm\" ]; then _clap_dynamic_completer_sqm \"$@\"; fi\n";
