//! Measures how the line frames packets, and compares that with the configuration.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use sqm_core::spec::cake::Cells;
use sqm_measure::client::Target;
use sqm_measure::overhead_fit::{self, Configured, Fit, HEADERS_V4, HEADERS_V6};
use sqm_measure::packet_trains;
use sqm_plan::OptionValue;
use sqm_plan::link::LinkLayer;

use super::framing::Framing;
use crate::log::Log;

/// No line that carries ATM cells is faster (ADSL2+, ITU-T G.992.5).
const FASTEST_ATM_MBIT: f64 = 30.0;

/// The widest 95 % confidence interval of the overhead, in bytes, that still counts as a measurement. Our choice.
const WIDEST_INTERVAL: f64 = 16.0;

/// The result of sending trains of packets of several sizes.
#[derive(Debug, Serialize)]
pub(crate) struct Overhead {
    pub(crate) fit: Fit,
    /// Changes of the configuration that are recommended, in words.
    pub(crate) advice: Vec<String>,
    /// The options that the found rates require; empty if the configuration fits.
    pub(crate) options: Vec<OptionValue>,
    /// The bytes that a packet takes beyond IP, as measured: the best estimate and its 95 % confidence interval.
    pub(crate) measured_bytes: f64,
    pub(crate) measured_from_bytes: f64,
    pub(crate) measured_to_bytes: f64,
    /// The bytes beyond IP that the configuration counts.
    pub(crate) counted_bytes: i32,
    /// True if the two differ by more than the measurement's error.
    pub(crate) differs: bool,
    /// True if the configuration counts cells if and only if the line has them.
    #[serde(skip)]
    is_counted_alike: bool,
}

impl Overhead {
    /// The overhead to configure in place of the counted one. `None` if the counted one fits, or other options already set it.
    pub(crate) fn better(&self) -> Option<i32> {
        let is_free = self.options.is_empty() && self.is_counted_alike;
        (self.differs && is_free).then(|| whole(self.measured_bytes))
    }
}

/// The value for `option overhead`.
fn whole(bytes: f64) -> i32 {
    bytes.round().max(0.0) as i32
}

/// Measures the unshaped, idle line. Logs the reason and returns `None` if the overhead cannot be determined.
pub(crate) fn check(target: &Target, framing: Framing, stop: &AtomicBool, log: &mut Log) -> Option<Overhead> {
    let host = address(target)?;
    let headers = if host.is_ipv6() { HEADERS_V6 } else { HEADERS_V4 };
    let fit = packet_trains::measure(host, stop)
        .map_err(|error| error.to_string())
        .and_then(|points| Fit::of(&points).map_err(|unfit| unfit.to_string()));
    let fit = match fit {
        Ok(fit) if width(&fit) <= WIDEST_INTERVAL => fit,
        Ok(fit) => {
            let width = width(&fit);
            log.step(
                None,
                format!("overhead could not be determined: its confidence interval is {width:.0} bytes wide"),
            );
            return None;
        }
        Err(reason) => {
            log.step(None, format!("overhead could not be determined: {reason}"));
            return None;
        }
    };
    let overhead = judge(fit, framing, headers);
    let what = match overhead.fit.framing {
        overhead_fit::Framing::AtmCells => "the line carries ATM cells",
        overhead_fit::Framing::Packets => "the line carries packets whole",
    };
    let (low, high) = overhead.fit.bytes_interval;
    log.step(
        None,
        format!(
            "framing: {what} and adds {:.0} bytes to each (95 % confidence: {:.0} to {:.0})",
            overhead.fit.bytes - headers,
            low - headers,
            high - headers
        ),
    );
    for advice in &overhead.advice {
        log.step(None, advice.clone());
    }
    Some(overhead)
}

fn width(fit: &Fit) -> f64 {
    fit.bytes_interval.1 - fit.bytes_interval.0
}

fn address(target: &Target) -> Option<IpAddr> {
    let addresses = (target.host.as_str(), target.port).to_socket_addrs();
    Some(addresses.ok()?.next()?.ip().to_canonical())
}

/// Derives advice and options from a measurement. ATM cells that the configuration does not count become options: without them the
/// shaper's rate is right for one packet size only. A different overhead is only advice, because a device beyond the line may cause it.
fn judge(fit: Fit, framing: Framing, headers: f64) -> Overhead {
    let atm = framing.line.cells == Cells::Atm;
    let configured = Configured {
        // The rate is not known yet.
        rate_mbit: 0.0,
        overhead: f64::from(framing.line.overhead),
        atm,
    };
    let is_believable = fit.framing == overhead_fit::Framing::Packets || fit.gross_mbit <= FASTEST_ATM_MBIT;
    let advice = if is_believable {
        overhead_fit::advice(&fit, &configured, headers)
    } else {
        Vec::new()
    };
    let is_counted_alike = is_believable && atm == (fit.framing == overhead_fit::Framing::AtmCells);
    let mut options = Vec::new();
    if fit.framing == overhead_fit::Framing::AtmCells && is_believable && !atm {
        let (low, high) = fit.bytes_interval;
        let fits = (low..=high).contains(&(configured.overhead + headers));
        let overhead = if fits {
            i32::from(framing.line.overhead)
        } else {
            whole(fit.bytes - headers)
        };
        options.push(OptionValue::LinkLayer(LinkLayer::Atm));
        options.push(OptionValue::Overhead(overhead));
    }
    let (low, high) = fit.bytes_interval;
    Overhead {
        measured_bytes: fit.bytes - headers,
        measured_from_bytes: low - headers,
        measured_to_bytes: high - headers,
        counted_bytes: framing.line.overhead.into(),
        differs: is_believable && overhead_fit::differs(&fit, configured.overhead, headers),
        fit,
        advice,
        options,
        is_counted_alike,
    }
}

#[cfg(test)]
mod tests {
    use sqm_measure::overhead_fit::Point;

    use super::*;

    /// A line of that rate with packets of 76 to 373 bytes.
    fn fit(mbit: f64, on_the_line: impl Fn(f64) -> f64) -> Fit {
        let points = (0..28).map(|place| {
            let payload = f64::from(76 + 11 * place) - HEADERS_V4;
            Point {
                payload,
                goodput_mbit: mbit * payload / on_the_line(payload + HEADERS_V4),
            }
        });
        Fit::of(&points.collect::<Vec<_>>()).expect("a line")
    }

    #[test]
    fn cells_that_the_configuration_does_not_count_become_options() {
        let cells = |bytes: f64| ((bytes + 40.0) / 48.0).ceil() * 53.0;
        let found = judge(fit(0.8, cells), Framing::ethernet(40, Cells::None), HEADERS_V4);
        assert_eq!(
            found.options,
            [OptionValue::LinkLayer(LinkLayer::Atm), OptionValue::Overhead(40)]
        );
        let found = judge(fit(0.8, cells), Framing::ethernet(0, Cells::None), HEADERS_V4);
        assert_eq!(found.options[1], OptionValue::Overhead(40));
        let found = judge(fit(0.8, cells), Framing::ethernet(40, Cells::Atm), HEADERS_V4);
        assert!(found.options.is_empty() && found.advice.is_empty());
    }

    #[test]
    fn a_line_that_fits_has_no_advice() {
        let found = judge(
            fit(4.8, |bytes| bytes + 18.0),
            Framing::ethernet(18, Cells::None),
            HEADERS_V4,
        );
        assert!(found.options.is_empty() && found.advice.is_empty(), "{found:?}");
        assert!(!found.differs && found.better().is_none(), "{found:?}");
    }

    #[test]
    fn a_measured_overhead_replaces_one_that_does_not_fit() {
        let measured = fit(4.8, |bytes| bytes + 30.0);
        for counted in [0, 22, 44] {
            let found = judge(
                measured.clone(),
                Framing::ethernet(counted, Cells::None),
                HEADERS_V4,
            );
            assert_eq!(
                (found.better(), found.counted_bytes),
                (Some(30), counted.into()),
                "{found:?}"
            );
            assert!(found.differs && found.options.is_empty(), "{found:?}");
        }
        // The overhead of cells says nothing about a line without cells.
        let found = judge(measured, Framing::ethernet(22, Cells::Atm), HEADERS_V4);
        assert_eq!(found.better(), None);
    }
}
