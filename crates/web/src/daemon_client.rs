//! The client of the daemon's API: HTTP/1.1 on its Unix socket. The daemon accepts changes because this process runs as a user that it
//! knows, or because [`Connector`] connects as root.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Receiver, channel};

use super::connector::Connector;
use super::problem::Problem;
use sqm_http::{KEEP_ALIVE, KEEP_ALIVE_INTERVAL};

/// The time limit of a request. The daemon itself waits 30 s for its keeper and 60 s for a child.
const PATIENCE: Duration = Duration::from_secs(70);
/// The largest answer that is read, in bytes. Our choice.
const MOST_BYTES: usize = 8 << 20;
/// Events that are queued for a browser; a slower one is disconnected.
const MOST_EVENTS: usize = 64;

/// The client of the daemon that this server asks.
pub(super) struct DaemonClient {
    socket: PathBuf,
    connector: Option<Arc<Connector>>,
}

impl DaemonClient {
    pub(super) fn at(socket: PathBuf, connector: Option<Connector>) -> Self {
        Self {
            socket,
            connector: connector.map(Arc::new),
        }
    }

    /// Sends a `GET` request and decodes the answer.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        let (status, bytes) = self.ask(Method::GET, path, None).await?;
        understand(status, &bytes)
    }

    /// Sends a request that changes something and decodes the answer.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let (status, bytes) = self.ask(method, path, Some(body)).await?;
        understand(status, &bytes)
    }

    /// True if the daemon is searching for rates; false if it does not respond.
    pub(super) async fn is_tuning(&self) -> bool {
        let tune: Result<Value, Problem> = self.get("/v1/tune").await;
        tune.is_ok_and(|tune| tune["state"] == "running")
    }

    /// Sends a `GET` request and returns the body.
    pub(super) async fn bytes(&self, path: &str) -> Result<Bytes, Problem> {
        let (status, bytes) = self.ask(Method::GET, path, None).await?;
        if status.is_success() {
            return Ok(bytes);
        }
        Err(refusal(status, &bytes))
    }

    /// Subscribes to the daemon's events, until either side ends the connection.
    pub(super) async fn events(&self) -> Result<Receiver<Bytes>, Problem> {
        let answer = self
            .request(Method::GET, "/v1/events", None)
            .await
            .map_err(absent)?;
        if answer.status() != StatusCode::OK {
            return Err(Problem::unavailable(
                "too many clients follow the daemon's events already",
            ));
        }
        let mut body = answer.into_body();
        let (sender, receiver) = channel(MOST_EVENTS);
        tokio::spawn(async move {
            loop {
                let bytes = tokio::select! {
                    frame = body.frame() => match frame {
                        Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                        _ => return,
                    },
                    () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => KEEP_ALIVE,
                    () = sender.closed() => return,
                };
                if sender.try_send(bytes).is_err() {
                    return;
                }
            }
        });
        Ok(receiver)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Bytes), Problem> {
        let asked = async {
            let answer = self.request(method, path, body).await?;
            let status = answer.status();
            let bytes = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            let bytes = bytes.map_err(|error| anyhow!("the answer was cut off: {error}"))?;
            Ok((status, bytes.to_bytes()))
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => answer.map_err(absent),
            Err(_) => Err(Problem::unavailable("the daemon does not respond")),
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> anyhow::Result<Response<hyper::body::Incoming>> {
        let stream = self
            .connect()
            .await
            .with_context(|| format!("cannot connect to {}", self.socket.display()))?;
        let (mut asking, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "sqm")
            .body(Full::new(Bytes::from(body.unwrap_or_default())))?;
        Ok(asking.send_request(request).await?)
    }

    async fn connect(&self) -> std::io::Result<UnixStream> {
        let Some(connector) = self.connector.clone() else {
            return UnixStream::connect(&self.socket).await;
        };
        let stream = tokio::task::spawn_blocking(move || connector.connect()).await??;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }
}

fn absent(error: anyhow::Error) -> Problem {
    Problem::unavailable(format!(
        "the daemon does not respond: is 'sqm daemon' running? {error:#}"
    ))
}

fn understand<T: DeserializeOwned>(status: StatusCode, bytes: &[u8]) -> Result<T, Problem> {
    if !status.is_success() {
        return Err(refusal(status, bytes));
    }
    // An empty body decodes as null.
    let bytes = if bytes.is_empty() { b"null" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| {
        Problem::unavailable(format!(
            "unexpected answer of the daemon; does it have the same version? {error}"
        ))
    })
}

/// The error for an error response of the daemon.
fn refusal(status: StatusCode, bytes: &[u8]) -> Problem {
    let answer: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let errors: Vec<&str> = answer["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let message = if errors.is_empty() {
        format!("the daemon refuses: {status}")
    } else {
        errors.join("; ")
    };
    match (status, answer["code"].as_str()) {
        (StatusCode::CONFLICT, Some("conflict")) => Problem::conflict("conflict", message)
            .with_revision(answer["revision"].as_str().map(str::to_owned)),
        (StatusCode::CONFLICT, Some("unconfirmed")) => Problem::conflict("unconfirmed", message),
        (StatusCode::CONFLICT, Some("nothing-waits")) => Problem::conflict("nothing-waits", message),
        (StatusCode::CONFLICT, _) => Problem::conflict("busy", message),
        (StatusCode::UNPROCESSABLE_ENTITY, Some("invalid")) => Problem::invalid(message, Vec::new()),
        (StatusCode::UNPROCESSABLE_ENTITY, _) => Problem::failed(message),
        (StatusCode::NOT_FOUND, _) => Problem::not_found(message),
        (StatusCode::FORBIDDEN, _) => Problem::unavailable(
            "the daemon does not let this server change anything: run 'sqm web' as root, as the daemon's user, or as the user of 'sqm daemon --admin-user'",
        ),
        _ => Problem::unavailable(message),
    }
}
