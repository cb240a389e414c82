use super::*;
use crate::desired::SCHEMA;
use crate::judgement::Rules;
use crate::signed::SigningKey;
use sqm_core::direction::PerDirection;
use sqm_core::units::{Nanos, Rate};

const NOW: u64 = 1_800_000_000;

/// A router whose configuration is a text, with a daemon that rolls back what is not confirmed.
struct Router {
    key: SigningKey,
    agent: Agent,
    /// The disk's content.
    memory: Memory,
    configuration: String,
    /// The text from before, while a change waits for its confirmation.
    before: Option<String>,
    now: u64,
    reports: Vec<Option<Outcome>>,
    /// The texts that the daemon refuses.
    invalid: Vec<String>,
    is_busy: bool,
    /// The power fails before this action of the agent.
    fails_before: Option<usize>,
    actions: usize,
    /// The tests that were begun.
    tests: Vec<QuietTest>,
}

mod quiet;

impl Router {
    fn new() -> Self {
        let key = SigningKey::generate();
        let identity = Identity {
            router: "r1".parse().expect("a name"),
            key: key.public(),
        };
        Self {
            agent: Agent::new(identity, Memory::default()),
            key,
            memory: Memory::default(),
            configuration: "first".into(),
            before: None,
            now: NOW,
            reports: Vec::new(),
            invalid: Vec::new(),
            is_busy: false,
            fails_before: None,
            actions: 0,
            tests: Vec::new(),
        }
    }

    fn document(&self, revision: u64, configuration: &str) -> Desired {
        Desired {
            schema: SCHEMA.into(),
            router: "r1".parse().expect("a name"),
            group: None,
            revision,
            issued_unix_s: NOW,
            not_before_unix_s: None,
            expires_unix_s: None,
            configuration: configuration.into(),
            judgement: Rules::default(),
        }
    }

    fn give(&mut self, document: &Desired) {
        let envelope = self
            .key
            .sign(&serde_json::to_string(document).expect("plain data"));
        let actions = self.agent.receive(envelope.as_bytes(), self.now);
        self.carry_out(actions);
    }

    /// The daemon and the agent end without a warning and start again. The daemon rolls back what was not confirmed.
    fn restart(&mut self) {
        if let Some(before) = self.before.take() {
            self.configuration = before;
        }
        self.agent = Agent::new(self.agent.identity.clone(), self.memory.clone());
        // The agent reports whenever it connects.
        self.reports.push(self.memory.outcome.clone());
        let actions = self.agent.look(self.now);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.actions += 1;
            if self.fails_before == Some(self.actions) {
                self.restart();
                return;
            }
            let more = match action {
                Action::Remember => {
                    self.memory = self.agent.memory().clone();
                    Vec::new()
                }
                Action::Report => {
                    self.reports.push(self.agent.memory().outcome.clone());
                    Vec::new()
                }
                Action::Apply {
                    configuration,
                    confirm_s,
                } => {
                    assert!(confirm_s > 3600);
                    let applied = self.apply(configuration);
                    self.agent.applied(applied, self.now)
                }
                Action::Test(test) => {
                    self.tests.push(test);
                    Vec::new()
                }
                Action::Confirm => {
                    self.before = None;
                    self.agent.carried_out(Ended::Kept)
                }
                Action::Revert => {
                    self.configuration = self.before.take().expect("a change waits");
                    self.agent.carried_out(Ended::RolledBack)
                }
            };
            self.carry_out(more);
        }
    }

    fn apply(&mut self, configuration: String) -> Applied {
        if self.is_busy {
            return Applied::Busy;
        }
        if self.invalid.contains(&configuration) {
            return Applied::Invalid(vec![format!("line 1: {configuration}")]);
        }
        if self.configuration == configuration {
            return Applied::Already;
        }
        self.before = Some(std::mem::replace(&mut self.configuration, configuration));
        Applied::Yes
    }

    /// Seconds under load with this delay.
    fn load(&mut self, seconds: u64, added_ms: u64) {
        let rate = PerDirection::both(Rate::from_bits_per_sec(50_000_000));
        for _ in 0..seconds {
            self.now += 1;
            let second = Second {
                throughput: rate,
                added: vec![Nanos::from_millis(added_ms)],
                dropped: 0,
            };
            let actions = self.agent.observe(&second, Load::of(rate, rate), self.now);
            self.carry_out(actions);
        }
    }

    fn outcome(&self) -> &Outcome {
        self.memory.outcome.as_ref().expect("there was a document")
    }
}

#[test]
fn a_good_document_is_kept_and_a_worse_one_is_rolled_back() {
    let mut router = Router::new();
    router.load(100, 5);
    router.give(&router.document(1, "second"));
    assert_eq!(
        (router.configuration.as_str(), router.outcome()),
        (
            "second",
            &Outcome::Observed {
                quiet_test_unix_s: None
            }
        )
    );
    router.load(60, 6);
    assert!(matches!(router.outcome(), Outcome::Kept(judged) if judged.verdict == Verdict::Good));
    assert_eq!((router.before.as_deref(), router.memory.in_force), (None, 1));

    router.give(&router.document(2, "third"));
    router.load(20, 300);
    let Outcome::RolledBack(judged) = router.outcome() else {
        panic!("{:?}", router.outcome())
    };
    assert_eq!(judged.verdict, Verdict::Worse);
    let [before, after] = [judged.before, judged.after].map(|measured| measured.expect("measured").p95_ms);
    assert_eq!((before, after), (6.0, 300.0));
    assert_eq!(
        (router.configuration.as_str(), router.memory.in_force),
        ("second", 1)
    );
    // The store still holds it: it is not tried again.
    router.give(&router.document(2, "third"));
    assert_eq!(router.configuration, "second");
}

#[test]
fn each_forgery_is_refused_with_its_reason_and_changes_nothing() {
    let mut router = Router::new();
    router.load(100, 5);
    router.give(&router.document(5, "second"));
    router.load(60, 5);
    let document = |router: &Router, change: &dyn Fn(&mut Desired)| {
        let mut document = router.document(6, "evil");
        change(&mut document);
        serde_json::to_string(&document).expect("plain data")
    };
    let key = SigningKey::from_seed(&router.key.seed()).expect("its own seed");
    let signed = |text: &str| key.sign(text);
    let good = signed(&document(&router, &|_| {}));
    let other_key = SigningKey::generate();
    let forgeries = [
        (
            "another key",
            other_key.sign(&document(&router, &|_| {})),
            "has signed it",
        ),
        (
            "another key under our name",
            other_key
                .sign("{}")
                .replace(&other_key.public().to_string(), &key.public().to_string()),
            "its signature is wrong",
        ),
        ("altered", good.replace("evil", "worse"), "its signature is wrong"),
        (
            "an older revision",
            signed(&document(&router, &|d| d.revision = 4)),
            "its revision 4 is not above 5",
        ),
        (
            "the same revision",
            signed(&document(&router, &|d| d.revision = 5)),
            "its revision 5 is not above 5",
        ),
        (
            "another router's",
            signed(&document(&router, &|d| d.router = "r2".parse().expect("a name"))),
            "it is for the router r2",
        ),
        (
            "expired",
            signed(&document(&router, &|d| d.expires_unix_s = Some(NOW))),
            "it expired",
        ),
        (
            "truncated",
            good[..good.len() / 2].to_owned(),
            "it is no signed document",
        ),
        ("10 MB", "x".repeat(10 << 20), "it has 10485760 bytes"),
        (
            "another schema of the envelope",
            good.replace("signed/1", "signed/2"),
            "its schema is 'sqm-fleet-signed/2'",
        ),
        (
            "another schema of the document",
            signed(&document(&router, &|d| d.schema = "sqm-fleet-desired/2".into())),
            "its schema is 'sqm-fleet-desired/2'",
        ),
        (
            "an unknown verb",
            signed(
                &document(&router, &|_| {}).replace("\"revision\"", "\"command\":\"reboot\",\"revision\""),
            ),
            "unknown field `command`",
        ),
        ("no document", signed("hello"), "it is no desired document"),
        (
            "rules that cannot work",
            signed(&document(&router, &|d| d.judgement.minimum_s = 0)),
            "minimum_s",
        ),
    ];
    for (what, envelope, reason) in forgeries {
        let actions = router.agent.receive(envelope.as_bytes(), router.now);
        router.carry_out(actions);
        let refused = router
            .memory
            .refused
            .clone()
            .unwrap_or_else(|| panic!("{what} is not refused"));
        assert!(refused.reason.contains(reason), "{what}: {}", refused.reason);
        let again = router.agent.receive(envelope.as_bytes(), router.now + 1);
        assert_eq!(again, [], "{what} is reported once");
        assert_eq!(
            (router.configuration.as_str(), router.memory.revision),
            ("second", 5),
            "{what}"
        );
    }
    // The genuine one is still taken.
    let actions = router.agent.receive(good.as_bytes(), router.now);
    router.carry_out(actions);
    assert_eq!(
        (router.configuration.as_str(), &router.memory.refused),
        ("evil", &None)
    );
}

#[test]
fn a_document_with_errors_is_refused_whole() {
    let mut router = Router::new();
    router.invalid.push("broken".into());
    router.give(&router.document(1, "broken"));
    let errors = vec!["line 1: broken".to_owned()];
    assert_eq!(router.outcome(), &Outcome::Invalid { errors });
    assert_eq!(
        (router.configuration.as_str(), router.memory.in_force),
        ("first", 0)
    );
}

#[test]
fn without_load_a_document_is_kept_unjudged_in_the_end() {
    let mut router = Router::new();
    router.give(&router.document(1, "second"));
    router.now += 3599;
    router.load(1, 5);
    assert!(matches!(router.outcome(), Outcome::Kept(judged) if judged.verdict == Verdict::Unjudged));
    assert_eq!(router.before, None);
}

#[test]
fn a_document_waits_for_its_time() {
    let mut router = Router::new();
    let not_before_unix_s = Some(NOW + 100);
    router.give(&Desired {
        not_before_unix_s,
        ..router.document(1, "second")
    });
    assert_eq!(
        router.outcome(),
        &Outcome::Waiting {
            until_unix_s: not_before_unix_s
        }
    );
    router.restart();
    assert_eq!(router.configuration, "first");
    router.now += 100;
    let actions = router.agent.look(router.now);
    router.carry_out(actions);
    assert_eq!(router.configuration, "second");
}

#[test]
fn a_change_that_waits_for_somebody_else_holds_the_document_up() {
    let mut router = Router::new();
    router.is_busy = true;
    router.give(&router.document(1, "second"));
    for _ in 0..10 {
        router.now += 10;
        let actions = router.agent.look(router.now);
        router.carry_out(actions);
    }
    assert_eq!(router.configuration, "first");
    router.is_busy = false;
    router.now += 10;
    let actions = router.agent.look(router.now);
    router.carry_out(actions);
    assert_eq!(router.configuration, "second");
}

#[test]
fn a_loss_of_power_at_any_step_loses_nothing_and_leaves_nothing_half_applied() {
    for added_ms in [5, 300] {
        let mut points = 0;
        for fails_before in 1.. {
            let mut router = Router::new();
            router.load(100, 5);
            router.fails_before = Some(fails_before);
            router.give(&router.document(1, "second"));
            if router.memory.revision == 0 {
                // It failed before the document was remembered. The store still has it.
                router.load(100, 5);
                router.give(&router.document(1, "second"));
            }
            router.load(200, added_ms);
            router.give(&router.document(1, "second"));
            router.load(200, added_ms);
            if router.actions < fails_before {
                break;
            }
            points += 1;
            assert_eq!(router.before, None, "point {fails_before}: nothing waits");
            let in_force = (router.configuration.as_str(), router.memory.in_force);
            if added_ms == 5 {
                assert_eq!(in_force, ("second", 1), "point {fails_before}");
                assert!(
                    matches!(router.outcome(), Outcome::Kept(_)),
                    "point {fails_before}: {:?}",
                    router.outcome()
                );
            } else {
                assert_eq!(in_force, ("first", 0), "point {fails_before}");
                assert!(
                    matches!(router.outcome(), Outcome::RolledBack(_)),
                    "point {fails_before}"
                );
            }
            assert_eq!(
                router.reports.last(),
                Some(&router.memory.outcome),
                "point {fails_before}"
            );
        }
        assert!(points >= 7, "{points}");
    }
}

#[test]
fn a_document_that_ends_the_daemon_is_not_tried_for_ever() {
    let mut router = Router::new();
    router.give(&router.document(1, "second"));
    for _ in 0..5 {
        router.restart();
    }
    assert!(matches!(router.outcome(), Outcome::RolledBack(judged) if judged.reason.contains("3 times")));
    assert_eq!(router.configuration, "first");
}

#[test]
fn what_a_person_does_meanwhile_counts() {
    let mut router = Router::new();
    router.give(&router.document(1, "second"));
    // Confirmed on the page.
    router.before = None;
    let actions = router.agent.carried_out(Ended::Kept);
    router.carry_out(actions);
    assert!(matches!(router.outcome(), Outcome::Kept(judged) if judged.reason.contains("by hand")));
    router.give(&router.document(2, "third"));
    router.configuration = router.before.take().expect("a change waits");
    let actions = router.agent.carried_out(Ended::RolledBack);
    router.carry_out(actions);
    assert!(matches!(router.outcome(), Outcome::RolledBack(judged) if judged.reason.contains("by hand")));
    assert_eq!(router.memory.in_force, 1);
}
