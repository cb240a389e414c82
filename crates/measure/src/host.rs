//! Texts that are given for a host and are none, or that the system's resolver would take for another one.

use std::io;
use std::net::Ipv4Addr;

/// Refuses a URL, a host with its port, and a text that looks like an IPv4 address and is none. `inet_aton(3)`, which resolvers ask, reads `10.66.2` as 10.66.0.2 and
/// `010.0.0.1` as 8.0.0.1. No name ends in a number, because no top-level domain is one.
///
/// # Errors
/// The text is one of these; the error says what to write.
pub(crate) fn refuse_odd_host(host: &str) -> io::Result<()> {
    let refusal = |message: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    if host.contains("://") {
        return refusal("this is a URL, and a name or an address is wanted here");
    }
    if let Some((name, port)) = host.rsplit_once(':')
        && (!name.contains(':') || name.ends_with(']'))
        && port.parse::<u16>().is_ok()
    {
        return refusal("give the name or the address alone, and the port by --port");
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hexadecimal = last
        .strip_prefix("0x")
        .or_else(|| last.strip_prefix("0X"))
        .is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let is_number = !last.is_empty() && last.bytes().all(|digit| digit.is_ascii_digit());
    if (is_number || is_hexadecimal) && host.parse::<Ipv4Addr>().is_err() {
        return refusal(
            "this is neither a name nor an address: an IPv4 address has four numbers from 0 to 255 without zeros before them, \
             such as 192.0.2.1",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_host_or_would_be_read_as_another_one_is_refused() {
        for (host, reason) in [
            ("10.66.2", "four numbers"),
            ("010.0.0.1", "four numbers"),
            ("3232235777", "four numbers"),
            ("1", "four numbers"),
            ("0x7f000001", "four numbers"),
            ("10.0.0.256", "four numbers"),
            ("1.2.3.4.5", "four numbers"),
            ("10.0.0.0x1", "four numbers"),
            ("192.0.2.1:35353", "--port"),
            ("server.example:443", "--port"),
            ("[2001:db8::1]:443", "--port"),
            ("https://server.example/file", "a URL"),
        ] {
            let error = refuse_odd_host(host).expect_err(host).to_string();
            assert!(error.contains(reason), "{host}: {error}");
        }
        for host in [
            "192.0.2.1",
            "2001:db8::1",
            "::1",
            "fe80::1%eth0",
            "server.example",
            "3com.example",
            "localhost",
            "10.example.",
            "b4",
            "",
        ] {
            assert!(refuse_odd_host(host).is_ok(), "{host}");
        }
    }
}
