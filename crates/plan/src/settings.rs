//! One `config queue` section as typed settings: every option that sqm-scripts reads, with its meaning and default.
//!
//! Where sqm-scripts guesses, this refuses: a missing rate is an error and not an ADSL line of 2012, `10mbits` is an
//! error and not an unshaped line, and `enabled 'on'` means what it says.

mod cake;
mod reflector;

use std::collections::BTreeMap;

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Nanos, Rate};

use crate::device::Device;
use crate::link::{LinkLayer, Preset};
use crate::own::OwnScript;

pub use cake::{CakeOption, CakeValue};
pub use reflector::{Reflector, ReflectorProtocol};

/// The settings of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Index of the section among those of its file, from 0.
    pub section: usize,
    /// Line of the section in its file.
    pub line: usize,
    /// `enabled`: off unless switched on.
    pub enabled: bool,
    /// `interface`: the network device whose line is shaped.
    pub interface: String,
    /// `facing`: where the device leads.
    pub facing: Facing,
    /// `drift`: the daemon's reaction to queues that another program changed; unless given, the daemon's command line decides.
    pub drift: Option<Drift>,
    /// Packets that leave through the device: `eqdisc_opts`, `elimit`, `egress_…`.
    pub egress: DirectionSettings,
    /// Packets that arrive through it: `iqdisc_opts`, `ilimit`, `ingress_…`.
    pub ingress: DirectionSettings,
    /// `squash_dscp`: erase the DSCP of arriving packets; unless given, the setup script decides.
    pub squash_dscp: Option<bool>,
    /// `squash_ingress`: do not use the DSCP of arriving packets to classify them; unless given, the setup script decides.
    pub squash_ingress: Option<bool>,
    /// `use_mq`: one CAKE for each transmit queue.
    pub use_mq: bool,
    /// `autoflow`: fewer queues in the leaf on slow lines.
    pub autoflow: bool,
    /// `mark_mask`: the bits of the firewall mark that are ours.
    pub mark_mask: u32,
    /// `autorate`: the daemon changes the rates as the line does.
    pub autorate: Option<Autorate>,
    /// The size of a packet on the line.
    pub link: Link,
    /// `debug_logging`: keep logs of start and stop.
    pub debug_logging: bool,
    /// `verbosity`: least important messages shown, 0 (none) to 10 (trace); 5 is all but debugging.
    pub verbosity: u8,
    /// Line of each option that is given a value.
    pub(crate) lines: BTreeMap<&'static str, usize>,
}

impl Settings {
    /// True if the section gives this option a value.
    pub fn gives(&self, option: &str) -> bool {
        self.lines.contains_key(option)
    }

    /// The line of an option, or the section's if it is not given.
    pub fn line_of(&self, option: &str) -> usize {
        self.lines.get(option).copied().unwrap_or(self.line)
    }

    /// Bytes that the line adds to an IP packet: those of the settings, and those of each encapsulation that the device
    /// stack shows and the preset does not count.
    pub(crate) fn overhead_above_ip(&self, device: &Device) -> i32 {
        let stack: i32 = match self.link.preset {
            Some(preset) if !self.gives("overhead") => preset
                .missing(&device.stack)
                .iter()
                .map(|layer| layer.bytes())
                .sum(),
            _ => 0,
        };
        self.link.overhead + stack
    }

    /// These settings at other rates; `None` leaves a rate. Like a file, settings have whole kilobits per second: rates are
    /// rounded down, but not to 0, which would not shape.
    #[must_use]
    pub fn at_rates(&self, rates: PerDirection<Option<Rate>>) -> Self {
        let whole = |rate: Rate| Rate::from_kbits_per_sec(rate.kbits_per_sec().max(1));
        let (download, upload) = (rates.download.map(whole), rates.upload.map(whole));
        let mut settings = self.clone();
        let (egress, ingress) = match self.facing {
            Facing::Internet => (upload, download),
            Facing::Lan => (download, upload),
        };
        settings.egress.rate = egress.or(self.egress.rate);
        settings.ingress.rate = ingress.or(self.ingress.rate);
        settings
    }

    /// These settings without the words that the user appended to the leaves.
    pub(crate) fn without_options(&self) -> Self {
        let mut settings = self.clone();
        settings.egress.options.clear();
        settings.ingress.options.clear();
        settings
    }
}

/// Where the files of `autorate_log` are. Whoever may change the configuration chooses no other place: the daemon writes as root.
pub const LOG_FOLDER: &str = "/var/log/sqm";

/// How the daemon may change the rates; those of `download` and `upload` are where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autorate {
    /// The direction whose rate alone moves; `None` if both do.
    pub only: Option<Direction>,
    /// `min_download`, `max_download`.
    pub download: Limits,
    /// `min_upload`, `max_upload`.
    pub upload: Limits,
    /// `autorate_reflectors`: the hosts to probe; none means the usual ones.
    pub reflectors: Vec<Reflector>,
    /// `autorate_log`: the name of a file in [`LOG_FOLDER`] to write the decisions to.
    pub log: Option<String>,
}

/// `autorate`: the rates that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// `0`.
    Neither,
    /// `1`.
    Both,
    /// `download` or `upload`.
    Only(Direction),
}

/// The rates between which one may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Never less.
    pub min: Option<Rate>,
    /// Never more.
    pub max: Option<Rate>,
}

/// `facing`: which way the line's upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facing {
    /// Towards the internet: the upload leaves through the device.
    Internet,
    /// Towards the hosts of the home: the download leaves through it.
    Lan,
}

/// `drift`: how the daemon reacts to queues that another program changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// It applies the plan again.
    Repair,
    /// It only reports the difference.
    Report,
}

/// The settings of one direction of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionSettings {
    /// `script`, or `egress_script` and `ingress_script`: the setup script.
    pub script: Script,
    /// `qdisc`, or `egress_qdisc` and `ingress_qdisc`: the leaf, for the setup scripts that leave a choice; fq_codel unless
    /// said.
    pub qdisc: Leaf,
    /// Shaped rate, as it is typed: no margin is taken off. `None` (written 0) does not shape this direction.
    pub rate: Option<Rate>,
    /// Mark packets rather than drop them.
    pub ecn: bool,
    /// Most packets in the leaf; `None` leaves it to the setup script.
    pub limit: Option<u32>,
    /// The leaf's acceptable standing delay.
    pub target: Target,
    /// `shaper_burst_dur_us`: a token bucket's burst as time, microseconds.
    pub burst_micros: u32,
    /// `shaper_quantum_dur_us`: HTB's quantum as time, microseconds.
    pub quantum_micros: u32,
    /// The typed options of CAKE that the section gives.
    pub cake: Vec<CakeOption>,
    /// Words appended to those of the leaf, where the last word wins.
    pub options: String,
}

impl DirectionSettings {
    /// True if the queue of this direction is CAKE.
    pub(crate) fn is_cake(&self) -> bool {
        let takes_cake = matches!(self.script, Script::Simple | Script::Simplest);
        self.script.is_cake() || takes_cake && self.qdisc == Leaf::Cake
    }
}

/// `itarget` and `etarget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Computed from the rate, and the interval with it.
    Auto,
    /// The default of the queueing discipline.
    QdiscDefault,
    /// This, with the discipline's own interval.
    Is(Nanos),
}

/// The link-layer options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// `link`: the access technology, from which the others follow unless they are given.
    pub preset: Option<&'static Preset>,
    /// `linklayer`.
    pub layer: LinkLayer,
    /// `overhead`: bytes that the line adds to an IP packet, whatever mechanism counts them.
    pub overhead: i32,
    /// `linklayer_adaptation_mechanism`.
    pub mechanism: Mechanism,
    /// `tcMTU`: largest packet the size table covers, bytes.
    pub table_mtu: u32,
    /// `tcTSIZE`: entries in the size table.
    pub table_size: u32,
    /// `tcMPU`: least size a packet is counted with, overhead included, bytes.
    pub mpu: u32,
}

/// `linklayer_adaptation_mechanism`: who does the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// CAKE where there is one, a size table otherwise.
    Default,
    /// CAKE itself.
    Cake,
    /// A size table on the root.
    TcStab,
    /// The accounting inside HTB and TBF.
    HtbPrivate,
}

/// The setup scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// CAKE with one tin in each direction.
    PieceOfCake,
    /// CAKE with three tins.
    LayerCake,
    /// CAKE as this project recommends it, each direction in its own way.
    BestOfCake,
    /// HTB with three classes.
    Simple,
    /// HTB with one class and one leaf.
    Simplest,
    /// TBF with one leaf.
    SimplestTbf,
    /// HFSC with three classes.
    HfscLite,
    /// HFSC with one class and one leaf.
    HfscLitest,
    /// A text of `tc` commands of the user's own.
    Own(OwnScript),
}

impl Script {
    /// Those that are built in.
    pub const BUILT_IN: [Self; 8] = [
        Self::BestOfCake,
        Self::PieceOfCake,
        Self::LayerCake,
        Self::Simple,
        Self::Simplest,
        Self::SimplestTbf,
        Self::HfscLite,
        Self::HfscLitest,
    ];

    /// Those that are built in.
    pub(crate) fn built_in() -> impl Iterator<Item = &'static Self> + Clone {
        static ALL: [Script; 8] = Script::BUILT_IN;
        ALL.iter()
    }

    /// True if the queue is CAKE whatever `qdisc` says.
    pub(crate) fn is_cake(&self) -> bool {
        match self {
            Self::Own(own) => own.uses("CAKE_FRAMING"),
            script => matches!(script, Self::PieceOfCake | Self::LayerCake | Self::BestOfCake),
        }
    }

    /// The word of the option.
    pub fn file_name(&self) -> &str {
        match self {
            Self::Own(own) => &own.text.name,
            Self::PieceOfCake => "piece_of_cake.qos",
            Self::LayerCake => "layer_cake.qos",
            Self::BestOfCake => "best_of_cake.qos",
            Self::Simple => "simple.qos",
            Self::Simplest => "simplest.qos",
            Self::SimplestTbf => "simplest_tbf.qos",
            Self::HfscLite => "hfsc_lite.qos",
            Self::HfscLitest => "hfsc_litest.qos",
        }
    }
}

/// `qdisc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Flow Queue CoDel.
    FqCodel,
    /// CAKE.
    Cake,
    /// CoDel on one queue.
    Codel,
    /// PIE on one queue.
    Pie,
    /// Stochastic fairness queueing.
    Sfq,
    /// A plain queue, limited in packets.
    Pfifo,
    /// A plain queue, limited in bytes.
    Bfifo,
}

impl Leaf {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::FqCodel,
        Self::Cake,
        Self::Codel,
        Self::Pie,
        Self::Sfq,
        Self::Pfifo,
        Self::Bfifo,
    ];

    /// The word of the option.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FqCodel => "fq_codel",
            Self::Cake => "cake",
            Self::Codel => "codel",
            Self::Pie => "pie",
            Self::Sfq => "sfq",
            Self::Pfifo => "pfifo",
            Self::Bfifo => "bfifo",
        }
    }
}
