//! `sqm fleet plan` and `set`: documents for routers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use sqm_configuration::Draft;
use sqm_fleet::Name;
use sqm_fleet::daily::Daily;
use sqm_fleet::desired::{Desired, SCHEMA};
use sqm_fleet::judgement::Rules;
use sqm_fleet::nats::Nats;
use sqm_fleet::quiet_test::QuietTest;
use sqm_fleet::report::Report;
use sqm_fleet::signed::{SigningKey, document_of};
use sqm_fleet::transport::{Key, Kind, Store as _};
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_process::Failure;

use super::folder::{Folder, Router};
use super::{HubArg, block_on, template, when};
use crate::cli::duration;
use crate::json;

/// Which routers.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Selection {
    /// These routers.
    #[arg(long = "router", value_name = "NAMES", value_delimiter = ',')]
    routers: Vec<Name>,
    /// All routers of this group.
    #[arg(long, value_name = "NAME")]
    group: Option<Name>,
    /// All routers of this site.
    #[arg(long, value_name = "NAME")]
    site: Option<Name>,
    /// All routers whose last report names this hardware, as 'sqm fleet status --json' shows it.
    #[arg(long, value_name = "MODEL")]
    hardware: Option<String>,
    /// All routers.
    #[arg(long)]
    all: bool,
}

impl Selection {
    /// The selected routers: one at least.
    pub(super) async fn of(&self, folder: &Folder, store: &Nats) -> Result<BTreeMap<Name, Router>, Failure> {
        let mut routers = folder.routers()?;
        if let Some(unknown) = self.routers.iter().find(|name| !routers.contains_key(name)) {
            return Err(Failure::Usage(anyhow!(
                "there is no router {unknown}: 'sqm fleet enroll {unknown}' adds it"
            )));
        }
        let hardware = match self.hardware {
            Some(_) => reported_hardware(store, &routers).await?,
            None => BTreeMap::new(),
        };
        routers.retain(|name, router| {
            self.all
                || self.routers.contains(name)
                || self.group.is_some() && router.group == self.group
                || self.site.is_some() && router.site == self.site
                || self.hardware.is_some() && hardware.get(name) == self.hardware.as_ref()
        });
        if routers.is_empty() {
            return Err(Failure::Usage(match &self.hardware {
                Some(model) => no_such_hardware(model, &hardware),
                None => anyhow!("no router is selected"),
            }));
        }
        Ok(routers)
    }
}

/// The hardware that each router has reported last. One that was never heard has none.
async fn reported_hardware(
    store: &Nats,
    routers: &BTreeMap<Name, Router>,
) -> Result<BTreeMap<Name, String>, Failure> {
    let names: Vec<Name> = routers.keys().cloned().collect();
    let entries = store
        .get_all(&Kind::Heartbeat, &names)
        .await
        .context("cannot read the reports")?;
    let reported = entries.into_iter().filter_map(|(name, entry)| {
        let report = Report::parse(&entry.value).ok()?;
        Some((name, report.hardware))
    });
    Ok(reported.collect())
}

fn no_such_hardware(model: &str, reported: &BTreeMap<Name, String>) -> anyhow::Error {
    let known: BTreeSet<String> = reported.values().map(|model| format!("'{model}'")).collect();
    if known.is_empty() {
        return anyhow!("no router has reported its hardware yet");
    }
    let known: Vec<String> = known.into_iter().collect();
    anyhow!(
        "no router has reported the hardware '{model}', but {}",
        known.join(", ")
    )
}

/// The load of a test at a quiet hour, seconds. A choice: more than a verdict needs, because TCP takes seconds to fill the line.
const QUIET_LOAD_S: u32 = 30;

/// The configuration, and how routers take it.
#[derive(clap::Args)]
pub(super) struct Content {
    /// The configuration: 'config queue' sections, with {{NAME}} for values of each router.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Routers wait until this time, such as 2026-12-24T03:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    not_before: Option<u64>,
    /// Routers refuse it from this time on.
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    expires: Option<u64>,
    /// Time under load for which a router observes it before it is kept.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = |text: &str| duration::parse_seconds(text, 1, 86_400))]
    observe: u64,
    /// The longest observation; a router without enough load keeps it then, unjudged.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = |text: &str| duration::parse_seconds(text, 1, 86_400))]
    longest: u64,
    /// The growth of the added round trip from which it is worse, ms.
    #[arg(long, value_name = "MS", default_value = "15")]
    tolerance_ms: f64,
    /// Routers without enough load test their lines against this machine, which runs 'sqm serve', when they are idle.
    #[arg(long, value_name = "HOST[:PORT]")]
    quiet_test: Option<String>,
    /// The times of the day (UTC) at which such a test may begin.
    #[arg(long, value_name = "FROM-TO", default_value = "01:00-05:00", value_parser = when::daily, requires = "quiet_test")]
    quiet_hours: Daily,
    /// A test ends when it has transferred this much, megabytes. A router tests twice: with the new configuration, and with the old one.
    #[arg(long, value_name = "MB", default_value_t = 1000, requires = "quiet_test")]
    quiet_most: u32,
}

/// The document that a router should have, and the one that it has.
pub(super) struct Wanted {
    pub(super) document: Desired,
    /// The configuration of its last document.
    pub(super) before: Option<Desired>,
}

impl Content {
    fn rules(&self) -> Result<Rules, Failure> {
        let usual = Rules::default();
        let rules = Rules {
            observe_s: self.observe as u32,
            minimum_s: usual.minimum_s.min(self.observe as u32),
            longest_s: self.longest as u32,
            tolerance_ms: self.tolerance_ms,
            quiet_test: self.quiet_test(),
            ..usual
        };
        rules.check().map_err(|error| Failure::Usage(anyhow!(error)))?;
        Ok(rules)
    }

    fn quiet_test(&self) -> Option<QuietTest> {
        let server = self.quiet_test.as_ref()?;
        let has_port = server
            .rsplit_once(':')
            .is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
        Some(QuietTest {
            server: match has_port {
                true => server.clone(),
                false => format!("{server}:{DEFAULT_PORT}"),
            },
            daily: self.quiet_hours,
            load_s: QUIET_LOAD_S,
            most_mbyte: self.quiet_most,
        })
    }

    /// The documents of these routers. Every error of every router is reported before any document is written.
    pub(super) fn documents(
        &self,
        routers: &BTreeMap<Name, Router>,
        before: &BTreeMap<Name, Desired>,
    ) -> Result<BTreeMap<Name, Wanted>, Failure> {
        let text = sqm_configuration::load::text(&self.file).map_err(Failure::Usage)?;
        let text = String::from_utf8(text).map_err(|_| {
            Failure::Usage(anyhow!(
                "{} is not UTF-8, which a document must be",
                self.file.display()
            ))
        })?;
        let judgement = self.rules()?;
        let revision = before
            .values()
            .map(|document| document.revision)
            .max()
            .unwrap_or(0)
            + 1;
        let mut wanted = BTreeMap::new();
        let mut wrong = 0;
        for (name, router) in routers {
            let configuration = match configuration_of(&text, name, router, &self.file) {
                Ok(configuration) => configuration,
                Err(errors) => {
                    wrong += 1;
                    errors.iter().for_each(|error| errln!("{error}"));
                    continue;
                }
            };
            let document = Desired {
                schema: SCHEMA.into(),
                router: name.clone(),
                group: router.group.clone(),
                revision,
                issued_unix_s: when::now(),
                not_before_unix_s: self.not_before,
                expires_unix_s: self.expires,
                configuration,
                judgement: judgement.clone(),
            };
            let before = before.get(name).cloned();
            wanted.insert(name.clone(), Wanted { document, before });
        }
        match wrong {
            0 => Ok(wanted),
            count => Err(Failure::Usage(anyhow!(
                "the configuration has errors for {count} routers; nothing was written"
            ))),
        }
    }
}

/// The configuration of one router, checked.
fn configuration_of(text: &str, name: &Name, router: &Router, file: &Path) -> Result<String, Vec<String>> {
    let of_router = |error: &dyn std::fmt::Display| format!("{name}: {}: {error}", file.display());
    let mut values = router.values.clone();
    values.insert("router".into(), name.to_string());
    let filled = template::fill(text, &values).map_err(|error| vec![of_router(&error)])?;
    let draft = Draft::of(filled.as_bytes())
        .map_err(|errors| errors.iter().map(|error| of_router(error)).collect::<Vec<_>>())?;
    let foreign: Vec<String> = draft
        .other_sections()
        .iter()
        .map(|error| of_router(error))
        .collect();
    if !foreign.is_empty() {
        return Err(foreign);
    }
    // The devices are those of another machine.
    match sqm_configuration::parse_and_plan(filled.clone().into_bytes(), file, &[]) {
        Ok(_) => Ok(filled),
        Err(invalid) => Err(invalid
            .messages()
            .iter()
            .map(|message| format!("{name}: {message}"))
            .collect()),
    }
}

/// The documents that routers have in the store.
pub(super) async fn in_store(store: &Nats, names: &[Name]) -> Result<BTreeMap<Name, Desired>, Failure> {
    let entries = store
        .get_all(&Kind::Desired, names)
        .await
        .context("cannot read the documents")?;
    let mut documents = BTreeMap::new();
    for (name, entry) in entries {
        let text = document_of(&entry.value).with_context(|| format!("the document of {name}"))?;
        documents.insert(
            name.clone(),
            Desired::parse(&text).with_context(|| format!("the document of {name}"))?,
        );
    }
    Ok(documents)
}

/// The envelope of a document.
pub(super) fn envelope(document: &Desired, key: &SigningKey) -> Result<Vec<u8>, Failure> {
    let text = serde_json::to_string(document).context("writing JSON")?;
    let envelope = key.sign(&text).into_bytes();
    if envelope.len() > sqm_fleet::signed::LONGEST {
        return Err(Failure::Usage(anyhow!(
            "the document of {} has {} bytes, and {} are allowed",
            document.router,
            envelope.len(),
            sqm_fleet::signed::LONGEST
        )));
    }
    Ok(envelope)
}

/// Show what a configuration would change for each router; changes nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet plan sqm.conf --group homes
  sqm fleet plan sqm.conf --all --json

Exit codes: 0 done, 1 the server cannot be reached, 2 wrong arguments or configuration.")]
pub(super) struct Plan {
    #[command(flatten)]
    content: Content,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    hub: HubArg,
    /// Print one JSON document for each router.
    #[arg(long)]
    json: bool,
}

/// A router of `sqm fleet plan --json`.
#[derive(Serialize)]
struct PlannedRouter<'a> {
    router: &'a Name,
    group: Option<&'a Name>,
    is_new: bool,
    revision: u64,
    configuration: &'a str,
    before: Option<&'a str>,
}

impl Plan {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        let (routers, before) = block_on(async {
            let store = folder.connect(&fleet).await?;
            let routers = self.selection.of(&folder, &store).await?;
            let names: Vec<Name> = routers.keys().cloned().collect();
            let before = in_store(&store, &names).await?;
            Ok((routers, before))
        })?;
        let wanted = self.content.documents(&routers, &before)?;
        let rows: Vec<PlannedRouter<'_>> = wanted
            .iter()
            .map(|(name, wanted)| {
                let before = wanted.before.as_ref().map(|before| before.configuration.as_str());
                PlannedRouter {
                    router: name,
                    group: wanted.document.group.as_ref(),
                    is_new: before != Some(wanted.document.configuration.as_str()),
                    revision: wanted.document.revision,
                    configuration: &wanted.document.configuration,
                    before,
                }
            })
            .collect();
        if self.json {
            json::print(&json::list(&rows))?;
            return Ok(ExitCode::SUCCESS);
        }
        for row in &rows {
            match (row.is_new, row.before) {
                (false, _) => outln!("{}: as it is", row.router),
                (true, None) => outln!("{}: its first document", row.router),
                (true, Some(before)) => {
                    outln!("{}:", row.router);
                    changed_lines(before, row.configuration)
                        .iter()
                        .for_each(|line| outln!("  {line}"));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The lines that only one of two texts has: `- ` before, `+ ` after.
fn changed_lines(before: &str, after: &str) -> Vec<String> {
    let only_in = |text: &str, other: &str, mark: &str| -> Vec<String> {
        let other: Vec<&str> = other.lines().map(str::trim).collect();
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !other.contains(line));
        lines.map(|line| format!("{mark} {line}")).collect()
    };
    [only_in(before, after, "-"), only_in(after, before, "+")].concat()
}

/// Give routers a configuration now, all at once; 'sqm fleet roll-out' goes step by step.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet set sqm.conf --router r1
  sqm fleet set sqm.conf --group homes --not-before 2026-12-01T03:00:00Z
  sqm fleet set sqm.conf --hardware 'GL.iNet GL-MT6000'

Exit codes: 0 written (the routers decide; see 'sqm fleet status'), 1 the server cannot be reached, 2 wrong arguments or configuration.")]
pub(super) struct Set {
    #[command(flatten)]
    content: Content,
    #[command(flatten)]
    selection: Selection,
    /// The key that signs the documents [default: documents.seed in the folder].
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    hub: HubArg,
}

impl Set {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        let key = folder.signing_key(&fleet, self.key.as_deref())?;
        let count = block_on(async {
            let store = folder.connect(&fleet).await?;
            let routers = self.selection.of(&folder, &store).await?;
            let names: Vec<Name> = routers.keys().cloned().collect();
            let wanted = self
                .content
                .documents(&routers, &in_store(&store, &names).await?)?;
            let mut values = Vec::new();
            for (name, wanted) in &wanted {
                values.push((Key::Desired(name.clone()), envelope(&wanted.document, &key)?));
            }
            let count = values.len();
            store
                .put_all(values)
                .await
                .context("cannot write all documents; run the command again")?;
            Ok(count)
        })?;
        let documents = if count == 1 { "document" } else { "documents" };
        outln!("{count} {documents} written; 'sqm fleet status' shows what comes of it.");
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes one document unless the router has a newer one already.
pub(super) async fn hand_out(store: &Nats, router: &Name, envelope: Vec<u8>) -> Result<(), Failure> {
    let document = document_of(&envelope).context("a draft")?;
    let revision = Desired::parse(&document).context("a draft")?.revision;
    let key = Key::Desired(router.clone());
    let known = store.get(&key).await.context("cannot read a document")?;
    let (known_revision, expected) = match &known {
        None => (0, 0),
        Some(entry) => {
            let document = document_of(&entry.value).map(|text| Desired::parse(&text).ok());
            (
                document.ok().flatten().map_or(0, |document| document.revision),
                entry.revision,
            )
        }
    };
    if known_revision >= revision {
        return Ok(());
    }
    store
        .put(&key, envelope, Some(expected))
        .await
        .with_context(|| format!("cannot write the document of {router}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_for_a_router_is_checked_as_on_the_router() {
        let name: Name = "r1".parse().expect("a name");
        let file = Path::new("sqm.conf");
        let router = Router {
            values: BTreeMap::from([("download".to_owned(), "80mbit".to_owned())]),
            ..Router::default()
        };
        let text = "config queue\n\toption enabled '1'\n\toption interface 'eth1'\n\toption download '{{download}}'\n\toption upload '20mbit'\n\toption script 'piece_of_cake.qos'\n";
        let filled = configuration_of(text, &name, &router, file).expect("no errors");
        assert!(filled.contains("'80mbit'"));
        let errors = |text: &str| {
            configuration_of(text, &name, &router, file)
                .expect_err("refused")
                .join("\n")
        };
        assert!(
            errors(&text.replace("20mbit", "fast")).contains("r1: sqm.conf:5"),
            "{}",
            errors(&text.replace("20mbit", "fast"))
        );
        let daemon = format!("{text}config daemon\n");
        assert!(
            errors(&daemon).contains("line 7: only 'config queue' sections"),
            "{}",
            errors(&daemon)
        );
        assert!(errors(&text.replace("download}}", "rate}}")).contains("no value 'rate'"));
    }

    #[test]
    fn hardware_that_no_router_has_is_answered_with_what_they_have() {
        let reported = |models: &[&str]| -> BTreeMap<Name, String> {
            let named = models.iter().enumerate();
            let name = |number: usize| format!("r{number}").parse().expect("a name");
            named
                .map(|(number, model)| (name(number), (*model).to_owned()))
                .collect()
        };
        let said = no_such_hardware("x", &reported(&["b", "a", "b"])).to_string();
        assert_eq!(said, "no router has reported the hardware 'x', but 'a', 'b'");
        let said = no_such_hardware("x", &reported(&[])).to_string();
        assert_eq!(said, "no router has reported its hardware yet");
    }

    #[test]
    fn a_plan_shows_the_lines_that_change() {
        let lines = changed_lines("a\n\toption x '1'\n", "a\n\toption x '2'\n");
        assert_eq!(lines, ["- option x '1'", "+ option x '2'"]);
    }
}
