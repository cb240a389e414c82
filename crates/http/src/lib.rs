//! The parts that the daemon's API and the page's server have in common: limits on connections, requests and streams
//! ([`ConnectionTable`], [`WriteTimeout`]), HTTP on a connection ([`Server`]), bodies of requests and
//! responses, the host names for which a server accepts requests ([`AllowedHosts`]), and the search of a request's route in a
//! table ([`find`]).
#![forbid(unsafe_code)]

mod allowed_hosts;
mod body;
mod connection_limit;
mod router;
mod server;
mod stream;
mod write_timeout;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::mpsc::Receiver;

pub use allowed_hosts::AllowedHosts;
pub use body::ResponseBody;
pub use connection_limit::{ConnectionSlot, ConnectionTable, Limits, Permit};
pub use router::{Found, Row, find};
pub use server::{ACCEPT_RETRY, BACKLOG, Server};
pub use stream::Stream;
pub use write_timeout::WriteTimeout;

/// The longest silence on an event stream: the server then sends [`KEEP_ALIVE`], so that a write fails if the client is gone.
/// A choice: common proxies close a connection after 30 s of silence or more, and this is half of that.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A comment on an event stream, which clients ignore (HTML Standard, 9.2.6).
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": still here\n\n");
/// The longest body of a request, bytes; a choice: a configuration of the largest size that the page accepts, as JSON.
const MAX_BODY: usize = 256 * 1024;
/// The time a client has to send a request's body; a choice.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request's body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The client did not send all of it in time.
    TimedOut,
    /// It is larger than allowed.
    TooLarge,
    /// The connection ended within the body, or the body's framing is wrong.
    Invalid,
}

/// Reads a request's body, within limits of size and time.
pub async fn read_body(body: Incoming) -> Result<Bytes, BodyError> {
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Err(_) => Err(BodyError::TimedOut),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Invalid),
    }
}

/// Deserializes an optional field that may be left out but must not be null. Use it with `#[serde(default)]`.
pub fn non_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// A response with a complete body of the given content type.
pub fn full(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Full(Some(bytes.into())));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A response with `value` as JSON.
pub fn json<T: Serialize>(code: StatusCode, value: &T) -> Response<ResponseBody> {
    // Serializing plain data with strings as keys cannot fail.
    full(
        code,
        "application/json",
        serde_json::to_vec(value).unwrap_or_default(),
    )
}

/// A stream of server-sent events (HTML Standard, 9.2), each encoded by [`event`].
pub fn events(receiver: Receiver<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Events {
        events: receiver,
        held: Vec::new(),
    });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Encodes one server-sent event. Compact JSON has no line ends, so one `data:` line is enough.
pub fn event<T: Serialize>(name: &str, data: &T) -> Bytes {
    let json = serde_json::to_string(data).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}
