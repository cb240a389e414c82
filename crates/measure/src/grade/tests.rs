use std::path::{Path, PathBuf};

use super::*;
use crate::result::tests::{example, with_probes_every};
use crate::result::{Meta, Phase, Probe, ProbeSeries, Settings, TcpSample};

const LETTERS: [&str; 6] = ["A+", "A", "B", "C", "D", "F"];

/// 0 is the best letter.
fn place(grade: &Grade) -> usize {
    let found = LETTERS.iter().position(|letter| *letter == grade.letter);
    found.expect("a letter")
}

/// A line with 20 ms of round trip, of which load adds `added` in turn, as many probes under each load as `added` has, at least a hundred.
fn line(loads: &[(&[Direction], &[f64])]) -> TestResult {
    let mut phases = vec![Phase {
        loaded: Vec::new(),
        from_ms: -2000.0,
        to_ms: 0.0,
    }];
    let at = |t_ms: f64, rtt: f64| Probe {
        due_ms: t_ms,
        t_ms,
        rtt_ms: (rtt >= 0.0).then_some(rtt),
        ..Probe::default()
    };
    let mut samples: Vec<Probe> = (-50..0).map(|i| at(f64::from(i) * 40.0, 20.0)).collect();
    for (number, (loaded, added)) in loads.iter().enumerate() {
        let from_ms = number as f64 * 30_000.0;
        phases.push(Phase {
            loaded: loaded.to_vec(),
            from_ms,
            to_ms: from_ms + 23_000.0,
        });
        let count = added.len().max(100);
        let times = (0..count).map(|i| from_ms + 2000.0 + i as f64 * 20_000.0 / count as f64);
        let added = added.iter().cycle();
        samples.extend(times.zip(added).map(|(t, added)| at(t, 20.0 + added)));
    }
    let made = example("x", 0.0, 20.0, 4.0);
    let mut flows = made.flows;
    flows.retain(|flow| loads.iter().any(|(loaded, _)| loaded.contains(&flow.direction)));
    for flow in &mut flows {
        flow.samples = (1..=loads.len() as u32 * 30)
            .map(|second| crate::result::Sample {
                t_ms: f64::from(second) * 1000.0,
                bytes: 1_000_000,
            })
            .collect();
    }
    let series = ProbeSeries {
        interval_ms: 20.0,
        samples,
        ..made.probes[0].clone()
    };
    TestResult::new(made.meta, phases, flows, vec![series])
}

const BOTH: &[Direction] = &Direction::BOTH;
const DOWN: &[Direction] = &[Direction::Download];
const UP: &[Direction] = &[Direction::Upload];

fn graded(loads: &[(&[Direction], &[f64])]) -> Grade {
    Verdict::of(&line(loads)).grade.expect("a grade")
}

/// A thousand values: `usual`, but `slow` in this many of them.
fn tail(usual: f64, slow: f64, count: usize) -> Vec<f64> {
    (0..1000).map(|i| if i < count { slow } else { usual }).collect()
}

#[test]
fn the_median_has_the_bounds_that_speed_tests_have() {
    for (added, letter) in [
        (-3.0, "A+"),
        (4.9, "A+"),
        (5.0, "A"),
        (29.0, "A"),
        (31.0, "B"),
        (70.0, "C"),
        (199.0, "C"),
        (200.0, "D"),
        (399.0, "D"),
        (400.0, "F"),
    ] {
        let grade = graded(&[(BOTH, &[added])]);
        assert_eq!(grade.letter, letter, "{added}");
        assert_eq!(grade.decided_by, DecidedBy::Median, "{added}");
    }
}

#[test]
fn a_hundredth_of_the_probes_above_a_second_is_no_good_grade() {
    let grade = graded(&[(BOTH, &tail(1.0, 1100.0, 10))]);
    assert_eq!((grade.letter.as_str(), grade.decided_by), ("D", DecidedBy::P99));
    let games = grade.uses.iter().find(|one| one.name == UseName::Games).unwrap();
    assert_eq!((games.qoo, games.quality), (0, Quality::Bad));
    let grade = graded(&[(BOTH, &tail(1.0, 481.0, 50))]);
    assert_eq!((grade.letter.as_str(), grade.decided_by), ("D", DecidedBy::P95));
    let grade = graded(&[(BOTH, &tail(1.0, 1100.0, 60))]);
    assert_eq!((grade.letter.as_str(), grade.decided_by), ("F", DecidedBy::P95));
}

#[test]
fn lost_probes_count() {
    for (lost, letter) in [
        (10, "A+"),
        (20, "A"),
        (28, "B"),
        (45, "C"),
        (100, "D"),
        (130, "F"),
    ] {
        let grade = graded(&[(BOTH, &tail(1.0, -1000.0, lost))]);
        assert_eq!(grade.letter, letter, "{lost}");
        assert_eq!(grade.decided_by == DecidedBy::Loss, lost > 10, "{lost}");
    }
}

#[test]
fn a_load_under_which_every_probe_is_lost_is_not_hidden_by_the_others() {
    for (silent, during) in [
        (UP, "the upload alone"),
        (DOWN, "the download alone"),
        (BOTH, "both ways"),
    ] {
        let others = [DOWN, UP, BOTH].into_iter().filter(|load| *load != silent);
        let mut loads: Vec<(&[Direction], &[f64])> = others.map(|load| (load, &[1.0][..])).collect();
        loads.insert(0, (silent, &[-1000.0]));
        let verdict = Verdict::of(&line(&loads));
        assert_eq!(verdict.grade, None, "{silent:?}");
        assert_eq!(verdict.findings[0].code, "no_latency");
        let text = &verdict.findings[0].text;
        assert!(text.contains(during) && text.contains("100 of 100"), "{text}");
    }
}

#[test]
fn the_worst_load_is_graded_and_a_good_direction_does_not_hide_a_bad_one() {
    let grade = graded(&[(DOWN, &[1.0]), (UP, &[250.0])]);
    assert_eq!((grade.letter.as_str(), grade.loaded.as_slice()), ("D", UP));
    assert!(
        grade.sentence.ends_with("while somebody uploads"),
        "{}",
        grade.sentence
    );
    // The mean of both directions, as others have it.
    assert_eq!((grade.conventional.as_str(), grade.conventional_ms), ("C", 125.5));
    let grade = graded(&[(DOWN, &[40.0]), (UP, &[1.0]), (BOTH, &[41.0])]);
    assert_eq!((grade.letter.as_str(), grade.loaded.as_slice()), ("B", BOTH));
}

#[test]
fn a_round_trip_of_both_directions_is_graded_whole() {
    let mut result = line(&[(BOTH, &[424.0])]);
    for probe in &mut result.probes[0].samples {
        // Nearly half of the delay is in each direction.
        let half = (probe.rtt_ms.unwrap() - 20.0) / 2.0;
        (probe.up_ms, probe.down_ms) = (Some(10.0 + half), Some(10.0 + half));
    }
    let result = TestResult::new(result.meta, result.phases, result.flows, result.probes);
    let grade = Verdict::of(&result).grade.unwrap();
    assert_eq!((grade.letter.as_str(), grade.added_ms), ("F", 424.0));
    assert_eq!((grade.conventional.as_str(), grade.basis), ("D", Basis::OneWay));
}

#[test]
fn a_line_that_adds_200_ms_or_more_gets_d_or_f() {
    for load in [DOWN, UP, BOTH] {
        for added in [200.0, 250.0, 399.0, 424.0, 2000.0] {
            let letter = graded(&[(load, &[added])]).letter;
            assert!(["D", "F"].contains(&letter.as_str()), "{added}: {letter}");
        }
    }
}

#[test]
fn the_sentence_names_the_uses_that_suffer_and_the_load() {
    let said = |loads: &[(&[Direction], &[f64])]| graded(loads).sentence;
    assert_eq!(
        said(&[(BOTH, &[1.0])]),
        "Calls, games, films and remote work run smoothly while somebody downloads and uploads at the same time"
    );
    assert_eq!(
        said(&[(UP, &[160.0])]),
        "Games will stutter and calls and remote work may while somebody uploads"
    );
    assert_eq!(
        said(&[(DOWN, &[2000.0])]),
        "Calls, games, films and remote work will stutter while somebody downloads"
    );
    let far = |added: f64, distance: f64| {
        let mut result = line(&[(UP, &[added])]);
        for probe in &mut result.probes[0].samples {
            probe.rtt_ms = probe.rtt_ms.map(|rtt| rtt + distance);
        }
        let far = TestResult::new(result.meta, result.phases, result.flows, result.probes);
        Verdict::of(&far).grade.unwrap()
    };
    let grade = far(1.0, 600.0);
    assert_eq!(grade.letter, "A+");
    assert_eq!(
        grade.sentence,
        "Calls, games, films and remote work stutter even on the idle line: its round trip is long"
    );
    assert_eq!(
        far(90.0, 160.0).sentence,
        "Calls and remote work will stutter while somebody uploads; games stutter even on the idle line: its round trip is long"
    );
}

#[test]
fn the_direction_that_adds_most_of_the_delay_is_named() {
    let mut result = line(&[(BOTH, &[424.0])]);
    for probe in &mut result.probes[0].samples {
        let added = probe.rtt_ms.unwrap() - 20.0;
        (probe.up_ms, probe.down_ms) = (Some(10.0 + 0.9 * added), Some(10.0 + 0.1 * added));
    }
    let result = TestResult::new(result.meta, result.phases, result.flows, result.probes);
    let grade = Verdict::of(&result).grade.unwrap();
    assert_eq!(grade.mostly, Some(Direction::Upload));
    assert!(
        grade.sentence.ends_with("; most of the delay is the upload's"),
        "{}",
        grade.sentence
    );
}

#[test]
fn the_details_have_the_letters_of_others_and_the_text_has_not() {
    let verdict = Verdict::of(&line(&[(DOWN, &[1.0]), (UP, &[250.0])]));
    let (short, long) = (verdict.to_text(), verdict.to_detailed_text());
    assert!(
        !short.contains("DSLReports") && !short.contains("strict"),
        "{short}"
    );
    insta::assert_snapshot!(long);
}

#[test]
fn servers_at_different_distances_are_each_compared_with_their_own_idle_line() {
    let near = line(&[(BOTH, &[3.0])]);
    let mut far = near.probes[0].clone();
    for probe in &mut far.samples {
        probe.rtt_ms = probe.rtt_ms.map(|rtt| rtt + 300.0);
    }
    far.peer = Some("far".to_owned());
    let mut probes = near.probes.clone();
    probes[0].peer = Some("near".to_owned());
    probes.push(far);
    let result = TestResult::new(near.meta, near.phases, near.flows, probes);
    let verdict = Verdict::of(&result);
    let grade = verdict.grade.unwrap();
    assert_eq!((grade.added_ms, grade.added_p99_ms), (3.0, Some(3.0)));
    assert_eq!(grade.letter, "A+");
    assert!(grade.uses.iter().all(|one| one.qoo == 100), "{:?}", grade.uses);
}

#[test]
fn an_invalid_test_has_findings_and_no_grade() {
    let verdict = Verdict::of(&example("x", 300.0, 20.0, 4.0));
    assert_eq!(verdict.grade, None);
    let text = verdict.to_text();
    assert!(text.starts_with("no grade: only "), "{text}");
    assert!(text.contains("probes came back under load"), "{text}");
    assert_eq!(text.lines().count(), 1, "the reason is given once: {text}");
}

#[test]
fn the_most_severe_of_many_findings_are_shown() {
    let mut result = with_probes_every(20.0, 0.0);
    let many = (0..9000).map(|n| Finding {
        severity: if n == 8999 {
            Severity::Invalid
        } else {
            Severity::Note
        },
        code: format!("code {n}"),
        text: format!("text {n}"),
    });
    result.findings = many.collect();
    let verdict = Verdict::of(&result);
    let notes: Vec<String> = verdict.notes().collect();
    assert_eq!((notes.len(), verdict.findings.len()), (21, 9000));
    assert_eq!(notes[0], "invalid: text 8999");
    assert_eq!(notes[20], "and 8980 more findings");
    assert_eq!(verdict.to_text().lines().count(), 21);
}

#[test]
fn round_trips_per_minute_leave_out_the_slowest_twentieth() {
    let mut result = with_probes_every(20.0, 0.0);
    for probe in &mut result.probes[0].samples {
        probe.rtt_ms = Some(if probe.t_ms as i64 % 1000 == 0 {
            900.0
        } else {
            20.0
        });
    }
    result.flows[0].sender = (20..70)
        .map(|i| TcpSample {
            t_ms: f64::from(i) * 100.0,
            rtt_ms: Some(60.0),
            ..TcpSample::default()
        })
        .collect();
    let result = TestResult::new(result.meta, result.phases, result.flows, result.probes);
    let grade = Verdict::of(&result).grade.unwrap();
    assert_eq!(grade.rpm_foreign, Some(3000.0));
    assert_eq!(grade.rpm_self, Some(1000.0));
    assert_eq!(grade.rpm_word.as_deref(), Some("good"));
    assert_eq!(result.flows(Direction::Download).count(), 2);
    insta::assert_snapshot!(Verdict::of(&result).to_text());
}

/// Random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Between the bounds, small values as often as large ones.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.next())
    }
}

/// A result with loads, tails, losses and servers that depend on the seed.
fn made_up(seed: u64) -> TestResult {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (seed + 1));
    for _ in 0..20 {
        random.next();
    }
    let loads: &[&[Direction]] = match seed % 4 {
        0 => &[BOTH],
        1 => &[DOWN, UP, BOTH],
        2 => &[UP],
        _ => &[DOWN, UP],
    };
    let all: Vec<Vec<f64>> = loads
        .iter()
        .map(|_| {
            let (usual, slow) = (random.between(0.1, 900.0), random.between(1.0, 3000.0));
            let (share, lost) = (random.next() * 0.12, random.next() * random.next() * 0.2);
            let mut one = || match (random.next(), random.next()) {
                (x, _) if x < lost => -1000.0,
                (x, y) if x < lost + share => usual + slow * y,
                (_, y) => usual * (0.5 + y),
            };
            (0..200).map(|_| one()).collect()
        })
        .collect();
    let loads: Vec<(&[Direction], &[f64])> =
        loads.iter().copied().zip(all.iter().map(Vec::as_slice)).collect();
    line(&loads)
}

fn recorded() -> Vec<TestResult> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flent");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = files.filter(|path: &PathBuf| path.extension().is_some_and(|kind| kind == "gz"));
    files.map(|file| TestResult::load(&file).unwrap()).collect()
}

/// The result with `change` made to the round trips of probes under load, from this share of the slowest on.
fn changed(result: &TestResult, slowest: f64, change: &dyn Fn(f64) -> f64) -> TestResult {
    let mut changed = result.clone();
    let windows: Vec<_> = result.steady().collect();
    for series in &mut changed.probes {
        let is_loaded = |probe: &Probe| {
            windows
                .iter()
                .any(|(from, to)| probe.t_ms >= *from && probe.t_ms < *to)
        };
        let rtts = series.samples.iter().filter(|probe| is_loaded(probe));
        let rtts: Vec<f64> = rtts.filter_map(|probe| probe.rtt_ms).collect();
        let Some(from) = stats::percentile(&rtts, 100.0 * (1.0 - slowest)) else {
            continue;
        };
        for probe in series.samples.iter_mut().filter(|probe| is_loaded(probe)) {
            probe.rtt_ms = probe
                .rtt_ms
                .map(|rtt| if rtt >= from { change(rtt) } else { rtt });
        }
    }
    TestResult::new(changed.meta, changed.phases, changed.flows, changed.probes)
}

#[test]
fn a_grade_never_improves_when_a_percentile_gets_worse() {
    let results: Vec<TestResult> = (0..240).map(made_up).chain(recorded()).collect();
    let changes: [&dyn Fn(f64) -> f64; 5] = [
        &|rtt| rtt + 3.0,
        &|rtt| rtt + 40.0,
        &|rtt| rtt * 1.5,
        &|rtt| rtt * 4.0,
        &|rtt| rtt.max(1100.0),
    ];
    // All cases of all results would take half a minute.
    let share = if std::env::var_os("SQM_NIGHTLY").is_some() {
        1
    } else {
        6
    };
    let (mut compared, mut worse, mut letters) = (0, 0, [0; 6]);
    let shares = [1.0, 0.5, 0.06, 0.011, 0.002];
    let cases: Vec<_> = shares
        .iter()
        .flat_map(|slowest| changes.map(|change| (*slowest, change)))
        .collect();
    for (index, result) in results.iter().enumerate() {
        // Recorded tests are short, and a verdict would refuse them for that.
        let Some(before) = Grade::of(result) else { continue };
        letters[place(&before)] += 1;
        for (slowest, change) in cases.iter().skip(index % share).step_by(share) {
            let after = Grade::of(&changed(result, *slowest, *change)).expect("a grade");
            assert!(
                place(&after) >= place(&before),
                "{} became {}",
                before.to_text(),
                after.to_text()
            );
            for (was, is) in before.uses.iter().zip(&after.uses) {
                assert!(is.qoo <= was.qoo, "{was:?} became {is:?}");
            }
            worse += usize::from(place(&after) > place(&before));
            compared += 1;
        }
    }
    assert!(letters.iter().all(|count| *count > 0), "{letters:?}");
    assert!(
        compared > 1000 && worse > 85,
        "{worse} of {compared} grades became worse"
    );
}

#[test]
fn a_file_of_an_older_program_gets_the_grade_of_today() {
    let result = line(&[(DOWN, &[1.0]), (UP, &[250.0])]);
    let mut old: serde_json::Value = serde_json::from_str(&result.to_json()).unwrap();
    let summary = old["summary"].as_object_mut().unwrap();
    summary.remove("added").expect("a field of today");
    summary.remove("nearest_idle_ms").expect("a field of today");
    let read = TestResult::from_json(&old.to_string()).unwrap();
    assert_eq!(Verdict::of(&read), Verdict::of(&result));
    assert_eq!(Verdict::of(&read).grade.unwrap().letter, "D");
}

#[test]
fn a_test_without_a_grade_always_has_a_reason() {
    let empty = TestResult::new(
        Meta {
            settings: Settings::default(),
            ..Meta::default()
        },
        Vec::new(),
        Vec::new(),
        Vec::new(),
    );
    let mut all = recorded();
    all.push(empty);
    for result in &all {
        let verdict = Verdict::of(result);
        let has_reason = verdict
            .findings
            .iter()
            .any(|found| found.severity == Severity::Invalid);
        assert_eq!(verdict.grade.is_none(), has_reason, "{:?}", verdict.findings);
    }
}

#[test]
fn a_median_and_a_tail_alone_have_the_letter_of_the_worse() {
    for (median_ms, p95_ms, expected) in [
        (1.0, 4.0, "A+"),
        (1.0, 45.0, "A"),
        (70.0, 80.0, "C"),
        (500.0, 900.0, "F"),
        (1.0, 5000.0, "F"),
    ] {
        assert_eq!(letter(median_ms, p95_ms), expected, "{median_ms} {p95_ms}");
    }
}
