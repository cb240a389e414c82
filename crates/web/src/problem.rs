//! Error responses (docs/openapi.yaml).

use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;
use sqm_api::client;
use sqm_api::error::{Code, Errors};

use super::finding::Finding;
use sqm_http::{BodyError, ResponseBody, json};

/// An error response.
#[derive(Clone, Debug)]
pub(super) struct Problem(Box<Body>);

#[derive(Clone, Debug, Serialize)]
struct Body {
    #[serde(skip)]
    status: StatusCode,
    /// The error code, for programs.
    code: &'static str,
    /// The message, for people.
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
    /// The current revision of the configuration, after a conflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    #[serde(skip)]
    allow: Option<String>,
    #[serde(skip)]
    retry_after_s: Option<u64>,
}

/// The result of a request.
pub(super) type ApiResult = Result<Response<ResponseBody>, Problem>;

impl Problem {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Body {
            status,
            code,
            message: message.into(),
            findings: Vec::new(),
            revision: None,
            allow: None,
            retry_after_s: None,
        }))
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", message)
    }

    pub(super) fn wrong_password() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "wrong-password", "wrong password")
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", message)
    }

    pub(super) fn not_allowed(methods: String) -> Self {
        let message = format!("this path has only the methods {methods}");
        let mut problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", message);
        problem.0.allow = Some(methods);
        problem
    }

    pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub(super) fn not_json() -> Self {
        let message = "the body must be JSON, and Content-Type must say so: application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", message)
    }

    pub(super) fn locked(seconds: u64) -> Self {
        let message = format!("too many wrong passwords: wait {seconds} s");
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "locked", message);
        problem.0.retry_after_s = Some(seconds);
        problem
    }

    pub(super) fn invalid(message: impl Into<String>, findings: Vec<Finding>) -> Self {
        let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
        problem.0.findings = findings;
        problem
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "failed", message)
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(super) fn with_revision(mut self, revision: Option<String>) -> Self {
        self.0.revision = revision;
        self
    }

    pub(super) fn is_wrong_password(&self) -> bool {
        self.0.status == StatusCode::UNAUTHORIZED
    }

    /// The message, for the audit log.
    pub(super) fn message(&self) -> &str {
        &self.0.message
    }

    pub(super) fn into_answer(self) -> Response<ResponseBody> {
        let mut answer = json(self.0.status, &self.0);
        let headers = answer.headers_mut();
        if let Some(methods) = self.0.allow.and_then(|methods| methods.parse().ok()) {
            headers.insert(ALLOW, methods);
        }
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}

impl From<client::Error> for Problem {
    fn from(error: client::Error) -> Self {
        let message = error.to_string();
        let client::Error::Refused(status, Errors { code, revision, .. }) = error else {
            return Self::unavailable(message);
        };
        match (status, code) {
            (StatusCode::CONFLICT, Some(Code::Conflict)) => {
                Self::conflict("conflict", message).with_revision(revision)
            }
            (StatusCode::CONFLICT, Some(Code::Unconfirmed)) => Self::conflict("unconfirmed", message),
            (StatusCode::CONFLICT, Some(Code::NothingWaits)) => Self::conflict("nothing-waits", message),
            (StatusCode::CONFLICT, _) => Self::conflict("busy", message),
            (StatusCode::UNPROCESSABLE_ENTITY, Some(Code::Invalid)) => Self::invalid(message, Vec::new()),
            (StatusCode::UNPROCESSABLE_ENTITY, _) => Self::failed(message),
            (StatusCode::NOT_FOUND, _) => Self::not_found(message),
            (StatusCode::FORBIDDEN, _) => Self::unavailable(
                "the daemon does not let this server change anything: run 'sqm web' as root, as the daemon's user, or as the user of 'sqm daemon --admin-user'",
            ),
            _ => Self::unavailable(message),
        }
    }
}

impl From<BodyError> for Problem {
    fn from(why: BodyError) -> Self {
        match why {
            BodyError::TimedOut => Self::new(
                StatusCode::REQUEST_TIMEOUT,
                "too-slow",
                "the body was not received in time",
            ),
            BodyError::TooLarge => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                "the body is too large",
            ),
            BodyError::Invalid => Self::bad_request("the body was cut off, or its framing is wrong"),
        }
    }
}
