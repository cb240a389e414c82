//! Checks of a result: do its figures describe the line at all? Pure.
//!
//! A figure from a run in which the computer was the bottleneck, or in which the line was never full, is worse than no figure: people
//! believe it. Each check gives [`Finding`](crate::result::Finding)s.

mod run;
mod samples;
#[cfg(feature = "full")]
mod short_files;

pub(crate) use run::run_findings;
pub(crate) use samples::findings;
#[cfg(feature = "full")]
pub(crate) use short_files::short_files;
