//! The local API: HTTP/1.1 on a Unix socket, and the metrics alone on a loopback port, on a thread of their own.
//!
//! Everybody may read. What changes something needs root, the daemon's own user or the one of `--admin-user`, which the kernel names
//! (`SO_PEERCRED`); nobody has a password to lose. docs/daemon.md says what can be asked.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use super::shared::Shared;
use routes::Peer;
pub(super) use routes::let_change;

/// More connections wait until one ends.
const MOST_CONNECTIONS: usize = 32;
/// A request's head must be there within this; so must the next one's on a kept connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a request's head, bytes.
const MOST_HEAD: usize = 16 * 1024;

/// Where to listen.
pub(super) struct Listeners {
    unix: UnixListener,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds both. The caller holds the daemon's lock: a socket that is there belongs to nobody.
    pub(super) fn bind(socket: &Path, metrics: Option<std::net::SocketAddr>) -> anyhow::Result<Self> {
        clear(socket)?;
        let unix = UnixListener::bind(socket)
            .with_context(|| format!("cannot listen on the socket {}", socket.display()))?;
        // Who may do what is decided for each connection.
        fs::set_permissions(socket, Permissions::from_mode(0o666))?;
        unix.set_nonblocking(true)?;
        let metrics = match metrics {
            None => None,
            Some(address) => {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("cannot serve metrics on {address}"))?;
                listener.set_nonblocking(true)?;
                Some(listener)
            }
        };
        Ok(Self { unix, metrics })
    }

    /// Serves until the process ends.
    pub(super) fn serve(self, shared: Arc<Shared>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("api".to_owned())
            .spawn(move || runtime.block_on(self.accept(shared)))?;
        Ok(())
    }

    async fn accept(self, shared: Arc<Shared>) {
        let Ok(unix) = tokio::net::UnixListener::from_std(self.unix) else {
            return;
        };
        let tcp = self
            .metrics
            .and_then(|listener| tokio::net::TcpListener::from_std(listener).ok());
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        if let Some(tcp) = tcp {
            let (shared, places) = (Arc::clone(&shared), Arc::clone(&places));
            tokio::spawn(async move {
                loop {
                    let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                        return;
                    };
                    match tcp.accept().await {
                        Ok((stream, _)) => {
                            let shared = Arc::clone(&shared);
                            tokio::spawn(async move {
                                serve_one(stream, shared, Peer::Metrics).await;
                                drop(place);
                            });
                        }
                        Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                    }
                }
            });
        }
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match unix.accept().await {
                Ok((stream, _)) => {
                    let user = stream.peer_cred().map(|credentials| credentials.uid()).ok();
                    let peer = Peer::of_user(user);
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move {
                        serve_one(stream, shared, peer).await;
                        drop(place);
                    });
                }
                // Too many open files, most likely: some will be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
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
) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(routes::answer(&shared, peer, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEAD)
        // One that says with FIN that it has asked all, as `nc -N` does, still listens.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    // A client that leaves is no error of ours.
    let _ = connection.await;
}
