//! A cluster of three servers of which one after the other is killed while the operator writes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use sqm_fleet::Name;

use super::hub::{Hub, block_on};
use super::servers::{Program, programs};

const ROUTERS: usize = 10;
/// Commands before a server is killed, and after.
const COMMANDS: usize = 4;
/// The longest wait for a server that is started again; a choice.
const PATIENCE: Duration = Duration::from_secs(120);

struct Cluster {
    hub: Hub,
    servers: Vec<Node>,
}

struct Node {
    url: String,
    monitor: String,
    program: Program,
}

impl Cluster {
    /// Starts a cluster as 'sqm fleet hub init --cluster' describes it, each server on a loopback address of its own.
    fn start(program: &Path) -> Self {
        // Several clusters may run at a time: each has addresses of its own.
        let network = format!("127.{}", free_network());
        let hosts = [1, 2, 3].map(|number| format!("{network}.{number}"));
        let [clients, routes, monitor] = [free_port(), free_port(), free_port()];
        let urls = hosts.clone().map(|host| format!("nats://{host}:{clients}"));
        let listen = format!("0.0.0.0:{clients}");
        let hub = Hub::init(&[
            "--url",
            &urls.join(","),
            "--cluster",
            &hosts.join(","),
            "--listen",
            &listen,
        ]);
        let servers = hosts.iter().zip(urls).map(|(host, url)| {
            let text = fs::read_to_string(hub.path().join(format!("server-{host}.conf")));
            let folder = hub.folder.path().join(host);
            fs::create_dir(&folder).expect("a folder");
            // All of them are on this machine.
            let text = text
                .expect("written by 'hub init'")
                .replace("0.0.0.0", host)
                .replace(":6222", &format!(":{routes}"))
                .replace("/store\"", &format!("/store-{host}\""));
            let monitor = format!("{host}:{monitor}");
            let text = format!(
                "ports_file_dir: \"{}\"\nhttp: \"{monitor}\"\n{text}",
                folder.display()
            );
            let file = folder.join("server.conf");
            fs::write(&file, text).expect("a file");
            Node {
                url,
                monitor,
                program: Program::start(program, &file),
            }
        });
        let servers = servers.collect();
        Self { hub, servers }
    }
}

fn free_network() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CLUSTERS: AtomicU32 = AtomicU32::new(0);
    let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed);
    // 127.64.0 and up; the process's number tells test programs apart that run at the same time.
    let number = (std::process::id() * 4 + cluster) % (128 * 256);
    format!("{}.{}", 64 + number / 256, number % 256)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl Node {
    /// Waits until the server has every value.
    fn wait_until_current(&self) {
        let begin = Instant::now();
        while !self.is_current() {
            assert!(begin.elapsed() < PATIENCE, "{} is not current", self.url);
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn is_current(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&self.monitor)?;
            stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains(" 200 "))
    }
}

/// The longest time between two commands that were acknowledged while a server is killed. Adds the documents to `written`.
fn kill_while_writing(cluster: &mut Cluster, victim: usize, next: &mut usize) -> Duration {
    let (acknowledged, acknowledgements) = mpsc::channel();
    let hub = &cluster.hub;
    let program = &mut cluster.servers[victim].program;
    let longest = thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut longest = Duration::ZERO;
            let mut last = Instant::now();
            for _ in 0..2 * COMMANDS {
                hub.run(&["set", &hub.configuration(*next), "--all"]);
                *next += 1;
                longest = longest.max(last.elapsed());
                last = Instant::now();
                acknowledged.send(()).expect("the test goes on");
            }
            longest
        });
        for _ in 0..COMMANDS {
            acknowledgements.recv().expect("the writer goes on");
        }
        // The next command has begun.
        program.kill();
        writer.join().expect("every command is acknowledged")
    });
    program.restart();
    cluster.servers.iter().for_each(Node::wait_until_current);
    longest
}

fn kill_each(program: &Path) {
    let mut cluster = Cluster::start(program);
    let routers: Vec<Name> = (0..ROUTERS)
        .map(|number| format!("r{number}").parse().expect("a name"))
        .collect();
    cluster.hub.enroll(&routers, "homes");
    let begin = 50_000;
    let mut next = begin;
    // One of them is the leader of the documents.
    for victim in 0..cluster.servers.len() {
        let longest = kill_while_writing(&mut cluster, victim, &mut next);
        println!(
            "{}: server {victim} killed: {:.1} s without an acknowledged command",
            program.display(),
            longest.as_secs_f64()
        );
    }
    for server in &cluster.servers {
        let hub = cluster.hub.with_url(&server.url);
        block_on(async {
            let store = hub.connect().await;
            for router in &routers {
                let documents = hub.documents(&store, router).await;
                let found: BTreeSet<String> = documents
                    .iter()
                    .map(|document| document.configuration.clone())
                    .collect();
                for download in begin..next {
                    let is_there = found.iter().any(|text| text.contains(&format!("'{download}'")));
                    assert!(is_there, "{router} on {}: {download}", server.url);
                }
                let last = &documents.last().expect("documents").configuration;
                assert!(last.contains(&format!("'{}'", next - 1)), "{router}: {last}");
            }
        });
    }
}

#[test]
fn a_cluster_of_debians_servers_loses_no_acknowledged_document_when_one_is_killed() {
    kill_each(&programs()[0]);
}

#[test]
fn a_cluster_of_current_servers_loses_no_acknowledged_document_when_one_is_killed() {
    kill_each(&programs()[1]);
}

#[test]
fn a_cluster_that_cannot_lose_a_server_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for hosts in ["a,b", "a,b,a", "a,b,c,d", "a:1,b,c"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_sqm"))
            .args(["fleet", "hub", "init"])
            .arg(folder.path().join("hub"))
            .args(["--url", "nats://a", "--cluster", hosts])
            .output()
            .expect("sqm starts");
        assert_eq!(output.status.code(), Some(2), "{hosts}");
        assert!(!folder.path().join("hub").exists(), "{hosts}");
    }
}
