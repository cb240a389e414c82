//! Files opened, read and replaced in folders that other users may be able to write to.
//!
//! Every program of sqm that keeps something (the record of an interface, the configuration, results, logs, passwords) goes
//! through this crate. It holds four promises:
//!
//! - A symbolic link is followed only if root or the user who runs the program made it ([`Place`]).
//! - Only regular files are read or written, and opening one never blocks: a FIFO or a device is an error.
//! - A file is replaced in one step. A temporary file with a random name takes its place, and file and folder are synced; after
//!   a failure the old file is there and nothing else.
//! - [`replace_if`] loses no text of another writer, whatever program that is.

mod append;
mod aside;
mod error;
mod fresh;
mod lock;
mod place;
mod read;
mod replace;

pub use append::append;
pub use aside::{rename, set_aside, set_aside_irregular};
pub use error::Error;
pub use fresh::Fresh;
pub use lock::Lock;
pub use place::Place;
pub use read::{read, read_if_there};
pub use replace::{create, remove, remove_if, replace, replace_if};
