//! Opens, reads and replaces files safely in folders to which other users may be able to write.
//!
//! Every part of sqm that stores something (the record of an interface, the configuration, results, logs, passwords) uses
//! this crate. It gives four guarantees:
//!
//! - A symbolic link is followed only if it belongs to root or to the user who runs the program ([`Place`]).
//! - Only regular files are read or written, and opening one never blocks: a FIFO or a device is an error.
//! - A file is replaced atomically: a temporary file with a random name is renamed to it, and file and folder are synced. After
//!   a failure the old file is unchanged, and no other file is left behind.
//! - [`replace_if`] never loses the text of another writer, whatever program that is.

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
