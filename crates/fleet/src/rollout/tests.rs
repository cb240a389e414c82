use super::*;
use crate::judgement::Verdict;
use crate::report::{Judged, Refused};

const START: u64 = 1_800_000_000;
const REVISION: u64 = 8;

fn name(number: usize) -> Name {
    format!("r{number}").parse().expect("a name")
}

/// A store with routers that all were heard a moment ago.
struct Fleet {
    roll_out: RollOut,
    seen: BTreeMap<Name, Seen>,
    now: u64,
}

impl Fleet {
    fn new(routers: usize, rules: Rules) -> Self {
        let names: Vec<Name> = (1..=routers).map(name).collect();
        let seen = names.iter().map(|name| {
            (
                name.clone(),
                Seen {
                    report: None,
                    last_seen_unix_s: Some(START),
                },
            )
        });
        Self {
            seen: seen.collect(),
            roll_out: RollOut::new(name(0), REVISION, START, rules, names),
            now: START,
        }
    }

    /// Looks again after some seconds, in which all routers but the silent ones were heard.
    fn after(&mut self, seconds: u64, silent: &[usize]) -> Action {
        self.now += seconds;
        for (router, seen) in &mut self.seen {
            if !silent.iter().any(|&number| name(number) == *router) {
                seen.last_seen_unix_s = Some(self.now);
            }
        }
        self.roll_out.advance(&self.seen, self.now)
    }

    /// The documents of a step are handed out. Returns the routers.
    fn hand_out(&mut self, action: Action) -> usize {
        let Action::HandOut(routers) = action else {
            panic!("{action:?}")
        };
        self.roll_out.handed_out(self.now);
        routers.len()
    }

    fn report(&mut self, number: usize, outcome: Outcome) {
        let seen = self.seen.get_mut(&name(number)).expect("one of the fleet");
        seen.report = Some(Report {
            schema: crate::report::SCHEMA.into(),
            router: name(number),
            at_unix_s: self.now,
            sqm_version: "0.1.0".into(),
            hardware: "x86_64".into(),
            revision: REVISION,
            in_force: REVISION,
            outcome: Some(outcome),
            refused: None,
            differences: Vec::new(),
        });
    }
}

fn judged(verdict: Verdict) -> Judged {
    Judged {
        verdict,
        reason: String::new(),
        before: None,
        after: None,
    }
}

fn kept() -> Outcome {
    Outcome::Kept(judged(Verdict::Good))
}

fn rolled_back() -> Outcome {
    Outcome::RolledBack(judged(Verdict::Worse))
}

fn unjudged() -> Outcome {
    Outcome::Kept(judged(Verdict::Unjudged))
}

fn halted(fleet: &Fleet) -> &str {
    match &fleet.roll_out.progress {
        Progress::Halted { reason, .. } => reason,
        other => panic!("not halted: {other:?}"),
    }
}

/// One step with a tenth of the routers, then all.
fn a_tenth() -> Rules {
    Rules {
        steps: vec![Share::Percent(10.0)],
        ..Rules::default()
    }
}

#[test]
fn each_step_waits_for_the_one_before_and_for_its_hold() {
    let mut fleet = Fleet::new(20, Rules::default());
    let mut reached = 0;
    // 5 % of 20 routers is the one of the first step: that step is left out.
    for size in [1, 4, 15] {
        let action = fleet.after(600, &[]);
        assert_eq!(fleet.hand_out(action), size);
        reached += size;
        assert!(
            matches!(fleet.after(3600, &[]), Action::Wait(_)),
            "busy routers are waited for"
        );
        for number in 1..=reached {
            fleet.report(number, kept());
        }
        if reached < 20 {
            assert!(matches!(fleet.after(1, &[]), Action::Wait(_)), "the hold");
            assert!(matches!(fleet.after(598, &[]), Action::Wait(_)), "the hold");
        }
    }
    assert_eq!(fleet.after(1, &[]), Action::Nothing);
    assert_eq!(fleet.roll_out.progress, Progress::Done);
}

#[test]
fn a_bad_canary_halts_and_the_others_never_get_the_document() {
    let mut fleet = Fleet::new(20, a_tenth());
    let action = fleet.after(0, &[]);
    assert_eq!(fleet.hand_out(action), 2);
    fleet.report(1, kept());
    fleet.report(2, rolled_back());
    for _ in 0..100 {
        assert_eq!(fleet.after(600, &[]), Action::Nothing);
    }
    assert_eq!(
        halted(&fleet),
        "1 of 2 routers of this step failed (1 rolled the document back; unjudged ones are not counted): r2"
    );
    // A person may go on all the same.
    assert!(fleet.roll_out.resume());
    let action = fleet.after(1, &[]);
    assert_eq!(fleet.hand_out(action), 18);
}

#[test]
fn a_few_bad_routers_of_many_do_not_halt() {
    let mut fleet = Fleet::new(
        100,
        Rules {
            steps: vec![Share::Percent(50.0)],
            ..Rules::default()
        },
    );
    let action = fleet.after(0, &[]);
    assert_eq!(fleet.hand_out(action), 50);
    for number in 1..=45 {
        fleet.report(number, kept());
    }
    for number in 46..=50 {
        fleet.report(number, rolled_back());
    }
    assert!(
        matches!(fleet.after(1, &[]), Action::Wait(_)),
        "5 of 50 are 10 %, which is allowed"
    );
    fleet.report(45, rolled_back());
    assert_eq!(fleet.after(1, &[]), Action::Nothing);
    assert!(halted(&fleet).starts_with("6 of 50"), "{}", halted(&fleet));
}

#[test]
fn a_refusal_and_silence_after_the_document_are_bad_and_absence_before_is_not() {
    let mut fleet = Fleet::new(20, a_tenth());
    // Router 1 was silent before the roll-out began.
    assert!(matches!(fleet.after(1000, &[1]), Action::HandOut(_)));
    fleet.roll_out.handed_out(fleet.now);
    fleet.report(2, kept());
    assert!(matches!(fleet.after(1000, &[1]), Action::Wait(_)), "the hold");
    let action = fleet.after(600, &[1]);
    assert_eq!(fleet.hand_out(action), 18);
    // Router 3 took the document and was never heard again. One of 18 is less than 10 %.
    for number in (4..=20).chain([1]) {
        fleet.report(number, kept());
    }
    assert_eq!(
        fleet.after(200, &[3]),
        Action::Wait(fleet.now + 10),
        "it may still speak"
    );
    assert_eq!(fleet.after(200, &[3]), Action::Nothing);
    assert_eq!(fleet.roll_out.progress, Progress::Done);
    assert_eq!(
        fleet
            .roll_out
            .standing(&fleet.seen[&name(3)], START + 2600, fleet.now),
        Standing::FellSilent
    );

    let mut fleet = Fleet::new(1, Rules::default());
    let action = fleet.after(0, &[]);
    fleet.hand_out(action);
    assert_eq!(fleet.after(301, &[1]), Action::Nothing);
    assert!(halted(&fleet).contains("1 fell silent"), "{}", halted(&fleet));

    let mut fleet = Fleet::new(1, Rules::default());
    let action = fleet.after(0, &[]);
    fleet.hand_out(action);
    fleet.report(1, kept());
    let report = fleet
        .seen
        .get_mut(&name(1))
        .and_then(|seen| seen.report.as_mut())
        .expect("written above");
    (report.revision, report.outcome) = (REVISION - 1, None);
    let refused = Refused {
        revision: Some(REVISION),
        reason: String::new(),
        at_unix_s: START,
    };
    report.refused = Some(refused);
    assert_eq!(fleet.after(1, &[]), Action::Nothing);
    assert!(halted(&fleet).contains("1 refused it"), "{}", halted(&fleet));
}

#[test]
fn unjudged_routers_count_neither_way() {
    let mut fleet = Fleet::new(
        20,
        Rules {
            steps: vec![Share::Routers(10)],
            ..Rules::default()
        },
    );
    let action = fleet.after(0, &[]);
    fleet.hand_out(action);
    for number in 1..=9 {
        fleet.report(number, unjudged());
    }
    fleet.report(10, rolled_back());
    assert_eq!(fleet.after(1, &[]), Action::Nothing);
    assert!(halted(&fleet).starts_with("1 of 1 routers"), "{}", halted(&fleet));

    let mut fleet = Fleet::new(
        20,
        Rules {
            steps: vec![Share::Routers(10)],
            hold_s: 0,
            ..Rules::default()
        },
    );
    let action = fleet.after(0, &[]);
    fleet.hand_out(action);
    for number in 1..=10 {
        fleet.report(number, unjudged());
    }
    assert!(
        matches!(fleet.after(1, &[]), Action::HandOut(_)),
        "nothing speaks against it"
    );
}

#[test]
fn nothing_is_handed_out_in_a_freeze_or_outside_of_the_daily_times() {
    // 1,800,000,000 s after 1970 is 08:00 (UTC).
    let night = Some(Daily {
        from_s: 22 * 3600,
        to_s: 4 * 3600,
    });
    let rules = Rules {
        daily: night,
        ..Rules::default()
    };
    assert_eq!(rules.opens_at(START), START + 14 * 3600);
    assert_eq!(rules.opens_at(START + 17 * 3600), START + 17 * 3600, "01:00");
    let freezes = vec![
        Span {
            from_unix_s: START + 15 * 3600,
            to_unix_s: START + 30 * 3600,
        },
        Span {
            from_unix_s: START,
            to_unix_s: START + 16 * 3600,
        },
    ];
    let rules = Rules { freezes, ..rules };
    // Both freezes end at 14:00 of the next day, and the night begins at 22:00.
    assert_eq!(rules.opens_at(START), START + 38 * 3600);

    let mut fleet = Fleet::new(2, rules);
    assert_eq!(fleet.after(0, &[]), Action::Wait(START + 38 * 3600));
    assert!(matches!(fleet.after(38 * 3600, &[]), Action::HandOut(_)));
}

#[test]
fn a_process_that_takes_over_goes_on_where_the_other_was_killed() {
    let mut fleet = Fleet::new(20, a_tenth());
    assert!(matches!(fleet.after(0, &[]), Action::HandOut(_)));
    for _ in 0..20 {
        // Killed at any moment: what is left is the text in the store.
        let text = serde_json::to_vec(&fleet.roll_out).expect("plain data");
        fleet.roll_out = RollOut::parse(&text).expect("its own text");
        if let Action::HandOut(routers) = fleet.after(600, &[]) {
            // It is killed before it notes this: the same documents are handed out again.
            assert_eq!(fleet.after(0, &[]), Action::HandOut(routers));
            fleet.roll_out.handed_out(fleet.now);
        }
        for number in 1..=20 {
            fleet.report(number, kept());
        }
    }
    assert_eq!(fleet.roll_out.progress, Progress::Done);
}

#[test]
fn rules_that_cannot_work_are_named() {
    let rules = Rules::default();
    assert!(rules.check().is_ok());
    let wrong = |rules: Rules| rules.check().expect_err("wrong");
    for share in [
        Share::Routers(0),
        Share::Percent(0.0),
        Share::Percent(101.0),
        Share::Percent(f64::NAN),
    ] {
        assert!(
            wrong(Rules {
                steps: vec![share],
                ..rules.clone()
            })
            .contains("each step")
        );
    }
    assert!(
        wrong(Rules {
            halt_percent: -1.0,
            ..rules.clone()
        })
        .contains("halts")
    );
    assert!(
        wrong(Rules {
            silent_s: 0,
            ..rules.clone()
        })
        .contains("60 s")
    );
    let backwards = vec![Span {
        from_unix_s: 2,
        to_unix_s: 1,
    }];
    assert!(
        wrong(Rules {
            freezes: backwards,
            ..rules.clone()
        })
        .contains("freeze")
    );
    assert!(
        wrong(Rules {
            daily: Some(Daily { from_s: 1, to_s: 1 }),
            ..rules
        })
        .contains("times of the day")
    );
}

#[test]
fn a_roll_out_that_cannot_be_is_refused_when_it_is_read() {
    let fleet = Fleet::new(20, a_tenth());
    let refused = |change: &dyn Fn(&mut RollOut)| {
        let mut roll_out = fleet.roll_out.clone();
        change(&mut roll_out);
        RollOut::parse(&serde_json::to_vec(&roll_out).expect("plain data"))
    };
    assert!(refused(&|_| {}).is_ok());
    let said = refused(&|roll_out| roll_out.begin(3));
    assert_eq!(said, Err("it is in step 3 of 2, counted from 0".into()));
    let said = refused(&|roll_out| roll_out.rules.silent_s = 1).expect_err("refused");
    assert!(said.contains("60 s"), "{said}");
    let said = refused(&|roll_out| roll_out.schema = "sqm-fleet-rollout/2".into()).expect_err("refused");
    assert!(said.contains("sqm-fleet-rollout/2"), "{said}");
}

#[test]
fn a_roll_out_without_routers_is_done() {
    let mut fleet = Fleet::new(0, Rules::default());
    assert_eq!(fleet.after(0, &[]), Action::Nothing);
    assert_eq!(fleet.roll_out.progress, Progress::Done);
}
