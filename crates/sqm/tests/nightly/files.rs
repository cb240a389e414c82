//! Each file of the daemon in each state, and each kind of damage to a record.

use crate::lab::files::{damaged_records, in_each_state, roll_back_in_each_state};

/// The names that the script of [`in_each_state`] has for them.
const STATES: [&str; 6] = ["full", "read_only", "gone", "fifo", "folder", "dangling"];

#[test]
fn a_line_is_shaped_with_configuration_and_logs_in_each_state() {
    in_each_state(&["config", "before_trial", "learned", "log"], &STATES);
}

#[test]
fn a_line_is_shaped_with_records_and_locks_in_each_state() {
    in_each_state(&["record", "lock", "daemon_lock"], &STATES);
}

#[test]
fn a_line_is_shaped_with_socket_and_search_in_each_state() {
    in_each_state(&["socket", "tune", "secret"], &STATES);
}

#[test]
fn an_interface_whose_record_is_damaged_in_any_way_is_shaped_and_stopped() {
    damaged_records(
        &["best_of_cake", "simple"],
        &["appended", "empty", "random", "another", "folder", "fifo"],
    );
}

#[test]
fn an_unconfirmed_change_is_rolled_back_in_the_kernel_in_every_state_of_the_disk() {
    roll_back_in_each_state(&STATES);
}
