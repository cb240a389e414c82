//! `sqm web`: the page and its API (docs/openapi.yaml), for browsers. `sqm fleet web` serves a fleet's page with the same code ([`hub`]).
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
pub mod hub;
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

use app_state::{AppState, Front, Page};
use audit::Audit;
use connection::ConnectionPools;
use connector::Connector;
use history::History;
use hub::{Hub, Questions};
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

/// The part of the command line that both servers have.
pub struct Options {
    /// The address that the server listens on.
    pub listen: SocketAddr,
    /// Host names, besides addresses and `localhost`, that requests may name.
    pub names: Vec<String>,
    /// The folder of the password, the audit log, the certificate and, on a router, the results of tests.
    pub dir: PathBuf,
    /// HTTPS instead of HTTP.
    pub tls: bool,
}

/// The page that the server has.
pub enum Server {
    /// A router's: `sqm web`.
    Router(Router),
    /// A fleet's: `sqm fleet web`. The function answers questions on a thread of its own, until there are no more.
    Hub(Box<dyn FnOnce(Questions) + Send>),
}

/// The command line of a router's server.
pub struct Router {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Another folder for the results.
    pub results: Option<PathBuf>,
    /// The user that the server becomes if root started it.
    pub user: Option<String>,
}

/// The folder of a server that runs as a service.
pub const DIR: &str = "/var/lib/sqm-web";
/// File descriptors for everything but connections: netlink, files, children. Our choice.
const OTHER_DESCRIPTORS: usize = 100;

/// Serves until the process ends.
pub fn run(options: Options, server: Server) -> Result<ExitCode, Failure> {
    let (user, results) = match &server {
        Server::Router(router) => (
            drop_privileges::user(router.user.as_deref())?,
            router.results.as_ref(),
        ),
        // It keeps its user, who owns the fleet's folder.
        Server::Hub(_) => (None, None),
    };
    let results = results.map(std::path::absolute).transpose();
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
    let command = match &server {
        Server::Router(_) => format!("sqm web --set-password{}", dir_words(&options.dir)),
        Server::Hub(_) => "sqm fleet web --set-password".to_owned(),
    };
    require_password(&options, &Password::at(&options.dir), is_local, &command)?;
    // A port below 1024 needs a privilege.
    let listener = std::net::TcpListener::bind(options.listen)
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    let daemon = match &server {
        Server::Router(router) => Some(daemon_client(router, user.is_some())?),
        Server::Hub(_) => None,
    };
    // As the working directory, the folder is reachable even if the user may not read the folders above it.
    std::env::set_current_dir(&options.dir)
        .with_context(|| format!("cannot enter {}", options.dir.display()))?;
    drop_privileges::drop_privileges(user.as_ref())?;

    let dir = Path::new(".");
    // Errors name files relative to the folder.
    let below = || format!("in the folder {}", options.dir.display());
    let password = Password::at(dir);
    // Check again as the unprivileged user.
    require_password(&options, &password, is_local, &command)?;
    let page = match (server, daemon) {
        (Server::Hub(answer), _) => Page::Hub(Hub::start(answer).context("cannot start a thread")?),
        (Server::Router(_), daemon) => Page::Router(Arc::new(AppState {
            daemon: daemon.expect("made above"),
            counters: CounterReader::new().context("cannot open a netlink socket")?,
            interfaces: InterfaceCache::default(),
            history: History::default(),
            test_jobs: TestJobs::at(&results.unwrap_or_else(|| dir.join("tests"))).with_context(below)?,
        })),
    };
    let front = Arc::new(Front {
        hosts: AllowedHosts::new(options.names),
        password,
        checker: Checker::start().context("cannot start a thread")?,
        sessions: Sessions::new()?,
        audit: Audit::at(dir),
        pools: ConnectionPools::new(),
        tls: options.tls,
        is_local,
        page,
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
    runtime.block_on(server::serve(front, listener, acceptor))?;
    Ok(ExitCode::SUCCESS)
}

/// The client of the daemon. If root started this server, root's process makes its connections.
fn daemon_client(router: &Router, is_root: bool) -> anyhow::Result<sqm_api::Client> {
    let socket = std::path::absolute(&router.socket).context("cannot resolve the path of the socket")?;
    if !is_root {
        return Ok(sqm_api::Client::new(&socket));
    }
    let connector = Connector::start(&socket)?;
    Ok(sqm_api::Client::with_connections(
        &socket,
        Arc::new(move || connector.connect()),
    ))
}

/// Refuses to serve other machines without a password, or anybody with a password that cannot be read. `command` sets one.
fn require_password(
    options: &Options,
    password: &Password,
    is_local: bool,
    command: &str,
) -> Result<(), Failure> {
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
        "other machines can reach {}, and no password is set: set one with '{command}'",
        options.listen
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
