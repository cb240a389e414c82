//! The local API: HTTP/1.1 on a Unix socket, and the metrics alone on a loopback port, on a thread of their own.
//!
//! Everybody may read. What changes something needs root, the daemon's own user or the one of `--admin-user`, which the kernel names
//! (`SO_PEERCRED`); nobody has a password to lose. docs/reference/daemon.md says what can be asked.

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
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::socket_peercred;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::shared::Shared;
use routes::Peer;
pub(super) use routes::let_change;
use sqm_http::{Limits, Patient, Place, Places, SILENCE};
use sqm_process::descriptors;

/// For root and the daemon's own user, each. The page's server, which is one of them, needs less than half of it for all of
/// its visitors together.
const ADMINS: Limits = Limits {
    places: 320,
    places_each: 160,
    turns: 128,
    turns_each: 64,
};
/// For all other users. Each has one request at work at a time, and four listeners (`journal`).
const READERS: Limits = Limits {
    places: 64,
    places_each: 16,
    turns: 16,
    turns_each: 1,
};
/// For the metrics port, where the kernel names no user.
const METRICS: Limits = Limits {
    places: 16,
    places_each: 16,
    turns: 1,
    turns_each: 1,
};
/// Descriptors of everything else: netlink, files, children.
const OTHER_DESCRIPTORS: usize = 100;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// A request's head must be there within this; so must the next one's on a kept connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who takes nothing of an answer for so long is let go.
const UNTAKEN: Duration = Duration::from_secs(10);
/// Of a request's head, bytes.
const MOST_HEAD: usize = 16 * 1024;
/// Between two tries to accept a connection while the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to listen.
pub(super) struct Listeners {
    unix: UnixListener,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds both. The caller holds the daemon's lock: a socket that is there belongs to nobody.
    pub(super) fn bind(socket: &Path, metrics: Option<std::net::SocketAddr>) -> anyhow::Result<Self> {
        let needed = ADMINS.places + READERS.places + METRICS.places + OTHER_DESCRIPTORS;
        if let Err(warning) = descriptors::require(needed) {
            errln!("warning: {warning}");
        }
        clear(socket)?;
        let unix = UnixListener::bind(socket)
            .with_context(|| format!("cannot listen on the socket {}", socket.display()))?;
        rustix::net::listen(&unix, BACKLOG)?;
        // Who may do what is decided for each connection.
        fs::set_permissions(socket, Permissions::from_mode(0o666))?;
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
        Ok(Self { unix, metrics })
    }

    /// Serves until the process ends. Users' connections are accepted on a thread of their own: whoever waits to be accepted
    /// waits for nobody's request.
    pub(super) fn serve(self, shared: &Arc<Shared>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let told = Arc::clone(shared);
        thread("api", move || runtime.block_on(keep_streams(&told)))?;
        let door = || Door {
            shared: Arc::clone(shared),
            runtime: handle.clone(),
        };
        if let Some(metrics) = self.metrics {
            handle.spawn(door().accept_metrics(metrics));
        }
        let door = door();
        thread("api-socket", move || door.accept_users(&self.unix))
    }
}

async fn keep_streams(shared: &Shared) {
    loop {
        tokio::time::sleep(SILENCE).await;
        shared.journal.be_heard();
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map(drop)
}

/// Where connections come in.
struct Door {
    shared: Arc<Shared>,
    runtime: Handle,
}

impl Door {
    fn accept_users(&self, listener: &UnixListener) {
        let (admins, readers) = (Places::new(ADMINS), Places::new(READERS));
        loop {
            let Ok((stream, _)) = listener.accept() else {
                readers.make_room();
                std::thread::sleep(PAUSE);
                continue;
            };
            let user = socket_peercred(&stream).map(|credentials| credentials.uid.as_raw());
            let peer = Peer::of_user(user.ok());
            let places = if peer.is_admin() { &admins } else { &readers };
            self.admit(places, peer, move || {
                stream.set_nonblocking(true)?;
                tokio::net::UnixStream::from_std(stream)
            });
        }
    }

    async fn accept_metrics(self, listener: TcpListener) {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        let places = Places::new(METRICS);
        for accepted in 1.. {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(&places, Peer::Metrics, || Ok(stream)),
                Err(_) => {
                    places.make_room();
                    tokio::time::sleep(PAUSE).await;
                }
            }
            // All have the same owner. What they have sent is read before newer ones push them out.
            if accepted % (METRICS.places / 2) == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Serves a connection beside all others, if there is a place for it.
    fn admit<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        places: &Arc<Places<Option<u32>>>,
        peer: Peer,
        open: impl FnOnce() -> std::io::Result<S> + Send + 'static,
    ) {
        let makes_room = Arc::new(Notify::new());
        let Some(place) = places.enter(peer.user(), &makes_room) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let served = async move {
            if let Ok(stream) = open() {
                serve_one(stream, shared, peer, place).await;
            }
        };
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = makes_room.notified() => {}
                () = served => {}
            }
        });
    }
}

/// Removes a socket that a daemon before this one has left. What is something else is put aside.
fn clear(socket: &Path) -> anyhow::Result<()> {
    let kind = fs::symlink_metadata(socket).map(|found| found.file_type());
    match kind {
        Err(_) => {}
        Ok(kind) if kind.is_socket() => {
            sqm_files::remove(socket)?;
        }
        Ok(_) => {
            let aside = sqm_files::set_aside(socket)?;
            errln!(
                "{} was no socket, and is {} now",
                socket.display(),
                aside.display()
            );
        }
    }
    Ok(())
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    shared: Arc<Shared>,
    peer: Peer,
    place: Place<Option<u32>>,
) {
    let place = Arc::new(place);
    let service = service_fn(move |request| {
        let (shared, place) = (Arc::clone(&shared), Arc::clone(&place));
        async move {
            let _turn = place.turn().await;
            let mut answer = routes::answer(&shared, peer, request).await;
            answer.body_mut().hold(place.work());
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEAD)
        // One that says with FIN that it has asked all, as `nc -N` does, still listens.
        .half_close(true)
        .serve_connection(TokioIo::new(Patient::new(stream, UNTAKEN)), service);
    // A client that leaves is no error of ours.
    let _ = connection.await;
}
