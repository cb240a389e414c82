//! Real servers for tests: Debian's nats-server and a current one.
#![allow(dead_code, reason = "each test program uses its part of this module")]

pub(crate) mod agents;
pub(crate) mod process;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use sqm_fleet::Name;
use sqm_fleet::credentials::{Keys, Role};
use sqm_fleet::nats::{Nats, Options};
use tempfile::TempDir;

use process::Process;

/// The programs, by `lab/nats-server.sh`, which installs them. A test that cannot have both fails.
pub(crate) fn programs() -> &'static [PathBuf] {
    static PROGRAMS: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/nats-server.sh");
        let output = Command::new(script)
            .stderr(Stdio::inherit())
            .output()
            .expect("the script starts");
        assert!(
            output.status.success(),
            "lab/nats-server.sh cannot install the servers"
        );
        let text = String::from_utf8(output.stdout).expect("paths");
        let programs: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
        assert_eq!(
            programs.len(),
            2,
            "Debian's server and a current one: {programs:?}"
        );
        programs
    });
    &PROGRAMS
}

/// Runs a test on each server, with the operator's connection and the buckets made.
pub(crate) fn on_each<F: Future<Output = ()>>(test: impl Fn(Server, Nats) -> F) {
    for program in programs() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let server = Server::start(program);
            let hub = server.connect("hub", Role::Operator).await;
            hub.make_buckets(1).await.expect("buckets");
            test(server, hub).await;
        });
    }
}

/// A running nats-server. It ends with this value.
pub(crate) struct Program {
    program: PathBuf,
    configuration: PathBuf,
    child: Child,
    pub(crate) port: u16,
}

impl Program {
    /// Starts it. `ports_file_dir` in its configuration must be the folder of the configuration.
    pub(crate) fn start(program: &Path, configuration: &Path) -> Self {
        let (child, port) = run(program, configuration);
        Self {
            program: program.to_owned(),
            configuration: configuration.to_owned(),
            child,
            port,
        }
    }

    /// Kills it without a warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }

    /// Starts it again, with what its disk holds.
    pub(crate) fn restart(&mut self) {
        (self.child, self.port) = run(&self.program, &self.configuration);
    }

    /// Its process.
    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with the keys of a fleet. It ends with this value.
pub(crate) struct Server {
    folder: TempDir,
    pub(crate) keys: Keys,
    pub(crate) program: Program,
}

impl Server {
    pub(crate) fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = Keys::generate();
        let configuration = write_configuration(folder.path(), 0, &keys, &BTreeMap::new());
        let program = Program::start(program, &configuration);
        // A server that is started again has the same port, as its clients expect.
        write_configuration(folder.path(), program.port, &keys, &BTreeMap::new());
        Self {
            folder,
            keys,
            program,
        }
    }

    /// Starts it again with credentials of these users revoked.
    pub(crate) fn restart_without(&mut self, revoked: &BTreeMap<String, u64>) {
        self.program.kill();
        write_configuration(self.folder.path(), self.program.port, &self.keys, revoked);
        self.program.restart();
    }

    pub(crate) fn options(&self, name: &str, role: Role) -> Options {
        let name: Name = name.parse().expect("a name");
        let credentials = self.keys.enroll(&name, role, now());
        let file = self.folder.path().join(format!("{name}.creds"));
        fs::write(&file, credentials.text).expect("a file");
        Options {
            url: format!("nats://127.0.0.1:{}", self.program.port),
            credentials: Some(file),
            certificate_authority: None,
            name: name.to_string(),
        }
    }

    pub(crate) async fn connect(&self, name: &str, role: Role) -> Nats {
        Nats::connect_now(&self.options(name, role))
            .await
            .expect("the server answers")
    }
}

pub(crate) fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

fn write_configuration(folder: &Path, port: u16, keys: &Keys, revoked: &BTreeMap<String, u64>) -> PathBuf {
    let text = format!(
        "listen: \"127.0.0.1:{}\"\nserver_name: hub\nports_file_dir: \"{folder}\"\n\
         jetstream {{ store_dir: \"{folder}/store\" }}\n{}",
        if port == 0 {
            "-1".to_owned()
        } else {
            port.to_string()
        },
        keys.server_part(now(), revoked),
        folder = folder.display(),
    );
    let file = folder.join("server.conf");
    fs::write(&file, text).expect("a file");
    file
}

fn run(program: &Path, configuration: &Path) -> (Child, u16) {
    let folder = configuration.parent().expect("a file in a folder");
    let log = fs::File::create(folder.join("log")).expect("a file");
    let mut child = Command::new(program)
        .arg("--config")
        .arg(configuration)
        .envs(sqm_fleet::server::ENVIRONMENT)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the server starts");
    // The server writes this file once it listens.
    let name = program.file_name().expect("a program").to_string_lossy();
    let ports = folder.join(format!("{name}_{}.ports", child.id()));
    let begin = Instant::now();
    loop {
        let port = fs::read(&ports).ok().and_then(|text| {
            let ports: Value = serde_json::from_slice(&text).ok()?;
            ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
        });
        if let Some(port) = port {
            return (child, port);
        }
        let has_ended = child.try_wait().expect("our child").is_some();
        assert!(
            !has_ended && begin.elapsed() < Duration::from_secs(60),
            "the server does not listen: {}",
            fs::read_to_string(folder.join("log")).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
