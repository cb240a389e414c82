//! The logs that `sqm daemon` writes with `option autorate_log`: [`read`] takes one line by line, [`Recording`] computes figures from it.

mod reader;
mod summary;

pub use reader::{ReadError, TruncatedLine, is_trace, read, read_from};
#[cfg(test)]
pub(crate) use summary::tests::example;
pub use summary::{DelayFigures, DirectionFigures, Figures, Moment, ProbeOutcome, Recording};
