//! Each misbehaving server against `sqm tune`, and the end of the daemon at many moments of a search.

use crate::lab::search::{each_ends_in_time, the_daemon_ends_at};

#[test]
fn tune_ends_in_time_with_little_memory_whatever_any_server_does() {
    each_ends_in_time(&[
        "load-words",
        "hello-silence",
        "load-silence",
        "load-huge",
        "load-drip",
        "results-words",
        "results-slow-words",
        "results-endless",
        "results-many-tcp",
        "progress-overflow",
        "probes-held",
        "flows-stall",
    ]);
}

#[test]
fn ending_the_daemon_at_any_moment_of_a_search_ends_the_search_completely() {
    let moments = [
        0.0, 0.05, 0.1, 0.2, 0.3, 0.7, 1.0, 2.0, 4.0, 5.5, 6.0, 8.0, 13.0, 22.0, 35.0, 60.0, 80.0, 95.0,
    ];
    let ways = [
        ("TERM", "goes"),
        ("TERM", "hangs"),
        ("QUIT", "goes"),
        ("QUIT", "hangs"),
    ];
    the_daemon_ends_at(&moments, &ways);
}
