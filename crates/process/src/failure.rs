//! Why a command ended without success, and the exit code that tells a script so.

use std::fmt;
use std::process::ExitCode;

use crate::{errln, output};

/// A failed command. The number after each variant is the exit code.
#[derive(Debug)]
pub enum Failure {
    /// 1: it was tried and did not work; everything is as it was before.
    Failed(anyhow::Error),
    /// 2: the request itself is wrong: arguments, configuration.
    Usage(anyhow::Error),
    /// 3: needs privileges that this process lacks.
    Privileges(anyhow::Error),
    /// 4: this machine or kernel cannot do it.
    Unsupported(anyhow::Error),
}

impl Failure {
    /// Prints the message with its causes on standard error and answers the exit code.
    pub fn report(&self) -> ExitCode {
        let (Self::Failed(error) | Self::Usage(error) | Self::Privileges(error) | Self::Unsupported(error)) =
            self;
        // The end of the program tells of that, if there is something to tell.
        if output::is_origin_of(error) {
            return ExitCode::SUCCESS;
        }
        errln!("sqm: {self}");
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Privileges(_) => 3,
            Self::Unsupported(_) => 4,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(e) | Self::Usage(e) | Self::Privileges(e) | Self::Unsupported(e)) = self;
        write!(f, "{e:#}")
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// An error of the kernel crate decides the exit code; any other one is a failure.
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
