//! `sqm fleet status`, `watch`, `history` and `export`: who has what, and how it feels.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use sqm_fleet::Name;
use sqm_fleet::report::Report;
use sqm_fleet::transport::Kind;
use sqm_process::Failure;

use super::documents::in_store;
use super::folder::{Fleet, Folder};
use super::overview::{self, Row};
use super::{HubArg, block_on, history, when};
use crate::json;

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

impl Status {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        block_on(async {
            let store = folder.connect(&fleet).await?;
            let seen = overview::read(&store, &folder).await?;
            if self.json {
                json::print(&json::list(&seen.routers))?;
                return Ok(ExitCode::SUCCESS);
            }
            print_rows(&seen.routers, when::now());
            for roll_out in &seen.roll_outs {
                outln!("roll-out {}: {}", roll_out.name, roll_out.text);
            }
            Ok(ExitCode::SUCCESS)
        })
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
                for row in overview::read(&store, &folder).await?.routers {
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

impl History {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        let entries = block_on(async {
            let store = folder.connect(&fleet).await?;
            history::of_router(&store, &fleet.key()?, &self.name).await
        })?;
        if self.json {
            json::print(&json::list(&entries))?;
            return Ok(ExitCode::SUCCESS);
        }
        for entry in entries {
            outln!("{}  {:<8}  {}", entry.at, entry.kind.word(), entry.text);
        }
        Ok(ExitCode::SUCCESS)
    }
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
