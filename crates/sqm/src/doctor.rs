//! `sqm doctor`: finds faults of a configuration and of the machine, shows the evidence, and suggests a remedy.
//!
//! [`collect`] inspects the machine and [`processors`] its load; both record [`facts`]. [`findings`] judges the facts
//! and touches nothing, so that facts recorded on another machine can be judged as well.

pub(crate) mod answer;
pub(crate) mod collect;
pub(crate) mod facts;
pub(crate) mod findings;
pub(crate) mod processors;

/// Facts from any source are judged or refused. No number in the findings may have more digits than those in the
/// facts.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(facts) = serde_json::from_slice::<facts::Facts>(bytes) else {
        return;
    };
    let longest_number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    let given = serde_json::to_string(&facts).expect("facts are data");
    let diagnosis = sqm_api::doctor::Diagnosis {
        findings: findings::diagnose(&facts),
        fixed: Vec::new(),
        notes: findings::notes(&facts),
        unknown: findings::unknown(&facts),
        checks: findings::checks(&facts),
    };
    let interfaces = facts
        .sections
        .into_iter()
        .map(|section| section.interface)
        .collect();
    let answer = answer::Answer {
        diagnosis,
        interfaces,
    };
    // 20 is the number of digits of the largest 64-bit integer.
    assert!(longest_number(&answer.to_string()) <= longest_number(&given).max(Some(20)));
    serde_json::to_string(&answer.diagnosis).expect("findings are data");
}
