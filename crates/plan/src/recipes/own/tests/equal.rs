//! The five setup scripts of sqm-scripts as texts give the plans of the built-in ones, byte for byte.

use super::{load, section};
use crate::device::Device;
use crate::plan::Plan;

const TEXTS: [(&str, &str); 5] = [
    ("piece_of_cake.qos", include_str!("piece_of_cake.tc")),
    ("layer_cake.qos", include_str!("layer_cake.tc")),
    ("simple.qos", include_str!("simple.tc")),
    ("simplest.qos", include_str!("simplest.tc")),
    ("simplest_tbf.qos", include_str!("simplest_tbf.tc")),
];

const RATES: [&[&str]; 6] = [
    &[],
    &["download 384", "upload 96"],
    &["download 799", "upload 1"],
    &["download 0", "upload 2mbit"],
    &["download 940mbit", "upload 0"],
    &["download 24mbit", "upload 1100", "facing lan"],
];

const LINES: [&[&str]; 9] = [
    &[],
    &["linklayer ethernet", "overhead 34", "tcMPU 68"],
    &[
        "linklayer atm",
        "overhead 44",
        "linklayer_adaptation_mechanism tc_stab",
        "tcMTU 9000",
        "tcTSIZE 128",
    ],
    &[
        "linklayer atm",
        "overhead 40",
        "linklayer_adaptation_mechanism htb_private",
        "tcMTU 1900",
    ],
    &[
        "linklayer ptm",
        "overhead 30",
        "linklayer_adaptation_mechanism htb_private",
    ],
    &[
        "linklayer ptm",
        "overhead 30",
        "linklayer_adaptation_mechanism cake",
    ],
    &["link vdsl2", "interface ppp0"],
    &[
        "link docsis",
        "interface eth0.7",
        "linklayer_adaptation_mechanism tc_stab",
    ],
    &[
        "linklayer ethernet",
        "overhead 8",
        "linklayer_adaptation_mechanism htb_private",
    ],
];

const QUEUES: [&[&str]; 14] = [
    &[],
    &["qdisc cake"],
    &[
        "qdisc codel",
        "itarget 20ms",
        "etarget default",
        "egress_ecn ECN",
        "ingress_ecn NOECN",
    ],
    &["qdisc pie", "elimit 400", "etarget 20ms"],
    &["qdisc sfq", "ilimit 1", "autoflow 1"],
    &["qdisc pfifo", "elimit 77"],
    &["qdisc bfifo", "ilimit 64kb"],
    &["squash_dscp 0"],
    &["squash_ingress 0"],
    &[
        "squash_ingress 0",
        "squash_dscp 0",
        "autoflow 1",
        "mark_mask 0x3f",
        "shaper_burst_dur_us 0",
    ],
    &[
        "shaper_burst_dur_us 10000",
        "eshaper_quantum_dur_us 2000",
        "ishaper_burst_dur_us 500",
    ],
    &[
        "eqdisc_opts memory_limit 4mb quantum 700",
        "iqdisc_opts ce_threshold 3ms",
        "qdisc fq_codel",
    ],
    &[
        "qdisc cake",
        "squash_ingress 0",
        "cake_rtt 30ms",
        "egress_cake_tins diffserv8",
        "cake_isolation dual-dsthost",
        "ingress_cake_nat 0",
        "cake_wash 1",
        "egress_cake_ack_filter aggressive",
        "cake_ingress 1",
        "cake_split_gso 0",
        "cake_memlimit 4mb",
        "cake_fwmark 0xf0",
    ],
    &[
        "qdisc cake",
        "use_mq 1",
        "eqdisc_opts nat dual-srchost",
        "iqdisc_opts diffserv4 rtt 50ms",
    ],
];

/// The plan without the name of its setup script; the errors if there is none.
fn plan(section: &str, text: &str, device: &dyn Fn(&str) -> Device) -> Result<Plan, String> {
    match load(section, text, device) {
        Ok(mut loaded) => {
            let mut plan = loaded.plans.remove(0);
            plan.script.clear();
            plan.notes.retain(|note| !note.starts_with("use_mq"));
            Ok(plan)
        }
        Err(errors) => Err(errors.iter().map(|error| format!("{error}\n")).collect()),
    }
}

#[test]
fn the_five_setup_scripts_as_texts_give_the_plans_of_the_built_in_ones() {
    let device = |mtu, queues| {
        move |name: &str| Device {
            mtu,
            queues: (queues, queues),
            ..Device::absent(name)
        }
    };
    let usual = device(1500, 1);
    let mut compared = 0;
    for (script, text) in TEXTS {
        for queue in QUEUES {
            for line in LINES {
                compared += compare(script, text, &[line, queue].concat(), &usual);
            }
            for rates in RATES {
                compared += compare(script, text, &[rates, queue].concat(), &usual);
            }
            for other in [device(9000, 1), device(1492, 4), device(576, 1)] {
                compared += compare(script, text, queue, &other);
            }
        }
        for rates in RATES {
            for line in LINES {
                compared += compare(script, text, &[rates, line].concat(), &usual);
            }
        }
    }
    assert!(compared > 1300, "{compared}");
}

/// Compares the plan of a built-in setup script with the one of its text. 1 if there is one.
fn compare(script: &str, text: &str, options: &[&str], device: &dyn Fn(&str) -> Device) -> usize {
    let built_in = plan(&section(script, options), "", device);
    let own = plan(&section("mine.tc", options), text, device);
    match (&built_in, &own) {
        (Ok(built_in), Ok(own)) => {
            assert_eq!(built_in.to_string(), own.to_string(), "{script} {options:?}");
            assert_eq!(built_in, own, "{script} {options:?}");
            1
        }
        // Words that this script's queue does not take are refused in both.
        (Err(_), Err(_)) => 0,
        _ => panic!("{script} {options:?}: {built_in:?} {own:?}"),
    }
}
