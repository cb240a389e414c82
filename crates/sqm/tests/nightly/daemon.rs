//! The daemon after very many events, and with very many interfaces.

use crate::lab::daemon::{
    all_are_released, events_leave_memory_and_descriptors, kill_the_daemon, remove_and_make_again,
};

#[test]
fn a_thousand_events_leave_memory_and_descriptors_as_they_were() {
    events_leave_memory_and_descriptors(334);
}

#[test]
fn a_daemon_that_ends_releases_very_many_interfaces() {
    all_are_released(200, 1000);
}

#[test]
fn a_device_recreated_a_hundred_times_under_load_is_shaped() {
    remove_and_make_again(100);
}

#[test]
fn kill_9_of_the_daemon_at_any_point_leaves_the_line_shaped() {
    kill_the_daemon(10, 1);
}
