//! `piece_of_cake.qos`: one CAKE in each direction, all traffic alike.

use sqm_core::spec::ParseError;
use sqm_core::spec::cake::{Cake, Tins};

use super::cake_tree;
use crate::plan::Tree;
use crate::settings::Facing;
use crate::side::{DirectionContext, Side};

/// The queues of one direction. Addresses are looked up before NAT, so that the hosts of the home get equal shares.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    let settings = context.settings;
    let cake = Cake {
        tins: Tins::Besteffort,
        nat: settings.facing == Facing::Internet,
        wash: context.side == Side::Ingress && settings.squash_dscp.unwrap_or(true),
        ..Cake::default()
    };
    cake_tree(context, cake)
}
