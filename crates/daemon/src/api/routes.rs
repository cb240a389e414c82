//! The requests of the API, and which users may send them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ALLOW, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use sqm_api::VERSION;
use sqm_api::configuration::{Apply, Configure, Configured};
use sqm_api::doctor::Doctor;
use sqm_api::error::{Code, Errors};
use sqm_api::pause::{MAX_SECONDS, Pause};
use sqm_api::route::{ROUTES, Route};
use sqm_api::status::Status;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe;
use tokio::sync::mpsc::WeakSender;
use tokio::sync::mpsc::error::TrySendError;

use super::helpers;
use crate::metrics;
use crate::shared::{Command, Refused, Shared};
use sqm_http::{AllowedHosts, BodyError, ConnectionSlot, Found, KEEP_ALIVE, ResponseBody, full, json};
use sqm_kernel::status::InterfaceStatus;

/// The longest time for a confirmation, seconds; a choice.
const MAX_CONFIRM: u32 = 3600;
/// How long to wait for the main loop; a choice. It answers within milliseconds, unless another program holds the lock of the
/// state folder.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The time between two comments to the client of a pause; a choice. The line of a client that has gone is shaped again after that.
const PAUSE_PROBE_INTERVAL: Duration = Duration::from_secs(1);

const TOO_MANY_STREAMS: &str = "there are too many event streams already";

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
    slot: &ConnectionSlot<Option<u32>>,
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
    let is_head = request.method() == Method::HEAD;
    let mut answer = match sqm_http::find(&ROUTES, request.method(), &path) {
        Found::Route(route, _) if route.is_for_admins() && !peer.is_admin() => refusal(
            StatusCode::FORBIDDEN,
            "only root, the daemon's own user and the user of --admin-user may do this",
        ),
        Found::Route(route, parts) => carry_out(shared, slot, route, &parts, request).await,
        Found::OtherMethods(methods) => not_allowed(&methods),
        Found::Nothing => unknown(),
    };
    if is_head {
        *answer.body_mut() = ResponseBody::Full(None);
    }
    answer
}

/// Carries out a request that the peer may send. `parts` are the variable parts of its path.
async fn carry_out(
    shared: &Arc<Shared>,
    slot: &ConnectionSlot<Option<u32>>,
    route: Route,
    parts: &[&str],
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    match route {
        Route::Metrics => full(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            metrics::text(&with_queues(shared)),
        ),
        Route::Status if request.uri().query() == Some("queues=no") => json(StatusCode::OK, &shared.status()),
        Route::Status => json(StatusCode::OK, &with_queues(shared)),
        Route::Plan => plan(shared).await,
        Route::Events => events(shared, slot),
        Route::Apply => apply(shared, request).await,
        Route::Pause => pause(shared, slot, request).await,
        Route::Configuration => configuration(shared).await,
        Route::Configure => configure(shared, request).await,
        Route::Confirm => configured(send_command(shared, |reply| Command::Confirm { reply }).await),
        Route::Revert => configured(send_command(shared, |reply| Command::Revert { reply }).await),
        Route::Tune => json(StatusCode::OK, &shared.tune.search()),
        Route::StartTune => start_tune(shared, request).await,
        Route::StopTune if shared.tune.stop() => full(StatusCode::ACCEPTED, "application/json", ""),
        Route::StopTune => refusal(StatusCode::CONFLICT, "no search for rates is running"),
        Route::TunePlot => tune_plot(shared, parts[0]),
        Route::Doctor => match read_json::<Doctor>(request).await {
            Ok(Doctor { fix }) => helpers::doctor(shared, fix).await,
            Err(refusal) => refusal,
        },
        Route::Report => helpers::report(shared).await,
    }
}

/// `true` unless the `Host` header names a foreign host, as a browser does in a DNS rebinding attack. A request without the
/// header does not come from a browser.
fn is_host_allowed(headers: &HeaderMap) -> bool {
    let hosts = AllowedHosts::new(Vec::new());
    let mut named = headers.get_all(HOST).iter();
    let is_allowed = |host: &HeaderValue| host.to_str().is_ok_and(|host| hosts.allows(host));
    named.next().is_none_or(is_allowed) && named.next().is_none()
}

/// The response for a path that does not exist.
fn unknown() -> Response<ResponseBody> {
    let mut paths: Vec<&str> = ROUTES.iter().map(|(_, path, _)| *path).collect();
    paths.dedup();
    let message = format!("there is no such path; there are {}", paths.join(", "));
    refusal(StatusCode::NOT_FOUND, &message)
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
        Some(Err(errors)) => unprocessable(errors),
        None => busy(),
    }
}

fn events(shared: &Shared, slot: &ConnectionSlot<Option<u32>>) -> Response<ResponseBody> {
    let Some(permit) = slot.stream_permit() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_STREAMS);
    };
    let mut answer = sqm_http::events(shared.journal.subscribe());
    answer.body_mut().hold(permit);
    answer
}

async fn configuration(shared: &Shared) -> Response<ResponseBody> {
    match send_command(shared, |reply| Command::Read { reply }).await {
        Some(Ok(file)) => json(StatusCode::OK, &file),
        Some(Err(error)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        None => busy(),
    }
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
            Code::Conflict,
            vec!["another program has written the configuration since it was read".to_owned()],
            Some(revision),
        ),
        Some(Err(Refused::Unconfirmed)) => (
            StatusCode::CONFLICT,
            Code::Unconfirmed,
            vec!["another change waits for its confirmation".to_owned()],
            None,
        ),
        Some(Err(Refused::NothingWaits)) => (
            StatusCode::CONFLICT,
            Code::NothingWaits,
            vec!["no change waits for a confirmation: it was confirmed or rolled back already".to_owned()],
            None,
        ),
        Some(Err(Refused::Wrong(errors))) => (StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, errors, None),
        Some(Err(Refused::Failed(errors))) => (StatusCode::UNPROCESSABLE_ENTITY, Code::Failed, errors, None),
    };
    json(
        status,
        &Errors {
            version: VERSION,
            errors,
            code: Some(code),
            revision,
        },
    )
}

async fn start_tune(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<ResponseBody> {
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

fn tune_plot(shared: &Shared, name: &str) -> Response<ResponseBody> {
    match shared.tune.picture(name) {
        Some(picture) => full(StatusCode::OK, "image/svg+xml", picture),
        None => refusal(StatusCode::NOT_FOUND, "there is no such picture"),
    }
}

async fn apply(shared: &Shared, request: Request<Incoming>) -> Response<ResponseBody> {
    let body = match sqm_http::read_body(request.into_body()).await {
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
        Some(Err(errors)) => unprocessable(errors),
        None => busy(),
    }
}

/// Pauses an interface while the connection is open.
async fn pause(
    shared: &Shared,
    slot: &ConnectionSlot<Option<u32>>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let wanted: Pause = match read_json(request).await {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    if !(1..=MAX_SECONDS).contains(&wanted.seconds) {
        let message = format!("seconds is from 1 to {MAX_SECONDS}");
        return refusal(StatusCode::BAD_REQUEST, &message);
    }
    let Some(permit) = slot.stream_permit() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_STREAMS);
    };
    let paused = send_command(shared, |reply| Command::Pause {
        interface: wanted.interface,
        longest: Duration::from_secs(wanted.seconds.into()),
        reply,
    });
    match paused.await {
        Some(Ok(pause)) => {
            tokio::spawn(probe_client(pause.sender));
            let mut answer = sqm_http::events(pause.events);
            answer.body_mut().hold(permit);
            answer.body_mut().hold(pause.guard);
            answer
        }
        Some(Err(errors)) => unprocessable(errors),
        None => busy(),
    }
}

/// Sends comments to the client of a pause until the pause is over. A client may close its sending half and still read, so only a
/// failed write shows that it has gone.
async fn probe_client(sender: WeakSender<Bytes>) {
    loop {
        tokio::time::sleep(PAUSE_PROBE_INTERVAL).await;
        let Some(sender) = sender.upgrade() else { return };
        if let Err(TrySendError::Closed(_)) = sender.try_send(KEEP_ALIVE) {
            return;
        }
    }
}

/// Reads and parses the body of a request. The error is the response to send.
async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Response<ResponseBody>> {
    let body = sqm_http::read_body(request.into_body())
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

fn unprocessable(errors: Vec<String>) -> Response<ResponseBody> {
    errors_with(StatusCode::UNPROCESSABLE_ENTITY, errors)
}

/// An error response with one message.
pub(super) fn refusal(code: StatusCode, message: &str) -> Response<ResponseBody> {
    errors_with(code, vec![message.to_owned()])
}

fn errors_with(code: StatusCode, errors: Vec<String>) -> Response<ResponseBody> {
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

fn not_allowed(methods: &str) -> Response<ResponseBody> {
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
