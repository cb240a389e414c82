//! Accepts the connections of browsers, with or without TLS, within limits of number and time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sqm_measure::tls::Certificate;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::connection::{ClientConnection, MOST_EVICTIONS};
use super::{compare, handler, sampling};
use crate::app_state::{Front, Page};
use tracing::info;

use sqm_http::{ACCEPT_RETRY, BACKLOG, Server, Stream, WriteTimeout};

/// Pauses per second while new connections evict others. Our choice.
const HASTE: usize = 40;
/// The size of the buffer that waits for the first bytes of a request.
const AHEAD: usize = 64;
/// The time limit for the first bytes of a connection, and for the head of a request. Our choice.
const PATIENCE: Duration = Duration::from_secs(30);
const SERVER: Server = Server {
    head_timeout: PATIENCE,
    half_close: false,
};
/// The time limit of a TLS handshake. Our choice.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection whose peer accepts or acknowledges no data for this long is closed (TCP user timeout, RFC 5482). Our choice.
const UNTAKEN: Duration = Duration::from_secs(30);

/// Serves until a signal ends it.
pub(super) async fn serve(
    front: Arc<Front>,
    listener: std::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
) -> anyhow::Result<()> {
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    // Signals are handled before the message below says that the server runs.
    let mut ended = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    info!("sqm: the page is at {scheme}://{}/", listener.local_addr()?);
    if let Page::Router(state) = &front.page {
        tokio::spawn(sampling::remember(Arc::clone(state)));
        tokio::spawn(compare::judge_again(Arc::clone(state)));
    }
    let mut evictions = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.recv() => return Ok(()),
            _ = interrupted.recv() => return Ok(()),
        };
        match accepted {
            Ok((stream, from)) => {
                let evicted = Arc::new(Notify::new());
                let Some(connection) = front.pools.arrive(from, &evicted) else {
                    continue;
                };
                evictions += usize::from(connection.has_evicted);
                let conversation = converse(Arc::clone(&front), acceptor.clone(), stream, connection);
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = evicted.notified() => {}
                        () = conversation => {}
                    }
                });
                // Without pauses, a flood of new connections would evict all others before they can send a request.
                if evictions > MOST_EVICTIONS / HASTE {
                    evictions = 0;
                    tokio::time::sleep(Duration::from_secs(1) / HASTE as u32).await;
                }
            }
            Err(_) => {
                front.pools.make_room();
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// The largest certificate or key that is read, in bytes; ours have less than 1000.
const MAX_CERTIFICATE: u64 = 64 << 10;

/// TLS with a self-signed certificate that is created once and kept, so that browsers ask about it only once.
pub(super) fn acceptor(dir: &Path) -> anyhow::Result<TlsAcceptor> {
    let path = dir.join("certificate.der");
    let key_path = dir.join("key.der");
    let read = |path| sqm_files::read_if_there(path, MAX_CERTIFICATE);
    let certificate = match read(&path)?.zip(read(&key_path)?) {
        Some((certificate, key)) => Certificate::of(certificate, key),
        None => {
            let made = Certificate::self_signed()?;
            sqm_files::replace(&key_path, 0o600, made.key())?;
            sqm_files::replace(&path, 0o600, made.certificate())?;
            made
        }
    };
    let config = certificate
        .server(&[b"http/1.1"])
        .with_context(|| format!("the certificate in {} cannot be used", path.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves a connection until it ends.
async fn converse(
    front: Arc<Front>,
    acceptor: Option<TlsAcceptor>,
    stream: TcpStream,
    connection: ClientConnection,
) {
    let socket = socket2::SockRef::from(&stream);
    // These options are not essential.
    let _ = socket.set_tcp_user_timeout(Some(UNTAKEN));
    let _ = socket.set_tcp_nodelay(true);
    let stream = WriteTimeout::new(stream, UNTAKEN);
    match acceptor {
        None => listen(front, Box::new(stream), connection).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                listen(front, Box::new(stream), connection).await;
            }
        }
    }
}

/// Waits for the first bytes, and serves requests from then on.
async fn listen(front: Arc<Front>, stream: Box<dyn Stream>, connection: ClientConnection) {
    let mut stream = BufReader::with_capacity(AHEAD, stream);
    let received = tokio::time::timeout(PATIENCE, stream.fill_buf()).await;
    let has_begun = matches!(received, Ok(Ok(bytes)) if !bytes.is_empty());
    if has_begun && connection.begin_requests(&front.pools) {
        SERVER
            .serve(stream, |request| handler::answer(&front, &connection, request))
            .await;
    }
}
