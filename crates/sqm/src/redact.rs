//! Takes out of a text what is nobody's business: hardware addresses, public addresses, passwords, keys.
//!
//! Private, loopback, link-local and shared addresses stay: they tell what a network is like and lead to nobody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What stands behind such a word is a secret.
const SECRET_WORDS: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "psk",
    "key",
    "username",
    "login",
    "credential",
];

/// The text without secrets. What replaces one says what it was.
pub(crate) fn redact(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n")
}

fn line(line: &str) -> String {
    let line = without_secret_value(line);
    let mut clean = String::with_capacity(line.len());
    let mut word = String::new();
    for c in line.chars() {
        if is_part(c) {
            word.push(c);
        } else {
            clean += &address(&word);
            word.clear();
            clean.push(c);
        }
    }
    clean + &address(&word)
}

/// Whether it may be part of an address.
const fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-')
}

/// `option password 'x'`, `password=x`, `psk: x`: all behind the word, and what stands before the `@` of a URL.
fn without_secret_value(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let ends = SECRET_WORDS
        .iter()
        .filter_map(|word| lower.find(word).map(|at| at + word.len()));
    if let Some(end) = ends.min() {
        let rest = &line[end..];
        // The rest of a longer name, such as password_file, belongs to it.
        let name = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
            .unwrap_or(rest.len());
        let punctuation = |c: char| c.is_whitespace() || "'\"=:,{}[]".contains(c);
        if !rest[name..].trim_matches(punctuation).is_empty() {
            return format!("{}{} <removed>", &line[..end], &rest[..name]);
        }
    }
    match (line.find("://"), line.find('@')) {
        (Some(scheme), Some(at)) if scheme < at && !line[scheme + 3..at].contains(['/', ' ']) => {
            format!("{}://<removed>{}", &line[..scheme], &line[at..])
        }
        _ => line.to_owned(),
    }
}

/// The word, or what stands for it if it is an address to hide.
fn address(word: &str) -> String {
    if is_hardware_address(word) {
        return "<hardware address>".to_owned();
    }
    // A sentence's end, and a port.
    let trimmed = word.trim_end_matches(['.', ':', '-']);
    let (host, rest) = match trimmed.parse::<IpAddr>() {
        Ok(_) => (trimmed, &word[trimmed.len()..]),
        Err(_) => match trimmed.rsplit_once(':') {
            Some((host, _)) if host.parse::<Ipv4Addr>().is_ok() => (host, &word[host.len()..]),
            _ => return word.to_owned(),
        },
    };
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if !tells_nothing(address) => format!("<public IPv4 address>{rest}"),
        Ok(IpAddr::V6(address)) if is_global(address) => format!("<public IPv6 address>{rest}"),
        Ok(IpAddr::V6(address)) if holds_hardware_address(address) => {
            format!("<address made of a hardware address>{rest}")
        }
        _ => word.to_owned(),
    }
}

/// Six pairs of hexadecimal digits with `:` or `-` between.
fn is_hardware_address(word: &str) -> bool {
    let pairs: Vec<&str> = word.split([':', '-']).collect();
    pairs.len() == 6
        && pairs
            .iter()
            .all(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn tells_nothing(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    // Shared by providers (RFC 6598): 100.64.0.0/10.
    let shared = a == 100 && (64..128).contains(&b);
    // Masks and "any" look like addresses.
    let mask = u32::from(address).count_zeros() == u32::from(address).trailing_zeros();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_multicast()
        || shared
        || mask
}

/// 2000::/3 (RFC 4291).
const fn is_global(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xe000 == 0x2000
}

/// Whether its last half is made of a hardware address (RFC 4291, appendix A).
const fn holds_hardware_address(address: Ipv6Addr) -> bool {
    let octets = address.octets();
    octets[11] == 0xff && octets[12] == 0xfe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        for (text, clean) in [
            (
                "link/ether 52:54:00:12:34:56 brd",
                "link/ether <hardware address> brd",
            ),
            ("inet 203.0.113.9/24", "inet <public IPv4 address>/24"),
            ("to 8.8.8.8:53.", "to <public IPv4 address>:53."),
            (
                "inet 192.168.1.1/24 100.64.3.4 255.255.255.0",
                "inet 192.168.1.1/24 100.64.3.4 255.255.255.0",
            ),
            ("2001:db8::1/64", "<public IPv6 address>/64"),
            ("fe80::5054:ff:fe12:3456", "<address made of a hardware address>"),
            ("fe80::1 fd00:64::1 ::1", "fe80::1 fd00:64::1 ::1"),
            ("\toption password 'hunter2'", "\toption password <removed>"),
            (
                "\toption ppp_password_file 'x y'",
                "\toption ppp_password_file <removed>",
            ),
            ("PSK=abc", "PSK <removed>"),
            ("\"token\": \"abc\"", "\"token <removed>"),
            ("http://joe:pw@host/x", "http://<removed>@host/x"),
            ("12:34:56 cake 1: dev", "12:34:56 cake 1: dev"),
            ("rate 4400kbit 1.5.2 a:b", "rate 4400kbit 1.5.2 a:b"),
        ] {
            assert_eq!(redact(text), clean);
        }
    }

    proptest! {
        #[test]
        fn no_public_address_is_left(a in 1..224_u8, b: u8, c: u8, d: u8, before in "[ a-z=(,]{0,3}", after in "[ /,)]{0,2}") {
            let address = Ipv4Addr::new(a, b, c, d);
            prop_assume!(!tells_nothing(address));
            // A letter before it makes it a name.
            prop_assume!(!before.ends_with(|c: char| c.is_ascii_alphanumeric()));
            let clean = redact(&format!("{before}{address}{after}"));
            prop_assert!(!clean.contains(&address.to_string()), "{clean}");
        }

        #[test]
        fn any_text_is_answered_line_by_line(text in any::<String>()) {
            prop_assert_eq!(redact(&text).split('\n').count(), text.split('\n').count());
        }
    }
}
