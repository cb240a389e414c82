use alloc::vec::Vec;

use proptest::prelude::*;

use super::cake_autorate::CakeAutorate;
use super::lean::{Lean, Params};
use super::*;
use crate::autorate::PROBE_LOADED;
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

mod bypass;
mod high_rtt;

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
    fn new(learned: PerDirection<CapacityByHour>) -> Self {
        let both = PerDirection {
            download: bounds(2, 20, 100),
            upload: bounds(1, 5, 25),
        };
        let mut controller = Autorate::new(START, both, learned);
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
                let rate = self.decision.rates[direction].rate.bits_per_sec() / 100 * self.load[direction];
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
}

fn loaded() -> Bench {
    let mut bench = Bench::new(PerDirection::default());
    bench.load.download = 20;
    bench.run(2000);
    bench.load.download = 100;
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
    assert_eq!(bench.decision.probes, Probes::Every(PROBE_LOADED));
    assert_eq!(bench.download().rate, mbit(100));
}

/// Loads the line, with a queue during which `percent` of the rate arrive.
fn queued(bench: &mut Bench, percent: u64) -> Rate {
    bench.load.download = percent;
    for millis in [30, 36, 42, 36, 24, 12] {
        bench.delay = [Nanos::from_millis(millis); 6];
        bench.run(50);
    }
    bench.delay = [Nanos(0); 6];
    bench.load.download = 20;
    bench.run(300);
    bench.download().rate
}

/// The rate of an upload after a queue of its own, during a download with this load in percent.
fn upload_after_a_queue(download: u64) -> Rate {
    let mut bench = one_way();
    bench.load = PerDirection {
        download,
        upload: 100,
    };
    bench.run(4000);
    for millis in [10, 20, 20, 10, 0] {
        bench.upload_delay = Some(Nanos::from_millis(millis));
        bench.run(100);
    }
    let after = (0..40).find_map(|_| {
        bench.step();
        let upload = bench.decision.rates.upload;
        (upload.reason == Reason::Steady).then_some(upload.rate)
    });
    after.expect("the queue is gone")
}

#[test]
fn an_upload_that_competes_with_a_download_stays_below_its_last_capacity() {
    let [alone, beside] = [1, 100].map(upload_after_a_queue);
    // The shorter target alone would be a difference of less than four percent.
    assert!(
        beside.bits_per_sec() <= alone.bits_per_sec() / 100 * 95,
        "{alone} {beside}"
    );
}

#[test]
fn a_line_whose_capacity_dips_may_keep_a_longer_queue() {
    // 8 ms are above the target of a line with a constant capacity, and below that of one with dips.
    let is_cut_for_8_ms = |found: [u64; 6]| {
        let mut bench = one_way();
        for percent in found {
            queued(&mut bench, percent);
            bench.load.download = 100;
            bench.run(4000);
        }
        bench.delay = [Nanos::from_millis(8); 6];
        (0..12).any(|_| {
            bench.step();
            bench.download().reason.is_cut()
        })
    };
    assert!(is_cut_for_8_ms([95; 6]));
    assert!(!is_cut_for_8_ms([95, 80, 95, 80, 95, 80]));
}

#[test]
fn a_load_after_a_rest_begins_with_the_highest_recent_capacity() {
    let mut bench = loaded();
    bench.run(1500);
    let more = queued(&mut bench, 95);
    let less = queued(&mut bench, 75);
    assert!(
        less.bits_per_sec() < more.bits_per_sec() / 10 * 9,
        "{more} {less}"
    );
    bench.load.download = 1;
    assert_eq!(bench.run(2500).download().rate, less);
    let after = bench.run(2000).download().rate;
    assert!(after > less, "{after} {less}");
    assert!(
        after <= more && after.bits_per_sec() <= less.bits_per_sec() * 2,
        "{after} {more} {less}"
    );
    // A capacity of more than a minute ago does not count.
    bench.load.download = 70;
    bench.run(60_000);
    let now = queued(&mut bench, 60);
    bench.load.download = 1;
    assert_eq!(bench.run(5000).download().rate, now);
}

#[test]
fn a_single_bad_reflector_cannot_cut_the_rate() {
    let mut bench = loaded();
    for millis in [0, 300, 20, 900, 5, 100].into_iter().cycle().take(200) {
        bench.delay[3] = Nanos::from_millis(millis);
        bench.run(300);
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
    assert_eq!(bench.download().rate, mbit(100));
}

#[test]
fn a_single_bad_reflector_cannot_hide_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    bench.delay = [Nanos::from_millis(100); 6];
    bench.delay[3] = Nanos(0);
    bench.run(300);
    assert!(bench.download().rate < mbit(100), "{:?}", bench.download());
}

#[test]
fn late_answers_without_traffic_are_not_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    bench.load.download = 0;
    bench.run(3000);
    bench.delay = [Nanos::from_millis(120); 6];
    bench.run(600);
    assert_eq!(bench.download().rate, mbit(100), "{:?}", bench.download());
}

#[test]
fn late_answers_just_after_the_end_of_a_load_are_not_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    bench.load.download = 1;
    bench.run(300);
    bench.delay = [Nanos::from_millis(40); 6];
    for _ in 0..12 {
        bench.step();
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
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

/// Connections without a queue delay contradict reflectors with one: one kind is believed.
#[test]
fn round_trips_that_contradict_one_way_delays_do_not_leave_the_delay_unknown() {
    let mut bench = loaded();
    bench.run(4000);
    bench.delay = [Nanos::from_millis(200); 6];
    for _ in 0..120 {
        let flows = (0..3).map(|flow| Signal::Flow {
            flow,
            sent: Instant(bench.now.0 - RTT.0),
            download: 15_000_000,
            upload: Some(15_000_000),
        });
        let samples: Vec<_> = flows
            .map(|signal| Sample {
                at: bench.now,
                signal,
            })
            .collect();
        bench.controller.step(bench.now, &samples);
        bench.step();
        assert_ne!(bench.download().reason, Reason::SignalsLost);
    }
}

#[test]
fn connections_that_wait_behind_another_line_do_not_cause_a_cut() {
    let mut bench = loaded();
    bench.flows = 2;
    bench.run(4000);
    bench.flow_delay.download = Nanos::from_millis(200);
    for _ in 0..400 {
        bench.step();
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
}

#[test]
fn two_connections_show_a_queue_when_no_reflector_answers() {
    for flows in [1, 2] {
        let mut bench = loaded();
        bench.flows = flows;
        bench.run(4000);
        bench.answering = false;
        bench.run(8000);
        bench.flow_delay.download = Nanos::from_millis(60);
        let is_cut = (0..6).any(|_| {
            bench.step();
            bench.download().reason.is_cut()
        });
        assert_eq!(is_cut, flows == 2, "{:?}", bench.download());
    }
}

#[test]
fn one_connection_confirmed_by_reflectors_shows_the_direction_of_a_queue() {
    for direction in Direction::BOTH {
        let mut bench = loaded();
        bench.load.upload = 100;
        bench.flows = 2;
        bench.run(6000);
        let before = bench.decision.rates;
        bench.flow_delay[direction] = Nanos::from_millis(60);
        bench.delay = [Nanos::from_millis(60); 6];
        bench.run(300);
        let is_cut = |one| bench.decision.rates[one].rate < before[one].rate;
        assert_eq!(
            Direction::BOTH.map(is_cut),
            Direction::BOTH.map(|one| one == direction),
            "{:?}",
            bench.decision
        );
    }
}

/// The segments of a download showed that the queue was the upload's. They end before the download's last packets, and only round
/// trips are left.
#[test]
fn a_download_that_ends_is_not_cut_for_the_queue_of_the_upload() {
    for turn in 0..40 {
        let mut bench = loaded();
        bench.load.upload = 100;
        bench.flows = 1;
        bench.run(6000 + turn * 50);
        bench.delay = [Nanos::from_millis(7); 6];
        bench.run(300);
        bench.flows = 0;
        bench.load.download = 80;
        bench.run(150);
        bench.delay = [Nanos::from_micros(9900); 6];
        let before = bench.decision.rates.upload.rate;
        for _ in 0..6 {
            bench.step();
            assert!(
                !bench.download().reason.is_cut(),
                "{turn}: {:?}",
                bench.download()
            );
        }
        assert!(
            bench.decision.rates.upload.rate < before,
            "{turn}: {:?}",
            bench.decision
        );
    }
}

#[test]
fn the_serialization_delay_of_full_packets_is_not_a_queue() {
    let mut bench = loaded();
    bench.load.upload = 100;
    // Two packets of 1514 bytes take 1.2 ms at 20 Mbit/s and 4.8 ms at 5 Mbit/s; the rest is noise.
    bench.delay = [Nanos::from_millis(8); 6];
    for _ in 0..40 {
        bench.step();
        let rates = bench.decision.rates;
        assert!(
            !rates.download.reason.is_cut() && !rates.upload.reason.is_cut(),
            "{rates:?}"
        );
    }
}

/// The capacity drops to 6 Mbit/s in both loaded directions, with a queue of half a second.
fn fallen(mut bench: Bench) -> Bench {
    bench.run(4000);
    bench.delay = [Nanos::from_millis(500); 6];
    let loaded = bench.load;
    for _ in 0..20 {
        for direction in Direction::BOTH.into_iter().filter(|d| loaded[*d] > 0) {
            let rate = bench.decision.rates[direction].rate.bits_per_sec();
            // A download arrives at the rate of the line, whatever the shaper lets pass.
            let most = if direction == Direction::Download {
                1000
            } else {
                100
            };
            bench.load[direction] = (mbit(6).bits_per_sec() * 100 / rate).clamp(1, most);
        }
        bench.step();
    }
    bench
}

#[test]
fn after_a_far_drop_a_download_keeps_most_of_what_arrives() {
    let rate = fallen(loaded()).download().rate;
    assert!(rate <= mbit(6) && rate >= mbit(3), "{rate:?}");
}

#[test]
fn senders_silenced_by_a_drop_of_the_other_direction_do_not_return_in_a_burst() {
    let mut bench = loaded();
    bench.load.upload = 100;
    let PerDirection { download, upload } = fallen(bench).decision.rates;
    assert!(
        download.rate <= mbit(6) && upload.rate <= mbit(13),
        "{download:?} {upload:?}"
    );
}

#[test]
fn overdue_probes_and_silent_senders_show_a_drop_of_the_capacity() {
    let mut bench = loaded();
    bench.run(4000);
    bench.answering = false;
    let lost = bench.now;
    for _ in 0..5 {
        let rate = bench.download().rate.bits_per_sec();
        bench.load.download = (mbit(6).bits_per_sec() * 100 / rate).min(100);
        for reflector in 0..6 {
            let at = bench.now;
            bench.controller.step(
                at,
                &[Sample {
                    at,
                    signal: Signal::Waiting {
                        reflector,
                        sent: lost,
                    },
                }],
            );
        }
        bench.step();
    }
    assert!(bench.download().rate <= mbit(6), "{:?}", bench.download());
}

#[test]
fn probes_overdue_in_the_known_queue_of_a_download_do_not_cut_the_upload() {
    let mut bench = one_way();
    bench.load.upload = 100;
    bench.run(4000);
    let before = bench.decision.rates.upload.rate;
    bench.delay = [Nanos::from_millis(60); 6];
    bench.run(150);
    bench.answering = false;
    let sent = bench.now;
    for step in 0..6 {
        bench.step();
        let at = bench.now;
        let waiting = (0..6).map(|reflector| Sample {
            at,
            signal: Signal::Waiting { reflector, sent },
        });
        bench.decision = bench.controller.step(at, &waiting.collect::<Vec<_>>());
        let PerDirection { download, upload } = bench.decision.rates;
        assert!(
            upload.rate >= before && !upload.reason.is_cut(),
            "{step}: {upload:?} {download:?}"
        );
    }
    assert!(bench.download().rate < mbit(100), "{:?}", bench.download());
}

#[test]
fn probes_overtaken_by_a_later_one_are_not_a_queue() {
    let mut bench = loaded();
    bench.run(4000);
    let before = bench.download().rate;
    bench.answering = false;
    // Three probes in a row are lost. The one after them returns without delay.
    let first = bench.now;
    let after = |millis| first + Nanos::from_millis(millis);
    let answer = Sample {
        at: after(45),
        signal: Signal::Echo {
            reflector: 3,
            sent: after(15),
            rtt: RTT,
        },
    };
    for step in 0..5 {
        bench.step();
        let at = bench.now;
        let waiting = |reflector: u16| Signal::Waiting {
            reflector,
            sent: after(5 * u64::from(reflector)),
        };
        let heard = [answer].into_iter().filter(|_| step == 0);
        let silent = (0..3).map(waiting).map(|signal| Sample { at, signal });
        let samples: Vec<Sample> = heard.chain(silent).collect();
        bench.decision = bench.controller.step(at, &samples);
        assert!(bench.download().rate >= before, "{step}: {:?}", bench.download());
    }
}

#[test]
fn a_load_that_ends_while_reflectors_fall_silent_is_not_a_drop_of_the_capacity() {
    let mut bench = loaded();
    bench.load.upload = 100;
    bench.run(4000);
    let before = bench.decision.rates;
    bench.answering = false;
    bench.load = PerDirection::default();
    let sent = bench.now;
    for _ in 0..120 {
        let at = bench.now;
        let waiting = (0..6).map(|reflector| Sample {
            at,
            signal: Signal::Waiting { reflector, sent },
        });
        bench.controller.step(at, &waiting.collect::<Vec<_>>());
        bench.step();
    }
    let after = bench.decision.rates;
    assert!(after.download.rate >= before.download.rate, "{after:?}");
    assert!(
        after.upload.rate.bits_per_sec() * 2 >= before.upload.rate.bits_per_sec(),
        "{after:?}"
    );
}

#[test]
fn only_the_loaded_direction_is_cut_for_a_longer_round_trip() {
    let mut bench = loaded();
    bench.run(2000);
    bench.delay = [Nanos::from_millis(60); 6];
    bench.run(400);
    assert!(bench.download().rate < mbit(90), "{:?}", bench.download());
    assert_eq!(bench.decision.rates.upload.rate, mbit(5));
}

#[test]
fn an_upload_is_not_cut_again_and_again_for_a_queue_that_does_not_follow() {
    let mut bench = loaded();
    bench.load.upload = 100;
    bench.run(4000);
    let before = bench.decision.rates.upload.rate;
    // The capacity of the download is slightly below its rate, which looks as if our shaper limited it.
    let line = bench.download().rate.bits_per_sec() / 100 * 97;
    let mut queue = Nanos(0);
    for _ in 0..160 {
        let rate = bench.download().rate.bits_per_sec();
        bench.load.download = (line * 100 / rate).min(100);
        queue = if rate > line {
            Nanos(queue.0 + STEP.0 * (rate - line) / line)
        } else {
            Nanos(queue.0.saturating_sub(STEP.0 / 10))
        };
        bench.delay = [queue; 6];
        bench.step();
        let upload = bench.decision.rates.upload.rate;
        assert!(
            upload.bits_per_sec() > before.bits_per_sec() / 2,
            "{before} {upload} {queue}"
        );
    }
    assert!(
        bench.download().rate.bits_per_sec() <= line,
        "{:?}",
        bench.download()
    );
}

#[test]
fn a_longer_path_becomes_the_baseline_within_ten_seconds() {
    let mut bench = loaded();
    bench.run(4000);
    bench.delay = [Nanos::from_millis(80); 6];
    bench.run(10_000);
    assert!(bench.download().rate > mbit(80), "{:?}", bench.download());
}

#[test]
fn a_path_that_becomes_slightly_longer_does_not_end_growth() {
    let mut bench = loaded();
    bench.upload_delay = Some(Nanos(0));
    bench.load.upload = 100;
    bench.run(300);
    // Below the target with two full packets, above half of it.
    bench.delay = [Nanos::from_micros(1700); 6];
    bench.run(1000);
    let before = bench.download().rate;
    bench.run(4000);
    assert!(
        bench.download().rate > before,
        "{before:?} {:?}",
        bench.download()
    );
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
fn a_path_that_became_longer_while_idle_is_not_a_queue_of_the_next_load() {
    let mut bench = one_way();
    bench.load.upload = 100;
    bench.load.download = 1;
    bench.run(3000);
    bench.delay = [Nanos::from_millis(8); 6];
    bench.run(3000);
    bench.load.download = 100;
    for _ in 0..40 {
        bench.step();
        assert!(!bench.download().reason.is_cut(), "{:?}", bench.download());
    }
}

#[test]
fn a_delay_that_stays_while_more_and_more_arrives_is_not_a_queue() {
    let mut bench = one_way();
    bench.load.download = 30;
    bench.run(600);
    bench.delay = [Nanos::from_millis(8); 6];
    bench.run(500);
    for percent in 30..90 {
        bench.load.download = percent;
        bench.step();
        assert!(
            !bench.download().reason.is_cut(),
            "{percent}: {:?}",
            bench.download()
        );
    }
    assert_eq!(bench.download().rate, mbit(100));
}

#[test]
fn a_delay_that_stays_while_arrivals_are_constant_is_a_queue() {
    let mut bench = one_way();
    bench.load.download = 60;
    bench.run(600);
    bench.delay = [Nanos::from_millis(8); 6];
    bench.run(600);
    assert!(bench.download().rate < mbit(70), "{:?}", bench.download());
}

#[test]
fn a_rate_too_low_for_acknowledgements_recovers() {
    let mut bench = loaded();
    bench.upload_delay = Some(Nanos(0));
    bench.load.upload = 100;
    bench.run(4000);
    let rate = |bench: &Bench| bench.decision.rates.upload.rate;
    let mut queue = 300;
    for _ in 0..40 {
        bench.upload_delay = Some(Nanos::from_millis(queue));
        queue += 5;
        bench.step();
    }
    assert_eq!(rate(&bench), mbit(1));
    // The queue at the line is gone, but acknowledgements and probes wait in our own shaper while its rate is too low for them.
    for _ in 0..200 {
        queue = if rate(&bench) < mbit(2) { queue + 2 } else { 0 };
        bench.upload_delay = Some(Nanos::from_millis(queue));
        bench.step();
    }
    assert!(rate(&bench) >= mbit(4), "{:?}", bench.decision.rates.upload);
}

#[test]
fn without_signals_the_rate_stays_and_then_moves_to_base() {
    let mut bench = loaded();
    bench.run(4000);
    bench.answering = false;
    bench.run(4000);
    assert_eq!(bench.download().rate, mbit(100));
    assert_eq!(bench.download().reason, Reason::SignalsLost);
    bench.run(120_000);
    assert_eq!(bench.download().rate, mbit(20));
    bench.answering = true;
    bench.run(4000);
    assert!(bench.download().rate > mbit(60), "{:?}", bench.download());
}

#[test]
fn starts_at_the_usual_rate_of_the_hour() {
    let mut learned = PerDirection::<CapacityByHour>::default();
    learned.download.learn(20, mbit(50));
    let mut bench = Bench::new(learned);
    assert_eq!(bench.download().rate, mbit(20));
    bench.hour(20);
    assert_eq!(bench.download().rate, mbit(48));
    assert_eq!(bench.decision.rates.upload.rate, mbit(5));
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

#[test]
fn a_reflector_whose_clock_jumps_by_an_hour_changes_nothing() {
    for jump in [3_600_000_000_000, -3_600_000_000_000] {
        let mut controller = Autorate::new(START, PerDirection::default(), PerDirection::default());
        let mut decision = controller.step(START, &[]);
        let mut now = START;
        for step in 0..400 {
            now = now + STEP;
            let offset = if step < 200 { 0 } else { jump };
            let one_way = Signal::OneWay {
                reflector: step % 6,
                sent: Instant(now.0 - RTT.0),
                download: 15_000_000 + offset,
                upload: 15_000_000 - offset,
            };
            let traffic = Signal::Traffic {
                direction: Direction::Download,
                bytes: Bytes(decision.rates.download.rate.bytes_per_sec() / 20),
                span: STEP,
            };
            let samples = [one_way, traffic].map(|signal| Sample { at: now, signal });
            let before = decision.rates.download.rate;
            decision = controller.step(now, &samples);
            assert!(
                decision.rates.download.rate >= before,
                "step {step}: {decision:?}"
            );
        }
    }
}

#[test]
fn a_queue_is_recognised_whatever_the_offset_of_the_clocks() {
    const DAY: i64 = 86_400_000_000_000;
    for apart in [0, DAY / 2 + 1, 400 * DAY, -400 * DAY] {
        let mut controller = Autorate::new(START, PerDirection::default(), PerDirection::default());
        let mut decision = controller.step(START, &[]);
        let mut now = START;
        for step in 0..40 {
            now = now + STEP;
            let queue = if step < 30 { 0 } else { 100_000_000 };
            let one_way = Signal::OneWay {
                reflector: step % 6,
                sent: Instant(now.0 - RTT.0),
                download: 15_000_000 + queue + apart,
                upload: 15_000_000 - apart,
            };
            let traffic = Signal::Traffic {
                direction: Direction::Download,
                bytes: Bytes(decision.rates.download.rate.bytes_per_sec() / 20),
                span: STEP,
            };
            let samples = [one_way, traffic].map(|signal| Sample { at: now, signal });
            decision = controller.step(now, &samples);
        }
        let reason = decision.rates.download.reason;
        assert!(
            matches!(reason, Reason::Bufferbloat { .. } | Reason::Draining { .. }),
            "{apart}: {reason}"
        );
    }
}

fn signal() -> impl Strategy<Value = Signal> {
    let nanos = || prop_oneof![0..100_000_000u64, any::<u64>()];
    let near =
        || prop_oneof![0..10_000_000_000u64, any::<u64>()].prop_map(|n| Instant(START.0.wrapping_add(n)));
    let signed = || prop_oneof![-100_000_000..100_000_000i64, any::<i64>()];
    prop_oneof![
        (0..8u16, near(), nanos()).prop_map(|(reflector, sent, rtt)| Signal::Echo {
            reflector,
            sent,
            rtt: Nanos(rtt)
        }),
        (any::<u16>(), near(), signed(), signed()).prop_map(|(reflector, sent, download, upload)| {
            Signal::OneWay {
                reflector: reflector % 50,
                sent,
                download,
                upload,
            }
        }),
        (0..8u16, near()).prop_map(|(reflector, sent)| Signal::Waiting { reflector, sent }),
        (0..8u16).prop_map(|reflector| Signal::Lost { reflector }),
        (any::<u64>(), near(), signed(), proptest::option::of(signed())).prop_map(
            |(flow, sent, download, upload)| Signal::Flow {
                flow: flow % 100,
                sent,
                download,
                upload,
            }
        ),
        (any::<bool>(), nanos(), nanos()).prop_map(|(is_download, bytes, span)| Signal::Traffic {
            direction: if is_download {
                Direction::Download
            } else {
                Direction::Upload
            },
            bytes: Bytes(bytes),
            span: Nanos(span)
        }),
        any::<u8>().prop_map(Signal::Hour),
    ]
}

fn optional_rate() -> impl Strategy<Value = Option<Rate>> {
    let rate = prop_oneof![0..100_000_000u64, any::<u64>()];
    proptest::option::of(rate.prop_map(Rate::from_bits_per_sec))
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    (optional_rate(), optional_rate(), optional_rate()).prop_map(|(min, base, max)| Bounds { min, base, max })
}

/// Steps in time: mostly small, sometimes huge, sometimes backward.
fn steps() -> impl Strategy<Value = Vec<(i64, Vec<(u64, Signal)>)>> {
    let step =
        prop_oneof![8 => 0..100_000_000i64, 1 => any::<i64>(), 1 => -3_600_000_000_000..3_600_000_000_000i64];
    let samples = proptest::collection::vec((0..1_000_000_000u64, signal()), 0..6);
    proptest::collection::vec((step, samples), 0..200)
}

proptest! {
    /// Whatever the samples, no controller panics, and rates are within the bounds if these do not contradict each other.
    #[test]
    fn any_sequence_of_samples_leads_to_rates_within_the_bounds(
        download in any_bounds(),
        upload in any_bounds(),
        steps in steps(),
    ) {
        let both = PerDirection { download, upload };
        let mut ours = Autorate::new(START, both, PerDirection::default());
        let mut lean = Lean::new(START, both, Params::default());
        let mut theirs = CakeAutorate::new(START, both);
        let mut now = START;
        for (step, samples) in steps {
            now = Instant(now.0.saturating_add_signed(step));
            let samples: Vec<_> = samples
                .into_iter()
                .map(|(age, signal)| Sample { at: Instant(now.0.saturating_sub(age)), signal })
                .collect();
            theirs.step(now, &samples);
            for decision in [ours.step(now, &samples), lean.step(now, &samples)] {
                for direction in Direction::BOTH {
                    let rate = decision.rates[direction].rate;
                    let Bounds { min, max, .. } = both[direction];
                    prop_assert!(max.is_none_or(|max| rate <= max), "{rate} above {max:?}");
                    prop_assert!(min.is_none_or(|min| rate >= min.min(max.unwrap_or(min)) || rate >= Rate::from_bits_per_sec(1 << 50)));
                }
            }
        }
    }

    /// Time that runs backward counts as time that stands still.
    #[test]
    fn a_step_back_in_time_counts_as_no_time(steps in steps(), back in 1..3_600_000_000_000u64) {
        let mut straight = Autorate::new(START, PerDirection::default(), PerDirection::default());
        let mut now = START;
        for (step, samples) in steps {
            now = Instant(now.0.saturating_add(step.unsigned_abs()));
            let samples: Vec<_> = samples.into_iter().map(|(_, signal)| Sample { at: now, signal }).collect();
            straight.step(now, &samples);
            let mut jumped = straight.clone();
            let expected = straight.step(now, &[]);
            prop_assert_eq!(jumped.step(Instant(now.0.saturating_sub(back)), &[]), expected);
        }
    }
}
