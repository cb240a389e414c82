//! Connections of browsers: how many, how long, with TLS or without.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sqm_measure::tls::Certificate;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::guest::{Guest, MOST_PUSHED_OUT};
use super::{history, routes};
use crate::app_state::AppState;
use sqm_http::WriteTimeout;

/// Pauses in a second while newcomers push out others.
const HASTE: usize = 40;
/// Read ahead of a request, bytes: enough to know that there is one.
const AHEAD: usize = 64;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// A request's head must be there within this; so must the next one's on a kept connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// A TLS handshake must be done within this.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Of a request's head, bytes.
const MOST_HEAD: usize = 16 * 1024;
/// Who takes nothing of what is sent for so long is let go; so is one whose machine is gone (RFC 5482).
const UNTAKEN: Duration = Duration::from_secs(30);
/// Between two tries to accept a connection while the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until a signal ends it.
pub(super) async fn serve(
    site: Arc<AppState>,
    listener: std::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
) -> anyhow::Result<()> {
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    // Before anybody can know that it runs.
    let mut ended = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    errln!("sqm: the page is at {scheme}://{}/", listener.local_addr()?);
    tokio::spawn(history::remember(Arc::clone(&site)));
    let mut pushed_out = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.recv() => return Ok(()),
            _ = interrupted.recv() => return Ok(()),
        };
        match accepted {
            Ok((stream, from)) => {
                let evicted = Arc::new(Notify::new());
                let Some(guest) = site.rooms.arrive(from, &evicted) else {
                    continue;
                };
                pushed_out += usize::from(guest.has_pushed_out);
                let conversation = converse(Arc::clone(&site), acceptor.clone(), stream, guest);
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = evicted.notified() => {}
                        () = conversation => {}
                    }
                });
                // Otherwise those who come without end would push out everybody else before he has said anything.
                if pushed_out > MOST_PUSHED_OUT / HASTE {
                    pushed_out = 0;
                    tokio::time::sleep(Duration::from_secs(1) / HASTE as u32).await;
                }
            }
            Err(_) => {
                site.rooms.make_room();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The longest certificate or key that is read, in bytes; ours have less than one thousand.
const MAX_CERTIFICATE: u64 = 64 << 10;

/// TLS with a certificate that is made once and kept, so that browsers ask about it once.
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
        .with_context(|| format!("the certificate in {} is of no use", path.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn converse(site: Arc<AppState>, acceptor: Option<TlsAcceptor>, stream: TcpStream, guest: Guest) {
    let socket = socket2::SockRef::from(&stream);
    // A connection without these works, too.
    let _ = socket.set_tcp_user_timeout(Some(UNTAKEN));
    let _ = socket.set_tcp_nodelay(true);
    let stream = WriteTimeout::new(stream, UNTAKEN);
    match acceptor {
        None => listen(site, stream, guest).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                listen(site, stream, guest).await;
            }
        }
    }
}

/// Waits for the first words, and answers what is asked from then on.
async fn listen<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    site: Arc<AppState>,
    stream: S,
    guest: Guest,
) {
    let mut stream = BufReader::with_capacity(AHEAD, stream);
    let said = tokio::time::timeout(PATIENCE, stream.fill_buf()).await;
    let is_something = matches!(said, Ok(Ok(words)) if !words.is_empty());
    if is_something && guest.speaks(&site.rooms) {
        http(site, stream, guest).await;
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    site: Arc<AppState>,
    stream: S,
    guest: Guest,
) {
    let guest = Arc::new(guest);
    let service = service_fn(move |request| {
        let (site, guest) = (Arc::clone(&site), Arc::clone(&guest));
        async move { Ok::<_, Infallible>(routes::answer(&site, &guest, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // A browser that leaves is no error of ours.
    let _ = served.await;
}
