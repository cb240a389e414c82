//! `sqm web`: the page and its API (docs/openapi.yaml), for browsers.
//!
//! A process of its own without any privilege. What is to change it asks of `sqm daemon` over its Unix socket; what it
//! tells of queues it reads from the kernel, which anybody may. What takes long or much memory runs as a child.

mod assets;
mod audit;
mod compare;
mod compute;
mod config;
mod describe;
mod diagnose;
mod difference;
mod guard;
mod history;
mod live;
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

use crate::failure::Failure;
use audit::Audit;
use guard::Hosts;
use history::History;
use live::Watch;
use password::Password;
use runs::Runs;
use session::Sessions;
use status::Memory;
use upstream::Daemon;

/// What the server is told at its start.
pub(crate) struct Options {
    pub(crate) listen: SocketAddr,
    /// Names besides addresses and `localhost` under which browsers may ask.
    pub(crate) names: Vec<String>,
    /// The daemon's.
    pub(crate) socket: PathBuf,
    /// Where password, log of changes and results of tests are kept.
    pub(crate) dir: PathBuf,
    pub(crate) tls: bool,
}

/// Everything that requests share.
struct Site {
    hosts: Hosts,
    password: Password,
    sessions: Sessions,
    audit: Audit,
    daemon: Daemon,
    watch: Watch,
    memory: Memory,
    history: History,
    runs: Runs,
    /// Places for those who listen.
    streams: Arc<tokio::sync::Semaphore>,
    tls: bool,
    /// Only this machine reaches the server.
    is_local: bool,
}

/// Serves until the process ends.
pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    make_private(&options.dir)?;
    let password = Password::at(&options.dir);
    let is_local = options.listen.ip().is_loopback();
    if !is_local && !password.is_set() {
        return Err(Failure::Usage(anyhow!(
            "{} can be reached by others, and there is no password yet: 'sqm web --set-password{}' sets one",
            options.listen,
            dir_words(&options.dir)
        )));
    }
    let site = Arc::new(Site {
        hosts: Hosts::new(options.names),
        password,
        sessions: Sessions::new()?,
        audit: Audit::at(&options.dir),
        daemon: Daemon::at(options.socket),
        watch: Watch::new().context("cannot open a netlink socket")?,
        memory: Memory::default(),
        history: History::default(),
        runs: Runs::at(&options.dir)?,
        streams: routes::streams(),
        tls: options.tls,
        is_local,
    });
    // Below 1024 that is a privilege.
    let listener = std::net::TcpListener::bind(options.listen)
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    unprivileged::become_unprivileged()?;
    let acceptor = options.tls.then(|| server::acceptor(&options.dir)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(server::serve(site, listener, acceptor))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks for a password and keeps it; who is logged in is logged out.
pub(crate) fn set_password(dir: &Path) -> Result<ExitCode, Failure> {
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
    if dir == Path::new(crate::cli::web::DIR) {
        String::new()
    } else {
        format!(" --dir {}", dir.display())
    }
}
