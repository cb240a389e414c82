//! `layer_cake.qos`: one CAKE in each direction with three tins: bulk, best effort and voice.
//!
//! With the default settings the download side has one tin all the same, because `squash_ingress` is on.

use sqm_core::spec::ParseError;

use super::{Line, Side, cake_tree};
use crate::plan::Tree;
use crate::settings::Facing;

/// The queues of one direction.
pub fn tree(line: Line<'_>) -> Result<Tree, ParseError> {
    let mut words = String::from("diffserv3");
    if line.settings.facing == Facing::Internet {
        words.push_str(" nat");
    }
    if line.side == Side::Ingress {
        if line.settings.squash_ingress.unwrap_or(true) {
            words.push_str(" besteffort");
        }
        if line.settings.squash_dscp.unwrap_or(true) {
            words.push_str(" wash");
        }
    }
    cake_tree(line, &words)
}
