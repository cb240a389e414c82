//! The thread of the fleet: carries what the store says to the agent, and what the agent decides to the main loop and the store.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqm_api::journal::LogKind;
use sqm_fleet::agent::{Action, Agent, Ended, TestEnd};
use sqm_fleet::judgement::{Load, Second};
use sqm_fleet::nats::{Nats, Options};
use sqm_fleet::report::{Outcome, Report, SCHEMA};
use sqm_fleet::transport::{Event, Key, Store};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep};
use tracing::{info, warn};

use super::changes::{self, Change};
use super::memory_file::MemoryFile;
use super::observer::Observer;
use super::quiet_test::RunningTest;
use crate::clock::monotonic;
use crate::shared::Shared;

/// How often packets are looked at on a busy line; a choice. On an idle one it is once a second.
const POLL: Duration = Duration::from_millis(100);
/// A second, the unit of the agent's judgement.
const SECOND: Duration = Duration::from_secs(1);
/// How often the router says that it is there. A choice: an operator sees within two minutes that a router is gone.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// How often the document is read again without a reason. A choice: a message may get lost without a trace.
const READ_AGAIN: Duration = Duration::from_secs(300);
/// The wait before a read, a report or a write of the memory that failed is tried again; a choice.
const RETRY: Duration = Duration::from_secs(10);

/// Runs for as long as the daemon.
pub(super) fn run(options: &Options, agent: Agent, file: MemoryFile, shared: &Arc<Shared>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return log(shared, format!("the fleet's thread cannot run: {error}")),
    };
    runtime.block_on(async {
        match Nats::connect(options).await {
            Ok(store) => Exchange::new(agent, file, Arc::clone(shared), store).run().await,
            Err(error) => log(shared, format!("no connection to the fleet is possible: {error}")),
        }
    });
}

struct Exchange<S> {
    agent: Agent,
    file: MemoryFile,
    shared: Arc<Shared>,
    store: S,
    observer: Observer,
    /// Seconds that were observed while the store was waited for, which the agent has not seen yet.
    seconds: Vec<(Second, Load)>,
    /// The change that waits for its verdict.
    change: Option<Change>,
    /// The test at a quiet hour.
    test: Option<RunningTest>,
    /// When the store is to be read again, if there is a reason.
    read_at: Option<Instant>,
    /// Actions that could not be carried out yet.
    waiting: VecDeque<Action>,
    /// The last message about a failure, which is not repeated.
    said: Option<String>,
}

impl<S: Store> Exchange<S> {
    fn new(agent: Agent, file: MemoryFile, shared: Arc<Shared>, store: S) -> Self {
        Self {
            agent,
            file,
            shared,
            store,
            observer: Observer::default(),
            seconds: Vec::new(),
            change: None,
            test: None,
            read_at: None,
            waiting: VecDeque::new(),
            said: None,
        }
    }

    async fn run(&mut self) {
        let router = self.agent.router().clone();
        if let Err(error) = self.store.subscribe(&Key::Desired(router)).await {
            self.fail(error.to_string());
        }
        let mut poll = interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut second = interval(SECOND);
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut retry = Instant::now();
        let mut heartbeat = Instant::now() + HEARTBEAT;
        let mut read_again = Instant::now() + jittered(READ_AGAIN);
        self.follow();
        loop {
            tokio::select! {
                event = self.store.next() => match event {
                    Event::Connected => {
                        self.succeed("connected to the fleet's server");
                        self.report().await;
                        self.read().await;
                        heartbeat = Instant::now();
                    }
                    Event::Changed(envelope) => self.receive(&envelope).await,
                    Event::Disconnected => self.fail("the connection to the fleet's server is lost; it is made again".into()),
                    Event::Refused(why) => self.fail(format!("the fleet's server refuses: {why}")),
                },
                _ = poll.tick(), if self.observer.is_busy() => self.observer.poll(monotonic()),
                _ = second.tick() => {
                    self.on_second().await;
                    if !self.waiting.is_empty() && retry <= Instant::now() {
                        self.carry_out(Vec::new()).await;
                        retry = Instant::now() + RETRY;
                    }
                }
                () = sleep(heartbeat.saturating_duration_since(Instant::now())) => {
                    heartbeat = Instant::now() + jittered(HEARTBEAT);
                    self.on_minute().await;
                }
                () = sleep(read_again.saturating_duration_since(Instant::now())) => {
                    read_again = Instant::now() + jittered(READ_AGAIN);
                    self.read().await;
                }
            }
        }
    }

    /// Reads the router's document.
    async fn read(&mut self) {
        let key = Key::Desired(self.agent.router().clone());
        let records = &self.shared.state_dir;
        let request = self.store.get(&key);
        match observing(&mut self.observer, &mut self.seconds, records, request).await {
            Ok(Some(entry)) => self.receive(&entry.value).await,
            Ok(None) => {}
            Err(error) => {
                self.fail(format!("the document cannot be read: {error}"));
                self.read_at = Some(Instant::now() + RETRY);
            }
        }
    }

    async fn receive(&mut self, envelope: &[u8]) {
        let actions = self.agent.receive(envelope, unix_s());
        if let Some(refused) = self
            .agent
            .memory()
            .refused
            .as_ref()
            .filter(|_| !actions.is_empty())
        {
            warn!("a document of the fleet was refused: {}", refused.reason);
            log(
                &self.shared,
                format!("a document was refused: {}", refused.reason),
            );
        }
        self.carry_out(actions).await;
    }

    async fn on_second(&mut self) {
        let now = unix_s();
        if let Some(change) = self.change.clone()
            && let Some(ended) = changes::how_it_ended(&self.shared, &change).await
        {
            // By hand, or by the daemon because its time was up.
            let actions = self.ended(ended);
            self.carry_out(actions).await;
        }
        self.seconds
            .extend(self.observer.seconds(monotonic(), &self.shared.state_dir));
        for (second, load) in std::mem::take(&mut self.seconds) {
            let actions = self.agent.observe(&second, load, now);
            self.carry_out(actions).await;
        }
        self.follow_test(now).await;
        let actions = self.agent.look(now);
        self.carry_out(actions).await;
        if self.read_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.read().await;
        }
    }

    /// Tells the agent how its test has ended, or ends one that it does not want any more.
    async fn follow_test(&mut self, now: u64) {
        self.test = self.test.take().filter(|_| self.agent.is_testing());
        if let Some(end) = self.test.as_ref().and_then(RunningTest::end) {
            self.test = None;
            let actions = self.agent.tested(end, now);
            self.carry_out(actions).await;
        }
    }

    async fn on_minute(&mut self) {
        // A person may have changed the configuration.
        self.follow();
        self.beat().await;
    }

    /// Carries actions out, in their order. One that fails is tried again later, and those behind it wait.
    async fn carry_out(&mut self, actions: Vec<Action>) {
        self.waiting.extend(actions);
        while let Some(action) = self.waiting.pop_front() {
            let now = unix_s();
            let more = match &action {
                Action::Remember => match self.file.write(self.agent.memory()) {
                    Ok(()) => Vec::new(),
                    Err(error) => {
                        self.fail(error);
                        self.waiting.push_front(action);
                        return;
                    }
                },
                Action::Apply {
                    configuration,
                    confirm_s,
                } => {
                    let confirm = Duration::from_secs(*confirm_s);
                    self.observer.begin_trial();
                    let (applied, change) = changes::apply(&self.shared, configuration, confirm).await;
                    self.change = change;
                    self.follow();
                    self.agent.applied(applied, now)
                }
                Action::Confirm | Action::Revert => {
                    let Some(change) = self.change.clone() else {
                        continue;
                    };
                    let ended = match action {
                        Action::Confirm => changes::confirm(&self.shared, &change).await,
                        _ => changes::revert(&self.shared, &change).await,
                    };
                    let Some(ended) = ended else {
                        self.waiting.push_front(action);
                        return;
                    };
                    self.ended(ended)
                }
                Action::Test(test) => match RunningTest::start(test) {
                    Ok(running) => {
                        log(&self.shared, format!("a test with {} begins", test.server));
                        self.test = Some(running);
                        Vec::new()
                    }
                    Err(error) => self.agent.tested(TestEnd::Failed(error.to_string()), now),
                },
                Action::Report => {
                    self.report().await;
                    Vec::new()
                }
            };
            for action in more.into_iter().rev() {
                self.waiting.push_front(action);
            }
            if !self.agent.is_observing() {
                self.observer.end_trial();
            }
        }
    }

    /// The change has ended: the lines have the rates of the configuration that is in force now. A newer document may have been held up
    /// by the trial, so the store is read at the next look.
    fn ended(&mut self, ended: Ended) -> Vec<Action> {
        self.change = None;
        self.read_at = Some(Instant::now());
        self.follow();
        self.agent.carried_out(ended)
    }

    /// Observes the lines that the configuration has now.
    fn follow(&mut self) {
        let text = sqm_configuration::staged::text_in_force(&self.shared.config).unwrap_or_default();
        let links = sqm_configuration::load::links();
        if let Ok((_, loaded)) = sqm_configuration::parse_and_plan(text, &self.shared.config, &links) {
            self.observer.follow(&loaded.lines);
        }
    }

    /// Writes the report where it stays, and as a heartbeat.
    async fn report(&mut self) {
        let report = self.text();
        let key = Key::Report(self.agent.router().clone());
        if let Some(outcome) = &self.agent.memory().outcome {
            let text = describe(self.agent.memory().revision, outcome);
            if self.said.as_ref() != Some(&text) {
                info!("{text}");
                log(&self.shared, text.clone());
                self.said = Some(text);
            }
        }
        let records = &self.shared.state_dir;
        let request = self.store.put(&key, report, None);
        if let Err(error) = observing(&mut self.observer, &mut self.seconds, records, request).await {
            // It is written again at the next connection, and each minute as a heartbeat.
            self.fail(format!("the report cannot be written: {error}"));
        }
        self.beat().await;
    }

    async fn beat(&mut self) {
        let key = Key::Heartbeat(self.agent.router().clone());
        let report = self.text();
        if let Err(error) = self.store.publish(&key, report).await {
            self.fail(format!("the report cannot be sent: {error}"));
        }
    }

    fn text(&self) -> Vec<u8> {
        let memory = self.agent.memory();
        let status = self.shared.status();
        let differences = status.interfaces.iter().filter_map(|interface| {
            let why = interface.why.as_ref()?;
            Some(format!(
                "{}: {}: {why}",
                interface.interface,
                interface.state.name()
            ))
        });
        let report = Report {
            schema: SCHEMA.into(),
            router: self.agent.router().clone(),
            at_unix_s: unix_s(),
            sqm_version: env!("CARGO_PKG_VERSION").into(),
            hardware: hardware(),
            revision: memory.revision,
            in_force: memory.in_force,
            outcome: memory.outcome.clone(),
            refused: memory.refused.clone(),
            differences: differences.collect(),
        };
        serde_json::to_vec(&report).expect("a report is plain data")
    }

    /// Logs a failure, once.
    fn fail(&mut self, text: String) {
        if self.said.as_ref() != Some(&text) {
            warn!("{text}");
            log(&self.shared, text.clone());
            self.said = Some(text);
        }
    }

    fn succeed(&mut self, text: &str) {
        self.said = None;
        info!("{text}");
        log(&self.shared, text.to_owned());
    }
}

/// Waits for the store, for ten seconds if it does not answer, and observes the lines meanwhile.
async fn observing<T>(
    observer: &mut Observer,
    seconds: &mut Vec<(Second, Load)>,
    records: &Path,
    request: impl Future<Output = T>,
) -> T {
    let mut request = pin!(request);
    let mut poll = interval(POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut second = interval_at(Instant::now() + SECOND, SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // A second that has ended is observed before the answer is returned.
            biased;
            _ = second.tick() => seconds.extend(observer.seconds(monotonic(), records)),
            _ = poll.tick(), if observer.is_busy() => observer.poll(monotonic()),
            answer = &mut request => return answer,
        }
    }
}

/// The outcome in words.
fn describe(revision: u64, outcome: &Outcome) -> String {
    let what = match outcome {
        Outcome::Waiting { until_unix_s: None } => "waits until the clock of this router is set".into(),
        Outcome::Waiting { .. } => "waits for its time".into(),
        Outcome::Observed {
            quiet_test_unix_s: None,
        } => "is in force, and is observed".into(),
        Outcome::Observed { .. } => {
            "is in force; there was too little load for a verdict, and the line is tested at a quiet hour"
                .into()
        }
        Outcome::Kept(judged) => format!("was kept: {}", judged.reason),
        Outcome::RolledBack(judged) => format!("was rolled back: {}", judged.reason),
        Outcome::Invalid { errors } => format!("was refused: {}", errors.join("; ")),
    };
    format!("revision {revision} of the fleet's documents {what}")
}

/// The device tree's model, else the architecture.
fn hardware() -> String {
    let model = std::fs::read_to_string("/sys/firmware/devicetree/base/model").ok();
    let model = model.map(|text| text.trim_end_matches('\0').trim().to_owned());
    model
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn log(shared: &Shared, text: String) {
    shared.journal.record(LogKind::Fleet, None, text);
}

fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The period, up to a tenth shorter: ten thousand routers do not do the same at the same moment.
fn jittered(period: Duration) -> Duration {
    let part = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos() % 1000);
    period - period / 10 * part / 1000
}

#[cfg(test)]
mod tests;
