//! Faults at every step of every setup script.

use crate::lab::faults::{kill_at_each, refuse_each_step, restore_by_hand, start_with_damaged_files};

const SETUP_SCRIPTS: [&str; 8] = [
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
fn an_error_at_any_step_of_any_setup_script_is_rolled_back() {
    refuse_each_step(&SETUP_SCRIPTS);
}

#[test]
fn after_kill_9_at_any_point_start_and_stop_succeed() {
    kill_at_each(1);
}

#[test]
fn two_hundred_damaged_files_are_planned_alike_or_refused() {
    start_with_damaged_files(200);
}

#[test]
fn stop_restores_any_queues_that_were_set_by_hand() {
    restore_by_hand(1);
}
