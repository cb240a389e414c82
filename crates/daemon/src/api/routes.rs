//! What can be asked, and who may ask it.

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
use crate::shared::{Command, Configured, Refused, Shared};
use crate::status::{Status, VERSION};
use crate::{metrics, search};
use sqm_http::{self, Answer, Hosts, NoBody, json, whole};
use sqm_kernel::status::InterfaceStatus;

/// Of a request's body, bytes: a configuration of the largest size in JSON.
const MOST_BODY: usize = 256 * 1024;
/// Nobody waits longer to see whether a change keeps the machine within reach, seconds.
const MOST_CONFIRM: u32 = 3600;
/// The keeper answers within milliseconds, unless somebody holds the lock of the state.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of the user of `--admin-user`.
static ADMIN: OnceLock<u32> = OnceLock::new();

/// Lets a user change something; to be called once, before anybody is heard.
pub(crate) fn let_change(user: Option<u32>) {
    if let Some(user) = user {
        let _ = ADMIN.set(user);
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Root, the user that the daemon runs as, or the one of `--admin-user`: its number.
    Admin(u32),
    /// Any other user of this machine.
    Reader(Option<u32>),
    /// Somebody on the loopback port.
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

    /// The user's number, if the kernel names one.
    pub(super) fn user(self) -> Option<u32> {
        match self {
            Self::Admin(user) => Some(user),
            Self::Reader(user) => user,
            Self::Metrics => None,
        }
    }
}

pub(super) async fn answer(shared: &Arc<Shared>, peer: Peer, request: Request<Incoming>) -> Response<Answer> {
    let path = request.uri().path().to_owned();
    if peer == Peer::Metrics {
        if path != "/metrics" {
            return refusal(
                StatusCode::NOT_FOUND,
                "here are only /metrics; the rest is on the Unix socket",
            );
        }
        if !is_for_us(request.headers()) {
            return refusal(
                StatusCode::FORBIDDEN,
                "this server is known by its address and as localhost only",
            );
        }
    }
    let (method, is_head) = match request.method() {
        &Method::HEAD => (Method::GET, true),
        method => (method.clone(), false),
    };
    let mut answer = match (path.as_str(), method) {
        ("/metrics", Method::GET) => whole(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            metrics::text(&with_queues(shared)),
        ),
        ("/v1/status", Method::GET) if request.uri().query() == Some("queues=no") => {
            json(StatusCode::OK, &shared.status())
        }
        ("/v1/status", Method::GET) => json(StatusCode::OK, &with_queues(shared)),
        ("/v1/plan", Method::GET) => plan(shared).await,
        ("/v1/events", Method::GET) if is_head => whole(StatusCode::OK, "text/event-stream", Bytes::new()),
        ("/v1/events", Method::GET) => events(shared, peer),
        ("/v1/configuration", Method::GET) => configuration(shared).await,
        ("/v1/tune", Method::GET) => json(StatusCode::OK, &*shared.search.lock().expect("no holder panics")),
        (path, Method::GET) if path.starts_with(TUNE_PLOTS) => tune_plot(shared, path),
        (path, method) if peer.is_admin() => admin(shared, path, method, request).await,
        (path, _) if CHANGING.contains(&path) => refusal(
            StatusCode::FORBIDDEN,
            "only root, the daemon's own user and the one of --admin-user may change something",
        ),
        (path, _) => unknown(path),
    };
    if is_head {
        *answer.body_mut() = Answer::Whole(None);
    }
    answer
}

/// Whether a browser was led here by a name that is not ours (DNS rebinding). Whatever names no host is no browser.
fn is_for_us(headers: &HeaderMap) -> bool {
    let hosts = Hosts::new(Vec::new());
    let mut named = headers.get_all(HOST).iter();
    let is_ours = |host: &HeaderValue| host.to_str().is_ok_and(|host| hosts.knows(host));
    named.next().is_none_or(is_ours) && named.next().is_none()
}

/// Before the name of a picture of the last search for rates.
const TUNE_PLOTS: &str = "/v1/tune/plots/";

/// Paths that only an [`Peer::Admin`] may use.
const CHANGING: [&str; 7] = [
    "/v1/apply",
    "/v1/configuration",
    "/v1/configuration/confirm",
    "/v1/configuration/revert",
    "/v1/tune",
    "/v1/doctor",
    "/v1/report",
];

/// What changes something, or tells what not everybody is to know.
async fn admin(
    shared: &Arc<Shared>,
    path: &str,
    method: Method,
    request: Request<Incoming>,
) -> Response<Answer> {
    match (path, method) {
        ("/v1/apply", Method::POST) => apply(shared, request).await,
        ("/v1/configuration", Method::PUT) => configure(shared, request).await,
        ("/v1/configuration/confirm", Method::POST) => {
            configured(asked(shared, |reply| Command::Confirm { reply }).await)
        }
        ("/v1/configuration/revert", Method::POST) => {
            configured(asked(shared, |reply| Command::Revert { reply }).await)
        }
        ("/v1/tune", Method::POST) => tune(shared, request).await,
        ("/v1/tune", Method::DELETE) if search::stop(shared) => {
            whole(StatusCode::ACCEPTED, "application/json", "")
        }
        ("/v1/tune", Method::DELETE) => refusal(StatusCode::CONFLICT, "no search for rates is running"),
        ("/v1/doctor", Method::POST) => match read::<Doctor>(request).await {
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

/// A path that is there for other methods, or not at all.
fn unknown(path: &str) -> Response<Answer> {
    match path {
        "/metrics" | "/v1/status" | "/v1/plan" | "/v1/events" => not_allowed("GET, HEAD"),
        _ => refusal(
            StatusCode::NOT_FOUND,
            "there are /v1/status, /v1/plan, /v1/events, /v1/apply, /v1/configuration, /v1/tune, /v1/doctor, /v1/report \
             and /metrics",
        ),
    }
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
        Some(Ok(plans)) => whole(StatusCode::OK, "application/json", plans),
        Some(Err(errors)) => wrong(&errors),
        None => busy(),
    }
}

fn events(shared: &Shared, peer: Peer) -> Response<Answer> {
    match shared.journal.listen(peer.user(), peer.is_admin()) {
        Some((receiver, seat)) => {
            let mut answer = sqm_http::events(receiver);
            answer.body_mut().hold(seat);
            answer
        }
        None => refusal(StatusCode::SERVICE_UNAVAILABLE, "too many listen already"),
    }
}

async fn configuration(shared: &Shared) -> Response<Answer> {
    match asked(shared, |reply| Command::Read { reply }).await {
        Some(Ok(file)) => json(StatusCode::OK, &file),
        Some(Err(error)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        None => busy(),
    }
}

/// What `PUT /v1/configuration` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configure {
    text: String,
    /// Of the file that the text was made from.
    revision: String,
    /// 0 asks for no confirmation.
    confirm_seconds: u32,
}

async fn configure(shared: &Shared, request: Request<Incoming>) -> Response<Answer> {
    let wanted = match read::<Configure>(request).await {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    if wanted.confirm_seconds > MOST_CONFIRM {
        let message = format!("confirm_seconds is from 0 to {MOST_CONFIRM}");
        return refusal(StatusCode::BAD_REQUEST, &message);
    }
    let asked = asked(shared, |reply| Command::Configure {
        text: wanted.text,
        revision: wanted.revision,
        confirm: Duration::from_secs(wanted.confirm_seconds.into()),
        reply,
    });
    configured(asked.await)
}

fn configured(outcome: Option<Result<Configured, Refused>>) -> Response<Answer> {
    let (status, code, errors, revision) = match outcome {
        None => return busy(),
        Some(Ok(configured)) => return json(StatusCode::OK, &configured),
        Some(Err(Refused::Conflict(revision))) => (
            StatusCode::CONFLICT,
            "conflict",
            vec!["somebody else has written the configuration since it was read".to_owned()],
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
            vec!["no change waits for a confirmation: it was confirmed or put back already".to_owned()],
            None,
        ),
        Some(Err(Refused::Wrong(errors))) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", errors, None),
        Some(Err(Refused::Failed(errors))) => (StatusCode::UNPROCESSABLE_ENTITY, "failed", errors, None),
    };
    let version = VERSION;
    json(
        status,
        &Wrong {
            version,
            errors: &errors,
            code: Some(code),
            revision,
        },
    )
}

async fn tune(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Answer> {
    let wanted = match read(request).await {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    match search::start(shared, wanted) {
        Ok(Some(search)) => json(StatusCode::ACCEPTED, &search),
        Ok(None) => refusal(StatusCode::CONFLICT, "a search for rates is running"),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
    }
}

fn tune_plot(shared: &Shared, path: &str) -> Response<Answer> {
    let name = path
        .strip_prefix(TUNE_PLOTS)
        .and_then(|name| name.strip_suffix(".svg"));
    match name.and_then(|name| search::picture(shared, name)) {
        Some(picture) => whole(StatusCode::OK, "image/svg+xml", picture),
        None => refusal(StatusCode::NOT_FOUND, "there is no such picture"),
    }
}

/// What `POST /v1/doctor` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Doctor {
    fix: bool,
}

/// What `POST /v1/apply` takes; nothing at all reads the configuration anew and applies all of it.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Apply {
    interface: Option<String>,
}

async fn apply(shared: &Shared, request: Request<Incoming>) -> Response<Answer> {
    let body = match sqm_http::read(request.into_body(), MOST_BODY).await {
        Ok(body) => body,
        Err(why) => return no_body(why),
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

/// The body as what it should be.
async fn read<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Response<Answer>> {
    let body = sqm_http::read(request.into_body(), MOST_BODY)
        .await
        .map_err(no_body)?;
    serde_json::from_slice(&body).map_err(|error| {
        refusal(
            StatusCode::BAD_REQUEST,
            &format!("the body is not as documented: {error}"),
        )
    })
}

fn no_body(why: NoBody) -> Response<Answer> {
    match why {
        NoBody::Late => refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
        NoBody::Large | NoBody::Broken => refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too large or broke off",
        ),
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
    /// A word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// Of the configuration now, if it is another one than was thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
}

fn wrong(errors: &[String]) -> Response<Answer> {
    errors_with(StatusCode::UNPROCESSABLE_ENTITY, errors)
}

pub(super) fn refusal(code: StatusCode, message: &str) -> Response<Answer> {
    errors_with(code, &[message.to_owned()])
}

fn errors_with(code: StatusCode, errors: &[String]) -> Response<Answer> {
    json(
        code,
        &Wrong {
            version: VERSION,
            errors,
            code: None,
            revision: None,
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
