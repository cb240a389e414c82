//! A path with a base round trip of 600 ms.

use super::*;

/// One-way delays are known, and there is only background traffic so far.
fn far() -> Bench {
    let mut bench = Bench::new(PerDirection::default());
    bench.rtt = Nanos::from_millis(600);
    bench.upload_delay = Some(Nanos(0));
    bench.load = PerDirection {
        download: 3,
        upload: 3,
    };
    assert_eq!(bench.controller.high_rtt(), None);
    bench.run(3000);
    assert_eq!(bench.controller.high_rtt(), Some(bench.rtt));
    bench
}

/// A download in slow start, which doubles once in a round trip, overshoots, and then follows the shaper.
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
fn a_new_download_has_half_the_rate_until_its_senders_leave_slow_start() {
    let mut bench = far();
    assert_eq!(bench.download().rate, mbit(20));
    let choices = begin_download(&mut bench);
    let half = Choice {
        rate: mbit(10),
        reason: Reason::SlowStartGuard,
    };
    // From the second report on, for four round trips.
    assert!(choices[2..48].iter().all(|choice| *choice == half), "{choices:?}");
    assert!(choices[83].rate >= mbit(20), "{choices:?}");
}

#[test]
fn a_download_that_ends_within_a_round_trip_leaves_the_rate_unchanged() {
    let mut bench = far();
    bench.load.download = 50;
    bench.run(200);
    assert_eq!(bench.download().rate, mbit(10));
    bench.load.download = 3;
    bench.run(2000);
    assert_eq!(bench.download().rate, mbit(20));
}

#[test]
fn a_new_upload_has_the_whole_rate_because_its_bursts_wait_in_our_own_shaper() {
    let mut bench = far();
    bench.load.upload = 100;
    for _ in 0..40 {
        bench.step();
        assert!(bench.decision.rates.upload.rate >= mbit(5));
    }
}

/// A queue of the upload that grows and drains.
fn queue_up(bench: &mut Bench, millis: u64) {
    for queue in [millis / 2, millis, millis, millis / 2, 0, 0, 0, 0] {
        bench.upload_delay = Some(Nanos::from_millis(queue));
        bench.run(200);
    }
}

#[test]
fn the_rate_grows_slowly_beyond_the_lowest_recent_capacity() {
    let mut bench = far();
    bench.load.upload = 100;
    bench.run(20_000);
    let before = bench.decision.rates.upload.rate.bits_per_sec();
    queue_up(&mut bench, 40);
    let found = bench.decision.rates.upload.rate.bits_per_sec();
    assert!(found < before / 100 * 98, "{before} {found}");
    bench.run(20_000);
    let later = bench.decision.rates.upload.rate.bits_per_sec();
    // The rate grows by 0.2 % in a second.
    assert!(
        later > found && later < found / 100 * 105,
        "{found}, and after 20 s {later}"
    );
    // The capacity is higher than the last time, and the lowest one counts.
    queue_up(&mut bench, 40);
    let again = bench.decision.rates.upload.rate.bits_per_sec();
    assert!(again < found / 100 * 101, "{found} {again}");
    // After five minutes that one no longer counts.
    bench.load.upload = 50;
    bench.run(300_000);
    bench.load.upload = 100;
    bench.run(25_000);
    queue_up(&mut bench, 40);
    let last = bench.decision.rates.upload.rate.bits_per_sec();
    assert!(last > found / 100 * 102, "{found} {last}");
}

#[test]
fn far_beyond_the_configured_rate_growth_is_fast() {
    let mut bench = far();
    bench.load.upload = 100;
    bench.run(170_000);
    let slow = bench.decision.rates.upload.rate;
    assert!(mbit(6) < slow && slow < mbit(8), "{slow}");
    bench.run(60_000);
    assert_eq!(bench.decision.rates.upload.rate, mbit(25));
}

#[test]
fn a_burst_of_a_download_does_not_change_the_rate() {
    let mut bench = far();
    begin_download(&mut bench);
    bench.run(2000);
    let before = bench.download().rate;
    // The traffic is below the rate, and a new sender causes a burst.
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
