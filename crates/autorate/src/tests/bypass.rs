//! Reflectors and the user's connections disagree.

use super::*;

const QUEUE: Nanos = Nanos::from_millis(240);

/// Some downloads have run for a while without a queue.
fn downloading(flows: u64) -> Bench {
    let mut bench = loaded();
    bench.flows = flows;
    bench.run(4000);
    bench
}

fn bypassing(bench: &Bench) -> Vec<u16> {
    let mut reflectors: Vec<u16> = bench.controller.bypassing().collect();
    reflectors.sort_unstable();
    reflectors
}

/// Runs for some seconds. Returns true if the download was cut in that time.
fn is_cut_within(bench: &mut Bench, seconds: u64) -> bool {
    cuts_within(bench, seconds).contains(&Direction::Download)
}

/// Runs for some seconds. Returns the directions of all cuts in that time.
fn cuts_within(bench: &mut Bench, seconds: u64) -> Vec<Direction> {
    let mut cuts = Vec::new();
    for _ in 0..seconds * 20 {
        bench.step();
        let is_cut = |direction: &Direction| bench.decision.rates[*direction].reason.is_cut();
        cuts.extend(Direction::BOTH.into_iter().filter(is_cut));
    }
    cuts
}

/// For some seconds a queue comes and goes, every two seconds. It grows and shrinks, as a queue does whose senders take turns.
/// `shown` gives the delay at each reflector.
fn come_and_go(bench: &mut Bench, seconds: u64, shown: impl Fn(Nanos) -> [Nanos; 6]) {
    for quarter in 0..seconds * 4 {
        let queue = match quarter % 16 {
            0..8 if quarter % 2 == 0 => 60,
            0..8 => 90,
            _ => 0,
        };
        let queue = Nanos::from_millis(queue);
        (bench.flow_delay.download, bench.delay) = (queue, shown(queue));
        bench.run(250);
    }
}

#[test]
fn a_queue_that_probes_bypass_is_cut_within_ten_seconds() {
    for upload_delay in [None, Some(Nanos(0))] {
        let mut bench = downloading(4);
        bench.upload_delay = upload_delay;
        bench.run(4000);
        bench.flow_delay.download = QUEUE;
        assert!(is_cut_within(&mut bench, 10), "{:?}", bench.download());
        bench.run(1000);
        assert_eq!(bypassing(&bench), [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_queue_of_an_upload_that_probes_bypass_is_cut_too() {
    let mut bench = downloading(4);
    bench.load.upload = 100;
    bench.flow_delay.upload = QUEUE;
    let cuts = cuts_within(&mut bench, 10);
    assert!(cuts.contains(&Direction::Upload), "{:?}", bench.decision);
    assert!(!cuts.contains(&Direction::Download), "{cuts:?}");
}

#[test]
fn connections_with_slow_far_hosts_beside_others_do_not_cause_a_cut() {
    for (flows, without) in [(1, 0), (2, 0), (3, 2), (3, 1), (6, 3)] {
        for upload_delay in [None, Some(Nanos(0))] {
            let mut bench = downloading(flows);
            bench.upload_delay = upload_delay;
            bench.flows_without_delay = without;
            bench.run(4000);
            bench.flow_delay.download = QUEUE;
            assert!(!is_cut_within(&mut bench, 60), "{flows}: {:?}", bench.download());
            assert_eq!(bypassing(&bench), []);
        }
    }
}

#[test]
fn slow_connections_on_an_idle_line_say_nothing_about_reflectors() {
    let mut bench = downloading(4);
    bench.load.download = 5;
    bench.run(2000);
    for step in 0..1200 {
        // Their far hosts are slow four times in a row, and then fast twice.
        bench.flow_delay.download = Nanos(QUEUE.0 * u64::from(step % 6 < 4));
        bench.step();
    }
    assert_eq!(bypassing(&bench), []);
}

#[test]
fn reflectors_lead_again_after_they_have_shown_the_queue_for_long() {
    let mut bench = downloading(4);
    bench.flow_delay.download = QUEUE;
    bench.run(10_000);
    come_and_go(&mut bench, 120, |queue| [queue; 6]);
    assert_eq!(bypassing(&bench), []);
    bench.flows_without_delay = 3;
    bench.delay = [Nanos(0); 6];
    bench.run(1000);
    bench.flow_delay.download = QUEUE;
    assert!(!is_cut_within(&mut bench, 10), "{:?}", bench.download());
}

/// Other reflectors are probed by another protocol.
#[test]
fn reflectors_that_show_the_queue_go_on_to_lead() {
    let mut bench = downloading(4);
    come_and_go(&mut bench, 60, |queue| {
        [queue, queue, queue, Nanos(0), Nanos(0), Nanos(0)]
    });
    assert_eq!(bypassing(&bench), [3, 4, 5]);
    bench.run(10_000);
    // The path of the connections becomes longer, and the reflectors that showed the queue show none.
    bench.flow_delay.download = QUEUE;
    assert!(!is_cut_within(&mut bench, 4), "{:?}", bench.download());
}
