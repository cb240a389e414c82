//! The program; all of it is in the library, where fuzz targets reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    sqm::main::<sqm::Cli>()
}
