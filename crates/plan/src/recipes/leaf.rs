//! The queue that hangs in a class, with the numbers that sqm-scripts gives it.

use sqm_core::spec::codel::Codel;
use sqm_core::spec::fifo::Fifo;
use sqm_core::spec::fq_codel::FqCodel;
use sqm_core::spec::pie::Pie;
use sqm_core::spec::sfq::Sfq;
use sqm_core::spec::{ParseError, Qdisc};
use sqm_core::units::Rate;

use super::{auto_target, computed};
use crate::plan::{Handle, PlannedQdisc};
use crate::settings::{Leaf, Target};
use crate::side::DirectionContext;

/// Packets; chosen by sqm-scripts for routers with little memory.
const LIMIT: u32 = 1001;

/// The leaf below a class. Only fq_codel takes a quantum.
pub(super) fn below(parent: Handle, handle: Handle, qdisc: Qdisc) -> PlannedQdisc {
    PlannedQdisc {
        parent: Some(parent),
        handle,
        stab: None,
        qdisc,
    }
}

/// The limit of a leaf: packets, or bytes for bfifo.
pub(crate) fn limit(context: DirectionContext<'_>, leaf: Leaf) -> u32 {
    let limit = context.direction().limit;
    match leaf {
        // An option counts bytes here; the default counts packets.
        Leaf::Bfifo => limit.unwrap_or_else(|| LIMIT.saturating_mul(context.device.mtu)),
        Leaf::Sfq => limit.unwrap_or(LIMIT).max(2),
        _ => limit.unwrap_or(LIMIT),
    }
}

/// The number of queues in the leaf of a class that may send at `share`.
pub(crate) fn flows(context: DirectionContext<'_>, share: Rate) -> u32 {
    match context.settings.autoflow {
        true => computed::flows(share),
        false => 1024,
    }
}

/// The leaf of a class that may send at `share`, as the settings ask for it. The user's words come last.
///
/// The number of flows follows the class's rate, target and interval the direction's, as in sqm-scripts.
pub(super) fn qdisc(
    context: DirectionContext<'_>,
    share: Rate,
    quantum: Option<u32>,
) -> Result<Qdisc, ParseError> {
    let direction = context.direction();
    let rate = context.rate();
    let limit = limit(context, direction.qdisc);
    let flows = flows(context, share);
    let (target, interval) = match direction.target {
        Target::Auto => {
            let (target, interval) = auto_target(rate);
            (Some(target), Some(interval))
        }
        Target::QdiscDefault => (None, None),
        Target::Is(target) => (Some(target), None),
    };
    let mut qdisc = match direction.qdisc {
        // A shaper inside a shaper makes no sense; sqm-scripts takes fq_codel, too.
        Leaf::FqCodel | Leaf::Cake => {
            let default = FqCodel::default();
            Qdisc::FqCodel(FqCodel {
                limit,
                flows,
                quantum,
                ecn: direction.ecn,
                target: target.unwrap_or(default.target),
                interval: interval.unwrap_or(default.interval),
                ..default
            })
        }
        Leaf::Codel => {
            let default = Codel::default();
            Qdisc::Codel(Codel {
                limit,
                ecn: direction.ecn,
                target: target.unwrap_or(default.target),
                interval: interval.unwrap_or(default.interval),
                ..default
            })
        }
        Leaf::Pie => {
            let default = Pie::default();
            Qdisc::Pie(Pie {
                limit,
                ecn: direction.ecn,
                target: target.unwrap_or(default.target),
                ..default
            })
        }
        Leaf::Sfq => Qdisc::Sfq(Sfq {
            limit,
            flows,
            ..Sfq::default()
        }),
        Leaf::Pfifo => Qdisc::Pfifo(Fifo { limit: Some(limit) }),
        Leaf::Bfifo => Qdisc::Bfifo(Fifo { limit: Some(limit) }),
    };
    qdisc.apply(&direction.options)?;
    Ok(qdisc)
}
