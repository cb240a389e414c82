//! Pictures of results. Pure.

use crate::result::TestResult;

/// Download, upload and latency over time.
pub fn rrul(_result: &TestResult) -> String {
    String::new()
}
