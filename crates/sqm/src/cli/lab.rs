//! `sqm lab`.

use std::process::ExitCode;

use crate::failure::Failure;

/// A virtual home network on a real kernel, to try settings in; needs no privileges.
#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        Ok(ExitCode::SUCCESS)
    }
}
