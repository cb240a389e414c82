//! Setup scripts: how settings become queues. Each has a file of its own, named as sqm-scripts names the script.

pub mod best_of_cake;
mod computed;
pub mod hfsc_lite;
pub mod hfsc_litest;
pub mod layer_cake;
mod leaf;
pub(crate) mod own;
pub mod piece_of_cake;
pub mod simple;
pub mod simplest;
pub mod simplest_tbf;

use sqm_core::spec::cake::Cake;
use sqm_core::spec::{ParseError, Qdisc};
use sqm_core::units::{Nanos, Rate};

use crate::device::Device;
use crate::framing;
use crate::own::TextError;
use crate::plan::{Handle, Plan, PlannedQdisc, Tree};
use crate::settings::{Script, Settings};
use crate::side::{DirectionContext, Side};

/// Target and interval of CoDel and fq_codel at this rate where the settings say `auto`.
pub fn auto_target(rate: Rate) -> (Nanos, Nanos) {
    let target = computed::target_micros(rate);
    let interval = computed::interval_micros(target);
    (Nanos::from_micros(target), Nanos::from_micros(interval))
}

/// An error in what the user wrote for the queues of a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeError {
    /// The direction.
    pub side: Side,
    /// The error.
    pub fault: Fault,
}

/// The text that has the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The words that the user appended to the leaf (`eqdisc_opts`, `iqdisc_opts`); positions are within the option's value.
    Words(ParseError),
    /// The setup script of the user's own.
    Text(Vec<TextError>),
}

/// The root qdisc of every tree.
pub(crate) const ROOT: Handle = Handle::new(1, 0);

/// Builds the plan of one section by its setup scripts.
///
/// # Errors
/// If the grammar of the leaf does not accept the user's words.
pub fn plan(settings: &Settings, device: &Device) -> Result<Plan, RecipeError> {
    let tree = |side: Side| {
        let context = DirectionContext {
            settings,
            side,
            device,
        };
        if side.of(settings).rate.is_none() {
            return Ok(None);
        }
        let make = match &side.of(settings).script {
            Script::PieceOfCake => piece_of_cake::tree,
            Script::LayerCake => layer_cake::tree,
            Script::BestOfCake => best_of_cake::tree,
            Script::Simple => simple::tree,
            Script::Simplest => simplest::tree,
            Script::SimplestTbf => simplest_tbf::tree,
            Script::HfscLite => hfsc_lite::tree,
            Script::HfscLitest => hfsc_litest::tree,
            Script::Own(own) => {
                return own::tree(&own.text, context).map_err(|errors| RecipeError {
                    side,
                    fault: Fault::Text(errors),
                });
            }
        };
        make(context).map(Some).map_err(|error| RecipeError {
            side,
            fault: Fault::Words(error),
        })
    };
    let [leaving, arriving] = [&settings.egress, &settings.ingress].map(|d| d.script.file_name());
    Ok(Plan {
        interface: device.name.clone(),
        script: if leaving == arriving {
            leaving.to_owned()
        } else {
            format!("{leaving} and {arriving}")
        },
        egress: tree(Side::Egress)?,
        ingress: tree(Side::Ingress)?,
        firewall: simple::firewall(settings, device),
        autorate: None,
        notes: notes(settings, device),
    })
}

/// True if this direction gets one CAKE for each hardware queue: the settings ask for it, the setup script can, and the
/// device has several queues.
pub(crate) fn is_multi_queue(settings: &Settings, side: Side, device: &Device) -> bool {
    let takes = match &side.of(settings).script {
        Script::Own(own) => own.uses("CAKE"),
        script => script.is_cake(),
    };
    let queues = match side {
        Side::Egress => device.queues.0,
        Side::Ingress => device.queues.1,
    };
    settings.use_mq && takes && queues > 1
}

/// A tree of one CAKE. `cake` has what the setup script chooses. Rate and framing come from the settings. After them, as
/// with sqm-scripts, come the user's typed options and then the free words; the last one wins.
fn cake_tree(context: DirectionContext<'_>, cake: Cake) -> Result<Tree, ParseError> {
    let direction = context.direction();
    let mut cake = Cake {
        bandwidth: Some(context.rate()),
        framing: framing::in_cake(context),
        ..cake
    };
    for option in &direction.cake {
        option.value.apply_to(&mut cake);
    }
    cake.apply(&direction.options)?;
    let many = is_multi_queue(context.settings, context.side, context.device);
    Ok(Tree {
        qdiscs: vec![PlannedQdisc {
            parent: None,
            handle: ROOT,
            stab: framing::stab(context),
            qdisc: if many {
                Qdisc::CakeMq(cake)
            } else {
                Qdisc::Cake(cake)
            },
        }],
        classes: Vec::new(),
        filters: Vec::new(),
    })
}

/// Notes for people: values that were converted or chosen.
fn notes(settings: &Settings, device: &Device) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(preset) = settings.link.preset
        && !settings.gives("overhead")
    {
        for layer in preset.missing(&device.stack) {
            notes.push(format!(
                "link {}: {} bytes more for {layer} on {}",
                preset.name,
                layer.bytes(),
                device.name
            ));
        }
    }
    for side in Side::ALL {
        let context = DirectionContext {
            settings,
            side,
            device,
        };
        if context.direction().rate.is_none() {
            continue;
        }
        notes.extend(framing::header_note(context).filter(|note| !notes.contains(note)));
        let has_cake = match &context.direction().script {
            Script::Own(own) => own.uses("CAKE"),
            _ => context.direction().is_cake(),
        };
        if settings.use_mq && has_cake && !is_multi_queue(settings, side, device) {
            let packets = match side {
                Side::Egress => "leaving",
                Side::Ingress => "arriving",
            };
            let takes = !matches!(context.direction().script, Script::Simple | Script::Simplest);
            let why = if takes {
                format!("{} has one hardware queue for them", device.name)
            } else {
                format!("{} takes no other", context.direction().script.file_name())
            };
            notes.push(format!("use_mq: cake for {packets} packets: {why}"));
        }
        notes.extend(best_of_cake::notes(context));
    }
    notes
}

#[cfg(test)]
mod tests;
