//! The names under which a server of ours may be asked.

use std::net::{IpAddr, Ipv6Addr};

/// A page that makes its own name point to our address (DNS rebinding) still asks for its own name; an address cannot be made
/// to point elsewhere. So every address is ours, and `localhost`, and the names that were given.
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Accepts every IP address, `localhost` and these names.
    pub fn new(mut names: Vec<String>) -> Self {
        names.push("localhost".to_owned());
        Self(names)
    }

    /// Whether the value of a `Host` line is one of ours, with a port or without.
    pub fn knows(&self, host: &str) -> bool {
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
        // The colons of an address of IPv6 are inside its brackets.
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
    fn addresses_and_known_names_are_ours_and_no_others() {
        let hosts = Hosts::new(vec!["Router.lan".to_owned()]);
        for host in [
            "127.0.0.1:8080",
            "192.168.1.1",
            "[::1]:8080",
            "[fd00::1]",
            "localhost:1",
            "LOCALHOST",
            "router.lan:8080",
        ] {
            assert!(hosts.knows(host), "{host}");
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
            assert!(!hosts.knows(host), "{host}");
        }
    }
}
