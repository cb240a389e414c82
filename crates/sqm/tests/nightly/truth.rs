//! Figures of `sqm test` where a single run says little.

use crate::lab::truth::{Row, compare, row};

const CHAOTIC_ROWS: [Row; 6] = [
    row("up1m", "none", 11.59, 0.60, 413.0),
    row("up1m", "recipe", 11.67, 0.60, 22.4),
    row("up1m", "simplest", 11.75, 0.59, 23.5),
    row("up1m", "piece_of_cake", 11.88, 0.59, 23.3),
    row("cable24", "none", 20.68, 3.88, 1269.0),
    row("vdsl80", "none", 53.90, 17.49, 474.0),
];

const STEADY_ROWS: [Row; 4] = [
    row("cable24", "simplest", 22.45, 3.60, 67.0),
    row("vdsl80", "recipe", 72.25, 16.57, 20.4),
    row("vdsl80", "simplest", 71.41, 16.03, 20.4),
    row("vdsl80", "piece_of_cake", 71.41, 16.05, 20.4),
];

#[test]
fn measured_latency_and_goodput_of_steady_queues_agree_with_the_truth() {
    compare(&STEADY_ROWS, 1);
}

#[test]
fn mean_latency_and_goodput_of_several_runs_agree_with_the_truth() {
    compare(&CHAOTIC_ROWS, 6);
}
