//! A path that becomes longer, and clocks that are set.

use super::*;

#[test]
fn a_longer_path_costs_a_download_some_of_its_rate_for_two_seconds() {
    for upload_delay in [None, Some(Nanos(0))] {
        for longer in [6, 7, 8, 10, 20, 80, 300] {
            let mut bench = loaded();
            bench.upload_delay = upload_delay;
            bench.run(4000);
            bench.delay = [Nanos::from_millis(longer); 6];
            bench.run(2000);
            for _ in 0..400 {
                bench.step();
                assert!(
                    bench.download().rate > mbit(95),
                    "{longer} ms: {:?}",
                    bench.download()
                );
            }
        }
    }
}

#[test]
fn a_path_that_becomes_slightly_longer_does_not_end_growth() {
    let mut bench = loaded();
    bench.upload_delay = Some(Nanos(0));
    bench.load.upload = 100;
    bench.run(300);
    // Below the target with two full packets, above half of it.
    bench.delay = [Nanos::from_micros(1700); 6];
    bench.run(1000);
    let before = bench.download().rate;
    bench.run(4000);
    assert!(
        bench.download().rate > before,
        "{before:?} {:?}",
        bench.download()
    );
}

#[test]
fn a_path_that_became_longer_while_idle_is_not_a_queue_of_the_next_load() {
    let mut bench = one_way();
    bench.load.upload = 100;
    bench.load.download = 1;
    bench.run(3000);
    bench.delay = [Nanos::from_millis(8); 6];
    bench.run(3000);
    bench.load.download = 100;
    for _ in 0..40 {
        bench.step();
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
}

#[test]
fn a_reflector_whose_clock_jumps_by_an_hour_changes_nothing() {
    for jump in [3_600_000_000_000, -3_600_000_000_000] {
        let mut controller = Autorate::new(START, PerDirection::default(), PerDirection::default());
        let mut decision = controller.step(START, &[]);
        let mut now = START;
        for step in 0..400 {
            now = now + STEP;
            let offset = if step < 200 { 0 } else { jump };
            let one_way = Signal::OneWay {
                reflector: step % 6,
                sent: Instant(now.0 - RTT.0),
                download: 15_000_000 + offset,
                upload: 15_000_000 - offset,
            };
            let traffic = Signal::Traffic {
                direction: Direction::Download,
                bytes: Bytes(decision.rates.download.rate.bytes_per_sec() / 20),
                span: STEP,
            };
            let samples = [one_way, traffic].map(|signal| Sample { at: now, signal });
            let before = decision.rates.download.rate;
            decision = controller.step(now, &samples);
            assert!(
                decision.rates.download.rate >= before,
                "step {step}: {decision:?}"
            );
        }
    }
}

#[test]
fn a_queue_is_recognised_whatever_the_offset_of_the_clocks() {
    const DAY: i64 = 86_400_000_000_000;
    for apart in [0, DAY / 2 + 1, 400 * DAY, -400 * DAY] {
        let mut controller = Autorate::new(START, PerDirection::default(), PerDirection::default());
        let mut decision = controller.step(START, &[]);
        let mut now = START;
        for step in 0..40 {
            now = now + STEP;
            let queue = if step < 30 { 0 } else { 100_000_000 };
            let one_way = Signal::OneWay {
                reflector: step % 6,
                sent: Instant(now.0 - RTT.0),
                download: 15_000_000 + queue + apart,
                upload: 15_000_000 - apart,
            };
            let traffic = Signal::Traffic {
                direction: Direction::Download,
                bytes: Bytes(decision.rates.download.rate.bytes_per_sec() / 20),
                span: STEP,
            };
            let samples = [one_way, traffic].map(|signal| Sample { at: now, signal });
            decision = controller.step(now, &samples);
        }
        let reason = decision.rates.download.reason;
        assert!(
            matches!(reason, Reason::Bufferbloat { .. } | Reason::Draining { .. }),
            "{apart}: {reason}"
        );
    }
}
