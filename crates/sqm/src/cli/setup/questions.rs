//! The questions for a line: its kind and its speeds.

use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_plan::link::{Encapsulation, PRESETS, Preset};
use sqm_process::failure::Failure;

use super::answers::ask;
use super::kind::{self, Kind};
use super::rates::{Rates, parse_speeds};
use super::section::Existing;

/// Reads a kind of line. DSL alone is not enough for a flag.
pub(super) fn parse_kind(text: &str) -> Result<&'static Preset, String> {
    match kind::parse(text)? {
        Kind::Exact(preset) | Kind::Plain(preset) => Ok(preset),
        Kind::Dsl => Err("DSL is of two kinds: say vdsl or adsl".to_owned()),
    }
}

/// Asks for the kind of line. `stack` are the layers that the device shows: they need no question.
pub(super) fn ask_link(
    known: Option<&'static Preset>,
    stack: &[Encapsulation],
) -> Result<&'static Preset, Failure> {
    let proposal = known.map_or("unknown", |preset| preset.name);
    let parse = |answer: &str| match answer {
        "" => kind::parse(proposal),
        answer => kind::parse(answer),
    };
    let question = "Kind of line (DSL, cable, fibre, LTE, satellite, wireless, Ethernet)";
    let mut kind = ask(question, Some(proposal), "--link", parse)?;
    if kind == Kind::Dsl {
        kind = ask(
            "VDSL (about 20 Mbit/s or more, most DSL lines today) or ADSL",
            Some("VDSL"),
            "--link",
            |answer| match answer {
                "" => kind::parse("vdsl"),
                answer => match kind::parse(answer)? {
                    Kind::Dsl => Err("type VDSL or ADSL".to_owned()),
                    found => Ok(found),
                },
            },
        )?;
    }
    let layers = [Encapsulation::Pppoe, Encapsulation::Vlan];
    match kind {
        Kind::Plain(preset) if known != Some(preset) && !layers.iter().any(|layer| stack.contains(layer)) => {
            ask(
                "Does the provider need PPPoE (a user name and a password) or a VLAN: pppoe, vlan, both",
                Some("no"),
                "--link",
                |answer| kind::layered(preset, answer),
            )
        }
        Kind::Exact(preset) | Kind::Plain(preset) => Ok(preset),
        Kind::Dsl => Ok(PRESETS
            .iter()
            .find(|preset| preset.name == "conservative")
            .expect("it is in the table")),
    }
}

/// Asks for the speeds of the contract. Known rates are shaper rates already and are kept unchanged; an answer is the line's rates.
/// Enter leaves them to the measurement, if there is one.
pub(super) fn ask_speeds(existing: &Existing, is_measured: bool) -> Result<Rates, Failure> {
    let known = Rates {
        download: existing.download,
        upload: existing.upload,
    };
    let proposal = match (known.download, known.upload) {
        (Some(down), Some(up)) => Some(format!("keep {down} / {up}")),
        _ if is_measured => Some("measure them".to_owned()),
        _ => None,
    };
    let is_proposed = proposal.is_some();
    ask(
        "Speeds of the contract, download and upload, such as 80/20 Mbit/s (or 'measured 76/19 Mbit/s')",
        proposal.as_deref(),
        "--advertised, --measured, --test or --server",
        |answer| match answer {
            "" if is_proposed => Ok(known),
            answer => parse_speeds(answer),
        },
    )
}

/// Asks for the speed of one direction that is still unknown, and returns the shaper rate.
pub(super) fn ask_rate(direction: Direction) -> Result<Rate, Failure> {
    let question = format!("Speed of the {}, such as 20 Mbit/s", direction.name());
    ask(&question, None, "--advertised, --measured or --test", |answer| {
        let rates = parse_speeds(answer)?;
        match rates {
            Rates {
                download: Some(rate),
                upload: None,
            } => Ok(rate),
            _ => Err("type one speed, such as 20 Mbit/s".to_owned()),
        }
    })
}
