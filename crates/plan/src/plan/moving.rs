//! Rates that move once a plan is in force: the daemon moves them with `option autorate`, CAKE with `autorate-ingress`.

use sqm_core::spec::Qdisc;
use sqm_core::units::Rate;

use super::{Plan, Tree};
use crate::settings::{Facing, Limits, Reflector, Settings};
use crate::side::Side;

/// How the daemon moves the rates of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovingRates {
    /// The bounds of the download; `None` if it is not shaped, or words of the section fix its rate.
    pub download: Option<Bounds>,
    /// The bounds of the upload.
    pub upload: Option<Bounds>,
    /// The hosts to probe; none means the usual ones.
    pub reflectors: Vec<Reflector>,
    /// True if the download leaves through the device.
    faces_lan: bool,
}

/// The rates between which one moves, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The lowest.
    pub min: Rate,
    /// The highest.
    pub max: Rate,
}

/// The program or qdisc that moves a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The daemon, by delay: `option autorate`.
    Daemon,
    /// CAKE, by the rate at which packets arrive: `autorate-ingress`.
    Cake,
}

impl Mover {
    /// A word for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Cake => "cake",
        }
    }
}

impl Limits {
    /// The bounds in effect around a configured rate, with the controller's own where the section gives none.
    pub fn around(self, rate: Rate) -> Bounds {
        /// Defaults of the controller (`sqm_autorate::Bounds`), bits per second.
        const LEAST: u64 = 128_000;
        const MOST: u64 = 10_000_000_000;

        let least = || (rate.bits_per_sec() / 64).max(LEAST);
        let most = || MOST.max(rate.bits_per_sec());
        let max = self.max.map_or_else(most, Rate::bits_per_sec);
        let min = self.min.map_or_else(least, Rate::bits_per_sec).min(max);
        Bounds {
            min: Rate::from_bits_per_sec(min),
            max: Rate::from_bits_per_sec(max),
        }
    }
}

impl MovingRates {
    /// How the daemon moves the rates of this section, whose plan is `plan`. `settings` must have the rates of the file.
    pub(crate) fn of(settings: &Settings, plan: &Plan) -> Option<Self> {
        let autorate = settings.autorate.as_ref()?;
        let faces_lan = settings.facing == Facing::Lan;
        let bounds = |limits: Limits, side: Side| {
            let rate = side.of(settings).rate?;
            let is_fixed = plan
                .tree(side)
                .is_some_and(|tree| has_words_rate(tree, settings, side));
            (!is_fixed).then(|| limits.around(rate))
        };
        let (download, upload) = match faces_lan {
            false => (Side::Ingress, Side::Egress),
            true => (Side::Egress, Side::Ingress),
        };
        Some(Self {
            download: bounds(autorate.download, download),
            upload: bounds(autorate.upload, upload),
            reflectors: autorate.reflectors.clone(),
            faces_lan,
        })
    }

    fn bounds(&self, side: Side) -> Option<Bounds> {
        match (side == Side::Egress) == self.faces_lan {
            true => self.download,
            false => self.upload,
        }
    }
}

/// True if the words of a section give CAKE a rate of its own, or none.
fn has_words_rate(tree: &Tree, settings: &Settings, side: Side) -> bool {
    let words = side.of(settings).options.split_whitespace();
    let mut words = words.filter(|word| ["bandwidth", "unlimited"].contains(word));
    tree.cake().is_some() && words.next().is_some()
}

impl Plan {
    /// The mover of a direction's rate; `None` if it stays as planned.
    pub fn mover(&self, side: Side) -> Option<Mover> {
        let estimates = self
            .tree(side)
            .and_then(Tree::cake)
            .is_some_and(|cake| cake.autorate_ingress);
        if estimates {
            return Some(Mover::Cake);
        }
        let bounds = self.autorate.as_ref().and_then(|autorate| autorate.bounds(side));
        bounds
            .filter(|bounds| bounds.min != bounds.max)
            .map(|_| Mover::Daemon)
    }

    /// A sentence for each rate that moves, and for the hosts that are probed for it.
    pub fn moving(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(autorate) = &self.autorate {
            for (name, bounds) in [("download", autorate.download), ("upload", autorate.upload)] {
                lines.extend(bounds.map(|Bounds { min, max }| match min == max {
                    true => format!("autorate: the {name} stays at {min}"),
                    false => format!("autorate: 'sqm daemon' moves the {name} between {min} and {max}"),
                }));
            }
            let reflectors: Vec<String> = autorate.reflectors.iter().map(ToString::to_string).collect();
            lines.push(match reflectors.is_empty() {
                true => "autorate: reflectors: well-known resolvers".to_owned(),
                false => format!("autorate: reflectors: {}", reflectors.join(" ")),
            });
        }
        for side in Side::ALL {
            if self.mover(side) == Some(Mover::Cake) {
                lines.push(format!(
                    "autorate-ingress: CAKE begins at the planned rate of {} and follows the rate at which packets arrive",
                    side.name()
                ));
            }
        }
        lines
    }

    fn tree(&self, side: Side) -> Option<&Tree> {
        match side {
            Side::Egress => self.egress.as_ref(),
            Side::Ingress => self.ingress.as_ref(),
        }
    }
}

impl Tree {
    /// The CAKE that shapes, if one does.
    fn cake(&self) -> Option<&sqm_core::spec::cake::Cake> {
        match &self.root()?.qdisc {
            Qdisc::Cake(cake) | Qdisc::CakeMq(cake) => Some(cake),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    fn planned(options: &str) -> Plan {
        let text = format!(
            "config queue\n option enabled 1\n option interface eth1\n option download 20mbit\n option upload 2mbit\n \
             option script best_of_cake.qos\n{options}"
        );
        let mut loaded = crate::load(text.as_bytes(), "sqm", &Device::absent).unwrap();
        loaded.plans.remove(0)
    }

    #[test]
    fn a_plan_says_what_moves_its_rates_and_between_which_bounds() {
        assert_eq!(planned("").moving(), Vec::<String>::new());
        let plan = planned(
            " option autorate 1\n option min_download 3090\n option max_download 30906\n option autorate_reflectors '192.0.2.1 sqm://192.0.2.2'\n",
        );
        let expected = [
            "autorate: 'sqm daemon' moves the download between 3090kbit and 30906kbit",
            "autorate: 'sqm daemon' moves the upload between 128kbit and 10gbit",
            "autorate: reflectors: 192.0.2.1 sqm://192.0.2.2",
        ];
        assert_eq!(plan.moving(), expected);
        for line in expected {
            assert!(plan.to_string().contains(&format!("\n  {line}\n")), "{plan}");
        }
        assert_eq!(Side::ALL.map(|side| plan.mover(side)), [Some(Mover::Daemon); 2]);

        let plan = planned(" option iqdisc_opts 'autorate-ingress'\n");
        assert_eq!(Side::ALL.map(|side| plan.mover(side)), [None, Some(Mover::Cake)]);
        assert!(plan.moving()[0].contains("CAKE begins at the planned rate of ingress"));
    }

    #[test]
    fn a_direction_with_equal_bounds_stays_at_its_rate() {
        let plan = planned(" option autorate 1\n option min_upload 2mbit\n option max_upload 2mbit\n");
        assert_eq!(plan.moving()[1], "autorate: the upload stays at 2mbit");
    }

    #[test]
    fn one_direction_alone_moves_if_autorate_says_so() {
        let plan =
            planned(" option autorate download\n option min_download 3090\n option max_download 30906\n");
        let expected = [
            "autorate: 'sqm daemon' moves the download between 3090kbit and 30906kbit",
            "autorate: the upload stays at 2mbit",
        ];
        assert_eq!(plan.moving()[..2], expected);
        assert_eq!(
            Side::ALL.map(|side| plan.mover(side)),
            [None, Some(Mover::Daemon)],
            "the upload is verified as planned"
        );
        let plan = planned(" option autorate upload\n");
        assert_eq!(plan.moving()[0], "autorate: the download stays at 20mbit");
        assert_eq!(
            Side::ALL.map(|side| plan.mover(side)),
            [Some(Mover::Daemon), None]
        );
    }

    #[test]
    fn a_direction_whose_rate_does_not_move_has_no_bounds() {
        let plan =
            planned(" option autorate 1\n option iqdisc_opts 'bandwidth 5mbit'\n option facing internet\n");
        assert_eq!(plan.mover(Side::Ingress), None);
        assert_eq!(plan.moving().len(), 2, "{plan}");
        // Towards the home the download leaves the device.
        let plan = planned(
            " option autorate 1\n option facing lan\n option min_download 5mbit\n option iqdisc_opts 'unlimited'\n",
        );
        assert_eq!(
            Side::ALL.map(|side| plan.mover(side)),
            [Some(Mover::Daemon), None]
        );
        assert!(plan.moving()[0].contains("the download between 5mbit"), "{plan}");
    }
}
