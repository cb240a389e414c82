//! `layer_cake.qos`: one CAKE in each direction with three tins: bulk, best effort and voice.
//!
//! With the default settings the download side has one tin all the same, because `squash_ingress` is on.

use sqm_core::spec::ParseError;

use super::{Device, Side, cake_tree};
use crate::plan::Tree;
use crate::settings::Settings;

/// The queues of one direction.
pub fn tree(settings: &Settings, side: Side, _: &Device) -> Result<Tree, ParseError> {
    let mut words = String::from("diffserv3 nat");
    if side == Side::Ingress {
        if settings.squash_ingress {
            words.push_str(" besteffort");
        }
        if settings.squash_dscp {
            words.push_str(" wash");
        }
    }
    cake_tree(settings, side, &words)
}
