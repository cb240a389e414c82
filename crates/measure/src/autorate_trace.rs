//! The logs that `sqm daemon` writes with `option autorate_log`, and those of cake-autorate: [`read`] takes one line by line, [`Recording`]
//! computes figures from it.

mod cake_autorate;
mod reader;
mod summary;

pub use cake_autorate::PROGRAM as CAKE_AUTORATE;
pub use reader::{ReadError, TruncatedLine, is_trace, read, read_from};
#[cfg(test)]
pub(crate) use summary::tests::example;
pub use summary::{DelayFigures, DirectionFigures, Figures, Moment, ProbeOutcome, Recording};
