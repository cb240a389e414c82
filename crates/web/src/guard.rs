//! Checks that a request comes from our own page, by headers that pages of other sites cannot forge (CSRF, DNS rebinding).

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};

use sqm_http::AllowedHosts;

/// The header with the origin of a request (W3C, Fetch Metadata Request Headers).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The reason to reject a request because it does not come from the page of this server; `None` if it is accepted. A request without
/// `Origin` is accepted: it comes from a program that is not a browser, or changes nothing.
pub(super) fn reject_reason(hosts: &AllowedHosts, headers: &HeaderMap, is_tls: bool) -> Option<&'static str> {
    let mut named = headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return Some("a request must have exactly one Host header");
    };
    let Some(host) = host.to_str().ok().filter(|host| hosts.allows(host)) else {
        return Some("this server does not have that name; add it with 'sqm web --name NAME'");
    };
    let mut origins = headers.get_all(ORIGIN).iter();
    if let Some(origin) = origins.next() {
        let scheme = if is_tls { "https://" } else { "http://" };
        let origin = origin.to_str().unwrap_or_default();
        let is_ours = origin
            .strip_prefix(scheme)
            .is_some_and(|from| from.eq_ignore_ascii_case(host));
        if !is_ours || origins.next().is_some() {
            return Some("the request comes from a page of another site");
        }
    }
    None
}

/// True if another site caused the request. Other sites may link to the page, but not to its API.
pub(super) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    headers
        .get(SEC_FETCH_SITE)
        .is_some_and(|from| from != "same-origin" && from != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reject_reason(headers: &[(&'static str, &str)]) -> Option<&'static str> {
        let hosts = AllowedHosts::new(vec!["Router.lan".to_owned()]);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        super::reject_reason(&hosts, &map, false)
    }

    #[test]
    fn a_request_must_name_exactly_one_allowed_host() {
        assert_eq!(reject_reason(&[("host", "router.lan:8080")]), None);
        assert!(reject_reason(&[("host", "evil.example")]).is_some());
        assert!(reject_reason(&[]).is_some());
        assert!(reject_reason(&[("host", "localhost"), ("host", "localhost")]).is_some());
    }

    #[test]
    fn an_origin_must_match_the_requested_host() {
        let with = |origin: &str| reject_reason(&[("host", "localhost:8080"), ("origin", origin)]);
        assert_eq!(with("http://localhost:8080"), None);
        for origin in [
            "http://evil.example",
            "http://localhost:8081",
            "https://localhost:8080",
            "http://localhost",
            "http://localhost:8080.evil.example",
            "null",
            "",
        ] {
            assert!(with(origin).is_some(), "{origin}");
        }
    }
}
