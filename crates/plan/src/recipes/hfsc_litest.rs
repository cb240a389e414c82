//! `hfsc_litest.qos`: HFSC with one class and one leaf.
//!
//! ```text
//! 1: hfsc default 1
//! └ 1:1  the direction's rate and 2 % more
//!   └ 110: fq_codel
//! ```

use sqm_core::spec::{Hfsc, ParseError, Qdisc};

use super::{ROOT, hfsc_lite, leaf};
use crate::framing;
use crate::plan::{Handle, PlannedQdisc, Tree};
use crate::side::DirectionContext;

const LEAF: Handle = Handle::new(0x110, 0);

/// The queues of one direction.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    let only = hfsc_lite::top(context.rate());
    let root = PlannedQdisc {
        parent: None,
        handle: ROOT,
        stab: framing::stab(context),
        qdisc: Qdisc::Hfsc(Hfsc {
            default: only.id.minor.into(),
        }),
    };
    Ok(Tree {
        qdiscs: vec![
            root,
            leaf::below(only.id, LEAF, leaf::qdisc(context, context.rate(), None)?),
        ],
        classes: vec![only],
        filters: Vec::new(),
    })
}
