//! A fleet's folder, and the operator's commands on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sqm_fleet::Name;
use sqm_fleet::desired::Desired;
use sqm_fleet::nats::{Nats, Options};
use sqm_fleet::signed::PublicKey;
use sqm_fleet::transport::Key;
use tempfile::TempDir;

use super::servers::Program;

/// The folder. Its end removes it.
pub(crate) struct Hub {
    pub(crate) folder: TempDir,
}

/// A hub with one server.
pub(crate) struct Single {
    pub(crate) hub: Hub,
    pub(crate) server: Program,
}

impl Single {
    pub(crate) fn start(program: &Path) -> Self {
        // The server chooses a free port.
        let hub = Hub::init(&["--url", "nats://127.0.0.1:1", "--listen", "127.0.0.1:-1"]);
        let file = hub.path().join("server.conf");
        let text = fs::read_to_string(&file).expect("written by 'hub init'");
        let text = format!("ports_file_dir: \"{}\"\n{text}", hub.path().display());
        fs::write(&file, &text).expect("a file");
        let server = Program::start(program, &file);
        let address = format!("127.0.0.1:{}", server.port);
        fs::write(&file, text.replace("127.0.0.1:-1", &address)).expect("a file");
        hub.set_url(&format!("nats://{address}"));
        Self { hub, server }
    }
}

impl Hub {
    /// `sqm fleet hub init` with these arguments.
    pub(crate) fn init(args: &[&str]) -> Self {
        let hub = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        let (folder, store) = (hub.path(), hub.folder.path().join("store"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        command.args(["fleet", "hub", "init"]).arg(folder);
        command.arg("--store").arg(store).args(args);
        succeeded(&command.output().expect("sqm starts"));
        let drop_in = fs::read_to_string(hub.path().join("nats-server.service.conf"));
        let drop_in = drop_in.expect("written by 'hub init'");
        assert!(
            drop_in.ends_with(&sqm_fleet::server::systemd_drop_in()),
            "{drop_in}"
        );
        hub
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("hub")
    }

    fn set_url(&self, url: &str) {
        let file = self.path().join("fleet.json");
        let mut fleet = self.fleet();
        fleet["url"] = url.into();
        fs::write(file, fleet.to_string()).expect("a file");
    }

    fn fleet(&self) -> Value {
        let text = fs::read(self.path().join("fleet.json")).expect("written by 'hub init'");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// A copy of the folder whose commands reach the servers at another address.
    pub(crate) fn with_url(&self, url: &str) -> Self {
        let copy = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        let copied = Command::new("cp")
            .arg("-r")
            .arg(self.path())
            .arg(copy.path())
            .status();
        assert!(copied.expect("cp starts").success());
        copy.set_url(url);
        copy
    }

    /// `sqm fleet` with these arguments, not started yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        command
            .arg("fleet")
            .args(args)
            .env("SQM_FLEET", self.path())
            .stdin(Stdio::null());
        command
    }

    /// `sqm fleet` with these arguments, which must end with the exit code 0.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        succeeded(&self.command(args).output().expect("sqm starts"))
    }

    /// Adds routers of a group.
    pub(crate) fn enroll(&self, names: &[Name], group: &str) {
        for name in names {
            self.run(&["enroll", name.as_str(), "--group", group]);
        }
    }

    /// A configuration with this download rate, kbit/s.
    pub(crate) fn configuration(&self, download: usize) -> String {
        let file = self.folder.path().join(format!("{download}.conf"));
        let text = format!(
            "config queue\n\toption enabled '1'\n\toption interface 'eth1'\n\toption download '{download}'\n\
             \toption upload '10000'\n\toption script 'piece_of_cake.qos'\n"
        );
        fs::write(&file, text).expect("a file");
        file.to_str().expect("UTF-8").to_owned()
    }

    /// How a router or the operator reaches the servers.
    pub(crate) fn options(&self, name: &Name) -> Options {
        Options {
            url: self.fleet()["url"].as_str().expect("text").to_owned(),
            credentials: Some(self.path().join(format!("credentials/{name}.creds"))),
            certificate_authority: None,
            name: name.to_string(),
        }
    }

    /// The key that signs documents.
    pub(crate) fn key(&self) -> PublicKey {
        PublicKey::parse(self.fleet()["key"].as_str().expect("text")).expect("a key")
    }

    pub(crate) async fn connect(&self) -> Nats {
        let options = self.options(&"operator".parse().expect("a name"));
        Nats::connect_now(&options).await.expect("a server answers")
    }

    /// The documents that a router has been given, oldest first. Each must be whole, genuine and its own.
    pub(crate) async fn documents(&self, store: &Nats, router: &Name) -> Vec<Desired> {
        let key = self.key();
        let history = store.history(&Key::Desired(router.clone())).await;
        let documents = history.expect("an answer").into_iter().map(|entry| {
            let text = key.open(&entry.value).expect("a genuine document");
            let document = Desired::parse(&text).expect("a whole document");
            assert_eq!(document.router, *router);
            document
        });
        documents.collect()
    }
}

/// The output of a command that succeeded.
pub(crate) fn succeeded(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A runtime for the requests of a test.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}
