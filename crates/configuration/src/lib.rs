//! The configuration file: reads it with a size limit, parses its text once ([`Parsed`]), edits it ([`Draft`]), replaces it only if
//! it still holds the text that the writer has read, and knows whether a change waits for its confirmation.
#![forbid(unsafe_code)]
// Standard output may be closed or full, which the macros of `sqm_process` handle.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

pub mod applied;
pub mod commit_confirm;
mod draft;
mod file;
pub mod load;
pub mod own_script;
mod parsed;
mod partial;
pub mod rate_override;
pub mod revision;
mod saved_text;
pub mod staged;
pub mod uci_override;
pub mod watchdog;

pub use draft::{Draft, EditError};
pub use file::{MAX_BYTES, put_back, read, read_if_there, replace, write};
pub use parsed::{Invalid, Parsed, parse_and_plan};
pub use partial::{LeftOut, Partial, plan_the_rest, plan_what_can_be_read};
pub use saved_text::{Damaged, SavedText};
