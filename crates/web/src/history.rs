//! The last hour of samples, in memory: one row a second.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde::Serialize;

use super::live::{Direction, Sample};

/// The number of rows: an hour.
const MOST_ROWS: usize = 3600;
/// The number of interfaces with a history. Our choice, to bound memory.
const MOST_INTERFACES: usize = 64;

#[derive(Default)]
pub(super) struct History(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    names: Vec<String>,
    rows: VecDeque<Row>,
    /// Drops and marks in the previous sample, for each column of a row.
    counted: Vec<Option<(u64, u64)>>,
}

struct Row {
    unix_s: f64,
    /// Download and upload of each interface.
    points: Box<[Option<Point>]>,
}

#[derive(Clone, Copy)]
struct Point {
    rate_bits_per_sec: Option<f32>,
    shaped_bits_per_sec: Option<f32>,
    delay_avg_us: Option<u32>,
    delay_peak_us: Option<u32>,
    backlog_bytes: u32,
    drops: u32,
    marks: u32,
}

/// The answer to `GET /history` (docs/openapi.yaml).
#[derive(Serialize)]
pub(super) struct Told {
    unix_s: Vec<f64>,
    interfaces: Vec<Interface>,
}

#[derive(Serialize)]
struct Interface {
    interface: String,
    download: Option<Columns>,
    upload: Option<Columns>,
}

#[derive(Default, Serialize)]
struct Columns {
    rate_bits_per_sec: Vec<Option<f64>>,
    shaped_bits_per_sec: Vec<Option<f64>>,
    delay_avg_us: Vec<Option<u32>>,
    delay_peak_us: Vec<Option<u32>>,
    backlog_bytes: Vec<Option<u32>>,
    drops: Vec<Option<u32>>,
    marks: Vec<Option<u32>>,
}

impl History {
    pub(super) fn add(&self, sample: &Sample) {
        let mut inner = self.lock();
        for interface in &sample.interfaces {
            if !inner.names.contains(&interface.interface) && inner.names.len() < MOST_INTERFACES {
                inner.names.push(interface.interface.clone());
                inner.counted.extend([None, None]);
            }
        }
        let mut points = vec![None; inner.names.len() * 2];
        for interface in &sample.interfaces {
            let Some(at) = inner.names.iter().position(|name| *name == interface.interface) else {
                continue;
            };
            for (at, direction) in [(2 * at, &interface.download), (2 * at + 1, &interface.upload)] {
                let counted = direction.as_ref().map(|now| (now.drops, now.marks));
                let before = std::mem::replace(&mut inner.counted[at], counted);
                points[at] = direction.as_ref().map(|now| Point::of(now, before));
            }
        }
        if inner.rows.len() == MOST_ROWS {
            inner.rows.pop_front();
        }
        inner.rows.push_back(Row {
            unix_s: sample.unix_ms as f64 / 1000.0,
            points: points.into(),
        });
    }

    /// The last `seconds`, in at most `points` points.
    pub(super) fn tell(&self, seconds: u32, points: u32) -> Told {
        let inner = self.lock();
        let rows = inner.rows.len();
        let skipped = rows.saturating_sub(seconds as usize);
        let group = (rows - skipped).div_ceil(points as usize).max(1);
        let rows: Vec<&Row> = inner.rows.iter().skip(skipped).collect();
        let groups: Vec<&[&Row]> = rows.chunks(group).collect();
        let columns = |at: usize| {
            let points = |group: &[&Row]| -> Vec<Point> {
                group
                    .iter()
                    .filter_map(|row| row.points.get(at).copied().flatten())
                    .collect()
            };
            let all: Vec<Vec<Point>> = groups.iter().map(|group| points(group)).collect();
            let is_known = all.iter().any(|points| !points.is_empty());
            is_known.then(|| {
                let mut columns = Columns::default();
                all.iter().for_each(|points| columns.add(points));
                columns
            })
        };
        Told {
            unix_s: groups
                .iter()
                .filter_map(|group| Some(group.last()?.unix_s))
                .collect(),
            interfaces: inner
                .names
                .iter()
                .enumerate()
                .map(|(at, name)| Interface {
                    interface: name.clone(),
                    download: columns(2 * at),
                    upload: columns(2 * at + 1),
                })
                .collect(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

impl Point {
    fn of(now: &Direction, before: Option<(u64, u64)>) -> Self {
        let more = |now: u64, before: Option<u64>| {
            let more = now.saturating_sub(before.unwrap_or(now));
            u32::try_from(more).unwrap_or(u32::MAX)
        };
        Self {
            rate_bits_per_sec: now.rate_bits_per_sec.map(|rate| rate as f32),
            shaped_bits_per_sec: now.shaped_bits_per_sec.map(|rate| rate as f32),
            delay_avg_us: now.delay_avg_us,
            delay_peak_us: now.delay_peak_us,
            backlog_bytes: now.backlog_bytes,
            drops: more(now.drops, before.map(|before| before.0)),
            marks: more(now.marks, before.map(|before| before.1)),
        }
    }
}

impl Columns {
    /// Adds one point that stands for several: means of rates, maxima of delays and backlogs, sums of drops and marks.
    fn add(&mut self, points: &[Point]) {
        fn mean(values: impl Iterator<Item = Option<f32>>) -> Option<f64> {
            let values: Vec<f64> = values.flatten().map(f64::from).collect();
            (!values.is_empty()).then(|| (values.iter().sum::<f64>() / values.len() as f64).round())
        }
        self.rate_bits_per_sec
            .push(mean(points.iter().map(|p| p.rate_bits_per_sec)));
        self.shaped_bits_per_sec
            .push(mean(points.iter().map(|p| p.shaped_bits_per_sec)));
        self.delay_avg_us
            .push(points.iter().filter_map(|p| p.delay_avg_us).max());
        self.delay_peak_us
            .push(points.iter().filter_map(|p| p.delay_peak_us).max());
        self.backlog_bytes
            .push(points.iter().map(|p| p.backlog_bytes).max());
        let sum = |count: fn(&Point) -> u32| {
            (!points.is_empty()).then(|| points.iter().map(count).fold(0, u32::saturating_add))
        };
        self.drops.push(sum(|p| p.drops));
        self.marks.push(sum(|p| p.marks));
    }
}
