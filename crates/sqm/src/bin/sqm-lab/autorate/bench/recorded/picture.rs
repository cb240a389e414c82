//! A run over time as a picture.

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Nanos, Rate};
use sqm_measure::chart::{Chart, Line, Panel};
use sqm_sim::autorate_bench::{Contender, Moment};

use super::figures::Run;
use crate::autorate::bench::figures::millis;

/// The run is divided into this many stretches. A choice: about one for each pixel.
const STRETCHES: u64 = 700;

/// Rates, capacities and queues of a run, stretch by stretch.
pub(super) struct History {
    /// Length of a stretch.
    stretch: Nanos,
    directions: PerDirection<Vec<Stretch>>,
}

/// One direction in one stretch.
#[derive(Clone, Copy, Default)]
struct Stretch {
    moments: u64,
    /// Sums over the moments, Mbit/s.
    rates: f64,
    capacities: f64,
    /// The longest queue delay, milliseconds.
    delay_ms: f64,
}

impl History {
    pub(super) fn new(length: Nanos) -> Self {
        let all = vec![Stretch::default(); usize::try_from(STRETCHES).expect("a small number")];
        Self {
            stretch: Nanos(length.0.div_ceil(STRETCHES).max(1)),
            directions: PerDirection {
                download: all.clone(),
                upload: all,
            },
        }
    }

    pub(super) fn add(&mut self, moment: &Moment) {
        let index = usize::try_from(moment.time.0 / self.stretch.0).unwrap_or(usize::MAX);
        for direction in Direction::BOTH {
            let Some(stretch) = self.directions[direction].get_mut(index) else {
                continue;
            };
            stretch.moments += 1;
            stretch.rates += mbit(moment.decision.rates[direction].rate);
            stretch.capacities += mbit(moment.capacity[direction]);
            stretch.delay_ms = stretch.delay_ms.max(millis(moment.delay[direction]));
        }
    }

    pub(super) fn chart(&self, contender: Contender, run: &Run) -> Chart {
        let mut panels = Vec::new();
        for (direction, name) in [(Direction::Download, "Download"), (Direction::Upload, "Upload")] {
            let points = |of: fn(&Stretch) -> f64| self.points(direction, of);
            let mut lines = vec![Line::thin(
                "capacity",
                points(|stretch| stretch.mean(stretch.capacities)),
            )];
            // The rate of a line without a shaper means nothing.
            if contender != Contender::Unshaped {
                lines.push(Line::new("rate", points(|stretch| stretch.mean(stretch.rates))));
            }
            panels.push(Panel {
                y: format!("{name} (Mbit/s)"),
                lines,
            });
            panels.push(Panel {
                y: format!("{name} (ms)"),
                lines: vec![Line::new("queue", points(|stretch| stretch.delay_ms))],
            });
        }
        let figures = &run.figures;
        Chart {
            title: run.title(),
            subtitle: format!(
                "above 30 ms for {:.1} % of the time, {:.1} MB down, {:.1} MB up; queue: the longest delay of each {:.2} s",
                figures.above_30_ms_percent,
                figures.delivered_down_mbytes,
                figures.delivered_up_mbytes,
                millis(self.stretch) / 1000.0,
            ),
            x: "Time since the recording begins (s)".to_owned(),
            panels,
        }
    }

    fn points(&self, direction: Direction, of: fn(&Stretch) -> f64) -> Vec<(f64, Option<f64>)> {
        let seconds = millis(self.stretch) / 1000.0;
        let stretches = (0u32..).zip(&self.directions[direction]);
        stretches
            .filter(|(_, stretch)| stretch.moments > 0)
            .map(|(index, stretch)| ((f64::from(index) + 0.5) * seconds, Some(of(stretch))))
            .collect()
    }
}

impl Stretch {
    fn mean(&self, sum: f64) -> f64 {
        sum / self.moments as f64
    }
}

fn mbit(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}
