//! Fairness between hosts behind NAT, on every line.

use sqm_lab::{Clock, Line};

use crate::lab::shared::{home, start, start_by_hand};
use crate::lab::traffic::{CABLE, LINES, judge_shares, reload_under_load, shares};

#[test]
fn hosts_behind_nat_get_equal_shares_on_every_line() {
    for shared in &LINES {
        judge_shares(shared);
    }
    // Where the shares are not quite equal, the same queues set up by `tc` deviate as well.
    let home = home(Clock::Virtual, &Line::named("cable24").expect("a known line"));
    start(&home, "best_of_cake", 24_000, 4400, CABLE);
    let ours = shares(&home, "cable24");
    home.run_ok("router", &["sqm", "stop"]).expect("sqm stop");
    start_by_hand(&home);
    let by_hand = shares(&home, "cable24 by tc");
    for (ours, by_hand) in ours.into_iter().zip(by_hand) {
        assert!((ours - by_hand).abs() <= 3.0, "{ours} and {by_hand} %");
    }
}

#[test]
fn a_hundred_reloads_under_load_lose_nothing() {
    reload_under_load(100);
}
