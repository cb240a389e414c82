//! From `/etc/config/sqm` to an exact plan of queues.
//!
//! Pure functions in a row, no I/O: [`uci`] text → [`settings`] per interface → [`validate`] the whole file →
//! a recipe in [`recipes`] → [`plan::Plan`]. [`load`] is the row.
#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod device;
pub mod diagnostic;
mod framing;
pub mod import;
pub mod line;
pub mod link;
pub mod options;
pub mod plan;
mod read;
pub mod recipes;
pub mod settings;
pub mod side;
pub mod uci;
pub mod validate;
mod value;

use device::Device;
use diagnostic::{Diagnostic, Finding, Report};
use line::ConfiguredLine;
use plan::Plan;
use settings::Settings;

/// What a good configuration file asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// One plan for each enabled section, in the order of the file.
    pub plans: Vec<Plan>,
    /// What each of them takes the line for.
    pub lines: Vec<ConfiguredLine>,
    /// What each of them says.
    pub settings: Vec<Settings>,
    /// What was understood but is not acted upon, or is probably not meant.
    pub warnings: Vec<Diagnostic>,
}

/// Enabled sections of one file. Plans are much larger than the text that asks for them.
const MOST_INTERFACES: usize = 1000;

/// Reads, checks and plans a whole configuration file: all of it, or all its errors, of each kind the first twenty and how many
/// more there are. That takes time and memory in proportion to the text.
///
/// `file_name` is for the messages only. `device_of` answers what is known of a device ([`Device::absent`] where there
/// is no such device yet): bursts depend on its MTU, and what a packet costs on the kind of device.
pub fn load(
    text: &[u8],
    file_name: &str,
    device_of: &dyn Fn(&str) -> Device,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut report = Report::new(file_name);
    let document = match uci::Document::parse_bytes(text) {
        Ok(document) => document,
        Err(errors) => {
            for uci::Error {
                line,
                message,
                suggestion,
            } in errors
            {
                report.error(Finding::at(line, message).suggest(suggestion));
            }
            return Err(report.finish().0);
        }
    };

    let mut planned: Vec<(Settings, Plan)> = Vec::new();
    let mut lines = Vec::new();
    for section in validate::queues(&document, &mut report) {
        let Some(settings) = read::section(&section, &mut report) else {
            continue;
        };
        if planned.len() == MOST_INTERFACES && settings.enabled {
            let message =
                format!("more than {MOST_INTERFACES} sections are enabled: no machine keeps so many queues");
            report.error(Finding::at(settings.line, message));
            break;
        }
        let device = device_of(&settings.interface);
        if let Some(plan) = validate::settings(&settings, &device, &mut report)
            && settings.enabled
        {
            lines.push(ConfiguredLine::of(&settings, &plan, &device));
            planned.push((settings, plan));
        }
    }
    validate::together(&planned, &mut report);

    let (errors, warnings) = report.finish();
    if errors.is_empty() {
        let (settings, plans) = planned.into_iter().unzip();
        Ok(Loaded {
            plans,
            lines,
            settings,
            warnings,
        })
    } else {
        Err(errors)
    }
}
