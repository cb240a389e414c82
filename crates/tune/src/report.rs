//! The result of a search, as data and as text.

use std::path::Path;

use serde::Serialize;
use sqm_core::direction::Direction;
use sqm_plan::OptionValue;

use crate::joint_verification::Verified;
use crate::log::Step;
use crate::overhead::Overhead;
use crate::search::NO_BLOAT_MS;
use crate::search_direction::DirectionResult;

/// The result of a search. Its fields are those of the JSON report.
#[derive(Serialize)]
pub struct Report {
    pub(crate) interface: String,
    pub(crate) target_ms: f64,
    /// The kind of server that the line was loaded with: `sqm serve`, `rpm` or `url`.
    pub(crate) server: &'static str,
    /// The quantities that such a server cannot measure, each with the value that is used instead.
    pub(crate) not_told: Vec<String>,
    /// The latency that full-size packets alone add with all directions loaded, ms. If it is above the target, it is the target.
    pub(crate) floor_ms: f64,
    /// How the line frames packets; `None` if that was not or could not be measured.
    pub(crate) overhead: Option<Overhead>,
    /// The result of each direction that was searched.
    pub(crate) found: Vec<DirectionResult>,
    /// The final measurement of all directions together; `None` if no rate was found.
    pub(crate) verified: Option<Verified>,
    /// The download rate for the configuration, kbit/s; 0 leaves it unshaped. A direction that was not searched keeps its configured rate.
    pub(crate) download_kbit: u64,
    /// The upload rate for the configuration, kbit/s.
    pub(crate) upload_kbit: u64,
    /// True if the rates have been written to the configuration.
    pub(crate) is_written: bool,
    /// A message if the target is missed.
    pub(crate) warning: Option<String>,
    /// The steps of the search, in order.
    pub(crate) steps: Vec<Step>,
}

impl Report {
    /// True if a rate was found for a direction.
    pub fn has_rates(&self) -> bool {
        self.found.iter().any(|found| found.rate_mbit.is_some())
    }

    /// The result of one direction; `None` if it was not searched.
    pub(crate) fn found(&self, direction: Direction) -> Option<&DirectionResult> {
        self.found.iter().find(|found| found.direction == direction)
    }

    /// The link layer options that the rates were found with, where they differ from the configuration.
    fn options(&self) -> &[OptionValue] {
        self.overhead.as_ref().map_or(&[], |overhead| &overhead.options)
    }

    /// True if load adds so little latency without a shaper that none is needed.
    pub fn needs_none(&self) -> bool {
        self.found.iter().all(|found| found.bloat_ms <= NO_BLOAT_MS)
    }

    /// The report for people. `config` is the configuration that the rates are for.
    pub fn text(&self, config: &Path) -> String {
        let mut text = String::new();
        for advice in self.overhead.iter().flat_map(|overhead| &overhead.advice) {
            text += &format!("overhead  {advice}\n");
        }
        for missing in &self.not_told {
            text += &format!("unknown   {missing}\n");
        }
        for found in &self.found {
            let rate = match found.rate_mbit {
                Some(rate) => format!("{:.0} kbit/s", rate * 1000.0),
                None => "no rate keeps latency flat".to_owned(),
            };
            text += &format!(
                "{:<9} idle {:.1} ms, load added {:.1} ms at {:.2} Mbit/s: {rate}\n",
                found.direction.name(),
                found.idle_ms,
                found.bloat_ms,
                found.unshaped_mbit,
            );
        }
        if let Some(verified) = &self.verified {
            let carried = self.found.iter().map(|found| match found.direction {
                Direction::Download => format!("download {:.2}", verified.download_mbit),
                Direction::Upload => format!("upload {:.2}", verified.upload_mbit),
            });
            text += &format!(
                "verified  idle {:.1} ms, load adds {:.1} ms; {} Mbit/s\n",
                verified.idle_ms,
                verified.added_p95_ms,
                carried.collect::<Vec<_>>().join(", ")
            );
        }
        if let Some(warning) = &self.warning {
            text += &format!("warning   {warning}\n");
        } else if self.has_rates() && self.floor_ms > self.target_ms {
            text += &format!(
                "          full-size packets alone take up to {:.1} ms on this line: less is not possible\n",
                self.floor_ms
            );
        }
        if self.is_written {
            for option in self.options() {
                text += &format!("set       {option}\n");
            }
            text += &format!("written to {}; the new rates are in force\n", config.display());
        } else if self.has_rates() {
            text += &format!(
                "the previous shaping has been restored; for {}:\n",
                config.display()
            );
            for found in &self.found {
                let (option, kbit) = match found.direction {
                    Direction::Download => ("download", self.download_kbit),
                    Direction::Upload => ("upload", self.upload_kbit),
                };
                text += &format!("\toption {option} '{kbit}'\n");
            }
            for option in self.options() {
                text += &format!("\t{option}\n");
            }
        }
        text
    }
}
