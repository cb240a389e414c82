//! `piece_of_cake.qos`: one CAKE in each direction, all traffic alike.

use sqm_core::spec::ParseError;

use super::{Device, Side, cake_tree};
use crate::plan::Tree;
use crate::settings::Settings;

/// The queues of one direction. Addresses are looked up before NAT, so that the hosts of the home get equal shares.
pub fn tree(settings: &Settings, side: Side, _: &Device) -> Result<Tree, ParseError> {
    let wash = if side == Side::Ingress && settings.squash_dscp {
        " wash"
    } else {
        ""
    };
    cake_tree(settings, side, &format!("diffserv3 nat besteffort{wash}"))
}
