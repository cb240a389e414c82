//! `hfsc_litest.qos`: HFSC with one class and one leaf.
//!
//! ```text
//! 1: hfsc default 1
//! └ 1:1  the direction's rate and 2 % more
//!   └ 110: fq_codel
//! ```

use sqm_core::spec::{Hfsc, ParseError, Qdisc};

use super::{Line, ROOT, framing, hfsc_lite, leaf};
use crate::plan::{Handle, PlannedQdisc, Tree};

const LEAF: Handle = Handle::new(0x110, 0);

/// The queues of one direction.
pub fn tree(line: Line<'_>) -> Result<Tree, ParseError> {
    let only = hfsc_lite::top(line.rate());
    let root = PlannedQdisc {
        parent: None,
        handle: ROOT,
        stab: framing::stab(line),
        qdisc: Qdisc::Hfsc(Hfsc {
            default: only.id.minor.into(),
        }),
    };
    Ok(Tree {
        qdiscs: vec![
            root,
            leaf::below(only.id, LEAF, leaf::qdisc(line, line.rate(), None)?),
        ],
        classes: vec![only],
        filters: Vec::new(),
    })
}
