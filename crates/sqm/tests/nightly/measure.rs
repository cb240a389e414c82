//! Sweeps of lines that are too fast for every change.

use crate::lab::measure::{assert_near, ethernet, number, sweep};

#[test]
fn a_sweep_finds_rate_and_overhead_at_80_mbit() {
    let (fit, advice) = sweep(&ethernet(80_000, 40_000), &["--up", "0"], (80.0, 0.005));
    assert_eq!(fit["framing"], "packets");
    assert_near("bytes per packet", number(&fit["bytes"]), 66.0, 3.0);
    assert!(advice.contains("unnecessarily; set overhead 1"), "{advice}");
}
