//! Whether a request comes from our own page: what a browser says of it cannot be forged by the page of somebody else.

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};

use sqm_http::AllowedHosts;

/// Browsers say where a request comes from (Fetch Metadata, W3C).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused: it does not come from the page of this server. `None` if it may. A request without `Origin` comes from
/// a program that is no browser, or changes nothing.
pub(super) fn reject_reason(hosts: &AllowedHosts, headers: &HeaderMap, is_tls: bool) -> Option<&'static str> {
    let mut named = headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return Some("a request has one Host");
    };
    let Some(host) = host.to_str().ok().filter(|host| hosts.allows(host)) else {
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

/// Whether another site made the browser ask. Links may lead to the page, but not to its API.
pub(super) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    headers
        .get(SEC_FETCH_SITE)
        .is_some_and(|site| site != "same-origin" && site != "none")
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
    fn a_request_names_one_host_that_is_ours() {
        assert_eq!(reject_reason(&[("host", "router.lan:8080")]), None);
        assert!(reject_reason(&[("host", "evil.example")]).is_some());
        assert!(reject_reason(&[]).is_some());
        assert!(reject_reason(&[("host", "localhost"), ("host", "localhost")]).is_some());
    }

    #[test]
    fn an_origin_must_be_the_one_that_is_asked() {
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
