//! What packets of each size take on the narrowest part of a path, in a few seconds: trains of ICMP echo requests, which leave
//! at once and come back as far apart as that part let them.
//!
//! That part should be the access line, idle and unshaped. The answers have the size of the requests, so that it is the upload
//! wherever that is not faster than the download. [`crate::overhead_fit::Fit`] makes framing and overhead of what is found.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::overhead_fit::{HEADERS_V4, HEADERS_V6, Point};
use crate::probe::{Icmp, ProbeSocket, Received};
use crate::stats;

/// Bytes of IP: half of the places within an ATM cell of 48, and no packet is long.
const SMALLEST: usize = 76;
const STEP: usize = 11;
const SIZES: usize = 24;
/// Bytes of a train, and of its head, which a line may let through faster: credit of a token bucket, an idle radio.
const TRAIN: usize = 10_000;
const HEAD: usize = 5_500;
/// Both halves behind the head must agree to this share, or the credit was not used up.
const STEADY: f64 = 0.05;
/// Rounds over all sizes, none begun after so long.
const ROUNDS: usize = 3;
const LONGEST: Duration = Duration::from_secs(4);
/// Nothing comes any more.
const SILENCE: Duration = Duration::from_millis(1000);
/// A train that lost a larger share of its answers says nothing.
const MOST_LOST: f64 = 0.1;

/// Sends the trains. Each point's payload is what TCP would have had in a packet of that size, and its goodput what TCP would
/// have had of the line in such packets.
pub fn measure(host: IpAddr, stop: &AtomicBool) -> io::Result<Vec<Point>> {
    let headers = if host.is_ipv6() { HEADERS_V6 } else { HEADERS_V4 };
    let begun = Instant::now();
    let mut found = vec![Vec::new(); SIZES];
    let mut number = 0;
    for _ in 0..ROUNDS {
        for (place, spans) in found.iter_mut().enumerate() {
            if stop.load(Ordering::Acquire) || begun.elapsed() > LONGEST {
                break;
            }
            // Neighbours in size are not neighbours in time.
            let size = size(place);
            let mut icmp = Icmp::open(host, 0)?.of_size(size);
            spans.extend(train(&mut icmp, size, &mut number, begun + LONGEST + SILENCE)?);
        }
    }
    let points = found.iter().enumerate().filter_map(|(place, spans)| {
        let payload = size(place) as f64 - headers;
        let seconds = stats::median(spans)?;
        (payload >= 1.0 && seconds > 0.0).then(|| Point {
            payload,
            goodput_mbit: payload * 8.0 / 1e6 / seconds,
        })
    });
    Ok(points.collect())
}

fn size(place: usize) -> usize {
    SMALLEST + STEP * (place * 5 % SIZES)
}

/// Seconds from one packet of a train to the next; none if too much of it is lost, or comes after `end`.
fn train(icmp: &mut Icmp, size: usize, number: &mut u32, end: Instant) -> io::Result<Option<f64>> {
    let (first, count) = (*number, (TRAIN / size) as u32);
    *number += count;
    for packet in first..first + count {
        icmp.send(packet)?;
    }
    let mut arrivals: Vec<(u32, Instant)> = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < SILENCE && Instant::now() < end && arrivals.len() < count as usize {
        if let Received::Answer(answer) = icmp.receive(end.min(last + SILENCE))
            && answer.sequence >= first
        {
            arrivals.push((answer.sequence - first, answer.at));
            last = answer.at;
        }
    }
    if (arrivals.len() as f64) < f64::from(count) * (1.0 - MOST_LOST) {
        return Ok(None);
    }
    Ok(spacing(&arrivals, (HEAD / size) as u32, count))
}

/// The steady spacing behind the head.
fn spacing(arrivals: &[(u32, Instant)], head: u32, count: u32) -> Option<f64> {
    let middle = u32::midpoint(head, count);
    let early = slope(arrivals, head..middle)?;
    let late = slope(arrivals, middle..count)?;
    let is_steady = (early / late - 1.0).abs() <= STEADY;
    slope(arrivals, head..count).filter(|_| is_steady)
}

/// Seconds from one packet to the next by least squares.
fn slope(arrivals: &[(u32, Instant)], packets: Range<u32>) -> Option<f64> {
    let (_, origin) = *arrivals.first()?;
    let points: Vec<(f64, f64)> = arrivals
        .iter()
        .filter(|(packet, _)| packets.contains(packet))
        .map(|(packet, at)| (f64::from(*packet), (*at - origin).as_secs_f64()))
        .collect();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sxx: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (sxx > 0.0 && sxy > 0.0).then(|| sxy / sxx)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets two milliseconds apart behind a head that comes at once, without the one that is lost.
    fn arrivals(head: u32, lost: u32) -> Vec<(u32, Instant)> {
        let begin = Instant::now();
        (0..60)
            .filter(|packet| *packet != lost)
            .map(|packet| {
                (
                    packet,
                    begin + Duration::from_millis(2) * packet.saturating_sub(head),
                )
            })
            .collect()
    }

    #[test]
    fn a_train_tells_its_spacing_behind_its_head() {
        let seconds = spacing(&arrivals(28, 40), 30, 60).unwrap();
        assert!((seconds - 0.002).abs() < 1e-6, "{seconds}");
        assert_eq!(
            spacing(&arrivals(40, 50), 30, 60),
            None,
            "the credit lasted longer"
        );
        assert_eq!(spacing(&[], 0, 0), None);
    }

    #[test]
    fn every_size_has_a_place_of_its_own_in_a_cell() {
        let mut places: Vec<_> = (0..SIZES).map(|place| size(place) % 48).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), SIZES);
    }
}
