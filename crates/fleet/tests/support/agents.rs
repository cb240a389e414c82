//! Many routers in one process. Each has its own connection and credentials, and does what the daemon's thread does: it subscribes to its
//! document, reads it at each connection, verifies it, and writes its report and its heartbeat. There is no kernel: each configuration
//! counts as applied at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sqm_fleet::Name;
use sqm_fleet::agent::{Action, Agent, Applied, Identity, Memory};
use sqm_fleet::credentials::Role;
use sqm_fleet::desired::{self, Desired};
use sqm_fleet::judgement::Rules;
use sqm_fleet::nats::{Nats, Options};
use sqm_fleet::report::{self, Report};
use sqm_fleet::signed::{PublicKey, SigningKey};
use sqm_fleet::transport::{Error, Event, Key, Store};
use tokio::sync::{mpsc, oneshot};

use super::{Server, now};

/// The longest wait for the next router. A choice: far longer than any takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A message of a router to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum News {
    /// The server has its subscription and answered its first read.
    Connected,
    /// It has verified the document with this revision.
    Has(u64),
    /// The server has its report on that document.
    Reported(u64),
}

/// The routers.
pub(crate) struct Agents {
    count: usize,
    news: mpsc::UnboundedReceiver<News>,
    /// How many routers have told this.
    told: BTreeMap<News, usize>,
    /// Its end ends the thread of the routers.
    _stop: oneshot::Sender<()>,
}

impl Agents {
    /// Starts these routers on a thread of their own. They take documents that this key has signed.
    pub(crate) fn start(routers: Vec<(Name, Options)>, key: &PublicKey) -> Self {
        let count = routers.len();
        let key = key.clone();
        let (sender, news) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                for (name, options) in routers {
                    tokio::spawn(run(name, options, key.clone(), sender.clone()));
                }
                // Fails when this value has gone, which is the sign to end.
                let _: Result<(), _> = stopped.await;
            });
        });
        Self {
            count,
            news,
            told: BTreeMap::new(),
            _stop: stop,
        }
    }

    /// Waits until every router has told this.
    pub(crate) async fn all(&mut self, wanted: News) {
        while self.told.get(&wanted).is_none_or(|told| *told < self.count) {
            let news = tokio::time::timeout(PATIENCE, self.news.recv()).await;
            let Ok(news) = news else {
                panic!("{wanted:?}: {:?} of {} routers", self.told, self.count)
            };
            *self.told.entry(news.expect("the routers run")).or_default() += 1;
        }
    }
}

/// Routers `r0`, `r1`, … of a server.
pub(crate) fn routers(server: &Server, count: usize) -> Vec<(Name, Options)> {
    let router = |name: Name| {
        let options = server.options(name.as_str(), Role::Router);
        (name, options)
    };
    names(count).map(router).collect()
}

/// Signed documents of about 4 KiB for them, a different one for each.
pub(crate) fn documents(key: &SigningKey, count: usize, revision: u64) -> Vec<(Key, Vec<u8>)> {
    names(count)
        .enumerate()
        .map(|(number, name)| {
            let text = serde_json::to_string(&document(&name, revision, number)).expect("plain data");
            (Key::Desired(name), key.sign(&text).into_bytes())
        })
        .collect()
}

fn names(count: usize) -> impl Iterator<Item = Name> {
    (0..count).map(|number| format!("r{number}").parse().expect("a name"))
}

fn document(name: &Name, revision: u64, number: usize) -> Desired {
    let mut configuration = String::new();
    // About 190 bytes each.
    for section in 0..20 {
        configuration += &format!(
            "config queue\n\toption enabled '1'\n\toption interface 'eth{section}'\n\toption download '{}kbit'\n\
             \toption upload '{}kbit'\n\toption script 'piece_of_cake.qos'\n\toption linklayer 'ethernet'\n",
            50_000 + number,
            10_000 + revision,
        );
    }
    Desired {
        schema: desired::SCHEMA.into(),
        router: name.clone(),
        group: None,
        revision,
        issued_unix_s: now(),
        not_before_unix_s: None,
        expires_unix_s: None,
        configuration,
        judgement: Rules::default(),
    }
}

/// Asks again until there is an answer: a server to which thousands connect at once may need longer than a request waits.
async fn answered<T, F: Future<Output = Result<T, Error>>>(request: impl Fn() -> F) -> T {
    loop {
        match request().await {
            Ok(answer) => return answer,
            Err(Error::NoAnswer(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

struct Router {
    agent: Agent,
    store: Nats,
    news: mpsc::UnboundedSender<News>,
}

/// One router.
async fn run(name: Name, options: Options, key: PublicKey, news: mpsc::UnboundedSender<News>) {
    let store = Nats::connect(&options).await.expect("options that work");
    let desired = Key::Desired(name.clone());
    store
        .subscribe(&desired)
        .await
        .expect("a connection that is open");
    let identity = Identity { router: name, key };
    let mut router = Router {
        agent: Agent::new(identity, Memory::default()),
        store,
        news,
    };
    let mut is_first = true;
    loop {
        match router.store.next().await {
            Event::Connected => {
                router.report().await;
                if let Some(entry) = answered(|| router.store.get(&desired)).await {
                    router.receive(&entry.value).await;
                }
                if std::mem::take(&mut is_first) {
                    router.tell(News::Connected);
                }
            }
            Event::Changed(envelope) => router.receive(&envelope).await,
            Event::Disconnected => {}
            Event::Refused(why) => panic!("the server refuses: {why}"),
        }
    }
}

impl Router {
    async fn receive(&mut self, envelope: &[u8]) {
        let mut waiting = VecDeque::from(self.agent.receive(envelope, now()));
        while let Some(action) = waiting.pop_front() {
            match action {
                Action::Remember => {}
                Action::Apply { .. } => {
                    let revision = self.agent.memory().revision;
                    self.tell(News::Has(revision));
                    // The file holds the text for good, so the next document is taken as well.
                    waiting.extend(self.agent.applied(Applied::Already, now()));
                }
                Action::Report => {
                    self.report().await;
                    self.tell(News::Reported(self.agent.memory().revision));
                }
                Action::Confirm | Action::Revert | Action::Test(_) => {
                    unreachable!("nothing waits for a verdict")
                }
            }
        }
    }

    async fn report(&self) {
        let memory = self.agent.memory();
        let report = Report {
            schema: report::SCHEMA.into(),
            router: self.agent.router().clone(),
            at_unix_s: now(),
            sqm_version: "0.1.0".into(),
            hardware: "x86_64".into(),
            revision: memory.revision,
            in_force: memory.in_force,
            outcome: memory.outcome.clone(),
            refused: memory.refused.clone(),
            differences: Vec::new(),
        };
        let text = serde_json::to_vec(&report).expect("plain data");
        let name = self.agent.router();
        let key = Key::Report(name.clone());
        answered(|| self.store.put(&key, text.clone(), None)).await;
        let sent = self.store.publish(&Key::Heartbeat(name.clone()), text).await;
        sent.expect("a connection that is open");
    }

    fn tell(&self, news: News) {
        // Fails when the test is over.
        let _ = self.news.send(news);
    }
}
