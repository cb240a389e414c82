//! Probes without answers.

use super::*;

#[test]
fn overdue_probes_and_silent_senders_show_a_drop_of_the_capacity() {
    let mut bench = loaded();
    bench.run(4000);
    let lost = bench.now;
    for _ in 0..5 {
        let rate = bench.download().rate.bits_per_sec();
        bench.load.download = (mbit(6).bits_per_sec() * 100 / rate).min(100);
        bench.step_while_waiting(lost);
    }
    assert!(bench.download().rate <= mbit(6), "{:?}", bench.download());
}

#[test]
fn probes_overtaken_by_a_later_one_are_not_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    let before = bench.download().rate;
    bench.answering = false;
    // Three probes in a row are lost. The one after them returns without delay.
    let first = bench.now;
    let after = |millis| first + Nanos::from_millis(millis);
    let answer = Sample {
        at: after(45),
        signal: Signal::Echo {
            reflector: 3,
            sent: after(15),
            rtt: RTT,
        },
    };
    for step in 0..5 {
        bench.step();
        let at = bench.now;
        let waiting = |reflector: u16| Signal::Waiting {
            reflector,
            sent: after(5 * u64::from(reflector)),
        };
        let heard = [answer].into_iter().filter(|_| step == 0);
        let silent = (0..3).map(waiting).map(|signal| Sample { at, signal });
        let samples: Vec<Sample> = heard.chain(silent).collect();
        bench.decision = bench.controller.step(at, &samples);
        assert!(bench.download().rate >= before, "{step}: {:?}", bench.download());
    }
}

#[test]
fn probes_that_were_lost_before_a_load_are_not_its_queue() {
    let mut bench = loaded();
    bench.run(4000);
    bench.load.download = 1;
    bench.run(2000);
    let (before, lost) = (bench.download().rate, bench.now);
    for step in 0..60 {
        bench.load.download = if step < 20 { 1 } else { 100 };
        bench.step_while_waiting(lost);
        assert!(bench.download().rate >= before, "{step}: {:?}", bench.download());
    }
}

#[test]
fn a_load_that_ends_while_reflectors_fall_silent_is_not_a_drop_of_the_capacity() {
    let mut bench = loaded();
    bench.load.upload = 100;
    bench.run(4000);
    let before = bench.decision.rates;
    bench.load = PerDirection::default();
    let sent = bench.now;
    for _ in 0..120 {
        bench.step_while_waiting(sent);
    }
    let after = bench.decision.rates;
    for direction in Direction::BOTH {
        assert!(after[direction].rate >= before[direction].rate, "{after:?}");
    }
}

#[test]
fn two_connections_show_a_queue_when_no_reflector_answers() {
    for flows in [1, 2] {
        let mut bench = loaded();
        bench.flows = flows;
        bench.run(4000);
        bench.answering = false;
        bench.run(8000);
        bench.flow_delay.download = Nanos::from_millis(60);
        let is_cut = (0..6).any(|_| {
            bench.step();
            bench.download().reason.is_cut()
        });
        assert_eq!(is_cut, flows == 2, "{:?}", bench.download());
    }
}

#[test]
fn without_signals_the_rate_stays_and_then_moves_to_base() {
    let mut bench = loaded();
    bench.run(4000);
    bench.answering = false;
    bench.run(2500);
    assert_ne!(
        bench.download().reason,
        Reason::SignalsLost,
        "a queue may hold them back"
    );
    bench.run(1500);
    assert_eq!(bench.download().rate, mbit(100));
    assert_eq!(bench.download().reason, Reason::SignalsLost);
    bench.run(120_000);
    assert_eq!(bench.download().reason, Reason::Decay);
    let rate = bench.download().rate;
    assert!(mbit(20) <= rate && rate < mbit(30), "{rate}");
    bench.answering = true;
    bench.run(4000);
    assert!(bench.download().rate > mbit(60), "{:?}", bench.download());
}

#[test]
fn the_first_answers_of_a_new_load_are_not_missed_before_they_can_have_come() {
    let mut bench = loaded();
    bench.run(4000);
    let before = bench.download().rate;
    bench.load.download = 0;
    bench.run(60_000);
    bench.load.download = 100;
    bench.answering = false;
    for _ in 0..20 {
        bench.step();
        let Choice { rate, reason } = bench.download();
        assert!(
            rate == before && !matches!(reason, Reason::SignalsLost | Reason::Decay),
            "{rate}, {reason}"
        );
    }
}

/// While late probes may still return they count as a queue.
#[test]
fn a_cut_for_probes_that_never_return_is_taken_back() {
    let mut bench = loaded();
    bench.run(4000);
    let lost = bench.now;
    for _ in 0..20 {
        bench.step_while_waiting(lost);
    }
    assert!(bench.download().rate < mbit(70), "{:?}", bench.download());
    bench.answering = false;
    bench.run(9000);
    assert!(bench.download().rate > mbit(90), "{:?}", bench.download());
}
