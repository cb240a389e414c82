//! The firewall table of an interface, through `NETLINK_NETFILTER`: one batch sets or removes all of it.
//!
//! This is not a library's work, because those that exist run the `nft` program, need its C library, or have a licence that
//! this program cannot use; a table of plain rules needs only a few hundred lines. Constants are from
//! `linux/netfilter/nf_tables.h`. Unlike elsewhere in netlink, numbers are in network byte order.

use sqm_plan::plan::{Firewall, Hook, Rule, RuleAction, RuleCondition};

use super::attribute::{Attributes, Builder};
use super::socket::{BatchMessage, NLM_F_APPEND, NLM_F_CREATE, NetlinkError, Socket};

/// `NFNL_SUBSYS_NFTABLES`, in the upper byte of a message's kind.
const SUBSYSTEM: u16 = 10 << 8;
const NEWTABLE: u16 = SUBSYSTEM;
const GETTABLE: u16 = SUBSYSTEM | 1;
const DELTABLE: u16 = SUBSYSTEM | 2;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const NEWRULE: u16 = SUBSYSTEM | 6;
const GETRULE: u16 = SUBSYSTEM | 7;

const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;

/// `NFPROTO_INET`: a table for IPv4 and IPv6.
const FAMILY: u8 = 1;
/// Priority of the chains, `mangle` (`NF_IP_PRI_MANGLE`): before chains that filter.
const PRIORITY: i32 = -150;
/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;
/// The register that our expressions use (`NFT_REG_1`).
const REGISTER: u32 = 1;
/// Length of a device's name with padding (`IFNAMSIZ`): the kernel compares the whole field.
const NAME_LENGTH: usize = 16;

/// The hooks at which a plan may have a chain.
const HOOKS: [Hook; 3] = [Hook::Prerouting, Hook::Output, Hook::Postrouting];

/// Makes the table, or replaces one of that name, in one transaction: no packet meets a part of it.
pub fn set(socket: &mut Socket, firewall: &Firewall) -> Result<(), NetlinkError> {
    socket.batch(SUBSYSTEM >> 8, &encode_table(firewall))
}

/// The messages that make the table. It is made and deleted first, because deleting a table that is missing is an error.
pub(super) fn encode_table(firewall: &Firewall) -> Vec<BatchMessage> {
    let table = &firewall.table;
    let mut messages = vec![new_table(table), delete_table(table), new_table(table)];
    let rules = firewall.rules();
    for hook in HOOKS {
        if rules.iter().any(|(at, _)| *at == hook) {
            messages.push(new_chain(table, hook));
        }
    }
    messages.extend(rules.iter().map(|(hook, rule)| {
        let expressions = expressions(rule, firewall);
        let attributes = Builder::default()
            .text(RULE_TABLE, table)
            .text(RULE_CHAIN, &hook.to_string())
            .nested(RULE_EXPRESSIONS, list(&expressions));
        message(NEWRULE, NLM_F_CREATE | NLM_F_APPEND, attributes)
    }));
    messages
}

/// Removes the table.
pub fn remove(socket: &mut Socket, table: &str) -> Result<(), NetlinkError> {
    socket.batch(SUBSYSTEM >> 8, &[delete_table(table)])
}

/// True if there is a table of that name.
pub fn exists(socket: &mut Socket, table: &str) -> Result<bool, NetlinkError> {
    let tables = socket.dump(GETTABLE, &body(Builder::default()))?;
    Ok(tables.iter().any(|message| {
        let family = message.body.first().copied();
        family == Some(FAMILY) && attributes_of(&message.body).text(TABLE_NAME).as_deref() == Some(table)
    }))
}

/// True if the table holds the planned rules and no others.
pub fn holds(socket: &mut Socket, firewall: &Firewall) -> Result<bool, NetlinkError> {
    let request = Builder::default().text(RULE_TABLE, &firewall.table);
    let listed: Vec<Vec<u8>> = socket
        .dump(GETRULE, &body(request))?
        .into_iter()
        .map(|message| message.body)
        .filter(|body| attributes_of(body).text(RULE_TABLE).as_deref() == Some(&firewall.table))
        .collect();
    Ok(are_planned(&listed, firewall))
}

/// True if the rules of a table, as the kernel lists them, are the planned ones.
pub(super) fn are_planned(listed: &[Vec<u8>], firewall: &Firewall) -> bool {
    let rules = firewall.rules();
    // Within a chain the kernel keeps the order of rules; the order of the chains is undefined.
    let same = HOOKS.iter().all(|hook| {
        let name = hook.to_string();
        let planned: Vec<_> = rules.iter().filter(|(at, _)| at == hook).collect();
        let found: Vec<_> = listed.iter().filter(|body| decode_rule(body).0 == name).collect();
        planned.len() == found.len()
            && planned
                .iter()
                .zip(found)
                .all(|((_, rule), body)| same_rule(&expressions(rule, firewall), body))
    });
    same && rules.len() == listed.len()
}

/// One expression of a rule: its name and its attributes.
#[derive(Clone, Debug)]
struct Expression {
    name: &'static str,
    data: Builder,
}

/// Decodes a rule that the kernel lists: its chain, and the names and attributes of its expressions.
pub fn decode_rule(body: &[u8]) -> (String, Vec<(String, &[u8])>) {
    let rule = attributes_of(body);
    let expressions = rule
        .nested(RULE_EXPRESSIONS)
        .map(|(_, element)| {
            let element = Attributes(element);
            let data = element.get(EXPRESSION_DATA).unwrap_or_default();
            (element.text(EXPRESSION_NAME).unwrap_or_default(), data)
        })
        .collect();
    (rule.text(RULE_CHAIN).unwrap_or_default(), expressions)
}

/// True if a rule is as planned: the kernel reports every attribute that we set, and some more.
fn same_rule(planned: &[Expression], body: &[u8]) -> bool {
    let (_, found) = decode_rule(body);
    planned.len() == found.len()
        && planned.iter().zip(found).all(|(expression, (name, data))| {
            let planned = expression.data.clone().finish();
            name == expression.name
                && Attributes(&planned).all(|(kind, value)| Attributes(data).get(kind) == Some(value))
        })
}

fn new_table(table: &str) -> BatchMessage {
    message(NEWTABLE, NLM_F_CREATE, Builder::default().text(TABLE_NAME, table))
}

fn delete_table(table: &str) -> BatchMessage {
    message(DELTABLE, 0, Builder::default().text(TABLE_NAME, table))
}

fn new_chain(table: &str, hook: Hook) -> BatchMessage {
    let number = match hook {
        Hook::Prerouting => 0,
        Hook::Output => 3,
        Hook::Postrouting => 4,
    };
    let place = be32(
        be32(Builder::default(), HOOK_NUMBER, number),
        HOOK_PRIORITY,
        PRIORITY.cast_unsigned(),
    );
    let attributes = Builder::default()
        .text(CHAIN_TABLE, table)
        .text(CHAIN_NAME, &hook.to_string())
        .nested(CHAIN_HOOK, place)
        .text(CHAIN_TYPE, "filter");
    message(NEWCHAIN, NLM_F_CREATE, attributes)
}

fn message(kind: u16, flags: u16, attributes: Builder) -> BatchMessage {
    BatchMessage {
        kind,
        flags,
        body: body(attributes),
    }
}

fn body(attributes: Builder) -> Vec<u8> {
    let mut body = vec![FAMILY, 0, 0, 0];
    body.extend(attributes.finish());
    body
}

fn attributes_of(body: &[u8]) -> Attributes<'_> {
    Attributes(body.get(HEADER..).unwrap_or_default())
}

fn list(expressions: &[Expression]) -> Builder {
    expressions
        .iter()
        .fold(Builder::default(), |list, Expression { name, data }| {
            let element = Builder::default()
                .text(EXPRESSION_NAME, name)
                .nested(EXPRESSION_DATA, data.clone());
            list.nested(LIST_ELEMENT, element)
        })
}

fn expressions(rule: &Rule, firewall: &Firewall) -> Vec<Expression> {
    let conditions = rule
        .conditions
        .iter()
        .flat_map(|condition| match_expressions(*condition, firewall));
    let actions = rule
        .actions
        .iter()
        .flat_map(|action| action_expressions(*action, firewall.mask));
    conditions.chain(actions).collect()
}

/// The expressions that match what a condition asks for.
fn match_expressions(condition: RuleCondition, firewall: &Firewall) -> Vec<Expression> {
    let interface = || {
        let mut name = firewall.interface.as_bytes().to_vec();
        name.resize(NAME_LENGTH, 0);
        name
    };
    match condition {
        RuleCondition::Arrives => vec![load_meta(META_IIFNAME), compare(EQUAL, &interface())],
        RuleCondition::Leaves => vec![load_meta(META_OIFNAME), compare(EQUAL, &interface())],
        RuleCondition::LeavesElsewhere => vec![load_meta(META_OIFNAME), compare(NOT_EQUAL, &interface())],
        RuleCondition::Marked(is) => {
            let operation = if is { NOT_EQUAL } else { EQUAL };
            let mask = firewall.mask.to_ne_bytes();
            vec![
                load_meta(META_MARK),
                mask_and_xor(&mask, &[0; 4]),
                compare(operation, &[0; 4]),
            ]
        }
        RuleCondition::Ipv6(ipv6) => vec![
            load_meta(META_NFPROTO),
            compare(EQUAL, &[if ipv6 { 10 } else { 2 }]),
        ],
        RuleCondition::Transport(protocol) => vec![load_meta(META_L4PROTO), compare(EQUAL, &[protocol])],
        RuleCondition::Port(port) => vec![load(TRANSPORT, 2, 2), compare(EQUAL, &port.to_be_bytes())],
        RuleCondition::Icmpv6Type(first, last) => vec![
            load(TRANSPORT, 0, 1),
            compare(AT_LEAST, &[first]),
            compare(AT_MOST, &[last]),
        ],
        RuleCondition::Dscp { ipv6, dscp, is } => {
            let operation = if is { EQUAL } else { NOT_EQUAL };
            if ipv6 {
                let value = (u16::from(dscp) << 6).to_be_bytes();
                vec![
                    load(NETWORK, 0, 2),
                    mask_and_xor(&[0x0f, 0xc0], &[0; 2]),
                    compare(operation, &value),
                ]
            } else {
                vec![
                    load(NETWORK, 1, 1),
                    mask_and_xor(&[0xfc], &[0]),
                    compare(operation, &[dscp << 2]),
                ]
            }
        }
    }
}

/// The expressions that carry out an action.
fn action_expressions(action: RuleAction, mask: u32) -> Vec<Expression> {
    match action {
        RuleAction::Mark(mark) => vec![
            load_meta(META_MARK),
            mask_and_xor(&(!mask).to_ne_bytes(), &(mark & mask).to_ne_bytes()),
            set_meta(META_MARK),
        ],
        // Two bytes at an even place, because the checksum counts such.
        RuleAction::EraseDscp { ipv6 } => {
            let kept: [u8; 2] = if ipv6 { [0xf0, 0x3f] } else { [0xff, 0x03] };
            vec![
                load(NETWORK, 0, 2),
                mask_and_xor(&kept, &[0; 2]),
                store(0, 2, !ipv6),
            ]
        }
        RuleAction::Return => {
            /// `NFT_RETURN`.
            const RETURN: i32 = -5;
            /// `NFT_REG_VERDICT`.
            const VERDICT_REGISTER: u32 = 0;
            let verdict = be32(Builder::default(), VERDICT_CODE, RETURN.cast_unsigned());
            let data = Builder::default().nested(DATA_VERDICT, verdict);
            let register = be32(Builder::default(), immediate::DESTINATION, VERDICT_REGISTER);
            let data = register.nested(immediate::DATA, data);
            vec![Expression {
                name: "immediate",
                data,
            }]
        }
    }
}

/// Keys of the `meta` expression (`NFT_META_*`).
const META_MARK: u32 = 3;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
/// Operations of the `cmp` expression (`NFT_CMP_*`).
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
/// Bases of the `payload` expression (`NFT_PAYLOAD_*_HEADER`).
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

/// `NFTA_META_*`.
mod meta {
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const KEY: u16 = 2;
    pub(super) const SOURCE: u16 = 3;
}

/// `NFTA_CMP_*`.
mod cmp {
    pub(super) const SOURCE: u16 = 1;
    pub(super) const OPERATION: u16 = 2;
    pub(super) const DATA: u16 = 3;
}

/// `NFTA_IMMEDIATE_*`.
mod immediate {
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const DATA: u16 = 2;
}

/// `NFTA_BITWISE_*`.
mod bitwise {
    pub(super) const SOURCE: u16 = 1;
    pub(super) const DESTINATION: u16 = 2;
    pub(super) const LENGTH: u16 = 3;
    pub(super) const MASK: u16 = 4;
    pub(super) const XOR: u16 = 5;
}

/// `NFTA_PAYLOAD_*`.
mod payload {
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const BASE: u16 = 2;
    pub(super) const OFFSET: u16 = 3;
    pub(super) const LENGTH: u16 = 4;
    pub(super) const SOURCE: u16 = 5;
    pub(super) const CHECKSUM_TYPE: u16 = 6;
    pub(super) const CHECKSUM_OFFSET: u16 = 7;
}

/// Loads a property of the packet into the register.
fn load_meta(key: u32) -> Expression {
    let data = be32(Builder::default(), meta::DESTINATION, REGISTER);
    Expression {
        name: "meta",
        data: be32(data, meta::KEY, key),
    }
}

/// Sets a property of the packet to the register.
fn set_meta(key: u32) -> Expression {
    let data = be32(Builder::default(), meta::KEY, key);
    Expression {
        name: "meta",
        data: be32(data, meta::SOURCE, REGISTER),
    }
}

/// Ends the rule unless the register compares to `value` like this.
fn compare(operation: u32, value: &[u8]) -> Expression {
    let data = be32(Builder::default(), cmp::SOURCE, REGISTER);
    let data =
        be32(data, cmp::OPERATION, operation).nested(cmp::DATA, Builder::default().bytes(DATA_VALUE, value));
    Expression { name: "cmp", data }
}

/// Replaces the register by (register and `mask`) xor `xor`.
fn mask_and_xor(mask: &[u8], xor: &[u8]) -> Expression {
    let data = be32(Builder::default(), bitwise::SOURCE, REGISTER);
    let data = be32(data, bitwise::DESTINATION, REGISTER);
    let data = be32(data, bitwise::LENGTH, mask.len() as u32)
        .nested(bitwise::MASK, Builder::default().bytes(DATA_VALUE, mask))
        .nested(bitwise::XOR, Builder::default().bytes(DATA_VALUE, xor));
    Expression {
        name: "bitwise",
        data,
    }
}

/// Loads bytes of a header into the register.
fn load(base: u32, offset: u32, length: u32) -> Expression {
    let data = be32(Builder::default(), payload::DESTINATION, REGISTER);
    let data = be32(data, payload::BASE, base);
    let data = be32(data, payload::OFFSET, offset);
    Expression {
        name: "payload",
        data: be32(data, payload::LENGTH, length),
    }
}

/// Writes the register into the network header. With a checksum, the one at byte 10 of an IPv4 header is updated.
fn store(offset: u32, length: u32, has_checksum: bool) -> Expression {
    /// `NFT_PAYLOAD_CSUM_NONE` and `NFT_PAYLOAD_CSUM_INET`.
    const NO_CHECKSUM: u32 = 0;
    const INTERNET_CHECKSUM: u32 = 1;
    let (checksum, at) = if has_checksum {
        (INTERNET_CHECKSUM, 10)
    } else {
        (NO_CHECKSUM, 0)
    };
    let data = be32(Builder::default(), payload::BASE, NETWORK);
    let data = be32(data, payload::OFFSET, offset);
    let data = be32(data, payload::LENGTH, length);
    let data = be32(data, payload::SOURCE, REGISTER);
    let data = be32(data, payload::CHECKSUM_TYPE, checksum);
    Expression {
        name: "payload",
        data: be32(data, payload::CHECKSUM_OFFSET, at),
    }
}

/// Appends a number in network byte order.
fn be32(builder: Builder, kind: u16, value: u32) -> Builder {
    builder.bytes(kind, &value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn firewall() -> Firewall {
        Firewall {
            table: "sqm_eth0".to_owned(),
            interface: "eth0".to_owned(),
            mask: 0xff,
            marks_leaving: true,
            erases_dscp: true,
        }
    }

    #[test]
    fn a_rule_is_equal_to_itself_and_to_no_other() {
        let firewall = firewall();
        let rules = firewall.rules();
        for (n, (_, rule)) in rules.iter().enumerate() {
            let planned = expressions(rule, &firewall);
            let reported = body(Builder::default().nested(RULE_EXPRESSIONS, list(&planned)));
            for (other, (_, rule)) in rules.iter().enumerate() {
                let other_planned = expressions(rule, &firewall);
                let twins = rules[n].1 == rules[other].1;
                assert_eq!(same_rule(&other_planned, &reported), twins, "{n} {other}");
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let rule = &firewall().rules()[0].1;
            let _ = same_rule(&expressions(rule, &firewall()), &bytes);
        }
    }
}
