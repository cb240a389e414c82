//! Measures in a few seconds how long packets of each size occupy the bottleneck of a path. A packet train is a number of ICMP echo
//! requests that are sent at once; the bottleneck determines the time between their answers.
//!
//! The bottleneck should be the access line, idle and unshaped. The answers are as large as the requests, so that the bottleneck is the
//! upload unless it is faster than the download. [`crate::overhead_fit::Fit`] finds framing and overhead from the points.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::overhead_fit::{HEADERS_V4, HEADERS_V6, Point};
use crate::probe::{Icmp, ProbeSocket, Received};
use crate::stats;

/// Lengths of the packets, bytes of IP: the smallest, the step, and their number. Modulo 48, the payload of an ATM cell, the lengths
/// take 24 different values.
const SMALLEST: usize = 76;
const STEP: usize = 11;
const SIZES: usize = 24;
/// Bytes of a train, and of its head, which does not count: a token bucket with credit, or an idle radio, lets it through faster.
/// Choices.
const TRAIN: usize = 10_000;
const HEAD: usize = 5_500;
/// Largest relative difference between the two halves behind the head. Beyond it, the credit lasted longer than the head. A choice.
const STEADY: f64 = 0.05;
/// Number of rounds over all sizes, and the time after which no train begins. Choices.
const ROUNDS: usize = 3;
const LONGEST: Duration = Duration::from_secs(4);
/// A train is over if no answer comes for this long. A choice.
const SILENCE: Duration = Duration::from_millis(1000);
/// Largest share of lost answers. With more, the train does not count. A choice.
const MOST_LOST: f64 = 0.1;

/// Sends the trains. A point has the TCP payload of a packet of that size, and the goodput that TCP would have with
/// such packets.
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
            // The order is not that of the sizes, so that a change of the line does not look like an effect of the size.
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

/// Length of the packets at a place in the order of trains, bytes of IP.
fn size(place: usize) -> usize {
    SMALLEST + STEP * (place * 5 % SIZES)
}

/// Sends a train. Returns the seconds from one packet to the next. `None` if too many answers are lost, or are not here by `end`.
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

/// Seconds from one packet to the next behind the head. `None` if the spacing is not steady.
fn spacing(arrivals: &[(u32, Instant)], head: u32, count: u32) -> Option<f64> {
    let middle = u32::midpoint(head, count);
    let early = slope(arrivals, head..middle)?;
    let late = slope(arrivals, middle..count)?;
    let is_steady = (early / late - 1.0).abs() <= STEADY;
    slope(arrivals, head..count).filter(|_| is_steady)
}

/// Seconds from one packet to the next, by least squares.
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

    /// Arrivals two milliseconds apart, behind a head that arrives at once and without one lost packet.
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
    fn the_spacing_behind_the_head_is_measured() {
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
    fn every_size_fills_the_last_atm_cell_differently() {
        let mut places: Vec<_> = (0..SIZES).map(|place| size(place) % 48).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), SIZES);
    }
}
