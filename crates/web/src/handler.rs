//! Answers the requests of browsers: files of the page, and the API.

use std::sync::Arc;
use std::time::Duration;

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
use super::routes::{API, Change, ROUTES, Read, Route};
use super::test_jobs::is_id;
use super::{
    assets, compare, config, diagnose, guard, hub, line_rates, metadata, sampling, status, test_run, tune,
};
use crate::app_state::{AppState, Front, Page};
use sqm_http::{self, Found, ResponseBody, full, json};

/// The description of the API, which the server answers, too.
pub(super) const DESCRIPTION: &str = include_str!("../../../docs/openapi.yaml");

/// Places for requests that start a child process, here or at the daemon.
static WORKING: Semaphore = Semaphore::const_new(2);
/// The place that users who are not logged in share.
static READER_WORKING: Semaphore = Semaphore::const_new(1);
/// Such users that may wait for it.
static READERS_WAITING: Semaphore = Semaphore::const_new(3);
/// How long a request waits for its place. Our choice.
const WORK_PATIENCE: Duration = Duration::from_secs(30);

/// Answers a request. Errors are answers, too.
pub(super) async fn answer(
    front: &Arc<Front>,
    connection: &ClientConnection,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let is_head = request.method() == Method::HEAD;
    let mut answer = handle(front, connection, request)
        .await
        .unwrap_or_else(Problem::into_answer);
    harden(answer.headers_mut());
    if is_head {
        *answer.body_mut() = ResponseBody::Full(None);
    }
    answer
}

async fn handle(front: &Arc<Front>, connection: &ClientConnection, request: Request<Incoming>) -> ApiResult {
    if let Some(reason) = guard::reject_reason(&front.hosts, request.headers(), front.tls) {
        return Err(Problem::forbidden(reason));
    }
    let path = request.uri().path().to_owned();
    let Some(path) = path.strip_prefix(API) else {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        return match assets::find(front.page.file(), &path, request.headers()) {
            Some(file) if is_read => Ok(file),
            Some(_) => Err(Problem::not_allowed("GET, HEAD".to_owned())),
            None => Err(Problem::not_found("there is no such page")),
        };
    };
    if guard::is_from_elsewhere(request.headers()) {
        return Err(Problem::forbidden(
            "the request comes from a page of another site",
        ));
    }
    let principal = Principal::of(front, connection.from, request.headers());
    let (read, parts) = match sqm_http::find(&ROUTES, request.method(), path) {
        Found::Route(Route::Change(change), parts) => {
            let id = parts.first().map(|id| (*id).to_owned()).unwrap_or_default();
            return carry_out(front, connection, principal, (change, id), request).await;
        }
        Found::Route(Route::Read(read), parts) => (Ok(read), parts),
        Found::OtherMethods(methods) => (Err(Problem::not_allowed(methods)), Vec::new()),
        Found::Nothing => {
            let message = "there is no such path; GET /api/v1/openapi.yaml describes all";
            (Err(Problem::not_found(message)), Vec::new())
        }
    };
    let session = principal.session.as_deref();
    // A refusal waits for its turn, too.
    let _turn = connection.turn(&front.pools, session).await;
    let mut answer = read_only(front, &principal, read?, &parts, request.uri().query()).await?;
    connection.count_stream(answer.body_mut())?;
    Ok(answer)
}

/// Answers a request that changes nothing. `parts` are the variable parts of its path.
async fn read_only(
    front: &Arc<Front>,
    principal: &Principal,
    read: Read,
    parts: &[&str],
    query: Option<&str>,
) -> ApiResult {
    if !principal.is_admin && !read.is_for_readers() {
        return Err(Problem::forbidden("log in first"));
    }
    let query = Query::of(query, read.query())?;
    let _place = match read.starts_child() {
        true => Some(work_place(principal).await?),
        false => None,
    };
    match (read, &front.page) {
        (Read::Session, _) => Ok(principal::session(front, principal)),
        (Read::Audit, _) => diagnose::audit(front, &query),
        (Read::Description, _) => Ok(full(StatusCode::OK, "application/yaml", DESCRIPTION)),
        (read, Page::Hub(hub)) => hub.read(read, parts).await,
        (read, Page::Router(state)) => of_router(state, read, parts, &query).await,
    }
}

/// Answers a request that changes nothing, on a router.
async fn of_router(state: &Arc<AppState>, read: Read, parts: &[&str], query: &Query<'_>) -> ApiResult {
    match read {
        Read::Status => status::get(state).await,
        Read::Live => {
            let hz = query.number("hz", 1, 5, 2)?;
            Ok(sqm_http::events(sampling::stream(state, hz)))
        }
        Read::History => {
            let (seconds, points) = (
                query.number("seconds", 10, 3600, 3600)?,
                query.number("points", 10, 3600, 600)?,
            );
            Ok(json(StatusCode::OK, &state.history.tell(seconds, points)))
        }
        Read::Events => diagnose::events(state).await,
        Read::Options => metadata::options(),
        Read::Links => metadata::links(),
        Read::Interfaces => metadata::interfaces(),
        Read::Config => config::get(state).await,
        Read::Tests => state.test_jobs.list(),
        Read::Test => Ok(json(StatusCode::OK, &state.test_jobs.get(known(parts[0])?)?)),
        Read::TestLive => state.test_jobs.live(known(parts[0])?),
        Read::TestFile => state.test_jobs.download(known(parts[0])?),
        Read::TestPlot => compare::plot_one(state, known(parts[0])?, parts[1], query).await,
        Read::Comparison => compare::tell(state, query).await,
        Read::ComparisonPlot => compare::plot(state, parts[0], query).await,
        Read::Tune => tune::get(state).await,
        Read::TuneLive => tune::live(state).await,
        Read::TunePlot => tune::plot(state, parts[0], query).await,
        Read::Doctor => Ok(json(StatusCode::OK, &diagnose::doctor(state, false).await?)),
        Read::Report => diagnose::report(state).await,
        Read::Fleet | Read::FleetRouter | Read::FleetRollOut => Err(Problem::not_found(
            "this is the page of a router; 'sqm fleet web' serves that of a fleet",
        )),
        Read::Session | Read::Audit | Read::Description => unreachable!("both pages have these"),
    }
}

/// Carries out a request that changes something, of a client that has the token. `change` comes with the variable part of
/// its path.
async fn carry_out(
    front: &Arc<Front>,
    connection: &ClientConnection,
    principal: Principal,
    (change, id): (Change, String),
    request: Request<Incoming>,
) -> ApiResult {
    let mut entry = Entry::new(principal.is_admin, principal.from.ip(), change.name());
    let request = match admit(&principal, change, request).await {
        Ok(request) => request,
        Err(problem) => {
            record(front, &principal, change, entry, Some(&problem));
            return Err(problem);
        }
    };
    let turn = connection.turn(&front.pools, principal.session.as_deref()).await;
    let front = Arc::clone(front);
    // In a task of its own: if the browser disconnects now, the change and its entry in the audit log are still completed.
    let carried_out = tokio::spawn(async move {
        let _turn = turn;
        let outcome = make_change(&front, &principal, change, &id, request, &mut entry).await;
        record(&front, &principal, change, entry, outcome.as_ref().err());
        outcome
    });
    let failed = |_| Err(Problem::unavailable("the server failed to carry this out"));
    carried_out.await.unwrap_or_else(failed)
}

/// Reads the body of a request, if the principal may make the request. The connection counts as idle meanwhile.
async fn admit(
    principal: &Principal,
    change: Change,
    request: Request<Incoming>,
) -> Result<Request<Bytes>, Problem> {
    if !principal.knows_token(request.headers()) {
        return Err(Problem::forbidden(
            "the header X-SQM-Token must be the token that GET /api/v1/session answers",
        ));
    }
    if !principal.is_admin && !change.is_for_readers() {
        return Err(Problem::forbidden("log in first"));
    }
    Query::of(request.uri().query(), &[])?;
    let (head, body) = request.into_parts();
    Ok(Request::from_parts(head, sqm_http::read_body(body).await?))
}

/// Writes a change, or its refusal, to the audit log.
fn record(front: &Front, principal: &Principal, change: Change, entry: Entry, problem: Option<&Problem>) {
    let is_check = change.is_check();
    // Neither a check nor the log-out of a user who is not logged in changes anything.
    let changes_nothing = is_check || (change == Change::LogOut && principal.session.is_none());
    match problem {
        None if changes_nothing => {}
        None => front.audit.done(entry),
        Some(_) if is_check => {}
        Some(problem) if problem.is_wrong_password() => front.audit.wrong_password(entry, problem.message()),
        Some(problem) => {
            let network = Network::of(principal.from.ip());
            front.audit.refused(entry, network, problem.message());
        }
    }
}

async fn make_change(
    front: &Arc<Front>,
    principal: &Principal,
    change: Change,
    id: &str,
    request: Request<Bytes>,
    entry: &mut Entry,
) -> ApiResult {
    match (change, &front.page) {
        (Change::LogIn, _) => principal::log_in(front, principal, body(request)?).await,
        (Change::LogOut, _) => Ok(principal::log_out(front, principal)),
        (_, Page::Hub(_)) => Err(hub::not_here()),
        (change, Page::Router(state)) => change_router(state, principal, change, id, request, entry).await,
    }
}

async fn change_router(
    state: &Arc<AppState>,
    principal: &Principal,
    change: Change,
    id: &str,
    request: Request<Bytes>,
    entry: &mut Entry,
) -> ApiResult {
    let accepted = || Ok(empty(StatusCode::ACCEPTED));
    match change {
        Change::LogIn | Change::LogOut => unreachable!("both pages have these"),
        Change::CheckConfig => config::check(state, body(request)?).await,
        Change::ReadRates => line_rates::read(&body(request)?),
        Change::PutConfig => {
            let put: config::Put = body(request)?;
            entry.before = Some(put.revision().to_owned());
            applied(config::put(state, put).await?, entry)
        }
        Change::ConfirmConfig => applied(config::confirm(state).await?, entry),
        Change::RevertConfig => applied(config::revert(state).await?, entry),
        Change::StartTest => {
            let test = test_run::start(state, body(request)?).await?;
            Ok(json(StatusCode::ACCEPTED, &test))
        }
        Change::DeleteTest => {
            state.test_jobs.delete(known(id)?)?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        Change::StopTest => {
            state.test_jobs.stop(known(id)?)?;
            accepted()
        }
        Change::StartTune => {
            let search = tune::start(state, body_without_null(request)?).await?;
            Ok(json(StatusCode::ACCEPTED, &search))
        }
        Change::StopTune => {
            tune::stop(state).await?;
            accepted()
        }
        Change::AcceptTune => applied(tune::accept(state, body(request)?).await?, entry),
        Change::Fix => {
            let _place = work_place(principal).await?;
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
async fn work_place(principal: &Principal) -> Result<impl Sized, Problem> {
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
    tokio::time::timeout(WORK_PATIENCE, waits)
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
