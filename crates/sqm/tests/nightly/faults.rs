//! Faults at every step of every set-up.

use crate::lab::faults::{kill_at_each, refuse_each_step, start_with_damaged_files};

const SET_UPS: [&str; 8] = [
    "best_of_cake",
    "piece_of_cake",
    "layer_cake",
    "simple",
    "simplest",
    "simplest_tbf",
    "hfsc_lite",
    "hfsc_litest",
];

#[test]
fn a_refusal_at_any_step_of_any_set_up_leaves_everything_as_it_was() {
    refuse_each_step(&SET_UPS);
}

#[test]
fn after_kill_9_at_any_point_a_start_ends_right_and_a_stop_too() {
    kill_at_each(1);
}

#[test]
fn two_hundred_damaged_files_are_planned_alike_or_refused() {
    start_with_damaged_files(200);
}
