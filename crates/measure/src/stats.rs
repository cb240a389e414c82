//! Statistics of samples. Pure.

/// The `p`-th percentile (0 to 100) of `values`, which may be in any order. `None` for an empty set.
///
/// Linear interpolation between closest ranks: rank `p/100 · (n − 1)` of the sorted values, counted from zero
/// (Hyndman & Fan 1996, type 7; the default of NumPy and R). The 50th is the usual median.
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let rank = p.clamp(0.0, 100.0) / 100.0 * last as f64;
    let (below, above) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    Some(below + (above - below) * rank.fract())
}

/// The middle value; see [`percentile`].
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 50.0)
}

/// The `p`-th percentile (0 to 100) of weighted values: the smallest value whose predecessors and itself have `p` per cent of the weight.
/// `sorted` holds pairs of value and weight, in order of the values. `None` if there is no weight.
pub fn weighted_percentile(sorted: &[(f64, f64)], p: f64) -> Option<f64> {
    let wanted = sorted.iter().map(|(_, weight)| weight).sum::<f64>() * p.clamp(0.0, 100.0) / 100.0;
    let mut so_far = 0.0;
    let is_there = |(_, weight): &&(f64, f64)| {
        so_far += weight;
        // A tolerance for rounding: the two sums may differ in their last digits.
        so_far > 0.0 && so_far >= wanted * (1.0 - 1e-12)
    };
    sorted.iter().find(is_there).map(|(value, _)| *value)
}

/// The smallest of the largest `percent` per cent of the values, which are at least one value. `None` for an empty set.
///
/// Unlike [`percentile`] it does not interpolate: if one value in a hundred is large, the smallest of the largest 1 % is large.
pub fn fastest_of_slowest(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = (sorted.len() * percent).div_ceil(100);
    sorted.get(sorted.len() - count..)?.first().copied()
}

/// Arithmetic mean. `None` for an empty set.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Mean without this share of the largest values. `None` for an empty set.
pub fn mean_without_slowest(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let kept = (sorted.len() as f64 * (1.0 - share)).ceil() as usize;
    mean(&sorted[..kept.min(sorted.len())])
}

/// `part` as a share of `whole`, 0 to 1. Zero if `whole` is zero.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Jain's fairness index, `(Σx)² / (n · Σx²)`: 1 if all shares are equal, `1/n` if one takes all
/// (Jain, Chiu, Hawe 1984). `None` if there are no shares or all are zero.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_count_for_percentiles() {
        let sorted = [(1.0, 1.0), (2.0, 0.0), (3.0, 9.0)];
        let at = |p| weighted_percentile(&sorted, p);
        assert_eq!(
            [at(0.0), at(10.0), at(11.0), at(100.0)],
            [1.0, 1.0, 3.0, 3.0].map(Some)
        );
        assert_eq!(weighted_percentile(&[(1.0, 0.0)], 50.0), None);
    }

    #[test]
    fn percentiles_interpolate_between_closest_ranks() {
        let values = [40.0, 10.0, 30.0, 20.0];
        assert_eq!(median(&values), Some(25.0));
        assert_eq!(percentile(&values, 0.0), Some(10.0));
        assert_eq!(percentile(&values, 100.0), Some(40.0));
        assert!((percentile(&values, 95.0).unwrap() - 38.5).abs() < 1e-9);
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn one_large_value_in_a_hundred_is_in_the_slowest_hundredth() {
        let mut values = vec![20.0; 990];
        values.extend([1500.0; 10]);
        assert_eq!(fastest_of_slowest(&values, 1), Some(1500.0));
        assert!(percentile(&values, 99.0) < Some(40.0), "interpolation hides them");
        assert_eq!(fastest_of_slowest(&values, 5), Some(20.0));
        assert_eq!(fastest_of_slowest(&[7.0], 1), Some(7.0));
        assert_eq!(fastest_of_slowest(&[], 1), None);
    }

    #[test]
    fn jains_index_is_one_for_equal_shares_and_one_nth_if_one_flow_takes_all() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0]), None);
    }
}
