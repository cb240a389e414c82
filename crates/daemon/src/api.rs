//! The local API: HTTP/1.1 on a Unix socket, and the metrics also on a loopback port. It has threads of its own.
//!
//! Every local user may read. Only root, the daemon's own user and the user of `--admin-user` may change something; the
//! kernel names the user of a connection (`SO_PEERCRED`), so there is no password. docs/reference/daemon.md lists the
//! requests.

mod helpers;
mod routes;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::net::sockopt::socket_peercred;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::shared::Shared;
use routes::Peer;
pub(super) use routes::set_admin;
use sqm_http::{
    ACCEPT_RETRY, BACKLOG, ConnectionSlot, ConnectionTable, KEEP_ALIVE_INTERVAL, Limits, Server, Stream,
    WriteTimeout,
};
use sqm_process::descriptors;
use tracing::warn;

/// For users who may change something. The limits for each client are a choice: the page's server connects as one of these
/// users, needs less than half of the connections and requests for all of its visitors together, and opens at most 48 streams.
const ADMINS: Limits = Limits {
    connections: 320,
    connections_per_client: 160,
    requests: 128,
    requests_per_client: 64,
    streams: 190,
    streams_per_client: 64,
};
/// For all other users: one request at a time for each. A choice.
const READERS: Limits = Limits {
    connections: 64,
    connections_per_client: 16,
    requests: 16,
    requests_per_client: 1,
    streams: 16,
    streams_per_client: 4,
};
/// For the metrics port, where the kernel names no user and all connections count as one client. A choice.
const METRICS: Limits = Limits {
    connections: 16,
    connections_per_client: 16,
    requests: 1,
    requests_per_client: 1,
    streams: 0,
    streams_per_client: 0,
};
const _: () = assert!(ADMINS.leave_some_idle() && READERS.leave_some_idle() && METRICS.leave_some_idle());
/// File descriptors for everything else (netlink sockets, files, children); an upper estimate.
const OTHER_DESCRIPTORS: usize = 100;
/// The time for a request's head is a choice.
const SERVER: Server = Server {
    head_timeout: Duration::from_secs(10),
    half_close: true,
};
/// A connection is closed when its client has read nothing of a response for this long; a choice.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The sockets on which the API listens.
pub(super) struct Listeners {
    unix: UnixListener,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds the sockets. The caller holds the daemon's lock, so a socket that exists belongs to no running daemon.
    pub(super) fn bind(socket: &Path, metrics: Option<std::net::SocketAddr>) -> anyhow::Result<Self> {
        let needed = ADMINS.connections + READERS.connections + METRICS.connections + OTHER_DESCRIPTORS;
        if let Err(warning) = descriptors::require(needed) {
            warn!("{warning}");
        }
        let metrics = match metrics {
            None => None,
            Some(address) => {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("cannot serve metrics on {address}"))?;
                rustix::net::listen(&listener, BACKLOG)?;
                listener.set_nonblocking(true)?;
                Some(listener)
            }
        };
        // The socket comes last: whoever has waited for it finds the metrics port open.
        clear(socket)?;
        let unix = UnixListener::bind(socket)
            .with_context(|| format!("cannot listen on the socket {}", socket.display()))?;
        rustix::net::listen(&unix, BACKLOG)?;
        // Every user may connect; `routes` decides for each connection which requests are allowed.
        fs::set_permissions(socket, Permissions::from_mode(0o666))?;
        Ok(Self { unix, metrics })
    }

    /// Serves until the process ends. A separate thread accepts the connections of users, so that no connection waits for a
    /// request of another one before it is accepted.
    pub(super) fn serve(self, shared: &Arc<Shared>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let kept = Arc::clone(shared);
        thread("api", move || runtime.block_on(keep_streams_alive(&kept)))?;
        let acceptor = || Acceptor {
            shared: Arc::clone(shared),
            runtime: handle.clone(),
        };
        if let Some(metrics) = self.metrics {
            handle.spawn(acceptor().accept_metrics(metrics));
        }
        let acceptor = acceptor();
        thread("api-socket", move || acceptor.accept_users(&self.unix))
    }
}

async fn keep_streams_alive(shared: &Shared) {
    loop {
        tokio::time::sleep(KEEP_ALIVE_INTERVAL).await;
        shared.journal.keep_alive();
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map(drop)
}

/// Opens an accepted connection. It is called in the runtime.
type Open = Box<dyn FnOnce() -> std::io::Result<Box<dyn Stream>> + Send>;

/// Accepts connections and starts a task for each of them.
struct Acceptor {
    shared: Arc<Shared>,
    runtime: Handle,
}

impl Acceptor {
    fn accept_users(&self, listener: &UnixListener) {
        let (admins, readers) = (ConnectionTable::new(ADMINS), ConnectionTable::new(READERS));
        loop {
            let Ok((stream, _)) = listener.accept() else {
                readers.evict_idle();
                std::thread::sleep(ACCEPT_RETRY);
                continue;
            };
            let user = socket_peercred(&stream).map(|credentials| credentials.uid.as_raw());
            let peer = Peer::of_user(user.ok());
            let table = if peer.is_admin() { &admins } else { &readers };
            let open = move || -> std::io::Result<Box<dyn Stream>> {
                stream.set_nonblocking(true)?;
                Ok(Box::new(tokio::net::UnixStream::from_std(stream)?))
            };
            self.admit(table, peer, Box::new(open));
        }
    }

    async fn accept_metrics(self, listener: TcpListener) {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        let table = ConnectionTable::new(METRICS);
        for accepted in 1.. {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(&table, Peer::Metrics, Box::new(|| Ok(Box::new(stream)))),
                Err(_) => {
                    table.evict_idle();
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
            // All connections count as one client: let their tasks read what has arrived before newer ones evict them.
            if accepted % (METRICS.connections / 2) == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Starts a task that serves the connection, unless `table` admits no more connections.
    fn admit(&self, table: &Arc<ConnectionTable<Option<u32>>>, peer: Peer, open: Open) {
        let evicted = Arc::new(Notify::new());
        let Some(slot) = table.admit(peer.user(), &evicted) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let served = async move {
            if let Ok(stream) = open() {
                serve_one(stream, shared, peer, slot).await;
            }
        };
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = evicted.notified() => {}
                () = served => {}
            }
        });
    }
}

/// Removes the socket of an earlier daemon. Any other file at this path is renamed, not removed.
fn clear(socket: &Path) -> anyhow::Result<()> {
    let kind = fs::symlink_metadata(socket).map(|found| found.file_type());
    match kind {
        Err(_) => {}
        Ok(kind) if kind.is_socket() => {
            sqm_files::remove(socket)?;
        }
        Ok(_) => {
            let aside = sqm_files::set_aside(socket)?;
            warn!(
                "{} was not a socket and has been renamed to {}",
                socket.display(),
                aside.display()
            );
        }
    }
    Ok(())
}

async fn serve_one(
    stream: Box<dyn Stream>,
    shared: Arc<Shared>,
    peer: Peer,
    slot: ConnectionSlot<Option<u32>>,
) {
    let slot = Arc::new(slot);
    let stream = WriteTimeout::new(stream, WRITE_TIMEOUT);
    let answer = |request| {
        let (shared, slot) = (Arc::clone(&shared), Arc::clone(&slot));
        async move {
            let _permit = slot.request_permit().await;
            routes::answer(&shared, peer, &slot, request).await
        }
    };
    SERVER.serve(stream, answer).await;
}
