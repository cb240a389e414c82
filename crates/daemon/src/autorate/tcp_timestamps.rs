//! One-way delays between the device and the remote hosts of the user's TCP connections, from the timestamps (RFC 7323) of
//! segments that pass the device. Pure: no clock, no I/O.
//!
//! Download: the remote host's timestamp (TSval) says when it sent a segment, so the download's delay does not include any time
//! that the host waited before.
//!
//! Upload: the delay is known for data that the remote host acknowledged at once. That is the last segment that an acknowledgement
//! covers, if it covers more than one (a host delays the acknowledgement of a single segment for up to half a second, RFC 1122
//! section 4.2.3.2) and if none of them waited for a lost segment to be sent again. This is certain on slow uploads, where it
//! matters. Above about 2.5 Mbit/s only some segments are sampled, and those in between are not known. The echoed timestamp
//! (TSecr) would not do: it is that of the first segment, which waited for the next one.
//!
//! With a download, the timestamps of our acknowledgements come back as TSecr in its data.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use sqm_autorate::{Sample, Signal};
use sqm_core::direction::Direction;
use sqm_core::frame::{Frame, LinkType};
use sqm_core::packet::{Addresses, Packet, Tuple};
use sqm_core::units::{Instant, Nanos};

/// The first word of the TCP options in nearly all segments of a connection with timestamps: two bytes of padding, then kind 8,
/// length 10 (RFC 7323 appendix A).
pub(super) const USUAL_OPTIONS: u32 = 0x0101_080a;

/// The number of connections that are followed, first come, first served; a choice.
const MAX_FLOWS: usize = 8;
/// The number of unanswered segments that are stored for each connection; a choice.
const MAX_SENT: usize = 64;
/// A silent connection and an unanswered segment are forgotten after this; a choice.
const FORGET: Nanos = Nanos::from_millis(5000);
/// The shortest time between two samples of a connection. A choice: the controller reads samples this often.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(50);
/// How long a remote host's timestamps are compared with our clock to find the length of their tick; a choice.
const CALIBRATION: Nanos = Nanos::from_millis(1000);
/// The longest payload of a segment, bytes, except on a few local networks: Ethernet's MTU.
const MAX_SEGMENT: u32 = 1500;
/// The ticks of timestamp clocks that are fine enough to see a queue: those of common hosts. RFC 7323 section 5.4 allows ticks from
/// 1 ms to 1 s.
const TICKS: [Nanos; 2] = [Nanos::from_millis(1), Nanos::from_micros(1)];

/// The fields of a segment that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// A hash of the connection, equal in both directions.
    flow: u64,
    /// The sender's timestamp.
    tsval: u32,
    /// The acknowledgement number.
    ack: u32,
    /// The value that relates a segment that leaves to its answer.
    key: Match,
}

/// A value that a segment and its answer have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// The sequence number after the data of a segment that leaves; the acknowledgement number of an answer without data.
    End(u32),
    /// TSval of a segment without data that leaves; TSecr of an answer with data.
    Timestamp(u32),
}

impl Segment {
    /// Parses a packet that begins with its IP header. The bytes are not changed. `None` unless it is TCP with timestamps.
    pub(super) fn parse(bytes: &mut [u8], direction: Direction) -> Option<Self> {
        let sequence = sequence(bytes);
        let length = bytes.len() as u32;
        let frame = Frame::new(LinkType::Raw, bytes, length);
        let tcp = frame.tcp().filter(|tcp| !tcp.later_fragment)?;
        let [begin, tsval, tsecr] = [0, 4, 8].map(|at| {
            let word = tcp.options.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_be_bytes(*word))
        });
        let key = match (direction, tcp.payload) {
            (Direction::Upload, 0) => Match::Timestamp(tsval?),
            (Direction::Upload, payload) => Match::End(sequence?.wrapping_add(payload)),
            (Direction::Download, 0) => Match::End(tcp.ack),
            (Direction::Download, _) => Match::Timestamp(tsecr?),
        };
        (begin? == USUAL_OPTIONS).then_some(Self {
            flow: flow(tcp.tuple, direction),
            tsval: tsval?,
            ack: tcp.ack,
            key,
        })
    }
}

/// The sequence number of the first byte of a segment.
fn sequence(packet: &[u8]) -> Option<u32> {
    const IPV6_HEADER: usize = 40;
    let first = *packet.first()?;
    let header = match first >> 4 {
        4 => usize::from(first & 0x0f) * 4,
        _ => IPV6_HEADER,
    };
    let word = packet.get(header + 4..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*word))
}

/// A hash of a connection, equal in both directions.
fn flow(tuple: Tuple, direction: Direction) -> u64 {
    let mut ends = match tuple.addresses {
        Addresses::V4 { source, destination } => [source.to_ipv6_mapped(), destination.to_ipv6_mapped()],
        Addresses::V6 { source, destination } => [source, destination],
        Addresses::None => return 0,
    };
    let mut ports = [tuple.source_port, tuple.destination_port];
    if direction == Direction::Download {
        ends.reverse();
        ports.reverse();
    }
    let mut hasher = DefaultHasher::new();
    (ends, ports).hash(&mut hasher);
    hasher.finish()
}

/// The connections that are followed.
#[derive(Default)]
pub(super) struct FlowTracker(HashMap<u64, Flow>);

impl FlowTracker {
    /// Records a segment that leaves.
    pub(super) fn on_upload(&mut self, at: Instant, segment: Segment) {
        if !self.0.contains_key(&segment.flow) {
            if self.0.len() >= MAX_FLOWS {
                self.0.retain(|_, flow| at.since(flow.answered_at) < FORGET);
            }
            if self.0.len() >= MAX_FLOWS {
                return;
            }
        }
        let flow = self.0.entry(segment.flow).or_insert_with(|| Flow::new(at));
        flow.on_upload(at, segment.key);
    }

    /// Records a segment that arrives. Adds a sample if it answers a segment whose departure is known.
    pub(super) fn on_download(&mut self, at: Instant, segment: Segment, samples: &mut Vec<Sample>) {
        let Some(flow) = self.0.get_mut(&segment.flow) else {
            return;
        };
        let Some((sent, remote)) = flow.on_download(at, segment) else {
            return;
        };
        let upload = remote.saturating_sub(signed(sent));
        let signal = Signal::Flow {
            flow: segment.flow,
            sent,
            download: signed(at).saturating_sub(remote),
            upload: matches!(segment.key, Match::End(_)).then_some(upload),
        };
        samples.push(Sample { at, signal });
    }
}

/// One connection.
struct Flow {
    /// Unanswered segments, oldest first, and when they left. The time is `None` if it is not known which transmission an answer is
    /// for, or if the answer waits for another segment.
    sent: VecDeque<(Match, Option<Instant>)>,
    /// The highest acknowledgement number of the remote host.
    acknowledged: Option<u32>,
    /// When an answer arrived last.
    answered_at: Instant,
    /// When the last sample was taken.
    sampled_at: Option<Instant>,
    clock: Option<Clock>,
}

impl Flow {
    const fn new(at: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            acknowledged: None,
            answered_at: at,
            sampled_at: None,
            clock: None,
        }
    }

    fn on_upload(&mut self, at: Instant, key: Match) {
        match (self.sent.iter_mut().find(|(sent, _)| *sent == key), key) {
            // If several segments carry one timestamp, the first one counts.
            (Some(_), Match::Timestamp(_)) => {}
            // A retransmission.
            (Some((_, at)), Match::End(_)) => *at = None,
            (None, _) => {
                if let Match::End(end) = key {
                    self.forget_times_after(end);
                }
                if self.sent.len() >= MAX_SENT {
                    self.sent.pop_front();
                }
                self.sent.push_back((key, Some(at)));
            }
        }
    }

    /// Forgets the times of segments with a higher sequence number that left before: this one fills a gap, and their
    /// acknowledgement waited for it.
    fn forget_times_after(&mut self, end: u32) {
        for (key, at) in &mut self.sent {
            if matches!(*key, Match::End(sent) if is_after(sent, end)) {
                *at = None;
            }
        }
    }

    /// Records an acknowledgement number. Returns `true` if it covers more than one new segment.
    fn acknowledge(&mut self, ack: u32) -> bool {
        let before = self.acknowledged.unwrap_or(ack);
        if self.acknowledged.is_none() || is_after(ack, before) {
            self.acknowledged = Some(ack);
        }
        is_after(ack, before.wrapping_add(MAX_SEGMENT))
    }

    /// When the answered segment left, and the remote host's clock at its answer, nanoseconds since an unknown moment. `None` if one
    /// of them is not known, or if no sample is due.
    fn on_download(&mut self, at: Instant, segment: Segment) -> Option<(Instant, i64)> {
        let is_at_once = self.acknowledge(segment.ack) || matches!(segment.key, Match::Timestamp(_));
        let index = self.sent.iter().position(|(key, _)| *key == segment.key)?;
        let sent = self.sent.drain(..=index).next_back()?.1?;
        self.answered_at = at;
        let clock = self.clock.get_or_insert_with(|| Clock::new(at, segment.tsval));
        let remote = clock.read(at, segment.tsval)?;
        let is_early = self
            .sampled_at
            .is_some_and(|sampled| at.since(sampled) < SAMPLE_INTERVAL);
        if is_early || !is_at_once || at.since(sent) >= FORGET {
            return None;
        }
        self.sampled_at = Some(at);
        Some((sent, remote))
    }
}

/// The timestamp clock of a remote host.
struct Clock {
    /// When calibration began, and the ticks at that time.
    began: (Instant, i64),
    /// The last timestamp, extended by the number of times that it has wrapped.
    ticks: i64,
    /// The length of a tick, after calibration.
    tick: Option<Nanos>,
}

impl Clock {
    fn new(at: Instant, tsval: u32) -> Self {
        let ticks = i64::from(tsval);
        Self {
            began: (at, ticks),
            ticks,
            tick: None,
        }
    }

    /// The clock's time in nanoseconds at `tsval`, which arrived at `at`; `None` before calibration has succeeded.
    fn read(&mut self, at: Instant, tsval: u32) -> Option<i64> {
        let moved = tsval.wrapping_sub(self.ticks as u32).cast_signed();
        self.ticks = self.ticks.saturating_add(moved.into());
        if self.tick.is_none() && at.since(self.began.0) >= CALIBRATION {
            self.tick = tick(at.since(self.began.0), self.ticks.saturating_sub(self.began.1));
            self.began = (at, self.ticks);
        }
        let tick = i64::try_from(self.tick?.0).ok()?;
        Some(self.ticks.saturating_mul(tick))
    }
}

/// The tick of a clock that has counted `ticks` within `span`. A deviation of half the span is allowed, because the delay of the
/// path may have changed in between.
fn tick(span: Nanos, ticks: i64) -> Option<Nanos> {
    let ticks = u64::try_from(ticks).ok()?;
    TICKS.into_iter().find(|tick| {
        let counted = ticks.saturating_mul(tick.0);
        (span.0 / 2..span.0 / 2 * 3).contains(&counted)
    })
}

/// `true` if a sequence number is after another one, modulo 2^32 (RFC 9293 section 3.4).
const fn is_after(number: u32, other: u32) -> bool {
    other.wrapping_sub(number).cast_signed() < 0
}

fn signed(at: Instant) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant((1000 + ms) * MS)
    }

    /// An IPv4 segment from port 1000 to 2000, or back, with `payload` bytes of data that are not included.
    pub(in super::super) fn packet(
        back: bool,
        [sequence, ack, tsval, tsecr]: [u32; 4],
        payload: u16,
    ) -> Vec<u8> {
        let mut bytes = vec![0x45, 0];
        bytes.extend((52 + payload).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        let mut ends = [([10, 0, 0, 1], 1000_u16), ([192, 0, 2, 7], 2000)];
        if back {
            ends.reverse();
        }
        ends.iter().for_each(|(address, _)| bytes.extend(address));
        ends.iter().for_each(|(_, port)| bytes.extend(port.to_be_bytes()));
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(ack.to_be_bytes());
        bytes.extend([0x80, 0x10, 0, 0, 0, 0, 0, 0]);
        bytes.extend(USUAL_OPTIONS.to_be_bytes());
        bytes.extend(tsval.to_be_bytes());
        bytes.extend(tsecr.to_be_bytes());
        bytes
    }

    /// The segment over IPv6.
    pub(in super::super) fn over_ipv6(packet: &[u8]) -> Vec<u8> {
        let payload = u16::from_be_bytes([packet[2], packet[3]]) - 20;
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(payload.to_be_bytes());
        bytes.extend([6, 64]);
        for end in [12, 16] {
            bytes.extend([0; 12]);
            bytes.extend(&packet[end..end + 4]);
        }
        bytes.extend(&packet[20..]);
        bytes
    }

    /// A remote host on a path with 10 ms upload delay and 20 ms download delay.
    struct Remote {
        flows: FlowTracker,
        samples: Vec<Sample>,
        micros_per_tick: u64,
        sequence: u32,
    }

    impl Remote {
        fn new(micros_per_tick: u64) -> Self {
            Self {
                flows: FlowTracker::default(),
                samples: Vec::new(),
                micros_per_tick,
                // Wraps soon.
                sequence: 0u32.wrapping_sub(10_000),
            }
        }

        fn receives(&mut self, ms: u64, key: Match) {
            let segment = Segment {
                flow: 1,
                tsval: ms as u32,
                ack: 1,
                key,
            };
            self.flows.on_upload(at(ms), segment);
        }

        /// The host sends an answer at this time, and the download's delay is `more` milliseconds longer than usual.
        fn answers(&mut self, ms: u64, key: Match, more: u64) {
            // The offset makes the clock wrap in the fifth second.
            let tsval = 0u32
                .wrapping_sub((5_000_000 / self.micros_per_tick) as u32)
                .wrapping_add((at(ms).0 / 1000 / self.micros_per_tick) as u32);
            let ack = match key {
                Match::End(end) => end,
                Match::Timestamp(_) => 1,
            };
            let segment = Segment {
                flow: 1,
                tsval,
                ack,
                key,
            };
            let arrives = Instant(at(ms).0 + (20 + more) * MS);
            self.flows.on_download(arrives, segment, &mut self.samples);
        }

        /// Two segments of an upload, the second `gap` after the first, are acknowledged together.
        fn upload(&mut self, ms: u64, gap: u64, more: u64) {
            let ends = [1448, 2896].map(|bytes| Match::End(self.sequence.wrapping_add(bytes)));
            self.sequence = self.sequence.wrapping_add(2896);
            self.receives(ms, ends[0]);
            self.receives(ms + gap, ends[1]);
            self.answers(ms + gap + 10, ends[1], more);
        }

        /// An acknowledgement of ours, and data of a download that the host sends `wait` milliseconds after it arrived.
        fn download(&mut self, ms: u64, wait: u64, more: u64) {
            let key = Match::Timestamp(ms as u32);
            self.receives(ms, key);
            self.answers(ms + 10 + wait, key, more);
        }

        /// The samples' delays of download and upload, as milliseconds above those of the first sample.
        fn delays(&self) -> Vec<(i64, Option<i64>)> {
            let delays = self.samples.iter().map(|sample| match sample.signal {
                Signal::Flow { download, upload, .. } => (download, upload),
                other => panic!("{other:?}"),
            });
            let delays: Vec<_> = delays.collect();
            let Some((first, up)) = delays.first().copied() else {
                return Vec::new();
            };
            let ms = MS as i64;
            delays
                .iter()
                .map(|(download, upload)| {
                    let upload = upload.map(|upload| (upload - up.unwrap_or(upload)) / ms);
                    ((download - first) / ms, upload)
                })
                .collect()
        }
    }

    #[test]
    fn both_directions_have_the_same_flow_hash() {
        let parse =
            |packet: &[u8], direction| Segment::parse(&mut packet.to_vec(), direction).expect("a segment");
        for version in [<[u8]>::to_vec, over_ipv6] {
            let upload = parse(&version(&packet(false, [500, 9, 7, 8], 1448)), Direction::Upload);
            let its_ack = parse(&version(&packet(true, [9, 1948, 77, 7], 0)), Direction::Download);
            assert_eq!((upload.flow, upload.key), (its_ack.flow, its_ack.key));
            assert_eq!((upload.tsval, its_ack.tsval), (7, 77));
            let ack = parse(&version(&packet(false, [500, 9, 7, 8], 0)), Direction::Upload);
            let download = parse(
                &version(&packet(true, [9, 500, 77, 7], 1448)),
                Direction::Download,
            );
            assert_eq!((ack.flow, ack.key), (download.flow, download.key));
            let other = parse(&version(&packet(true, [9, 500, 7, 8], 0)), Direction::Upload);
            assert_ne!(upload.flow, other.flow);
            let mut bytes = version(&packet(false, [1, 2, 7, 8], 0));
            for length in 0..bytes.len() {
                assert_eq!(Segment::parse(&mut bytes[..length], Direction::Upload), None);
            }
        }
    }

    #[test]
    fn an_upload_yields_both_one_way_delays_twenty_times_a_second() {
        for micros_per_tick in [1000, 1] {
            let mut remote = Remote::new(micros_per_tick);
            for n in 0..400 {
                let (gap, more) = if n >= 200 { (12, 30) } else { (1, 0) };
                remote.upload(n * 25, gap, more);
            }
            let delays = remote.delays();
            // The first second is for the calibration of the clock.
            assert!((176..=184).contains(&delays.len()), "{}", delays.len());
            assert_eq!(delays[0], (0, Some(0)));
            assert_eq!(delays[delays.len() - 1], (30, Some(0)), "a queue of the download");
        }
    }

    #[test]
    fn a_wait_of_the_remote_host_before_it_sends_is_not_measured() {
        let mut remote = Remote::new(1000);
        for n in 0..100 {
            let wait = if n >= 50 { 300 } else { 0 };
            remote.download(n * 100, wait, 0);
        }
        assert!(
            remote.delays().iter().all(|delays| *delays == (0, None)),
            "{:?}",
            remote.delays()
        );
        assert!(remote.samples.len() > 80);
    }

    #[test]
    fn a_delayed_acknowledgement_of_one_segment_yields_no_sample() {
        let mut remote = Remote::new(1000);
        (0..20).for_each(|n| remote.upload(n * 100, 1, 0));
        let before = remote.samples.len();
        for n in 20..60 {
            remote.sequence = remote.sequence.wrapping_add(1448);
            let end = Match::End(remote.sequence);
            remote.receives(n * 100, end);
            // The remote host's timer for delayed acknowledgements expires.
            remote.answers(n * 100 + 10 + 40, end, 0);
        }
        assert_eq!(remote.samples.len(), before);
        remote.upload(6000, 1, 0);
        assert_eq!(remote.delays().last(), Some(&(0, Some(0))));
        assert!(before > 5 && remote.samples.len() == before + 1);
    }

    #[test]
    fn segments_whose_acknowledgement_waited_for_a_lost_one_yield_no_sample() {
        let mut remote = Remote::new(1000);
        for n in 0..60 {
            remote.upload(n * 300, 1, 0);
            // Our own shaper drops one segment; the next three pass before it is sent again.
            let ends = [1, 2, 3, 4].map(|segment| Match::End(remote.sequence.wrapping_add(1448 * segment)));
            remote.sequence = remote.sequence.wrapping_add(1448 * 4);
            (0..3).for_each(|index| remote.receives(n * 300 + 150, ends[index + 1]));
            remote.receives(n * 300 + 180, ends[0]);
            remote.answers(n * 300 + 190, ends[3], 0);
        }
        assert!(remote.samples.len() > 50);
        assert!(
            remote.delays().iter().all(|delays| *delays == (0, Some(0))),
            "{:?}",
            remote.delays()
        );
    }

    #[test]
    fn a_retransmitted_segment_yields_no_sample() {
        let mut remote = Remote::new(1000);
        for n in 0..50 {
            let key = Match::End(n * 2896);
            let ms = u64::from(n) * 100;
            // Sent twice or three times.
            remote.receives(ms, key);
            remote.receives(ms + 50, key);
            if n % 2 == 0 {
                remote.receives(ms + 60, key);
            }
            remote.answers(ms + 70, key, 0);
        }
        assert_eq!(remote.samples, []);
    }

    #[test]
    fn a_connection_that_was_forgotten_is_followed_again_with_comparable_delays() {
        let mut remote = Remote::new(1000);
        (60..80).for_each(|n| remote.upload(n * 100, 1, 0));
        // Other connections take its place.
        for flow in 2..20 {
            let key = Match::Timestamp(1);
            let segment = Segment {
                flow,
                tsval: 1,
                ack: 1,
                key,
            };
            remote.flows.on_upload(at(20_000 + flow), segment);
        }
        assert!(!remote.flows.0.contains_key(&1));
        (0..50).for_each(|n| remote.upload(60_000 + n * 100, 1, 0));
        assert!(
            remote.delays().iter().all(|delays| *delays == (0, Some(0))),
            "{:?}",
            remote.delays()
        );
        assert!(remote.samples.len() > 40);
    }

    #[test]
    fn a_clock_with_an_unknown_tick_yields_no_samples() {
        for micros_per_tick in [10_000, 4000, 100_000, 30] {
            let mut remote = Remote::new(micros_per_tick);
            (0..100).for_each(|n| remote.upload(n * 100, 1, 0));
            assert_eq!(remote.samples, [], "{micros_per_tick}");
        }
    }

    #[test]
    fn unanswered_segments_and_silent_connections_are_forgotten() {
        let mut flows = FlowTracker::default();
        for n in 0..100_000_u32 {
            let segment = Segment {
                flow: u64::from(n % 100),
                tsval: n,
                ack: 1,
                key: Match::End(n),
            };
            flows.on_upload(at(u64::from(n)), segment);
        }
        assert_eq!(flows.0.len(), MAX_FLOWS);
        assert!(flows.0.values().all(|flow| flow.sent.len() <= MAX_SENT));
    }

    #[test]
    fn arbitrary_segments_do_not_panic() {
        let (mut flows, mut samples) = (FlowTracker::default(), Vec::new());
        let mut tsval = 1_u32;
        for n in 0..20_000 {
            tsval = tsval.wrapping_mul(0x9e37_79b1).wrapping_add(n);
            let segment = Segment {
                flow: u64::from(tsval % 9),
                tsval,
                ack: tsval,
                key: Match::Timestamp(n),
            };
            flows.on_upload(at(u64::from(n)), segment);
            flows.on_download(at(u64::from(n) + 1), segment, &mut samples);
        }
    }
}
