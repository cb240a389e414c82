//! The program. All of it is in the library, where fuzz targets can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    sqm::complete().unwrap_or_else(sqm::main::<sqm::Cli>)
}
