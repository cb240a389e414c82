use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use sqm_api::configuration::{ConfigurationFile, Configured, Unconfirmed};
use sqm_api::status::ConfigurationStatus;
use sqm_core::direction::PerDirection;
use sqm_core::units::Rate;
use sqm_fleet::agent::{Identity, Memory};
use sqm_fleet::desired::{self, Desired};
use sqm_fleet::judgement::{Load, Rules};
use sqm_fleet::signed::SigningKey;
use sqm_fleet::transport::{Entry, Error};

use super::*;
use crate::journal::Journal;
use crate::kept_folder::KeptFolder;
use crate::shared::{Command, Refused};
use crate::status::Published;
use crate::waker::Waker;

/// A store in memory.
#[derive(Clone, Default)]
struct Values {
    values: Arc<Mutex<BTreeMap<Key, Vec<u8>>>>,
    /// Reads that get no answer.
    failures: Arc<Mutex<usize>>,
}

impl Store for Values {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let mut failures = self.failures.lock().expect("no panic");
        if *failures > 0 {
            *failures -= 1;
            return Err(Error::NoAnswer("it is away".into()));
        }
        let values = self.values.lock().expect("no panic");
        Ok(values.get(key).map(|value| Entry {
            value: value.clone(),
            revision: 1,
            written: String::new(),
        }))
    }

    async fn put(&self, key: &Key, value: Vec<u8>, _: Option<u64>) -> Result<u64, Error> {
        self.values.lock().expect("no panic").insert(key.clone(), value);
        Ok(1)
    }

    async fn publish(&self, key: &Key, value: Vec<u8>) -> Result<(), Error> {
        self.put(key, value, None).await.map(drop)
    }

    async fn subscribe(&self, _: &Key) -> Result<(), Error> {
        Ok(())
    }

    async fn next(&mut self) -> Event {
        std::future::pending().await
    }
}

/// The main loop's part: the configuration's file, and a change that waits for its confirmation.
struct MainLoop {
    commands: Receiver<Command>,
    shared: Arc<Shared>,
    /// The text from before the change that waits.
    before: Arc<Mutex<Option<String>>>,
}

impl MainLoop {
    /// Answers commands until the test ends.
    async fn run(self) {
        loop {
            while let Ok(command) = self.commands.try_recv() {
                self.answer(command);
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.shared.config).expect("a file")
    }

    fn unconfirmed(&self) -> Option<Unconfirmed> {
        let before = self.before.lock().expect("no panic");
        before.as_ref().map(|_| Unconfirmed {
            revision: self.text(),
            seconds_left: 60.0,
        })
    }

    fn answer(&self, command: Command) {
        // The text is its own revision. Whoever asked may have gone.
        match command {
            Command::Read { reply } => {
                let _ = reply.send(Ok(ConfigurationFile {
                    file: String::new(),
                    text: self.text(),
                    revision: self.text(),
                    unconfirmed: self.unconfirmed(),
                }));
            }
            Command::Configure { text, reply, .. } => {
                let before = self.text();
                *self.before.lock().expect("no panic") = Some(before);
                fs::write(&self.shared.config, text).expect("a file");
                let _ = reply.send(Ok(self.configured()));
            }
            Command::Confirm { reply } => {
                let waits = self.before.lock().expect("no panic").take();
                let _ = reply.send(waits.map(|_| self.configured()).ok_or(Refused::NothingWaits));
            }
            Command::Revert { reply } => {
                let waits = self.before.lock().expect("no panic").take();
                let reverted = waits.map(|before| {
                    fs::write(&self.shared.config, before).expect("a file");
                    self.configured()
                });
                let _ = reply.send(reverted.ok_or(Refused::NothingWaits));
            }
            _ => panic!("the fleet sends no other command"),
        }
    }

    fn configured(&self) -> Configured {
        Configured {
            revision: self.text(),
            unconfirmed: self.unconfirmed(),
            interfaces: Vec::new(),
        }
    }
}

/// A router with its configuration in a folder.
struct Router {
    _folder: tempfile::TempDir,
    key: SigningKey,
    store: Values,
    before: Arc<Mutex<Option<String>>>,
    exchange: Exchange<Values>,
}

impl Router {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("sqm");
        fs::write(&config, configuration(50)).expect("a file");
        let published = Published::new(&[], ConfigurationStatus::default(), false);
        let (waker, _) = Waker::pair().expect("sockets");
        let (shared, commands) = Shared::new(published, folder.path().to_owned(), config, waker);
        let shared = Arc::new(shared);
        let before = Arc::<Mutex<_>>::default();
        tokio::spawn(
            MainLoop {
                commands,
                shared: Arc::clone(&shared),
                before: Arc::clone(&before),
            }
            .run(),
        );
        let kept = KeptFolder {
            path: folder.path().to_owned(),
            is_flash: false,
        };
        let (file, memory) = MemoryFile::open(&kept, &Journal::default());
        assert_eq!(memory, Memory::default());
        let key = SigningKey::generate();
        let identity = Identity {
            router: name(),
            key: key.public(),
        };
        let store = Values::default();
        let agent = Agent::new(identity, memory);
        let mut exchange = Exchange::new(agent, file, shared, store.clone());
        exchange.follow();
        Self {
            _folder: folder,
            key,
            store,
            before,
            exchange,
        }
    }

    /// Writes a document into the store. Returns its envelope, which the router may hear of.
    async fn write(&self, revision: u64, mbit: u64) -> Vec<u8> {
        let document = Desired {
            schema: desired::SCHEMA.into(),
            router: name(),
            group: None,
            revision,
            issued_unix_s: 0,
            not_before_unix_s: None,
            expires_unix_s: None,
            configuration: configuration(mbit),
            judgement: Rules::default(),
        };
        let text = serde_json::to_string(&document).expect("plain data");
        let envelope = self.key.sign(&text).into_bytes();
        let key = Key::Desired(name());
        self.store
            .put(&key, envelope.clone(), None)
            .await
            .expect("written");
        envelope
    }

    async fn give(&mut self, revision: u64, mbit: u64) {
        let envelope = self.write(revision, mbit).await;
        self.exchange.receive(&envelope).await;
    }

    /// A person confirms the change.
    fn confirm(&self) {
        let before = self.before.lock().expect("no panic").take();
        before.expect("a change waits");
    }

    /// The throughput from which each direction counts as loaded.
    fn load(&mut self) -> Load {
        let shared = Arc::clone(&self.exchange.shared);
        // The first look at a new line begins its first second.
        for _ in 0..2 {
            let seconds = self.exchange.observer.seconds(monotonic(), &shared.state_dir);
            if let Some((_, load)) = seconds.first() {
                return *load;
            }
        }
        panic!("no line is observed")
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.exchange.shared.config).expect("a file")
    }
}

fn name() -> sqm_fleet::Name {
    "r1".parse().expect("a name")
}

fn configuration(mbit: u64) -> String {
    format!(
        "config queue\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\toption download '{mbit}mbit'\n\
         \toption upload '{mbit}mbit'\n\toption script 'piece_of_cake.qos'\n"
    )
}

fn rates(mbit: u64) -> PerDirection<Rate> {
    PerDirection::both(Rate::from_bits_per_sec(mbit * 1_000_000))
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

#[test]
fn after_a_rollback_the_lines_have_the_rates_from_before() {
    block_on(async {
        let mut router = Router::new();
        assert_eq!(router.load(), Load::of(rates(50), rates(50)));
        router.give(1, 20).await;
        assert_eq!(router.load(), Load::of(rates(50), rates(20)), "during the trial");
        // A person rolls it back.
        let before = router.before.lock().expect("no panic").take();
        fs::write(&router.exchange.shared.config, before.expect("a change waits")).expect("a file");
        router.exchange.on_second().await;
        assert_eq!(router.load(), Load::of(rates(50), rates(50)));
    });
}

#[test]
fn a_document_that_arrives_during_a_trial_is_tried_right_after_it() {
    block_on(async {
        let mut router = Router::new();
        router.give(1, 20).await;
        router.give(2, 30).await;
        assert_eq!(router.text(), configuration(20), "the first one is on trial");
        router.confirm();
        router.exchange.on_second().await;
        assert_eq!(router.text(), configuration(30));
        assert_eq!(router.exchange.agent.memory().revision, 2);
    });
}

#[test]
fn rates_that_a_person_changes_are_noticed_within_a_minute() {
    block_on(async {
        let mut router = Router::new();
        fs::write(&router.exchange.shared.config, configuration(10)).expect("a file");
        router.exchange.on_minute().await;
        assert_eq!(router.load(), Load::of(rates(10), rates(10)));
    });
}

#[test]
fn a_read_without_an_answer_is_repeated() {
    block_on(async {
        let mut router = Router::new();
        // Its message is lost, and the server does not answer at first.
        router.write(1, 20).await;
        *router.store.failures.lock().expect("no panic") = 1;
        router.exchange.read().await;
        router.exchange.on_second().await;
        assert_eq!(router.text(), configuration(50), "there was no answer");
        // Its time has come.
        router.exchange.read_at = router.exchange.read_at.map(|_| Instant::now());
        router.exchange.on_second().await;
        assert_eq!(router.text(), configuration(20));
    });
}

#[test]
fn the_lines_are_observed_while_the_store_does_not_answer() {
    block_on(async {
        let mut router = Router::new();
        // The first look at a new line begins its first second.
        router.load();
        let exchange = &mut router.exchange;
        let (ask, asked) = tokio::sync::oneshot::channel();
        let mut seconds = Vec::new();
        // The store answers when the test has seen a second.
        let observed = observing(
            &mut exchange.observer,
            &mut seconds,
            Path::new("/no-such-folder"),
            asked,
        );
        let answers = async {
            sleep(SECOND * 2).await;
            ask.send(()).expect("it waits");
        };
        let (answer, ()) = tokio::join!(observed, answers);
        answer.expect("the answer arrives");
        assert!(!seconds.is_empty(), "nothing was observed");
    });
}
