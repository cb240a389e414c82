//! The options that choose the queues.

use super::{Ignored, Kind, Level, OptionInfo, PerSide, Tab, Word};
use crate::settings::{Leaf, Script};
use crate::side::Side;

const fn queue(
    name: &'static str,
    level: Level,
    kind: Kind,
    title: &'static str,
    about: &'static str,
) -> OptionInfo {
    OptionInfo::new(name, Tab::Queue, level, kind, title, about)
}

/// All of them, in the order of a form.
pub(super) static ALL: &[&OptionInfo] = &[
    &SCRIPT_OF_BOTH,
    &QDISC_OF_BOTH,
    &SQUASH_DSCP,
    &SQUASH_INGRESS,
    &USE_MQ,
    &MARK_MASK,
    SCRIPT.on(Side::Egress),
    QDISC.on(Side::Egress),
    SCRIPT.on(Side::Ingress),
    QDISC.on(Side::Ingress),
];

pub(crate) static SCRIPT_OF_BOTH: OptionInfo = queue(
    "script",
    Level::Basic,
    Kind::Choice,
    "Setup script",
    "The kind of queues to set up. best_of_cake is recommended; the others are those of sqm-scripts. Or the name of a text of tc \
     commands of your own, such as mine.tc.",
)
.words(scripts)
.otherwise("none: it must be given")
.variables(&["SCRIPT"]);

pub(crate) static SCRIPT: PerSide = PerSide::new(
    "egress_script",
    "ingress_script",
    queue(
        "",
        Level::Expert,
        Kind::Choice,
        "Setup script of one direction",
        "In place of the common one, such as one with fq_codel where the processor is too slow for cake.",
    )
    .words(scripts)
    .otherwise("`script`"),
);

pub(crate) static QDISC_OF_BOTH: OptionInfo = queue(
    "qdisc",
    Level::Advanced,
    Kind::Choice,
    "Queueing discipline",
    "The queue in each class, for setup scripts that leave a choice; those with cake in their name always use cake.",
)
.default("fq_codel")
.words(leaves)
.variables(&["QDISC"])
.ignored(&NO_CHOICE);

pub(crate) static QDISC: PerSide = PerSide::new(
    "egress_qdisc",
    "ingress_qdisc",
    queue(
        "",
        Level::Expert,
        Kind::Choice,
        "Queueing discipline of one direction",
        "In place of the common one.",
    )
    .words(leaves)
    .otherwise("`qdisc`")
    .ignored(&NO_CHOICE),
);

/// Setup scripts that leave no choice of leaf.
const NO_CHOICE: [Ignored; 2] = [
    Ignored {
        when: "the setup script is one of cake, and this is not 'cake'",
        reason: "{script} always uses cake, not '{qdisc}'",
        applies: |case| {
            let direction = case.side.of(case.settings);
            chooses_leaf(case)
                && matches!(
                    direction.script,
                    Script::PieceOfCake | Script::LayerCake | Script::BestOfCake
                )
                && direction.qdisc != Leaf::Cake
        },
    },
    Ignored {
        when: "this is 'cake', and the setup script shapes by TBF or HFSC",
        reason: "{script} shapes already, and cake would shape a second time; the leaf is fq_codel",
        applies: |case| {
            let direction = case.side.of(case.settings);
            chooses_leaf(case)
                && matches!(
                    direction.script,
                    Script::SimplestTbf | Script::HfscLite | Script::HfscLitest
                )
                && direction.qdisc == Leaf::Cake
        },
    },
];

/// True if this option chooses the leaf of this direction, and no finding about egress says so already.
fn chooses_leaf(case: &super::Case<'_>) -> bool {
    let own = QDISC.on(case.side);
    let has_own = case.settings.gives(own.name);
    let is_it = case.is_given() && (has_own == (case.option.name == own.name));
    is_it && !case.side.is_same_as_egress(case.settings)
}

pub(crate) static SQUASH_DSCP: OptionInfo = queue(
    "squash_dscp",
    Level::Advanced,
    Kind::Switch,
    "Erase DSCP of arriving packets",
    "Marks of the provider do not reach your home network. If not set, the setup script decides.",
)
.otherwise("the setup script decides")
.variables(&["ZERO_DSCP_INGRESS", "ZERO_DSCP", "SQUASH_DSCP"])
.ignored(&[Ignored {
    when: "it is on, and the setup script is simplest, simplest_tbf, hfsc_lite or hfsc_litest",
    reason: "{script} does not change the DSCP of packets",
    applies: |case| {
        case.side == Side::Ingress
            && case.settings.squash_dscp == Some(true)
            && matches!(
                case.settings.ingress.script,
                Script::Simplest | Script::SimplestTbf | Script::HfscLite | Script::HfscLitest
            )
    },
}]);

pub(crate) static SQUASH_INGRESS: OptionInfo = queue(
    "squash_ingress",
    Level::Advanced,
    Kind::Switch,
    "Ignore DSCP of arriving packets",
    "Arriving packets are all treated alike, whatever their DSCP. If not set, the setup script decides.",
)
.otherwise("the setup script decides")
.variables(&["IGNORE_DSCP_INGRESS", "IGNORE_DSCP", "SQUASH_INGRESS"])
.ignored(&[
    Ignored {
        when: "it is off, and the setup script has one class",
        reason: "{script} has one class for all packets",
        applies: |case| {
            case.side == Side::Ingress
                && case.settings.squash_ingress == Some(false)
                && matches!(
                    case.settings.ingress.script,
                    Script::PieceOfCake | Script::Simplest | Script::SimplestTbf | Script::HfscLitest
                )
        },
    },
    Ignored {
        when: "it is off, and the setup script is hfsc_lite",
        reason: "{script} does not use the DSCP of packets",
        applies: |case| {
            case.side == Side::Ingress
                && case.settings.squash_ingress == Some(false)
                && case.settings.ingress.script == Script::HfscLite
        },
    },
]);

pub(crate) static USE_MQ: OptionInfo = queue(
    "use_mq",
    Level::Expert,
    Kind::Switch,
    "Use several processors",
    "One CAKE for each transmit queue of the device (Linux 7.0 and later); for lines above about 500 Mbit/s.",
)
.default("0")
.variables(&["USE_MQ"])
.ignored(&[Ignored {
    when: "it is on, and neither direction has cake",
    reason: "cake_mq replaces cake, and neither direction has cake",
    applies: |case| case.settings.use_mq && case.cakes(0),
}]);

pub(crate) static MARK_MASK: OptionInfo = queue(
    "mark_mask",
    Level::Expert,
    Kind::Mask,
    "Bits of the firewall mark",
    "The bits that simple.qos may use, if other software sets marks, too.",
)
.default("0xff")
.variables(&["MARK_MASK", "IPT_MASK"])
.ignored(&[Ignored {
    when: "neither direction is simple.qos without cake",
    reason: "only simple.qos sets marks",
    applies: |case| {
        case.is_given()
            && !Side::ALL.into_iter().any(|side| {
                let direction = side.of(case.settings);
                direction.script == Script::Simple && !direction.is_cake()
            })
    },
}]);

fn scripts() -> Vec<Word> {
    let about = |script: &Script| match script {
        Script::BestOfCake => "cake, with settings for each direction: recommended",
        Script::PieceOfCake => "cake with one class: the usual choice of sqm-scripts",
        Script::LayerCake => "cake with three classes by DSCP",
        Script::Simple => "HTB with three classes by DSCP",
        Script::Simplest => "HTB with one class: for slow processors",
        Script::SimplestTbf => "a token bucket: for the slowest processors",
        Script::HfscLite => "HFSC with three classes",
        Script::HfscLitest => "HFSC with one class",
        Script::Own(_) => "",
    };
    Script::built_in()
        .map(|script| (script.file_name(), about(script)))
        .collect()
}

fn leaves() -> Vec<Word> {
    let about = |leaf: Leaf| match leaf {
        Leaf::FqCodel => "fair queues with CoDel",
        Leaf::Cake => "CAKE",
        Leaf::Codel => "CoDel on one queue",
        Leaf::Pie => "PIE on one queue",
        Leaf::Sfq => "fair queues without active queue management",
        Leaf::Pfifo => "a plain queue, in packets",
        Leaf::Bfifo => "a plain queue, in bytes",
    };
    Leaf::ALL.map(|leaf| (leaf.name(), about(leaf))).to_vec()
}
