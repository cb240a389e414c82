//! The outcome of a search, as data and as text.

use std::path::Path;

use serde::Serialize;
use sqm_measure::result::Direction;

use crate::line::Found;
use crate::log::Step;
use crate::overhead::Overhead;
use crate::search::NO_BLOAT_MS;
use crate::verify::Verified;

/// The outcome of a search.
#[derive(Serialize)]
pub struct Report {
    pub(crate) interface: String,
    pub(crate) target_ms: f64,
    /// Whom the line was loaded with: sqm serve, rpm or url.
    pub(crate) server: &'static str,
    /// What such a server cannot tell, and what becomes of it.
    pub(crate) not_told: Vec<String>,
    /// What full packets alone add with all loaded directions full: the target where it is more.
    pub(crate) floor_ms: f64,
    /// How the line frames packets; none if that could not be told.
    pub(crate) overhead: Option<Overhead>,
    pub(crate) found: Vec<Found>,
    /// With the rates set and all directions loaded that can be.
    pub(crate) verified: Option<Verified>,
    /// Rates for the configuration, kbit/s; 0 leaves a direction unshaped. One that was not searched keeps its own.
    pub(crate) download_kbit: u64,
    pub(crate) upload_kbit: u64,
    pub(crate) is_written: bool,
    /// Why the target does not hold, if it does not.
    pub(crate) warning: Option<String>,
    /// Everything that was done, with its reason.
    pub(crate) steps: Vec<Step>,
}

impl Report {
    /// True if a rate was found for a direction.
    pub fn has_rates(&self) -> bool {
        self.found.iter().any(|found| found.rate_mbit.is_some())
    }

    /// The outcome of one direction; `None` if it was not searched.
    pub(crate) fn found(&self, direction: Direction) -> Option<&Found> {
        self.found.iter().find(|found| found.direction == direction)
    }

    /// Options of the link layer that the rates were found with.
    fn options(&self) -> &[(&'static str, String)] {
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
        for untold in &self.not_told {
            text += &format!("not told  {untold}\n");
        }
        for found in &self.found {
            let rate = match found.rate_mbit {
                Some(rate) => format!("{:.0} kbit/s", rate * 1000.0),
                None => "no rate keeps latency flat".to_owned(),
            };
            text += &format!(
                "{:<9} idle {:.1} ms, load added {:.1} ms at {:.2} Mbit/s: {rate}\n",
                found.direction.word(),
                found.idle_ms,
                found.bloat_ms,
                found.unshaped_mbit,
            );
        }
        if let Some(verified) = &self.verified {
            let carried = self.found.iter().map(|found| match found.direction {
                Direction::Down => format!("download {:.2}", verified.download_mbit),
                Direction::Up => format!("upload {:.2}", verified.upload_mbit),
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
                "          of that, full packets take up to {:.1} ms on this line: no less was to be had\n",
                self.floor_ms
            );
        }
        if self.is_written {
            text += &format!("written to {}; the new rates are in force\n", config.display());
        } else if self.has_rates() {
            text += &format!("the shaping from before is back; for {}:\n", config.display());
            for found in &self.found {
                let (option, kbit) = match found.direction {
                    Direction::Down => ("download", self.download_kbit),
                    Direction::Up => ("upload", self.upload_kbit),
                };
                text += &format!("\toption {option} '{kbit}'\n");
            }
            for (option, value) in self.options() {
                text += &format!("\toption {option} '{value}'\n");
            }
        }
        text
    }
}
