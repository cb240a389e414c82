//! Filters that send packets to classes: `fw` matches firewall marks, `u32` matches words of the packet.

use sqm_plan::plan::{Condition, Key, PlannedFilter, Protocol};

use super::attribute::{Attributes, Builder, u32_at};
use super::tc::Entry;

const FW_CLASSID: u16 = 1;
const FW_ACT: u16 = 4;
const FW_MASK: u16 = 5;
const U32_CLASSID: u16 = 1;
const U32_LINK: u16 = 3;
const U32_SEL: u16 = 5;
const U32_ACT: u16 = 7;
const U32_MARK: u16 = 10;

/// `TC_U32_TERMINAL`: no further filters are tried.
const TERMINAL: u8 = 1;
/// Lengths of `struct tc_u32_sel` without keys, and of `struct tc_u32_key`, bytes.
const SELECTOR: usize = 16;
const KEY: usize = 16;

/// A filter as the kernel holds it, or should hold it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    /// Filters with a lower preference are tried first.
    pub preference: u16,
    /// `ETH_P_*`.
    pub protocol: u16,
    /// The class to which a packet that matches goes.
    pub class: u32,
    /// Which packets it matches.
    pub rule: Rule,
}

/// The packets that a filter matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A firewall mark, and the mask of the bits that are compared.
    Mark(u32, u32),
    /// Words of the packet: offset in bytes, value, mask.
    Words(Vec<(u32, u32, u32)>),
    /// Something that plans do not use; the kind of the filter.
    Other(String),
}

/// Encodes a planned filter: the filter as [`decode`] will find it, its kind, handle and options.
pub fn encode(planned: &PlannedFilter) -> (Filter, &'static str, u32, Vec<u8>) {
    let class = planned.class.bits();
    let filter = |rule| Filter {
        preference: planned.preference,
        protocol: ether_type(planned.protocol),
        class,
        rule,
    };
    if let Condition::Mark { value, mask } = planned.condition {
        let options = Builder::default().u32(FW_CLASSID, class).u32(FW_MASK, mask);
        return (filter(Rule::Mark(value, mask)), "fw", value, options.finish());
    }
    let keys = planned.condition.keys(planned.protocol);
    let options = Builder::default()
        .u32(U32_CLASSID, class)
        .bytes(U32_SEL, &selector(&keys));
    let words = keys.iter().map(|key| (key.at, key.value, key.mask)).collect();
    (filter(Rule::Words(words)), "u32", 0, options.finish())
}

/// Decodes a filter that the kernel lists. `None` for the entries of protocols and hash tables that it lists, too.
pub fn decode(entry: &Entry) -> Option<Filter> {
    let options = Attributes(entry.options());
    let kind = entry.kind();
    let (class, rule) = match kind.as_str() {
        "fw" => {
            let class = options.u32(FW_CLASSID)?;
            let rule = match options.get(FW_ACT) {
                None => Rule::Mark(entry.handle, options.u32(FW_MASK).unwrap_or(u32::MAX)),
                Some(_) => Rule::Other(kind),
            };
            (class, rule)
        }
        "u32" => {
            let selector = options.get(U32_SEL)?;
            let plain = [U32_LINK, U32_ACT, U32_MARK]
                .iter()
                .all(|kind| options.get(*kind).is_none());
            let words = words(selector).filter(|_| plain);
            (
                options.u32(U32_CLASSID).unwrap_or(0),
                words.map_or(Rule::Other(kind), Rule::Words),
            )
        }
        _ if entry.handle == 0 => return None,
        _ => (0, Rule::Other(kind)),
    };
    Some(Filter {
        preference: entry.preference(),
        protocol: entry.protocol(),
        class,
        rule,
    })
}

/// Turns reported options into options that make the same filter.
pub(crate) fn recreate_options(kind: &str, options: &[u8]) -> Vec<u8> {
    let kept: &[u16] = match kind {
        "fw" => &[FW_CLASSID, FW_MASK],
        _ => &[U32_CLASSID, U32_SEL],
    };
    Attributes(options)
        .filter(|(kind, _)| kept.contains(kind))
        .fold(Builder::default(), |built, (kind, payload)| {
            built.bytes(kind, payload)
        })
        .finish()
}

/// The protocol as `ETH_P_*`.
pub const fn ether_type(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::All => 0x0003,
        Protocol::Ip => 0x0800,
        Protocol::Ipv6 => 0x86dd,
        Protocol::Arp => 0x0806,
    }
}

/// `struct tc_u32_sel` with its keys: mask and value in network byte order, offset, mask of the offset.
fn selector(keys: &[Key]) -> Vec<u8> {
    let mut bytes = vec![0; SELECTOR];
    bytes[0] = TERMINAL;
    bytes[2] = keys.len() as u8;
    for Key { at, value, mask } in keys {
        bytes.extend_from_slice(&mask.to_be_bytes());
        bytes.extend_from_slice(&value.to_be_bytes());
        bytes.extend_from_slice(&at.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    bytes
}

/// Decodes a selector. `None` if it does more than compare words at fixed offsets.
fn words(selector: &[u8]) -> Option<Vec<(u32, u32, u32)>> {
    let count = usize::from(*selector.get(2)?);
    if selector.len() != SELECTOR + count * KEY || selector[0] != TERMINAL {
        return None;
    }
    (0..count)
        .map(|n| {
            let at = SELECTOR + n * KEY;
            let fixed = u32_at(selector, at + 12)? == 0;
            let word = |at| u32_at(selector, at).map(u32::from_be);
            fixed.then_some((u32_at(selector, at + 8)?, word(at + 4)?, word(at)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sqm_plan::plan::Handle;

    use super::*;

    fn entry(kind: &str, handle: u32, info: u32, options: &[u8]) -> Entry {
        Entry {
            device: 1,
            handle,
            parent: 0x1_0000,
            info,
            attributes: Builder::default().text(1, kind).bytes(2, options).finish(),
        }
    }

    #[test]
    fn a_planned_filter_reads_back() {
        let port = Condition::WellKnownPort {
            transport: 6,
            destination: true,
        };
        for (condition, protocol) in [
            (Condition::Always, Protocol::Arp),
            (Condition::Mark { value: 2, mask: 0xff }, Protocol::Ip),
            (Condition::Dscp(46), Protocol::Ipv6),
            (port, Protocol::Ip),
        ] {
            let planned = PlannedFilter {
                preference: 7,
                protocol,
                condition,
                class: Handle::new(1, 0x11),
            };
            let (filter, kind, handle, options) = encode(&planned);
            let info = 7 << 16 | u32::from(ether_type(protocol).to_be());
            let entry = entry(kind, handle, info, &options);
            assert_eq!(decode(&entry), Some(filter), "{planned}");
        }
    }

    #[test]
    fn a_dscp_is_matched_where_each_protocol_has_it() {
        assert_eq!(Condition::Dscp(46).keys(Protocol::Ip)[0].value, 0x00b8_0000);
        assert_eq!(Condition::Dscp(46).keys(Protocol::Ipv6)[0].value, 0x0b80_0000);
        assert_eq!(Condition::Dscp(46).keys(Protocol::Ipv6)[0].mask, 0x0fc0_0000);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..96), fw: bool) {
            let _ = decode(&entry(if fw { "fw" } else { "u32" }, 1, 0, &bytes));
        }
    }
}
