//! What is wrong with a set-up, how one sees that, and what to do: `sqm doctor`.
//!
//! [`collect`] looks at the machine, [`processors`] at what keeps it busy, and both write down [`facts`]; [`findings`] judges them and
//! touches nothing, so that facts recorded elsewhere can be judged too; [`fix`] changes what can be changed safely.

pub(crate) mod answer;
pub(crate) mod collect;
pub(crate) mod facts;
pub(crate) mod findings;
pub(crate) mod fix;
mod processors;

/// Facts from anywhere are judged or refused, and a number in what is said of them is no longer than one in them.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(facts) = serde_json::from_slice::<facts::Facts>(bytes) else {
        return;
    };
    let longest_number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    let given = serde_json::to_string(&facts).expect("facts are data");
    let findings = findings::diagnose(&facts);
    let sections = facts.sections.len();
    let answer = answer::Answer {
        findings,
        fixed: Vec::new(),
        sections,
    };
    // The longest number of 64 bits has 20 digits.
    assert!(longest_number(&answer.to_string()) <= longest_number(&given).max(Some(20)));
    serde_json::to_string(&answer).expect("findings are data");
}
