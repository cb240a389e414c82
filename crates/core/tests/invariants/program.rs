//! Random programs, and the machine that runs them and checks the contract after every step.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use sqm_core::packet::Packet;
use sqm_core::qdisc::{Dequeued, DropReason, Qdisc};
use sqm_core::units::Instant;

use crate::packet::{Segment, TestPacket};

/// Long after the zero that means "never".
pub(crate) const START: Instant = Instant(1_000_000_000_000);

/// Programs per property in continuous integration.
const PROGRAMS: u32 = 10_000;

/// A queue under test, with what its kind promises besides the contract.
pub(crate) trait Subject: Qdisc<TestPacket> {
    /// Changes its parameters in one of its ways. Whether packets of one flow may overtake each other from now on.
    fn change(&mut self, way: u8, now: Instant, drops: &mut Vec<(TestPacket, DropReason)>) -> bool;

    /// True if packets of one flow may overtake each other in a queue of this kind.
    fn may_overtake(&self) -> bool {
        false
    }

    /// Panics if what is counted inside does not agree.
    fn check(&self) {}

    /// Delivered packets that it counts as marked.
    fn marks(&self) -> Option<u64> {
        None
    }

    /// Most bytes of memory that may be charged after an arrival.
    fn memory_limit(&self) -> Option<u64> {
        None
    }

    /// The most that may have left by `now`, bytes on the line.
    fn allowance(&self, _now: Instant) -> Option<u64> {
        None
    }

    /// The part of that allowance that a packet uses.
    fn line_len(&self, packet: &TestPacket) -> u64 {
        u64::from(packet.len)
    }
}

/// One step of a program.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Enqueue {
        flow: u8,
        len: u32,
        ecn: u8,
        segment: bool,
    },
    Dequeue,
    /// As if a timer fired at the time that the last poll asked for.
    Wake,
    /// Nanoseconds.
    Wait(u64),
    /// A call that brings a time from the past.
    Backwards(u64),
    Change(u8),
}

/// A short program.
pub(crate) fn program() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any::<u8>(), 40..1600_u32, 0..4_u8, any::<bool>())
            .prop_map(|(flow, len, ecn, segment)| Step::Enqueue { flow: flow % 40, len, ecn, segment }),
        // Repeats the flow, so that queues grow.
        8 => (1000..1514_u32, 0..3_u8).prop_map(|(len, ecn)| Step::Enqueue { flow: ecn, len, ecn, segment: false }),
        6 => Just(Step::Dequeue),
        5 => Just(Step::Wake),
        3 => (0..40_000_000_u64).prop_map(Step::Wait),
        1 => (0..4_000_000_000_u64).prop_map(Step::Wait),
        1 => (0..2_000_000_000_u64).prop_map(Step::Backwards),
        1 => any::<u8>().prop_map(Step::Change),
    ];
    prop::collection::vec(step, 0..60)
}

/// Holds for all programs, or panics with the shortest that it found and the seed.
pub(crate) fn holds_for_all<T: Debug>(inputs: impl Strategy<Value = T>, property: impl Fn(&T)) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect(name))
    };
    let seed = number("SQM_SEED").unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.expect("a clock after 1970").as_nanos() as u64
    });
    let config = Config {
        cases: number("SQM_PROGRAMS").map_or(PROGRAMS, |programs| programs as u32),
        failure_persistence: None,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&inputs, |input| {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(&input)));
        run.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            TestCaseError::fail(text.unwrap_or("it panicked").to_owned())
        })
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, input)) => panic!("SQM_SEED={seed}: {reason}\n{input:#?}"),
        Err(TestError::Abort(reason)) => panic!("SQM_SEED={seed}: {reason}"),
    }
}

/// Runs a program twice: the contract holds after every step, and both runs do the same.
pub(crate) fn run<S: Subject>(steps: &[Step], build: impl Fn() -> S) {
    let logs = [(); 2].map(|()| {
        let mut machine = Machine::new(build());
        for step in steps {
            machine.step(step);
        }
        machine.log
    });
    assert_eq!(logs[0], logs[1], "two runs with the same input differ");
}

/// The fate of a packet, with its time.
#[derive(Debug, PartialEq, Eq)]
enum Deed {
    Sent(u64, TestPacket),
    Dropped(u64, TestPacket, DropReason),
}

struct Machine<S> {
    subject: S,
    now: Instant,
    /// The wake-up that the last poll asked for, if nothing happened since.
    wake: Option<Instant>,
    next_id: u32,
    acks: BTreeMap<u8, u32>,
    queued: BTreeMap<u32, TestPacket>,
    /// The last packet sent of each flow.
    last_sent: BTreeMap<u8, u32>,
    may_overtake: bool,
    sent_on_line: u64,
    longest_on_line: u64,
    sent_marked: u64,
    log: Vec<Deed>,
}

impl<S: Subject> Machine<S> {
    fn new(subject: S) -> Self {
        Self {
            subject,
            now: START,
            wake: None,
            next_id: 0,
            acks: BTreeMap::new(),
            queued: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            may_overtake: false,
            sent_on_line: 0,
            longest_on_line: 0,
            sent_marked: 0,
            log: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Enqueue {
                flow,
                len,
                ecn,
                segment,
            } => self.enqueue(flow, len, ecn, segment),
            Step::Dequeue => self.dequeue(self.now, false),
            Step::Wake => {
                if let Some(wake) = self.wake.take() {
                    self.now = self.now.max(wake);
                    self.dequeue(self.now, true);
                }
            }
            Step::Wait(nanos) => self.now = Instant(self.now.0 + nanos),
            Step::Backwards(nanos) => self.dequeue(Instant(self.now.0 - nanos), false),
            Step::Change(way) => {
                let mut drops = Vec::new();
                self.may_overtake |= self.subject.change(way, self.now, &mut drops);
                self.wake = None;
                self.dropped(drops);
            }
        }
        self.check();
    }

    fn enqueue(&mut self, flow: u8, len: u32, ecn: u8, segment: bool) {
        let ack = self.acks.entry(flow).or_default();
        *ack += 1000;
        let packet = TestPacket {
            id: self.next_id,
            len: if segment { 54 } else { len },
            flow,
            ds_field: (flow % 8) << 5 | ecn,
            came_with: ecn,
            segment: segment.then_some(Segment {
                ack: *ack,
                flags: 0x10,
                payload: 0,
            }),
        };
        self.next_id += 1;
        self.wake = None;
        self.longest_on_line = self.longest_on_line.max(self.subject.line_len(&packet));
        self.queued.insert(packet.id, packet.clone());
        let mut drops = Vec::new();
        self.subject.enqueue(packet, self.now, &mut drops);
        self.dropped(drops);
        if let Some(limit) = self.subject.memory_limit() {
            let used: u64 = self
                .queued
                .values()
                .map(|packet| u64::from(packet.truesize()))
                .sum();
            assert!(
                used <= limit,
                "{used} bytes of memory are charged, the limit is {limit}"
            );
        }
    }

    fn dequeue(&mut self, now: Instant, woken: bool) {
        let mut drops = Vec::new();
        let outcome = self.subject.dequeue(now, &mut drops);
        let dropped_some = !drops.is_empty();
        self.dropped(drops);
        match outcome {
            Dequeued::Packet(packet) => {
                self.wake = None;
                self.sent(packet);
            }
            Dequeued::NotBefore(later) => {
                assert!(later > now, "the wake-up lies in the past");
                assert!(
                    !woken || dropped_some,
                    "woken in vain: neither a packet nor a drop"
                );
                self.wake = Some(later);
            }
            Dequeued::Empty => {
                assert!(
                    self.queued.is_empty(),
                    "it says it is empty and holds {:?}",
                    self.queued
                );
                self.wake = None;
            }
        }
    }

    fn sent(&mut self, packet: TestPacket) {
        let came = self.queued.remove(&packet.id);
        let came = came.unwrap_or_else(|| panic!("{packet:?} was not queued"));
        assert_eq!((came.len, came.flow), (packet.len, packet.flow));
        if packet.ecn() != packet.came_with {
            assert!(
                packet.came_with != 0 && packet.ecn() == 3,
                "marked without ECN: {packet:?}"
            );
        }
        self.sent_marked += u64::from(packet.ecn() == 3);
        if let Some(last) = self.last_sent.insert(packet.flow, packet.id) {
            self.may_overtake |= self.subject.may_overtake();
            assert!(
                self.may_overtake || last < packet.id,
                "{packet:?} was overtaken by {last}"
            );
        }
        self.sent_on_line += self.subject.line_len(&packet);
        if let Some(allowance) = self.subject.allowance(self.now) {
            let sent = self.sent_on_line;
            assert!(
                sent <= allowance + self.longest_on_line,
                "{sent} bytes left, {allowance} and one packet may have"
            );
        }
        self.log.push(Deed::Sent(self.now.0, packet));
    }

    fn dropped(&mut self, drops: Vec<(TestPacket, DropReason)>) {
        for (packet, reason) in drops {
            assert!(
                self.queued.remove(&packet.id).is_some(),
                "{packet:?} was not queued"
            );
            self.log.push(Deed::Dropped(self.now.0, packet, reason));
        }
    }

    /// Conservation, and what the subject knows of itself.
    fn check(&self) {
        let backlog = self.subject.backlog();
        let bytes: u64 = self.queued.values().map(|packet| u64::from(packet.len)).sum();
        assert_eq!(
            (backlog.packets as usize, backlog.bytes),
            (self.queued.len(), bytes),
            "what came and has not left is queued"
        );
        if let Some(marks) = self.subject.marks() {
            assert!(
                marks <= self.sent_marked,
                "{marks} counted as marked, {} sent so",
                self.sent_marked
            );
        }
        self.subject.check();
    }
}
