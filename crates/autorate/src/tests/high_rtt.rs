//! A path of 600 ms, where news of the line is old.

use super::*;

/// Directions are told apart; chatter only, so far.
fn far() -> Bench {
    let mut bench = Bench::new(PerDirection::default());
    bench.rtt = Nanos::from_millis(600);
    bench.upload_delay = Some(Nanos(0));
    bench.load = PerDirection {
        download: 3,
        upload: 3,
    };
    assert_eq!(bench.controller.long_path(), None);
    bench.run(3000);
    assert_eq!(bench.controller.long_path(), Some(bench.rtt));
    bench
}

/// A download whose senders double what they send once in a round trip, until they know what passes; and then fill it.
fn begin_download(bench: &mut Bench) -> Vec<Choice> {
    let mut choices = Vec::new();
    for percent in [25, 50, 100, 200, 100, 100, 100] {
        bench.load.download = percent;
        for _ in 0..12 {
            bench.step();
            choices.push(bench.download());
        }
    }
    choices
}

#[test]
fn a_download_that_begins_has_half_until_its_senders_have_left_slow_start() {
    let mut bench = far();
    assert_eq!(bench.download().rate, mbit(20));
    let choices = begin_download(&mut bench);
    let half = Choice {
        rate: mbit(10),
        reason: Reason::SlowStartGuard,
    };
    // From the second report on, for four rounds.
    assert!(choices[2..48].iter().all(|choice| *choice == half), "{choices:?}");
    assert!(choices[83].rate >= mbit(20), "{choices:?}");
}

#[test]
fn a_download_that_is_over_before_it_was_known_to_senders_leaves_the_rate_as_it_was() {
    let mut bench = far();
    bench.load.download = 50;
    bench.run(200);
    assert_eq!(bench.download().rate, mbit(10));
    bench.load.download = 3;
    bench.run(2000);
    assert_eq!(bench.download().rate, mbit(20));
}

#[test]
fn an_upload_that_begins_has_all_as_its_bursts_stand_in_our_own_shaper() {
    let mut bench = far();
    bench.load.upload = 100;
    for _ in 0..40 {
        bench.step();
        assert!(bench.decision.rates.upload.rate >= mbit(5));
    }
}

/// A queue of an upload, until all that was sent into it is gone.
fn queue_up(bench: &mut Bench, millis: u64) {
    for queue in [millis / 2, millis, millis, millis / 2, 0, 0, 0, 0] {
        bench.upload_delay = Some(Nanos::from_millis(queue));
        bench.run(200);
    }
}

#[test]
fn what_was_found_is_hardly_gone_beyond_and_the_least_of_it_counts() {
    let mut bench = far();
    bench.load.upload = 100;
    bench.run(20_000);
    let before = bench.decision.rates.upload.rate.bits_per_sec();
    queue_up(&mut bench, 40);
    let found = bench.decision.rates.upload.rate.bits_per_sec();
    assert!(found < before / 100 * 98, "{before} {found}");
    bench.run(20_000);
    let later = bench.decision.rates.upload.rate.bits_per_sec();
    // Two thousandths in a second.
    assert!(
        later > found && later < found / 100 * 105,
        "{found}, and after 20 s {later}"
    );
    // More than the last time is found, and the least counts.
    queue_up(&mut bench, 40);
    let again = bench.decision.rates.upload.rate.bits_per_sec();
    assert!(again < found / 100 * 101, "{found} {again}");
    // After five minutes it counts no more.
    bench.load.upload = 50;
    bench.run(300_000);
    bench.load.upload = 100;
    bench.run(25_000);
    queue_up(&mut bench, 40);
    let last = bench.decision.rates.upload.rate.bits_per_sec();
    assert!(last > found / 100 * 102, "{found} {last}");
}

#[test]
fn far_beyond_what_is_configured_it_is_another_line_and_growth_is_quick() {
    let mut bench = far();
    bench.load.upload = 100;
    bench.run(170_000);
    let slow = bench.decision.rates.upload.rate;
    assert!(mbit(6) < slow && slow < mbit(8), "{slow}");
    bench.run(60_000);
    assert_eq!(bench.decision.rates.upload.rate, mbit(25));
}

#[test]
fn a_burst_of_a_download_says_nothing_of_the_line() {
    let mut bench = far();
    begin_download(&mut bench);
    bench.run(2000);
    let before = bench.download().rate;
    // Less passes than might; a sender that has just begun sends twice of that at once.
    bench.load.download = 40;
    bench.run(2000);
    bench.delay = [Nanos::from_millis(25); 6];
    bench.run(200);
    assert!(bench.download().rate < before, "it is a queue while it lasts");
    bench.delay = [Nanos(0); 6];
    bench.run(2000);
    let after = bench.download().rate;
    assert!(
        before <= after && after.bits_per_sec() < before.bits_per_sec() / 100 * 101,
        "{before} {after}"
    );
}
