//! Answers that several routes give.

use bytes::Bytes;
use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use super::problem::Problem;
use sqm_http::{ResponseBody, full};

/// An SVG picture. In a window of its own it may do even less than the page.
pub(super) fn svg(bytes: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut answer = full(StatusCode::OK, "image/svg+xml", bytes);
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    answer
}

/// The error for a picture that does not exist.
pub(super) fn no_picture() -> Problem {
    Problem::not_found("there is no such picture")
}

/// An answer without a body.
pub(super) fn empty(code: StatusCode) -> Response<ResponseBody> {
    let mut answer = full(code, "application/json", "");
    answer.headers_mut().remove(CONTENT_TYPE);
    answer
}
