//! The set-ups: how settings become queues. One file each, named as sqm-scripts names it.

pub mod best_of_cake;
mod computed;
mod framing;
pub mod hfsc_lite;
pub mod hfsc_litest;
pub mod layer_cake;
mod leaf;
pub mod piece_of_cake;
pub mod simple;
pub mod simplest;
pub mod simplest_tbf;

use sqm_core::spec::cake::Cake;
use sqm_core::spec::{ParseError, Qdisc};
use sqm_core::units::{Nanos, Rate};

use framing::header_note;
pub(crate) use framing::{above_ip, counted_by};

use crate::link::Encapsulation;
use crate::plan::{Handle, Plan, PlannedQdisc, Tree};
use crate::settings::{Direction, Facing, Leaf, LinkLayer, Mechanism, Script, Settings};

/// What a plan depends on besides the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of the shaped device.
    pub name: String,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Bytes of link header that the kernel counts in a packet's length: 14 on Ethernet, none on PPP and tunnels.
    pub header: u32,
    /// What stands between the device and the line, as far as the machine shows it.
    pub stack: Vec<Encapsulation>,
    /// Queues of its hardware for leaving and for arriving packets.
    pub queues: (u32, u32),
}

impl Device {
    /// Bytes of an Ethernet header.
    pub const ETHERNET_HEADER: u32 = 14;

    /// A device that this machine does not have (yet): what its name tells by custom, else plain Ethernet.
    pub fn absent(name: &str) -> Self {
        let ppp = name.starts_with("ppp");
        let vlan = name
            .rsplit_once('.')
            .is_some_and(|(_, id)| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()));
        let stack = [(ppp, Encapsulation::Pppoe), (vlan, Encapsulation::Vlan)];
        Self {
            name: name.to_owned(),
            mtu: 1500,
            header: if ppp { 0 } else { Self::ETHERNET_HEADER },
            stack: stack
                .into_iter()
                .filter(|(is, _)| *is)
                .map(|(_, layer)| layer)
                .collect(),
            queues: (1, 1),
        }
    }
}

/// Target and interval of CoDel and fq_codel at this rate where the settings say `auto`.
pub fn auto_target(rate: Rate) -> (Nanos, Nanos) {
    let target = computed::target_micros(rate);
    let interval = computed::interval_micros(target);
    (Nanos::from_micros(target), Nanos::from_micros(interval))
}

/// The two directions of the shaped device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What leaves.
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

    /// The option that holds this direction's rate.
    pub(crate) const fn rate_option(self, settings: &Settings) -> &'static str {
        settings.rate_option(matches!(self, Self::Egress))
    }
}

/// One direction of one interface, with all that its queues depend on.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The interface's settings.
    pub settings: &'a Settings,
    /// Which direction.
    pub side: Side,
    /// The device.
    pub device: &'a Device,
}

impl<'a> Line<'a> {
    /// This direction's settings.
    pub const fn direction(self) -> &'a Direction {
        self.side.of(self.settings)
    }

    /// Whether the packets come from the internet: the download.
    pub fn is_download(self) -> bool {
        (self.side == Side::Ingress) == (self.settings.facing == Facing::Internet)
    }

    /// Who counts the framing, and what else must be known to do it.
    pub(crate) fn mechanism(self) -> Option<Mechanism> {
        counted_by(self.settings, self.side, self.device)
    }

    /// The rate to shape to. Only CAKE knows 64b/65b coding; for all others the rate is less by it.
    fn rate(self) -> Rate {
        let rate = self.direction().rate.unwrap_or(Rate::from_bits_per_sec(0));
        match (self.settings.link.layer, self.mechanism()) {
            (LinkLayer::Ptm, Some(Mechanism::TcStab | Mechanism::HtbPrivate)) => {
                Rate::from_bits_per_sec(rate.bits_per_sec() / 65 * 64)
            }
            _ => rate,
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

/// The plan that the settings' set-ups make of them.
pub fn plan(settings: &Settings, device: &Device) -> Result<Plan, Refusal> {
    let tree = |side: Side| {
        let make = match side.of(settings).script {
            Script::PieceOfCake => piece_of_cake::tree,
            Script::LayerCake => layer_cake::tree,
            Script::BestOfCake => best_of_cake::tree,
            Script::Simple => simple::tree,
            Script::Simplest => simplest::tree,
            Script::SimplestTbf => simplest_tbf::tree,
            Script::HfscLite => hfsc_lite::tree,
            Script::HfscLitest => hfsc_litest::tree,
        };
        let line = Line {
            settings,
            side,
            device,
        };
        side.of(settings)
            .rate
            .map(|_| make(line))
            .transpose()
            .map_err(|error| Refusal { side, error })
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
        notes: notes(settings, device),
    })
}

/// Whether CAKE is what queues packets in this direction.
pub(crate) fn is_cake(direction: &Direction) -> bool {
    match direction.script {
        Script::PieceOfCake | Script::LayerCake | Script::BestOfCake => true,
        Script::Simple | Script::Simplest => direction.qdisc == Leaf::Cake,
        Script::SimplestTbf | Script::HfscLite | Script::HfscLitest => false,
    }
}

/// Whether a direction may be one CAKE for each hardware queue, and its device has several.
pub(crate) fn is_multi_queue(settings: &Settings, side: Side, device: &Device) -> bool {
    let takes = matches!(
        side.of(settings).script,
        Script::PieceOfCake | Script::LayerCake | Script::BestOfCake
    );
    let queues = match side {
        Side::Egress => device.queues.0,
        Side::Ingress => device.queues.1,
    };
    settings.use_mq && takes && queues > 1
}

/// A tree of one CAKE. Its words come in the order sqm-scripts gives them to `tc`: rate, framing, those of the
/// set-up, those of the user (typed, then free); the last word wins.
fn cake_tree(line: Line<'_>, words: &str) -> Result<Tree, ParseError> {
    let direction = line.direction();
    let mut cake = Cake {
        bandwidth: Some(line.rate()),
        ..Cake::default()
    };
    cake.apply(&framing::cake_words(line))?;
    cake.apply(words)?;
    for option in &direction.cake {
        cake.apply(&option.words)?;
    }
    cake.apply(&direction.options)?;
    let many = is_multi_queue(line.settings, line.side, line.device);
    Ok(Tree {
        qdiscs: vec![PlannedQdisc {
            parent: None,
            handle: ROOT,
            stab: framing::stab(line),
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

/// What was converted or chosen.
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
    for side in [Side::Egress, Side::Ingress] {
        let line = Line {
            settings,
            side,
            device,
        };
        if line.direction().rate.is_none() {
            continue;
        }
        notes.extend(header_note(line).filter(|note| !notes.contains(note)));
        if settings.use_mq && is_cake(line.direction()) && !is_multi_queue(settings, side, device) {
            let way = if side == Side::Egress {
                "leaving"
            } else {
                "arriving"
            };
            let takes = !matches!(line.direction().script, Script::Simple | Script::Simplest);
            let why = if takes {
                format!("{} has one hardware queue for them", device.name)
            } else {
                format!("{} takes no other", line.direction().script.file_name())
            };
            notes.push(format!("use_mq: cake for {way} packets: {why}"));
        }
        notes.extend(best_of_cake::notes(line));
    }
    notes
}

#[cfg(test)]
mod tests;
