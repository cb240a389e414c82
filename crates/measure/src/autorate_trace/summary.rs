//! Rates, load and delay over time in a log of autorate, and their figures. Pure except for [`Recording::load`].

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use sqm_autorate::trace::Entry;
use sqm_autorate::{Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::Instant;

use super::cake_autorate;
use super::reader::{self, TruncatedLine};
use crate::Error;
use crate::room::Room;
use crate::stats::{percentile, weighted_percentile};

/// A rate counts as in force for at most this long without another line, seconds. On an idle line the daemon writes one line a minute.
const LONGEST_S: f64 = 90.0;

/// The content of a log.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Name in a picture of several logs.
    pub name: String,
    /// Time of the first line by the wall clock, milliseconds since 1970.
    pub start_unix_ms: u64,
    /// The lines of the log.
    pub moments: Vec<Moment>,
    /// The probes, answered or lost.
    pub probes: Vec<ProbeOutcome>,
    /// True for a direction with a rate in the configuration.
    pub is_shaped: PerDirection<bool>,
    /// Number of times that the rate was cut because of a queue.
    pub cuts: PerDirection<u64>,
    /// Bytes carried, and the seconds in which they were counted.
    carried: PerDirection<(f64, f64)>,
    /// The log holds answered probes only, so that it does not show how many were lost.
    pub hides_losses: bool,
    /// Lines that were cut off and left out.
    pub truncated_lines: Vec<TruncatedLine>,
    /// When the present controller began: by its clock, and in seconds as in [`Moment::t_s`].
    began: (Instant, f64),
    was_cut: PerDirection<bool>,
    runs: u32,
}

/// A line of the log.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the first line.
    pub t_s: f64,
    /// Seconds until the next line.
    pub for_s: f64,
    /// A new controller begins here.
    pub is_new: bool,
    /// Rates that the controller chose, Mbit/s.
    pub rates: PerDirection<f64>,
    /// Load, Mbit/s.
    pub loads: PerDirection<f64>,
}

/// A probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOutcome {
    /// Seconds since the first line at which it was answered or given up.
    pub t_s: f64,
    /// Its round trip in milliseconds. `None` if it was lost.
    pub rtt_ms: Option<f64>,
    /// Round trip less the shortest one of the same reflector in the log, milliseconds.
    pub added_ms: Option<f64>,
    /// Number of the controller, and of the reflector.
    reflector: (u32, u16),
}

/// The figures of a log.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Time of the first line by the wall clock, milliseconds since 1970.
    pub start_unix_ms: u64,
    /// Seconds from the first line to the last.
    pub seconds: f64,
    /// Number of controllers, one after the other.
    pub runs: u32,
    /// The download. `None` if it is not shaped.
    pub download: Option<DirectionFigures>,
    /// The upload. `None` if it is not shaped.
    pub upload: Option<DirectionFigures>,
    /// The delay of the probes.
    pub delay: DelayFigures,
}

/// The figures of a direction. Percentiles are weighted by time.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionFigures {
    /// Mean of the rates.
    pub rate_mean_mbit: f64,
    /// Lowest rate.
    pub rate_min_mbit: f64,
    /// 5th percentile of the rates.
    pub rate_p5_mbit: f64,
    /// Median of the rates.
    pub rate_median_mbit: f64,
    /// 95th percentile of the rates.
    pub rate_p95_mbit: f64,
    /// Highest rate.
    pub rate_max_mbit: f64,
    /// Mean of the load.
    pub load_mean_mbit: f64,
    /// How often the rate was lowered because of a queue.
    pub cuts: u64,
}

/// The delay of the probes.
#[derive(Clone, Debug, Serialize)]
pub struct DelayFigures {
    /// Shortest round trip.
    pub least_rtt_ms: Option<f64>,
    /// Median of the round trips less the shortest one of the same reflector.
    pub added_median_ms: Option<f64>,
    /// 95th percentile of these.
    pub added_p95_ms: Option<f64>,
    /// 99th percentile of these.
    pub added_p99_ms: Option<f64>,
    /// Number of probes.
    pub probes: usize,
    /// Number of lost probes. `None` if the log does not hold them.
    pub lost: Option<usize>,
}

impl Recording {
    /// Reads a log. Its memory is taken from `room`.
    pub fn load(path: &Path, name: String, room: &Room) -> Result<Self, Error> {
        let mut recording = Self::of(name, &[]);
        let mut is_full = false;
        recording.truncated_lines = reader::read(path, &mut |_, row| {
            is_full |= room.clone().take(recording.size()).is_err();
            if !is_full {
                recording.add(&row);
            }
        })?;
        room.take(recording.size()).map_err(|reason| Error::Format {
            path: path.to_owned(),
            reason,
        })?;
        recording.finish();
        Ok(recording)
    }

    /// Memory that it takes, bytes.
    fn size(&self) -> usize {
        size_of_val(&*self.moments) + size_of_val(&*self.probes)
    }

    /// The content of lines that were read before.
    pub fn of(name: String, rows: &[Entry]) -> Self {
        let mut recording = Self {
            name,
            // Until a header says otherwise.
            is_shaped: PerDirection {
                download: true,
                upload: true,
            },
            ..Self::default()
        };
        rows.iter().for_each(|row| recording.add(row));
        recording.finish();
        recording
    }

    /// Seconds from the first line to the last.
    pub fn seconds(&self) -> f64 {
        self.moments.last().map_or(0.0, |last| last.t_s)
    }

    /// The rates of a direction in ascending order, with the seconds that each was in force.
    pub fn rates(&self, direction: Direction) -> Vec<(f64, f64)> {
        let rates = self
            .moments
            .iter()
            .map(|moment| (moment.rates[direction], moment.for_s));
        let mut rates: Vec<_> = rates.collect();
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        rates
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        let side = |direction| self.is_shaped[direction].then(|| self.side(direction));
        Figures {
            start_unix_ms: self.start_unix_ms,
            seconds: self.seconds(),
            runs: self.runs,
            download: side(Direction::Download),
            upload: side(Direction::Upload),
            delay: self.delay(),
        }
    }

    fn side(&self, direction: Direction) -> DirectionFigures {
        let rates = self.rates(direction);
        let (sum, seconds) = rates.iter().fold((0.0, 0.0), |sum, (rate, for_s)| {
            (sum.0 + rate * for_s, sum.1 + for_s)
        });
        let extreme = |rate: Option<&(f64, f64)>| rate.map_or(0.0, |(rate, _)| *rate);
        let lowest = extreme(rates.first());
        // A single line has no duration.
        let at = |p| weighted_percentile(&rates, p).unwrap_or(lowest);
        let (bytes, counted_s) = self.carried[direction];
        DirectionFigures {
            rate_mean_mbit: if seconds > 0.0 { sum / seconds } else { lowest },
            rate_min_mbit: lowest,
            rate_p5_mbit: at(5.0),
            rate_median_mbit: at(50.0),
            rate_p95_mbit: at(95.0),
            rate_max_mbit: extreme(rates.last()),
            load_mean_mbit: if counted_s > 0.0 {
                bytes * 8e-6 / counted_s
            } else {
                0.0
            },
            cuts: self.cuts[direction],
        }
    }

    fn delay(&self) -> DelayFigures {
        let rtts = self.probes.iter().filter_map(|probe| probe.rtt_ms);
        let added: Vec<f64> = self.probes.iter().filter_map(|probe| probe.added_ms).collect();
        DelayFigures {
            least_rtt_ms: rtts.min_by(f64::total_cmp),
            added_median_ms: percentile(&added, 50.0),
            added_p95_ms: percentile(&added, 95.0),
            added_p99_ms: percentile(&added, 99.0),
            probes: self.probes.len(),
            lost: (!self.hides_losses).then(|| self.probes.len() - added.len()),
        }
    }

    fn add(&mut self, row: &Entry) {
        if self.moments.is_empty() {
            self.start_unix_ms = row.unix_ms;
        }
        let last_s = self.seconds();
        let is_new = self.moments.is_empty()
            || row.at < self.began.0
            || row.start.as_ref().is_some_and(|start| start.resumes.is_none());
        if is_new {
            self.runs += 1;
            // Only the wall clock spans two controllers, and it may have been set back.
            let since = row.unix_ms.saturating_sub(self.start_unix_ms) as f64 / 1000.0;
            self.began = (row.at, since.max(last_s));
            self.was_cut = PerDirection::default();
        }
        if let Some(start) = &row.start {
            self.hides_losses |= start.config.program == cake_autorate::PROGRAM;
            for direction in Direction::BOTH {
                let is_shaped = start.config.bounds[direction].base.is_some();
                self.is_shaped[direction] = is_shaped || self.runs > 1 && self.is_shaped[direction];
            }
        }
        let at = |at: Instant| self.began.1 + (at.0 as f64 - self.began.0.0 as f64) / 1e9;
        let t_s = at(row.at).max(last_s);
        let mbit = |of: &dyn Fn(Direction) -> u64| PerDirection {
            download: of(Direction::Download) as f64 / 1e6,
            upload: of(Direction::Upload) as f64 / 1e6,
        };
        let moment = Moment {
            t_s,
            for_s: 0.0,
            is_new,
            rates: mbit(&|direction| row.decision.rates[direction].rate.bits_per_sec()),
            loads: mbit(&|direction| row.throughput[direction].bits_per_sec()),
        };
        if let Some(last) = self.moments.last_mut().filter(|_| !is_new) {
            last.for_s = (t_s - last.t_s).min(LONGEST_S);
        }
        let samples = row.steps.iter().flat_map(|step| &step.samples);
        let probes = samples
            .clone()
            .filter_map(|sample| probe(sample, self.runs, at(sample.at)));
        self.probes.extend(probes);
        for sample in samples {
            if let Signal::Traffic {
                direction,
                bytes,
                span,
            } = sample.signal
            {
                let (all, seconds) = &mut self.carried[direction];
                *all += bytes.0 as f64;
                *seconds += span.0 as f64 / 1e9;
            }
        }
        for direction in Direction::BOTH {
            let is_cut = row.decision.rates[direction].reason.is_cut();
            self.cuts[direction] += u64::from(is_cut && !self.was_cut[direction]);
            self.was_cut[direction] = is_cut;
        }
        self.moments.push(moment);
    }

    fn finish(&mut self) {
        let mut least = BTreeMap::new();
        for (reflector, rtt) in self
            .probes
            .iter()
            .filter_map(|probe| Some((probe.reflector, probe.rtt_ms?)))
        {
            let known: &mut f64 = least.entry(reflector).or_insert(rtt);
            *known = known.min(rtt);
        }
        for probe in &mut self.probes {
            probe.added_ms = probe
                .rtt_ms
                .zip(least.get(&probe.reflector))
                .map(|(rtt, least)| rtt - least);
        }
    }
}

/// The probe that ends with this sample, if any.
fn probe(sample: &Sample, run: u32, t_s: f64) -> Option<ProbeOutcome> {
    let (reflector, rtt_ms) = match sample.signal {
        Signal::Echo { reflector, rtt, .. } => (reflector, Some(rtt.0 as f64 / 1e6)),
        Signal::OneWay { reflector, sent, .. } => (reflector, Some(sample.at.since(sent).0 as f64 / 1e6)),
        Signal::Lost { reflector } => (reflector, None),
        _ => return None,
    };
    Some(ProbeOutcome {
        t_s,
        rtt_ms,
        added_ms: None,
        reflector: (run, reflector),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use sqm_autorate::trace::Entry;

    use super::*;

    /// A minute at 20 and 4 Mbit/s. In its middle there is a queue, and the download has half of its rate.
    pub(crate) fn example(name: &str) -> Recording {
        let lines = (0..1200_u64).map(|n| {
            let is_queue = (400..500).contains(&n);
            let (rate, why, queue) = match is_queue {
                true => (10_000_000, "bloat:40000", 40_000),
                false => (20_000_000, "steady", n * 7919 % 3000),
            };
            let begin = if n == 0 { "begin:x:-:20000000:-:-:4000000:- " } else { "" };
            let probe = match n % 200 {
                17 => "lost:1".to_owned(),
                _ => format!("echo:{}:{}", n % 4, 20_000 + n % 4 * 5000 + queue),
            };
            format!(
                "{},{},50000,{rate},{},{why},4000000,1000000,steady,\"{begin}step {probe} bytes:{}:6250:50000\"",
                1_700_000_000_000 + n * 50,
                1_000_000 + n * 50_000,
                rate / 10 * 9,
                rate / 160
            )
        });
        let rows: Vec<Entry> = lines.map(|line| Entry::parse(&line).expect("a line")).collect();
        Recording::of(name.to_owned(), &rows)
    }

    #[test]
    fn figures_are_weighted_by_time_and_relative_to_the_shortest_round_trip() {
        let figures = example("log").figures();
        assert_eq!((figures.runs, figures.seconds), (1, 59.95));
        let down = figures.download.expect("shaped");
        assert_eq!((down.rate_min_mbit, down.rate_max_mbit), (10.0, 20.0));
        assert_eq!(
            (down.rate_p5_mbit, down.rate_median_mbit, down.cuts),
            (10.0, 20.0, 1)
        );
        // A twelfth of the time at half of the rate.
        assert!(
            (down.rate_mean_mbit - 19.166).abs() < 0.01,
            "{}",
            down.rate_mean_mbit
        );
        assert!(
            (down.load_mean_mbit - 19.166).abs() < 0.01,
            "{}",
            down.load_mean_mbit
        );
        let delay = figures.delay;
        assert_eq!((delay.probes, delay.lost), (1200, Some(6)));
        assert!(
            delay
                .least_rtt_ms
                .is_some_and(|least| (20.0..20.1).contains(&least))
        );
        assert!(
            delay
                .added_median_ms
                .is_some_and(|median| (1.0..2.5).contains(&median))
        );
        assert!(delay.added_p95_ms.is_some_and(|p95| (39.0..41.0).contains(&p95)));
    }

    #[test]
    fn a_clock_set_back_and_a_new_daemon_do_not_change_the_order() {
        let rows = [
            (10_000, 5_000_000, "begin:x:-:1:-:-:-:- "),
            (1000, 6_000_000, ""),
            (2000, 100_000, "begin:x:-:1:-:-:-:- "),
            (3000, 200_000, ""),
        ]
        .map(|(unix, at, begin)| {
            let line = format!("{unix},{at},0,1,1,steady,1,1,steady,\"{begin}step\"");
            Entry::parse(&line).expect("a line")
        });
        let recording = Recording::of(String::new(), &rows);
        let times: Vec<_> = recording.moments.iter().map(|moment| moment.t_s).collect();
        assert_eq!(times, [0.0, 1.0, 1.0, 1.1]);
        let figures = recording.figures();
        assert_eq!(figures.runs, 2);
        assert!(figures.download.is_some() && figures.upload.is_none());
    }
}
