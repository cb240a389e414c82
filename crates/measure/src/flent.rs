//! Flent's result files (`.flent.gz`, format version 4): written so that Flent opens and plots them, read in versions
//! 1 to 4 whoever wrote them. Pure; [`crate::file`] does the compression.
//!
//! A file is one JSON object. `raw_values` holds every sample of every series with its absolute time, `results` the same
//! series on one grid of times `x_values`, `metadata` the circumstances. Flent measures nothing finer than that, so a
//! result of ours stands in `metadata` under [`OWN_KEY`] once more and complete; Flent keeps such a key, and reading
//! the file gives back exactly what was written.

mod read;
mod write;

pub use read::from_json;
pub(crate) use read::from_json_within;
pub use write::{file_name, to_json};

/// Where our own result is in Flent's metadata.
pub const OWN_KEY: &str = "SQM";
/// Version of the format that is written, and the newest that is read.
pub const VERSION: u64 = 4;
/// Flent cuts this many seconds off both ends for its distributions, unless told otherwise on its command line; a
/// file does not say how long its idle phases are.
pub const DELAY_S: f64 = 5.0;

#[cfg(test)]
mod tests;
