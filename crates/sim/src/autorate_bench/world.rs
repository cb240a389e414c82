//! The event loop: packets, probes and the steps of the controller.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use sqm_autorate::{Controller, Decision, Probes, Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::packet::{FlowKey, Hashes, Network, Tcp, View};
use sqm_core::qdisc::DropReason;
use sqm_core::rng::Xorshift;
use sqm_core::units::{Bytes, Instant, Nanos};

use super::figures::{Collector, Figures};
use super::oracle::{Oracle, Truth};
use super::trace::{Load, Trace};
use super::{Moment, START, Signals};
use crate::fifo::Fifo;
use crate::reflector::{Reflector, jitter, seeded};
use crate::shaper::Shaper;
use crate::tcp::{Sender, Ticket};

/// A full Ethernet frame.
const FRAME: Bytes = Bytes(1514);
/// Half an ACK, because every second packet is acknowledged.
const ACK: Bytes = Bytes(33);
const PROBE: Bytes = Bytes(98);
const CHATTER: Bytes = Bytes(250);

/// Interval at which the queue delay is recorded for the figures.
const LOOK: Nanos = Nanos::from_millis(10);
/// Interval of the steps of the controller, besides those at each answer.
const STEP: Nanos = Nanos::from_millis(50);
const CHATTERS: Nanos = Nanos::from_millis(100);
/// A connection is sampled at most once in this time.
const TCP_SAMPLE: Nanos = Nanos::from_millis(100);
/// Resolution of TCP time stamps in Linux and most other systems.
const STAMP: Nanos = Nanos::from_millis(1);
/// A probe that is unanswered for this long is given up.
const GIVE_UP: Nanos = Nanos::from_millis(5000);

/// Flows 0 to 3 are downloads, 4 to 7 uploads, and 8 is the upload without congestion control.
const SENDERS: usize = 8;
const FLOOD: usize = 8;
const UPLOADS: usize = 4;

/// A data packet, or its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    flow: usize,
    ticket: Option<Ticket>,
    /// The packet was dropped. It travels on as the gap that the receiver will notice.
    lost: bool,
    /// When the packet passed our device that this one acknowledges immediately. It is used for passive round trips.
    answers: Option<Instant>,
    /// When the far host sent the data or the ACK.
    stamped: Instant,
}

/// A packet in a shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Data(Segment),
    Ack(Segment),
    Probe(Probe),
    Chatter,
}

impl Packet {
    const fn size(&self) -> Bytes {
        match self {
            Self::Data(_) => FRAME,
            Self::Ack(_) => ACK,
            Self::Probe(_) => PROBE,
            Self::Chatter => CHATTER,
        }
    }

    /// The number of its queue: each flow, its ACKs and each reflector have their own.
    const fn queue(&self) -> usize {
        match self {
            Self::Data(segment) => segment.flow,
            Self::Ack(segment) => 16 + segment.flow,
            Self::Chatter => 32,
            Self::Probe(probe) => 33 + probe.reflector,
        }
    }
}

impl sqm_core::packet::Packet for Packet {
    fn len(&self) -> u32 {
        u32::try_from(self.size().0).expect("a packet is short")
    }

    fn view(&self) -> View {
        // fq_codel has 1024 flows and uses the upper ten bits of the hash.
        let flow = u32::try_from(self.queue()).expect("few flows") << 22 | 1;
        View {
            network_offset: 14,
            network: Network::Ipv4,
            ds_field: 0,
            key: FlowKey::Hashes(Hashes {
                flow,
                source: 1,
                destination: 1,
            }),
        }
    }

    fn set_ce(&mut self) -> bool {
        false
    }

    fn clear_dscp(&mut self) {}

    fn tcp(&self) -> Option<Tcp<'_>> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    reflector: usize,
    number: u64,
    sent: Instant,
    /// Measured delay of the upload, with the clock offset.
    upload: i64,
    /// When the reflector answered, on our clock.
    turned: Instant,
    clock_offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Data of a download reaches the line's buffer.
    DownloadAtLine(Segment),
    /// Data of a download has crossed the line.
    DownloadAtShaper(Segment),
    /// Data of an upload reaches the far host.
    UploadArrived(Segment),
    /// An ACK for an upload reaches the line's buffer.
    AckAtLine(Segment),
    /// An ACK for an upload has crossed the line.
    AckAtShaper(Segment),
    /// An ACK reaches the sender.
    Acked(Segment),
    ShaperReady(bool),
    ProbeAtReflector(Probe),
    ProbeAtLine(Probe),
    ProbeAtShaper(Probe),
    NextProbe,
    Flood,
    Chatter,
    ChatterAtShaper,
    Look,
    Step,
    LoadChanges(usize),
}

/// An event with its time. Events of the same time happen in the order in which they were scheduled.
#[derive(Clone, Copy, Debug)]
struct Scheduled {
    at: Instant,
    number: u64,
    event: Event,
}

impl Scheduled {
    const fn key(&self) -> (Reverse<Instant>, Reverse<u64>) {
        (Reverse(self.at), Reverse(self.number))
    }
}

/// The earliest event is the greatest, because a binary heap returns the greatest.
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scheduled {}

/// The controller of a run.
pub(super) enum Pilot {
    /// Decides from samples.
    Controller(Box<dyn Controller>),
    /// Decides from the true state of the line.
    Oracle(Oracle),
}

pub(super) struct World<'a> {
    trace: &'a Trace,
    signals: Signals,
    pilot: Pilot,
    now: Instant,
    events: BinaryHeap<Scheduled>,
    number: u64,
    fifos: PerDirection<Fifo>,
    shapers: PerDirection<Shaper<Packet>>,
    /// True if a wake-up of the shaper is scheduled.
    woken: PerDirection<bool>,
    senders: Vec<Sender>,
    sampled_at: [Instant; SENDERS],
    load: Load,
    reflectors: Vec<Reflector>,
    outstanding: Vec<VecDeque<(u64, Instant)>>,
    next_reflector: usize,
    probes: u64,
    probing: Probes,
    probe_due: bool,
    samples: Vec<Sample>,
    /// The device's counters: bytes received from the line, and bytes sent to it.
    counted: PerDirection<Bytes>,
    counted_before: PerDirection<Bytes>,
    random: Xorshift,
    collector: Collector<'a>,
    decision: Decision,
    drops: Vec<(Packet, DropReason)>,
}

impl<'a> World<'a> {
    pub(super) fn new(trace: &'a Trace, mut pilot: Pilot, signals: Signals, seed: u64) -> Self {
        let fifo = |direction| Fifo::new(trace.lines[direction].clone(), trace.buffers[direction]);
        let fifos = PerDirection {
            download: fifo(Direction::Download),
            upload: fifo(Direction::Upload),
        };
        let decision = pilot.step(START, &[], || truth(&fifos, START));
        let shaper = |direction| Shaper::new(decision.rates[direction].rate, trace.interval(), START);
        let reflectors = trace.reflectors.iter().zip(0u64..).map(|(behaviour, index)| {
            let distance = Nanos::from_micros(1000 + 2700 * index);
            Reflector::new(*behaviour, distance, trace.jitter, seed ^ (index + 1) << 32)
        });
        let count = trace.reflectors.len();
        let mut world = Self {
            trace,
            signals,
            pilot,
            now: START,
            events: BinaryHeap::new(),
            number: 0,
            fifos,
            shapers: PerDirection {
                download: shaper(Direction::Download),
                upload: shaper(Direction::Upload),
            },
            woken: PerDirection::default(),
            senders: vec![Sender::new(); SENDERS],
            sampled_at: [START; SENDERS],
            load: Load::default(),
            reflectors: reflectors.collect(),
            outstanding: vec![VecDeque::new(); count],
            next_reflector: 0,
            probes: 0,
            probing: Probes::Off,
            probe_due: false,
            samples: Vec::new(),
            counted: PerDirection {
                download: Bytes(0),
                upload: Bytes(0),
            },
            counted_before: PerDirection {
                download: Bytes(0),
                upload: Bytes(0),
            },
            random: seeded(seed ^ 0x7c9),
            collector: Collector::new(trace),
            decision,
            drops: Vec::new(),
        };
        world.apply(decision);
        for event in [Event::Look, Event::Step, Event::Chatter] {
            world.at(START, event);
        }
        for (index, (at, _)) in trace.loads.iter().enumerate() {
            world.at(*at, Event::LoadChanges(index));
        }
        world
    }

    pub(super) fn run(mut self, observe: &mut dyn FnMut(&Moment)) -> Figures {
        while let Some(Scheduled { at, event, .. }) = self.events.pop() {
            if at >= self.trace.end() {
                break;
            }
            self.now = at;
            if event == Event::Step {
                self.on_step();
                observe(&self.moment());
            } else {
                self.on_event(event);
            }
        }
        self.collector.finish()
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::DownloadAtLine(segment) => self.download_at_line(segment),
            Event::DownloadAtShaper(segment) => self.download_at_shaper(segment),
            Event::UploadArrived(mut segment) => {
                segment.stamped = self.now;
                if !segment.lost {
                    self.collector.on_delivery(Direction::Upload, FRAME);
                }
                if segment.flow != FLOOD {
                    self.after(self.half(), Event::AckAtLine(segment));
                }
            }
            Event::AckAtLine(segment) => {
                // A lost ACK does no harm: the next one follows immediately and acknowledges its data, too.
                let (Ok(leaves) | Err(leaves)) = self.fifos.download.offer(self.now, ACK);
                self.at(leaves, Event::AckAtShaper(segment));
            }
            Event::AckAtShaper(segment) => {
                if let Some(sent) = segment.answers {
                    self.sample_tcp(&segment, sent);
                }
                self.let_in(Packet::Ack(segment));
            }
            Event::Acked(segment) => self.on_ack(segment),
            Event::ShaperReady(is_egress) => {
                self.on_shaper(if is_egress {
                    Direction::Upload
                } else {
                    Direction::Download
                });
            }
            Event::NextProbe => self.on_next_probe(),
            Event::ProbeAtReflector(probe) => self.probe_at_reflector(probe),
            Event::ProbeAtLine(probe) => {
                if let Some(leaves) = self.offer_probe(Direction::Download) {
                    self.at(leaves, Event::ProbeAtShaper(probe));
                }
            }
            Event::ProbeAtShaper(probe) => self.let_in(Packet::Probe(probe)),
            Event::Flood => self.flood(),
            Event::Chatter => self.chatter(),
            Event::ChatterAtShaper => self.let_in(Packet::Chatter),
            Event::Look => self.look(),
            Event::Step => unreachable!("the loop takes it"),
            Event::LoadChanges(index) => self.change_load(self.trace.loads[index].1),
        }
    }

    // Data.

    fn download_at_line(&mut self, mut segment: Segment) {
        let leaves = self.offer(Direction::Download, &mut segment);
        self.at(leaves, Event::DownloadAtShaper(segment));
    }

    fn download_at_shaper(&mut self, segment: Segment) {
        if segment.lost {
            self.enqueue(Direction::Upload, Packet::Ack(segment));
            return;
        }
        if let Some(sent) = segment.answers {
            self.sample_tcp(&segment, sent);
        }
        self.let_in(Packet::Data(segment));
    }

    /// Offers data to the line's buffer. Returns when it leaves, or when the gap does if it was dropped.
    fn offer(&mut self, direction: Direction, segment: &mut Segment) -> Instant {
        let size = if segment.lost { Bytes(0) } else { FRAME };
        let offered = self.fifos[direction].offer(self.now, size);
        segment.lost |= offered.is_err();
        let (Ok(leaves) | Err(leaves)) = offered;
        leaves
    }

    /// Offers a probe to the line. Returns when it leaves, or `None` if it was dropped.
    fn offer_probe(&mut self, direction: Direction) -> Option<Instant> {
        match self.signals {
            Signals::Bypass => Some(self.now),
            _ => self.fifos[direction].offer(self.now, PROBE).ok(),
        }
    }

    /// Passes data from the line to the shaper.
    fn let_in(&mut self, packet: Packet) {
        self.counted.download.0 += packet.size().0;
        self.enqueue(Direction::Download, packet);
    }

    fn enqueue(&mut self, direction: Direction, packet: Packet) {
        let mut drops = std::mem::take(&mut self.drops);
        self.shapers[direction].enqueue(packet, self.now, &mut drops);
        self.note_drops(direction, drops);
        self.wake(direction);
    }

    fn note_drops(&mut self, direction: Direction, mut drops: Vec<(Packet, DropReason)>) {
        for (packet, _) in drops.drain(..) {
            self.on_drop(direction, packet);
        }
        self.drops = drops;
    }

    fn on_drop(&mut self, direction: Direction, packet: Packet) {
        match packet {
            // The receiver will notice the gap.
            Packet::Data(segment) => {
                let gap = Segment {
                    lost: true,
                    ..segment
                };
                self.leave_shaper(direction, Packet::Data(gap));
            }
            // The next ACK follows immediately and acknowledges its data, too.
            Packet::Ack(segment) => {
                let way = match direction {
                    Direction::Download => Nanos(0),
                    Direction::Upload => Nanos(self.fifos.upload.delay(self.now).0 + self.half().0),
                };
                self.after(way, Event::Acked(segment));
            }
            Packet::Probe(_) | Packet::Chatter => {}
        }
    }

    fn on_shaper(&mut self, direction: Direction) {
        self.woken[direction] = false;
        let mut drops = std::mem::take(&mut self.drops);
        let sent = self.shapers[direction].dequeue(self.now, &mut drops);
        self.note_drops(direction, drops);
        if let Some(packet) = sent {
            self.leave_shaper(direction, packet);
        }
        self.wake(direction);
    }

    fn leave_shaper(&mut self, direction: Direction, packet: Packet) {
        match direction {
            Direction::Download => self.reach_home(packet),
            Direction::Upload => self.reach_line(packet),
        }
    }

    fn reach_home(&mut self, packet: Packet) {
        match packet {
            Packet::Data(segment) => {
                if !segment.lost {
                    self.collector.on_delivery(Direction::Download, FRAME);
                }
                self.enqueue(Direction::Upload, Packet::Ack(segment));
            }
            Packet::Ack(segment) => self.at(self.now, Event::Acked(segment)),
            Packet::Probe(probe) => self.on_probe(probe),
            Packet::Chatter => {}
        }
    }

    fn reach_line(&mut self, packet: Packet) {
        let half = self.half();
        match packet {
            Packet::Data(mut segment) => {
                segment.answers = Some(self.now);
                let leaves = self.offer(Direction::Upload, &mut segment);
                self.at(leaves + half, Event::UploadArrived(segment));
            }
            Packet::Ack(mut segment) => {
                segment.answers = Some(self.now);
                // A lost ACK does no harm: the next one follows immediately and acknowledges its data, too.
                let (Ok(leaves) | Err(leaves)) = self.fifos.upload.offer(self.now, ACK);
                self.at(leaves + half, Event::Acked(segment));
            }
            Packet::Probe(probe) => {
                if let Some(leaves) = self.offer_probe(Direction::Upload) {
                    self.at(leaves + half, Event::ProbeAtReflector(probe));
                }
            }
            Packet::Chatter => {
                let _ = self.fifos.upload.offer(self.now, CHATTER);
            }
        }
    }

    fn on_ack(&mut self, segment: Segment) {
        let Some(ticket) = segment.ticket else { return };
        let sender = &mut self.senders[segment.flow];
        if segment.lost {
            sender.on_loss(self.now, ticket);
        } else {
            sender.on_ack(self.now, ticket);
        }
        let answers = segment.answers.filter(|_| segment.flow < UPLOADS);
        self.send(segment.flow, answers);
    }

    fn send(&mut self, flow: usize, mut answers: Option<Instant>) {
        while let Some(ticket) = self.senders[flow].send(self.now) {
            let segment = Segment {
                flow,
                ticket: Some(ticket),
                lost: false,
                answers: answers.take(),
                stamped: self.now,
            };
            if flow < UPLOADS {
                self.after(self.half(), Event::DownloadAtLine(segment));
            } else {
                self.enqueue(Direction::Upload, Packet::Data(segment));
            }
        }
    }

    fn flood(&mut self) {
        let Some(rate) = self.load.flood else { return };
        let segment = Segment {
            flow: FLOOD,
            ticket: None,
            lost: false,
            answers: None,
            stamped: self.now,
        };
        self.enqueue(Direction::Upload, Packet::Data(segment));
        let gap = FRAME.0 * 8 * 1_000_000_000 / rate.bits_per_sec().max(1);
        self.after(Nanos(gap), Event::Flood);
    }

    fn chatter(&mut self) {
        if self.load.chatter {
            self.enqueue(Direction::Upload, Packet::Chatter);
            if let Ok(leaves) = self.fifos.download.offer(self.now, CHATTER) {
                self.at(leaves, Event::ChatterAtShaper);
            }
        }
        self.after(CHATTERS, Event::Chatter);
    }

    fn change_load(&mut self, load: Load) {
        let had_flood = self.load.flood.is_some();
        self.load = load;
        for flow in 0..SENDERS {
            let active = if flow < UPLOADS {
                flow < load.downloads
            } else {
                flow - UPLOADS < load.uploads
            };
            self.senders[flow].set_active(active, self.now);
            self.send(flow, None);
        }
        if load.flood.is_some() && !had_flood {
            self.at(self.now, Event::Flood);
        }
    }

    fn wake(&mut self, direction: Direction) {
        if self.woken[direction] {
            return;
        }
        if let Some(ready) = self.shapers[direction].ready_at(self.now) {
            self.woken[direction] = true;
            self.at(ready, Event::ShaperReady(direction == Direction::Upload));
        }
    }

    /// One-way delay without queues.
    fn half(&self) -> Nanos {
        Nanos(self.trace.rtt.0 / 2)
    }

    // Probes.

    fn on_next_probe(&mut self) {
        self.probe_due = false;
        let Probes::Every(gap) = self.probing else { return };
        let reflector = self.next_reflector;
        self.next_reflector = (reflector + 1) % self.reflectors.len();
        self.probes += 1;
        self.collector.on_probe();
        self.outstanding[reflector].push_back((self.probes, self.now));
        let probe = Probe {
            reflector,
            number: self.probes,
            sent: self.now,
            upload: 0,
            turned: self.now,
            clock_offset: 0,
        };
        self.enqueue(Direction::Upload, Packet::Probe(probe));
        self.after(gap, Event::NextProbe);
        self.probe_due = true;
    }

    fn probe_at_reflector(&mut self, mut probe: Probe) {
        let Some(reflection) = self.reflectors[probe.reflector].answer(self.now) else {
            return;
        };
        probe.turned = self.now + reflection.there;
        probe.clock_offset = reflection.clock_offset;
        let clock = self.trace.clock_at(probe.sent);
        probe.upload = signed(probe.turned) - signed(probe.sent) + probe.clock_offset - clock;
        let half = self.half();
        let shift = self.trace.shift_at(self.now);
        self.at(
            probe.turned + reflection.back + half + shift,
            Event::ProbeAtLine(probe),
        );
    }

    fn on_probe(&mut self, probe: Probe) {
        let outstanding = &mut self.outstanding[probe.reflector];
        let reflector = u16::try_from(probe.reflector).expect("few reflectors");
        let at = self.now;
        // It was given up before, or overtaken.
        let late = outstanding
            .front()
            .is_none_or(|(number, _)| *number > probe.number);
        while let Some((number, _)) = outstanding.front().filter(|(number, _)| *number <= probe.number) {
            let overtaken = *number != probe.number;
            outstanding.pop_front();
            if overtaken {
                self.samples.push(Sample {
                    at,
                    signal: Signal::Lost { reflector },
                });
            }
        }
        if late {
            return;
        }
        let signal = match self.signals {
            Signals::Echo | Signals::Tcp | Signals::Bypass => Signal::Echo {
                reflector,
                sent: probe.sent,
                rtt: self.now.since(probe.sent),
            },
            Signals::OneWay => Signal::OneWay {
                reflector,
                sent: probe.sent,
                download: signed(self.now) - signed(probe.turned) - probe.clock_offset
                    + self.trace.clock_at(self.now),
                upload: probe.upload,
            },
        };
        self.samples.push(Sample { at, signal });
        self.step_controller();
    }

    fn note_waiting(&mut self) {
        for (reflector, outstanding) in (0u16..).zip(&mut self.outstanding) {
            let now = self.now;
            while outstanding
                .front()
                .is_some_and(|(_, sent)| now.since(*sent) >= GIVE_UP)
            {
                outstanding.pop_front();
                self.samples.push(Sample {
                    at: now,
                    signal: Signal::Lost { reflector },
                });
            }
            if let Some((_, sent)) = outstanding.front() {
                self.samples.push(Sample {
                    at: now,
                    signal: Signal::Waiting {
                        reflector,
                        sent: *sent,
                    },
                });
            }
        }
    }

    /// Adds a sample of the user's own connection as observed on the device, with the noise of the far host, whose time stamps are in
    /// milliseconds.
    fn sample_tcp(&mut self, segment: &Segment, sent: Instant) {
        let flow = segment.flow;
        if !self.signals.has_flows() || self.now.since(self.sampled_at[flow]) < TCP_SAMPLE {
            return;
        }
        self.sampled_at[flow] = self.now;
        let noise = jitter(&mut self.random, self.trace.jitter).0 + self.trace.shift_at(self.now).0;
        // The time stamp clock of each far host has another phase.
        let phase = flow as u64 * 130_000;
        let stamp = (segment.stamped.0 + phase) / STAMP.0 * STAMP.0;
        let download = signed(self.now) - signed(Instant(stamp)) + signed(Instant(noise));
        let rtt = signed(self.now) - signed(sent) + signed(Instant(noise));
        self.samples.push(Sample {
            at: self.now,
            signal: Signal::Flow {
                flow: flow as u64,
                sent,
                download,
                upload: (flow >= UPLOADS).then_some(rtt - download),
            },
        });
    }

    // The controller.

    fn on_step(&mut self) {
        self.counted.upload = self.shapers.upload.sent();
        for direction in Direction::BOTH {
            let bytes = Bytes(self.counted[direction].0 - self.counted_before[direction].0);
            self.samples.push(Sample {
                at: self.now,
                signal: Signal::Traffic {
                    direction,
                    bytes,
                    span: STEP,
                },
            });
        }
        self.counted_before = self.counted;
        self.note_waiting();
        self.step_controller();
        self.after(STEP, Event::Step);
    }

    fn step_controller(&mut self) {
        let samples = std::mem::take(&mut self.samples);
        let truth = || truth(&self.fifos, self.now);
        let decision = self.pilot.step(self.now, &samples, truth);
        self.apply(decision);
    }

    fn apply(&mut self, decision: Decision) {
        self.decision = decision;
        for direction in Direction::BOTH {
            let choice = decision.rates[direction];
            self.shapers[direction].set_rate(choice.rate);
            self.collector
                .on_decision(self.now, direction, choice.rate, choice.reason);
        }
        self.probing = decision.probes;
        if self.probing != Probes::Off && !self.probe_due {
            self.probe_due = true;
            self.at(self.now, Event::NextProbe);
        }
    }

    fn look(&mut self) {
        let buffers = truth(&self.fifos, self.now).delay;
        let whole = PerDirection {
            download: Nanos(buffers.download.0 + self.shapers.download.sparse_delay(self.now).0),
            upload: Nanos(buffers.upload.0 + self.shapers.upload.sparse_delay(self.now).0),
        };
        self.collector.on_look(self.now, buffers, whole);
        for flow in 0..SENDERS {
            self.senders[flow].on_time(self.now);
            self.send(flow, None);
        }
        self.after(LOOK, Event::Look);
    }

    fn moment(&self) -> Moment {
        let Truth { capacity, delay } = truth(&self.fifos, self.now);
        Moment {
            time: self.now.since(START),
            decision: self.decision,
            capacity,
            delay,
        }
    }

    fn after(&mut self, span: Nanos, event: Event) {
        self.at(self.now + span, event);
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.number += 1;
        self.events.push(Scheduled {
            at,
            number: self.number,
            event,
        });
    }
}

fn truth(fifos: &PerDirection<Fifo>, now: Instant) -> Truth {
    Truth {
        capacity: PerDirection {
            download: fifos.download.line().at(now),
            upload: fifos.upload.line().at(now),
        },
        delay: PerDirection {
            download: fifos.download.delay(now),
            upload: fifos.upload.delay(now),
        },
    }
}

impl Pilot {
    fn step(&mut self, now: Instant, samples: &[Sample], truth: impl FnOnce() -> Truth) -> Decision {
        match self {
            Self::Controller(controller) => controller.step(now, samples),
            Self::Oracle(oracle) => oracle.step(now, truth()),
        }
    }
}

fn signed(at: Instant) -> i64 {
    i64::try_from(at.0).expect("a simulation is short")
}
