//! What can be asked, and who may ask it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe;

use super::body::Answer;
use crate::daemon::metrics;
use crate::daemon::shared::{Command, Shared};
use crate::daemon::status::{Status, VERSION};
use crate::queues::InterfaceStatus;

/// Of a request's body, bytes.
const MOST_BODY: usize = 64 * 1024;
/// A body must be there within this.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// The keeper answers within milliseconds, unless somebody holds the lock of the state.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Root, or the user that the daemon runs as.
    Admin,
    /// Any other user of this machine.
    Reader,
    /// Somebody on the loopback port.
    Metrics,
}

impl Peer {
    pub(super) fn of_user(user: Option<u32>) -> Self {
        let own = rustix::process::geteuid().as_raw();
        match user {
            Some(user) if user == 0 || user == own => Self::Admin,
            _ => Self::Reader,
        }
    }
}

pub(super) async fn answer(shared: &Shared, peer: Peer, request: Request<Incoming>) -> Response<Answer> {
    let path = request.uri().path().to_owned();
    if peer == Peer::Metrics && path != "/metrics" {
        return refusal(
            StatusCode::NOT_FOUND,
            "here are only /metrics; the rest is on the Unix socket",
        );
    }
    let (method, is_head) = match request.method() {
        &Method::HEAD => (Method::GET, true),
        method => (method.clone(), false),
    };
    let mut answer = match (path.as_str(), method) {
        ("/metrics", Method::GET) => whole(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            metrics::text(&with_queues(shared)).into(),
        ),
        ("/v1/status", Method::GET) => json(StatusCode::OK, &with_queues(shared)),
        ("/v1/plan", Method::GET) => plan(shared).await,
        ("/v1/events", Method::GET) if is_head => whole(StatusCode::OK, "text/event-stream", Bytes::new()),
        ("/v1/events", Method::GET) => events(shared),
        ("/v1/apply", Method::POST) => apply(shared, peer, request).await,
        ("/metrics" | "/v1/status" | "/v1/plan" | "/v1/events", _) => not_allowed("GET, HEAD"),
        ("/v1/apply", _) => not_allowed("POST"),
        _ => refusal(
            StatusCode::NOT_FOUND,
            "there are /v1/status, /v1/plan, /v1/events, /v1/apply and /metrics",
        ),
    };
    if is_head {
        *answer.body_mut() = Answer::Whole(None);
    }
    answer
}

/// With what the queues hold at this moment. An interface that cannot be read has none.
fn with_queues(shared: &Shared) -> Status {
    let mut status = shared.status();
    for interface in &mut status.interfaces {
        interface.autorate = shared.autorate.status(&interface.interface);
    }
    let Ok(mut socket) = Socket::open() else {
        return status;
    };
    let links = observe::links(&mut socket).unwrap_or_default();
    for interface in &mut status.interfaces {
        interface.queues =
            InterfaceStatus::read(&mut socket, &links, &interface.interface, &shared.state_dir).ok();
    }
    status
}

async fn plan(shared: &Shared) -> Response<Answer> {
    match asked(shared, |reply| Command::Plan { reply }).await {
        Some(Ok(plans)) => whole(StatusCode::OK, "application/json", plans.into()),
        Some(Err(errors)) => wrong(&errors),
        None => busy(),
    }
}

fn events(shared: &Shared) -> Response<Answer> {
    let Some(receiver) = shared.journal.listen() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many listen already");
    };
    let mut answer = Response::new(Answer::Events(receiver));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, "text/event-stream".parse().expect("a good header"));
    headers.insert(CACHE_CONTROL, "no-store".parse().expect("a good header"));
    answer
}

/// What `POST /v1/apply` takes; nothing at all reads the configuration anew and applies all of it.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Apply {
    interface: Option<String>,
}

async fn apply(shared: &Shared, peer: Peer, request: Request<Incoming>) -> Response<Answer> {
    if peer != Peer::Admin {
        return refusal(
            StatusCode::FORBIDDEN,
            "only root and the daemon's own user may change something",
        );
    }
    let body = Limited::new(request.into_body(), MOST_BODY).collect();
    let body = match tokio::time::timeout(BODY_PATIENCE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
        Ok(Err(_)) => {
            return refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is too large or broke off",
            );
        }
    };
    let wanted: Apply = if body.is_empty() {
        Apply::default()
    } else {
        match serde_json::from_slice(&body) {
            Ok(wanted) => wanted,
            Err(error) => {
                let message = format!("the body is not {{\"interface\": \"NAME\"}}: {error}");
                return refusal(StatusCode::BAD_REQUEST, &message);
            }
        }
    };
    let interface = wanted.interface;
    match asked(shared, |reply| Command::Apply { interface, reply }).await {
        Some(Ok(())) => json(StatusCode::OK, &with_queues(shared)),
        Some(Err(errors)) => wrong(&errors),
        None => busy(),
    }
}

/// Sends a command and waits for the answer; `None` if there is none in time.
async fn asked<T>(
    shared: &Shared,
    command: impl FnOnce(tokio::sync::oneshot::Sender<T>) -> Command,
) -> Option<T> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    shared.command(command(reply));
    tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
}

#[derive(Serialize)]
struct Wrong<'a> {
    version: u32,
    errors: &'a [String],
}

fn wrong(errors: &[String]) -> Response<Answer> {
    let version = VERSION;
    json(StatusCode::UNPROCESSABLE_ENTITY, &Wrong { version, errors })
}

fn refusal(code: StatusCode, message: &str) -> Response<Answer> {
    let errors = [message.to_owned()];
    let version = VERSION;
    json(
        code,
        &Wrong {
            version,
            errors: &errors,
        },
    )
}

fn busy() -> Response<Answer> {
    refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        "no answer in time: another program holds the lock of the state",
    )
}

fn not_allowed(methods: &'static str) -> Response<Answer> {
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, &format!("only {methods} here"));
    answer
        .headers_mut()
        .insert(ALLOW, methods.parse().expect("a good header"));
    answer
}

fn json<T: Serialize>(code: StatusCode, value: &T) -> Response<Answer> {
    // Plain data with text as keys.
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    whole(code, "application/json", text.into())
}

fn whole(code: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Answer> {
    let mut answer = Response::new(Answer::Whole(Some(bytes)));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, kind.parse().expect("a good header"));
    headers.insert(CACHE_CONTROL, "no-store".parse().expect("a good header"));
    answer
}
