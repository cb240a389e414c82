//! The word that was probably meant, for error messages.

use alloc::vec::Vec;

/// Longer words are not misspellings of ours, and comparing them would cost time for nothing.
const LONGEST_BYTES: usize = 40;

/// The candidate nearest to `word`, if one is near enough to be worth suggesting: within a third of the word's
/// length in edits (insert, delete, change, swap neighbours), or longer than the word but beginning with it.
///
/// Case is ignored. The first of several equally near candidates wins.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > LONGEST_BYTES {
        return None;
    }
    let word: Vec<char> = word.chars().flat_map(char::to_lowercase).collect();
    let furthest = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let other: Vec<char> = candidate.chars().flat_map(char::to_lowercase).collect();
            let edits = distance(&word, &other);
            let begins = word.len() >= 3 && other.starts_with(&word);
            (edits <= furthest || begins).then_some((edits, candidate))
        })
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment distance: Levenshtein's with swapped neighbours counted once.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for j in 0..b.len() {
            let change = last[j] + usize::from(a[i] != b[j]);
            let mut least = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = core::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_the_word_that_was_meant() {
        let words = ["besteffort", "bandwidth", "nat", "nonat", "piece_of_cake.qos"];
        for (word, expected) in [
            ("besteffrot", Some("besteffort")),
            ("BANDWITH", Some("bandwidth")),
            ("nta", Some("nat")),
            ("piece_of_cake", Some("piece_of_cake.qos")),
            ("pie", Some("piece_of_cake.qos")),
            ("frobnicate", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, words), expected, "{word}");
        }
        assert_eq!(nearest(&"n".repeat(1 << 20), words), None);
    }
}
