//! `sqm web`: the page and its API (docs/openapi.yaml), for browsers.
//!
//! The server is a process of its own, without privileges and not of root. It asks `sqm daemon` for every change over the daemon's Unix
//! socket, and reads the counters of queues from the kernel, which any user may. Tests, searches and comparisons run as children, because they
//! take long or much memory.
#![forbid(unsafe_code)]
// Standard output may be closed or full: the macros of `sqm_process` can bear that.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod app_state;
mod assets;
mod audit;
mod compare;
mod compute;
mod config;
pub mod connector;
mod describe;
mod diagnose;
mod difference;
mod guard;
mod guest;
mod history;
mod live;
mod network;
mod password;
mod problem;
mod query;
mod routes;
mod runs;
mod server;
mod session;
mod start;
mod status;
mod tune;
mod unprivileged;
mod upstream;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};

use app_state::AppState;
use audit::Audit;
use connector::Connector;
use guest::Rooms;
use history::History;
use live::Watch;
use password::{Checker, Password};
use runs::Runs;
use session::Sessions;
use sqm_http::AllowedHosts;
use sqm_process::descriptors;
use sqm_process::failure::Failure;
use status::Memory;
use upstream::Daemon;

/// The server's command line.
pub struct Options {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Host names, besides addresses and `localhost`, under which browsers may ask.
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
/// Descriptors of everything but connections: netlink, files, children.
const OTHER_DESCRIPTORS: usize = 100;

/// Serves until the process ends.
pub fn run(options: Options) -> Result<ExitCode, Failure> {
    let user = unprivileged::user(options.user.as_deref())?;
    let socket = std::path::absolute(&options.socket).context("cannot tell where the socket is")?;
    let results = options.results.as_ref().map(std::path::absolute).transpose();
    let results = results.context("cannot tell where results are to be kept")?;
    for dir in [Some(&options.dir), results.as_ref()].into_iter().flatten() {
        make_private(dir)?;
        if let Some(user) = &user {
            unprivileged::hand_over(dir, user)?;
        }
    }
    let is_local = options.listen.ip().is_loopback();
    require_password(&options, &Password::at(&options.dir), is_local)?;
    // Below 1024 that is a privilege.
    let listener = std::net::TcpListener::bind(options.listen)
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    let connector = user.as_ref().map(|_| Connector::start(&socket)).transpose()?;
    // From here on it is found however little the user may look into the folders above.
    std::env::set_current_dir(&options.dir)
        .with_context(|| format!("cannot enter {}", options.dir.display()))?;
    unprivileged::become_unprivileged(user.as_ref())?;

    let dir = Path::new(".");
    // Errors name files from there on.
    let below = || format!("in the folder {}", options.dir.display());
    let password = Password::at(dir);
    // Once more as who we are now.
    require_password(&options, &password, is_local)?;
    let site = Arc::new(AppState {
        hosts: AllowedHosts::new(options.names),
        password,
        checker: Checker::start().context("cannot start a thread")?,
        sessions: Sessions::new()?,
        audit: Audit::at(dir),
        daemon: Daemon::at(socket, connector),
        watch: Watch::new().context("cannot open a netlink socket")?,
        memory: Memory::default(),
        history: History::default(),
        runs: Runs::at(&results.unwrap_or_else(|| dir.join("tests"))).with_context(below)?,
        rooms: Rooms::new(),
        tls: options.tls,
        is_local,
    });
    if let Err(warning) =
        descriptors::require(guest::MOST_CONNECTIONS + guest::MOST_UPSTREAM + OTHER_DESCRIPTORS)
    {
        errln!("warning: {warning}");
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
    runtime.block_on(server::serve(site, listener, acceptor))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to serve whoever reaches the address without a password, and with one that cannot be looked at.
fn require_password(options: &Options, password: &Password, is_local: bool) -> Result<(), Failure> {
    let set = password.hash().map_err(|error| {
        Failure::Usage(anyhow!(
            "the password in {} cannot be looked at, and nobody is let in without: {error:#}",
            options.dir.display()
        ))
    })?;
    if is_local || set.is_some() {
        return Ok(());
    }
    Err(Failure::Usage(anyhow!(
        "{} can be reached by others, and there is no password yet: 'sqm web --set-password{}' sets one",
        options.listen,
        dir_words(&options.dir)
    )))
}

/// What the body of `POST /config/check` makes of a file.
#[cfg(any(test, fuzzing))]
pub fn fuzz_forms(file: &str, body: &[u8]) -> Option<String> {
    let candidate = routes::decode(body).ok()?;
    config::fuzz(file, candidate).ok()
}

/// Asks for a password and keeps it; who is logged in is logged out.
pub fn set_password(dir: &Path) -> Result<ExitCode, Failure> {
    make_private(dir)?;
    password::set(dir)?;
    errln!("the password is set; whoever was logged in must log in again");
    Ok(ExitCode::SUCCESS)
}

/// Nobody else looks into it.
fn make_private(dir: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot make the folder {}", dir.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(context)?;
    let mode = fs::metadata(dir).with_context(context)?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(anyhow!(
            "others may write to {}: what is kept there could not be trusted",
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
