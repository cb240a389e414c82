//! `piece_of_cake.qos`: one CAKE in each direction, all traffic alike.

use sqm_core::spec::ParseError;

use super::{Line, Side, cake_tree};
use crate::plan::Tree;
use crate::settings::Facing;

/// The queues of one direction. Addresses are looked up before NAT, so that the hosts of the home get equal shares.
pub fn tree(line: Line<'_>) -> Result<Tree, ParseError> {
    let mut words = String::from("diffserv3 besteffort");
    if line.settings.facing == Facing::Internet {
        words.push_str(" nat");
    }
    if line.side == Side::Ingress && line.settings.squash_dscp.unwrap_or(true) {
        words.push_str(" wash");
    }
    cake_tree(line, &words)
}
