//! `sqm web`: the page and its API (docs/openapi.yaml), for browsers.
//!
//! The server is a process of its own, without privileges and not of root. It asks `sqm daemon` for every change over the daemon's Unix
//! socket, and reads the counters of queues from the kernel, which any user may. Tests, searches and comparisons run as children, because they
//! take long or much memory.
#![forbid(unsafe_code)]
// The print macros of the standard library panic when standard output is closed or full; those of `sqm_process` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod answers;
mod app_state;
mod assets;
mod audit;
mod body;
mod compare;
mod compute;
mod config;
mod connection;
pub mod connector;
mod diagnose;
mod difference;
mod drop_privileges;
mod finding;
mod guard;
mod handler;
mod history;
mod interfaces;
mod line_rates;
mod live;
mod metadata;
mod network;
mod password;
mod principal;
mod problem;
mod query;
mod routes;
mod sampling;
mod server;
mod session;
mod status;
mod test_jobs;
mod test_request;
mod test_run;
mod tune;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};

use app_state::AppState;
use audit::Audit;
use connection::ConnectionPools;
use connector::Connector;
use history::History;
use interfaces::InterfaceCache;
use live::CounterReader;
pub use password::NewPassword;
use password::{Checker, Password};
use session::Sessions;
use sqm_http::AllowedHosts;
use sqm_process::descriptors;
use sqm_process::failure::Failure;
use test_jobs::TestJobs;
use tracing::warn;

/// The server's command line.
pub struct Options {
    /// The address that the server listens on.
    pub listen: SocketAddr,
    /// Host names, besides addresses and `localhost`, that requests may name.
    pub names: Vec<String>,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The folder of the password, the audit log, the certificate and the results of tests.
    pub dir: PathBuf,
    /// Another folder for the results.
    pub results: Option<PathBuf>,
    /// The user that the server becomes if root started it.
    pub user: Option<String>,
    /// HTTPS instead of HTTP.
    pub tls: bool,
}

/// The folder of a server that runs as a service.
pub const DIR: &str = "/var/lib/sqm-web";
/// File descriptors for everything but connections: netlink, files, children. Our choice.
const OTHER_DESCRIPTORS: usize = 100;

/// Serves until the process ends.
pub fn run(options: Options) -> Result<ExitCode, Failure> {
    let user = drop_privileges::user(options.user.as_deref())?;
    let socket = std::path::absolute(&options.socket).context("cannot resolve the path of the socket")?;
    let results = options.results.as_ref().map(std::path::absolute).transpose();
    let results = results.context("cannot resolve the path of the results")?;
    let dirs = [(Some(&options.dir), "--dir"), (results.as_ref(), "--results")];
    for (dir, flag) in dirs {
        let Some(dir) = dir else { continue };
        make_private(dir).map_err(|error| anyhow!("{error:#}; {flag} names another folder"))?;
        if let Some(user) = &user {
            drop_privileges::hand_over(dir, user)?;
        }
    }
    let is_local = options.listen.ip().is_loopback();
    require_password(&options, &Password::at(&options.dir), is_local)?;
    // A port below 1024 needs a privilege.
    let listener = std::net::TcpListener::bind(options.listen)
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    let connector = user.as_ref().map(|_| Connector::start(&socket)).transpose()?;
    // As the working directory, the folder is reachable even if the user may not read the folders above it.
    std::env::set_current_dir(&options.dir)
        .with_context(|| format!("cannot enter {}", options.dir.display()))?;
    drop_privileges::drop_privileges(user.as_ref())?;

    let dir = Path::new(".");
    // Errors name files relative to the folder.
    let below = || format!("in the folder {}", options.dir.display());
    let password = Password::at(dir);
    // Check again as the unprivileged user.
    require_password(&options, &password, is_local)?;
    let state = Arc::new(AppState {
        hosts: AllowedHosts::new(options.names),
        password,
        checker: Checker::start().context("cannot start a thread")?,
        sessions: Sessions::new()?,
        audit: Audit::at(dir),
        daemon: daemon_client(&socket, connector),
        counters: CounterReader::new().context("cannot open a netlink socket")?,
        interfaces: InterfaceCache::default(),
        history: History::default(),
        test_jobs: TestJobs::at(&results.unwrap_or_else(|| dir.join("tests"))).with_context(below)?,
        pools: ConnectionPools::new(),
        tls: options.tls,
        is_local,
    });
    if let Err(warning) =
        descriptors::require(connection::MOST_CONNECTIONS + connection::MOST_UPSTREAM + OTHER_DESCRIPTORS)
    {
        warn!("{warning}");
    }
    let acceptor = options
        .tls
        .then(|| server::acceptor(dir))
        .transpose()
        .with_context(below)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(server::serve(state, listener, acceptor))?;
    Ok(ExitCode::SUCCESS)
}

/// The client of the daemon. If root started this server, root's process makes its connections.
fn daemon_client(socket: &Path, connector: Option<Connector>) -> sqm_api::Client {
    match connector {
        None => sqm_api::Client::new(socket),
        Some(connector) => sqm_api::Client::with_connections(socket, Arc::new(move || connector.connect())),
    }
}

/// Refuses to serve other machines without a password, or anybody with a password that cannot be read.
fn require_password(options: &Options, password: &Password, is_local: bool) -> Result<(), Failure> {
    let set = password.hash().map_err(|error| {
        Failure::Usage(anyhow!(
            "cannot read the password in {}, so nobody could log in: {error:#}",
            options.dir.display()
        ))
    })?;
    if is_local || set.is_some() {
        return Ok(());
    }
    Err(Failure::Usage(anyhow!(
        "other machines can reach {}, and no password is set: set one with 'sqm web --set-password{}'",
        options.listen,
        dir_words(&options.dir)
    )))
}

/// For fuzzing: applies the body of `POST /config/check` to a configuration.
#[cfg(any(test, fuzzing))]
pub fn fuzz_forms(file: &str, text: &[u8]) -> Option<String> {
    let candidate = body::decode(text).ok()?;
    config::fuzz(file, candidate).ok()
}

/// Reads a password and saves it. All sessions end.
pub fn set_password(dir: &Path) -> Result<ExitCode, Failure> {
    make_private(dir)?;
    NewPassword::ask()?.save(dir)?;
    errln!("the password is set; all users must log in again");
    Ok(ExitCode::SUCCESS)
}

/// True if the server in this folder has a password.
pub fn has_password(dir: &Path) -> bool {
    Password::at(dir).hash().is_ok_and(|hash| hash.is_some())
}

/// Creates a folder that only its owner can read.
fn make_private(dir: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot create the folder {}", dir.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(context)?;
    let mode = fs::metadata(dir).with_context(context)?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(anyhow!(
            "other users can write to {}, so its files cannot be trusted",
            dir.display()
        ));
    }
    Ok(())
}

fn dir_words(dir: &Path) -> String {
    if dir == Path::new(DIR) {
        String::new()
    } else {
        format!(" --dir {}", dir.display())
    }
}
