//! `sqm fleet status`, `watch`, `history` and `export`: who has what, and how it feels.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use sqm_fleet::Name;
use sqm_fleet::desired::Desired;
use sqm_fleet::judgement::Measured;
use sqm_fleet::nats::Nats;
use sqm_fleet::report::{Judged, Outcome, Report};
use sqm_fleet::rollout::RollOut;
use sqm_fleet::signed::document_of;
use sqm_fleet::transport::{Key, Kind};
use sqm_process::Failure;

use super::documents::in_store;
use super::folder::{Fleet, Folder, Router};
use super::{HubArg, block_on, roll_out, when};
use crate::json;

/// A router is silent after this time without a heartbeat, seconds: it sends one each minute.
const SILENT_S: u64 = 180;

/// Show one line for each router: what it should have, what it has, and how it feels.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet status
  sqm fleet status --json | jq '.[] | select(.state == \"rolled back\")'

Exit codes: 0 done, 1 the server cannot be reached, 2 wrong arguments.")]
pub(super) struct Status {
    #[command(flatten)]
    hub: HubArg,
    /// Print one JSON document for each router.
    #[arg(long)]
    json: bool,
}

/// One router.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    router: Name,
    group: Option<Name>,
    site: Option<Name>,
    /// The revision of its document in the store.
    wanted: Option<u64>,
    /// The revision that is in force.
    in_force: Option<u64>,
    /// One or two words.
    state: &'static str,
    /// The reason in words.
    reason: String,
    before_p95_ms: Option<f64>,
    after_p95_ms: Option<f64>,
    last_seen_unix_s: Option<u64>,
    sqm_version: Option<String>,
    hardware: Option<String>,
}

impl Status {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        block_on(async {
            let store = folder.connect(&fleet).await?;
            let rows = rows(&store, &folder).await?;
            if self.json {
                json::print(&json::list(&rows))?;
                return Ok(ExitCode::SUCCESS);
            }
            print_rows(&rows, when::now());
            print_roll_outs(&store).await?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

async fn rows(store: &Nats, folder: &Folder) -> Result<Vec<Row>, Failure> {
    let routers = folder.routers()?;
    let names: Vec<Name> = routers.keys().cloned().collect();
    let wanted = in_store(store, &names).await?;
    let heard = store
        .get_all(&Kind::Heartbeat, &names)
        .await
        .context("cannot read the reports")?;
    let heard: BTreeMap<Name, (Option<Report>, Option<u64>)> = heard
        .into_iter()
        .map(|(name, entry)| {
            (
                name,
                (Report::parse(&entry.value).ok(), when::parse(&entry.written).ok()),
            )
        })
        .collect();
    let now = when::now();
    Ok(routers
        .iter()
        .map(|(name, router)| {
            let (report, seen) = heard.get(name).cloned().unwrap_or_default();
            row(name, router, wanted.get(name), report.as_ref(), seen, now)
        })
        .collect())
}

fn row(
    name: &Name,
    router: &Router,
    wanted: Option<&Desired>,
    report: Option<&Report>,
    seen: Option<u64>,
    now: u64,
) -> Row {
    let wanted = wanted.map(|document| document.revision);
    let (state, reason) = state(wanted, report, seen, now);
    let measured = |pick: fn(&Judged) -> Option<Measured>| match report?.outcome.as_ref()? {
        Outcome::Kept(judged) | Outcome::RolledBack(judged) => pick(judged).map(|measured| measured.p95_ms),
        _ => None,
    };
    Row {
        router: name.clone(),
        group: router.group.clone(),
        site: router.site.clone(),
        wanted,
        in_force: report.map(|report| report.in_force),
        state,
        reason,
        before_p95_ms: measured(|judged| judged.before),
        after_p95_ms: measured(|judged| judged.after),
        last_seen_unix_s: seen,
        sqm_version: report.map(|report| report.sqm_version.clone()),
        hardware: report.map(|report| report.hardware.clone()),
    }
}

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
    if let Some(refused) = &report.refused {
        return ("refused", refused.reason.clone());
    }
    if wanted.is_some_and(|wanted| wanted > report.revision) {
        return ("behind", "it has not taken its document yet".into());
    }
    let with_differences = |words: String| match report.differences.first() {
        Some(difference) => format!("{words}; {difference}"),
        None => words,
    };
    match &report.outcome {
        None => ("no document", with_differences(String::new())),
        Some(Outcome::Waiting { until_unix_s }) => {
            let until = until_unix_s.map_or_else(|| "its clock is set".into(), when::text);
            ("waiting", format!("until {until}"))
        }
        Some(Outcome::Observed) => ("observed", "its round trips are observed".into()),
        Some(Outcome::Kept(judged)) => {
            let state = if judged.verdict == sqm_fleet::judgement::Verdict::Good {
                "kept"
            } else {
                "unjudged"
            };
            (state, with_differences(judged.reason.clone()))
        }
        Some(Outcome::RolledBack(judged)) => ("rolled back", judged.reason.clone()),
        Some(Outcome::Invalid { errors }) => ("invalid", errors.join("; ")),
    }
}

fn print_rows(rows: &[Row], now: u64) {
    let number = |value: Option<u64>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let width = rows
        .iter()
        .map(|row| row.router.as_str().len())
        .max()
        .unwrap_or(0)
        .max(6);
    outln!(
        "{:<width$}  wanted  in force  state        seen        why",
        "router"
    );
    for row in rows {
        let seen = row
            .last_seen_unix_s
            .map_or_else(|| "-".into(), |seen| when::ago(seen, now));
        outln!(
            "{:<width$}  {:>6}  {:>8}  {:<11}  {:<10}  {}",
            row.router,
            number(row.wanted),
            number(row.in_force),
            row.state,
            seen,
            row.reason
        );
    }
}

async fn print_roll_outs(store: &Nats) -> Result<(), Failure> {
    let names = store
        .names(&Kind::RollOut)
        .await
        .context("cannot read the roll-outs")?;
    for (name, entry) in store
        .get_all(&Kind::RollOut, &names)
        .await
        .context("cannot read the roll-outs")?
    {
        let line = match RollOut::parse(&entry.value) {
            Ok(found) => roll_out::describe(&found, &BTreeMap::new(), when::now()),
            Err(error) => error,
        };
        outln!("roll-out {name}: {line}");
    }
    Ok(())
}

/// Print each router's line whenever it changes, until interrupted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet watch

Exit codes: 1 the server cannot be reached, 2 wrong arguments.")]
pub(super) struct Watch {
    #[command(flatten)]
    hub: HubArg,
}

impl Watch {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        block_on(async {
            let store = folder.connect(&fleet).await?;
            let mut known: BTreeMap<Name, Row> = BTreeMap::new();
            loop {
                for row in rows(&store, &folder).await? {
                    // A later heartbeat alone is no news.
                    let seen = row.last_seen_unix_s;
                    let is_news = known.get(&row.router).is_none_or(|old| {
                        Row {
                            last_seen_unix_s: seen,
                            ..old.clone()
                        } != row
                    });
                    if is_news {
                        outln!(
                            "{}  {}: {} {}",
                            when::text(when::now()),
                            row.router,
                            row.state,
                            row.reason
                        );
                    }
                    known.insert(row.router.clone(), row);
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        })
    }
}

/// Show the documents and reports that a router has had: who changed what when.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet history r1
  sqm fleet history r1 --json

Exit codes: 0 done, 1 the server cannot be reached, 2 wrong arguments.")]
pub(super) struct History {
    /// The router.
    name: Name,
    #[command(flatten)]
    hub: HubArg,
    /// Print one JSON document for each entry.
    #[arg(long)]
    json: bool,
}

/// One entry of a history.
#[derive(Serialize)]
struct Entry {
    at: String,
    /// `document` or `report`.
    kind: &'static str,
    revision: Option<u64>,
    text: String,
}

impl History {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        let entries = block_on(async { history(&folder.connect(&fleet).await?, &self.name).await })?;
        if self.json {
            json::print(&json::list(&entries))?;
            return Ok(ExitCode::SUCCESS);
        }
        for entry in entries {
            outln!("{}  {:<8}  {}", entry.at, entry.kind, entry.text);
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn history(store: &Nats, name: &Name) -> Result<Vec<Entry>, Failure> {
    let documents = store
        .history(&Key::Desired(name.clone()))
        .await
        .context("cannot read the history")?;
    let reports = store
        .history(&Key::Report(name.clone()))
        .await
        .context("cannot read the history")?;
    let mut entries: Vec<(u64, Entry)> = Vec::new();
    for entry in documents {
        let document = document_of(&entry.value)
            .ok()
            .and_then(|text| Desired::parse(&text).ok());
        let revision = document.as_ref().map(|document| document.revision);
        let text = document.map_or_else(
            || "a document that cannot be read".into(),
            |document| format!("revision {}", document.revision),
        );
        entries.push((
            entry.revision,
            Entry {
                at: entry.written,
                kind: "document",
                revision,
                text,
            },
        ));
    }
    for entry in reports {
        let report = Report::parse(&entry.value).ok();
        let revision = report.as_ref().map(|report| report.revision);
        let text = report.map_or_else(
            || "a report that cannot be read".into(),
            |report| {
                let (state, reason) = state(None, Some(&report), Some(0), 0);
                format!("revision {}: {state}: {reason}", report.revision)
            },
        );
        entries.push((
            entry.revision,
            Entry {
                at: entry.written,
                kind: "report",
                revision,
                text,
            },
        ));
    }
    entries.sort_by_key(|(revision, _)| *revision);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Write what each router should have and what it last reported as files, to be kept in git.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet export state && git -C state add . && git -C state commit -m \"state of today\"

Exit codes: 0 done, 1 the server cannot be reached or a file cannot be written, 2 wrong arguments.")]
pub(super) struct Export {
    /// The folder for the files.
    #[arg(value_name = "FOLDER")]
    into: PathBuf,
    #[command(flatten)]
    hub: HubArg,
}

impl Export {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        let count = block_on(self.export(&folder, &fleet))?;
        outln!("{count} routers written to {}.", self.into.display());
        Ok(ExitCode::SUCCESS)
    }

    async fn export(&self, folder: &Folder, fleet: &Fleet) -> Result<usize, Failure> {
        let store = folder.connect(fleet).await?;
        let names: Vec<Name> = folder.routers()?.into_keys().collect();
        std::fs::create_dir_all(&self.into).with_context(|| self.into.display().to_string())?;
        let write = |name: &Name, what: &str, text: &[u8]| {
            let path = self.into.join(format!("{name}.{what}"));
            sqm_files::replace(&path, 0o644, text).with_context(|| path.display().to_string())
        };
        for (name, document) in in_store(&store, &names).await? {
            write(&name, "conf", document.configuration.as_bytes())?;
        }
        let reports = store
            .get_all(&Kind::Report, &names)
            .await
            .context("cannot read the reports")?;
        for (name, entry) in reports {
            let report = Report::parse(&entry.value)
                .map_err(|error| anyhow::anyhow!("the report of {name}: {error}"))?;
            let mut text = json::pretty(&report)?;
            text.push('\n');
            write(&name, "report.json", text.as_bytes())?;
        }
        Ok(names.len())
    }
}
