use alloc::vec::Vec;

use super::*;
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

mod any_samples;
mod bypass;
mod directions;
mod high_rtt;
mod path;
mod queue;
mod silence;

const START: Instant = Instant(1_000_000_000_000);
const STEP: Nanos = Nanos::from_millis(50);
const RTT: Nanos = Nanos::from_millis(30);

const fn mbit(n: u64) -> Rate {
    Rate::from_kbits_per_sec(n * 1000)
}

const fn bounds(min: u64, base: u64, max: u64) -> Bounds {
    Bounds {
        min: Some(mbit(min)),
        base: Some(mbit(base)),
        max: Some(mbit(max)),
    }
}

const BOUNDS: PerDirection<Bounds> = PerDirection {
    download: bounds(2, 20, 100),
    upload: bounds(1, 5, 25),
};

/// A controller in steps of 50 ms, and what it observes.
struct Bench {
    controller: Autorate,
    now: Instant,
    steps: u64,
    /// The round trip without a queue.
    rtt: Nanos,
    /// Queue delay in the answers of each reflector.
    delay: [Nanos; 6],
    /// Traffic in percent of the rate.
    load: PerDirection<u64>,
    /// The download that the line carries, bits per second, if that is less than the load or if there is a queue.
    line: Option<u64>,
    answering: bool,
    /// If set, reflectors report one-way delays: [`Self::delay`] is that of the download, and this is the queue delay of the upload.
    upload_delay: Option<Nanos>,
    /// Number of TCP connections, and their queue delay in each direction. The last ones have none.
    flows: u64,
    flow_delay: PerDirection<Nanos>,
    flows_without_delay: u64,
    decision: Decision,
}

impl Bench {
    fn new() -> Self {
        Self::with_controller(Autorate::new(START, BOUNDS, PerDirection::default()))
    }

    fn with_controller(mut controller: Autorate) -> Self {
        Self {
            decision: controller.step(START, &[]),
            controller,
            now: START,
            steps: 0,
            rtt: RTT,
            delay: [Nanos(0); 6],
            load: PerDirection {
                download: 0,
                upload: 0,
            },
            line: None,
            answering: true,
            upload_delay: None,
            flows: 0,
            flow_delay: PerDirection {
                download: Nanos(0),
                upload: Nanos(0),
            },
            flows_without_delay: 0,
        }
    }

    fn run(&mut self, millis: u64) -> &mut Self {
        for _ in 0..millis / 50 {
            self.step();
        }
        self
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        self.steps += 1;
        let at = self.now;
        let mut samples: Vec<Sample> = Direction::BOTH
            .into_iter()
            .map(|direction| {
                let load = self.decision.rates[direction].rate.bits_per_sec() / 100 * self.load[direction];
                let rate = match self.line {
                    Some(line) if direction == Direction::Download && self.delay[0].0 > 0 => line,
                    _ => load,
                };
                let signal = Signal::Traffic {
                    direction,
                    bytes: Bytes(rate / 8 / 20),
                    span: STEP,
                };
                Sample { at, signal }
            })
            .collect();
        let path = self.rtt;
        let one_way = |delay: Nanos| i64::try_from(path.0 / 2 + delay.0).expect("a short delay");
        if self.answering && self.decision.probes != Probes::Off {
            let reflector = (self.steps % 6) as u16;
            let delay = self.delay[usize::from(reflector)];
            let signal = match self.upload_delay {
                None => {
                    let rtt = Nanos(self.rtt.0 + delay.0);
                    Signal::Echo {
                        reflector,
                        sent: Instant(at.0 - rtt.0),
                        rtt,
                    }
                }
                Some(upload_delay) => Signal::OneWay {
                    reflector,
                    sent: Instant(at.0 - self.rtt.0 - delay.0 - upload_delay.0),
                    download: one_way(delay),
                    upload: one_way(upload_delay),
                },
            };
            samples.push(Sample { at, signal });
        }
        let flow = |flow| {
            let has_delay = flow < self.flows - self.flows_without_delay;
            let [download, upload] =
                Direction::BOTH.map(|way| Nanos(self.flow_delay[way].0 * u64::from(has_delay)));
            Signal::Flow {
                flow,
                sent: Instant(at.0 - self.rtt.0 - download.0 - upload.0),
                download: one_way(download),
                // The first connection is a download, whose segments are not immediate acknowledgements.
                upload: (flow > 0).then(|| one_way(upload)),
            }
        };
        samples.extend((0..self.flows).map(flow).map(|signal| Sample { at, signal }));
        self.decision = self.controller.step(self.now, &samples);
    }

    fn hour(&mut self, hour: u8) {
        let signal = Signal::Hour(hour);
        self.decision = self.controller.step(self.now, &[Sample { at: self.now, signal }]);
    }

    fn download(&self) -> Choice {
        self.decision.rates.download
    }

    fn upload(&self) -> Choice {
        self.decision.rates.upload
    }

    /// A step in which reflectors do not answer probes that were sent at `sent`.
    fn step_while_waiting(&mut self, sent: Instant) {
        self.answering = false;
        self.step();
        let at = self.now;
        let waiting = (0..6).map(|reflector| Sample {
            at,
            signal: Signal::Waiting { reflector, sent },
        });
        self.decision = self.controller.step(at, &waiting.collect::<Vec<_>>());
    }

    /// A step on a line that carries this much in the download, bits per second. Senders fill the shaper, and its excess makes the
    /// queue at the line longer.
    fn step_on_line(&mut self, capacity: u64) {
        let rate = self.download().rate.bits_per_sec();
        let queue = (self.delay[0].0 + STEP.0 * rate / capacity).saturating_sub(STEP.0);
        self.line = Some(capacity);
        self.delay = [Nanos(queue); 6];
        self.step();
    }
}

fn loaded() -> Bench {
    let mut bench = Bench::new();
    bench.load.download = 20;
    bench.run(2000);
    bench.load.download = 100;
    bench
}

/// A line with one-way delays whose download has grown to 100 Mbit/s.
fn one_way() -> Bench {
    let mut bench = loaded();
    bench.upload_delay = Some(Nanos(0));
    bench.run(4000);
    assert_eq!(bench.download().rate, mbit(100));
    bench
}

#[test]
fn grows_under_load_while_there_is_no_queue() {
    let mut bench = loaded();
    assert!(
        bench.run(1500).download().rate > mbit(60),
        "{:?}",
        bench.download()
    );
    assert_eq!(bench.download().reason, Reason::Grow);
    assert_eq!(bench.run(3000).download().rate, mbit(100));
}

#[test]
fn an_idle_line_keeps_its_rate_and_is_not_probed() {
    let mut bench = loaded();
    bench.run(4000);
    bench.load.download = 0;
    bench.run(4000);
    assert_ne!(bench.decision.probes, Probes::Off);
    bench.run(3_600_000);
    assert_eq!(bench.download().rate, mbit(100));
    assert_eq!(bench.decision.probes, Probes::Off);
    bench.load.download = 90;
    bench.run(100);
    assert_eq!(bench.decision.probes, Probes::Every(Nanos::from_millis(50)));
    assert_eq!(bench.download().rate, mbit(100));
}

#[test]
fn probing_is_twice_as_fast_while_there_is_a_queue() {
    let mut bench = loaded();
    let usual = Probes::Every(Nanos::from_millis(50));
    assert_eq!(bench.run(4000).decision.probes, usual);
    bench.delay = [Nanos::from_millis(20); 6];
    let soon = Probes::Every(Nanos::from_millis(25));
    assert_eq!(bench.run(50).decision.probes, soon, "after one answer");
    assert_eq!(bench.run(300).decision.probes, soon);
    bench.delay = [Nanos(0); 6];
    assert_eq!(bench.run(1000).decision.probes, usual);
}

#[test]
fn starts_at_the_usual_rate_of_the_hour() {
    let mut learned = PerDirection::<CapacityByHour>::default();
    learned.download.learn(20, mbit(50));
    let mut bench = Bench::with_controller(Autorate::new(START, BOUNDS, learned));
    assert_eq!(bench.download().rate, mbit(20));
    bench.hour(20);
    assert_eq!(bench.download().rate, mbit(48));
    assert_eq!(bench.upload().rate, mbit(5));
}

#[test]
fn learns_the_capacity_of_the_hour() {
    let mut bench = loaded();
    bench.hour(7);
    bench.run(1000);
    // A small queue that drains when the rate is reduced.
    bench.delay = [Nanos::from_millis(12); 6];
    bench.run(600);
    bench.delay = [Nanos(0); 6];
    bench.run(500);
    let learned = bench.controller.learned().download.hours[7];
    assert!(learned.is_some_and(|rate| rate > mbit(20)), "{learned:?}");
    assert_eq!(bench.controller.learned().upload, CapacityByHour::default());
}
