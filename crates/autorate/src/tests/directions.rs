//! Both directions are loaded: which of them a queue is attributed to.

use super::*;

#[test]
fn only_the_loaded_direction_is_cut_for_a_longer_round_trip() {
    let mut bench = loaded();
    bench.run(2000);
    bench.delay = [Nanos::from_millis(60); 6];
    bench.run(400);
    assert!(bench.download().rate < mbit(90), "{:?}", bench.download());
    assert_eq!(bench.decision.rates.upload.rate, mbit(5));
}

#[test]
fn one_connection_confirmed_by_reflectors_shows_the_direction_of_a_queue() {
    for direction in Direction::BOTH {
        let mut bench = loaded();
        bench.load.upload = 100;
        bench.flows = 2;
        bench.run(6000);
        let before = bench.decision.rates;
        bench.flow_delay[direction] = Nanos::from_millis(60);
        bench.delay = [Nanos::from_millis(60); 6];
        bench.run(300);
        let is_cut = |one| bench.decision.rates[one].rate < before[one].rate;
        assert_eq!(
            Direction::BOTH.map(is_cut),
            Direction::BOTH.map(|one| one == direction),
            "{:?}",
            bench.decision
        );
    }
}

/// The download's own segments show its queue. Nothing shows that of the upload by itself.
#[test]
fn the_known_queue_of_a_download_is_not_charged_to_the_upload() {
    for turn in 0..16 {
        let mut bench = loaded();
        bench.load.upload = 100;
        bench.flows = 1;
        bench.run(6000 + turn * 500);
        let before = bench.decision.rates;
        bench.flow_delay.download = Nanos::from_millis(60);
        bench.delay = [Nanos::from_millis(60); 6];
        for _ in 0..6 {
            bench.step();
            assert!(!bench.upload().reason.is_cut(), "{turn}: {:?}", bench.decision);
        }
        assert!(
            bench.download().rate < before.download.rate,
            "{:?}",
            bench.decision
        );
    }
}

/// The segments of a download showed that the queue was the upload's. They end before the download's last packets, and only round
/// trips are left.
#[test]
fn a_download_that_ends_beside_the_queue_of_an_upload_leaves_its_rate_to_the_next_one() {
    for turn in 0..40 {
        let mut bench = loaded();
        bench.load.upload = 100;
        bench.flows = 1;
        bench.run(6000 + turn * 50);
        let before = bench.decision.rates;
        bench.delay = [Nanos::from_millis(8); 6];
        bench.run(300);
        bench.flows = 0;
        bench.load.download = 80;
        bench.run(150);
        bench.delay = [Nanos::from_micros(10_900); 6];
        bench.run(300);
        bench.load.download = 1;
        bench.run(100);
        let after = bench.decision.rates;
        assert!(after.download.rate >= before.download.rate, "{turn}: {after:?}");
        assert!(after.upload.rate < before.upload.rate, "{turn}: {after:?}");
    }
}

#[test]
fn an_upload_is_cut_once_at_most_for_queues_of_the_download() {
    let mut bench = loaded();
    bench.load.upload = 100;
    bench.run(4000);
    let before = bench.upload().rate.bits_per_sec();
    let line = bench.download().rate.bits_per_sec() / 100 * 97;
    for step in 0..600 {
        bench.step_on_line(line);
        let upload = bench.upload().rate.bits_per_sec();
        // The first queue might be that of either direction.
        let least = if step < 30 { 30 } else { 95 };
        assert!(
            upload > before / 100 * least && bench.delay[0] < Nanos::from_millis(50),
            "step {step}: {:?} with a queue of {}",
            bench.decision,
            bench.delay[0]
        );
    }
    let download = bench.download().rate.bits_per_sec();
    assert!(download > line / 100 * 90, "{download}");
}
