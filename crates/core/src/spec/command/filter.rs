//! Filters in `tc`'s words: by mark (`fw`), by bytes (`u32`), by fields (`flower`), or all (`matchall`).

use core::fmt;
use core::net::IpAddr;

use super::super::words::{ParseError, ParseErrorKind, Word, Words};
use super::{Seen, bad, handle_of, place};
use crate::filter::{Address, Condition, Filter, Masked};
use crate::handle::Handle;
use crate::narrow::{fits_u8, fits_u16, fits_u32, low_u16, low_u32, low_u64};
use crate::packet::Network;

/// A filter as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterNode {
    /// Where it is asked; `None` is the root.
    pub parent: Option<Handle>,
    /// Lower ones are asked first; `None` goes before all that are there.
    pub preference: Option<u16>,
    /// The packets it looks at; `None` is all.
    pub network: Option<Network>,
    /// The condition that a packet must meet.
    pub condition: Condition,
    /// Where a packet that fits goes.
    pub class: Handle,
}

impl FilterNode {
    /// The filter that a queue asks.
    pub const fn resolve(&self, parent: Handle, preference: u32) -> Filter {
        Filter {
            parent,
            preference,
            network: self.network,
            condition: self.condition,
            class: self.class,
        }
    }
}

/// Prints fields as `u32` matches, which have a form for each of them.
impl fmt::Display for FilterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("filter add")?;
        place(f, self.parent)?;
        f.write_str(match self.network {
            None => " protocol all",
            Some(Network::Ipv4) => " protocol ip",
            Some(Network::Ipv6) => " protocol ipv6",
            Some(Network::Arp) => " protocol arp",
            Some(Network::Other) => " protocol other",
        })?;
        if let Some(preference) = self.preference {
            write!(f, " prio {preference}")?;
        }
        let class = self.class;
        match self.condition {
            Condition {
                mark: Some(Masked { value, mask }),
                ..
            } if self.condition
                == (Condition {
                    mark: self.condition.mark,
                    ..Condition::default()
                }) =>
            {
                write!(f, " handle {value:#x}/{mask:#x} fw classid {class}")
            }
            condition if condition == Condition::default() => write!(f, " matchall classid {class}"),
            condition => {
                f.write_str(" u32")?;
                fields(f, self.network == Some(Network::Ipv6), &condition)?;
                write!(f, " flowid {class}")
            }
        }
    }
}

fn fields(f: &mut fmt::Formatter<'_>, is_ipv6: bool, condition: &Condition) -> fmt::Result {
    let Condition {
        mark,
        ds_field,
        transport,
        source,
        destination,
        source_port,
        destination_port,
    } = condition;
    let (ip, ds_name) = if is_ipv6 {
        ("ip6", "priority")
    } else {
        ("ip", "dsfield")
    };
    if let Some(Masked { value, mask }) = mark {
        write!(f, " match mark {value:#x} {mask:#x}")?;
    }
    if let Some(Masked { value, mask }) = ds_field {
        write!(f, " match {ip} {ds_name} {value:#x} {mask:#x}")?;
    }
    if let Some(protocol) = transport {
        write!(f, " match {ip} protocol {protocol} 0xff")?;
    }
    for (address, at) in [
        (source, if is_ipv6 { 8 } else { 12 }),
        (destination, if is_ipv6 { 24 } else { 16 }),
    ] {
        match address {
            Some(Masked {
                value: Address::V6(value),
                mask: Address::V6(mask),
            }) => {
                for word in 0..4 {
                    let part = |bits: u128| low_u32(low_u64(bits >> (96 - 32 * word)));
                    let (value, mask) = (part(*value), part(*mask));
                    write!(f, " match u32 {value:#x} {mask:#x} at {}", at + 4 * word)?;
                }
            }
            Some(Masked {
                value: Address::V4(value),
                mask: Address::V4(mask),
            }) => write!(f, " match u32 {value:#x} {mask:#x} at {at}")?,
            _ => {}
        }
    }
    for (port, name) in [(source_port, "sport"), (destination_port, "dport")] {
        if let Some(Masked { value, mask }) = port {
            write!(f, " match {ip} {name} {value} {mask:#x}")?;
        }
    }
    Ok(())
}

/// The words of a filter before its kind.
struct Head {
    parent: Option<Handle>,
    network: Option<Network>,
    preference: Option<u16>,
    mark: Option<Masked<u32>>,
}

pub(super) fn filter(mut words: Words<'_>) -> Result<FilterNode, ParseError> {
    const KEYWORDS: [&str; 11] = [
        "dev", "root", "parent", "protocol", "prio", "pref", "handle", "fw", "u32", "flower", "matchall",
    ];
    let mut head = Head {
        parent: None,
        network: None,
        preference: None,
        mark: None,
    };
    let mut seen = Seen::default();
    loop {
        let Some(word) = words.next() else {
            let missing = "'u32', 'fw', 'flower' or 'matchall'";
            return Err(words.at_end(ParseErrorKind::Incomplete { missing }));
        };
        seen.once(&words, word)?;
        match word.text {
            "dev" => _ = words.value(word, "a device, such as eth0")?,
            "root" => head.parent = None,
            "parent" => head.parent = Some(handle_of(&mut words, word, "parent")?),
            "protocol" => head.network = protocol(&mut words, word)?,
            "prio" | "pref" | "preference" => {
                head.preference = Some(words.number(word, "prio", 1..=u16::MAX.into())?);
            }
            "handle" => head.mark = Some(mark(&mut words, word)?),
            kind => {
                let (condition, class) = match kind {
                    "fw" => by_mark(&mut words, &head)?,
                    "u32" => by_words(&mut words, &mut head)?,
                    "flower" => by_fields(&mut words, &head)?,
                    "matchall" => (Condition::default(), classid_only(&mut words)?),
                    _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
                };
                let missing = "a class: 'classid 1:10'";
                let class = class.ok_or_else(|| words.at_end(ParseErrorKind::Incomplete { missing }))?;
                return Ok(FilterNode {
                    parent: head.parent,
                    preference: head.preference,
                    network: head.network,
                    condition,
                    class,
                });
            }
        }
    }
}

fn protocol(words: &mut Words<'_>, keyword: Word<'_>) -> Result<Option<Network>, ParseError> {
    const EXPECTED: &str = "all, ip, ipv6 or arp";
    let value = words.value(keyword, EXPECTED)?;
    match value.text {
        "all" => Ok(None),
        "ip" => Ok(Some(Network::Ipv4)),
        "ipv6" => Ok(Some(Network::Ipv6)),
        "arp" => Ok(Some(Network::Arp)),
        _ => Err(bad(words, value, "protocol", EXPECTED)),
    }
}

/// `0x1/0xff`; without a mask all bits count.
fn mark(words: &mut Words<'_>, keyword: Word<'_>) -> Result<Masked<u32>, ParseError> {
    const EXPECTED: &str = "a mark, such as 0x1/0xff";
    let value = words.value(keyword, EXPECTED)?;
    let (mark, mask) = value.text.split_once('/').unwrap_or((value.text, "0xffffffff"));
    number(mark)
        .zip(number(mask))
        .map(|(value, mask)| Masked {
            value: value & mask,
            mask,
        })
        .ok_or_else(|| bad(words, value, "handle", EXPECTED))
}

fn by_mark(words: &mut Words<'_>, head: &Head) -> Result<(Condition, Option<Handle>), ParseError> {
    let missing = "a mark before 'fw': 'handle 0x1/0xff'";
    if head.mark.is_none() {
        return Err(words.at_end(ParseErrorKind::Incomplete { missing }));
    }
    let condition = Condition {
        mark: head.mark,
        ..Condition::default()
    };
    Ok((condition, classid_only(words)?))
}

fn classid_only(words: &mut Words<'_>) -> Result<Option<Handle>, ParseError> {
    let mut class = None;
    while let Some(word) = words.next() {
        match word.text {
            "classid" | "flowid" => class = Some(handle_of(words, word, "classid")?),
            _ => {
                let known = ["classid", "flowid"].into_iter();
                return Err(words.unknown(word, ParseErrorKind::UnknownWord, known));
            }
        }
    }
    Ok(class)
}

fn by_words(words: &mut Words<'_>, head: &mut Head) -> Result<(Condition, Option<Handle>), ParseError> {
    const KEYWORDS: [&str; 3] = ["match", "flowid", "classid"];
    let (mut condition, mut class) = (Condition::default(), None);
    while let Some(word) = words.next() {
        match word.text {
            "match" => match_words(words, word, head, &mut condition)?,
            "classid" | "flowid" => class = Some(handle_of(words, word, "flowid")?),
            _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
        }
    }
    Ok((condition, class))
}

/// A 32-bit word of the packet.
struct Key {
    /// Bytes from the start of the network header.
    at: u32,
    value: u32,
    mask: u32,
}

fn match_words(
    words: &mut Words<'_>,
    keyword: Word<'_>,
    head: &mut Head,
    condition: &mut Condition,
) -> Result<(), ParseError> {
    const SELECTORS: [&str; 6] = ["ip", "ip6", "u32", "u16", "u8", "mark"];
    let selector = words.value(keyword, "what to match, such as ip dport 80 0xffff")?;
    match selector.text {
        "mark" => {
            let (value, mask) = value_and_mask(words, selector, u32::MAX)?;
            condition.mark = Some(Masked { value, mask });
            Ok(())
        }
        "ip" | "ip6" => {
            let network = if selector.text == "ip" {
                Network::Ipv4
            } else {
                Network::Ipv6
            };
            within(words, selector, head, network)?;
            match_field(words, selector, network, condition)
        }
        "u32" | "u16" | "u8" => {
            let key = raw_key(words, selector)?;
            if key.mask == 0 && key.value == 0 {
                return Ok(());
            }
            let network = head.network.unwrap_or(Network::Ipv4);
            within(words, selector, head, network)?;
            match network {
                Network::Ipv4 => word_of_ipv4(&key, condition),
                Network::Ipv6 => word_of_ipv6(&key, condition),
                Network::Arp | Network::Other => None,
            }
            .ok_or_else(|| {
                let reason = "these bytes are not a header field that filters here support";
                words.error(selector, ParseErrorKind::Contradiction { reason })
            })
        }
        _ => Err(words.unknown(selector, ParseErrorKind::UnknownWord, SELECTORS.into_iter())),
    }
}

/// Fields of one protocol's header are compared in its packets only.
fn within(words: &Words<'_>, word: Word<'_>, head: &mut Head, network: Network) -> Result<(), ParseError> {
    match head.network.replace(network) {
        Some(other) if other != network => {
            let reason = "the match is for another protocol than 'protocol'";
            Err(words.error(word, ParseErrorKind::Contradiction { reason }))
        }
        _ => Ok(()),
    }
}

fn match_field(
    words: &mut Words<'_>,
    selector: Word<'_>,
    network: Network,
    condition: &mut Condition,
) -> Result<(), ParseError> {
    const FIELDS: [&str; 8] = [
        "dsfield", "tos", "priority", "protocol", "src", "dst", "sport", "dport",
    ];
    let field = words.value(selector, "a header field, such as dport 80 0xffff")?;
    match (network, field.text) {
        (Network::Ipv4, "tos" | "dsfield" | "precedence") | (Network::Ipv6, "priority") => {
            let (value, mask) = value_and_mask(words, field, 0xff)?;
            condition.ds_field = Some(Masked {
                value: fits_u8(value.into()),
                mask: fits_u8(mask.into()),
            });
        }
        (_, "protocol") => {
            let (value, mask) = value_and_mask(words, field, 0xff)?;
            if mask != 0xff {
                let reason = "a protocol is compared as a whole: mask 0xff";
                return Err(words.error(field, ParseErrorKind::Contradiction { reason }));
            }
            condition.transport = Some(fits_u8(value.into()));
        }
        (_, "sport" | "dport") => {
            let (value, mask) = value_and_mask(words, field, 0xffff)?;
            let port = Some(Masked {
                value: fits_u16(value.into()),
                mask: fits_u16(mask.into()),
            });
            match field.text {
                "sport" => condition.source_port = port,
                _ => condition.destination_port = port,
            }
        }
        (_, "src") => condition.source = prefix(words, field, Some(network))?,
        (_, "dst") => condition.destination = prefix(words, field, Some(network))?,
        _ => return Err(words.unknown(field, ParseErrorKind::UnknownWord, FIELDS.into_iter())),
    }
    Ok(())
}

/// A value and the mask under which it is compared, which `tc` reads as hexadecimal in any case.
fn value_and_mask(words: &mut Words<'_>, keyword: Word<'_>, most: u32) -> Result<(u32, u32), ParseError> {
    const EXPECTED: &str = "a value and a mask, such as 0x10 0xfc";
    let value = words.value(keyword, EXPECTED)?;
    let mask = words.value(keyword, EXPECTED)?;
    let digits = mask.text.strip_prefix("0x").unwrap_or(mask.text);
    let bits = u32::from_str_radix(digits, 16)
        .ok()
        .filter(|_| !digits.starts_with('+'));
    let in_range = |n: &u32| *n <= most;
    let mask_bits = bits
        .filter(in_range)
        .ok_or_else(|| bad(words, mask, "match", EXPECTED))?;
    let number = number(value.text)
        .filter(in_range)
        .ok_or_else(|| bad(words, value, "match", EXPECTED))?;
    Ok((number & mask_bits, mask_bits))
}

/// `u32 VALUE MASK at OFFSET`, or of a narrower field.
fn raw_key(words: &mut Words<'_>, selector: Word<'_>) -> Result<Key, ParseError> {
    const EXPECTED: &str = "an offset in bytes that fits the field's width";
    let width = match selector.text {
        "u32" => 4,
        "u16" => 2,
        _ => 1,
    };
    let (value, mask) = value_and_mask(words, selector, fits_u32(u64::MAX >> (64 - 8 * width)))?;
    let at = match words.take("at") {
        None => 0,
        Some(at) => {
            let offset = words.value(at, EXPECTED)?;
            number(offset.text)
                .filter(|at| at % width == 0 && *at < 1 << 16)
                .ok_or_else(|| bad(words, offset, "at", EXPECTED))?
        }
    };
    let shift = 8 * (4 - width - at % 4);
    Ok(Key {
        at: at - at % 4,
        value: value << shift,
        mask: mask << shift,
    })
}

/// A part of `key` as a field of its own, if no other bits are compared.
fn part(key: &Key, mask: u32) -> Option<(u32, u32)> {
    let shift = mask.trailing_zeros();
    (key.mask & !mask == 0).then_some((key.value >> shift, key.mask >> shift))
}

fn word_of_ipv4(key: &Key, condition: &mut Condition) -> Option<()> {
    match key.at {
        0 => ds_field(part(key, 0x00ff_0000)?, condition),
        8 => transport(part(key, 0x00ff_0000)?, condition)?,
        12 | 16 => {
            let address = Some(Masked {
                value: Address::V4(key.value),
                mask: Address::V4(key.mask),
            });
            match key.at {
                12 => condition.source = address,
                _ => condition.destination = address,
            }
        }
        20 => ports(key, condition),
        _ => return None,
    }
    Some(())
}

fn word_of_ipv6(key: &Key, condition: &mut Condition) -> Option<()> {
    match key.at {
        0 => ds_field(part(key, 0x0ff0_0000)?, condition),
        4 => transport(part(key, 0x0000_ff00)?, condition)?,
        8..40 => {
            let (address, from) = match key.at {
                ..24 => (&mut condition.source, 8),
                _ => (&mut condition.destination, 24),
            };
            let shift = 96 - 8 * (key.at - from);
            let (value, mask) = (u128::from(key.value) << shift, u128::from(key.mask) << shift);
            let (value, mask) = match address {
                Some(Masked {
                    value: Address::V6(before),
                    mask: Address::V6(mask_before),
                }) => (value | *before, mask | *mask_before),
                _ => (value, mask),
            };
            *address = Some(Masked {
                value: Address::V6(value),
                mask: Address::V6(mask),
            });
        }
        40 => ports(key, condition),
        _ => return None,
    }
    Some(())
}

fn ds_field((value, mask): (u32, u32), condition: &mut Condition) {
    condition.ds_field = Some(Masked {
        value: fits_u8(value.into()),
        mask: fits_u8(mask.into()),
    });
}

fn transport((value, mask): (u32, u32), condition: &mut Condition) -> Option<()> {
    condition.transport = Some(fits_u8(value.into()));
    (mask == 0xff).then_some(())
}

fn ports(key: &Key, condition: &mut Condition) {
    let port = |shift: u32| {
        let (value, mask) = (
            low_u16((key.value >> shift).into()),
            low_u16((key.mask >> shift).into()),
        );
        (mask != 0).then_some(Masked { value, mask })
    };
    condition.source_port = port(16).or(condition.source_port);
    condition.destination_port = port(0).or(condition.destination_port);
}

fn by_fields(words: &mut Words<'_>, head: &Head) -> Result<(Condition, Option<Handle>), ParseError> {
    const KEYWORDS: [&str; 8] = [
        "ip_proto", "ip_tos", "src_ip", "dst_ip", "src_port", "dst_port", "classid", "flowid",
    ];
    let (mut condition, mut class) = (Condition::default(), None);
    while let Some(word) = words.next() {
        match word.text {
            "classid" | "flowid" => {
                class = Some(handle_of(words, word, "classid")?);
                continue;
            }
            "ip_proto" => condition.transport = Some(transport_name(words, word)?),
            "ip_tos" => {
                let Masked { value, mask } = byte_and_mask(words, word)?;
                condition.ds_field = Some(Masked { value, mask });
            }
            "src_ip" => condition.source = prefix(words, word, head.network)?,
            "dst_ip" => condition.destination = prefix(words, word, head.network)?,
            "src_port" | "dst_port" => {
                let port = Some(Masked {
                    value: words.number(word, "port", 0..=u16::MAX.into())?,
                    mask: u16::MAX,
                });
                if condition.transport.is_none() {
                    let reason = "a port needs 'ip_proto' before it";
                    return Err(words.error(word, ParseErrorKind::Contradiction { reason }));
                }
                match word.text {
                    "src_port" => condition.source_port = port,
                    _ => condition.destination_port = port,
                }
            }
            _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
        }
        if !matches!(head.network, Some(Network::Ipv4 | Network::Ipv6)) {
            let reason = "this match needs 'protocol ip' or 'protocol ipv6' before 'flower'";
            return Err(words.error(word, ParseErrorKind::Contradiction { reason }));
        }
    }
    Ok((condition, class))
}

fn transport_name(words: &mut Words<'_>, keyword: Word<'_>) -> Result<u8, ParseError> {
    const EXPECTED: &str = "tcp, udp, sctp, icmp, icmpv6 or a number";
    let value = words.value(keyword, EXPECTED)?;
    match value.text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmpv6" => Ok(58),
        "sctp" => Ok(132),
        text => number(text)
            .and_then(|n| u8::try_from(n).ok())
            .ok_or_else(|| bad(words, value, "ip_proto", EXPECTED)),
    }
}

fn byte_and_mask(words: &mut Words<'_>, keyword: Word<'_>) -> Result<Masked<u8>, ParseError> {
    const EXPECTED: &str = "a byte and perhaps a mask, such as 0x10/0xfc";
    let value = words.value(keyword, EXPECTED)?;
    let (byte, mask) = value.text.split_once('/').unwrap_or((value.text, "0xff"));
    // Hexadecimal with or without its mark, as `tc` has it.
    let byte_of = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u8::from_str_radix(digits, 16)
            .ok()
            .filter(|_| !digits.starts_with('+'))
    };
    byte_of(byte)
        .zip(byte_of(mask))
        .map(|(value, mask)| Masked {
            value: value & mask,
            mask,
        })
        .ok_or_else(|| bad(words, value, "ip_tos", EXPECTED))
}

/// `10.0.0.0/8`; without a length the whole address counts, and with length 0 none of it.
fn prefix(
    words: &mut Words<'_>,
    keyword: Word<'_>,
    network: Option<Network>,
) -> Result<Option<Masked<Address>>, ParseError> {
    const EXPECTED: &str = "an address of this protocol, such as 192.0.2.0/24 or 2001:db8::/32";
    let value = words.value(keyword, EXPECTED)?;
    let read = || {
        let (address, length) = match value.text.split_once('/') {
            Some((address, length)) => (address, Some(number(length)?)),
            None => (value.text, None),
        };
        match (address.parse().ok()?, network?) {
            (IpAddr::V4(address), Network::Ipv4) => {
                let length = length.unwrap_or(32);
                let mask = !u32::MAX.checked_shr(length).unwrap_or(0);
                (length <= 32).then_some(Masked {
                    value: Address::V4(address.to_bits() & mask),
                    mask: Address::V4(mask),
                })
            }
            (IpAddr::V6(address), Network::Ipv6) => {
                let length = length.unwrap_or(128);
                let mask = !u128::MAX.checked_shr(length).unwrap_or(0);
                (length <= 128).then_some(Masked {
                    value: Address::V6(address.to_bits() & mask),
                    mask: Address::V6(mask),
                })
            }
            _ => None,
        }
    };
    let address = read().ok_or_else(|| bad(words, value, "address", EXPECTED))?;
    Ok(Some(address).filter(|address| !matches!(address.mask, Address::V4(0) | Address::V6(0))))
}

/// A number as C reads it: decimal, `0x` hexadecimal, `0` octal.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    u32::from_str_radix(digits, radix)
        .ok()
        .filter(|_| !digits.starts_with('+'))
}
