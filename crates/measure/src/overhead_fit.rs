//! Finds the gross rate of a line, and the bytes that it adds to each packet, from the goodput at several packet sizes. Pure.
//!
//! A packet with `P` bytes of payload occupies the line for `(P + B) / S`. `S` is the gross rate, and `B` the bytes that are
//! not payload: TCP and IP headers and the overhead of the line. Therefore
//!
//! ```text
//! 1 / goodput = 1/S + (B/S) · 1/P
//! ```
//!
//! is a straight line in `1/P`. Its intercept gives the rate, and slope over intercept gives the bytes. On ATM (ADSL), a packet
//! takes whole cells of 53 bytes with 48 bytes of payload, and the straight line becomes a staircase. The staircase is fitted by trying
//! every number of bytes, and is accepted if it explains the points much better.
//!
//! Other causes may look like overhead: a router with a limited packet rate, or a minimum frame size. The residuals show whether
//! the fit is good.

use serde::{Deserialize, Serialize};

/// Number of sizes that a fit needs: fewer do not allow an estimate of its error.
pub const MIN_SIZES: usize = 4;
/// TCP and IPv4 headers with timestamps, as Linux sends them: 20 + 20 + 12 bytes.
pub const HEADERS_V4: f64 = 52.0;
/// TCP and IPv6 headers with timestamps: 40 + 20 + 12 bytes.
pub const HEADERS_V6: f64 = 72.0;

/// Length of an ATM cell, and of its payload, bytes (ITU-T I.361).
const CELL: f64 = 53.0;
const CELL_PAYLOAD: f64 = 48.0;
/// Bytes around the payload that are tried with ATM cells: IPv4 and TCP headers alone are 40, and known encapsulations are below 100.
const CELL_BYTES: std::ops::RangeInclusive<u32> = 40..=200;
/// The staircase is accepted if its squared error is below this share of the straight line's. A choice.
const MUCH_BETTER: f64 = 0.25;
/// The staircase is considered only if the typical relative error of the straight line exceeds this. A choice.
const NOTICEABLE: f64 = 0.004;

/// The goodput with packets of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// TCP payload of a full packet, in bytes: the MSS without options.
    pub payload: f64,
    /// Goodput in Mbit/s.
    pub goodput_mbit: f64,
}

/// How packets are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// Each packet takes its length plus a constant.
    Packets,
    /// Each packet takes whole ATM cells.
    AtmCells,
}

/// The result of a fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Packets or cells.
    pub framing: Framing,
    /// Gross rate of the line in Mbit/s: with all headers and overhead.
    pub gross_mbit: f64,
    /// 95 % confidence interval of the gross rate.
    pub gross_interval: (f64, f64),
    /// Bytes around the payload of each packet: headers and overhead of the line.
    pub bytes: f64,
    /// 95 % confidence interval of these bytes.
    pub bytes_interval: (f64, f64),
    /// For each point, in the order given, measured goodput over fitted goodput minus one.
    pub residuals: Vec<f64>,
}

/// Why no fit is possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Too few different sizes.
    #[error("only {found} packet sizes gave a rate, and {MIN_SIZES} are needed")]
    TooFew {
        /// Number of sizes with a rate.
        found: usize,
    },
    /// The goodput does not depend on the size as it does on a line.
    #[error(
        "the rates do not depend on the packet size as on a line: something other than the line was the bottleneck"
    )]
    NoLine,
}

impl Fit {
    /// Fits the points. Those without goodput are left out.
    pub fn of(points: &[Point]) -> Result<Self, Unfit> {
        let usable: Vec<Point> = points
            .iter()
            .copied()
            .filter(|p| p.payload >= 1.0 && p.goodput_mbit > 0.0 && p.goodput_mbit.is_finite())
            .collect();
        let mut sizes: Vec<f64> = usable.iter().map(|p| p.payload).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        if sizes.len() < MIN_SIZES {
            return Err(Unfit::TooFew { found: sizes.len() });
        }
        let straight = straight(&usable);
        let stairs = stairs(&usable);
        let off = straight.as_ref().map_or(f64::INFINITY, |fit| fit.typical_error());
        match (straight, stairs) {
            (Some(line), Some(cells))
                if off > NOTICEABLE && cells.squares() < line.squares() * MUCH_BETTER =>
            {
                Ok(cells)
            }
            (Some(line), _) => Ok(line),
            (None, Some(cells)) if cells.typical_error() < NOTICEABLE => Ok(cells),
            _ => Err(Unfit::NoLine),
        }
    }

    /// Expected goodput in Mbit/s at a payload size.
    pub fn goodput(&self, payload: f64) -> f64 {
        self.gross_mbit * payload / on_line(self.framing, payload + self.bytes)
    }

    fn squares(&self) -> f64 {
        self.residuals.iter().map(|r| r * r).sum()
    }

    fn typical_error(&self) -> f64 {
        (self.squares() / self.residuals.len() as f64).sqrt()
    }
}

/// The configuration of a shaper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// Its rate in Mbit/s.
    pub rate_mbit: f64,
    /// Bytes that it counts beyond each IP packet.
    pub overhead: f64,
    /// True if it counts ATM cells.
    pub atm: bool,
}

/// Bytes by which an overhead may be outside the interval: such a difference has no noticeable effect. A choice.
const TOLERANCE: f64 = 2.0;

/// True if the measured overhead differs from the configured one by more than the error of the measurement. `headers` is the length of
/// TCP and IP headers in bytes.
pub fn differs(fit: &Fit, configured: f64, headers: f64) -> bool {
    let (low, high) = (fit.bytes_interval.0 - headers, fit.bytes_interval.1 - headers);
    !(low - TOLERANCE..=high + TOLERANCE).contains(&configured)
}

/// Advice for the user on what to change. Empty if the settings fit. `headers` is the length of TCP and IP headers in bytes.
///
/// The fit must be that of the bare line. Measured through a shaper, it describes the shaper.
pub fn advice(fit: &Fit, configured: &Configured, headers: f64) -> Vec<String> {
    let mut advice = Vec::new();
    let overhead = fit.bytes - headers;
    let (low, high) = (fit.bytes_interval.0 - headers, fit.bytes_interval.1 - headers);
    match (fit.framing, configured.atm) {
        (Framing::AtmCells, false) => advice.push(
            "the line carries packets in ATM cells, but the shaper does not count cells: set linklayer \
             'atm'".to_owned(),
        ),
        (Framing::Packets, true) => advice.push(
            "the shaper counts ATM cells, but the line has none: set linklayer 'ethernet', unless there were too \
             few packet sizes to be sure"
                .to_owned(),
        ),
        _ => {}
    }
    if configured.overhead < low - TOLERANCE {
        advice.push(format!(
            "each packet takes {overhead:.0} bytes beyond IP (95 % between {low:.0} and {high:.0}), but the \
             shaper counts {:.0}: with small packets it sends more than the line carries, and latency returns; \
             set overhead {:.0}",
            configured.overhead,
            overhead.round().max(0.0)
        ));
    } else if configured.overhead > high + TOLERANCE {
        advice.push(format!(
            "each packet takes {overhead:.0} bytes beyond IP (95 % between {low:.0} and {high:.0}), but the \
             shaper counts {:.0}: it slows down small packets unnecessarily; set overhead {:.0}",
            configured.overhead,
            overhead.round().max(0.0)
        ));
    }
    let (low, high) = fit.gross_interval;
    if configured.rate_mbit > high {
        advice.push(format!(
            "the line carries {:.2} Mbit/s (95 % between {low:.2} and {high:.2}), but the shaper is set to {:.2}: \
             the queue stays in the modem; set the rate below {low:.2}",
            fit.gross_mbit, configured.rate_mbit
        ));
    }
    advice
}

/// Bytes that a packet of this length takes on the line.
fn on_line(framing: Framing, length: f64) -> f64 {
    match framing {
        Framing::Packets => length,
        Framing::AtmCells => (length / CELL_PAYLOAD).ceil() * CELL,
    }
}

/// Fits the straight line by weighted least squares. The relative error of the goodput is the same for all points, and so is that of
/// its inverse.
fn straight(points: &[Point]) -> Option<Fit> {
    let rows: Vec<(f64, f64, f64)> = points
        .iter()
        .map(|p| {
            let y = 1.0 / p.goodput_mbit;
            (1.0 / p.payload, y, 1.0 / (y * y))
        })
        .collect();
    let sum = |f: fn(&(f64, f64, f64)) -> f64| rows.iter().map(f).sum::<f64>();
    let (w, wx, wy) = (sum(|r| r.2), sum(|r| r.2 * r.0), sum(|r| r.2 * r.1));
    let (mean_x, mean_y) = (wx / w, wy / w);
    let sxx: f64 = rows.iter().map(|(x, _, w)| w * (x - mean_x).powi(2)).sum();
    let sxy: f64 = rows.iter().map(|(x, y, w)| w * (x - mean_x) * (y - mean_y)).sum();
    let slope = sxy / sxx;
    let intercept = mean_y - slope * mean_x;
    if !(intercept > 0.0 && slope >= 0.0 && sxx > 0.0) {
        return None;
    }
    let freedom = points.len() - 2;
    let spread = rows
        .iter()
        .map(|(x, y, w)| w * (y - intercept - slope * x).powi(2))
        .sum::<f64>()
        / freedom as f64;
    let var_slope = spread / sxx;
    let var_intercept = spread * (1.0 / w + mean_x * mean_x / sxx);
    let covariance = -spread * mean_x / sxx;
    let t = student(freedom);
    let half = t * var_intercept.sqrt();
    let bytes = slope / intercept;
    // The variance of a ratio (Fieller's interval to first order).
    let var_bytes =
        (var_slope - 2.0 * bytes * covariance + bytes * bytes * var_intercept) / (intercept * intercept);
    let half_bytes = t * var_bytes.max(0.0).sqrt();
    let gross = 1.0 / intercept;
    Some(finished(
        Framing::Packets,
        gross,
        (
            1.0 / (intercept + half),
            if intercept > half {
                1.0 / (intercept - half)
            } else {
                f64::INFINITY
            },
        ),
        bytes,
        (bytes - half_bytes, bytes + half_bytes),
        points,
    ))
}

/// Fits the staircase: tries every number of bytes. For each, the best rate has a closed form.
fn stairs(points: &[Point]) -> Option<Fit> {
    let tried: Vec<Fit> = CELL_BYTES
        .map(|bytes| with_cells(f64::from(bytes), points))
        .collect();
    let best = tried
        .iter()
        .map(Fit::squares)
        .reduce(f64::min)
        .filter(|best| best.is_finite())?;
    // Numbers of bytes that fill the same cells at all sizes fit equally well. The middle one of them is the result.
    let freedom = points.len().saturating_sub(2).max(1);
    let scale = best / freedom as f64;
    let t = student(freedom);
    let as_good: Vec<&Fit> = tried.iter().filter(|fit| fit.squares() <= best + 1e-12).collect();
    let plausible: Vec<f64> = tried
        .iter()
        .filter(|fit| fit.squares() <= best + 1e-12 + t * t * scale)
        .map(|fit| fit.bytes)
        .collect();
    let mut fit = as_good[as_good.len() / 2].clone();
    fit.bytes_interval = (plausible[0], plausible[plausible.len() - 1]);
    let half = t * scale.sqrt() / (points.len() as f64).sqrt();
    fit.gross_interval = (fit.gross_mbit * (1.0 - half), fit.gross_mbit * (1.0 + half));
    Some(fit)
}

fn with_cells(bytes: f64, points: &[Point]) -> Fit {
    let share = |p: &Point| p.payload / on_line(Framing::AtmCells, p.payload + bytes);
    // Least squares of relative errors: goodput = S · share, each divided by what was measured.
    let ratios: Vec<f64> = points.iter().map(|p| share(p) / p.goodput_mbit).collect();
    let gross = ratios.iter().sum::<f64>() / ratios.iter().map(|r| r * r).sum::<f64>();
    finished(
        Framing::AtmCells,
        gross,
        (gross, gross),
        bytes,
        (bytes, bytes),
        points,
    )
}

fn finished(
    framing: Framing,
    gross_mbit: f64,
    gross_interval: (f64, f64),
    bytes: f64,
    bytes_interval: (f64, f64),
    points: &[Point],
) -> Fit {
    let mut fit = Fit {
        framing,
        gross_mbit,
        gross_interval,
        bytes,
        bytes_interval,
        residuals: Vec::new(),
    };
    fit.residuals = points
        .iter()
        .map(|p| p.goodput_mbit / fit.goodput(p.payload) - 1.0)
        .collect();
    fit
}

/// Student's t, two-sided, 95 %, by degrees of freedom (standard table; one value from 11 to 30, the normal distribution beyond).
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    match freedom {
        0 => f64::INFINITY,
        1..=10 => TABLE[freedom - 1],
        11..=30 => 2.1,
        _ => 1.96,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Payloads in bytes: MSS 1460 down to 88, less twelve bytes of timestamps.
    const PAYLOADS: [f64; 8] = [1448.0, 1188.0, 988.0, 724.0, 524.0, 388.0, 204.0, 76.0];

    fn measured(gross: f64, bytes: f64, framing: Framing, errors: &[f64]) -> Vec<Point> {
        let goodput = |payload: f64| gross * payload / on_line(framing, payload + bytes);
        PAYLOADS
            .iter()
            .zip(errors)
            .map(|(&payload, error)| Point {
                payload,
                goodput_mbit: goodput(payload) * (1.0 + error),
            })
            .collect()
    }

    #[test]
    fn five_rates_through_a_known_shaper_give_its_rate_and_overhead() {
        // Measured through tbf at 10 Mbit/s with 14 bytes of Ethernet: payload and Mbit/s at the receiver.
        let points = [
            (1448.0, 9.561),
            (1188.0, 9.471),
            (524.0, 8.881),
            (204.0, 7.556),
            (76.0, 5.352),
        ]
        .map(|(payload, goodput_mbit)| Point {
            payload,
            goodput_mbit,
        });
        let fit = Fit::of(&points).unwrap();
        assert_eq!(fit.framing, Framing::Packets);
        assert!((fit.gross_mbit - 10.0).abs() < 0.01, "{fit:?}");
        assert!((fit.bytes - 66.0).abs() < 0.5, "{fit:?}");
        assert!(
            fit.bytes_interval.0 < 66.0 && 66.0 < fit.bytes_interval.1,
            "{fit:?}"
        );
    }

    #[test]
    fn too_few_sizes_and_impossible_rates_are_refused() {
        let flat = |rate: fn(f64) -> f64| -> Vec<Point> {
            PAYLOADS
                .iter()
                .map(|&payload| Point {
                    payload,
                    goodput_mbit: rate(payload),
                })
                .collect()
        };
        assert_eq!(
            Fit::of(&measured(10.0, 66.0, Framing::Packets, &[0.0; 3])),
            Err(Unfit::TooFew { found: 3 })
        );
        assert_eq!(Fit::of(&flat(|_| 0.0)), Err(Unfit::TooFew { found: 0 }));
        // Small packets faster than large ones.
        assert_eq!(Fit::of(&flat(|payload| 1e4 / payload)), Err(Unfit::NoLine));
        // A limited packet rate.
        assert_eq!(Fit::of(&flat(|payload| payload / 100.0)), Err(Unfit::NoLine));
    }

    #[test]
    fn advice_is_given_only_for_settings_that_do_not_fit() {
        let exact = [0.001, -0.001, 0.0, 0.001, -0.001, 0.0, 0.001, -0.001];
        let fit = Fit::of(&measured(10.0, 52.0 + 34.0, Framing::Packets, &exact)).unwrap();
        let with = |rate_mbit, overhead, atm| {
            advice(
                &fit,
                &Configured {
                    rate_mbit,
                    overhead,
                    atm,
                },
                HEADERS_V4,
            )
        };
        assert_eq!(with(9.5, 34.0, false), Vec::<String>::new());
        assert!(
            with(9.5, 18.0, false)[0].contains("set overhead 34"),
            "{:?}",
            with(9.5, 18.0, false)
        );
        assert!(with(9.5, 60.0, false)[0].contains("unnecessarily"));
        assert!(with(11.0, 34.0, false)[0].contains("stays in the modem"));
        assert!(with(9.5, 34.0, true)[0].contains("'ethernet'"));
        let cells = Fit::of(&measured(8.0, 52.0 + 32.0, Framing::AtmCells, &[0.0; 8])).unwrap();
        let told = advice(
            &cells,
            &Configured {
                rate_mbit: 7.5,
                overhead: 32.0,
                atm: false,
            },
            HEADERS_V4,
        );
        assert!(told[0].contains("'atm'"), "{told:?}");
    }

    proptest! {
        /// A quarter of a per cent of noise is what one run of ten seconds has.
        #[test]
        fn a_line_is_found_through_noise(
            gross in prop::sample::select(vec![10.0, 80.0]),
            errors in prop::collection::vec(-0.0025..0.0025_f64, 8),
        ) {
            let fit = Fit::of(&measured(gross, 66.0, Framing::Packets, &errors)).unwrap();
            prop_assert_eq!(fit.framing, Framing::Packets);
            prop_assert!((fit.gross_mbit / gross - 1.0).abs() < 0.005, "{:?}", fit);
            prop_assert!((fit.bytes - 66.0).abs() < 3.0, "{:?}", fit);
        }

        #[test]
        fn cells_are_recognised_and_their_rate_found(
            gross in 2.0..24.0_f64,
            bytes in 60_u32..110,
            errors in prop::collection::vec(-0.0025..0.0025_f64, 8),
        ) {
            let fit = Fit::of(&measured(gross, f64::from(bytes), Framing::AtmCells, &errors)).unwrap();
            prop_assert_eq!(fit.framing, Framing::AtmCells, "{:?}", fit);
            prop_assert!((fit.gross_mbit / gross - 1.0).abs() < 0.005, "{:?}", fit);
            prop_assert!(fit.bytes_interval.0 <= f64::from(bytes) && f64::from(bytes) <= fit.bytes_interval.1, "{:?}", fit);
        }

        #[test]
        fn arbitrary_results_do_not_panic(points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..12)) {
            let points: Vec<_> = points.into_iter().map(|(payload, goodput_mbit)| Point { payload, goodput_mbit }).collect();
            let _ = Fit::of(&points);
        }
    }
}
