//! The routes of the API (docs/openapi.yaml): who may use them, and how they are answered.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;

use super::answers::empty;
use super::audit::Entry;
use super::body::{body, body_without_null};
use super::config::Applied;
use super::connection::ClientConnection;
use super::network::Network;
use super::principal::{self, Principal};
use super::problem::{ApiResult, Problem};
use super::query::Query;
use super::test_jobs::is_id;
use super::{assets, compare, config, diagnose, guard, live, metadata, status, test_run, tune};
use crate::app_state::AppState;
use sqm_http::{self, ResponseBody, full, json};

/// The largest body of a request, in bytes: a configuration of the largest size as JSON.
const MOST_BODY: usize = 256 * 1024;
const API: &str = "/api/v1/";
const DESCRIPTION: &str = include_str!("../../../docs/openapi.yaml");

/// Places for requests that start a child process, here or at the daemon.
static WORKING: Semaphore = Semaphore::const_new(2);
/// The place that users who are not logged in share.
static READER_WORKING: Semaphore = Semaphore::const_new(1);
/// Such users that may wait for it.
static READERS_WAITING: Semaphore = Semaphore::const_new(3);

/// Answers a request. Errors are answers, too.
pub(super) async fn answer(
    state: &Arc<AppState>,
    connection: &ClientConnection,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let is_head = request.method() == Method::HEAD;
    let mut answer = handle(state, connection, request)
        .await
        .unwrap_or_else(Problem::into_answer);
    harden(answer.headers_mut());
    if is_head {
        *answer.body_mut() = ResponseBody::Full(None);
    }
    answer
}

async fn handle(
    state: &Arc<AppState>,
    connection: &ClientConnection,
    request: Request<Incoming>,
) -> ApiResult {
    if let Some(reason) = guard::reject_reason(&state.hosts, request.headers(), state.tls) {
        return Err(Problem::forbidden(reason));
    }
    let path = request.uri().path().to_owned();
    let Some(path) = path.strip_prefix(API) else {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        return match assets::find(&path, request.headers()) {
            Some(file) if is_read => Ok(file),
            Some(_) => Err(Problem::not_allowed("GET, HEAD")),
            None => Err(Problem::not_found("there is no such page")),
        };
    };
    if guard::is_from_elsewhere(request.headers()) {
        return Err(Problem::forbidden(
            "the request comes from a page of another site",
        ));
    }
    let principal = Principal::of(state, connection.from, request.headers());
    let session = principal.session.as_deref();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return change(state, connection, principal, path, request).await;
    }
    let _turn = connection.turn(&state.pools, session).await;
    let mut answer = read(state, &principal, path, request.uri().query()).await?;
    state.pools.count_stream(connection, session, answer.body_mut())?;
    Ok(answer)
}

/// Answers a request that changes nothing.
async fn read(state: &Arc<AppState>, principal: &Principal, path: &str, query: Option<&str>) -> ApiResult {
    let takes_no_query =
        !matches!(path, "live" | "history" | "audit" | "compare") && !path.starts_with("compare/");
    let only_admin = || {
        if principal.is_admin {
            Ok(())
        } else {
            Err(Problem::forbidden("log in first"))
        }
    };
    let parts: Vec<&str> = path.split('/').collect();
    let answer = match parts[..] {
        ["session"] => Ok(principal::session(state, principal)),
        ["status"] => status::get(state).await,
        ["live"] => {
            let hz = Query::of(query, &["hz"])?.number("hz", 1, 5, 2)?;
            Ok(sqm_http::events(live::stream(state, hz)))
        }
        ["history"] => {
            let query = Query::of(query, &["seconds", "points"])?;
            let (seconds, points) = (
                query.number("seconds", 10, 3600, 3600)?,
                query.number("points", 10, 3600, 600)?,
            );
            Ok(json(StatusCode::OK, &state.history.tell(seconds, points)))
        }
        ["events"] => diagnose::events(state).await,
        ["options"] => metadata::options(),
        ["links"] => metadata::links(),
        ["interfaces"] => metadata::interfaces(),
        ["config"] => config::get(state).await,
        ["tests"] => state.test_jobs.list(),
        ["tests", id] => Ok(json(StatusCode::OK, &state.test_jobs.get(known(id)?)?)),
        ["tests", id, "live"] => state.test_jobs.live(known(id)?),
        ["tests", id, "result.flent.gz"] => state.test_jobs.download(known(id)?),
        ["tests", id, "plots", plot] => {
            let _turn = turn(principal).await?;
            compare::plot_one(state, known(id)?, picture(plot)?).await
        }
        ["compare"] => {
            let _turn = turn(principal).await?;
            compare::tell(state, query).await
        }
        ["compare", plot] => {
            let _turn = turn(principal).await?;
            compare::plot(state, picture(plot)?, query).await
        }
        ["tune"] => tune::get(state).await,
        ["tune", "live"] => tune::live(state).await,
        ["tune", "plots", plot] => tune::plot(state, picture(plot)?).await,
        ["doctor"] => {
            let _turn = turn(principal).await?;
            Ok(json(StatusCode::OK, &diagnose::doctor(state, false).await?))
        }
        ["report"] => {
            only_admin()?;
            let _turn = turn(principal).await?;
            diagnose::report(state).await
        }
        ["audit"] => {
            only_admin()?;
            diagnose::audit(state, query)
        }
        ["openapi.yaml"] => Ok(full(StatusCode::OK, "application/yaml", DESCRIPTION)),
        _ => Err(not_found_or_method(&parts)),
    }?;
    if takes_no_query {
        Query::of(query, &[])?;
    }
    Ok(answer)
}

/// A request that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    LogIn,
    LogOut,
    PutConfig,
    CheckConfig,
    ConfirmConfig,
    RevertConfig,
    StartTest,
    DeleteTest(String),
    StopTest(String),
    StartTune,
    StopTune,
    AcceptTune,
    Fix,
}

impl Route {
    fn of(method: &Method, path: &str) -> Result<Self, Problem> {
        let parts: Vec<&str> = path.split('/').collect();
        Ok(match (method, &parts[..]) {
            (&Method::POST, ["session"]) => Self::LogIn,
            (&Method::DELETE, ["session"]) => Self::LogOut,
            (&Method::PUT, ["config"]) => Self::PutConfig,
            (&Method::POST, ["config", "check"]) => Self::CheckConfig,
            (&Method::POST, ["config", "confirm"]) => Self::ConfirmConfig,
            (&Method::POST, ["config", "revert"]) => Self::RevertConfig,
            (&Method::POST, ["tests"]) => Self::StartTest,
            (&Method::DELETE, ["tests", id]) => Self::DeleteTest((*id).to_owned()),
            (&Method::POST, ["tests", id, "stop"]) => Self::StopTest((*id).to_owned()),
            (&Method::POST, ["tune"]) => Self::StartTune,
            (&Method::POST, ["tune", "stop"]) => Self::StopTune,
            (&Method::POST, ["tune", "accept"]) => Self::AcceptTune,
            (&Method::POST, ["doctor", "fix"]) => Self::Fix,
            _ => return Err(not_found_or_method(&parts)),
        })
    }

    /// The name in the audit log.
    const fn name(&self) -> &'static str {
        match self {
            Self::LogIn => "log-in",
            Self::LogOut => "log-out",
            Self::PutConfig => "config",
            Self::CheckConfig => "check",
            Self::ConfirmConfig => "confirm",
            Self::RevertConfig => "revert",
            Self::StartTest => "test",
            Self::DeleteTest(_) => "delete-test",
            Self::StopTest(_) => "stop-test",
            Self::StartTune => "tune",
            Self::StopTune => "stop-tune",
            Self::AcceptTune => "accept-tune",
            Self::Fix => "fix",
        }
    }

    /// True if users who are not logged in may make it.
    const fn is_for_readers(&self) -> bool {
        matches!(self, Self::LogIn | Self::LogOut)
    }
}

/// Carries out a request that changes something. It must have the token, which only our own page knows.
async fn change(
    state: &Arc<AppState>,
    connection: &ClientConnection,
    principal: Principal,
    path: &str,
    request: Request<Incoming>,
) -> ApiResult {
    let route = Route::of(request.method(), path)?;
    let mut entry = Entry::new(principal.is_admin, principal.from.ip(), route.name());
    let request = match admit(&principal, &route, request).await {
        Ok(request) => request,
        Err(problem) => {
            record(state, &principal, &route, entry, Some(&problem));
            return Err(problem);
        }
    };
    let turn = connection.turn(&state.pools, principal.session.as_deref()).await;
    let state = Arc::clone(state);
    // In a task of its own: if the browser disconnects now, the change and its entry in the audit log are still completed.
    let carried_out = tokio::spawn(async move {
        let _turn = turn;
        let outcome = carry_out(&state, &principal, &route, request, &mut entry).await;
        record(&state, &principal, &route, entry, outcome.as_ref().err());
        outcome
    });
    let failed = |_| Err(Problem::unavailable("the server failed to carry this out"));
    carried_out.await.unwrap_or_else(failed)
}

/// Reads the body of a request, if the principal may make the request. The connection counts as idle meanwhile.
async fn admit(
    principal: &Principal,
    route: &Route,
    request: Request<Incoming>,
) -> Result<Request<Bytes>, Problem> {
    if !principal.knows_token(request.headers()) {
        return Err(Problem::forbidden(
            "the header X-SQM-Token must be the token that GET /api/v1/session answers",
        ));
    }
    if !principal.is_admin && !route.is_for_readers() {
        return Err(Problem::forbidden("log in first"));
    }
    Query::of(request.uri().query(), &[])?;
    let (head, body) = request.into_parts();
    Ok(Request::from_parts(
        head,
        sqm_http::read_body(body, MOST_BODY).await?,
    ))
}

/// Writes a change, or its refusal, to the audit log.
fn record(state: &AppState, principal: &Principal, route: &Route, entry: Entry, problem: Option<&Problem>) {
    let is_check = *route == Route::CheckConfig;
    // Neither a check nor the log-out of a user who is not logged in changes anything.
    let changes_nothing = is_check || (*route == Route::LogOut && principal.session.is_none());
    match problem {
        None if changes_nothing => {}
        None => state.audit.done(entry),
        Some(_) if is_check => {}
        Some(problem) if problem.is_wrong_password() => state.audit.wrong_password(entry, problem.message()),
        Some(problem) => {
            let network = Network::of(principal.from.ip());
            state.audit.refused(entry, network, problem.message());
        }
    }
}

async fn carry_out(
    state: &Arc<AppState>,
    principal: &Principal,
    route: &Route,
    request: Request<Bytes>,
    entry: &mut Entry,
) -> ApiResult {
    let accepted = || Ok(empty(StatusCode::ACCEPTED));
    match route {
        Route::LogIn => principal::log_in(state, principal, body(request)?).await,
        Route::LogOut => Ok(principal::log_out(state, principal)),
        Route::CheckConfig => config::check(state, body(request)?).await,
        Route::PutConfig => {
            let put: config::Put = body(request)?;
            entry.before = Some(put.revision().to_owned());
            applied(config::put(state, put).await?, entry)
        }
        Route::ConfirmConfig => applied(config::confirm(state).await?, entry),
        Route::RevertConfig => applied(config::revert(state).await?, entry),
        Route::StartTest => {
            let test = test_run::start(state, body(request)?).await?;
            Ok(json(StatusCode::ACCEPTED, &test))
        }
        Route::DeleteTest(id) => {
            state.test_jobs.delete(known(id)?)?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        Route::StopTest(id) => {
            state.test_jobs.stop(known(id)?)?;
            accepted()
        }
        Route::StartTune => {
            let search = tune::start(state, body_without_null(request)?).await?;
            Ok(json(StatusCode::ACCEPTED, &search))
        }
        Route::StopTune => {
            tune::stop(state).await?;
            accepted()
        }
        Route::AcceptTune => applied(tune::accept(state, body(request)?).await?, entry),
        Route::Fix => {
            let _turn = turn(principal).await?;
            Ok(json(StatusCode::OK, &diagnose::doctor(state, true).await?))
        }
    }
}

fn applied(change: Applied, entry: &mut Entry) -> ApiResult {
    let answer = json(StatusCode::OK, &change);
    entry.after = Some(change.revision);
    Ok(answer)
}

/// Waits for a place for work that takes seconds; an error if too many requests wait.
async fn turn(principal: &Principal) -> Result<impl Sized, Problem> {
    let busy = || Problem::unavailable("too many requests at once: try again");
    let waits = async {
        let reader = if principal.is_admin {
            None
        } else {
            let waiting = READERS_WAITING.try_acquire().map_err(|_| busy())?;
            Some((waiting, READER_WORKING.acquire().await))
        };
        Ok((reader, WORKING.acquire().await))
    };
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, waits)
        .await
        .unwrap_or_else(|_| Err(busy()))
}

/// The id, if it has the form of one.
fn known(id: &str) -> Result<&str, Problem> {
    if is_id(id) {
        return Ok(id);
    }
    Err(Problem::not_found("there is no such test"))
}

/// The name of a picture without its ending.
fn picture(name: &str) -> Result<&str, Problem> {
    name.strip_suffix(".svg")
        .ok_or_else(|| Problem::not_found("there is no such picture"))
}

/// The error for a path that exists with other methods only, or does not exist.
fn not_found_or_method(parts: &[&str]) -> Problem {
    Problem::not_allowed(match parts {
        ["session"] => "GET, HEAD, POST, DELETE",
        ["config"] => "GET, HEAD, PUT",
        ["tests" | "tune"] => "GET, HEAD, POST",
        ["tests", id] if is_id(id) => "GET, HEAD, DELETE",
        ["tests", id, "stop"] if is_id(id) => "POST",
        ["tests", id, "live" | "result.flent.gz"] | ["tests", id, "plots", _] if is_id(id) => "GET, HEAD",
        ["config", "check" | "confirm" | "revert"] | ["tune", "stop" | "accept"] | ["doctor", "fix"] => {
            "POST"
        }
        [
            "status" | "live" | "history" | "events" | "options" | "links" | "interfaces" | "compare"
            | "doctor" | "report" | "audit" | "openapi.yaml",
        ]
        | ["compare", _]
        | ["tune", "live"]
        | ["tune", "plots", _] => "GET, HEAD",
        _ => return Problem::not_found("there is no such path; GET /api/v1/openapi.yaml describes all"),
    })
}

/// Sets the headers that restrict what browsers do with an answer.
fn harden(headers: &mut HeaderMap) {
    const RULES: [(&str, &str); 7] = [
        (
            "content-security-policy",
            "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "permissions-policy",
            "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        ),
    ];
    for (name, value) in RULES {
        headers
            .entry(HeaderName::from_static(name))
            .or_insert(HeaderValue::from_static(value));
    }
}
