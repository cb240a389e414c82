//! What can be asked, who may ask it, and how it is answered: docs/openapi.yaml.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json as value};
use tokio::sync::Semaphore;

use super::audit::Entry;
use super::config::Done;
use super::guest::Guest;
use super::network::Network;
use super::problem::{Handled, Problem};
use super::query::Query;
use super::runs::is_id;
use super::{assets, compare, config, describe, diagnose, guard, live, runs, session, status, tune};
use crate::app_state::AppState;
use sqm_http::{self, ResponseBody, full, json};

/// Of a request's body, bytes: a configuration of the largest size in JSON.
const MOST_BODY: usize = 256 * 1024;
/// Of the cookie.
const COOKIE_NAME: &str = "sqm_session";
const TOKEN: HeaderName = HeaderName::from_static("x-sqm-token");
const API: &str = "/api/v1/";
const DESCRIPTION: &str = include_str!("../../../docs/openapi.yaml");

/// Children that read results, and those of the daemon.
static WORKING: Semaphore = Semaphore::const_new(2);
/// One of them at most is for somebody who may change nothing, and a few wait for it.
static VISITOR_WORKING: Semaphore = Semaphore::const_new(1);
static VISITORS_IN_LINE: Semaphore = Semaphore::const_new(3);

/// Who asks.
struct Caller {
    from: SocketAddr,
    is_admin: bool,
    is_logged_in: bool,
    /// Of the session, or of those who have none.
    token: String,
    session: Option<String>,
}

pub(super) async fn answer(
    site: &Arc<AppState>,
    guest: &Guest,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let is_head = request.method() == Method::HEAD;
    let mut answer = handle(site, guest, request)
        .await
        .unwrap_or_else(Problem::into_answer);
    harden(answer.headers_mut());
    if is_head {
        *answer.body_mut() = ResponseBody::Full(None);
    }
    answer
}

async fn handle(site: &Arc<AppState>, guest: &Guest, request: Request<Incoming>) -> Handled {
    if let Some(reason) = guard::reject_reason(&site.hosts, request.headers(), site.tls) {
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
            "the request comes from the page of somebody else",
        ));
    }
    let caller = caller(site, guest.from, request.headers());
    let session = caller.session.as_deref();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return change(site, guest, caller, path, request).await;
    }
    let _turn = guest.turn(&site.rooms, session).await;
    let mut answer = read(site, &caller, path, request.uri().query()).await?;
    site.rooms.seat(guest, session, answer.body_mut())?;
    Ok(answer)
}

/// What changes nothing.
async fn read(site: &Arc<AppState>, caller: &Caller, path: &str, query: Option<&str>) -> Handled {
    let takes_no_query =
        !matches!(path, "live" | "history" | "audit" | "compare") && !path.starts_with("compare/");
    let only_admin = || {
        if caller.is_admin {
            Ok(())
        } else {
            Err(Problem::forbidden("log in first"))
        }
    };
    let parts: Vec<&str> = path.split('/').collect();
    let answer = match parts[..] {
        ["session"] => Ok(session_of(site, caller)),
        ["status"] => status::get(site).await,
        ["live"] => {
            let hz = Query::of(query, &["hz"])?.number("hz", 1, 5, 2)?;
            Ok(sqm_http::events(live::stream(site, hz)))
        }
        ["history"] => {
            let query = Query::of(query, &["seconds", "points"])?;
            let (seconds, points) = (
                query.number("seconds", 10, 3600, 3600)?,
                query.number("points", 10, 3600, 600)?,
            );
            Ok(json(StatusCode::OK, &site.history.tell(seconds, points)))
        }
        ["events"] => diagnose::events(site).await,
        ["options"] => describe::options(),
        ["links"] => describe::links(),
        ["interfaces"] => describe::interfaces(),
        ["config"] => config::get(site).await,
        ["tests"] => site.runs.list(),
        ["tests", id] => Ok(json(StatusCode::OK, &site.runs.get(known(id)?)?)),
        ["tests", id, "live"] => site.runs.live(known(id)?),
        ["tests", id, "result.flent.gz"] => site.runs.download(known(id)?),
        ["tests", id, "plots", plot] => {
            let _turn = turn(caller).await?;
            compare::plot_one(site, known(id)?, picture(plot)?).await
        }
        ["compare"] => {
            let _turn = turn(caller).await?;
            compare::tell(site, query).await
        }
        ["compare", plot] => {
            let _turn = turn(caller).await?;
            compare::plot(site, picture(plot)?, query).await
        }
        ["tune"] => tune::get(site).await,
        ["tune", "live"] => tune::live(site).await,
        ["tune", "plots", plot] => tune::plot(site, picture(plot)?).await,
        ["doctor"] => {
            let _turn = turn(caller).await?;
            Ok(json(StatusCode::OK, &diagnose::doctor(site, false).await?))
        }
        ["report"] => {
            only_admin()?;
            let _turn = turn(caller).await?;
            diagnose::report(site).await
        }
        ["audit"] => {
            only_admin()?;
            diagnose::audit(site, query)
        }
        ["openapi.yaml"] => Ok(full(StatusCode::OK, "application/yaml", DESCRIPTION)),
        _ => Err(elsewhere(&parts)),
    }?;
    if takes_no_query {
        Query::of(query, &[])?;
    }
    Ok(answer)
}

/// What changes something: only our own page knows the token.
async fn change(
    site: &Arc<AppState>,
    guest: &Guest,
    caller: Caller,
    path: &str,
    request: Request<Incoming>,
) -> Handled {
    let parts: Vec<&str> = path.split('/').collect();
    let method = request.method().clone();
    let what = match (&method, &parts[..]) {
        (&Method::POST, ["session"]) => "log-in",
        (&Method::DELETE, ["session"]) => "log-out",
        (&Method::PUT, ["config"]) => "config",
        (&Method::POST, ["config", "check"]) => "check",
        (&Method::POST, ["config", "confirm"]) => "confirm",
        (&Method::POST, ["config", "revert"]) => "revert",
        (&Method::POST, ["tests"]) => "test",
        (&Method::DELETE, ["tests", _]) => "delete-test",
        (&Method::POST, ["tests", _, "stop"]) => "stop-test",
        (&Method::POST, ["tune"]) => "tune",
        (&Method::POST, ["tune", "stop"]) => "stop-tune",
        (&Method::POST, ["tune", "accept"]) => "accept-tune",
        (&Method::POST, ["doctor", "fix"]) => "fix",
        _ => return Err(elsewhere(&parts)),
    };
    let mut entry = Entry::new(caller.is_admin, caller.from.ip(), what);
    let request = match admit(&caller, what, request).await {
        Ok(request) => request,
        Err(problem) => {
            record(site, &caller, entry, Some(&problem));
            return Err(problem);
        }
    };
    let turn = guest.turn(&site.rooms, caller.session.as_deref()).await;
    let (site, path) = (Arc::clone(site), path.to_owned());
    // On a task of its own: a browser that leaves now ends neither the change nor its entry in the log.
    let carried_out = tokio::spawn(async move {
        let _turn = turn;
        let parts: Vec<&str> = path.split('/').collect();
        let outcome = carry_out(&site, &caller, what, &parts, request, &mut entry).await;
        record(&site, &caller, entry, outcome.as_ref().err());
        outcome
    });
    let failed = |_| Err(Problem::unavailable("the server failed to carry this out"));
    carried_out.await.unwrap_or_else(failed)
}

/// The request with its whole body, if the caller may make it. While the body is on its way the connection counts as idle.
async fn admit(caller: &Caller, what: &str, request: Request<Incoming>) -> Result<Request<Bytes>, Problem> {
    if !knows_token(caller, request.headers()) {
        return Err(Problem::forbidden(
            "the header X-SQM-Token must say what GET /api/v1/session told as token",
        ));
    }
    if !caller.is_admin && !matches!(what, "log-in" | "log-out") {
        return Err(Problem::forbidden("log in first"));
    }
    Query::of(request.uri().query(), &[])?;
    let (head, body) = request.into_parts();
    Ok(Request::from_parts(
        head,
        sqm_http::read_body(body, MOST_BODY).await?,
    ))
}

/// Writes down what was changed, or that it was refused.
fn record(site: &AppState, caller: &Caller, entry: Entry, problem: Option<&Problem>) {
    // Neither a check nor the log-out of somebody who is not logged in changes anything.
    let is_nothing = entry.what == "check" || (entry.what == "log-out" && caller.session.is_none());
    match problem {
        None if is_nothing => {}
        None => site.audit.done(entry),
        Some(_) if entry.what == "check" => {}
        Some(problem) if problem.is_wrong_password() => site.audit.wrong_password(entry, problem.message()),
        Some(problem) => site
            .audit
            .refused(entry, Network::of(caller.from.ip()), problem.message()),
    }
}

async fn carry_out(
    site: &Arc<AppState>,
    caller: &Caller,
    what: &str,
    parts: &[&str],
    request: Request<Bytes>,
    entry: &mut Entry,
) -> Handled {
    let accepted = || Ok(empty(StatusCode::ACCEPTED));
    match (what, parts) {
        ("log-in", _) => log_in(site, caller, body(request)?).await,
        ("log-out", _) => Ok(log_out(site, caller)),
        ("check", _) => config::check(site, body(request)?).await,
        ("config", _) => {
            let put: config::Put = body(request)?;
            entry.before = Some(put.revision().to_owned());
            done(config::put(site, put).await?, entry)
        }
        ("confirm", _) => done(config::confirm(site).await?, entry),
        ("revert", _) => done(config::revert(site).await?, entry),
        ("test", _) => {
            let test = runs::start(site, body(request)?).await?;
            Ok(json(StatusCode::ACCEPTED, &test))
        }
        ("delete-test", [_, id]) => {
            site.runs.delete(known(id)?)?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        ("stop-test", [_, id, _]) => {
            site.runs.stop(known(id)?)?;
            accepted()
        }
        ("tune", _) => {
            let tune: Value = tune::start(site, body(request)?).await?;
            Ok(json(StatusCode::ACCEPTED, &tune))
        }
        ("stop-tune", _) => {
            tune::stop(site).await?;
            accepted()
        }
        ("accept-tune", _) => done(tune::accept(site, body(request)?).await?, entry),
        ("fix", _) => {
            let _turn = turn(caller).await?;
            Ok(json(StatusCode::OK, &diagnose::doctor(site, true).await?))
        }
        _ => Err(elsewhere(parts)),
    }
}

fn done(done: Done, entry: &mut Entry) -> Handled {
    entry.after = Some(done.revision);
    Ok(json(StatusCode::OK, &done.answer))
}

/// What `POST /session` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogIn {
    password: String,
}

async fn log_in(site: &Arc<AppState>, caller: &Caller, LogIn { password }: LogIn) -> Handled {
    if password.is_empty() || password.chars().count() > 1024 {
        return Err(Problem::bad_request("a password has 1 to 1024 letters"));
    }
    let hash = site.password.hash().map_err(|error| {
        Problem::unavailable(format!(
            "nobody can log in, because the password on the server cannot be looked at: {error}"
        ))
    })?;
    let Some(hash) = hash else {
        return Err(Problem::conflict(
            "no-password",
            "no password is set: 'sqm web --set-password' sets one",
        ));
    };
    let wait = site.sessions.tries(caller.from.ip(), Instant::now());
    if !wait.is_zero() {
        return Err(Problem::locked(wait.as_secs() + 1));
    }
    if !site.checker.is_right(hash.clone(), password).await {
        return Err(Problem::wrong_password());
    }
    site.sessions.right(caller.from.ip());
    if let Some(old) = &caller.session {
        site.sessions.end(old);
    }
    // Another name than any that the browser knew before: nobody can have given it one.
    let begun = site.sessions.begin(&hash, Instant::now());
    let (id, token) = begun.map_err(|error| Problem::unavailable(format!("{error:#}")))?;
    let caller = Caller {
        from: caller.from,
        is_admin: true,
        is_logged_in: true,
        token,
        session: Some(id.clone()),
    };
    let mut answer = session_of(site, &caller);
    set_cookie(site, &mut answer, &id, "");
    Ok(answer)
}

fn log_out(site: &AppState, caller: &Caller) -> Response<ResponseBody> {
    if let Some(session) = &caller.session {
        site.sessions.end(session);
    }
    let mut answer = empty(StatusCode::NO_CONTENT);
    set_cookie(site, &mut answer, "", "; Max-Age=0");
    answer
}

fn set_cookie(site: &AppState, answer: &mut Response<ResponseBody>, id: &str, more: &str) {
    let secure = if site.tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE_NAME}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
}

fn session_of(site: &AppState, caller: &Caller) -> Response<ResponseBody> {
    let answer = value!({
        "role": if caller.is_admin { "admin" } else { "reader" },
        // One that cannot be looked at is there.
        "password_set": !matches!(site.password.hash(), Ok(None)),
        "logged_in": caller.is_logged_in,
        "token": caller.token,
        "program": env!("CARGO_PKG_VERSION"),
        "tls": site.tls,
    });
    json(StatusCode::OK, &answer)
}

fn caller(site: &AppState, from: SocketAddr, headers: &HeaderMap) -> Caller {
    let Ok(hash) = site.password.hash() else {
        // Whoever cannot be told from others changes nothing.
        return Caller {
            from,
            is_admin: false,
            is_logged_in: false,
            token: site.sessions.token().to_owned(),
            session: None,
        };
    };
    let cookie = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
    let now = Instant::now();
    let found = cookie.and_then(|id| Some((id.to_owned(), site.sessions.find(id, hash.as_deref(), now)?)));
    // Without a password whoever is on this machine may do everything, and nobody else reaches it.
    let is_open = hash.is_none() && site.is_local && from.ip().is_loopback();
    let is_logged_in = found.is_some();
    let (session, token) = found.map_or_else(
        || (None, site.sessions.token().to_owned()),
        |(id, token)| (Some(id), token),
    );
    Caller {
        from,
        is_admin: is_open || is_logged_in,
        is_logged_in,
        token,
        session,
    }
}

fn knows_token(caller: &Caller, headers: &HeaderMap) -> bool {
    let told = headers.get(TOKEN).and_then(|token| token.to_str().ok());
    told.is_some_and(|token| session::is_same(&caller.token, token))
}

/// The body as what it should be.
fn body<T: DeserializeOwned>(request: Request<Bytes>) -> Result<T, Problem> {
    let kind = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        return Err(Problem::not_json());
    }
    decode(&request.into_body())
}

/// A body as what it should be.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let wrong = |error| Problem::bad_request(format!("the body is not as documented: {error}"));
    let mut value: Value = serde_json::from_slice(bytes).map_err(wrong)?;
    // A list of values would do for the fields of an object, too.
    if !value.is_object() {
        return Err(Problem::bad_request(
            "the body is not as documented: it is no object",
        ));
    }
    make_whole(&mut value);
    serde_json::from_value(value).map_err(wrong)
}

/// JSON knows no integers: 60.0 is one, however it is written.
fn make_whole(value: &mut Value) {
    /// Up to here every whole number is a floating-point number.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < MOST);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// A place for something that takes a while; refused if too many wait for one.
async fn turn(caller: &Caller) -> Result<impl Sized, Problem> {
    let busy = || Problem::unavailable("too much is asked at once: try again");
    let waits = async {
        let visitor = if caller.is_admin {
            None
        } else {
            let in_line = VISITORS_IN_LINE.try_acquire().map_err(|_| busy())?;
            Some((in_line, VISITOR_WORKING.acquire().await))
        };
        Ok((visitor, WORKING.acquire().await))
    };
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, waits)
        .await
        .unwrap_or_else(|_| Err(busy()))
}

fn known(id: &str) -> Result<&str, Problem> {
    if is_id(id) {
        return Ok(id);
    }
    Err(Problem::not_found("there is no such test"))
}

fn picture(name: &str) -> Result<&str, Problem> {
    name.strip_suffix(".svg")
        .ok_or_else(|| Problem::not_found("there is no such picture"))
}

fn empty(code: StatusCode) -> Response<ResponseBody> {
    let mut answer = full(code, "application/json", "");
    answer.headers_mut().remove(CONTENT_TYPE);
    answer
}

/// A path that is there for other methods, or not at all.
fn elsewhere(parts: &[&str]) -> Problem {
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
        _ => return Problem::not_found("GET /api/v1/openapi.yaml tells what there is"),
    })
}

/// What browsers are to keep from doing with any answer.
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
