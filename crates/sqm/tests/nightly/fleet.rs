//! A router of a fleet whose daemon is killed, one whose hub is away, and twenty routers in roll-outs.

use crate::lab::fleet::roll_outs;
use crate::lab::fleet_kill::{kill_the_daemon, start_without_the_hub};

#[test]
fn kill_9_of_the_daemon_at_ten_points_of_a_trial_loses_no_document() {
    kill_the_daemon(&["0", "0.1", "0.3", "0.7", "1", "2", "10", "19.9", "20.2", "21"]);
}

#[test]
fn after_an_hour_without_the_hub_a_router_starts_as_last_told() {
    start_without_the_hub(3600);
}

#[test]
fn a_bad_document_halts_at_two_of_twenty_routers_and_a_good_one_reaches_all() {
    roll_outs(20, &["r1", "r10"]);
}
