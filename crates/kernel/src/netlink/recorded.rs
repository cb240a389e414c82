//! The codecs against recorded messages of the real `tc`, `ip` and `nft`, and the kernel's answers to them.
//!
//! The recordings are in `testdata/netlink`; `capture.py` there made them, and describes their form. What a command asks for
//! is read from its own words by [`Command::parse`], then
//!
//! * our encoding must hold every attribute that the tool sent, with the same value (what we send beyond it are the
//!   defaults that the tool leaves to the kernel),
//! * the kernel's answer, decoded, must be what the command asked for.

mod statistics;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sqm_core::spec::Qdisc;
use sqm_core::spec::command::{ClassNode, Command, QdiscNode};
use sqm_plan::plan::{Condition, Handle, PlannedClass, PlannedFilter, Protocol, Tree};

use super::attribute::{Attributes, Builder, u32_at};
use super::fq_codel::Purpose;
use super::link::{self, decode_link};
use super::socket::{self, Message};
use super::tc::{Entry, INGRESS, INGRESS_HANDLE, NewFilter, NewQdisc, PROTOCOL_ALL, ROOT, decode_entry};
use super::{filter, flowtable, htb, nftables, options, redirect, size_table};
use crate::observe::{decode_class, decode_qdisc};
use crate::verify::{same_class, same_qdisc, same_stab};

/// MTU of the device on which the commands were run.
const MTU: u32 = 1500;

/// A command, and the messages that it exchanged with the kernel.
struct Exchange {
    command: String,
    sent: Vec<Message>,
    answered: Vec<Message>,
    printed: String,
}

impl Exchange {
    /// The one message that it sent.
    fn request(&self) -> &Message {
        let [request] = self.sent.as_slice() else {
            panic!("{}: {} messages", self.command, self.sent.len());
        };
        request
    }

    fn requested(&self) -> Entry {
        decode_entry(&self.request().body).expect("a request about queues")
    }

    fn entries(&self) -> Vec<Entry> {
        let entries = self
            .answered
            .iter()
            .filter_map(|message| decode_entry(&message.body));
        entries.collect()
    }
}

fn recording(name: &str) -> Vec<Exchange> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/netlink/{name}.txt"));
    let text = fs::read_to_string(path).expect("a recording");
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (mark, rest) = line.split_once(' ').expect("a mark before each line");
        if mark == "$" {
            exchanges.push(Exchange {
                command: rest.to_owned(),
                sent: Vec::new(),
                answered: Vec::new(),
                printed: String::new(),
            });
            continue;
        }
        let exchange = exchanges.last_mut().expect("a command comes first");
        match mark {
            ">" => exchange.sent.extend(messages(rest)),
            "<" => exchange.answered.extend(messages(rest)),
            "|" => exchange.printed.push_str(rest),
            _ => panic!("{line}"),
        }
    }
    exchanges
}

fn messages(hexadecimal: &str) -> impl Iterator<Item = Message> {
    let byte = |at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).expect("two digits");
    let bytes: Vec<u8> = (0..hexadecimal.len()).step_by(2).map(byte).collect();
    socket::messages(&bytes).into_iter().map(|(_, message)| message)
}

/// Pairs of a command that makes something, and the one that shows it.
fn pairs(exchanges: &[Exchange]) -> impl Iterator<Item = (&Exchange, &Exchange)> {
    exchanges.chunks(2).map(|pair| (&pair[0], &pair[1]))
}

fn attributes(bytes: &[u8]) -> BTreeMap<u16, &[u8]> {
    Attributes(bytes).collect()
}

/// Fails unless each attribute of `theirs`, but those left out, is among `ours` with the same value.
fn assert_holds(ours: &[u8], theirs: &[u8], left_out: &[u16], command: &str) {
    let ours = attributes(ours);
    for (kind, value) in attributes(theirs) {
        if !left_out.contains(&kind) {
            assert_eq!(ours.get(&kind), Some(&value), "attribute {kind} of {command}");
        }
    }
}

/// Rate specifications and tables differ on purpose: `tc` describes a table of transmission times by `cell_log` and
/// `cell_align` and sends it along, which kernels since 3.9 do not look at.
fn without_rate_tables(parms: &[u8], rates: usize) -> Vec<u8> {
    let mut parms = parms.to_vec();
    for rate in 0..rates {
        let at = rate * htb::RATESPEC;
        // Without a peak rate, the whole specification is empty.
        parms[at] = 0;
        parms[at + 4..at + 6].fill(0);
    }
    parms
}

fn assert_same_options(qdisc: &Qdisc, theirs: &[u8], command: &str) {
    let ours = options::encode(qdisc, Purpose::Create);
    match qdisc {
        // A structure, in which tc sends 0 for what is left to the kernel.
        Qdisc::Sfq(_) => {
            assert_eq!(ours.len(), theirs.len(), "{command}");
            for (ours, theirs) in ours.chunks(4).zip(theirs.chunks(4)) {
                assert!(
                    ours == theirs || theirs == [0; 4],
                    "{command}: {ours:?} {theirs:?}"
                );
            }
        }
        // Other structures.
        Qdisc::Pfifo(_) | Qdisc::Bfifo(_) | Qdisc::PfifoHeadDrop(_) | Qdisc::Hfsc(_) => {
            assert_eq!(ours, theirs, "{command}");
        }
        Qdisc::Tbf(_) => {
            const PARMS: u16 = 1;
            const TABLES: [u16; 2] = [2, 3];
            assert_holds(&ours, theirs, &[PARMS, TABLES[0], TABLES[1]], command);
            // The kernel goes by the bursts in bytes, which are attributes; those in ticks come last here.
            let parms = |options| without_rate_tables(attributes(options)[&PARMS], 2)[..28].to_vec();
            assert_eq!(parms(&ours), parms(theirs), "{command}");
        }
        _ => assert_holds(&ours, theirs, &[], command),
    }
}

#[test]
fn qdiscs_are_encoded_as_by_tc_and_decoded_from_the_kernels_answers() {
    for name in [
        "cake",
        "fq_codel",
        "codel",
        "pie",
        "sfq",
        "fifo",
        "tbf",
        "size_table",
    ] {
        for (add, show) in pairs(&recording(name)) {
            check_qdisc(add, show);
        }
    }
    // Their recordings go on with classes.
    for name in ["htb", "hfsc"] {
        let recording = recording(name);
        check_qdisc(&recording[0], &recording[1]);
    }
}

fn check_qdisc(add: &Exchange, show: &Exchange) {
    let command = &add.command;
    let Ok(Command::Qdisc(QdiscNode { stab, qdisc, .. })) = Command::parse(command) else {
        panic!("{command}");
    };
    let encoded = stab.as_ref().map(size_table::encode);
    let requested = add.requested();
    assert_same_options(&qdisc, requested.options(), command);
    assert_eq!(encoded.as_deref(), requested.stab(), "{command}");
    let new = NewQdisc {
        device: requested.device,
        parent: ROOT,
        handle: 0x1_0000,
        kind: qdisc.kind(),
        options: requested.options(),
        stab: requested.stab(),
    };
    assert_eq!(
        decode_entry(&new.encode()),
        Some(without_empty_options(requested))
    );
    let answers = show.entries();
    let [answer] = answers.as_slice() else {
        panic!("{command}: {} qdiscs", answers.len());
    };
    let found = decode_qdisc(answer);
    let held = found.qdisc.as_ref().expect("a kind that plans use");
    assert!(same_qdisc(&qdisc, held, MTU), "{command}: {held}");
    assert!(same_stab(stab.as_ref(), found.stab.as_ref()), "{command}");
}

/// `tc` sends options without content, we send none then.
fn without_empty_options(entry: Entry) -> Entry {
    const OPTIONS: u16 = 2;
    let kept = Attributes(&entry.attributes).filter(|(kind, value)| *kind != OPTIONS || !value.is_empty());
    let attributes = kept
        .fold(Builder::default(), |built, (kind, value)| {
            built.bytes(kind, value)
        })
        .finish();
    Entry { attributes, ..entry }
}

#[test]
fn classes_are_encoded_as_by_tc_and_decoded_from_the_kernels_answers() {
    for name in ["htb", "hfsc"] {
        let recording = recording(name);
        let answers = recording.last().expect("tc class show").entries();
        let mut classes = 0;
        for add in &recording {
            let Ok(Command::Class(ClassNode { id, class, .. })) = Command::parse(&add.command) else {
                continue;
            };
            let requested = add.requested();
            assert_eq!((requested.parent, requested.handle), (0x1_0000, id.bits()));
            let ours = options::encode_class(&class);
            if name == "htb" {
                assert_same_htb_class(&ours, requested.options(), &add.command);
            } else {
                assert_holds(&ours, requested.options(), &[], &add.command);
            }
            let answer = answers.iter().find(|entry| entry.handle == id.bits());
            let found = decode_class(answer.expect("it is listed")).expect("a kind that plans use");
            assert_eq!((found.id, found.parent), (id, Handle::new(1, 0)));
            let tree = Tree {
                qdiscs: Vec::new(),
                classes: Vec::new(),
                filters: Vec::new(),
            };
            let planned = PlannedClass {
                parent: found.parent,
                id,
                class,
            };
            assert!(
                same_class(&tree, &planned, &found.class),
                "{}: {}",
                add.command,
                found.class
            );
            classes += 1;
        }
        assert!(classes > 1, "{name}");
    }
}

/// iproute2 counts the time of a burst in whole microseconds, rounded down; we count it in ticks, rounded up.
fn assert_same_htb_class(ours: &[u8], theirs: &[u8], command: &str) {
    const PARMS: u16 = 1;
    const TABLES: [u16; 2] = [3, 4];
    /// Where `struct tc_htb_opt` has `buffer` and `cbuffer`.
    const BURSTS: [usize; 2] = [24, 28];
    const TICKS_IN_MICROSECOND: u32 = 16;
    assert_holds(ours, theirs, &[PARMS, TABLES[0], TABLES[1]], command);
    let parms = |options| without_rate_tables(attributes(options)[&PARMS], 2);
    let (mut ours, theirs) = (parms(ours), parms(theirs));
    for at in BURSTS {
        let (planned, recorded) = (u32_at(&ours, at).unwrap(), u32_at(&theirs, at).unwrap());
        assert!(
            (recorded..=recorded + TICKS_IN_MICROSECOND).contains(&planned),
            "{planned} and {recorded} ticks: {command}"
        );
        ours[at..at + 4].copy_from_slice(&theirs[at..at + 4]);
    }
    assert_eq!(ours, theirs, "{command}");
}

/// The filters of the recording, in its order.
fn filters() -> [PlannedFilter; 6] {
    let filter = |preference, protocol, condition, minor| PlannedFilter {
        preference,
        protocol,
        condition,
        class: Handle::new(1, minor),
    };
    let port = Condition::WellKnownPort {
        transport: 6,
        destination: true,
    };
    [
        filter(1, Protocol::Ip, Condition::Mark { value: 2, mask: 0xff }, 0x11),
        filter(2, Protocol::Ip, Condition::Always, 0x11),
        filter(3, Protocol::Ip, Condition::Dscp(46), 0x12),
        filter(4, Protocol::Ipv6, Condition::Dscp(46), 0x12),
        filter(5, Protocol::Ip, port, 0x11),
        filter(6, Protocol::Arp, Condition::Always, 0x11),
    ]
}

#[test]
fn filters_are_encoded_as_by_tc_and_decoded_from_the_kernels_answers() {
    let recording = recording("filter");
    let (show, adds) = recording.split_last().expect("a recording");
    let mut expected = Vec::new();
    for (add, planned) in adds.iter().zip(filters()) {
        let requested = add.requested();
        let (filter, kind, handle, options) = filter::encode(&planned);
        let new = NewFilter {
            device: requested.device,
            parent: 0x1_0000,
            preference: filter.preference,
            protocol: filter.protocol,
            handle,
            kind,
            options: &options,
        };
        let ours = decode_entry(&new.encode()).expect("a filter");
        assert_eq!(
            (ours.handle, ours.parent, ours.info),
            (requested.handle, requested.parent, requested.info),
            "{}",
            add.command
        );
        assert_eq!(ours.kind(), requested.kind());
        assert_holds(&options, requested.options(), &[], &add.command);
        expected.push(filter);
    }
    assert_eq!(expected.len(), adds.len());
    let mut found: Vec<_> = show.entries().iter().filter_map(filter::decode).collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn the_redirect_is_encoded_as_by_tc_and_decoded_from_the_kernels_answer() {
    let recording = recording("redirect");
    let [ingress, add, show] = recording.as_slice() else {
        panic!("three commands");
    };
    let requested = ingress.requested();
    assert_eq!(
        (requested.kind().as_str(), requested.parent, requested.handle),
        ("ingress", INGRESS, INGRESS_HANDLE)
    );
    let requested = add.requested();
    assert_eq!(
        (
            requested.kind().as_str(),
            requested.preference(),
            requested.protocol()
        ),
        (redirect::KIND, redirect::PREFERENCE, PROTOCOL_ALL)
    );
    let target = redirect::decode_redirect(requested.options()).expect("a redirect");
    assert_same_tree(&redirect::encode(target), requested.options());
    let found: Vec<_> = show
        .entries()
        .iter()
        .filter(|entry| redirect::is_filter(entry.options()))
        .map(|entry| redirect::decode_redirect(entry.options()))
        .collect();
    assert_eq!(found, [Some(target)]);
}

/// Fails unless both hold the same attributes, whatever their order. The selector is a structure.
fn assert_same_tree(ours: &[u8], theirs: &[u8]) {
    const ACTIONS: u16 = 7;
    assert_holds(ours, theirs, &[ACTIONS], "redirect");
    assert_holds(theirs, ours, &[ACTIONS], "redirect");
    let action = |bytes| {
        let action = Attributes(bytes).nested(ACTIONS).nested(1);
        (action.text(1), action.nested(2).get(2).map(<[u8]>::to_vec))
    };
    assert_eq!(action(ours), action(theirs));
}

#[test]
fn devices_are_made_as_by_ip_and_decoded_from_the_kernels_answer() {
    const LINKINFO: u16 = 18;
    let recording = recording("link");
    let [one, many, up, show] = recording.as_slice() else {
        panic!("four commands");
    };
    for (add, name, queues) in [(one, "ifb4d0", 1), (many, "ifb4d1", 4)] {
        let (header, theirs) = add.request().body.split_at(16);
        let ours = link::encode_new(name, "ifb", queues);
        assert_eq!(&ours[..16], header, "{}", add.command);
        let ours = &ours[16..];
        assert_holds(ours, theirs, &[LINKINFO], &add.command);
        // ip sends the kind without a closing zero byte.
        let kind = |bytes| Attributes(bytes).nested(LINKINFO).text(1);
        assert_eq!(kind(ours), kind(theirs));
    }
    let link = show
        .answered
        .last()
        .and_then(|message| decode_link(&message.body));
    let link = link.expect("a device");
    assert_eq!(
        (link.name.as_str(), link.kind.as_deref(), link.up, link.queues),
        ("ifb4d0", Some("ifb"), true, (1, 1))
    );
    assert_eq!(up.request().body, link::encode_up(link.index, true));
}

#[test]
fn firewall_rules_are_encoded_as_by_nft_and_recognised_in_the_kernels_answer() {
    let text = "config queue\n\toption enabled '1'\n\toption interface 'd0'\n\toption download '24000'\n\
                \toption upload '4400'\n\toption script 'simple.qos'\n\toption squash_dscp '1'\n\
                \toption squash_ingress '1'\n";
    let loaded = sqm_plan::load(text.as_bytes(), "test", &sqm_plan::device::Device::absent);
    let plan = loaded.expect("a configuration").plans.remove(0);
    let firewall = plan.firewall.expect("rules");
    let recording = recording("nftables");
    let (list, adds) = recording.split_last().expect("a recording");
    let commands: Vec<&str> = adds.iter().map(|add| add.command.as_str()).collect();
    assert_eq!(commands, firewall.nft());
    // In our batch, the table is made, deleted and made again.
    let ours = nftables::encode_table(&firewall).split_off(2);
    assert_eq!(ours.len(), adds.len());
    for (ours, add) in ours.iter().zip(adds) {
        let (theirs, command) = (add.request(), &add.command);
        assert_eq!(ours.kind, theirs.kind, "{command}");
        if command.contains("add rule") {
            assert_same_rule(&ours.body, &theirs.body, command);
        } else {
            // nft says that a table has no flags.
            const TABLE_FLAGS: u16 = 2;
            let left_out = [TABLE_FLAGS].map(|flags| if command.contains("add table") { flags } else { 0 });
            assert_holds(&ours.body[4..], &theirs.body[4..], &left_out, command);
        }
    }
    let listed: Vec<Vec<u8>> = list.answered.iter().map(|message| message.body.clone()).collect();
    assert!(nftables::are_planned(&listed, &firewall));
}

#[test]
fn a_flowtable_is_decoded_from_the_kernels_answer() {
    let recording = recording("flowtable");
    let [list] = recording.as_slice() else {
        panic!("one command");
    };
    let found: Vec<_> = list.answered.iter().filter_map(flowtable::decode).collect();
    let mut devices = found[0].devices.clone();
    devices.sort();
    assert_eq!(devices, ["d0", "ifb4d0"]);
    assert_eq!((found[0].name.as_str(), found[0].hardware), ("software", false));
    assert_eq!(found.len(), 1);
}

fn assert_same_rule(ours: &[u8], theirs: &[u8], command: &str) {
    /// nft names the operation of `bitwise`; we leave it to the kernel's default, which older kernels only have.
    const BITWISE_OPERATION: u16 = 6;
    /// Type and place of the checksum that a written payload changes; nft leaves them out where there is none.
    const CHECKSUM: [u16; 2] = [6, 7];
    let (our_chain, ours) = nftables::decode_rule(ours);
    let (their_chain, theirs) = nftables::decode_rule(theirs);
    assert_eq!((our_chain, ours.len()), (their_chain, theirs.len()), "{command}");
    for ((our_name, our_data), (their_name, their_data)) in ours.iter().zip(&theirs) {
        assert_eq!(our_name, their_name, "{command}");
        let (mut ours, mut theirs) = (attributes(our_data), attributes(their_data));
        match our_name.as_str() {
            "bitwise" => drop(theirs.remove(&BITWISE_OPERATION)),
            "payload" => ours.retain(|kind, value| !CHECKSUM.contains(kind) || **value != [0; 4]),
            _ => {}
        }
        assert!(same_attributes(&ours, &theirs), "{our_name} of {command}");
    }
}

/// Compares whatever their order, and whether or not an attribute says that others are inside (`NLA_F_NESTED`).
fn same_attributes(ours: &BTreeMap<u16, &[u8]>, theirs: &BTreeMap<u16, &[u8]>) -> bool {
    let same_inside = |ours: &[u8], theirs: &[u8]| {
        let (ours, theirs) = (attributes(ours), attributes(theirs));
        !ours.is_empty() && same_attributes(&ours, &theirs)
    };
    ours.len() == theirs.len()
        && ours
            .iter()
            .zip(theirs)
            .all(|((our_kind, our_value), (their_kind, their_value))| {
                our_kind == their_kind && (our_value == their_value || same_inside(our_value, their_value))
            })
}
