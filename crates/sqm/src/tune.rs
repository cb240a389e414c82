//! Finding the rates of a line: the highest at which the latency that load adds stays within a target.
//!
//! [`search`] decides and knows nothing of the machine; [`line`] changes the shaper's rates under a running load and looks at
//! the latency.

pub(crate) mod line;
pub(crate) mod search;
