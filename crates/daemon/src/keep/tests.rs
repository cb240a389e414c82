use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A keeper with wan0, and the clock.
struct Bench {
    keeper: Keeper,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            keeper: Keeper::default(),
            now: Instant(SECOND),
        };
        bench.on(Event::Configured(vec![wan0()]));
        bench
    }

    fn on(&mut self, event: Event) {
        self.keeper.on(event, self.now);
    }

    fn device(&mut self, index: u32, name: &str, mtu: u32) {
        self.on(Event::Device {
            index,
            name: name.to_owned(),
            mtu,
            up: true,
            carrier: true,
        });
    }

    /// Lets time pass until something is to be done, and answers how long that was and what.
    fn wait(&mut self) -> (Nanos, Action) {
        let before = self.now;
        loop {
            if let Some(action) = self.keeper.next(self.now) {
                return (self.now.since(before), action);
            }
            self.now = self.keeper.due().expect("something is to be done some time");
        }
    }

    fn ends(&mut self, outcome: Outcome) {
        self.on(Event::Checked("wan0".to_owned(), outcome));
    }

    fn shaped(&mut self, index: u32) {
        self.device(index, "wan0", 1500);
        self.wait();
        self.ends(Outcome::Changed {
            index,
            changes: vec!["cake".to_owned()],
            own: false,
        });
        assert_eq!(self.state(), State::Shaped);
    }

    fn state(&self) -> State {
        self.keeper.sections()[0].state
    }

    fn section(&self) -> &Section {
        &self.keeper.sections()[0]
    }
}

fn wan0() -> Named {
    Named {
        interface: "wan0".to_owned(),
        ifb: "ifb4wan0".to_owned(),
    }
}

fn check(shaped: Option<u32>, request: Request) -> Action {
    Action::Check {
        interface: "wan0".to_owned(),
        shaped,
        request,
    }
}

#[test]
fn a_configured_interface_is_looked_at_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.wait(), (Nanos(0), check(None, Request::Shape)));
    bench.ends(Outcome::Absent(None));
    assert_eq!(bench.state(), State::Waiting);
    assert!(bench.section().why.as_deref().unwrap().contains("wan0"));
    // It arrives late.
    bench.device(7, "wan0", 1500);
    assert_eq!(bench.wait(), (SETTLE, check(None, Request::Look)));
}

#[test]
fn a_burst_of_news_is_one_check_and_a_storm_does_not_delay_it_for_ever() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let start = bench.now;
    let mut checked = None;
    for _ in 0..100 {
        bench.on(Event::Queues(7));
        if bench.keeper.next(bench.now).is_some() {
            checked = Some(bench.now.since(start));
            break;
        }
        bench.now = bench.now + Nanos::from_millis(20);
    }
    let waited = checked.expect("a storm is not waited out");
    assert!(
        waited >= MOST_SETTLE && waited < Nanos::from_millis(300),
        "{waited}"
    );
    bench.ends(Outcome::AsPlanned { index: 7 });
    assert_eq!(bench.keeper.next(bench.now), None);
    for _ in 0..50 {
        bench.on(Event::Queues(7));
    }
    assert_eq!(bench.wait(), (SETTLE, check(Some(7), Request::Look)));
    assert_eq!(bench.keeper.next(bench.now), None);
}

#[test]
fn news_of_others_are_none() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let due = bench.keeper.due();
    bench.device(8, "lan0", 1500);
    bench.on(Event::Queues(8));
    bench.on(Event::Gone(8));
    // The same device as before: nothing about it has changed.
    bench.device(7, "wan0", 1500);
    assert_eq!(bench.keeper.due(), due);
    // Its IFB is its own.
    bench.device(9, "ifb4wan0", 1500);
    bench.wait();
    bench.ends(Outcome::AsPlanned { index: 7 });
    bench.on(Event::Gone(9));
    assert_eq!(bench.wait().0, SETTLE);
}

#[test]
fn everything_about_a_device_makes_it_due() {
    for event in ["mtu", "renamed", "gone", "recreated", "firewall", "lost"] {
        let mut bench = Bench::new();
        bench.shaped(7);
        match event {
            "mtu" => bench.device(7, "wan0", 1400),
            "renamed" => bench.device(7, "wan9", 1500),
            "gone" => bench.on(Event::Gone(7)),
            "recreated" => {
                bench.on(Event::Gone(7));
                bench.device(8, "wan0", 1500);
            }
            "firewall" => bench.on(Event::Firewall),
            _ => bench.on(Event::Lost),
        }
        assert_eq!(bench.wait(), (SETTLE, check(Some(7), Request::Look)), "{event}");
    }
}

#[test]
fn failures_are_tried_again_later_each_time_and_news_try_at_once() {
    let mut bench = Bench::new();
    bench.device(7, "wan0", 1500);
    let mut waits = Vec::new();
    for _ in 0..12 {
        waits.push(bench.wait().0);
        bench.ends(Outcome::Failed("the kernel has no cake".to_owned()));
    }
    assert_eq!(waits[1..4], [RETRY, Nanos(2 * RETRY.0), Nanos(4 * RETRY.0)]);
    assert_eq!(waits[11], MOST_RETRY);
    assert_eq!(bench.section().why.as_deref(), Some("the kernel has no cake"));
    bench.device(7, "wan0", 1400);
    assert_eq!(bench.wait().0, SETTLE);
}

#[test]
fn another_program_is_repaired_after_and_given_way_to_when_it_insists() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let repaired = Outcome::Changed {
        index: 7,
        changes: vec!["fq_codel 9: has replaced our cake 1:".to_owned()],
        own: false,
    };
    for n in 1..=MOST_REPAIRS {
        assert_eq!(bench.state(), State::Shaped, "{n}");
        bench.on(Event::Queues(7));
        assert_eq!(bench.wait().0, SETTLE, "{n}");
        bench.ends(repaired.clone());
    }
    assert_eq!(bench.state(), State::Contested);
    assert!(bench.section().why.as_deref().unwrap().contains("fq_codel 9:"));
    // Our own repair is told as well, and the other one goes on.
    bench.on(Event::Queues(7));
    bench.on(Event::Queues(7));
    assert_eq!(bench.wait().0, CONTEST);
    bench.ends(repaired.clone());
    assert_eq!(bench.state(), State::Shaped);
    assert_eq!(bench.section().repaired, MOST_REPAIRS as u64);
    // Somebody who asks need not wait.
    for _ in 0..MOST_REPAIRS {
        bench.on(Event::Queues(7));
        bench.wait();
        bench.ends(repaired.clone());
    }
    assert_eq!(bench.state(), State::Contested);
    bench.on(Event::Asked("wan0".to_owned()));
    assert_eq!(bench.wait(), (Nanos(0), check(Some(7), Request::Shape)));
}

#[test]
fn a_device_that_comes_again_and_again_is_no_contest() {
    let mut bench = Bench::new();
    for index in 7..207 {
        bench.shaped(index);
        bench.on(Event::Gone(index));
        bench.wait();
        bench.ends(Outcome::Absent(None));
    }
    assert_eq!(bench.section().applied, 200);
    assert_eq!(bench.section().repaired, 0);
    assert!(bench.section().repairs.is_empty());
}

#[test]
fn what_is_configured_no_more_is_released_and_what_is_new_is_shaped() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let named = |name: &str| Named {
        interface: name.to_owned(),
        ifb: format!("ifb4{name}"),
    };
    bench.on(Event::Configured(vec![named("wan1")]));
    assert_eq!(bench.wait(), (Nanos(0), Action::Release("wan0".to_owned())));
    assert!(matches!(bench.wait().1, Action::Check { interface, .. } if interface == "wan1"));
    // Taken out and put back before anything was done.
    bench.on(Event::Configured(Vec::new()));
    bench.on(Event::Configured(vec![named("wan1")]));
    assert!(matches!(bench.wait().1, Action::Check { interface, .. } if interface == "wan1"));
    assert_eq!(bench.keeper.next(bench.now), None);
}

#[test]
fn without_news_everything_is_looked_at_now_and_then() {
    let mut bench = Bench::new();
    bench.shaped(7);
    for _ in 0..3 {
        assert_eq!(bench.wait(), (LOOK, check(Some(7), Request::Look)));
        bench.ends(Outcome::AsPlanned { index: 7 });
    }
    bench.wait();
    bench.ends(Outcome::Unconfirmed);
    assert_eq!(bench.wait().0, CONFIRMATION);
}

#[test]
fn what_was_stopped_by_hand_is_asked_for_by_nobody_but_who_asks() {
    let mut bench = Bench::new();
    bench.shaped(7);
    bench.wait();
    bench.ends(Outcome::Stopped);
    assert_eq!(bench.state(), State::Stopped);
    let mut index = 7;
    for event in [
        "look",
        "mtu",
        "down",
        "queues",
        "ifb",
        "firewall",
        "lost",
        "gone",
        "made again",
        "rates",
    ] {
        let wait = match event {
            "look" => LOOK,
            "rates" => Nanos(0),
            _ => SETTLE,
        };
        match event {
            "look" => {}
            "mtu" => bench.device(index, "wan0", 1400),
            "down" => bench.on(Event::Device {
                index,
                name: "wan0".to_owned(),
                mtu: 1400,
                up: false,
                carrier: false,
            }),
            "queues" => bench.on(Event::Queues(index)),
            "ifb" => bench.device(99, "ifb4wan0", 1500),
            "firewall" => bench.on(Event::Firewall),
            "lost" => bench.on(Event::Lost),
            "gone" => bench.on(Event::Gone(index)),
            "rates" => bench.on(Event::Rates("wan0".to_owned())),
            _ => {
                index += 1;
                bench.device(index, "wan0", 1500);
            }
        }
        let (waited, action) = bench.wait();
        assert!(
            waited == wait
                && matches!(
                    action,
                    Action::Check {
                        request: Request::Look,
                        ..
                    }
                ),
            "{event}: {waited}, {action:?}"
        );
        bench.ends(if event == "gone" {
            Outcome::Absent(None)
        } else {
            Outcome::Stopped
        });
    }
    bench.on(Event::Adopted(vec![wan0()]));
    assert!(matches!(
        bench.wait().1,
        Action::Check {
            request: Request::Look,
            ..
        }
    ));
    bench.ends(Outcome::Stopped);
    for event in [Event::Asked("wan0".to_owned()), Event::Configured(vec![wan0()])] {
        bench.on(event);
        assert!(matches!(
            bench.wait().1,
            Action::Check {
                request: Request::Shape,
                ..
            }
        ));
        bench.ends(Outcome::Stopped);
    }
}

#[test]
fn a_change_that_is_rolled_back_lifts_no_stop_and_brings_back_those_from_before() {
    let mut bench = Bench::new();
    bench.shaped(7);
    for (stopped, request) in [
        ("", Request::RollBack),
        ("wan1", Request::RollBack),
        ("wan0", Request::Stop),
    ] {
        bench.on(Event::RolledBack {
            named: vec![wan0()],
            stopped: vec![stopped.to_owned()],
        });
        assert_eq!(bench.wait(), (Nanos(0), check(Some(7), request)));
        // Another program holds the lock: it is still to be done, unless somebody wants something else meanwhile.
        bench.ends(Outcome::Busy { request });
        assert_eq!(bench.wait(), (CONFIRMATION, check(Some(7), request)));
        bench.ends(Outcome::Busy { request });
        bench.on(Event::Asked("wan0".to_owned()));
        assert_eq!(bench.wait(), (Nanos(0), check(Some(7), Request::Shape)));
        bench.ends(Outcome::AsPlanned { index: 7 });
    }
}

#[test]
fn what_we_change_ourselves_is_no_repair() {
    let mut bench = Bench::new();
    bench.shaped(7);
    for _ in 0..10 {
        bench.on(Event::Configured(vec![wan0()]));
        bench.wait();
        bench.ends(Outcome::Changed {
            index: 7,
            changes: vec!["cake: another rate".to_owned()],
            own: true,
        });
        assert_eq!(bench.state(), State::Shaped);
    }
    assert_eq!((bench.section().applied, bench.section().repaired), (11, 0));
}

#[test]
fn a_release_that_another_program_is_in_the_way_of_is_tried_again() {
    let mut bench = Bench::new();
    bench.shaped(7);
    bench.on(Event::Configured(Vec::new()));
    for wait in [Nanos(0), CONFIRMATION, CONFIRMATION] {
        assert_eq!(bench.wait(), (wait, Action::Release("wan0".to_owned())));
        bench.on(Event::NotReleased("wan0".to_owned()));
    }
    // It is configured again meanwhile.
    bench.on(Event::Configured(vec![wan0()]));
    assert!(matches!(bench.wait().1, Action::Check { .. }));
    bench.on(Event::NotReleased("wan0".to_owned()));
    assert_eq!(bench.keeper.next(bench.now), None);
}

proptest! {
    /// Whatever happens: news are looked at within a second unless it gives way, and nothing grows.
    #[test]
    fn nothing_is_forgotten_and_nothing_grows(
        events in proptest::collection::vec((0..9_u8, 0..3_u32, 0..400_u64), 1..400),
    ) {
        let mut bench = Bench::new();
        let mut news_at: Option<Instant> = None;
        for (kind, index, millis) in events {
            bench.now = bench.now + Nanos::from_millis(millis);
            while let Some(action) = bench.keeper.next(bench.now) {
                if let Action::Check { .. } = action {
                    news_at = None;
                    let outcome = match kind {
                        0..4 => Outcome::AsPlanned { index },
                        4..6 => Outcome::Changed { index, changes: vec!["x".to_owned()], own: kind == 4 },
                        6 => Outcome::Failed("no".to_owned()),
                        7 => Outcome::Absent(None),
                        _ => Outcome::Stopped,
                    };
                    bench.ends(outcome);
                }
            }
            if bench.state() == State::Contested {
                news_at = None;
            }
            if let Some(at) = news_at {
                prop_assert!(bench.now.since(at) <= Nanos::from_millis(1000));
            }
            match kind {
                0 => bench.device(index, "wan0", 1500),
                1 => bench.device(index, "ifb4wan0", 1500),
                2 => bench.device(index, "other", 1500),
                3 => bench.on(Event::Gone(index)),
                4 => bench.on(Event::Queues(index)),
                5 => bench.on(Event::Lost),
                6 => bench.on(Event::Asked("wan0".to_owned())),
                7 => bench.on(Event::Configured(vec![wan0()])),
                _ => bench.on(Event::Firewall),
            }
            if matches!(kind, 5 | 8) && bench.state() != State::Contested {
                news_at.get_or_insert(bench.now);
            }
            prop_assert_eq!(bench.keeper.sections().len(), 1);
            prop_assert!(bench.section().repairs.len() <= MOST_REPAIRS);
        }
    }
}
