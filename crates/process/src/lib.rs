//! The needs of every process of the program: exit codes, standard streams, the files that a user names for output, child
//! processes, and limits.
//!
//! Standard output may be closed or full, and text from elsewhere may contain control characters. The macros [`out!`],
//! [`outln!`], [`err!`] and [`errln!`] handle both; all code of the program prints with them.
#![forbid(unsafe_code)]
// Standard output may be closed or full, which the macros of `sqm_process` handle.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod child;
pub mod colour;
pub mod descriptors;
pub mod failure;
pub mod logging;
pub mod output;
pub mod output_file;
pub mod printable;
pub mod user;

pub use failure::Failure;
