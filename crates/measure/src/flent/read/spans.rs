//! netperf's UDP_RR in a Flent file: intervals of requests one after another, each with their mean round trip.
//!
//! netperf waits for the answer to one request before it sends the next. Lost requests are not repeated: the first one stops the
//! series, and the last line, which netperf prints when the test ends, spans all the time since then. Its mean is no round trip.

/// An interval is no round trip if it is this many times as long as the longest of its neighbours. Round trips that grow with a queue
/// grow by less from one interval to the next. Flent leaves out outliers by the same factor.
const JUMP: f64 = 10.0;
/// The last interval ends with the test and not with an answer, so that a smaller factor is enough. A choice.
const LAST_JUMP: f64 = 3.0;

/// The intervals that are no round trips, by their place. `spans` and `step` in seconds, in order of time.
pub(super) fn stalled(spans: &[f64], step: f64) -> Vec<usize> {
    let at = |place: Option<usize>| place.and_then(|place| spans.get(place)).copied().unwrap_or(0.0);
    let is_stalled = |place: &usize| {
        let (before, after) = (at(place.checked_sub(1)), at(place.checked_add(1)));
        let factor = if place + 1 == spans.len() { LAST_JUMP } else { JUMP };
        spans[*place] > factor * before.max(after).max(step)
    };
    (0..spans.len()).filter(is_stalled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_much_longer_than_its_neighbours_is_no_round_trip() {
        assert_eq!(stalled(&[0.2, 0.2, 69.5], 0.2), [2]);
        assert_eq!(stalled(&[64.8], 0.2), [0]);
        assert_eq!(stalled(&[0.2, 0.2, 30.0, 0.2, 0.2], 0.2), [2]);
        // A series that stops while a queue of seconds is filling.
        assert_eq!(stalled(&[0.2, 0.7, 1.8, 3.1, 3.2, 40.0], 0.2), [5]);
        assert_eq!(stalled(&[], 0.2), [0; 0]);
    }

    #[test]
    fn round_trips_of_a_deep_queue_are_round_trips() {
        assert_eq!(
            stalled(&[0.2, 0.25, 1.4, 3.0, 3.1, 2.9, 0.2, 0.2, 0.1], 0.2),
            [0; 0]
        );
        assert_eq!(stalled(&[0.2, 1.9, 0.2], 0.2), [0; 0]);
    }
}
