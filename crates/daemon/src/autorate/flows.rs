//! Delays each way of the user's own TCP connections between the device and their far ends, from the time stamps (RFC 7323) of
//! segments that pass. Pure.
//!
//! The far host's stamp tells when it sent: what arrives took so long from there, whatever the far host waited for before. The way
//! there is known of data that is acknowledged at once: the last of what an acknowledgement is for, if that is more than one segment
//! (RFC 1122 section 4.2.3.2: one alone waits for the next, up to half a second) and none of it waited for another that had been lost.
//! That is certain on slow lines, where it matters: of more than about 2.5 Mbit/s the tap picks some segments, and those between are
//! not known. (The stamp that it echoes is the first one's, which waited for the next.) With a download the stamps of our
//! acknowledgements come back with its data.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use sqm_autorate::{Sample, Signal};
use sqm_core::frame::{Frame, LinkType};
use sqm_core::packet::{Addresses, Packet, Tuple};
use sqm_core::units::{Instant, Nanos};

use super::tap::Way;

/// How TCP options begin in nearly all segments of a connection with time stamps: two of padding, then kind 8, length 10
/// (RFC 7323 appendix A).
pub(super) const USUAL_OPTIONS: u32 = 0x0101_080a;

/// So many connections are followed: those that were there first.
const MOST_FLOWS: usize = 8;
/// So many segments of each that nothing has come back of, and so long.
const MOST_SENT: usize = 64;
const FORGET: Nanos = Nanos::from_millis(5000);
/// Of each connection at most twenty samples a second: they are read as often.
const BETWEEN: Nanos = Nanos::from_millis(50);
/// How long a far host's stamps are compared with our clock until it is known what they count.
const LEARN: Nanos = Nanos::from_millis(1000);
/// The data of a segment is no more than this, but for a few local networks.
const FULL: u32 = 1500;
/// What hosts count, of what tells a queue apart (RFC 7323 section 5.4 allows up to a second).
const TICKS: [Nanos; 2] = [Nanos::from_millis(1), Nanos::from_micros(1)];

/// What one segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The same in both directions.
    flow: u64,
    stamp: u32,
    /// What it acknowledges.
    ack: u32,
    /// What to know it by when it comes back: of data that leaves its end, of what arrives without data what it acknowledges, else
    /// the stamp of what leaves and the echo of what arrives.
    mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    End(u32),
    Stamp(u32),
}

impl Segment {
    /// Of a packet from its IP header on; nothing is changed in it.
    pub(super) fn of(bytes: &mut [u8], way: Way) -> Option<Self> {
        let sequence = sequence(bytes);
        let length = bytes.len() as u32;
        let frame = Frame::new(LinkType::Raw, bytes, length);
        let tcp = frame.tcp().filter(|tcp| !tcp.later_fragment)?;
        let [begin, stamp, echo] = [0, 4, 8].map(|at| {
            let word = tcp.options.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_be_bytes(*word))
        });
        let mark = match (way, tcp.payload) {
            (Way::Leaving, 0) => Mark::Stamp(stamp?),
            (Way::Leaving, payload) => Mark::End(sequence?.wrapping_add(payload)),
            (Way::Arriving, 0) => Mark::End(tcp.ack),
            (Way::Arriving, _) => Mark::Stamp(echo?),
        };
        (begin? == USUAL_OPTIONS).then_some(Self {
            flow: flow(tcp.tuple, way),
            stamp: stamp?,
            ack: tcp.ack,
            mark,
        })
    }
}

/// Where the data of a segment begins.
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

/// The same number for both directions of a connection.
fn flow(tuple: Tuple, way: Way) -> u64 {
    let mut ends = match tuple.addresses {
        Addresses::V4 { source, destination } => [source.to_ipv6_mapped(), destination.to_ipv6_mapped()],
        Addresses::V6 { source, destination } => [source, destination],
        Addresses::None => return 0,
    };
    let mut ports = [tuple.source_port, tuple.destination_port];
    if way == Way::Arriving {
        ends.reverse();
        ports.reverse();
    }
    let mut hasher = DefaultHasher::new();
    (ends, ports).hash(&mut hasher);
    hasher.finish()
}

/// The connections that are followed.
#[derive(Default)]
pub(super) struct Flows(HashMap<u64, Flow>);

impl Flows {
    /// A segment has left.
    pub(super) fn leaves(&mut self, at: Instant, segment: Segment) {
        if !self.0.contains_key(&segment.flow) {
            if self.0.len() >= MOST_FLOWS {
                self.0.retain(|_, flow| at.since(flow.heard_at) < FORGET);
            }
            if self.0.len() >= MOST_FLOWS {
                return;
            }
        }
        let flow = self.0.entry(segment.flow).or_insert_with(|| Flow::new(at));
        flow.leaves(at, segment.mark);
    }

    /// A segment has arrived: it tells of what it answers.
    pub(super) fn arrives(&mut self, at: Instant, segment: Segment, samples: &mut Vec<Sample>) {
        let Some(flow) = self.0.get_mut(&segment.flow) else {
            return;
        };
        let Some((sent, stamped)) = flow.arrives(at, segment) else {
            return;
        };
        let upload = stamped.saturating_sub(signed(sent));
        let signal = Signal::Flow {
            flow: segment.flow,
            sent,
            download: signed(at).saturating_sub(stamped),
            upload: matches!(segment.mark, Mark::End(_)).then_some(upload),
        };
        samples.push(Sample { at, signal });
    }
}

/// One connection.
struct Flow {
    /// What left and has not come back, oldest first, and when; of what was sent again nobody knows which is acknowledged.
    sent: VecDeque<(Mark, Option<Instant>)>,
    /// The last that the far host acknowledged.
    acknowledged: Option<u32>,
    heard_at: Instant,
    told_at: Option<Instant>,
    clock: Option<Clock>,
}

impl Flow {
    const fn new(at: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            acknowledged: None,
            heard_at: at,
            told_at: None,
            clock: None,
        }
    }

    fn leaves(&mut self, at: Instant, mark: Mark) {
        match (self.sent.iter_mut().find(|(sent, _)| *sent == mark), mark) {
            // Several with one stamp: the first one counts.
            (Some(_), Mark::Stamp(_)) => {}
            (Some((_, at)), Mark::End(_)) => *at = None,
            (None, _) => {
                if let Mark::End(end) = mark {
                    self.forget_beyond(end);
                }
                if self.sent.len() >= MOST_SENT {
                    self.sent.pop_front();
                }
                self.sent.push_back((mark, Some(at)));
            }
        }
    }

    /// What left before with a higher number has waited at the far end for this one, which had been lost before it came here.
    fn forget_beyond(&mut self, end: u32) {
        for (mark, at) in &mut self.sent {
            if matches!(*mark, Mark::End(sent) if is_after(sent, end)) {
                *at = None;
            }
        }
    }

    /// Takes what the far host acknowledges; whether that is more than one segment.
    fn acknowledge(&mut self, ack: u32) -> bool {
        let before = self.acknowledged.unwrap_or(ack);
        if self.acknowledged.is_none() || is_after(ack, before) {
            self.acknowledged = Some(ack);
        }
        is_after(ack, before.wrapping_add(FULL))
    }

    /// When what this answers left, and what the far host's clock showed, in nanoseconds since whenever; if both are known, and to be
    /// told.
    fn arrives(&mut self, at: Instant, segment: Segment) -> Option<(Instant, i64)> {
        let is_at_once = self.acknowledge(segment.ack) || matches!(segment.mark, Mark::Stamp(_));
        let index = self.sent.iter().position(|(mark, _)| *mark == segment.mark)?;
        let sent = self.sent.drain(..=index).next_back()?.1?;
        self.heard_at = at;
        let clock = self.clock.get_or_insert_with(|| Clock::new(at, segment.stamp));
        let stamped = clock.read(at, segment.stamp)?;
        let is_early = self.told_at.is_some_and(|told| at.since(told) < BETWEEN);
        if is_early || !is_at_once || at.since(sent) >= FORGET {
            return None;
        }
        self.told_at = Some(at);
        Some((sent, stamped))
    }
}

/// A far host's clock.
struct Clock {
    /// When it was first read, and what it showed.
    began: (Instant, i64),
    /// What it showed last: the newest stamp, and how often that has turned over.
    ticks: i64,
    /// How long one takes, once that is known.
    tick: Option<Nanos>,
}

impl Clock {
    fn new(at: Instant, stamp: u32) -> Self {
        let ticks = i64::from(stamp);
        Self {
            began: (at, ticks),
            ticks,
            tick: None,
        }
    }

    fn read(&mut self, at: Instant, stamp: u32) -> Option<i64> {
        let moved = stamp.wrapping_sub(self.ticks as u32).cast_signed();
        self.ticks = self.ticks.saturating_add(moved.into());
        if self.tick.is_none() && at.since(self.began.0) >= LEARN {
            self.tick = tick(at.since(self.began.0), self.ticks.saturating_sub(self.began.1));
            self.began = (at, self.ticks);
        }
        let tick = i64::try_from(self.tick?.0).ok()?;
        Some(self.ticks.saturating_mul(tick))
    }
}

/// What was counted so often in this time, give or take a half for what the path has become longer or shorter.
fn tick(span: Nanos, ticks: i64) -> Option<Nanos> {
    let ticks = u64::try_from(ticks).ok()?;
    TICKS.into_iter().find(|tick| {
        let counted = ticks.saturating_mul(tick.0);
        (span.0 / 2..span.0 / 2 * 3).contains(&counted)
    })
}

/// Whether a number of a sequence that turns over comes after another (RFC 9293 section 3.4).
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

    /// An IPv4 segment from port 1000 to 2000 or back, with these stamps and so many bytes of data.
    pub(in super::super) fn packet(
        back: bool,
        [sequence, ack, stamp, echo]: [u32; 4],
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
        bytes.extend(stamp.to_be_bytes());
        bytes.extend(echo.to_be_bytes());
        bytes
    }

    /// The same segment over IPv6.
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

    /// A far host on a path of 10 ms there and 20 ms back, whose clock ticks so often.
    struct Far {
        flows: Flows,
        samples: Vec<Sample>,
        micros_per_tick: u64,
        sequence: u32,
    }

    impl Far {
        fn new(micros_per_tick: u64) -> Self {
            Self {
                flows: Flows::default(),
                samples: Vec::new(),
                micros_per_tick,
                // Turns over soon.
                sequence: 0u32.wrapping_sub(10_000),
            }
        }

        fn leaves(&mut self, ms: u64, mark: Mark) {
            let segment = Segment {
                flow: 1,
                stamp: ms as u32,
                ack: 1,
                mark,
            };
            self.flows.leaves(at(ms), segment);
        }

        /// The host sends at this time, which takes `more` than usual.
        fn answers(&mut self, ms: u64, mark: Mark, more: u64) {
            // Its clock began somewhere, so that it turns over in the fifth second.
            let stamp = 0u32
                .wrapping_sub((5_000_000 / self.micros_per_tick) as u32)
                .wrapping_add((at(ms).0 / 1000 / self.micros_per_tick) as u32);
            let ack = match mark {
                Mark::End(end) => end,
                Mark::Stamp(_) => 1,
            };
            let segment = Segment {
                flow: 1,
                stamp,
                ack,
                mark,
            };
            let arrives = Instant(at(ms).0 + (20 + more) * MS);
            self.flows.arrives(arrives, segment, &mut self.samples);
        }

        /// Two segments of an upload, the second `gap` after the first, are acknowledged together.
        fn upload(&mut self, ms: u64, gap: u64, more: u64) {
            let ends = [1448, 2896].map(|bytes| Mark::End(self.sequence.wrapping_add(bytes)));
            self.sequence = self.sequence.wrapping_add(2896);
            self.leaves(ms, ends[0]);
            self.leaves(ms + gap, ends[1]);
            self.answers(ms + gap + 10, ends[1], more);
        }

        /// An acknowledgement of ours, and data of a download that the host sends `wait` after it came.
        fn download(&mut self, ms: u64, wait: u64, more: u64) {
            let mark = Mark::Stamp(ms as u32);
            self.leaves(ms, mark);
            self.answers(ms + 10 + wait, mark, more);
        }

        /// Milliseconds each way more than the first sample.
        fn seen(&self) -> Vec<(i64, Option<i64>)> {
            let told = self.samples.iter().map(|sample| match sample.signal {
                Signal::Flow { download, upload, .. } => (download, upload),
                other => panic!("{other:?}"),
            });
            let told: Vec<_> = told.collect();
            let Some((first, up)) = told.first().copied() else {
                return Vec::new();
            };
            let ms = MS as i64;
            told.iter()
                .map(|(download, upload)| {
                    let upload = upload.map(|upload| (upload - up.unwrap_or(upload)) / ms);
                    ((download - first) / ms, upload)
                })
                .collect()
        }
    }

    #[test]
    fn both_directions_are_one_flow() {
        let of = |packet: &[u8], way| Segment::of(&mut packet.to_vec(), way).expect("one");
        for same in [<[u8]>::to_vec, over_ipv6] {
            let upload = of(&same(&packet(false, [500, 9, 7, 8], 1448)), Way::Leaving);
            let its_ack = of(&same(&packet(true, [9, 1948, 77, 7], 0)), Way::Arriving);
            assert_eq!((upload.flow, upload.mark), (its_ack.flow, its_ack.mark));
            assert_eq!((upload.stamp, its_ack.stamp), (7, 77));
            let ack = of(&same(&packet(false, [500, 9, 7, 8], 0)), Way::Leaving);
            let download = of(&same(&packet(true, [9, 500, 77, 7], 1448)), Way::Arriving);
            assert_eq!((ack.flow, ack.mark), (download.flow, download.mark));
            let other = of(&same(&packet(true, [9, 500, 7, 8], 0)), Way::Leaving);
            assert_ne!(upload.flow, other.flow);
            let mut bytes = same(&packet(false, [1, 2, 7, 8], 0));
            for length in 0..bytes.len() {
                assert_eq!(Segment::of(&mut bytes[..length], Way::Leaving), None);
            }
        }
    }

    #[test]
    fn an_upload_tells_both_ways_twenty_times_a_second_however_far_apart_its_segments_are() {
        for micros_per_tick in [1000, 1] {
            let mut far = Far::new(micros_per_tick);
            for n in 0..400 {
                let (gap, more) = if n >= 200 { (12, 30) } else { (1, 0) };
                far.upload(n * 25, gap, more);
            }
            let seen = far.seen();
            // The first second is for its clock.
            assert!((176..=184).contains(&seen.len()), "{}", seen.len());
            assert_eq!(seen[0], (0, Some(0)));
            assert_eq!(seen[seen.len() - 1], (30, Some(0)), "a queue of the download");
        }
    }

    #[test]
    fn what_a_download_waits_for_at_its_far_end_is_no_queue() {
        let mut far = Far::new(1000);
        for n in 0..100 {
            let wait = if n >= 50 { 300 } else { 0 };
            far.download(n * 100, wait, 0);
        }
        assert!(
            far.seen().iter().all(|seen| *seen == (0, None)),
            "{:?}",
            far.seen()
        );
        assert!(far.samples.len() > 80);
    }

    #[test]
    fn a_segment_that_waited_for_the_next_at_the_far_end_tells_nothing() {
        let mut far = Far::new(1000);
        (0..20).for_each(|n| far.upload(n * 100, 1, 0));
        let told = far.samples.len();
        for n in 20..60 {
            far.sequence = far.sequence.wrapping_add(1448);
            let end = Mark::End(far.sequence);
            far.leaves(n * 100, end);
            // Acknowledged when the far host's patience was at its end.
            far.answers(n * 100 + 10 + 40, end, 0);
        }
        assert_eq!(far.samples.len(), told);
        far.upload(6000, 1, 0);
        assert_eq!(far.seen().last(), Some(&(0, Some(0))));
        assert!(told > 5 && far.samples.len() == told + 1);
    }

    #[test]
    fn what_waited_at_the_far_end_for_a_lost_segment_tells_nothing() {
        let mut far = Far::new(1000);
        for n in 0..60 {
            far.upload(n * 300, 1, 0);
            // Our own shaper drops one; the next three come before it is sent again.
            let ends = [1, 2, 3, 4].map(|segment| Mark::End(far.sequence.wrapping_add(1448 * segment)));
            far.sequence = far.sequence.wrapping_add(1448 * 4);
            (0..3).for_each(|index| far.leaves(n * 300 + 150, ends[index + 1]));
            far.leaves(n * 300 + 180, ends[0]);
            far.answers(n * 300 + 190, ends[3], 0);
        }
        assert!(far.samples.len() > 50);
        assert!(
            far.seen().iter().all(|seen| *seen == (0, Some(0))),
            "{:?}",
            far.seen()
        );
    }

    #[test]
    fn what_is_sent_again_tells_nothing() {
        let mut far = Far::new(1000);
        for n in 0..50 {
            let mark = Mark::End(n * 2896);
            let ms = u64::from(n) * 100;
            // Twice, or once more.
            far.leaves(ms, mark);
            far.leaves(ms + 50, mark);
            if n % 2 == 0 {
                far.leaves(ms + 60, mark);
            }
            far.answers(ms + 70, mark, 0);
        }
        assert_eq!(far.samples, []);
    }

    #[test]
    fn a_connection_that_pauses_goes_on_by_the_same_clock() {
        let mut far = Far::new(1000);
        (60..80).for_each(|n| far.upload(n * 100, 1, 0));
        // Others take its place.
        for flow in 2..20 {
            let mark = Mark::Stamp(1);
            let segment = Segment {
                flow,
                stamp: 1,
                ack: 1,
                mark,
            };
            far.flows.leaves(at(20_000 + flow), segment);
        }
        assert!(!far.flows.0.contains_key(&1));
        (0..50).for_each(|n| far.upload(60_000 + n * 100, 1, 0));
        assert!(
            far.seen().iter().all(|seen| *seen == (0, Some(0))),
            "{:?}",
            far.seen()
        );
        assert!(far.samples.len() > 40);
    }

    #[test]
    fn a_clock_of_unknown_ticks_tells_nothing() {
        for micros_per_tick in [10_000, 4000, 100_000, 30] {
            let mut far = Far::new(micros_per_tick);
            (0..100).for_each(|n| far.upload(n * 100, 1, 0));
            assert_eq!(far.samples, [], "{micros_per_tick}");
        }
    }

    #[test]
    fn what_never_comes_back_is_forgotten() {
        let mut flows = Flows::default();
        for n in 0..100_000_u32 {
            let segment = Segment {
                flow: u64::from(n % 100),
                stamp: n,
                ack: 1,
                mark: Mark::End(n),
            };
            flows.leaves(at(u64::from(n)), segment);
        }
        assert_eq!(flows.0.len(), MOST_FLOWS);
        assert!(flows.0.values().all(|flow| flow.sent.len() <= MOST_SENT));
    }

    #[test]
    fn any_segments_at_all_harm_nobody() {
        let (mut flows, mut samples) = (Flows::default(), Vec::new());
        let mut stamp = 1_u32;
        for n in 0..20_000 {
            stamp = stamp.wrapping_mul(0x9e37_79b1).wrapping_add(n);
            let segment = Segment {
                flow: u64::from(stamp % 9),
                stamp,
                ack: stamp,
                mark: Mark::Stamp(n),
            };
            flows.leaves(at(u64::from(n)), segment);
            flows.arrives(at(u64::from(n) + 1), segment, &mut samples);
        }
    }
}
