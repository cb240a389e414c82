//! Why a command failed, and the exit code for it.

use std::fmt;
use std::process::ExitCode;

use crate::colour::Colour;
use crate::{errln, output};

/// A failed command. The number after each variant is the exit code.
#[derive(Debug)]
pub enum Failure {
    /// 1: the command was tried and failed; everything is as it was before.
    Failed(anyhow::Error),
    /// 2: the arguments or the configuration are wrong.
    Usage(anyhow::Error),
    /// 3: the command needs privileges that this process lacks.
    Privileges(anyhow::Error),
    /// 4: this machine or its kernel does not support what the command needs.
    Unsupported(anyhow::Error),
}

impl Failure {
    /// Prints the message with its causes on standard error and returns the exit code.
    pub fn report(&self) -> ExitCode {
        let (Self::Failed(error) | Self::Usage(error) | Self::Privileges(error) | Self::Unsupported(error)) =
            self;
        // `output::conclude` reports an error of standard output when the program ends.
        if output::caused(error) {
            return ExitCode::SUCCESS;
        }
        output::print_error_in(Colour::Red, format_args!("sqm:"));
        errln!(" {}", without_numbers(&self.to_string()));
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Privileges(_) => 3,
            Self::Unsupported(_) => 4,
        })
    }
}

/// The text without the numbers of the system's errors, such as `(os error 2)`: their words say the same.
pub fn without_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut parts = text.split(BEFORE);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => said + rest,
        _ => said + BEFORE + part,
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(e) | Self::Usage(e) | Self::Privileges(e) | Self::Unsupported(e)) = self;
        write!(f, "{e:#}")
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// The kind of a [`sqm_kernel::Error`] decides the exit code; any other error is a [`Failure::Failed`].
    fn from(error: E) -> Self {
        use sqm_kernel::Error as Kernel;
        let error = error.into();
        match error.downcast_ref() {
            Some(Kernel::Privileges { .. }) => Self::Privileges(error),
            Some(Kernel::Unsupported { .. }) => Self::Unsupported(error),
            Some(Kernel::NoInterface { .. }) => Self::Usage(error),
            _ => Self::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_systems_errors_are_left_out() {
        assert_eq!(
            without_numbers("a: none (os error 2); b (os error 13)"),
            "a: none; b"
        );
        assert_eq!(without_numbers("odd (os error x) y"), "odd (os error x) y");
    }
}
