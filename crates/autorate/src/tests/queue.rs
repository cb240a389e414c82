//! Delays that are queues, and delays that are not.

use super::*;

#[test]
fn a_single_bad_reflector_cannot_cut_the_rate() {
    let mut bench = loaded();
    for millis in [0, 300, 20, 900, 5, 100].into_iter().cycle().take(200) {
        bench.delay[3] = Nanos::from_millis(millis);
        bench.run(300);
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
    assert_eq!(bench.download().rate, mbit(100));
}

#[test]
fn a_single_bad_reflector_cannot_hide_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    bench.delay = [Nanos::from_millis(100); 6];
    bench.delay[3] = Nanos(0);
    bench.run(300);
    assert!(bench.download().rate < mbit(100), "{:?}", bench.download());
}

#[test]
fn late_answers_without_traffic_are_not_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    bench.load.download = 0;
    bench.run(3000);
    bench.delay = [Nanos::from_millis(120); 6];
    bench.run(600);
    assert_eq!(bench.download().rate, mbit(100), "{:?}", bench.download());
}

#[test]
fn late_answers_just_after_the_end_of_a_load_are_not_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    bench.load.download = 1;
    bench.run(300);
    bench.delay = [Nanos::from_millis(40); 6];
    for _ in 0..12 {
        bench.step();
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
}

/// Connections without a queue delay contradict reflectors with one: one kind is believed.
#[test]
fn round_trips_that_contradict_one_way_delays_do_not_leave_the_delay_unknown() {
    let mut bench = loaded();
    bench.run(4000);
    bench.delay = [Nanos::from_millis(200); 6];
    for _ in 0..120 {
        let flows = (0..3).map(|flow| Signal::Flow {
            flow,
            sent: Instant(bench.now.0 - RTT.0),
            download: 15_000_000,
            upload: Some(15_000_000),
        });
        let samples: Vec<_> = flows
            .map(|signal| Sample {
                at: bench.now,
                signal,
            })
            .collect();
        bench.controller.step(bench.now, &samples);
        bench.step();
        assert_ne!(bench.download().reason, Reason::SignalsLost);
    }
}

#[test]
fn connections_that_wait_behind_another_line_do_not_cause_a_cut() {
    let mut bench = loaded();
    bench.flows = 2;
    bench.run(4000);
    bench.flow_delay.download = Nanos::from_millis(200);
    for _ in 0..400 {
        bench.step();
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
}

/// The shaper's rate is known to the controller, and so is the time that its packets take.
#[test]
fn two_full_packets_of_a_slow_upload_are_not_a_queue() {
    let slow = PerDirection {
        upload: bounds(1, 1, 4),
        ..BOUNDS
    };
    let mut bench = Bench::with_controller(Autorate::new(START, slow, PerDirection::default()));
    bench.load.upload = 20;
    bench.run(2000);
    bench.load.upload = 100;
    for _ in 0..100 {
        let packet = 1514 * 8 * SECOND / bench.upload().rate.bits_per_sec();
        bench.delay = [Nanos(2 * packet); 6];
        bench.step();
        assert!(!bench.upload().reason.is_cut(), "{:?}", bench.upload());
    }
    assert_eq!(bench.upload().rate, mbit(4));
}

#[test]
fn a_download_finds_the_capacity_of_a_slower_line_and_keeps_its_queue_short() {
    for upload_delay in [None, Some(Nanos(0))] {
        let mut bench = loaded();
        bench.upload_delay = upload_delay;
        bench.run(4000);
        for step in 0..400 {
            bench.step_on_line(60_000_000);
            let rate = bench.download().rate;
            let queue = bench.delay[0];
            if step >= 40 {
                assert!(
                    rate > mbit(40) && queue < Nanos::from_millis(20),
                    "step {step}: {rate} with a queue of {queue}"
                );
            }
        }
    }
}

/// The capacity drops to 6 Mbit/s in both loaded directions, with a queue of half a second.
fn fallen(mut bench: Bench) -> Bench {
    bench.run(4000);
    bench.delay = [Nanos::from_millis(500); 6];
    let loaded = bench.load;
    for _ in 0..20 {
        for direction in Direction::BOTH.into_iter().filter(|d| loaded[*d] > 0) {
            let rate = bench.decision.rates[direction].rate.bits_per_sec();
            // A download arrives at the rate of the line, whatever the shaper lets pass.
            let most = if direction == Direction::Download {
                1000
            } else {
                100
            };
            bench.load[direction] = (mbit(6).bits_per_sec() * 100 / rate).clamp(1, most);
        }
        bench.step();
    }
    bench
}

/// The capacity itself is 6 Mbit/s. A lower rate would move the queue from the line into our own shaper.
#[test]
fn after_a_far_drop_a_download_keeps_seven_tenths_of_what_arrives() {
    let rate = fallen(loaded()).download().rate;
    assert!(rate <= mbit(6) && rate.bits_per_sec() > 4_100_000, "{rate:?}");
}

#[test]
fn after_a_far_drop_of_both_directions_neither_has_more_than_the_line_carries() {
    let mut bench = loaded();
    bench.load.upload = 100;
    let PerDirection { download, upload } = fallen(bench).decision.rates;
    assert!(
        download.rate <= mbit(6) && upload.rate <= mbit(6),
        "{download:?} {upload:?}"
    );
}

#[test]
fn a_rate_too_low_for_acknowledgements_recovers() {
    let mut bench = loaded();
    bench.upload_delay = Some(Nanos(0));
    bench.load.upload = 100;
    bench.run(4000);
    let rate = |bench: &Bench| bench.upload().rate;
    let mut queue = 300;
    for _ in 0..40 {
        bench.upload_delay = Some(Nanos::from_millis(queue));
        queue += 5;
        bench.step();
    }
    assert_eq!(rate(&bench), mbit(1));
    // The queue at the line is gone, but acknowledgements and probes wait in our own shaper while its rate is too low for them.
    for _ in 0..200 {
        queue = if rate(&bench) < mbit(2) { queue + 2 } else { 0 };
        bench.upload_delay = Some(Nanos::from_millis(queue));
        bench.step();
    }
    assert!(rate(&bench) >= mbit(4), "{:?}", bench.upload());
}
