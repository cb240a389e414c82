//! The host names and addresses for which a server accepts requests: a defence against DNS rebinding.

use std::net::{IpAddr, Ipv6Addr};

/// A list of host names, matched against the `Host` header.
///
/// In a DNS rebinding attack, a foreign page resolves its own name to our address. Its requests still carry that name in
/// `Host`, so a name that is not in the list is refused. An IP address cannot be rebound: every address is accepted.
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Allows every IP address, `localhost` and `names`.
    pub fn new(mut names: Vec<String>) -> Self {
        names.push("localhost".to_owned());
        Self(names)
    }

    /// `true` if the value of a `Host` header, with or without a port, is allowed.
    pub fn allows(&self, host: &str) -> bool {
        let name = without_port(host);
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = address {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        matches!(name.parse(), Ok(IpAddr::V4(_)))
            || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        // A colon before the closing bracket belongs to an IPv6 address.
        Some(at) if host[at + 1..].bytes().all(|b| b.is_ascii_digit()) && !host[at..].contains(']') => {
            &host[..at]
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_listed_names_are_allowed_and_no_others() {
        let hosts = AllowedHosts::new(vec!["Router.lan".to_owned()]);
        for host in [
            "127.0.0.1:8080",
            "192.168.1.1",
            "[::1]:8080",
            "[fd00::1]",
            "localhost:1",
            "LOCALHOST",
            "router.lan:8080",
        ] {
            assert!(hosts.allows(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "router.lan.evil.example",
            "",
            "[::1",
            "::1",
            "[evil.example]",
            "127.0.0.1:8080:evil",
            "0x7f.1",
        ] {
            assert!(!hosts.allows(host), "{host}");
        }
    }
}
