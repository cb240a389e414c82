//! How long a new document takes to thousands of routers on one server, and what it costs.
//!
//! `cargo bench -p sqm-fleet --bench agents -- 5000` has five thousand routers, first on Debian's nats-server, then on a current one. All
//! routers are one thread of this process, and the operator another one.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use sqm_fleet::credentials::Role;
use sqm_fleet::signed::SigningKey;
use support::agents::{Agents, News, documents, routers};
use support::process::{Process, allow_many_files};
use support::{Server, programs};

/// Documents for every router, one after the other.
const REVISIONS: u64 = 3;

fn main() {
    let count = std::env::args().skip(1).find(|arg| arg != "--bench");
    let count = count.map_or(5000, |count| count.parse().expect("a number of routers"));
    allow_many_files();
    println!(
        "{count} routers, each with a document of its own of 4 KiB. Times in seconds, memory in MB (10^6 bytes).\n"
    );
    for program in programs() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(measure(program, count));
    }
}

async fn measure(program: &Path, count: usize) {
    println!("{}", version(program));
    println!(
        "{:<16} {:>8} {:>8} {:>9} {:>11} {:>11} {:>14}",
        "", "written", "all have", "reported", "CPU server", "CPU routers", "memory server"
    );
    let server = Server::start(program);
    let hub = server.connect("hub", Role::Operator).await;
    hub.make_buckets(1).await.expect("buckets");
    let key = SigningKey::generate();
    let routers = routers(&server, count);
    let mut agents = Agents::start(routers, &key.public());
    let costs = Costs::begin(&server);
    agents.all(News::Connected).await;
    costs.print("connected", ["-".into(), "-".into(), seconds(costs.begin)]);
    for revision in 1..=REVISIONS {
        // Signed before: an operator signs on another machine.
        let documents = documents(&key, count, revision);
        let costs = Costs::begin(&server);
        let writing = async {
            hub.put_all(documents).await.expect("written");
            seconds(costs.begin)
        };
        let having = async {
            agents.all(News::Has(revision)).await;
            seconds(costs.begin)
        };
        let (written, have) = tokio::join!(writing, having);
        agents.all(News::Reported(revision)).await;
        costs.print(
            &format!("document {revision}"),
            [written, have, seconds(costs.begin)],
        );
    }
    println!(
        "highest memory: server {} MB, this process {} MB\n",
        server.program.process().peak_memory() / 1_000_000,
        Process::own().peak_memory() / 1_000_000
    );
}

/// The processor time that both processes had taken at a moment.
struct Costs {
    server: Process,
    begin: Instant,
    server_s: f64,
    own_s: f64,
}

impl Costs {
    fn begin(server: &Server) -> Self {
        let server = server.program.process();
        Self {
            server,
            begin: Instant::now(),
            server_s: server.cpu_s(),
            own_s: Process::own().cpu_s(),
        }
    }

    fn print(&self, what: &str, [written, have, reported]: [String; 3]) {
        println!(
            "{what:<16} {written:>8} {have:>8} {reported:>9} {:>11.2} {:>11.2} {:>14}",
            self.server.cpu_s() - self.server_s,
            Process::own().cpu_s() - self.own_s,
            self.server.memory() / 1_000_000
        );
    }
}

fn seconds(since: Instant) -> String {
    format!("{:.2}", since.elapsed().as_secs_f64())
}

fn version(program: &Path) -> String {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .expect("it starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
