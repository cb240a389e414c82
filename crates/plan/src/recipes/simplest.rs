//! `simplest.qos`: a token bucket with one class and one leaf, the lightest shaper that keeps latency low.
//!
//! ```text
//! 1: htb default 10
//! └ 1:1  rate = ceil = the direction's
//!   └ 1:10  the same
//!     └ 110: fq_codel
//! ```
//!
//! With `qdisc cake` it is one CAKE with one tin instead, without the address lookup of `piece_of_cake.qos`.

use sqm_core::spec::cake::{Cake, Tins};
use sqm_core::spec::{Class, Htb, HtbClass, ParseError, Qdisc};

use super::{ROOT, cake_tree, computed, leaf};
use crate::framing;
use crate::plan::{Handle, PlannedClass, PlannedQdisc, Tree};
use crate::side::DirectionContext;

const TOP: Handle = Handle::new(1, 1);
const ONLY: Handle = Handle::new(1, 0x10);
const LEAF: Handle = Handle::new(0x110, 0);

/// The queues of one direction.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    if context.direction().is_cake() {
        let cake = Cake {
            tins: Tins::Besteffort,
            ..Cake::default()
        };
        return cake_tree(context, cake);
    }
    let rate = context.rate();
    let burst = computed::htb_burst(context);
    let class = Class::Htb(HtbClass {
        rate,
        ceil: rate,
        prio: 0,
        quantum: Some(computed::quantum(context)),
        burst,
        cburst: burst,
        framing: framing::private(context),
    });
    let root = PlannedQdisc {
        parent: None,
        handle: ROOT,
        stab: framing::stab(context),
        qdisc: Qdisc::Htb(Htb::with_default(ONLY.minor)),
    };
    let classes = [(ROOT, TOP), (TOP, ONLY)].map(|(parent, id)| PlannedClass {
        parent,
        id,
        class: class.clone(),
    });
    Ok(Tree {
        qdiscs: vec![
            root,
            leaf::below(ONLY, LEAF, leaf::qdisc(context, context.rate(), None)?),
        ],
        classes: classes.to_vec(),
        filters: Vec::new(),
    })
}
