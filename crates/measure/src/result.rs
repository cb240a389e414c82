//! The result of one test: everything that was measured.
//!
//! Times are milliseconds since the load began, so that the idle phase before it has negative times. Bytes are TCP payload, counted
//! where they arrived. A Mbit/s is 10^6 bits per second. Series have the names that Flent gives them, so that a series has
//! the same name in both programs.

mod added;
pub mod direction_word;
mod finding;
mod flow;
pub(crate) mod headline;
mod json;
mod meta;
mod phase_figures;
pub(crate) mod plausibility;
mod probe;
mod settings;
mod summary;
mod test_result;

pub use added::AddedLatency;
pub use finding::{Finding, Severity};
pub use flow::{Flow, Sample, TcpSample, TcpTotals, Transport};
#[cfg(feature = "full")]
pub(crate) use json::MAX_TITLE;
pub use meta::{Clock, Meta};
pub use phase_figures::{Delay, PhaseFigures};
pub use probe::{Probe, ProbeKind, ProbeSeries};
pub use settings::{LoadOrder, Phase, Settings, TAIL_MS};
pub use summary::{DirectionFigures, Latency, ProbeFigures, Summary};
pub use test_result::{Series, TestResult, VERSION};

#[cfg(test)]
pub(crate) mod tests;
