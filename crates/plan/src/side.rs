//! The two sides of the shaped device, and all that the queues of one side depend on.

use sqm_core::units::Rate;

use crate::device::Device;
use crate::link::LinkLayer;
use crate::settings::{DirectionSettings, Facing, Mechanism, Script, Settings};

/// Leaving or entering the shaped device, as the kernel sees it. `option facing` decides which of them is the upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Packets that leave the device.
    Egress,
    /// Packets that arrive through it.
    Ingress,
}

impl Side {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Egress, Self::Ingress];

    /// `egress` or `ingress`, as options and messages name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }

    /// The settings of this side.
    pub const fn of(self, settings: &Settings) -> &DirectionSettings {
        match self {
            Self::Egress => &settings.egress,
            Self::Ingress => &settings.ingress,
        }
    }

    /// True if the other direction has the same setup script and leaf and is looked at first: an option for both directions is
    /// then judged once.
    pub(crate) fn is_same_as_egress(self, settings: &Settings) -> bool {
        let (egress, ingress) = (&settings.egress, &settings.ingress);
        self == Self::Ingress && egress.script == ingress.script && egress.qdisc == ingress.qdisc
    }

    /// The option that holds the rate of this side.
    pub(crate) const fn rate_option(self, settings: &Settings) -> &'static str {
        match (settings.facing, self) {
            (Facing::Internet, Self::Egress) | (Facing::Lan, Self::Ingress) => "upload",
            (Facing::Internet, Self::Ingress) | (Facing::Lan, Self::Egress) => "download",
        }
    }
}

/// One direction of one interface, with all that its queues depend on.
#[derive(Clone, Copy, Debug)]
pub struct DirectionContext<'a> {
    /// The interface's settings.
    pub settings: &'a Settings,
    /// Which of the two directions.
    pub side: Side,
    /// The device.
    pub device: &'a Device,
}

impl<'a> DirectionContext<'a> {
    /// The settings of this direction.
    pub const fn direction(self) -> &'a DirectionSettings {
        self.side.of(self.settings)
    }

    /// True if the packets come from the internet.
    pub fn is_download(self) -> bool {
        (self.side == Side::Ingress) == (self.settings.facing == Facing::Internet)
    }

    /// The mechanism that counts the framing; `None` with `linklayer none`.
    ///
    /// If the setup script does not have the configured mechanism, or that mechanism cannot express the overhead, the
    /// setup script's own is used.
    pub(crate) fn mechanism(self) -> Option<Mechanism> {
        let direction = self.direction();
        let own = if direction.is_cake() {
            Mechanism::Cake
        } else {
            Mechanism::TcStab
        };
        match (self.settings.link.layer, self.settings.link.mechanism) {
            (LinkLayer::None, _) => None,
            (_, Mechanism::Default | Mechanism::Cake) => Some(own),
            (_, Mechanism::TcStab) => Some(Mechanism::TcStab),
            (_, Mechanism::HtbPrivate) => {
                let has_it = !direction.is_cake()
                    && match &direction.script {
                        Script::Own(own) => own.uses("HTB_FRAMING"),
                        script => matches!(script, Script::Simple | Script::Simplest | Script::SimplestTbf),
                    };
                let fits = self.overhead_above_kernels_length() >= 0;
                Some(if has_it && fits {
                    Mechanism::HtbPrivate
                } else {
                    own
                })
            }
        }
    }

    /// The overhead to add to the length that the kernel knows, bytes.
    pub(crate) fn overhead_above_kernels_length(self) -> i32 {
        self.settings.overhead_above_ip(self.device) - self.device.header.cast_signed()
    }

    /// The rate to shape to. Only CAKE computes with 64b/65b coding; for every other shaper the rate is reduced by it.
    pub(crate) fn rate(self) -> Rate {
        let rate = self.direction().rate.unwrap_or(Rate::from_bits_per_sec(0));
        match (self.settings.link.layer, self.mechanism()) {
            (LinkLayer::Ptm, Some(Mechanism::TcStab | Mechanism::HtbPrivate)) => {
                Rate::from_bits_per_sec(rate.bits_per_sec() / 65 * 64)
            }
            _ => rate,
        }
    }
}
