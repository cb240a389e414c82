use proptest::prelude::*;
use sqm_core::direction::PerDirection;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A reconciler with one interface, wan0, and a clock.
struct Bench {
    reconciler: Reconciler,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            reconciler: Reconciler::default(),
            now: Instant(SECOND),
        };
        bench.on(Event::Configured(vec![wan0()]));
        bench
    }

    fn on(&mut self, event: Event) {
        self.reconciler.handle(event, self.now);
    }

    fn device(&mut self, index: u32, name: &str, mtu: u32) {
        self.on(Event::DeviceChanged {
            index,
            name: name.to_owned(),
            mtu,
            up: true,
            carrier: true,
        });
    }

    /// Advances the clock to the next action, and returns how long that took and the action.
    fn wait(&mut self) -> (Nanos, Action) {
        let before = self.now;
        loop {
            if let Some(action) = self.reconciler.next(self.now) {
                return (self.now.since(before), action);
            }
            self.now = self.reconciler.due().expect("an action is due");
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
        self.reconciler.sections()[0].state
    }

    fn section(&self) -> &Section {
        &self.reconciler.sections()[0]
    }
}

fn wan0() -> ConfiguredInterface {
    ConfiguredInterface {
        interface: "wan0".to_owned(),
        ifb: "ifb4wan0".to_owned(),
        rates: [None; 2],
    }
}

fn check(shaped: Option<u32>, request: Request) -> Action {
    Action::Check {
        interface: "wan0".to_owned(),
        shaped,
        request,
        leave_rates: request == Request::Check,
    }
}

#[test]
fn a_configured_interface_is_checked_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.wait(), (Nanos(0), check(None, Request::Apply)));
    bench.ends(Outcome::Absent(None));
    assert_eq!(bench.state(), State::Waiting);
    assert!(bench.section().why.as_deref().unwrap().contains("wan0"));
    // The device appears later.
    bench.device(7, "wan0", 1500);
    assert_eq!(bench.wait(), (SETTLE, check(None, Request::Check)));
}

#[test]
fn a_burst_of_events_is_one_check_and_continuous_events_delay_it_only_briefly() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let start = bench.now;
    let mut checked = None;
    for _ in 0..100 {
        bench.on(Event::QueuesChanged(7));
        if bench.reconciler.next(bench.now).is_some() {
            checked = Some(bench.now.since(start));
            break;
        }
        bench.now = bench.now + Nanos::from_millis(20);
    }
    let waited = checked.expect("a check happens while events continue");
    assert!(
        waited >= MAX_SETTLE && waited < Nanos::from_millis(300),
        "{waited}"
    );
    bench.ends(Outcome::AsPlanned { index: 7 });
    assert_eq!(bench.reconciler.next(bench.now), None);
    for _ in 0..50 {
        bench.on(Event::QueuesChanged(7));
    }
    assert_eq!(bench.wait(), (SETTLE, check(Some(7), Request::Check)));
    assert_eq!(bench.reconciler.next(bench.now), None);
}

#[test]
fn events_of_other_devices_are_ignored() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let due = bench.reconciler.due();
    bench.device(8, "lan0", 1500);
    bench.on(Event::QueuesChanged(8));
    bench.on(Event::DeviceRemoved(8));
    // An event that reports the state that is already known.
    bench.device(7, "wan0", 1500);
    assert_eq!(bench.reconciler.due(), due);
    // Events of the interface's IFB count.
    bench.device(9, "ifb4wan0", 1500);
    bench.wait();
    bench.ends(Outcome::AsPlanned { index: 7 });
    bench.on(Event::DeviceRemoved(9));
    assert_eq!(bench.wait().0, SETTLE);
}

#[test]
fn every_change_of_the_device_or_the_firewall_schedules_a_check() {
    for event in ["mtu", "renamed", "gone", "recreated", "firewall", "lost"] {
        let mut bench = Bench::new();
        bench.shaped(7);
        match event {
            "mtu" => bench.device(7, "wan0", 1400),
            "renamed" => bench.device(7, "wan9", 1500),
            "gone" => bench.on(Event::DeviceRemoved(7)),
            "recreated" => {
                bench.on(Event::DeviceRemoved(7));
                bench.device(8, "wan0", 1500);
            }
            "firewall" => bench.on(Event::FirewallChanged),
            _ => bench.on(Event::EventsLost),
        }
        assert_eq!(bench.wait(), (SETTLE, check(Some(7), Request::Check)), "{event}");
    }
}

#[test]
fn failures_are_retried_with_exponential_backoff_and_an_event_retries_at_once() {
    let mut bench = Bench::new();
    bench.device(7, "wan0", 1500);
    let mut waits = Vec::new();
    for _ in 0..12 {
        waits.push(bench.wait().0);
        bench.ends(Outcome::Failed("the kernel has no cake".to_owned()));
    }
    assert_eq!(
        waits[1..4],
        [FIRST_RETRY, Nanos(2 * FIRST_RETRY.0), Nanos(4 * FIRST_RETRY.0)]
    );
    assert_eq!(waits[11], MAX_RETRY);
    assert_eq!(bench.section().why.as_deref(), Some("the kernel has no cake"));
    bench.device(7, "wan0", 1400);
    assert_eq!(bench.wait().0, SETTLE);
}

#[test]
fn changes_of_another_program_are_repaired_until_they_become_a_conflict() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let repaired = Outcome::Changed {
        index: 7,
        changes: vec!["another program has replaced sqm's cake 1: with fq_codel 9:".to_owned()],
        own: false,
    };
    for n in 1..=MAX_REPAIRS {
        assert_eq!(bench.state(), State::Shaped, "{n}");
        bench.on(Event::QueuesChanged(7));
        assert_eq!(bench.wait().0, SETTLE, "{n}");
        bench.ends(repaired.clone());
    }
    assert_eq!(bench.state(), State::Contested);
    assert!(bench.section().why.as_deref().unwrap().contains("fq_codel 9:"));
    // The kernel reports our own repair as well, and the other program goes on.
    bench.on(Event::QueuesChanged(7));
    bench.on(Event::QueuesChanged(7));
    assert_eq!(bench.wait().0, CONFLICT_WINDOW);
    bench.ends(repaired.clone());
    assert_eq!(bench.state(), State::Shaped);
    assert_eq!(bench.section().repaired, MAX_REPAIRS as u64);
    // A request to apply ends the backoff.
    for _ in 0..MAX_REPAIRS {
        bench.on(Event::QueuesChanged(7));
        bench.wait();
        bench.ends(repaired.clone());
    }
    assert_eq!(bench.state(), State::Contested);
    bench.on(Event::ApplyRequested("wan0".to_owned()));
    assert_eq!(bench.wait(), (Nanos(0), check(Some(7), Request::Apply)));
}

#[test]
fn a_change_of_a_rate_and_of_something_else_is_one_repair() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let repaired = Outcome::Changed {
        index: 7,
        changes: vec!["class 1:11".to_owned()],
        own: false,
    };
    let rates = |kbits: Option<u64>| {
        PerDirection::from([
            kbits
                .map(Rate::from_kbits_per_sec)
                .map(Some)
                .into_iter()
                .collect(),
            Vec::new(),
        ])
    };
    bench.on(Event::QueuesChanged(7));
    bench.wait();
    bench.on(Event::OtherRatesFound("wan0".to_owned(), rates(Some(64))));
    bench.ends(repaired.clone());
    assert_eq!((bench.section().repaired, bench.state()), (0, State::Shaped));
    let (_, action) = bench.wait();
    assert!(
        matches!(
            action,
            Action::Check {
                leave_rates: false,
                ..
            }
        ),
        "{action:?}"
    );
    bench.on(Event::OtherRatesFound("wan0".to_owned(), rates(None)));
    bench.ends(repaired);
    assert_eq!(bench.section().repaired, 1);
}

#[test]
fn a_device_that_is_recreated_repeatedly_is_no_conflict() {
    let mut bench = Bench::new();
    for index in 7..207 {
        bench.shaped(index);
        bench.on(Event::DeviceRemoved(index));
        bench.wait();
        bench.ends(Outcome::Absent(None));
    }
    assert_eq!(bench.section().applied, 200);
    assert_eq!(bench.section().repaired, 0);
    assert!(bench.section().repairs.is_empty());
}

#[test]
fn removed_interfaces_are_released_and_new_ones_are_shaped() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let named = |name: &str| ConfiguredInterface {
        interface: name.to_owned(),
        ifb: format!("ifb4{name}"),
        rates: [None; 2],
    };
    bench.on(Event::Configured(vec![named("wan1")]));
    assert_eq!(bench.wait(), (Nanos(0), Action::Release("wan0".to_owned())));
    assert!(matches!(bench.wait().1, Action::Check { interface, .. } if interface == "wan1"));
    // Removed from the configuration and added again before any action.
    bench.on(Event::Configured(Vec::new()));
    bench.on(Event::Configured(vec![named("wan1")]));
    assert!(matches!(bench.wait().1, Action::Check { interface, .. } if interface == "wan1"));
    assert_eq!(bench.reconciler.next(bench.now), None);
}

#[test]
fn without_events_every_interface_is_checked_regularly() {
    let mut bench = Bench::new();
    bench.shaped(7);
    for _ in 0..3 {
        assert_eq!(bench.wait(), (CHECK_INTERVAL, check(Some(7), Request::Check)));
        bench.ends(Outcome::AsPlanned { index: 7 });
    }
    bench.wait();
    bench.ends(Outcome::Unconfirmed);
    assert_eq!(bench.wait().0, POLL_INTERVAL);
}

#[test]
fn only_a_request_starts_an_interface_that_was_stopped_by_hand() {
    let mut bench = Bench::new();
    bench.shaped(7);
    bench.wait();
    bench.ends(Outcome::Stopped);
    assert_eq!(bench.state(), State::Stopped);
    let mut index = 7;
    for event in [
        "regular check",
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
            "regular check" => CHECK_INTERVAL,
            "rates" => Nanos(0),
            _ => SETTLE,
        };
        match event {
            "regular check" => {}
            "mtu" => bench.device(index, "wan0", 1400),
            "down" => bench.on(Event::DeviceChanged {
                index,
                name: "wan0".to_owned(),
                mtu: 1400,
                up: false,
                carrier: false,
            }),
            "queues" => bench.on(Event::QueuesChanged(index)),
            "ifb" => bench.device(99, "ifb4wan0", 1500),
            "firewall" => bench.on(Event::FirewallChanged),
            "lost" => bench.on(Event::EventsLost),
            "gone" => bench.on(Event::DeviceRemoved(index)),
            "rates" => bench.on(Event::RatesChanged("wan0".to_owned())),
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
                        request: Request::Check,
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
            request: Request::Check,
            ..
        }
    ));
    bench.ends(Outcome::Stopped);
    for event in [
        Event::ApplyRequested("wan0".to_owned()),
        Event::Configured(vec![wan0()]),
    ] {
        bench.on(event);
        assert!(matches!(
            bench.wait().1,
            Action::Check {
                request: Request::Apply,
                ..
            }
        ));
        bench.ends(Outcome::Stopped);
    }
}

#[test]
fn a_rollback_starts_no_stopped_interface_and_stops_those_that_were_stopped_before() {
    let mut bench = Bench::new();
    bench.shaped(7);
    for (stopped, request) in [
        ("", Request::RollBack),
        ("wan1", Request::RollBack),
        ("wan0", Request::Stop),
    ] {
        bench.on(Event::RolledBack {
            interfaces: vec![wan0()],
            stopped: vec![stopped.to_owned()],
        });
        assert_eq!(bench.wait(), (Nanos(0), check(Some(7), request)));
        // While another program holds the lock, the request stays pending, unless a newer request replaces it.
        bench.ends(Outcome::Busy { request });
        assert_eq!(bench.wait(), (POLL_INTERVAL, check(Some(7), request)));
        bench.ends(Outcome::Busy { request });
        bench.on(Event::ApplyRequested("wan0".to_owned()));
        assert_eq!(bench.wait(), (Nanos(0), check(Some(7), Request::Apply)));
        bench.ends(Outcome::AsPlanned { index: 7 });
    }
}

#[test]
fn a_changed_plan_is_no_repair() {
    let mut bench = Bench::new();
    bench.shaped(7);
    for _ in 0..10 {
        bench.on(Event::Configured(vec![wan0()]));
        bench.wait();
        bench.ends(Outcome::Changed {
            index: 7,
            changes: vec!["cake: a different rate".to_owned()],
            own: true,
        });
        assert_eq!(bench.state(), State::Shaped);
    }
    assert_eq!((bench.section().applied, bench.section().repaired), (11, 0));
}

#[test]
fn a_release_that_another_program_blocks_is_tried_again() {
    let mut bench = Bench::new();
    bench.shaped(7);
    bench.on(Event::Configured(Vec::new()));
    for wait in [Nanos(0), POLL_INTERVAL, POLL_INTERVAL] {
        assert_eq!(bench.wait(), (wait, Action::Release("wan0".to_owned())));
        bench.on(Event::NotReleased("wan0".to_owned()));
    }
    // The interface is configured again in the meantime.
    bench.on(Event::Configured(vec![wan0()]));
    assert!(matches!(bench.wait().1, Action::Check { .. }));
    bench.on(Event::NotReleased("wan0".to_owned()));
    assert_eq!(bench.reconciler.next(bench.now), None);
}

proptest! {
    /// After any sequence of events, an event leads to a check within a second unless the daemon backs off, and no state grows.
    #[test]
    fn every_event_leads_to_a_check_and_state_is_bounded(
        events in proptest::collection::vec((0..9_u8, 0..3_u32, 0..400_u64), 1..400),
    ) {
        let mut bench = Bench::new();
        let mut event_at: Option<Instant> = None;
        for (kind, index, millis) in events {
            bench.now = bench.now + Nanos::from_millis(millis);
            while let Some(action) = bench.reconciler.next(bench.now) {
                if let Action::Check { .. } = action {
                    event_at = None;
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
                event_at = None;
            }
            if let Some(at) = event_at {
                prop_assert!(bench.now.since(at) <= Nanos::from_millis(1000));
            }
            match kind {
                0 => bench.device(index, "wan0", 1500),
                1 => bench.device(index, "ifb4wan0", 1500),
                2 => bench.device(index, "other", 1500),
                3 => bench.on(Event::DeviceRemoved(index)),
                4 => bench.on(Event::QueuesChanged(index)),
                5 => bench.on(Event::EventsLost),
                6 => bench.on(Event::ApplyRequested("wan0".to_owned())),
                7 => bench.on(Event::Configured(vec![wan0()])),
                _ => bench.on(Event::FirewallChanged),
            }
            if matches!(kind, 5 | 8) && bench.state() != State::Contested {
                event_at.get_or_insert(bench.now);
            }
            prop_assert_eq!(bench.reconciler.sections().len(), 1);
            prop_assert!(bench.section().repairs.len() <= MAX_REPAIRS);
        }
    }
}

/// A reconciler whose interface is paused from now on for this many seconds.
fn paused(seconds: u64) -> Bench {
    let mut bench = Bench::new();
    bench.shaped(7);
    let until = bench.now + Nanos(seconds * SECOND);
    bench.on(Event::PauseRequested {
        interface: "wan0".to_owned(),
        until,
    });
    assert_eq!(bench.wait(), (Nanos(0), check(Some(7), Request::Pause)));
    bench.ends(Outcome::Paused);
    assert_eq!(bench.state(), State::Paused);
    bench
}

#[test]
fn a_pause_ends_by_itself_to_the_nanosecond_whatever_happens_meanwhile() {
    let mut bench = paused(100);
    let until = bench.section().paused_until().unwrap();
    for event in [
        Event::QueuesChanged(7),
        Event::FirewallChanged,
        Event::RatesChanged("wan0".to_owned()),
        Event::EventsLost,
    ] {
        bench.on(event);
        assert_eq!(bench.wait().1, check(Some(7), Request::StayPaused));
        bench.ends(Outcome::Paused);
        assert_eq!(bench.state(), State::Paused);
    }
    while bench.now < until {
        let (_, action) = bench.wait();
        if bench.now < until {
            assert_eq!(action, check(Some(7), Request::StayPaused));
            bench.ends(Outcome::Paused);
        } else {
            assert_eq!(action, check(Some(7), Request::Resume));
        }
    }
    assert_eq!(bench.now, until);
    assert_eq!(bench.section().paused_until(), None);
    bench.ends(Outcome::Changed {
        index: 7,
        changes: vec!["cake".to_owned()],
        own: true,
    });
    assert_eq!(bench.state(), State::Shaped);
    assert_eq!(bench.section().repaired, 0);
}

#[test]
fn a_pause_ends_with_its_client_a_reload_or_a_request_to_apply() {
    for (event, request) in [
        (Event::PauseEnded("wan0".to_owned()), Request::Resume),
        (Event::Configured(vec![wan0()]), Request::Apply),
        (Event::ApplyRequested("wan0".to_owned()), Request::Resume),
    ] {
        let mut bench = paused(60);
        bench.on(event.clone());
        assert_eq!(bench.wait(), (Nanos(0), check(Some(7), request)), "{event:?}");
        bench.ends(Outcome::AsPlanned { index: 7 });
        assert_eq!(bench.state(), State::Shaped);
        // The client of a pause that is over changes nothing.
        bench.on(Event::PauseEnded("wan0".to_owned()));
        assert_eq!(bench.wait(), (CHECK_INTERVAL, check(Some(7), Request::Check)));
    }
    let mut bench = paused(60);
    bench.on(Event::RolledBack {
        interfaces: vec![wan0()],
        stopped: Vec::new(),
    });
    assert_eq!(bench.wait(), (Nanos(0), check(Some(7), Request::RollBack)));
}

#[test]
fn a_pause_that_has_ended_stays_ended_if_the_interface_cannot_be_shaped_at_once() {
    let mut bench = paused(60);
    bench.on(Event::PauseEnded("wan0".to_owned()));
    assert_eq!(bench.wait().1, check(Some(7), Request::Resume));
    bench.ends(Outcome::Failed("the kernel refused the change".to_owned()));
    assert_eq!(bench.section().paused_until(), None);
    assert_eq!(bench.wait(), (FIRST_RETRY, check(Some(7), Request::Check)));
}

#[test]
fn a_paused_interface_that_is_stopped_by_hand_stays_stopped_after_the_pause() {
    let mut bench = paused(60);
    let until = bench.section().paused_until().unwrap();
    // The kernel reports no event, so the daemon looks often.
    assert_eq!(bench.wait(), (POLL_INTERVAL, check(Some(7), Request::StayPaused)));
    bench.ends(Outcome::Stopped);
    assert_eq!(bench.state(), State::Stopped);
    assert_eq!(bench.section().paused_until(), None);
    bench.on(Event::PauseEnded("wan0".to_owned()));
    while bench.now < until + CHECK_INTERVAL {
        assert_eq!(bench.wait().1, check(Some(7), Request::Check));
        bench.ends(Outcome::Stopped);
    }
    assert_eq!(bench.state(), State::Stopped);
    // A stop just before the end, which no check has noticed: no request that ends the pause overrules it.
    for event in [
        Event::PauseEnded("wan0".to_owned()),
        Event::ApplyRequested("wan0".to_owned()),
    ] {
        let mut bench = paused(60);
        bench.on(event);
        assert_eq!(bench.wait(), (Nanos(0), check(Some(7), Request::Resume)));
        bench.ends(Outcome::Stopped);
        assert_eq!(bench.state(), State::Stopped);
    }
}

#[test]
fn another_program_that_shapes_a_paused_interface_ends_the_pause() {
    let mut bench = paused(60);
    bench.on(Event::QueuesChanged(7));
    assert_eq!(bench.wait().1, check(Some(7), Request::StayPaused));
    bench.ends(Outcome::AsPlanned { index: 7 });
    assert_eq!(bench.state(), State::Shaped);
    assert_eq!(bench.section().paused_until(), None);
}

#[test]
fn a_paused_device_that_is_recreated_stays_paused_until_the_time_is_over() {
    let mut bench = paused(60);
    let until = bench.section().paused_until().unwrap();
    bench.on(Event::DeviceRemoved(7));
    assert_eq!(bench.wait().1, check(Some(7), Request::StayPaused));
    bench.ends(Outcome::Absent(None));
    assert_eq!(bench.state(), State::Waiting);
    bench.device(8, "wan0", 1500);
    assert_eq!(bench.wait().1, check(None, Request::StayPaused));
    bench.ends(Outcome::Paused);
    assert_eq!(bench.state(), State::Paused);
    loop {
        let (_, action) = bench.wait();
        if bench.now >= until {
            assert_eq!(action, check(None, Request::Resume));
            break;
        }
        bench.ends(Outcome::Paused);
    }
}

#[test]
fn a_pause_waits_for_another_sqm_program_to_end() {
    let mut bench = Bench::new();
    bench.shaped(7);
    let until = bench.now + Nanos(60 * SECOND);
    bench.on(Event::PauseRequested {
        interface: "wan0".to_owned(),
        until,
    });
    bench.wait();
    bench.ends(Outcome::Busy {
        request: Request::Pause,
    });
    assert_eq!(bench.wait(), (POLL_INTERVAL, check(Some(7), Request::Pause)));
}
