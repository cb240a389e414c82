//! `simple.qos`: HTB with three classes: what goes first, what can wait, and everything else.
//!
//! ```text
//! 1: htb default 12
//! └ 1:1  rate = ceil = the direction's
//!   ├ 1:11 first        a little of its own, up to a third    110: fq_codel
//!   ├ 1:12 everything   a sixth of its own, up to nearly all  120: fq_codel
//!   └ 1:13 can wait     the same, asked last                  130: fq_codel
//! ```
//!
//! Leaving packets carry a firewall mark that says which. Arriving packets pass the queues before the firewall sees
//! them, so their DSCP decides; unless `squash_ingress` says that it is not to be trusted, and there is one class.

use sqm_core::spec::{Class, Htb, HtbClass, ParseError, Qdisc};
use sqm_core::units::Rate;

use super::{Device, Line, ROOT, Side, cake_tree, computed, framing, is_cake, leaf, simplest};
use crate::plan::{
    Condition, Firewall, Handle, MARKED_DSCP, PlannedClass, PlannedFilter, PlannedQdisc, Protocol, Tree,
};
use crate::settings::{Script, Settings};

const TOP: Handle = Handle::new(1, 1);
const FIRST: Handle = Handle::new(1, 0x11);
const EVERYTHING: Handle = Handle::new(1, 0x12);
const CAN_WAIT: Handle = Handle::new(1, 0x13);

/// The queues of one direction.
pub fn tree(line: Line<'_>) -> Result<Tree, ParseError> {
    let Settings {
        squash_dscp,
        squash_ingress,
        ..
    } = line.settings;
    let one_class = line.side == Side::Ingress && squash_ingress.unwrap_or(true);
    if is_cake(line.direction()) {
        let besteffort = if one_class { " besteffort" } else { "" };
        let washes = line.side == Side::Ingress && squash_dscp.unwrap_or(true);
        return cake_tree(
            line,
            &format!("diffserv3{besteffort}{}", if washes { " wash" } else { "" }),
        );
    }
    if one_class {
        return simplest::tree(line);
    }
    let quanta = match line.side {
        Side::Egress => [300, 300, 300],
        Side::Ingress => [500, 1500, 300],
    };
    let places = [(FIRST, 0x110), (EVERYTHING, 0x120), (CAN_WAIT, 0x130)];
    let root = PlannedQdisc {
        parent: None,
        handle: ROOT,
        stab: framing::stab(line),
        qdisc: Qdisc::Htb(Htb::with_default(EVERYTHING.minor)),
    };
    let mut qdiscs = vec![root];
    for (((class, leaf), quantum), parts) in places.into_iter().zip(quanta).zip([3, 6, 6]) {
        let qdisc = leaf::qdisc(line, part(line, parts), Some(quantum))?;
        qdiscs.push(leaf::below(class, Handle::new(leaf, 0), qdisc));
    }
    Ok(Tree {
        qdiscs,
        classes: classes(line),
        filters: filters(line),
    })
}

/// The firewall rules that this set-up needs.
pub(super) fn firewall(settings: &Settings, device: &Device) -> Option<Firewall> {
    let here = |side: Side| {
        let direction = side.of(settings);
        direction.script == Script::Simple && direction.rate.is_some() && !is_cake(direction)
    };
    let (marks_leaving, erases_dscp) = (
        here(Side::Egress),
        here(Side::Ingress) && settings.squash_dscp.unwrap_or(true),
    );
    (marks_leaving || erases_dscp).then(|| Firewall {
        table: Firewall::table_of(&device.name),
        interface: device.name.clone(),
        mask: settings.mark_mask,
        marks_leaving,
        erases_dscp,
    })
}

/// One of so many parts of the direction's rate.
fn part(line: Line<'_>, parts: u64) -> Rate {
    Rate::from_kbits_per_sec((line.rate().kbits_per_sec() / parts).max(1))
}

fn classes(line: Line<'_>) -> Vec<PlannedClass> {
    let rate = line.rate();
    let kbits = rate.kbits_per_sec();
    let of = Rate::from_kbits_per_sec;
    // What the others cannot take, so that the first class finds room: 16 kbit/s, or a fiftieth of a slow line.
    let slack = (kbits / 50).min(16);
    let third = part(line, 3);
    let own = of(match line.side {
        Side::Egress => 128,
        Side::Ingress => 32,
    });
    let (sixth, nearly_all) = (part(line, 6), of((kbits - slack).max(1)));
    let burst = computed::htb_burst(line);
    let class = |parent, id, rate, ceil, prio, burst| PlannedClass {
        parent,
        id,
        class: Class::Htb(HtbClass {
            rate,
            ceil,
            prio,
            quantum: Some(computed::quantum(line)),
            burst,
            cburst: burst,
            framing: framing::private(line),
        }),
    };
    vec![
        class(ROOT, TOP, rate, rate, 0, burst),
        // On a slow line a third is less than what is its own elsewhere.
        class(TOP, FIRST, own.min(third), third, 1, computed::unsaid_burst(line)),
        class(TOP, EVERYTHING, sixth, nearly_all, 2, burst),
        class(TOP, CAN_WAIT, sixth, nearly_all, 3, burst),
    ]
}

fn filters(line: Line<'_>) -> Vec<PlannedFilter> {
    let classes = [FIRST, EVERYTHING, CAN_WAIT];
    let mut filters = Vec::new();
    let mut add = |protocol, condition, class| {
        filters.push(PlannedFilter {
            preference: filters.len() as u16 + 1,
            protocol,
            condition,
            class,
        });
    };
    match line.side {
        Side::Egress => {
            let mask = line.settings.mark_mask;
            for protocol in [Protocol::Ip, Protocol::Ipv6] {
                for (value, class) in (1..).zip(classes) {
                    add(protocol, Condition::Mark { value, mask }, class);
                }
            }
        }
        Side::Ingress => {
            for (dscp, mark) in std::iter::once((0, 2)).chain(MARKED_DSCP) {
                for protocol in [Protocol::Ip, Protocol::Ipv6] {
                    add(protocol, Condition::Dscp(dscp), classes[mark as usize - 1]);
                }
            }
        }
    }
    add(Protocol::Arp, Condition::Always, FIRST);
    filters.push(PlannedFilter {
        preference: 999,
        protocol: Protocol::All,
        condition: Condition::Always,
        class: EVERYTHING,
    });
    filters
}
