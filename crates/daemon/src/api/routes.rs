//! The requests of the API, and which users may send them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ALLOW, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe;

use super::helpers;
use crate::metrics;
use crate::shared::{Command, Configured, Refused, Shared};
use crate::status::{Status, VERSION};
use sqm_http::{self, AllowedHosts, BodyError, ResponseBody, full, json};
use sqm_kernel::status::InterfaceStatus;

/// The longest body of a request, bytes; a choice. A larger configuration can only be written as a file.
const MAX_BODY: usize = 256 * 1024;
/// The longest time for a confirmation, seconds; a choice.
const MAX_CONFIRM: u32 = 3600;
/// How long to wait for the main loop; a choice. It answers within milliseconds, unless another program holds the lock of the
/// state folder.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The ID of the user of `--admin-user`.
static ADMIN: OnceLock<u32> = OnceLock::new();

/// Allows a user to change something. To be called once, before the API is served.
pub(crate) fn set_admin(user: Option<u32>) {
    if let Some(user) = user {
        let _ = ADMIN.set(user);
    }
}

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Root, the daemon's own user, or the user of `--admin-user`, with the user ID.
    Admin(u32),
    /// Any other user of this machine, with the user ID if the kernel names one.
    Reader(Option<u32>),
    /// A client of the metrics port.
    Metrics,
}

impl Peer {
    pub(super) fn of_user(user: Option<u32>) -> Self {
        let own = rustix::process::geteuid().as_raw();
        match user {
            Some(user) if user == 0 || user == own || ADMIN.get() == Some(&user) => Self::Admin(user),
            user => Self::Reader(user),
        }
    }

    pub(super) fn is_admin(self) -> bool {
        matches!(self, Self::Admin(_))
    }

    /// The user ID, if the kernel names one.
    pub(super) fn user(self) -> Option<u32> {
        match self {
            Self::Admin(user) => Some(user),
            Self::Reader(user) => user,
            Self::Metrics => None,
        }
    }
}

pub(super) async fn answer(
    shared: &Arc<Shared>,
    peer: Peer,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let path = request.uri().path().to_owned();
    if peer == Peer::Metrics {
        if path != "/metrics" {
            return refusal(
                StatusCode::NOT_FOUND,
                "this port serves only /metrics; use the Unix socket for everything else",
            );
        }
        if !is_host_allowed(request.headers()) {
            return refusal(
                StatusCode::FORBIDDEN,
                "this server accepts requests for its IP address and for localhost only",
            );
        }
    }
    let (method, is_head) = match request.method() {
        &Method::HEAD => (Method::GET, true),
        method => (method.clone(), false),
    };
    let mut answer = match (path.as_str(), method) {
        ("/metrics", Method::GET) => full(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            metrics::text(&with_queues(shared)),
        ),
        ("/v1/status", Method::GET) if request.uri().query() == Some("queues=no") => {
            json(StatusCode::OK, &shared.status())
        }
        ("/v1/status", Method::GET) => json(StatusCode::OK, &with_queues(shared)),
        ("/v1/plan", Method::GET) => plan(shared).await,
        ("/v1/events", Method::GET) if is_head => full(StatusCode::OK, "text/event-stream", Bytes::new()),
        ("/v1/events", Method::GET) => events(shared, peer),
        ("/v1/configuration", Method::GET) => configuration(shared).await,
        ("/v1/tune", Method::GET) => json(StatusCode::OK, &shared.tune.search()),
        (path, Method::GET) if path.starts_with(TUNE_PLOTS) => tune_plot(shared, path),
        (path, method) if peer.is_admin() => admin(shared, path, method, request).await,
        (path, _) if CHANGING.contains(&path) => refusal(
            StatusCode::FORBIDDEN,
            "only root, the daemon's own user and the user of --admin-user may do this",
        ),
        (path, _) => unknown(path),
    };
    if is_head {
        *answer.body_mut() = ResponseBody::Full(None);
    }
    answer
}

/// `true` unless the `Host` header names a foreign host, as a browser does in a DNS rebinding attack. A request without the
/// header does not come from a browser.
fn is_host_allowed(headers: &HeaderMap) -> bool {
    let hosts = AllowedHosts::new(Vec::new());
    let mut named = headers.get_all(HOST).iter();
    let is_allowed = |host: &HeaderValue| host.to_str().is_ok_and(|host| hosts.allows(host));
    named.next().is_none_or(is_allowed) && named.next().is_none()
}

/// The path of a picture of the last search for rates, without the picture's name.
const TUNE_PLOTS: &str = "/v1/tune/plots/";

/// The paths with requests that only a [`Peer::Admin`] may send.
const CHANGING: [&str; 7] = [
    "/v1/apply",
    "/v1/configuration",
    "/v1/configuration/confirm",
    "/v1/configuration/revert",
    "/v1/tune",
    "/v1/doctor",
    "/v1/report",
];

/// Handles requests that change something or that return what not every user may see.
async fn admin(
    shared: &Arc<Shared>,
    path: &str,
    method: Method,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    match (path, method) {
        ("/v1/apply", Method::POST) => apply(shared, request).await,
        ("/v1/configuration", Method::PUT) => configure(shared, request).await,
        ("/v1/configuration/confirm", Method::POST) => {
            configured(send_command(shared, |reply| Command::Confirm { reply }).await)
        }
        ("/v1/configuration/revert", Method::POST) => {
            configured(send_command(shared, |reply| Command::Revert { reply }).await)
        }
        ("/v1/tune", Method::POST) => tune(shared, request).await,
        ("/v1/tune", Method::DELETE) if shared.tune.stop() => {
            full(StatusCode::ACCEPTED, "application/json", "")
        }
        ("/v1/tune", Method::DELETE) => refusal(StatusCode::CONFLICT, "no search for rates is running"),
        ("/v1/doctor", Method::POST) => match read_json::<Doctor>(request).await {
            Ok(Doctor { fix }) => helpers::doctor(shared, fix).await,
            Err(refusal) => refusal,
        },
        ("/v1/report", Method::GET) => helpers::report(shared).await,
        ("/v1/apply" | "/v1/configuration/confirm" | "/v1/configuration/revert" | "/v1/doctor", _) => {
            not_allowed("POST")
        }
        ("/v1/configuration", _) => not_allowed("GET, HEAD, PUT"),
        ("/v1/tune", _) => not_allowed("GET, HEAD, POST, DELETE"),
        ("/v1/report", _) => not_allowed("GET, HEAD"),
        (path, _) => unknown(path),
    }
}

/// The response for a path that allows other methods, or that does not exist.
fn unknown(path: &str) -> Response<ResponseBody> {
    match path {
        "/metrics" | "/v1/status" | "/v1/plan" | "/v1/events" => not_allowed("GET, HEAD"),
        _ => refusal(
            StatusCode::NOT_FOUND,
            "there are /v1/status, /v1/plan, /v1/events, /v1/apply, /v1/configuration, /v1/tune, /v1/doctor, /v1/report \
             and /metrics",
        ),
    }
}

/// The status with the kernel's queues and the state of autorate at this moment. An interface that cannot be read has no queues.
fn with_queues(shared: &Shared) -> Status {
    let mut status = shared.status();
    for interface in &mut status.interfaces {
        interface.autorate = shared.rates.status(&interface.interface);
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

async fn plan(shared: &Shared) -> Response<ResponseBody> {
    match send_command(shared, |reply| Command::Plan { reply }).await {
        Some(Ok(plans)) => full(StatusCode::OK, "application/json", plans),
        Some(Err(errors)) => unprocessable(&errors),
        None => busy(),
    }
}

fn events(shared: &Shared, peer: Peer) -> Response<ResponseBody> {
    match shared.journal.subscribe(peer.user(), peer.is_admin()) {
        Some((receiver, permit)) => {
            let mut answer = sqm_http::events(receiver);
            answer.body_mut().hold(permit);
            answer
        }
        None => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "there are too many event streams already",
        ),
    }
}

async fn configuration(shared: &Shared) -> Response<ResponseBody> {
    match send_command(shared, |reply| Command::Read { reply }).await {
        Some(Ok(file)) => json(StatusCode::OK, &file),
        Some(Err(error)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        None => busy(),
    }
}

/// The body of `PUT /v1/configuration`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configure {
    text: String,
    /// The revision that the text was made from.
    revision: String,
    /// The time for a confirmation, seconds; 0: the change needs none.
    confirm_seconds: u32,
}

async fn configure(shared: &Shared, request: Request<Incoming>) -> Response<ResponseBody> {
    let wanted = match read_json::<Configure>(request).await {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    if wanted.confirm_seconds > MAX_CONFIRM {
        let message = format!("confirm_seconds is from 0 to {MAX_CONFIRM}");
        return refusal(StatusCode::BAD_REQUEST, &message);
    }
    let outcome = send_command(shared, |reply| Command::Configure {
        text: wanted.text,
        revision: wanted.revision,
        confirm: Duration::from_secs(wanted.confirm_seconds.into()),
        reply,
    });
    configured(outcome.await)
}

fn configured(outcome: Option<Result<Configured, Refused>>) -> Response<ResponseBody> {
    let (status, code, errors, revision) = match outcome {
        None => return busy(),
        Some(Ok(configured)) => return json(StatusCode::OK, &configured),
        Some(Err(Refused::Conflict(revision))) => (
            StatusCode::CONFLICT,
            "conflict",
            vec!["another program has written the configuration since it was read".to_owned()],
            Some(revision),
        ),
        Some(Err(Refused::Unconfirmed)) => (
            StatusCode::CONFLICT,
            "unconfirmed",
            vec!["another change waits for its confirmation".to_owned()],
            None,
        ),
        Some(Err(Refused::NothingWaits)) => (
            StatusCode::CONFLICT,
            "nothing-waits",
            vec!["no change waits for a confirmation: it was confirmed or rolled back already".to_owned()],
            None,
        ),
        Some(Err(Refused::Wrong(errors))) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", errors, None),
        Some(Err(Refused::Failed(errors))) => (StatusCode::UNPROCESSABLE_ENTITY, "failed", errors, None),
    };
    let version = VERSION;
    json(
        status,
        &Errors {
            version,
            errors: &errors,
            code: Some(code),
            revision,
        },
    )
}

async fn tune(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<ResponseBody> {
    let wanted = match read_json(request).await {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    match shared.tune.start(wanted) {
        Ok(Some(search)) => json(StatusCode::ACCEPTED, &search),
        Ok(None) => refusal(StatusCode::CONFLICT, "a search for rates is running"),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
    }
}

fn tune_plot(shared: &Shared, path: &str) -> Response<ResponseBody> {
    let name = path
        .strip_prefix(TUNE_PLOTS)
        .and_then(|name| name.strip_suffix(".svg"));
    match name.and_then(|name| shared.tune.picture(name)) {
        Some(picture) => full(StatusCode::OK, "image/svg+xml", picture),
        None => refusal(StatusCode::NOT_FOUND, "there is no such picture"),
    }
}

/// The body of `POST /v1/doctor`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Doctor {
    fix: bool,
}

/// The body of `POST /v1/apply`. An empty body reads the configuration again and applies all of it.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Apply {
    interface: Option<String>,
}

async fn apply(shared: &Shared, request: Request<Incoming>) -> Response<ResponseBody> {
    let body = match sqm_http::read_body(request.into_body(), MAX_BODY).await {
        Ok(body) => body,
        Err(error) => return body_error(error),
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
    match send_command(shared, |reply| Command::Apply { interface, reply }).await {
        Some(Ok(())) => json(StatusCode::OK, &with_queues(shared)),
        Some(Err(errors)) => unprocessable(&errors),
        None => busy(),
    }
}

/// Reads and parses the body of a request. The error is the response to send.
async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Response<ResponseBody>> {
    let body = sqm_http::read_body(request.into_body(), MAX_BODY)
        .await
        .map_err(body_error)?;
    serde_json::from_slice(&body).map_err(|error| {
        refusal(
            StatusCode::BAD_REQUEST,
            &format!("the body is not as documented: {error}"),
        )
    })
}

fn body_error(error: BodyError) -> Response<ResponseBody> {
    match error {
        BodyError::TimedOut => refusal(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
        BodyError::TooLarge => refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
        BodyError::Invalid => refusal(
            StatusCode::BAD_REQUEST,
            "the body was cut off, or its framing is wrong",
        ),
    }
}

/// Sends a command to the main loop and waits for its reply; `None` if there is none in time.
async fn send_command<T>(
    shared: &Shared,
    command: impl FnOnce(tokio::sync::oneshot::Sender<T>) -> Command,
) -> Option<T> {
    let (reply, receiver) = tokio::sync::oneshot::channel();
    shared.command(command(reply));
    tokio::time::timeout(COMMAND_TIMEOUT, receiver).await.ok()?.ok()
}

/// The body of an error response.
#[derive(Serialize)]
struct Errors<'a> {
    version: u32,
    errors: &'a [String],
    /// The kind of error, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// The present revision of the configuration, if the request named another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
}

fn unprocessable(errors: &[String]) -> Response<ResponseBody> {
    errors_with(StatusCode::UNPROCESSABLE_ENTITY, errors)
}

/// An error response with one message.
pub(super) fn refusal(code: StatusCode, message: &str) -> Response<ResponseBody> {
    errors_with(code, &[message.to_owned()])
}

fn errors_with(code: StatusCode, errors: &[String]) -> Response<ResponseBody> {
    json(
        code,
        &Errors {
            version: VERSION,
            errors,
            code: None,
            revision: None,
        },
    )
}

fn busy() -> Response<ResponseBody> {
    refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        "no reply in time: another program holds the lock of the state folder",
    )
}

fn not_allowed(methods: &'static str) -> Response<ResponseBody> {
    let mut answer = refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("this path allows only {methods}"),
    );
    answer.headers_mut().insert(
        ALLOW,
        methods.parse().expect("method names are valid in a header"),
    );
    answer
}
