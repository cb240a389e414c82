//! Connections of browsers: how many, how long, with TLS or without.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sqm_measure::tls::Certificate;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::{Site, history, routes};

/// Connections at once. For one more the idlest makes room: a browser opens it again, and whoever only holds connections
/// open keeps nobody out.
const MOST_CONNECTIONS: usize = 256;
/// A request's head must be there within this; so must the next one's on a kept connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// A TLS handshake must be done within this.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Of a request's head, bytes.
const MOST_HEAD: usize = 16 * 1024;
/// Who does not take what is sent for so long is gone (RFC 5482).
const UNTAKEN: Duration = Duration::from_secs(30);

/// Serves until a signal ends it.
pub(super) async fn serve(
    site: Arc<Site>,
    listener: std::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    // Before anybody can know that it runs.
    let mut ended = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    errln!("sqm: the page is at {scheme}://{}/", listener.local_addr()?);
    tokio::spawn(history::remember(Arc::clone(&site)));
    let open = Arc::new(Open::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.recv() => return Ok(()),
            _ = interrupted.recv() => return Ok(()),
        };
        match accepted {
            Ok((stream, from)) => {
                let Some(connection) = open.enter() else { continue };
                tokio::spawn(converse(
                    Arc::clone(&site),
                    acceptor.clone(),
                    stream,
                    from,
                    connection,
                ));
            }
            // Too many open files, most likely: some will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
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

async fn converse(
    site: Arc<Site>,
    acceptor: Option<TlsAcceptor>,
    stream: TcpStream,
    from: SocketAddr,
    connection: Connection,
) {
    let socket = socket2::SockRef::from(&stream);
    // A connection without these works, too.
    let _ = socket.set_tcp_user_timeout(Some(UNTAKEN));
    let _ = socket.set_tcp_nodelay(true);
    let talk = async {
        match acceptor {
            None => http(site, stream, from, &connection).await,
            Some(acceptor) => {
                if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    http(site, stream, from, &connection).await;
                }
            }
        }
    };
    tokio::select! {
        () = talk => {}
        () = connection.entry.makes_room.notified() => {}
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    site: Arc<Site>,
    stream: S,
    from: SocketAddr,
    connection: &Connection,
) {
    let service = service_fn(|request| {
        let site = Arc::clone(&site);
        let _busy = connection.busy();
        async move {
            let _busy = _busy;
            Ok::<_, Infallible>(routes::answer(&site, from, request).await)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // A browser that leaves is no error of ours.
    let _ = served.await;
}

/// All connections.
#[derive(Default)]
struct Open(Mutex<Vec<Arc<Entry>>>);

struct Entry {
    /// Requests that are being answered.
    busy: AtomicUsize,
    /// When it began, or was answered last.
    since: Mutex<Instant>,
    makes_room: Notify,
}

/// One connection, which is forgotten with this.
struct Connection {
    entry: Arc<Entry>,
    open: Arc<Open>,
}

impl Open {
    /// A place for a new connection; none if all are busy.
    fn enter(self: &Arc<Self>) -> Option<Connection> {
        let mut all = self.lock();
        if all.len() >= MOST_CONNECTIONS {
            let since = |entry: &Arc<Entry>| *entry.since.lock().expect("no holder of this lock panics");
            let idlest = (0..all.len())
                .filter(|at| all[*at].busy.load(Ordering::Relaxed) == 0)
                .min_by_key(|at| since(&all[*at]))?;
            all.swap_remove(idlest).makes_room.notify_one();
        }
        let entry = Arc::new(Entry {
            busy: AtomicUsize::new(0),
            since: Mutex::new(Instant::now()),
            makes_room: Notify::new(),
        });
        all.push(Arc::clone(&entry));
        drop(all);
        Some(Connection {
            entry,
            open: Arc::clone(self),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Entry>>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

impl Connection {
    /// Busy until the answer is dropped.
    fn busy(&self) -> Busy {
        self.entry.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(&self.entry))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let entry = &self.entry;
        self.open.lock().retain(|other| !Arc::ptr_eq(other, entry));
    }
}

struct Busy(Arc<Entry>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        *self.0.since.lock().expect("no holder of this lock panics") = Instant::now();
    }
}
