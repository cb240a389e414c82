//! `simplest_tbf.qos`: a token bucket without classes around one leaf; on some processors cheaper than HTB.
//!
//! ```text
//! 1: tbf rate = the direction's
//! └ 110: fq_codel
//! ```

use sqm_core::spec::tbf::Tbf;
use sqm_core::spec::{ParseError, Qdisc};
use sqm_core::units::{Bytes, Nanos};

use super::{ROOT, computed, leaf};
use crate::framing;
use crate::plan::{Handle, PlannedQdisc, Tree};
use crate::side::DirectionContext;

/// Where a TBF's only child hangs.
const INSIDE: Handle = Handle::new(1, 0);
const LEAF: Handle = Handle::new(0x110, 0);

/// The queues of one direction.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    /// The longest delay in the queue that a TBF has before the leaf replaces it.
    const LATENCY: Nanos = Nanos::from_millis(300);

    let rate = context.rate();
    let burst = Bytes(computed::burst(rate, context.direction().burst_micros, context.device.mtu).into());
    let limit = Tbf::limit_for(LATENCY, rate, burst, None);
    let tbf = Tbf {
        rate,
        burst,
        limit: Bytes(limit.0.min(u32::MAX.into())),
        peak: None,
        framing: framing::private(context),
    };
    let root = PlannedQdisc {
        parent: None,
        handle: ROOT,
        stab: framing::stab(context),
        qdisc: Qdisc::Tbf(tbf),
    };
    Ok(Tree {
        qdiscs: vec![
            root,
            leaf::below(INSIDE, LEAF, leaf::qdisc(context, context.rate(), None)?),
        ],
        classes: Vec::new(),
        filters: Vec::new(),
    })
}
