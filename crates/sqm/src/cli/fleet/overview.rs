//! The state of a fleet in words, for `sqm fleet status` and for the page.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Serialize;
use sqm_fleet::Name;
use sqm_fleet::judgement::{Measured, Verdict};
use sqm_fleet::nats::Nats;
use sqm_fleet::report::{Judged, Outcome, Report};
use sqm_fleet::rollout::{Progress, RollOut, Seen};
use sqm_fleet::transport::Kind;
use sqm_measure::grade;
use sqm_process::Failure;

use super::documents::in_store;
use super::folder::{Folder, Router};
use super::{roll_out, when};

/// A router is silent after this time without a heartbeat, seconds: it sends one each minute.
const SILENT_S: u64 = 180;

/// The routers and roll-outs of a fleet.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Overview {
    pub(super) routers: Vec<Row>,
    /// The groups and sites.
    pub(super) places: Vec<Place>,
    /// The newest first.
    pub(super) roll_outs: Vec<RollOutRow>,
}

/// One router.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) router: Name,
    pub(super) group: Option<Name>,
    pub(super) site: Option<Name>,
    /// The revision of its document in the store.
    pub(super) wanted: Option<u64>,
    /// The revision that is in force.
    pub(super) in_force: Option<u64>,
    /// One or two words.
    pub(super) state: &'static str,
    /// The reason in words.
    pub(super) reason: String,
    /// Grade and 95th percentile of the added round trip before the last change and after it.
    pub(super) before_grade: Option<&'static str>,
    pub(super) before_p95_ms: Option<f64>,
    pub(super) after_grade: Option<&'static str>,
    pub(super) after_p95_ms: Option<f64>,
    pub(super) last_seen_unix_s: Option<u64>,
    pub(super) sqm_version: Option<String>,
    pub(super) hardware: Option<String>,
}

/// The routers of a group at a site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Place {
    group: Option<Name>,
    site: Option<Name>,
    routers: usize,
    /// How many of them are in each state that one of them is in.
    states: Vec<InState>,
    /// How many of them have each revision in force.
    in_force: Vec<HaveRevision>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct InState {
    state: &'static str,
    routers: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct HaveRevision {
    /// `None`: a router that was never heard.
    revision: Option<u64>,
    routers: usize,
}

/// One roll-out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RollOutRow {
    pub(super) name: Name,
    /// `running`, `halted`, `done`, `reverted` or `unreadable`.
    state: &'static str,
    /// How far it is, in words.
    pub(super) text: String,
    revision: Option<u64>,
    created_unix_s: Option<u64>,
    routers: usize,
}

/// Reads what the store and the folder have.
pub(super) async fn read(store: &Nats, folder: &Folder) -> Result<Overview, Failure> {
    let known = folder.routers()?;
    let names: Vec<Name> = known.keys().cloned().collect();
    let wanted = in_store(store, &names).await?;
    let seen = roll_out::seen(store, &names).await?;
    let now = when::now();
    let nothing = Seen::default();
    let routers: Vec<Row> = known
        .iter()
        .map(|(name, router)| {
            let wanted = wanted.get(name).map(|document| document.revision);
            row(name, router, wanted, seen.get(name).unwrap_or(&nothing), now)
        })
        .collect();
    let names = store
        .names(&Kind::RollOut)
        .await
        .context("cannot read the roll-outs")?;
    let entries = store
        .get_all(&Kind::RollOut, &names)
        .await
        .context("cannot read the roll-outs")?;
    let roll_outs = entries.into_iter().map(|(name, entry)| {
        let found = RollOut::parse(&entry.value);
        roll_out_row(name, found.as_ref(), &seen, now)
    });
    let mut roll_outs: Vec<RollOutRow> = roll_outs.collect();
    roll_outs.sort_by_key(|found| std::cmp::Reverse(found.created_unix_s));
    Ok(Overview {
        places: places(&routers),
        routers,
        roll_outs,
    })
}

fn row(name: &Name, router: &Router, wanted: Option<u64>, seen: &Seen, now: u64) -> Row {
    let report = seen.report.as_ref();
    let (state, reason) = state(wanted, report, seen.last_seen_unix_s, now);
    let measured = |pick: fn(&Judged) -> Option<Measured>| match report?.outcome.as_ref()? {
        Outcome::Kept(judged) | Outcome::RolledBack(judged) => pick(judged),
        _ => None,
    };
    let (before, after) = (measured(|judged| judged.before), measured(|judged| judged.after));
    let letter = |measured: Option<Measured>| measured.map(|of| grade::letter(of.p50_ms, of.p95_ms));
    Row {
        router: name.clone(),
        group: router.group.clone(),
        site: router.site.clone(),
        wanted,
        in_force: report.map(|report| report.in_force),
        state,
        reason,
        before_grade: letter(before),
        before_p95_ms: before.map(|of| of.p95_ms),
        after_grade: letter(after),
        after_p95_ms: after.map(|of| of.p95_ms),
        last_seen_unix_s: seen.last_seen_unix_s,
        sqm_version: report.map(|report| report.sqm_version.clone()),
        hardware: report.map(|report| report.hardware.clone()),
    }
}

/// The state of a router and its reason, in words.
fn state(
    wanted: Option<u64>,
    report: Option<&Report>,
    seen: Option<u64>,
    now: u64,
) -> (&'static str, String) {
    let Some((report, seen)) = report.zip(seen) else {
        return ("never seen", "it has not connected yet".into());
    };
    if seen.saturating_add(SILENT_S) < now {
        return ("silent", format!("last heard {}", when::ago(seen, now)));
    }
    if wanted.is_some_and(|wanted| wanted > report.revision) && report.refused.is_none() {
        return ("behind", "it has not taken its document yet".into());
    }
    reported(report)
}

/// The state that a router has reported and its reason, in words.
pub(super) fn reported(report: &Report) -> (&'static str, String) {
    if let Some(refused) = &report.refused {
        return ("refused", refused.reason.clone());
    }
    let with_differences = |words: &str| {
        let first = report.differences.first().map(String::as_str);
        let parts = [Some(words).filter(|words| !words.is_empty()), first];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    };
    match &report.outcome {
        None => ("no document", with_differences("")),
        Some(Outcome::Waiting { until_unix_s }) => {
            let until = until_unix_s.map_or_else(|| "its clock is set".into(), when::text);
            ("waiting", format!("until {until}"))
        }
        Some(Outcome::Observed {
            quiet_test_unix_s: Some(at),
        }) => (
            "observed",
            format!(
                "too little load so far: it is tested when its line is idle, from {} on",
                when::text(*at)
            ),
        ),
        Some(Outcome::Observed { .. }) => ("observed", "its round trips are observed".into()),
        Some(Outcome::Kept(judged)) if judged.verdict == Verdict::Good => {
            ("kept", with_differences(&judged.reason))
        }
        Some(Outcome::Kept(judged)) => ("unjudged", with_differences(&judged.reason)),
        Some(Outcome::RolledBack(judged)) => ("rolled back", judged.reason.clone()),
        Some(Outcome::Invalid { errors }) => ("invalid", errors.join("; ")),
    }
}

fn places(routers: &[Row]) -> Vec<Place> {
    let mut places: BTreeMap<(Option<&Name>, Option<&Name>), Vec<&Row>> = BTreeMap::new();
    for row in routers {
        let at = (row.group.as_ref(), row.site.as_ref());
        places.entry(at).or_default().push(row);
    }
    let place = |((group, site), rows): ((Option<&Name>, Option<&Name>), Vec<&Row>)| Place {
        group: group.cloned(),
        site: site.cloned(),
        routers: rows.len(),
        states: counted(rows.iter().map(|row| row.state))
            .map(|(state, routers)| InState { state, routers })
            .collect(),
        in_force: counted(rows.iter().map(|row| row.in_force))
            .map(|(revision, routers)| HaveRevision { revision, routers })
            .collect(),
    };
    places.into_iter().map(place).collect()
}

/// How often there is each value.
fn counted<T: Ord>(values: impl Iterator<Item = T>) -> impl Iterator<Item = (T, usize)> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_insert(0) += 1;
    }
    counts.into_iter()
}

fn roll_out_row(
    name: Name,
    found: Result<&RollOut, &String>,
    seen: &BTreeMap<Name, Seen>,
    now: u64,
) -> RollOutRow {
    let text = match found {
        Ok(found) => roll_out::describe(found, Some(seen), now),
        Err(error) => error.clone(),
    };
    let found = found.ok();
    RollOutRow {
        name,
        state: found.map_or("unreadable", |found| match found.progress {
            Progress::Running { .. } => "running",
            Progress::Halted { .. } => "halted",
            Progress::Done => "done",
            Progress::Reverted => "reverted",
        }),
        text,
        revision: found.map(|found| found.revision),
        created_unix_s: found.map(|found| found.created_unix_s),
        routers: found.map_or(0, |found| found.routers.len()),
    }
}

#[cfg(test)]
mod tests;
