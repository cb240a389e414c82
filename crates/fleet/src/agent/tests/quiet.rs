use super::*;
use crate::daily::Daily;

const HOUR: u64 = 3600;
/// 22:00 to 23:00 (UTC); [`NOW`] is 08:00.
const NIGHT: u64 = NOW + 14 * HOUR;
const TEST_S: u64 = 30;

impl Router {
    /// A router whose users gave 100 s of load, and no more since it has this document, which asks for a test.
    fn waiting() -> Self {
        let mut router = Self::new();
        router.load(100, 5);
        router.give(&router.asking(1, "second"));
        router.now += HOUR;
        router.idle(1);
        router
    }

    fn asking(&self, revision: u64, configuration: &str) -> Desired {
        let mut document = self.document(revision, configuration);
        document.judgement.quiet_test = Some(QuietTest {
            server: "hub:35353".into(),
            daily: Daily {
                from_s: 22 * 3600,
                to_s: 23 * 3600,
            },
            load_s: TEST_S as u32,
            most_mbyte: 100,
        });
        document
    }

    /// Seconds with this throughput, and the agent looks each second.
    fn pass(&mut self, seconds: u64, mbit: u64) {
        let rate = PerDirection::both(Rate::from_bits_per_sec(50_000_000));
        for _ in 0..seconds {
            self.now += 1;
            let second = Second {
                throughput: PerDirection::both(Rate::from_bits_per_sec(mbit * 1_000_000)),
                added: Vec::new(),
                dropped: 0,
            };
            let actions = self.agent.observe(&second, Load::of(rate, rate), self.now);
            self.carry_out(actions);
            let actions = self.agent.look(self.now);
            self.carry_out(actions);
        }
    }

    fn idle(&mut self, seconds: u64) {
        self.pass(seconds, 0);
    }

    /// It becomes night, on an idle line.
    fn until_night(&mut self) {
        self.now = NIGHT - 100;
        self.idle(110);
    }

    /// The test that runs loads the line with this delay, and ends.
    fn test(&mut self, seconds: u64, added_ms: u64, end: TestEnd) {
        assert!(self.agent.is_testing());
        self.load(seconds, added_ms);
        let actions = self.agent.tested(end, self.now);
        self.carry_out(actions);
        self.idle(1);
    }

    fn judged(&self) -> (Verdict, &str) {
        match self.outcome() {
            Outcome::Kept(judged) | Outcome::RolledBack(judged) => (judged.verdict, &judged.reason),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn without_load_both_configurations_are_tested_at_the_quiet_hour() {
    for (added_ms, verdict, text) in [(6, Verdict::Good, "second"), (300, Verdict::Worse, "first")] {
        let mut router = Router::waiting();
        assert_eq!(
            router.outcome(),
            &Outcome::Observed {
                quiet_test_unix_s: Some(NIGHT)
            }
        );
        router.idle(10);
        assert!(router.tests.is_empty(), "it is day");
        router.until_night();
        assert_eq!((router.tests.len(), router.configuration.as_str()), (1, "second"));
        router.test(TEST_S, added_ms, TestEnd::Done);
        assert_eq!((router.tests.len(), router.configuration.as_str()), (2, "first"));
        router.test(TEST_S, 5, TestEnd::Done);
        let (found, reason) = router.judged();
        assert_eq!((found, router.configuration.as_str()), (verdict, text));
        assert_eq!(
            reason,
            format!(
                "in a test with hub:35353 under load the 95th percentile of the added round trip went from 5.0 ms to {added_ms}.0 ms"
            )
        );
        assert_eq!((router.before.as_deref(), router.agent.due()), (None, None));
        assert_eq!(router.memory.in_force, u64::from(text == "second"));
    }
}

#[test]
fn users_who_give_enough_load_before_the_night_are_believed() {
    let mut router = Router::waiting();
    router.load(20, 300);
    let (verdict, reason) = router.judged();
    assert_eq!(
        (verdict, router.configuration.as_str()),
        (Verdict::Worse, "first")
    );
    assert!(reason.starts_with("under load the 95th percentile"), "{reason}");
    router.until_night();
    assert!(router.tests.is_empty());
}

#[test]
fn a_line_in_use_is_not_tested() {
    let mut router = Router::waiting();
    router.now = NIGHT - 100;
    // A film.
    router.pass(HOUR + 99, 4);
    assert!(router.tests.is_empty());
    assert!(matches!(router.outcome(), Outcome::Observed { .. }));
    router.pass(2, 4);
    let (verdict, reason) = router.judged();
    assert_eq!(
        (verdict, router.configuration.as_str()),
        (Verdict::Unjudged, "second")
    );
    assert!(
        reason.ends_with(
            "a test with hub:35353 gave none either: the line was in use, and never idle for 60 s"
        ),
        "{reason}"
    );
}

#[test]
fn a_test_begins_when_the_line_has_been_idle_for_a_minute() {
    let mut router = Router::waiting();
    router.now = NIGHT;
    router.pass(100, 4);
    router.idle(59);
    assert!(router.tests.is_empty());
    router.idle(1);
    assert_eq!(router.tests.len(), 1);
}

#[test]
fn a_server_that_is_away_is_asked_again_until_the_night_is_over() {
    let mut router = Router::waiting();
    router.until_night();
    let away = || TestEnd::Failed("no answer".into());
    router.test(0, 0, away());
    router.idle(298);
    assert_eq!(router.tests.len(), 1, "five minutes have not passed");
    router.idle(2);
    assert_eq!(router.tests.len(), 2);
    router.test(0, 0, away());
    router.now = NIGHT + HOUR;
    router.idle(1);
    let (verdict, reason) = router.judged();
    assert_eq!(
        (verdict, router.configuration.as_str()),
        (Verdict::Unjudged, "second")
    );
    assert_eq!(
        reason,
        "too little load for a verdict: 100 s under load before the change and 0 s after it, where 20 s are needed; a test with \
         hub:35353 gave none either: no answer"
    );
}

#[test]
fn a_test_with_too_little_load_gives_no_verdict_and_says_why() {
    let mut router = Router::waiting();
    router.until_night();
    router.test(12, 300, TestEnd::TooMuch);
    let (verdict, reason) = router.judged();
    assert_eq!(
        (verdict, router.configuration.as_str()),
        (Verdict::Unjudged, "second")
    );
    assert!(
        reason.ends_with("it loaded the line for 12 s, and ended after 100 MB"),
        "{reason}"
    );

    // Also if it is the second one: the document's configuration comes back.
    let mut router = Router::waiting();
    router.until_night();
    router.test(TEST_S, 300, TestEnd::Done);
    router.test(3, 5, TestEnd::Failed("the server has ended".into()));
    let (verdict, reason) = router.judged();
    assert_eq!(
        (verdict, router.configuration.as_str()),
        (Verdict::Unjudged, "second")
    );
    assert!(
        reason.ends_with("could not be tested with hub:35353: the server has ended"),
        "{reason}"
    );
    assert_eq!(router.memory.in_force, 1);
}

#[test]
fn a_newer_document_does_not_wait_for_the_night() {
    let mut router = Router::waiting();
    let newer = router.document(2, "third");
    router.give(&newer);
    assert!(router.judged().1.contains("a newer document arrived before"));
    // The caller reads the store again when a change has ended.
    router.give(&newer);
    assert_eq!(router.configuration, "third");

    // Nor for the second test, if it arrives during it.
    let mut router = Router::waiting();
    router.until_night();
    router.test(TEST_S, 6, TestEnd::Done);
    router.give(&newer);
    assert_eq!(
        (router.configuration.as_str(), router.agent.is_testing()),
        ("third", false)
    );
    let actions = router.agent.tested(TestEnd::Done, router.now);
    assert_eq!(actions, [], "that test is of no interest any more");
}

#[test]
fn a_person_who_decides_ends_the_test() {
    let mut router = Router::waiting();
    router.until_night();
    router.before = None;
    let actions = router.agent.carried_out(Ended::Kept);
    router.carry_out(actions);
    assert!(!router.agent.is_testing());
    let (verdict, reason) = router.judged();
    assert_eq!(verdict, Verdict::Unjudged);
    assert!(reason.contains("by hand"), "{reason}");
}

#[test]
fn a_restart_at_any_moment_of_a_test_leaves_one_of_the_two_configurations_for_good() {
    let mut router = Router::waiting();
    let first = router.actions;
    router.until_night();
    router.test(TEST_S, 6, TestEnd::Done);
    router.test(TEST_S, 5, TestEnd::Done);
    let all = router.actions - first;
    assert!(all > 6, "{all} actions");
    for fails in 1..=all {
        let mut router = Router::waiting();
        router.fails_before = Some(first + fails);
        router.until_night();
        for added_ms in [6, 5] {
            if router.agent.is_testing() {
                router.test(TEST_S, added_ms, TestEnd::Done);
            }
        }
        router.fails_before = None;
        // Whatever happened, it is tried again, and the users decide.
        router.load(200, 5);
        assert!(
            matches!(router.outcome(), Outcome::Kept(_)),
            "{fails}: {:?}",
            router.outcome()
        );
        assert_eq!(
            (router.configuration.as_str(), router.before.as_deref()),
            ("second", None),
            "{fails}"
        );
    }
}
