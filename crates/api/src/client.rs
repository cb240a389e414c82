//! The client of the API: HTTP/1.1 on the daemon's Unix socket, a connection for each request.

use std::io;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::SOCKET;
use crate::configuration::{Apply, ConfigurationFile, Configure, Configured};
use crate::doctor::{Diagnosis, Doctor};
use crate::error::Errors;
use crate::pause::Pause;
use crate::route::Route;
use crate::status::Status;
use crate::tune::{Search, StartTune};

/// The time limit of a request. The daemon itself waits 30 s for its main loop and 60 s for a child.
const TIMEOUT: Duration = Duration::from_secs(70);
/// The largest answer that is read, bytes; a choice, far above any real one.
const MAX_ANSWER: usize = 8 << 20;

/// Opens a connection to the daemon. It may block.
pub type Connect = dyn Fn() -> io::Result<net::UnixStream> + Send + Sync;

/// The client of a daemon.
pub struct Client {
    socket: PathBuf,
    connect: Option<Arc<Connect>>,
}

/// A pause. It ends when this is dropped, because that closes the connection.
#[derive(Debug)]
pub struct Paused {
    /// The open answer.
    _events: Incoming,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no daemon at the socket, or it broke the connection.
    #[error("the daemon does not respond: is 'sqm daemon' running? {0}")]
    Absent(String),
    /// The daemon is stuck, or overloaded.
    #[error("the daemon does not respond")]
    TimedOut,
    /// The daemon answers with an error.
    #[error("{}", message(*.0, .1))]
    Refused(StatusCode, Errors),
    /// The answer has another form than this program expects.
    #[error("unexpected answer of the daemon; does it have the same version? {0}")]
    Unexpected(serde_json::Error),
}

impl Client {
    /// A client of the daemon at this socket.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            connect: None,
        }
    }

    /// A client whose connections another part of the program opens, such as a process with more privileges.
    pub fn with_connections(socket: &Path, connect: Arc<Connect>) -> Self {
        Self {
            socket: socket.to_owned(),
            connect: Some(connect),
        }
    }

    /// The status with the kernel's queues and the state of autorate.
    pub async fn status(&self) -> Result<Status, Error> {
        self.ask(Route::Status, "").await
    }

    /// The status without queues and autorate, which costs the daemon little.
    pub async fn status_without_queues(&self) -> Result<Status, Error> {
        self.ask(Route::Status, "?queues=no").await
    }

    /// Applies the configuration, or one interface of it.
    pub async fn apply(&self, apply: &Apply) -> Result<Status, Error> {
        self.send(Route::Apply, apply).await
    }

    /// Pauses the shaping of an interface, until the answer is dropped.
    pub async fn pause(&self, pause: &Pause) -> Result<Paused, Error> {
        // Serializing plain data with strings as keys cannot fail.
        let body = serde_json::to_vec(pause).unwrap_or_default();
        let (_, path) = Route::Pause.request();
        let answered = async {
            let answer = self.request(Route::Pause, path, body.into()).await?;
            match answer.status() {
                StatusCode::OK => Ok(Paused {
                    _events: answer.into_body(),
                }),
                status => Err(refused(status, &read(answer).await?)),
            }
        };
        tokio::time::timeout(TIMEOUT, answered)
            .await
            .unwrap_or(Err(Error::TimedOut))
    }

    /// The configuration file.
    pub async fn configuration(&self) -> Result<ConfigurationFile, Error> {
        self.ask(Route::Configuration, "").await
    }

    /// Writes and applies a configuration.
    pub async fn configure(&self, configure: &Configure) -> Result<Configured, Error> {
        self.send(Route::Configure, configure).await
    }

    /// Confirms the change that waits for it.
    pub async fn confirm(&self) -> Result<Configured, Error> {
        self.ask(Route::Confirm, "").await
    }

    /// Rolls the unconfirmed change back.
    pub async fn revert(&self) -> Result<Configured, Error> {
        self.ask(Route::Revert, "").await
    }

    /// The search for rates that runs, or the last one.
    pub async fn tune(&self) -> Result<Search, Error> {
        self.ask(Route::Tune, "").await
    }

    /// Starts a search for rates.
    pub async fn start_tune(&self, start: &StartTune) -> Result<Search, Error> {
        self.send(Route::StartTune, start).await
    }

    /// Stops the search for rates; it ends within seconds.
    pub async fn stop_tune(&self) -> Result<(), Error> {
        self.bytes(Route::StopTune, Bytes::new()).await.map(drop)
    }

    /// A picture of the last search, as SVG. The name consists of lower-case letters and hyphens.
    pub async fn tune_plot(&self, name: &str) -> Result<Bytes, Error> {
        let (_, path) = Route::TunePlot.request();
        self.bytes_at(Route::TunePlot, &path.replace("{plot}", name), Bytes::new())
            .await
    }

    /// Runs the doctor.
    pub async fn doctor(&self, doctor: Doctor) -> Result<Diagnosis, Error> {
        self.send(Route::Doctor, &doctor).await
    }

    /// The output of `sqm bugreport`.
    pub async fn report(&self) -> Result<Bytes, Error> {
        self.bytes(Route::Report, Bytes::new()).await
    }

    /// The log as server-sent events, until either side closes the connection.
    pub async fn events(&self) -> Result<Incoming, Error> {
        let (_, path) = Route::Events.request();
        let answer = self.request(Route::Events, path, Bytes::new()).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(refused(status, &read(answer).await?)),
        }
    }

    /// Sends a request without a body.
    async fn ask<T: DeserializeOwned>(&self, route: Route, query: &str) -> Result<T, Error> {
        let (_, path) = route.request();
        let answer = self
            .bytes_at(route, &format!("{path}{query}"), Bytes::new())
            .await?;
        serde_json::from_slice(&answer).map_err(Error::Unexpected)
    }

    async fn send<T: DeserializeOwned>(&self, route: Route, body: &impl Serialize) -> Result<T, Error> {
        // Serializing plain data with strings as keys cannot fail.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let answer = self.bytes(route, body.into()).await?;
        serde_json::from_slice(&answer).map_err(Error::Unexpected)
    }

    async fn bytes(&self, route: Route, body: Bytes) -> Result<Bytes, Error> {
        let (_, path) = route.request();
        self.bytes_at(route, path, body).await
    }

    async fn bytes_at(&self, route: Route, target: &str, body: Bytes) -> Result<Bytes, Error> {
        let asked = async {
            let answer = self.request(route, target, body).await?;
            let status = answer.status();
            let bytes = read(answer).await?;
            if status.is_success() {
                Ok(bytes)
            } else {
                Err(refused(status, &bytes))
            }
        };
        tokio::time::timeout(TIMEOUT, asked)
            .await
            .unwrap_or(Err(Error::TimedOut))
    }

    async fn request(&self, route: Route, target: &str, body: Bytes) -> Result<Response<Incoming>, Error> {
        let stream = self.connect().await.map_err(|error| {
            Error::Absent(format!("cannot connect to {}: {error}", self.socket.display()))
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        let (method, _) = route.request();
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", "sqm");
        let request = request
            .body(Full::new(body))
            .map_err(|error| Error::Absent(error.to_string()))?;
        sender.send_request(request).await.map_err(broken)
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let Some(connect) = self.connect.clone() else {
            return UnixStream::connect(&self.socket).await;
        };
        let stream = tokio::task::spawn_blocking(move || connect()).await??;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }
}

/// The client of the daemon that keeps its state in this folder.
pub fn in_folder(state_dir: &Path) -> Client {
    Client::new(&state_dir.join(SOCKET))
}

/// Waits for an answer in a program without an asynchronous runtime.
///
/// # Errors
///
/// Those of the request.
pub fn wait<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    runtime()?.block_on(request)
}

pub(crate) fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Absent(error.to_string()))
}

async fn read(answer: Response<Incoming>) -> Result<Bytes, Error> {
    let bytes = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let bytes = bytes.map_err(|error| Error::Absent(format!("the answer was cut off: {error}")))?;
    Ok(bytes.to_bytes())
}

/// The errors of a response as one text.
fn message(status: StatusCode, errors: &Errors) -> String {
    if errors.errors.is_empty() {
        format!("the daemon refuses: {status}")
    } else {
        errors.errors.join("; ")
    }
}

/// The error of an error response.
fn refused(status: StatusCode, bytes: &[u8]) -> Error {
    // A server that is not the daemon may answer anything.
    let errors = serde_json::from_slice(bytes).unwrap_or_else(|_| Errors {
        version: 0,
        errors: Vec::new(),
        code: None,
        revision: None,
    });
    Error::Refused(status, errors)
}

fn broken(error: hyper::Error) -> Error {
    Error::Absent(error.to_string())
}
