//! A process of the program: its exit codes, its standard streams, the files that its user names, its children and its limits.
//!
//! Standard output may be closed or full, and what others wrote may hold control characters. [`out!`], [`outln!`], [`err!`] and
//! [`errln!`] bear both; the program prints by nothing else.
#![forbid(unsafe_code)]
// Standard output may be closed or full: the macros of `sqm_process` can bear that.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod child;
pub mod descriptors;
pub mod failure;
pub mod output;
pub mod printable;
pub mod user;
pub mod written;

pub use failure::Failure;
