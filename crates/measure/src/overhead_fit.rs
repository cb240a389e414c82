//! From goodput at several packet sizes to what the line really carries: its gross rate, and the bytes that it adds to each
//! packet. Pure.
//!
//! A packet with `P` bytes of payload occupies the line for `(P + B) / S`, where `S` is the gross rate and `B` all that is
//! not payload: TCP and IP headers and the line's own overhead. So
//!
//! ```text
//! 1 / goodput = 1/S + (B/S) · 1/P
//! ```
//!
//! is a straight line in `1/P`: its intercept gives the rate, slope over intercept the bytes. On ATM (ADSL), a packet
//! takes whole cells of 53 bytes that hold 48 each, so the line becomes a staircase, which is fitted by trying every
//! number of bytes; it is recognised when it explains the points much better.
//!
//! What looks like overhead may be something else: a router that cannot forward so many small packets, a minimum frame
//! size. The residuals are there to be looked at.

use serde::{Deserialize, Serialize};

/// Fewer sizes tell nothing about the fit's own error.
pub const MIN_SIZES: usize = 4;
/// TCP and IPv4 headers with timestamps, as Linux sends them: 20 + 20 + 12 bytes.
pub const HEADERS_V4: f64 = 52.0;
/// The same with IPv6.
pub const HEADERS_V6: f64 = 72.0;

/// An ATM cell, and what of it is payload, in bytes (ITU-T I.361).
const CELL: f64 = 53.0;
const CELL_PAYLOAD: f64 = 48.0;
/// Bytes around the payload that are tried in cells: IPv4 headers alone are 40, and no known encapsulation has 100.
const CELL_BYTES: std::ops::RangeInclusive<u32> = 40..=200;
/// The staircase must leave less than this share of the straight line's squared error to be believed.
const MUCH_BETTER: f64 = 0.25;
/// And the straight line must be off by more than this, relative, to need another explanation at all.
const NOTICEABLE: f64 = 0.004;

/// Goodput measured with packets of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// TCP payload of a full packet, in bytes: the MSS without options.
    pub payload: f64,
    /// Mbit/s, counted where it arrived.
    pub goodput_mbit: f64,
}

/// How packets are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// Each packet takes its own length and a constant.
    Packets,
    /// Each packet takes whole ATM cells.
    AtmCells,
}

/// What the points say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Packets or cells.
    pub framing: Framing,
    /// What the line carries, everything counted, in Mbit/s.
    pub gross_mbit: f64,
    /// 95 % confidence interval of it.
    pub gross_interval: (f64, f64),
    /// Bytes around the payload of each packet: headers and the line's overhead together.
    pub bytes: f64,
    /// 95 % confidence interval of it.
    pub bytes_interval: (f64, f64),
    /// Measured over fitted goodput, minus one, of each point in the order given.
    pub residuals: Vec<f64>,
}

/// Why there is no fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Too few different sizes.
    #[error("{found} packet sizes gave a rate, where {MIN_SIZES} are needed")]
    TooFew {
        /// Sizes with a rate.
        found: usize,
    },
    /// The figures are of no line.
    #[error(
        "the rates do not fall with the packets' size as a line's do; was something else the bottleneck?"
    )]
    NoLine,
}

impl Fit {
    /// Fits the points; those without goodput are left out.
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

/// What a shaper was told about the line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// Its rate in Mbit/s.
    pub rate_mbit: f64,
    /// Bytes that it adds to each IP packet.
    pub overhead: f64,
    /// Whether it counts ATM cells.
    pub atm: bool,
}

/// What to change, in words for the user; empty if the settings fit. `headers` are the bytes of TCP and IP headers.
///
/// The fit must be of the bare line: through a shaper it tells what the shaper does.
pub fn advice(fit: &Fit, configured: &Configured, headers: f64) -> Vec<String> {
    let mut advice = Vec::new();
    let overhead = fit.bytes - headers;
    let (low, high) = (fit.bytes_interval.0 - headers, fit.bytes_interval.1 - headers);
    match (fit.framing, configured.atm) {
        (Framing::AtmCells, false) => advice.push(
            "the line carries packets in ATM cells, and the shaper does not count cells: set linklayer 'atm'".to_owned(),
        ),
        (Framing::Packets, true) => advice.push(
            "the shaper counts ATM cells, and the line shows none: set linklayer 'ethernet', unless all sizes were too \
             few to tell"
                .to_owned(),
        ),
        _ => {}
    }
    // Two bytes are the rounding of settings that nobody notices.
    if configured.overhead < low - 2.0 {
        advice.push(format!(
            "each packet takes {overhead:.0} bytes beyond IP (95 % between {low:.0} and {high:.0}), the shaper counts {:.0}: \
             with small packets it lets more through than the line carries, and latency returns; set overhead {:.0}",
            configured.overhead,
            overhead.round().max(0.0)
        ));
    } else if configured.overhead > high + 2.0 {
        advice.push(format!(
            "each packet takes {overhead:.0} bytes beyond IP (95 % between {low:.0} and {high:.0}), the shaper counts {:.0}: \
             small packets are slowed without need; set overhead {:.0}",
            configured.overhead,
            overhead.round().max(0.0)
        ));
    }
    let (low, high) = fit.gross_interval;
    if configured.rate_mbit > high {
        advice.push(format!(
            "the line carries {:.2} Mbit/s (95 % between {low:.2} and {high:.2}), the shaper is set to {:.2}: the queue stays \
             in the modem; set it below {low:.2}",
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

/// Weighted least squares: what is known to a share of itself as goodput is known to the same share as its inverse.
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
    // The error of a ratio (Fieller's interval to first order).
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

/// Tries every number of bytes; for each, the rate that fits best has a closed form.
fn stairs(points: &[Point]) -> Option<Fit> {
    let tried: Vec<Fit> = CELL_BYTES
        .map(|bytes| with_cells(f64::from(bytes), points))
        .collect();
    let best = tried
        .iter()
        .map(Fit::squares)
        .reduce(f64::min)
        .filter(|best| best.is_finite())?;
    // Bytes that fill the same cells at all sizes cannot be told apart: the middle of the equally good ones stands for them.
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

/// Student's t, two-sided, 95 %, by degrees of freedom (any statistics book's table; beyond 30 the normal distribution).
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

    /// Payloads of a sweep: MSS 1460 down to 88, less twelve bytes of timestamps.
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
    fn five_rates_of_a_known_shaper_give_it_back() {
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
    fn too_little_and_nonsense_are_refused() {
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
        // So many packets per second and no more.
        assert_eq!(Fit::of(&flat(|payload| payload / 100.0)), Err(Unfit::NoLine));
    }

    #[test]
    fn settings_that_fit_get_no_advice_and_others_the_right_one() {
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
        assert!(with(9.5, 60.0, false)[0].contains("without need"));
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
        fn nothing_is_too_strange(points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..12)) {
            let points: Vec<_> = points.into_iter().map(|(payload, goodput_mbit)| Point { payload, goodput_mbit }).collect();
            let _ = Fit::of(&points);
        }
    }
}
