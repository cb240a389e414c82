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

use sqm_core::spec::cake::{Cake, Tins};
use sqm_core::spec::{Class, Htb, HtbClass, ParseError, Qdisc};
use sqm_core::units::Rate;

use super::{ROOT, cake_tree, computed, leaf, simplest};
use crate::device::Device;
use crate::framing;
use crate::plan::{
    Condition, Firewall, Handle, MARKED_DSCP, PlannedClass, PlannedFilter, PlannedQdisc, Protocol, Tree,
};
use crate::settings::{Script, Settings};
use crate::side::{DirectionContext, Side};

const TOP: Handle = Handle::new(1, 1);
const FIRST: Handle = Handle::new(1, 0x11);
const EVERYTHING: Handle = Handle::new(1, 0x12);
const CAN_WAIT: Handle = Handle::new(1, 0x13);

/// The queues of one direction.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    let Settings {
        squash_dscp,
        squash_ingress,
        ..
    } = context.settings;
    let one_class = context.side == Side::Ingress && squash_ingress.unwrap_or(true);
    if context.direction().is_cake() {
        let cake = Cake {
            tins: if one_class {
                Tins::Besteffort
            } else {
                Tins::Diffserv3
            },
            wash: context.side == Side::Ingress && squash_dscp.unwrap_or(true),
            ..Cake::default()
        };
        return cake_tree(context, cake);
    }
    if one_class {
        return simplest::tree(context);
    }
    let quanta = match context.side {
        Side::Egress => [300, 300, 300],
        Side::Ingress => [500, 1500, 300],
    };
    let places = [(FIRST, 0x110), (EVERYTHING, 0x120), (CAN_WAIT, 0x130)];
    let root = PlannedQdisc {
        parent: None,
        handle: ROOT,
        stab: framing::stab(context),
        qdisc: Qdisc::Htb(Htb::with_default(EVERYTHING.minor)),
    };
    let mut qdiscs = vec![root];
    for (((class, leaf), quantum), parts) in places.into_iter().zip(quanta).zip([3, 6, 6]) {
        let qdisc = leaf::qdisc(context, part(context, parts), Some(quantum))?;
        qdiscs.push(leaf::below(class, Handle::new(leaf, 0), qdisc));
    }
    Ok(Tree {
        qdiscs,
        classes: classes(context),
        filters: filters(context),
    })
}

/// The firewall rules that this setup script needs.
pub(super) fn firewall(settings: &Settings, device: &Device) -> Option<Firewall> {
    let here = |side: Side| {
        let direction = side.of(settings);
        direction.script == Script::Simple && direction.rate.is_some() && !direction.is_cake()
    };
    let (marks_leaving, erases_dscp) = (
        here(Side::Egress),
        here(Side::Ingress) && settings.squash_dscp.unwrap_or(true),
    );
    let mut firewall = Firewall {
        table: Firewall::table_of(&device.name),
        interface: device.name.clone(),
        mask: settings.mark_mask,
        marks_leaving,
        erases_dscp,
    };
    super::own::add_firewall(settings, &mut firewall);
    (firewall.marks_leaving || firewall.erases_dscp).then_some(firewall)
}

/// The direction's rate divided by `parts`, at least 1 kbit/s.
fn part(context: DirectionContext<'_>, parts: u64) -> Rate {
    Rate::from_kbits_per_sec((context.rate().kbits_per_sec() / parts).max(1))
}

fn classes(context: DirectionContext<'_>) -> Vec<PlannedClass> {
    let rate = context.rate();
    let kbits = rate.kbits_per_sec();
    let of = Rate::from_kbits_per_sec;
    // The other classes never get this part of the rate, so that the first one finds room: 16 kbit/s, or a fiftieth of a slow line.
    let slack = (kbits / 50).min(16);
    let third = part(context, 3);
    let own = of(match context.side {
        Side::Egress => 128,
        Side::Ingress => 32,
    });
    let (sixth, nearly_all) = (part(context, 6), of((kbits - slack).max(1)));
    let burst = computed::htb_burst(context);
    let class = |parent, id, rate, ceil, prio, burst| PlannedClass {
        parent,
        id,
        class: Class::Htb(HtbClass {
            rate,
            ceil,
            prio,
            quantum: Some(computed::quantum(context)),
            burst,
            cburst: burst,
            framing: framing::private(context),
        }),
    };
    vec![
        class(ROOT, TOP, rate, rate, 0, burst),
        // On a slow line a third is less than what is its own elsewhere.
        class(
            TOP,
            FIRST,
            own.min(third),
            third,
            1,
            computed::default_burst(context),
        ),
        class(TOP, EVERYTHING, sixth, nearly_all, 2, burst),
        class(TOP, CAN_WAIT, sixth, nearly_all, 3, burst),
    ]
}

fn filters(context: DirectionContext<'_>) -> Vec<PlannedFilter> {
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
    match context.side {
        Side::Egress => {
            let mask = context.settings.mark_mask;
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
