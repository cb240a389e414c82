//! Finds hardware addresses and public IP addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

const HARDWARE: &str = "<hardware address>";
const IPV4: &str = "<public IPv4 address>";
const IPV6: &str = "<public IPv6 address>";
const MADE_OF_HARDWARE: &str = "<address made of a hardware address>";

/// The greatest length of an address in any notation that is recognised, bytes.
const LONGEST: usize = 64;
/// The most separators to look at: seven colons and three dots of an IPv6 address that ends in an IPv4 address, and
/// one behind it.
const MOST_MARKS: usize = 7 + 3 + 1;

/// An address that was found: its length, and its replacement if it is to be hidden.
type Found = (usize, Option<&'static str>);

/// The line with these addresses replaced.
pub(super) fn without(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut at = 0;
    while let Some(next) = line[at..].find(is_part) {
        let start = at + next;
        clean += &line[at..start];
        let length = line[start..].find(|c| !is_part(c)).unwrap_or(line.len() - start);
        at = start + length;
        Run {
            line,
            start,
            text: &line[start..at],
        }
        .clean(&mut clean);
    }
    clean + &line[at..]
}

/// True if the character may be part of an address.
const fn is_part(c: char) -> bool {
    c.is_ascii_hexdigit() || is_mark(c)
}

const fn is_mark(c: char) -> bool {
    matches!(c, '.' | ':' | '-')
}

/// The longest run of hexadecimal digits and separators at a place of a line.
struct Run<'a> {
    line: &'a str,
    start: usize,
    text: &'a str,
}

impl Run<'_> {
    fn clean(&self, clean: &mut String) {
        let mut at = 0;
        while at < self.text.len() {
            let (length, instead) = self.address(at).unwrap_or_else(|| (self.step(at), None));
            *clean += instead.unwrap_or_else(|| &self.text[at..at + length]);
            at += length;
        }
    }

    /// The address that begins here, if there is one.
    fn address(&self, at: usize) -> Option<Found> {
        let is_word = |c: char| c.is_alphanumeric();
        let rest = &self.text[at..];
        let text = &rest[..rest.len().min(LONGEST)];
        let is_behind_a_word = self.line[..self.start + at].ends_with(is_word);
        let is_cut = text.len() < rest.len();
        let is_before_a_word = is_cut || self.line[self.start + self.text.len()..].starts_with(is_word);
        let may_begin = |c: char| !is_mark(c) || text.starts_with("::");
        if !is_behind_a_word && text.starts_with(may_begin) {
            let is_number = |word: &str| is_number_of_json(&self.line[..self.start + at], word);
            // Try the whole text first, unless its last letters belong to a longer word. Then try the text before
            // each separator, the longest first.
            let whole = Some(text.len()).filter(|_| !is_before_a_word);
            let before_marks: Vec<usize> = text
                .match_indices(is_mark)
                .map(|(mark, _)| mark)
                .take(MOST_MARKS)
                .collect();
            let ends = whole.into_iter().chain(before_marks.into_iter().rev());
            let found = ends
                .map(|end| &text[..end])
                .find_map(|text| hardware(text, is_number).or_else(|| ipv6(text)));
            if found.is_some() {
                return found;
            }
        }
        ipv4(text)
    }

    /// Distance to the next place where an address may begin: behind a separator, or where a digit follows a letter.
    fn step(&self, at: usize) -> usize {
        let bytes = &self.text.as_bytes()[at..];
        let begins = |pair: &[u8]| {
            is_mark(pair[0].into()) || pair[0].is_ascii_alphabetic() && pair[1].is_ascii_digit()
        };
        bytes
            .windows(2)
            .position(begins)
            .map_or(bytes.len(), |place| place + 1)
    }
}

/// True for a counter in JSON, such as `"sent_bytes": 123456789012,`.
fn is_number_of_json(before: &str, word: &str) -> bool {
    let before = before.trim();
    let is_value = before.starts_with('"') && before.ends_with(':') || before.is_empty();
    is_value && !word.starts_with('0')
}

fn hardware(word: &str, is_number: impl Fn(&str) -> bool) -> Option<Found> {
    let hex = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let found = [':', '-', '.'].iter().any(|mark| {
        let groups: Vec<&str> = word.split(*mark).collect();
        let all = |least: usize, most: usize| {
            groups
                .iter()
                .all(|group| hex(group) && (least..=most).contains(&group.len()))
        };
        match (groups.len(), mark) {
            // 00:11:22:33:44:55, also without leading zeros, and EUI-64.
            (6 | 8, ':') => all(1, 2),
            (6 | 8, _) => all(2, 2),
            // 0011.2233.4455
            (3, _) => all(4, 4),
            // 001122-334455
            (2, _) => all(6, 6),
            _ => false,
        }
    });
    // 001122334455, and EUI-64 without separators.
    let is_bare =
        word.len() == 12 && hex(word) && !(word.bytes().all(|b| b.is_ascii_digit()) && is_number(word))
            || word.len() == 16 && hex(word) && word[6..10].eq_ignore_ascii_case("fffe");
    (found || is_bare).then_some((word.len(), Some(HARDWARE)))
}

fn ipv6(word: &str) -> Option<Found> {
    let address = if word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit()) {
        // 32 hexadecimal digits without separators, as in /proc/net.
        Ipv6Addr::from(u128::from_str_radix(word, 16).ok()?)
    } else {
        word.parse().ok()?
    };
    Some((word.len(), instead_of(address)))
}

fn instead_of(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = inner(address) {
        return (!tells_nothing(inner)).then_some(IPV6);
    }
    let first = address.segments()[0];
    let is_local = address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        // Link-local (RFC 4291) and unique local (RFC 4193).
        || first & 0xffc0 == 0xfe80
        || first & 0xfe00 == 0xfc00;
    // The interface identifier was derived from a hardware address (RFC 4291, appendix A).
    let is_of_hardware = address.octets()[11..13] == [0xff, 0xfe];
    match (is_local, is_of_hardware) {
        (false, _) => Some(IPV6),
        (true, true) => Some(MADE_OF_HARDWARE),
        (true, false) => None,
    }
}

/// The embedded IPv4 address: mapped (`::ffff:`), compatible (`::`), translated (RFC 6052) or ISATAP (RFC 5214).
/// Addresses of 6to4 and Teredo are not looked into: they are public themselves.
fn inner(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = u128::from(address);
    let last = Ipv4Addr::from(bits as u32);
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            Some(last)
        }
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => Some(last),
        [.., 0 | 0x200, 0x5efe, _, _] => Some(last),
        _ => None,
    }
}

/// Four numbers with dots or, as in host names of providers, with dashes. A fifth number is a port, as tcpdump prints
/// it.
fn ipv4(text: &str) -> Option<Found> {
    ['.', '-'].into_iter().find_map(|mark| {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != mark);
        let text = text[..end.unwrap_or(text.len())].trim_end_matches(mark);
        let groups: Vec<&str> = text.split(mark).collect();
        let octets = groups.first_chunk::<4>()?.map(|group| match group.len() {
            1..=3 => group.parse::<u8>().ok(),
            _ => None,
        });
        let [Some(a), Some(b), Some(c), Some(d)] = octets else {
            return None;
        };
        let length = groups[..4].iter().map(|group| group.len()).sum::<usize>() + 3;
        let instead = (!tells_nothing(Ipv4Addr::new(a, b, c, d))).then_some(IPV4);
        Some((length, instead))
    })
}

fn tells_nothing(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    // Shared address space of providers (RFC 6598): 100.64.0.0/10.
    let shared = a == 100 && (64..128).contains(&b);
    // Netmasks and the unspecified address look like addresses.
    let mask = u32::from(address).count_zeros() == u32::from(address).trailing_zeros();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || a == 0
        || shared
        || mask
}

#[cfg(test)]
pub(super) fn is_public(address: Ipv4Addr) -> bool {
    !tells_nothing(address)
}
