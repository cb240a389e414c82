//! The whole decision in virtual time: the reconciler beside a model of the kernel, whose rates another program changes.

use sqm_api::status::State;
use sqm_core::direction::Direction;

use super::*;
use crate::reconciler::{Action, ConfiguredInterface, Event, Outcome, Reconciler, Request};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const MINUTE: u64 = 60 * SECOND;

/// The interface wan0, shaped as configured at time 0.
struct Line {
    reconciler: Reconciler,
    now: Instant,
    /// The rates of other programs that the kernel holds.
    kernel: OtherRates,
    /// True if the kernel also holds another change of another program.
    is_changed: bool,
    /// When the daemon has undone rates, and another change.
    undone: Vec<Instant>,
    repaired: Vec<Instant>,
    /// Each text that the log would have had.
    said: Vec<String>,
}

fn wan0(kbits: u64) -> ConfiguredInterface {
    ConfiguredInterface {
        interface: "wan0".to_owned(),
        ifb: "ifb4wan0".to_owned(),
        rates: [Some(Rate::from_kbits_per_sec(kbits)), None],
    }
}

impl Line {
    fn new() -> Self {
        let mut line = Self {
            reconciler: Reconciler::default(),
            now: Instant(0),
            kernel: OtherRates::default(),
            is_changed: false,
            undone: Vec::new(),
            repaired: Vec::new(),
            said: Vec::new(),
        };
        line.on(Event::Configured(vec![wan0(1)]));
        line.on(Event::DeviceChanged {
            index: 7,
            name: "wan0".to_owned(),
            mtu: 1500,
            up: true,
            carrier: true,
        });
        line.run_until(Instant(SECOND));
        line
    }

    fn on(&mut self, event: Event) {
        self.reconciler.handle(event, self.now);
    }

    /// Carries out what becomes due until `end`.
    fn run_until(&mut self, end: Instant) {
        let mut actions = 0;
        loop {
            while let Some(action) = self.reconciler.next(self.now) {
                actions += 1;
                assert!(actions < 1_000_000, "a loop at full speed");
                self.act(action);
            }
            match self.reconciler.due() {
                Some(due) if due <= end => self.now = self.now.max(due),
                _ => break,
            }
        }
        self.now = end;
    }

    fn act(&mut self, action: Action) {
        let Action::Check {
            request, leave_rates, ..
        } = action
        else {
            panic!("{action:?}");
        };
        let mut changes = Vec::new();
        if !leave_rates && self.kernel != OtherRates::default() {
            self.kernel = OtherRates::default();
            if request == Request::Check {
                self.undone.push(self.now);
            }
            changes.push("rate".to_owned());
        }
        if std::mem::take(&mut self.is_changed) {
            self.repaired.push(self.now);
            changes.push("overhead".to_owned());
        }
        self.on(Event::OtherRatesFound("wan0".to_owned(), self.kernel.clone()));
        let own = request != Request::Check;
        let outcome = match changes.is_empty() {
            true => Outcome::AsPlanned { index: 7 },
            false => Outcome::Changed {
                index: 7,
                changes,
                own,
            },
        };
        self.on(Event::Checked("wan0".to_owned(), outcome));
        let why = self.reconciler.sections()[0].why.clone().unwrap_or_default();
        if self.said.last() != Some(&why) {
            self.said.push(why);
        }
    }

    fn set(&mut self, at: Instant, direction: Direction, kbits: u64) {
        self.run_until(at);
        self.kernel[direction] = vec![Some(Rate::from_kbits_per_sec(kbits))];
        self.on(Event::QueuesChanged(7));
    }

    fn is_controlled(&self) -> bool {
        self.controller().is_some()
    }

    fn controller(&self) -> Option<Controller> {
        self.reconciler.sections()[0].rate_controller()
    }
}

/// The time of each change of a program, and the rate in each direction; `None` leaves that.
type Changes = Vec<(u64, [Option<u64>; 2])>;

/// A change each `period`, in `[download, upload]`.
fn every(period: u64, duration: u64, rates: impl Fn(u64) -> [Option<u64>; 2]) -> Changes {
    (0..duration / period).map(|n| (n * period, rates(n))).collect()
}

fn played(changes: Changes) -> Line {
    let mut line = Line::new();
    for (after, rates) in changes {
        let at = Instant(10 * SECOND + after);
        for (direction, kbits) in Direction::BOTH.into_iter().zip(rates) {
            if let Some(kbits) = kbits {
                line.set(at, direction, kbits);
            }
        }
    }
    line
}

#[test]
fn no_change_of_a_controller_that_is_faster_than_a_change_in_700_ms_is_undone() {
    let wave = |n: u64| Some(1000 + 37 * (n % 11));
    let controllers: [(&str, Changes); 9] = [
        (
            "20 a second",
            every(50 * MS, 5 * MINUTE, |n| [wave(n), wave(n + 3)]),
        ),
        (
            "2 a second",
            every(500 * MS, 5 * MINUTE, |n| [wave(n), wave(n + 3)]),
        ),
        (
            "3 in 2 s, unevenly",
            every(667 * MS, 5 * MINUTE, |n| [wave(n), None]),
        ),
        ("100 a second", every(10 * MS, MINUTE, |n| [wave(n), wave(n)])),
        ("download only", every(50 * MS, MINUTE, |n| [wave(n), None])),
        ("upload only", every(500 * MS, MINUTE, |n| [None, wave(n)])),
        (
            "lowers only",
            every(100 * MS, MINUTE, |n| [Some(100_000 - n), None]),
        ),
        (
            "the upload once, at first",
            every(50 * MS, MINUTE, |n| [wave(n), (n == 0).then_some(5)]),
        ),
        (
            "the upload once, later",
            every(50 * MS, MINUTE, |n| [wave(n), (n == 700).then_some(5)]),
        ),
    ];
    for (name, changes) in controllers {
        let line = played(changes);
        assert_eq!(line.undone, [], "{name}");
        assert!(line.is_controlled(), "{name}");
        // Once: no state before, then the reason.
        assert_eq!(line.said.len(), 2, "{name}: {:?}", line.said);
    }
}

#[test]
fn a_slow_controller_is_found_after_some_changes_and_left_alone_from_then_on() {
    for period in [800 * MS, SECOND, 5 * SECOND, 30 * SECOND, 2 * MINUTE] {
        let line = played(every(period, 30 * period, |n| [Some(1000 + n), None]));
        assert_eq!(line.undone.len(), MANY - 1, "{period}");
        assert!(line.is_controlled(), "{period}");
    }
}

#[test]
fn a_controller_that_pauses_for_minutes_stays_the_controller() {
    let burst = |n: u64| (0..40).map(move |k| (n * 7 * MINUTE + k * 100 * MS, [Some(1000 + k), Some(n)]));
    let line = played((0..8).flat_map(burst).collect());
    assert_eq!(line.undone, []);
    assert!(line.is_controlled());
    assert_eq!(line.said.len(), 2, "{:?}", line.said);
}

#[test]
fn a_rate_that_a_person_changes_once_is_undone_within_a_second() {
    for rates in [[Some(5), None], [None, Some(5)], [Some(5), Some(6)]] {
        let mut line = played(vec![(0, rates)]);
        let changed = line.now;
        line.run_until(Instant(20 * SECOND));
        assert_eq!(line.undone.len(), 1, "{rates:?}");
        assert!(
            line.undone[0].since(changed) < Nanos::from_millis(1000),
            "{rates:?}"
        );
        assert!(!line.is_controlled());
        assert_eq!(line.reconciler.sections()[0].repaired, 1);
    }
    // One change in each quarter of an hour, by another person each time.
    let line = played(every(15 * MINUTE, 24 * 60 * MINUTE, |n| [Some(n), None]));
    assert!(
        line.undone.len() >= 95 && !line.is_controlled(),
        "{}",
        line.undone.len()
    );
    // A person who tries rates: a second one while the first has just been undone, then another.
    let mut line = played(vec![
        (0, [Some(5), None]),
        (2 * SECOND, [Some(6), None]),
        (9 * SECOND, [Some(7), None]),
    ]);
    line.run_until(Instant(MINUTE));
    assert_eq!((line.undone.len(), line.is_controlled()), (3, false));
}

#[test]
fn other_changes_are_repaired_within_a_second_while_a_controller_goes_on() {
    for period in [10 * MS, 50 * MS, 500 * MS] {
        let mut line = Line::new();
        let mut changed = Vec::new();
        for n in 0..3 * MINUTE / period {
            let at = Instant(10 * SECOND + n * period);
            line.set(at, Direction::Download, 1000 + n % 7);
            // Rarely enough for no conflict with a program that changes it.
            if (n * period) % (20 * SECOND) == 5 * SECOND {
                line.is_changed = true;
                changed.push(at);
            }
        }
        line.run_until(Instant(MINUTE * 4));
        assert_eq!(line.repaired.len(), changed.len(), "{period}");
        for (changed, repaired) in changed.iter().zip(&line.repaired) {
            assert!(repaired.since(*changed) < Nanos::from_millis(1000), "{period}");
        }
        assert_eq!(line.undone, [], "{period}");
    }
}

#[test]
fn the_rates_are_taken_back_when_the_controller_is_silent() {
    let mut line = played(every(50 * MS, MINUTE, |n| [Some(1000 + n), Some(n)]));
    let last = line.now;
    // The regular checks find the rate of the last change.
    line.run_until(last + SILENCE);
    assert_eq!(line.undone, []);
    line.run_until(last + SILENCE + Nanos::from_millis(600));
    assert_eq!(line.undone.len(), 1);
    assert!(!line.is_controlled());
    let section = &line.reconciler.sections()[0];
    assert_eq!((section.state, section.why.as_deref()), (State::Shaped, None));
    // A controller that goes on is found again.
    for n in 0..20 {
        let at = line.now + Nanos::from_millis(50);
        line.set(at, Direction::Download, 77 + n);
    }
    assert!(line.is_controlled());
    assert_eq!(line.undone.len(), 1);
}

#[test]
fn a_changed_rate_in_the_file_and_a_request_to_apply_take_the_rates_back_but_a_reload_alone_does_not() {
    for (event, is_left) in [
        (Event::Configured(vec![wan0(1)]), true),
        (Event::Configured(vec![wan0(2)]), false),
        (Event::ApplyRequested("wan0".to_owned()), false),
    ] {
        let mut line = played(every(50 * MS, MINUTE, |n| [Some(1000 + n), None]));
        line.on(event.clone());
        line.run_until(line.now + Nanos::from_millis(1));
        assert_eq!(line.kernel != OtherRates::default(), is_left, "{event:?}");
        assert_eq!(line.is_controlled(), is_left, "{event:?}");
    }
}

#[test]
fn the_directions_of_a_controller_are_those_that_it_has_changed() {
    let line = played(every(50 * MS, MINUTE, |n| [Some(n), (n >= 900).then_some(7)]));
    assert_eq!(
        line.controller().map(|it| it.directions),
        Some(PerDirection::both(true))
    );
    let line = played(every(50 * MS, MINUTE, |n| [None, Some(n)]));
    let upload = PerDirection::from([false, true]);
    assert_eq!(line.controller().map(|it| it.directions), Some(upload));
}
