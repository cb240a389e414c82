//! Traces: lines that vary, generated from a seed, with their loads.

use sqm_autorate::Bounds;
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::rng::Xorshift;
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

use super::START;
use crate::capacity::Capacity;
use crate::reflector::{Behaviour, seeded};

/// A line over time with its path, its load, and the bounds that its user configured.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Name on the command line.
    pub name: String,
    /// The kind of line that it models.
    pub about: String,
    /// True if the capacity varies. Only such traces count in the comparison of controllers.
    pub varies: bool,
    /// Length of the run.
    pub length: Nanos,
    /// The capacity of each direction.
    pub lines: PerDirection<Capacity>,
    /// Size of the buffer in front of each direction.
    pub buffers: PerDirection<Bytes>,
    /// Round trip to the far hosts without queues.
    pub rtt: Nanos,
    /// Changes of the path: from each time on, the way back is longer by this.
    pub shifts: Vec<(Instant, Nanos)>,
    /// Scale of the jitter of probes and ACKs, about its median.
    pub jitter: Nanos,
    /// The load from each time on, in order of time.
    pub loads: Vec<(Instant, Load)>,
    /// The rates that the user allows.
    pub bounds: PerDirection<Bounds>,
    /// The reflectors: six without faults, except in tests of faults.
    pub reflectors: Vec<Behaviour>,
    /// Error of our clock from each time on, nanoseconds. It is part of one-way delays.
    pub clock: Vec<(Instant, i64)>,
}

/// The traffic at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of endless downloads, 0 to 4.
    pub downloads: usize,
    /// Number of endless uploads, 0 to 4.
    pub uploads: usize,
    /// Rate of an upload without congestion control.
    pub flood: Option<Rate>,
    /// Background traffic: small packets in both directions.
    pub chatter: bool,
}

impl Load {
    /// True if this load can fill a direction.
    pub const fn loads(&self, direction: Direction) -> bool {
        match direction {
            Direction::Download => self.download_loaded(),
            Direction::Upload => self.upload_loaded(),
        }
    }

    pub(super) const fn download_loaded(&self) -> bool {
        self.downloads > 0
    }

    pub(super) const fn upload_loaded(&self) -> bool {
        self.uploads > 0 || self.flood.is_some()
    }
}

impl Trace {
    /// All traces of the bench, in the order of the table.
    pub fn all(seed: u64) -> Vec<Self> {
        vec![
            steady(),
            idle(),
            path_change(),
            cable(seed),
            lte(seed),
            starlink(seed),
            step(),
            changing(seed),
            collapse(),
            geo(seed),
            geo_long(seed),
        ]
    }

    /// The trace with this name.
    pub fn named(name: &str, seed: u64) -> Option<Self> {
        Self::all(seed).into_iter().find(|trace| trace.name == name)
    }

    /// The end of the run.
    pub fn end(&self) -> Instant {
        START + self.length
    }

    /// CoDel's interval in the shapers, as a user who knows the path sets it (`cake_rtt`): the round trip, so that senders can react
    /// to a drop before the next one (RFC 8290 section 5.2.1), and at least the default of 100 ms.
    pub(super) fn interval(&self) -> Nanos {
        self.rtt.max(Nanos::from_millis(100))
    }

    pub(super) fn load_at(&self, now: Instant) -> Load {
        let index = self.loads.partition_point(|(at, _)| *at <= now);
        index
            .checked_sub(1)
            .map_or_else(Load::default, |index| self.loads[index].1)
    }

    /// The end of the load of a direction.
    pub(super) fn load_changes_after(&self, now: Instant, direction: Direction) -> Instant {
        let later = self
            .loads
            .iter()
            .filter(|(at, load)| *at > now && !load.loads(direction));
        later.map(|(at, _)| *at).next().unwrap_or_else(|| self.end())
    }

    pub(super) fn shift_at(&self, now: Instant) -> Nanos {
        let index = self.shifts.partition_point(|(at, _)| *at <= now);
        index
            .checked_sub(1)
            .map_or(Nanos(0), |index| self.shifts[index].1)
    }

    pub(super) fn clock_at(&self, now: Instant) -> i64 {
        let index = self.clock.partition_point(|(at, _)| *at <= now);
        index.checked_sub(1).map_or(0, |index| self.clock[index].1)
    }

    /// Bytes that a direction can carry while it is loaded.
    pub(super) fn possible(&self) -> PerDirection<Bytes> {
        let mut possible = PerDirection {
            download: Bytes(0),
            upload: Bytes(0),
        };
        for (index, (from, load)) in self.loads.iter().enumerate() {
            let to = self
                .loads
                .get(index + 1)
                .map_or_else(|| self.end(), |(next, _)| *next)
                .min(self.end());
            for direction in Direction::BOTH {
                if load.loads(direction) {
                    possible[direction].0 += self.lines[direction].carries(*from, to).0;
                }
            }
        }
        possible
    }

    fn new(name: &'static str, about: &'static str, seconds: u64, lines: PerDirection<Capacity>) -> Self {
        let fastest = |direction| {
            let rates = lines[direction]
                .steps()
                .iter()
                .map(|(_, rate)| rate.bits_per_sec());
            rates.max().expect("a line has a rate")
        };
        let fastest = PerDirection {
            download: fastest(Direction::Download),
            upload: fastest(Direction::Upload),
        };
        let mut trace = Self {
            name: name.to_owned(),
            about: about.to_owned(),
            varies: true,
            length: Nanos(seconds * SECOND),
            // 200 ms at the highest rate: a choice, typical of consumer modems.
            buffers: PerDirection {
                download: Bytes(fastest.download / 8 / 5),
                upload: Bytes(fastest.upload / 8 / 5),
            },
            lines,
            rtt: Nanos::from_millis(30),
            shifts: Vec::new(),
            jitter: Nanos::from_micros(300),
            loads: Vec::new(),
            bounds: PerDirection::default(),
            reflectors: vec![Behaviour::Good; 6],
            clock: Vec::new(),
        };
        trace.loads = cycle(seconds, fastest.upload);
        trace
    }

    /// Bounds as a user who knows the line configures them: a floor, the usual rate, the rate of the contract.
    fn bounded(mut self, download: [u64; 3], upload: [u64; 3]) -> Self {
        let bounds = |[min, base, max]: [u64; 3]| Bounds {
            min: Some(Rate::from_kbits_per_sec(min)),
            base: Some(Rate::from_kbits_per_sec(base)),
            max: Some(Rate::from_kbits_per_sec(max)),
        };
        self.bounds = PerDirection {
            download: bounds(download),
            upload: bounds(upload),
        };
        self
    }
}

const SECOND: u64 = 1_000_000_000;

/// A cycle of loads: downloads, uploads, both, an upload without congestion control, a pause.
fn cycle(seconds: u64, upload: u64) -> Vec<(Instant, Load)> {
    const LOADS: [(u64, usize, usize, bool); 5] = [
        (20, 4, 0, false),
        (20, 0, 2, false),
        (20, 4, 2, false),
        (10, 1, 0, true),
        (10, 0, 0, false),
    ];
    let flood = Rate::from_bits_per_sec(upload + upload / 5);
    let mut loads = quiet();
    let mut at = LEAD_IN;
    for (length, downloads, uploads, floods) in LOADS.into_iter().cycle() {
        if at >= seconds {
            return loads;
        }
        let load = Load {
            downloads,
            uploads,
            flood: floods.then_some(flood),
            chatter: true,
        };
        loads.push((START + Nanos(at * SECOND), load));
        at += length;
    }
    loads
}

/// Time before the first load, in which a controller can learn the baselines.
const LEAD_IN: u64 = 2;

fn quiet() -> Vec<(Instant, Load)> {
    let chatter = Load {
        chatter: true,
        ..Load::default()
    };
    vec![(START, chatter)]
}

fn at(millis: u64) -> Instant {
    START + Nanos::from_millis(millis)
}

fn flat(kbits: u64) -> Capacity {
    Capacity::new(vec![(START, Rate::from_kbits_per_sec(kbits))])
}

fn line(steps: impl IntoIterator<Item = (u64, u64)>) -> Capacity {
    let steps = steps.into_iter();
    Capacity::new(
        steps
            .map(|(millis, kbits)| (at(millis), Rate::from_kbits_per_sec(kbits)))
            .collect(),
    )
}

/// A uniform random number, including both ends.
fn between(random: &mut Xorshift, low: u64, high: u64) -> u64 {
    low + (random.next_u64() >> 16) % (high - low + 1)
}

fn steady() -> Trace {
    let lines = PerDirection {
        download: flat(20_000),
        upload: flat(5000),
    };
    let trace = Trace::new(
        "steady",
        "20/5 Mbit/s that never change, loaded most of an hour",
        3600,
        lines,
    );
    Trace {
        varies: false,
        ..trace
    }
    .bounded([4000, 15_000, 22_000], [1000, 4000, 6000])
}

fn idle() -> Trace {
    let lines = PerDirection {
        download: flat(50_000),
        upload: flat(10_000),
    };
    let mut trace = Trace::new("idle", "50/10 Mbit/s with chatter only, an hour", 3600, lines);
    trace.varies = false;
    trace.loads = quiet();
    trace.bounded([5000, 30_000, 55_000], [1000, 6000, 11_000])
}

fn path_change() -> Trace {
    let lines = PerDirection {
        download: flat(30_000),
        upload: flat(8000),
    };
    let mut trace = Trace::new(
        "path-change",
        "30/8 Mbit/s; the path becomes 60 ms longer, later shorter again",
        320,
        lines,
    );
    trace.varies = false;
    trace.shifts = vec![(at(88_000), Nanos::from_millis(60)), (at(206_000), Nanos(0))];
    trace.bounded([5000, 20_000, 33_000], [1000, 5000, 9000])
}

/// A cable segment in the evening: 60 Mbit/s drop to 24 within five minutes and recover, with variations all the time.
fn cable(seed: u64) -> Trace {
    let mut random = seeded(seed ^ 0xcab1e);
    let mut sag = |top: u64, bottom: u64| {
        line((0..1200).map(|half| {
            let from_middle = u64::abs_diff(half, 600);
            let trend = bottom + (top - bottom) * from_middle / 600;
            (half * 500, trend * between(&mut random, 94, 106) / 100)
        }))
    };
    let lines = PerDirection {
        download: sag(60_000, 24_000),
        upload: sag(10_000, 7000),
    };
    let trace = Trace::new(
        "cable",
        "60/10 Mbit/s cable, drops to 24/7 in the evening, 6 % variation",
        600,
        lines,
    );
    trace.bounded([10_000, 30_000, 65_000], [2000, 7000, 11_000])
}

/// LTE in a moving car: a random walk between 3 and 60 Mbit/s, 15 % of fast fading, short interruptions at handovers.
fn lte(seed: u64) -> Trace {
    let mut random = seeded(seed ^ 0x17e);
    let mut walk = |start: u64, low: u64, high: u64| {
        let mut rate = start;
        let mut steps = Vec::new();
        for second in 0..300u64 {
            let factor = between(&mut random, 78, 126);
            rate = (rate * factor / 100).clamp(low, high);
            for tenth in 0..10 {
                steps.push((
                    second * 1000 + tenth * 100,
                    rate * between(&mut random, 85, 115) / 100,
                ));
            }
            if between(&mut random, 0, 24) == 0 {
                // The handover is within one step of 100 ms and takes most of it.
                let last = steps.len() - 5;
                let outage = between(&mut random, 40, 90);
                let (begins, rate) = steps[last];
                steps[last] = (begins, 0);
                steps.insert(last + 1, (begins + outage, rate));
            }
        }
        line(steps)
    };
    let lines = PerDirection {
        download: walk(25_000, 3000, 60_000),
        upload: walk(8000, 1000, 15_000),
    };
    let mut trace = Trace::new(
        "lte",
        "LTE drive: 3-60/1-15 Mbit/s, fading and handovers",
        300,
        lines,
    );
    trace.rtt = Nanos::from_millis(45);
    trace.jitter = Nanos::from_micros(1200);
    trace.bounded([2000, 15_000, 65_000], [700, 5000, 16_000])
}

/// Low-orbit satellites: each 15 s another rate, another distance, and a short interruption.
fn starlink(seed: u64) -> Trace {
    let mut random = seeded(seed ^ 0x57a6);
    let mut shifts = Vec::new();
    let mut slots = |low: u64, high: u64, shifts: Option<&mut Vec<(Instant, Nanos)>>| {
        let mut steps = Vec::new();
        let mut shifts = shifts;
        for slot in 0..20u64 {
            let rate = between(&mut random, low, high);
            let begins = slot * 15_000;
            let outage = if slot == 0 {
                0
            } else {
                between(&mut random, 20, 60)
            };
            if outage > 0 {
                steps.push((begins, 0));
            }
            for fifth in 0..75 {
                let after = if fifth == 0 { outage } else { 0 };
                steps.push((
                    begins + fifth * 200 + after,
                    rate * between(&mut random, 90, 110) / 100,
                ));
            }
            if let Some(shifts) = shifts.as_deref_mut() {
                shifts.push((at(begins), Nanos::from_micros(between(&mut random, 0, 12_000))));
            }
        }
        line(steps)
    };
    let lines = PerDirection {
        download: slots(30_000, 120_000, Some(&mut shifts)),
        upload: slots(5000, 16_000, None),
    };
    let mut trace = Trace::new(
        "starlink",
        "Starlink: 30-120/5-16 Mbit/s, new every 15 s",
        300,
        lines,
    );
    trace.shifts = shifts;
    trace.rtt = Nanos::from_millis(35);
    trace.jitter = Nanos::from_micros(800);
    trace.bounded([15_000, 60_000, 130_000], [3000, 9000, 18_000])
}

/// A drop to a quarter and back, under each kind of load.
fn step() -> Trace {
    let steps =
        |high: u64| line((0..16).map(move |n| (n * 15_000, if n % 2 == 0 { high } else { high / 4 })));
    let lines = PerDirection {
        download: steps(40_000),
        upload: steps(8000),
    };
    let trace = Trace::new("step", "40/8 Mbit/s, every 15 s to a quarter or back", 240, lines);
    trace.bounded([5000, 20_000, 44_000], [1000, 4000, 9000])
}

/// Another rate each 5 to 20 s, always loaded.
fn changing(seed: u64) -> Trace {
    let mut random = seeded(seed ^ 0xc4a6);
    let mut steps = |low: u64, high: u64| {
        let mut now = 0;
        let mut steps = Vec::new();
        while now < 300_000 {
            steps.push((now, between(&mut random, low, high)));
            now += between(&mut random, 5000, 20_000);
        }
        line(steps)
    };
    let lines = PerDirection {
        download: steps(8000, 40_000),
        upload: steps(2000, 10_000),
    };
    let mut trace = Trace::new(
        "changing",
        "8-40/2-10 Mbit/s, new every 5-20 s, always loaded",
        300,
        lines,
    );
    let loads = [
        (2000, 4, 0),
        (60_000, 0, 2),
        (120_000, 4, 2),
        (210_000, 4, 0),
        (255_000, 0, 2),
    ]
    .map(|(millis, downloads, uploads)| {
        let load = Load {
            downloads,
            uploads,
            chatter: true,
            ..Load::default()
        };
        (at(millis), load)
    });
    trace.loads = quiet().into_iter().chain(loads).collect();
    trace.bounded([4000, 20_000, 44_000], [1000, 5000, 11_000])
}

/// A drop to a sixteenth: under downloads, under uploads, and under both.
fn collapse() -> Trace {
    let falls = |high: u64| {
        let steps = [
            (0, 16),
            (8000, 1),
            (13_000, 16),
            (28_000, 1),
            (33_000, 16),
            (48_000, 1),
            (53_000, 16),
        ];
        line(steps.map(|(millis, sixteenths)| (millis, high / 16 * sixteenths)))
    };
    let lines = PerDirection {
        download: falls(64_000),
        upload: falls(32_000),
    };
    let trace = Trace::new(
        "collapse",
        "64/32 Mbit/s, three times for 5 s to a sixteenth",
        80,
        lines,
    );
    trace.bounded([1500, 32_000, 70_000], [800, 16_000, 35_000])
}

/// A geostationary satellite: a path of 600 ms, with rain fade.
fn geo(seed: u64) -> Trace {
    let about = "25/4 Mbit/s geostationary, 600 ms of path, rain";
    geostationary("geo", about, 300, seed)
}

/// [`geo`] for half an hour: longer than the baselines of cake-autorate need to reach the path.
fn geo_long(seed: u64) -> Trace {
    geostationary("geo-long", "the same for half an hour", 1800, seed)
}

fn geostationary(name: &'static str, about: &'static str, seconds: u64, seed: u64) -> Trace {
    let mut random = seeded(seed ^ 0x6e0);
    let mut rain =
        |top: u64| line((0..seconds / 5).map(|n| (n * 5000, top * between(&mut random, 75, 100) / 100)));
    let lines = PerDirection {
        download: rain(25_000),
        upload: rain(4000),
    };
    let mut trace = Trace::new(name, about, seconds, lines);
    trace.rtt = Nanos::from_millis(600);
    trace.jitter = Nanos::from_micros(800);
    trace.buffers = PerDirection {
        download: Bytes(2_000_000),
        upload: Bytes(400_000),
    };
    trace.bounded([3000, 12_000, 27_000], [500, 2000, 4400])
}
