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

use sqm_core::spec::fq_codel::FqCodel;
use sqm_core::spec::{Htb, HtbClass, ParseError, Qdisc};
use sqm_core::units::{Bytes, Nanos, Rate};

use super::{Device, ROOT, Side, cake_tree, computed, framing};
use crate::plan::{Handle, PlannedClass, PlannedQdisc, Tree};
use crate::settings::{Direction, Leaf, Settings, Target};

const TOP: Handle = Handle::new(1, 1);
const ONLY: Handle = Handle::new(1, 0x10);
const LEAF: Handle = Handle::new(0x110, 0);

/// The queues of one direction.
pub fn tree(settings: &Settings, side: Side, device: &Device) -> Result<Tree, ParseError> {
    if settings.qdisc == Leaf::Cake {
        return cake_tree(settings, side, "besteffort");
    }
    let direction = side.of(settings);
    let rate = direction.rate.unwrap_or(Rate::from_bits_per_sec(0));
    let burst = computed::burst(rate, device.mtu);
    let class = HtbClass {
        rate,
        ceil: rate,
        prio: 0,
        quantum: Some(burst),
        framing: Default::default(),
        burst: Bytes(burst.into()),
        cburst: Bytes(burst.into()),
    };
    let htb = Qdisc::Htb(Htb::with_default(ONLY.minor));
    let leaf = Qdisc::FqCodel(leaf(direction, rate)?);
    Ok(Tree {
        qdiscs: vec![
            PlannedQdisc {
                parent: None,
                handle: ROOT,
                stab: framing::stab(settings),
                qdisc: htb,
            },
            PlannedQdisc {
                parent: Some(ONLY),
                handle: LEAF,
                stab: None,
                qdisc: leaf,
            },
        ],
        classes: vec![
            PlannedClass {
                parent: ROOT,
                id: TOP,
                class: class.clone(),
            },
            PlannedClass {
                parent: TOP,
                id: ONLY,
                class,
            },
        ],
    })
}

fn leaf(direction: &Direction, rate: Rate) -> Result<FqCodel, ParseError> {
    /// Packets; chosen by sqm-scripts for routers with little memory.
    const LIMIT: u32 = 1001;

    let mut leaf = FqCodel {
        limit: direction.limit.unwrap_or(LIMIT),
        flows: 1024,
        ecn: direction.ecn,
        ..FqCodel::default()
    };
    match direction.target {
        Target::Auto => {
            let target = computed::target_micros(rate);
            leaf.target = Nanos::from_micros(target);
            leaf.interval = Nanos::from_micros(computed::interval_micros(target));
        }
        Target::QdiscDefault => {}
        Target::Is(target) => leaf.target = target,
    }
    leaf.apply(&direction.options)?;
    Ok(leaf)
}
