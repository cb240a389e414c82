//! `layer_cake.qos`: one CAKE in each direction with three tins: bulk, best effort and voice.
//!
//! By default arriving packets share one tin, because `squash_ingress` is on.

use sqm_core::spec::ParseError;
use sqm_core::spec::cake::{Cake, Tins};

use super::cake_tree;
use crate::plan::Tree;
use crate::settings::Facing;
use crate::side::{DirectionContext, Side};

/// The queues of one direction.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    let settings = context.settings;
    let arrives = context.side == Side::Ingress;
    let one_tin = arrives && settings.squash_ingress.unwrap_or(true);
    let cake = Cake {
        tins: if one_tin {
            Tins::Besteffort
        } else {
            Tins::Diffserv3
        },
        nat: settings.facing == Facing::Internet,
        wash: arrives && settings.squash_dscp.unwrap_or(true),
        ..Cake::default()
    };
    cake_tree(context, cake)
}
