//! Flent's result files (`.flent.gz`). We write format version 4, which Flent opens and plots, and read versions 1 to 4.
//! Pure; [`crate::file`] does the compression.
//!
//! A file is one JSON object. `raw_values` holds every sample of every series with its absolute time, `results` holds these
//! series on one grid of times `x_values`, and `metadata` holds the circumstances. Our result has more than this format can say.
//! A file of ours therefore also holds the complete result in `metadata` under [`OWN_KEY`]. Flent keeps that key, and reading
//! the file gives back exactly what was written.

mod format;
mod read;
mod write;

pub use format::{DELAY_S, OWN_KEY, VERSION};
pub use read::from_json;
pub(crate) use read::from_json_within;
pub use write::{file_name, to_json};

#[cfg(test)]
mod tests;
