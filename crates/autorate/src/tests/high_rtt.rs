//! A path with a base round trip of 600 ms.

use super::*;

/// One-way delays are known, and there is only background traffic so far.
fn far() -> Bench {
    let mut bench = Bench::new();
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

/// A download in slow start, which doubles once in a round trip, overshoots, and then follows the shaper. Each round trip takes 12
/// steps.
fn begin_download(bench: &mut Bench) -> Vec<Rate> {
    let mut rates = Vec::new();
    for percent in [25, 50, 100, 200, 100, 100, 100, 100, 100] {
        bench.load.download = percent;
        for _ in 0..12 {
            bench.step();
            rates.push(bench.download().rate);
        }
    }
    rates
}

#[test]
fn a_new_download_has_two_thirds_of_the_rate_until_its_senders_leave_slow_start() {
    let rates = begin_download(&mut far());
    // From the second report on, for seven round trips.
    assert!(rates[2..84].iter().all(|rate| *rate < mbit(14)), "{rates:?}");
    assert!(rates[107] >= mbit(20), "{rates:?}");
}

#[test]
fn a_download_that_ends_within_a_round_trip_leaves_the_rate_unchanged() {
    let mut bench = far();
    let before = bench.download().rate;
    bench.load.download = 50;
    bench.run(200);
    bench.load.download = 3;
    bench.run(2000);
    assert_eq!(bench.download().rate, before);
    let rates = begin_download(&mut bench);
    assert!(rates[107] >= mbit(20), "{rates:?}");
}

#[test]
fn a_new_upload_has_the_whole_rate_because_its_bursts_wait_in_our_own_shaper() {
    let mut bench = far();
    bench.load.upload = 100;
    for _ in 0..40 {
        bench.step();
        assert!(bench.upload().rate >= mbit(5));
    }
}

/// Uploads for some seconds on a line that carries this much, bits per second. What the shaper lets pass in excess of that makes the
/// queue at the line longer.
fn upload_on_line(bench: &mut Bench, seconds: u64, capacity: u64) {
    bench.load.upload = 100;
    let mut queue = bench.upload_delay.map_or(0, |delay| delay.0);
    for _ in 0..seconds * 20 {
        let rate = bench.upload().rate.bits_per_sec();
        queue = (queue + STEP.0 * rate / capacity).saturating_sub(STEP.0);
        bench.upload_delay = Some(Nanos(queue));
        bench.step();
    }
}

#[test]
fn an_upload_stays_at_the_capacity_of_the_line_and_then_grows_slowly() {
    let mut bench = far();
    upload_on_line(&mut bench, 100, 5_500_000);
    let found = bench.upload().rate.bits_per_sec();
    assert!((4_900_000..5_700_000).contains(&found), "{found}");
    upload_on_line(&mut bench, 20, 20_000_000);
    let later = bench.upload().rate.bits_per_sec();
    assert!(
        later > found && later < found / 100 * 110,
        "{found}, and after 20 s {later}"
    );
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
