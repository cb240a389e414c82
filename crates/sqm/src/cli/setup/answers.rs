//! Questions at the terminal.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::anyhow;
use sqm_process::failure::Failure;
use sqm_process::output;

/// True if there is a person to ask.
pub(super) fn has_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks until the answer is valid. An empty answer accepts the proposal, or goes to `parse` if there is none.
pub(super) fn ask<T>(
    question: &str,
    proposal: Option<&str>,
    flag: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    if !has_terminal() {
        return Err(Failure::Usage(anyhow!(
            "{question} is missing and standard input is not a terminal: give {flag}"
        )));
    }
    loop {
        match proposal {
            Some(proposal) => out!("{question} [{proposal}]: "),
            None => out!("{question}: "),
        }
        if output::stdout().flush().is_err() || output::is_lost() {
            return Err(Failure::Usage(anyhow!(
                "{question} is missing and cannot be asked for, because standard output cannot be written: give \
                 {flag}"
            )));
        }
        let Some(answer) = line()? else {
            return Err(Failure::Usage(anyhow!("no answer; nothing was changed")));
        };
        match parse(&answer) {
            Ok(answer) => return Ok(answer),
            Err(why) => outln!("{why}"),
        }
    }
}

/// Asks a question with two answers. `usual` is the answer to Enter, `at_end` that to the end of the input.
pub(super) fn confirm(question: &str, usual: bool, at_end: bool) -> Result<bool, Failure> {
    let choices = if usual { "Y/n" } else { "y/N" };
    loop {
        out!("{question} [{choices}] ");
        output::stdout().flush()?;
        let Some(answer) = line()? else {
            return Ok(at_end);
        };
        match answer.to_lowercase().as_str() {
            "" => return Ok(usual),
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => outln!("type y or n"),
        }
    }
}

/// A line without the blanks around it. `None` at the end of the input.
fn line() -> Result<Option<String>, Failure> {
    let mut answer = String::new();
    let length = std::io::stdin().lock().read_line(&mut answer)?;
    Ok((length > 0).then(|| answer.trim().to_owned()))
}
