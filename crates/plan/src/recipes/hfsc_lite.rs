//! `hfsc_lite.qos`: HFSC with three classes, which keeps throughput where HTB would keep latency on a processor that
//! is too slow for either.
//!
//! ```text
//! 1: hfsc default 13
//! └ 1:1  the direction's rate and 2 % more
//!   ├ 1:11 TCP below port 1024   110: fq_codel
//!   ├ 1:12 UDP below port 1024   120: fq_codel
//!   └ 1:13 everything else       130: fq_codel
//! ```

use sqm_core::spec::hfsc::Curve;
use sqm_core::spec::{Class, Hfsc, HfscClass, ParseError, Qdisc};
use sqm_core::units::{Nanos, Rate};

use super::{ROOT, leaf};
use crate::framing;
use crate::plan::{Condition, Handle, PlannedClass, PlannedFilter, PlannedQdisc, Protocol, Tree};
use crate::settings::Facing;
use crate::side::{DirectionContext, Side};

const TOP: Handle = Handle::new(1, 1);
const TCP: Handle = Handle::new(1, 0x11);
const UDP: Handle = Handle::new(1, 0x12);
const EVERYTHING: Handle = Handle::new(1, 0x13);

/// The queues of one direction.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    let root = PlannedQdisc {
        parent: None,
        handle: ROOT,
        stab: framing::stab(context),
        qdisc: Qdisc::Hfsc(Hfsc {
            default: EVERYTHING.minor.into(),
        }),
    };
    let kbits = context.rate().kbits_per_sec();
    let share = |n: u64| Rate::from_kbits_per_sec((kbits * n / 7).max(1));
    let mut qdiscs = vec![root];
    let mut classes = vec![top(context.rate())];
    for (id, leaf, shares) in [(TCP, 0x110, 2), (UDP, 0x120, 2), (EVERYTHING, 0x130, 3)] {
        let qdisc = leaf::qdisc(context, share(shares), None)?;
        qdiscs.push(leaf::below(id, Handle::new(leaf, 0), qdisc));
        classes.push(PlannedClass {
            parent: TOP,
            id,
            class: Class::Hfsc(HfscClass {
                rt: Some(Curve::linear(share(1))),
                ls: Some(Curve::linear(share(shares))),
                ul: None,
            }),
        });
    }
    Ok(Tree {
        qdiscs,
        classes,
        filters: filters(context),
    })
}

/// The class above all others: a fiftieth more than the rate for a second, and never more than that.
pub(super) fn top(rate: Rate) -> PlannedClass {
    let more = Rate::from_kbits_per_sec(rate.kbits_per_sec().saturating_mul(50) / 49);
    let curve = Curve {
        m1: more,
        d: Nanos::from_millis(1000),
        m2: rate,
    };
    PlannedClass {
        parent: ROOT,
        id: TOP,
        class: Class::Hfsc(HfscClass {
            rt: Some(curve),
            ls: Some(curve),
            ul: Some(Curve::linear(more)),
        }),
    }
}

/// A well-known port on the far side of the line: the destination of what goes there, the source of what comes back.
fn filters(context: DirectionContext<'_>) -> Vec<PlannedFilter> {
    let destination = (context.side == Side::Egress) == (context.settings.facing == Facing::Internet);
    let mut filters = Vec::new();
    for (transport, class) in [(6, TCP), (17, UDP)] {
        for protocol in [Protocol::Ip, Protocol::Ipv6] {
            filters.push(PlannedFilter {
                preference: filters.len() as u16 + 1,
                protocol,
                condition: Condition::WellKnownPort {
                    transport,
                    destination,
                },
                class,
            });
        }
    }
    filters
}
