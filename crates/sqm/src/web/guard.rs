//! Whether a request comes from our own page: what a browser says of it cannot be forged by the page of somebody else.

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};

use crate::http::Hosts;

/// Browsers say where a request comes from (Fetch Metadata, W3C).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Hosts {
    /// Why a request is not from our page; none if it may be. Whoever sends no `Origin` is no browser, or asks for what
    /// changes nothing.
    pub(super) fn objection(&self, headers: &HeaderMap, is_tls: bool) -> Option<&'static str> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Some("a request has one Host");
        };
        let Some(host) = host.to_str().ok().filter(|host| self.knows(host)) else {
            return Some("this server is not known under that name; 'sqm web --name NAME' makes it so");
        };
        let mut origins = headers.get_all(ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let scheme = if is_tls { "https://" } else { "http://" };
            let origin = origin.to_str().unwrap_or_default();
            let is_ours = origin
                .strip_prefix(scheme)
                .is_some_and(|from| from.eq_ignore_ascii_case(host));
            if !is_ours || origins.next().is_some() {
                return Some("the request comes from the page of somebody else");
            }
        }
        None
    }
}

/// Whether another site made the browser ask. Links may lead to the page, but not to its API.
pub(super) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    headers
        .get(SEC_FETCH_SITE)
        .is_some_and(|site| site != "same-origin" && site != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(headers: &[(&'static str, &str)]) -> Option<&'static str> {
        let hosts = Hosts::new(vec!["Router.lan".to_owned()]);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        hosts.objection(&map, false)
    }

    #[test]
    fn a_request_names_one_host_that_is_ours() {
        assert_eq!(objection(&[("host", "router.lan:8080")]), None);
        assert!(objection(&[("host", "evil.example")]).is_some());
        assert!(objection(&[]).is_some());
        assert!(objection(&[("host", "localhost"), ("host", "localhost")]).is_some());
    }

    #[test]
    fn an_origin_must_be_the_one_that_is_asked() {
        let with = |origin: &str| objection(&[("host", "localhost:8080"), ("origin", origin)]);
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
