//! `sqm fleet roll-out`: documents for some routers first, for the others when the first have kept them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Subcommand;
use sqm_fleet::Name;
use sqm_fleet::daily::Daily;
use sqm_fleet::desired::Desired;
use sqm_fleet::nats::Nats;
use sqm_fleet::report::Report;
use sqm_fleet::rollout::{Action, Progress, RollOut, Rules, Seen, Share, Span, Standing};
use sqm_fleet::transport::{Error, Key, Kind, Store as _};
use sqm_process::Failure;

use super::documents::{Content, Selection, envelope, hand_out, in_store};
use super::folder::{Fleet, Folder};
use super::{HubArg, block_on, when};
use crate::cli::duration;

/// The wait before a server that did not answer is asked again. A choice.
const RETRY: Duration = Duration::from_secs(5);

/// Roll a configuration out step by step; it halts by itself if routers roll it back.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Start(Box<Start>),
    Run(Named),
    Resume(Named),
    Halt(Named),
    Revert(Named),
}

/// Begin a roll-out, and follow it until it is done or halts.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet roll-out start evening sqm.conf --group homes
  sqm fleet roll-out start slow sqm.conf --all --steps 1,5%,25%,100% --hold 1h --daily 01:00-05:00

Whoever is killed or interrupted: 'sqm fleet roll-out run NAME' goes on where it was.

Exit codes: 0 all routers have their document, 1 failed or halted, 2 wrong arguments or configuration.")]
struct Start {
    /// A name for the roll-out.
    name: Name,
    #[command(flatten)]
    content: Content,
    #[command(flatten)]
    selection: Selection,
    /// How many routers have their document after each step: numbers, or shares of all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = share, default_value = "1,5%,25%,100%")]
    steps: Vec<Share>,
    /// The time between two steps.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = |text: &str| duration::parse_seconds(text, 0, 30 * 86_400))]
    hold: u64,
    /// Halt when more than this share of a step's judged routers is bad, per cent.
    #[arg(long, value_name = "PERCENT", default_value = "10")]
    halt_at: f64,
    /// A router that says nothing for this long has fallen silent.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = |text: &str| duration::parse_seconds(text, 60, 86_400))]
    silent: u64,
    /// Hand nothing out in this span, such as 2026-12-24T00:00:00Z/2026-12-27T00:00:00Z.
    #[arg(long = "freeze", value_name = "FROM/TO", value_delimiter = ',', value_parser = span)]
    freezes: Vec<Span>,
    /// Hand documents out between these times of the day only (UTC), such as 01:00-05:00.
    #[arg(long, value_name = "FROM-TO", value_parser = when::daily)]
    daily: Option<Daily>,
    /// The key that signs the documents [default: documents.seed in the folder].
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    hub: HubArg,
}

/// A roll-out that has begun.
#[derive(clap::Args)]
struct Named {
    /// The roll-out.
    name: Name,
    #[command(flatten)]
    hub: HubArg,
}

fn share(text: &str) -> Result<Share, String> {
    let wrong = || format!("'{text}' is no step: a number of routers, or a share such as 5%");
    match text.trim().strip_suffix('%') {
        Some(percent) => percent.parse().map(Share::Percent).map_err(|_| wrong()),
        None => text.trim().parse().map(Share::Routers).map_err(|_| wrong()),
    }
}

fn span(text: &str) -> Result<Span, String> {
    let (from, to) = text
        .split_once('/')
        .ok_or_else(|| format!("'{text}' is not FROM/TO"))?;
    Ok(Span {
        from_unix_s: when::parse(from)?,
        to_unix_s: when::parse(to)?,
    })
}

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Start(args) => args.run(),
            Command::Run(args) => args.with(|store, name| Box::pin(follow(store, name))),
            Command::Resume(args) => args.with(|store, name| Box::pin(resume(store, name))),
            Command::Halt(args) => args.with(|store, name| Box::pin(halt(store, name))),
            Command::Revert(args) => args.with(|store, name| Box::pin(revert(store, name))),
        }
    }
}

type Work<'a> = std::pin::Pin<Box<dyn Future<Output = Result<ExitCode, Failure>> + 'a>>;

impl Named {
    fn with(self, work: impl for<'a> Fn(&'a Nats, &'a Name) -> Work<'a>) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        block_on(async {
            let store = folder.connect(&fleet).await?;
            work(&store, &self.name).await
        })
    }
}

impl Start {
    fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        block_on(async {
            let store = folder.connect(&fleet).await?;
            self.begin(&folder, &fleet, &store).await?;
            follow(&store, &self.name).await
        })
    }

    /// Writes the drafts of all documents, and of those with which they are reverted, before the roll-out itself.
    async fn begin(&self, folder: &Folder, fleet: &Fleet, store: &Nats) -> Result<(), Failure> {
        let rules = Rules {
            steps: self.steps.clone(),
            hold_s: self.hold,
            halt_percent: self.halt_at,
            silent_s: self.silent,
            freezes: self.freezes.clone(),
            daily: self.daily,
        };
        rules.check().map_err(|error| Failure::Usage(anyhow!(error)))?;
        let routers = self.selection.of(folder, store).await?;
        let key = folder.signing_key(fleet, self.key.as_deref())?;
        let names: Vec<Name> = routers.keys().cloned().collect();
        let wanted = self
            .content
            .documents(&routers, &in_store(store, &names).await?)?;
        let at = Key::RollOut(self.name.clone());
        if store
            .get(&at)
            .await
            .context("cannot read the roll-outs")?
            .is_some()
        {
            return Err(Failure::Usage(anyhow!(
                "there is a roll-out {} already: choose another name, or go on with 'sqm fleet roll-out run {}'",
                self.name,
                self.name
            )));
        }
        let mut drafts = Vec::new();
        let mut revision = 0;
        for (router, wanted) in &wanted {
            let roll_out = self.name.clone();
            revision = wanted.document.revision;
            let draft = Key::Draft {
                roll_out: roll_out.clone(),
                router: router.clone(),
            };
            drafts.push((draft, envelope(&wanted.document, &key)?));
            if let Some(before) = &wanted.before {
                let back = Desired {
                    revision: revision + 1,
                    issued_unix_s: when::now(),
                    not_before_unix_s: None,
                    expires_unix_s: None,
                    ..before.clone()
                };
                drafts.push((
                    Key::Revert {
                        roll_out,
                        router: router.clone(),
                    },
                    envelope(&back, &key)?,
                ));
            }
        }
        store.put_all(drafts).await.context("cannot write the drafts")?;
        let roll_out = RollOut::new(self.name.clone(), revision, when::now(), rules, names);
        save(store, &roll_out, 0).await?;
        outln!(
            "{} routers in {} steps.",
            roll_out.routers.len(),
            roll_out.step_count()
        );
        Ok(())
    }
}

async fn load(store: &Nats, name: &Name) -> Result<(RollOut, u64), Failure> {
    let entry = store
        .get(&Key::RollOut(name.clone()))
        .await
        .context("cannot read the roll-out")?;
    let entry = entry.ok_or_else(|| Failure::Usage(anyhow!("there is no roll-out {name}")))?;
    let roll_out = RollOut::parse(&entry.value).map_err(|error| anyhow!("the roll-out {name}: {error}"))?;
    Ok((roll_out, entry.revision))
}

/// Writes a roll-out unless somebody else has written it meanwhile. Returns the store's number of this write.
async fn save(store: &Nats, roll_out: &RollOut, expected: u64) -> Result<u64, Failure> {
    let text = serde_json::to_vec(roll_out).context("writing JSON")?;
    let written = store
        .put(&Key::RollOut(roll_out.name.clone()), text, Some(expected))
        .await;
    Ok(written.context("cannot write the roll-out")?)
}

/// The last reports of these routers.
pub(super) async fn seen(store: &Nats, names: &[Name]) -> Result<BTreeMap<Name, Seen>, Failure> {
    let entries = store
        .get_all(&Kind::Heartbeat, names)
        .await
        .context("cannot read the reports")?;
    Ok(entries
        .into_iter()
        .map(|(name, entry)| {
            let seen = Seen {
                report: Report::parse(&entry.value).ok(),
                last_seen_unix_s: when::parse(&entry.written).ok(),
            };
            (name, seen)
        })
        .collect())
}

/// Follows a roll-out until it is done or halts. A server that does not answer is waited for.
async fn follow(store: &Nats, name: &Name) -> Result<ExitCode, Failure> {
    let mut said = String::new();
    loop {
        let wait = match look(store, name, &mut said).await {
            Ok(ControlFlow::Break(code)) => return Ok(code),
            Ok(ControlFlow::Continue(wait)) => wait,
            // Somebody has halted it, or follows it as well.
            Err(error) if is_changed(&error) => continue,
            Err(error) if is_passing(&error) => {
                errln!("sqm: {error:#}; trying again");
                RETRY
            }
            Err(error) => return Err(error),
        };
        tokio::time::sleep(wait).await;
    }
}

/// Looks at a roll-out once, and hands out what is due. Returns how long to wait before the next look, or the exit code at the end.
async fn look(
    store: &Nats,
    name: &Name,
    said: &mut String,
) -> Result<ControlFlow<ExitCode, Duration>, Failure> {
    let (mut roll_out, mut revision) = load(store, name).await?;
    let before = roll_out.clone();
    let step = match roll_out.progress {
        Progress::Running { step, .. } | Progress::Halted { step, .. } => step,
        Progress::Done | Progress::Reverted => 0,
    };
    let seen = seen(store, roll_out.routers_of(step)).await?;
    let action = roll_out.advance(&seen, when::now());
    if let Action::HandOut(routers) = &action {
        // Fails if somebody has halted the roll-out since it was read: then no document of this step is handed out.
        revision = save(store, &roll_out, revision).await?;
        for router in routers {
            let draft = Key::Draft {
                roll_out: name.clone(),
                router: router.clone(),
            };
            let draft = store.get(&draft).await.context("cannot read a draft")?;
            let draft = draft.ok_or_else(|| anyhow!("the draft of {router} is missing"))?;
            hand_out(store, router, draft.value).await?;
        }
        roll_out.handed_out(when::now());
    }
    if roll_out != before {
        save(store, &roll_out, revision).await?;
    }
    // The reports are those of the step before if documents have been handed out just now.
    let is_of_step = !matches!(action, Action::HandOut(_));
    let line = describe(&roll_out, is_of_step.then_some(&seen), when::now());
    if line != *said {
        outln!("{line}");
        *said = line;
    }
    Ok(match (&roll_out.progress, action) {
        (Progress::Done | Progress::Reverted, _) => ControlFlow::Break(ExitCode::SUCCESS),
        (Progress::Halted { .. }, _) => ControlFlow::Break(ExitCode::FAILURE),
        (_, Action::Wait(until)) => {
            let seconds = until.saturating_sub(when::now()).clamp(1, 10);
            ControlFlow::Continue(Duration::from_secs(seconds))
        }
        _ => ControlFlow::Continue(Duration::ZERO),
    })
}

fn is_passing(error: &Failure) -> bool {
    matches!(cause(error), Some(Error::NoAnswer(_)))
}

fn is_changed(error: &Failure) -> bool {
    matches!(cause(error), Some(Error::Changed(_)))
}

fn cause(error: &Failure) -> Option<&Error> {
    match error {
        Failure::Failed(error) => error.chain().find_map(|cause| cause.downcast_ref()),
        _ => None,
    }
}

/// The state in one line. With the routers' last reports it says how many of a running step have decided how.
pub(super) fn describe(roll_out: &RollOut, seen: Option<&BTreeMap<Name, Seen>>, now: u64) -> String {
    let steps = roll_out.step_count();
    match &roll_out.progress {
        Progress::Running {
            step,
            since_unix_s: None,
            ..
        } => format!("step {} of {steps}: waits for its time", step + 1),
        Progress::Running { step, .. } => {
            let routers = roll_out.routers_of(*step).len();
            let standings = seen.map_or_else(String::new, |seen| {
                format!(": {}", counted(&roll_out.standings(seen, now)))
            });
            format!("step {} of {steps}: {routers} routers{standings}", step + 1)
        }
        Progress::Halted { step, reason, .. } => format!("halted in step {} of {steps}: {reason}", step + 1),
        Progress::Done => format!("done: all {} routers have their document", roll_out.routers.len()),
        Progress::Reverted => "reverted".into(),
    }
}

/// How many routers stand where.
fn counted(standings: &BTreeMap<Name, Standing>) -> String {
    let counted = [
        (Standing::Busy, "busy"),
        (Standing::Kept, "kept it"),
        (Standing::Unjudged, "kept it unjudged"),
        (Standing::RolledBack, "rolled it back"),
        (Standing::Refused, "refused it"),
        (Standing::FellSilent, "fell silent"),
        (Standing::Absent, "absent"),
    ]
    .iter()
    .filter_map(|(standing, word)| {
        let count = standings.values().filter(|found| *found == standing).count();
        (count > 0).then(|| format!("{count} {word}"))
    });
    counted.collect::<Vec<_>>().join(", ")
}

async fn resume(store: &Nats, name: &Name) -> Result<ExitCode, Failure> {
    let (mut roll_out, revision) = load(store, name).await?;
    if !roll_out.resume() {
        return Err(Failure::Usage(anyhow!("the roll-out {name} has not halted")));
    }
    save(store, &roll_out, revision).await?;
    follow(store, name).await
}

async fn halt(store: &Nats, name: &Name) -> Result<ExitCode, Failure> {
    let (mut roll_out, revision) = load(store, name).await?;
    if !roll_out.halt("by hand".into()) {
        return Err(Failure::Usage(anyhow!("the roll-out {name} is not running")));
    }
    save(store, &roll_out, revision).await?;
    outln!(
        "halted; 'sqm fleet roll-out resume {name}' goes on, 'sqm fleet roll-out revert {name}' takes it back"
    );
    Ok(ExitCode::SUCCESS)
}

/// Gives all routers that have the roll-out's document the one from before.
async fn revert(store: &Nats, name: &Name) -> Result<ExitCode, Failure> {
    let (mut roll_out, revision) = load(store, name).await?;
    // Nobody hands out more meanwhile.
    roll_out.progress = Progress::Reverted;
    save(store, &roll_out, revision).await?;
    let have = in_store(store, &roll_out.routers).await?;
    let have = have
        .into_iter()
        .filter(|(_, document)| document.revision == roll_out.revision);
    let (mut reverted, mut first) = (0, Vec::new());
    for (router, _) in have {
        let key = Key::Revert {
            roll_out: name.clone(),
            router: router.clone(),
        };
        match store.get(&key).await.context("cannot read a draft")? {
            Some(entry) => {
                hand_out(store, &router, entry.value).await?;
                reverted += 1;
            }
            None => first.push(router.to_string()),
        }
    }
    outln!("{reverted} routers have the document from before.");
    if first.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    errln!(
        "sqm: this was the first document of {}, so there is none from before: give them one with 'sqm fleet set'",
        first.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_times_are_read() {
        assert_eq!(share("1"), Ok(Share::Routers(1)));
        assert_eq!(share(" 2.5% "), Ok(Share::Percent(2.5)));
        assert!(share("all").is_err() && share("-1").is_err());
        assert!(span("2026-12-24T00:00:00Z/2026-12-27T00:00:00Z").is_ok());
        assert!(span("2026-12-24T00:00:00Z").is_err());
    }
}
