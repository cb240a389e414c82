//! The user of a request, and logging in and out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::answers::empty;
use super::problem::{ApiResult, Problem};
use super::session;
use crate::app_state::Front;
use sqm_http::{ResponseBody, json};

/// The name of the session's cookie.
const COOKIE_NAME: &str = "sqm_session";
/// The header in which our own page sends the token.
const TOKEN: HeaderName = HeaderName::from_static("x-sqm-token");

/// The user of a request.
pub(super) struct Principal {
    pub(super) from: SocketAddr,
    /// True if the user may change something.
    pub(super) is_admin: bool,
    is_logged_in: bool,
    /// The token of the session, or the one of all users without a session.
    token: String,
    /// The id of the session.
    pub(super) session: Option<String>,
}

impl Principal {
    /// The user of a request from this address with these headers.
    pub(super) fn of(front: &Front, from: SocketAddr, headers: &HeaderMap) -> Self {
        let Ok(hash) = front.password.hash() else {
            // Without a readable password no user can be identified, so none may change anything.
            return Self {
                from,
                is_admin: false,
                is_logged_in: false,
                token: front.sessions.token().to_owned(),
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
        let found =
            cookie.and_then(|id| Some((id.to_owned(), front.sessions.find(id, hash.as_deref(), now)?)));
        // Without a password all users of this machine are administrators, and only this machine reaches the server.
        let is_open = hash.is_none() && front.is_local && from.ip().is_loopback();
        let is_logged_in = found.is_some();
        let (session, token) = found.map_or_else(
            || (None, front.sessions.token().to_owned()),
            |(id, token)| (Some(id), token),
        );
        Self {
            from,
            is_admin: is_open || is_logged_in,
            is_logged_in,
            token,
            session,
        }
    }

    /// True if the headers have the token of this user.
    pub(super) fn knows_token(&self, headers: &HeaderMap) -> bool {
        let token = headers.get(TOKEN).and_then(|token| token.to_str().ok());
        token.is_some_and(|token| session::is_same(&self.token, token))
    }
}

/// The body of `POST /session`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogIn {
    password: String,
}

/// Checks the password and begins a session.
pub(super) async fn log_in(
    front: &Arc<Front>,
    principal: &Principal,
    LogIn { password }: LogIn,
) -> ApiResult {
    if password.is_empty() || password.chars().count() > 1024 {
        return Err(Problem::bad_request("a password has 1 to 1024 characters"));
    }
    let hash = front.password.hash().map_err(|error| {
        Problem::unavailable(format!(
            "nobody can log in, because the server cannot read its password: {error}"
        ))
    })?;
    let Some(hash) = hash else {
        return Err(Problem::conflict(
            "no-password",
            "no password is set: 'sqm web --set-password' sets one",
        ));
    };
    let wait = front.sessions.try_password(principal.from.ip(), Instant::now());
    if !wait.is_zero() {
        return Err(Problem::locked(wait.as_secs() + 1));
    }
    if !front.checker.is_right(hash.clone(), password).await {
        return Err(Problem::wrong_password());
    }
    front.sessions.succeeded(principal.from.ip());
    if let Some(old) = &principal.session {
        front.sessions.end(old);
    }
    // A new id, so that no id which another site planted in the browser becomes a session.
    let begun = front.sessions.begin(&hash, Instant::now());
    let (id, token) = begun.map_err(|error| Problem::unavailable(format!("{error:#}")))?;
    let principal = Principal {
        from: principal.from,
        is_admin: true,
        is_logged_in: true,
        token,
        session: Some(id.clone()),
    };
    let mut answer = session(front, &principal);
    set_cookie(front, &mut answer, &id, "");
    Ok(answer)
}

/// Ends the session, if there is one.
pub(super) fn log_out(front: &Front, principal: &Principal) -> Response<ResponseBody> {
    if let Some(session) = &principal.session {
        front.sessions.end(session);
    }
    let mut answer = empty(StatusCode::NO_CONTENT);
    set_cookie(front, &mut answer, "", "; Max-Age=0");
    answer
}

fn set_cookie(front: &Front, answer: &mut Response<ResponseBody>, id: &str, more: &str) {
    let secure = if front.tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE_NAME}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
}

/// The answer to `GET /session`.
#[derive(Serialize)]
struct Session<'a> {
    role: &'static str,
    password_set: bool,
    logged_in: bool,
    token: &'a str,
    program: &'static str,
    tls: bool,
}

pub(super) fn session(front: &Front, principal: &Principal) -> Response<ResponseBody> {
    let answer = Session {
        role: if principal.is_admin { "admin" } else { "reader" },
        // A password file that cannot be read counts as a password.
        password_set: !matches!(front.password.hash(), Ok(None)),
        logged_in: principal.is_logged_in,
        token: &principal.token,
        program: env!("CARGO_PKG_VERSION"),
        tls: front.tls,
    };
    json(StatusCode::OK, &answer)
}
