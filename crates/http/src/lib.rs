//! HTTP servers that many clients share, for the daemon's API and for the page's server: places for connections ([`Places`]), bodies of
//! requests and answers, and the hosts under whose names a server answers.
#![forbid(unsafe_code)]

mod body;
mod hosts;
mod patient;
mod places;
mod seats;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::mpsc::Receiver;

pub use body::Answer;
pub use hosts::Hosts;
pub use patient::Patient;
pub use places::{Limits, Place, Places, Turn};
pub use seats::{Seat, Seats};

/// The longest silence of an event stream: the server sends a comment then, so that both ends notice when the other is gone.
/// Proxies close connections that are idle for 30 s or more; this is half of that.
pub const SILENCE: Duration = Duration::from_secs(15);
/// A comment of an event stream.
pub const COMMENT: Bytes = Bytes::from_static(b": still here\n\n");
/// A request's body must be there within this.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// Why a request's body is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBody {
    /// It did not come in time.
    Late,
    /// It is larger than allowed.
    Large,
    /// It broke off, or its framing is wrong.
    Broken,
}

/// The whole body of a request, which may have so many bytes.
pub async fn read(body: Incoming, most: usize) -> Result<Bytes, NoBody> {
    match tokio::time::timeout(BODY_PATIENCE, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Err(_) => Err(NoBody::Late),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(NoBody::Large),
        Ok(Err(_)) => Err(NoBody::Broken),
    }
}

/// A field that may be left out, but not be null.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// An answer that is there as a whole.
pub fn whole(code: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Response<Answer> {
    let mut answer = Response::new(Answer::Whole(Some(bytes.into())));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An answer for programs.
pub fn json<T: Serialize>(code: StatusCode, value: &T) -> Response<Answer> {
    // Plain data with text as keys.
    whole(
        code,
        "application/json",
        serde_json::to_vec(value).unwrap_or_default(),
    )
}

/// Server-sent events (HTML Standard, 9.2) as they come.
pub fn events(receiver: Receiver<Bytes>) -> Response<Answer> {
    let mut answer = Response::new(Answer::Events {
        events: receiver,
        held: Vec::new(),
    });
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// One event; JSON has no line ends.
pub fn event<T: Serialize>(name: &str, data: &T) -> Bytes {
    let json = serde_json::to_string(data).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}
