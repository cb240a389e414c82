//! The set-ups: how settings become queues. One file each, named as sqm-scripts names it.

mod computed;
mod framing;
pub mod layer_cake;
pub mod piece_of_cake;
pub mod simplest;

pub(crate) use framing::mechanism;
use sqm_core::spec::cake::Cake;
use sqm_core::spec::{ParseError, Qdisc};

use crate::plan::{Handle, Plan, PlannedQdisc, Tree};
use crate::settings::{Direction, Leaf, Script, Settings};

/// What a plan depends on besides the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of the shaped device.
    pub name: String,
    /// Its MTU, bytes.
    pub mtu: u32,
}

/// The two directions of a line, seen from the shaped device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What leaves: the upload of a device that faces the internet.
    Egress,
    /// What arrives.
    Ingress,
}

impl Side {
    /// This direction's settings.
    pub const fn of(self, settings: &Settings) -> &Direction {
        match self {
            Self::Egress => &settings.egress,
            Self::Ingress => &settings.ingress,
        }
    }
}

/// Words that the user appended to a direction's leaf and that it does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whose words they are.
    pub side: Side,
    /// What is wrong with them; positions are within the option's value.
    pub error: ParseError,
}

/// The root qdisc of every tree.
pub(crate) const ROOT: Handle = Handle::new(1, 0);

/// The plan that the settings' set-up makes of them.
pub fn plan(settings: &Settings, device: &Device) -> Result<Plan, Refusal> {
    let tree = |side: Side| {
        let make = match settings.script {
            Script::PieceOfCake => piece_of_cake::tree,
            Script::LayerCake => layer_cake::tree,
            Script::Simplest => simplest::tree,
        };
        side.of(settings)
            .rate
            .map(|_| make(settings, side, device))
            .transpose()
            .map_err(|error| Refusal { side, error })
    };
    Ok(Plan {
        interface: device.name.clone(),
        script: settings.script.file_name().to_owned(),
        egress: tree(Side::Egress)?,
        ingress: tree(Side::Ingress)?,
    })
}

/// Whether CAKE is what queues packets under these settings.
pub(crate) fn is_cake(settings: &Settings) -> bool {
    match settings.script {
        Script::PieceOfCake | Script::LayerCake => true,
        Script::Simplest => settings.qdisc == Leaf::Cake,
    }
}

/// A tree of one CAKE. Its words come in the order sqm-scripts gives them to `tc`: rate, framing, those of the
/// set-up, those of the user; the last word wins.
fn cake_tree(settings: &Settings, side: Side, words: &str) -> Result<Tree, ParseError> {
    let Direction { rate, options, .. } = side.of(settings);
    let mut cake = Cake {
        bandwidth: *rate,
        ..Cake::default()
    };
    cake.apply(&framing::cake_words(settings))?;
    cake.apply(words)?;
    cake.apply(options)?;
    let stab = framing::stab(settings);
    Ok(Tree {
        qdiscs: vec![PlannedQdisc {
            parent: None,
            handle: ROOT,
            stab,
            qdisc: Qdisc::Cake(cake),
        }],
        classes: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
