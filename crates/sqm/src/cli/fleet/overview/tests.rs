use sqm_fleet::report::Refused;

use super::*;

const NOW: u64 = 1_800_000_000;

fn measured(p95_ms: f64) -> Measured {
    Measured {
        loaded_s: 60,
        samples: 600,
        p50_ms: p95_ms / 2.0,
        p95_ms,
        download_kbit: 80_000,
        upload_kbit: 20_000,
        dropped_per_s: 1.0,
    }
}

fn judged(verdict: Verdict, reason: &str) -> Judged {
    Judged {
        verdict,
        reason: reason.into(),
        before: Some(measured(20.0)),
        after: Some(measured(700.0)),
    }
}

fn report(outcome: Option<Outcome>) -> Report {
    Report {
        schema: sqm_fleet::report::SCHEMA.into(),
        router: "r1".parse().expect("a name"),
        at_unix_s: NOW,
        sqm_version: "0.1.0".into(),
        hardware: "x86_64".into(),
        revision: 3,
        in_force: 3,
        outcome,
        refused: None,
        differences: Vec::new(),
    }
}

fn state_of(report: &Report) -> (&'static str, String) {
    state(Some(3), Some(report), Some(NOW), NOW)
}

#[test]
fn each_state_has_its_words() {
    let said = |outcome| state_of(&report(Some(outcome)));
    let kept = |verdict| said(Outcome::Kept(judged(verdict, "why")));
    assert_eq!(kept(Verdict::Good), ("kept", "why".into()));
    assert_eq!(kept(Verdict::Unjudged), ("unjudged", "why".into()));
    let back = said(Outcome::RolledBack(judged(Verdict::Worse, "20 ms to 700 ms")));
    assert_eq!(back, ("rolled back", "20 ms to 700 ms".into()));
    let errors = vec!["a:1: one".into(), "a:2: two".into()];
    assert_eq!(
        said(Outcome::Invalid { errors }),
        ("invalid", "a:1: one; a:2: two".into())
    );
    let until_unix_s = Some(NOW);
    let waits = said(Outcome::Waiting { until_unix_s });
    assert_eq!(waits, ("waiting", "until 2027-01-15T08:00:00Z".into()));
    let refused = Refused {
        revision: Some(4),
        reason: "its signature is wrong".into(),
        at_unix_s: NOW,
    };
    let refused = Report {
        refused: Some(refused),
        ..report(None)
    };
    let said = state(Some(4), Some(&refused), Some(NOW), NOW);
    assert_eq!(said, ("refused", "its signature is wrong".into()));
    assert_eq!(state_of(&report(None)), ("no document", String::new()));
}

#[test]
fn a_router_that_is_not_heard_or_has_not_taken_its_document_says_so_first() {
    let good = report(Some(Outcome::Kept(judged(Verdict::Good, "why"))));
    assert_eq!(state(Some(4), Some(&good), Some(NOW), NOW).0, "behind");
    let silent = state(Some(4), Some(&good), Some(NOW - SILENT_S - 1), NOW);
    assert_eq!(silent, ("silent", "last heard 3 min ago".into()));
    assert_eq!(state(Some(4), None, None, NOW).0, "never seen");
}

#[test]
fn a_change_that_was_rolled_back_has_both_measurements_and_grades() {
    let router = Router::default();
    let seen = Seen {
        report: Some(report(Some(Outcome::RolledBack(judged(Verdict::Worse, "why"))))),
        last_seen_unix_s: Some(NOW),
    };
    let row = row(&"r1".parse().expect("a name"), &router, Some(3), &seen, NOW);
    assert_eq!((row.before_grade, row.before_p95_ms), (Some("A"), Some(20.0)));
    assert_eq!((row.after_grade, row.after_p95_ms), (Some("D"), Some(700.0)));
}

#[test]
fn the_routers_of_a_group_at_a_site_are_counted_by_state_and_by_revision() {
    let router = |group: &str, site: Option<&str>| Router {
        group: Some(group.parse().expect("a name")),
        site: site.map(|site| site.parse().expect("a name")),
        ..Router::default()
    };
    let row_of = |name: &str, router: &Router, in_force: Option<u64>| {
        let seen = Seen {
            report: in_force.map(|in_force| Report {
                in_force,
                ..report(Some(Outcome::Kept(judged(Verdict::Good, "why"))))
            }),
            last_seen_unix_s: Some(NOW),
        };
        row(&name.parse().expect("a name"), router, Some(3), &seen, NOW)
    };
    let (homes, berlin) = (router("homes", None), router("homes", Some("berlin")));
    let rows = [
        row_of("r1", &berlin, Some(3)),
        row_of("r2", &homes, Some(3)),
        row_of("r3", &berlin, Some(2)),
        row_of("r4", &berlin, None),
    ];
    let found = serde_json::to_value(places(&rows)).expect("plain data");
    let expected = serde_json::json!([
        {"group": "homes", "site": null, "routers": 1,
         "states": [{"state": "kept", "routers": 1}],
         "in_force": [{"revision": 3, "routers": 1}]},
        {"group": "homes", "site": "berlin", "routers": 3,
         "states": [{"state": "kept", "routers": 2}, {"state": "never seen", "routers": 1}],
         "in_force": [{"revision": null, "routers": 1}, {"revision": 2, "routers": 1}, {"revision": 3, "routers": 1}]},
    ]);
    assert_eq!(found, expected);
}
