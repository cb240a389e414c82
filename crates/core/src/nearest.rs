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
    let lower = |text: &str, chars: &mut Vec<char>| {
        chars.clear();
        if text.is_ascii() {
            chars.extend(text.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
        } else {
            chars.extend(text.chars().flat_map(char::to_lowercase));
        }
    };
    let (mut ours, mut other, mut rows) = (Vec::new(), Vec::new(), Rows::default());
    lower(word, &mut ours);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        lower(candidate, &mut other);
        let begins = ours.len() >= 3 && other.starts_with(&ours);
        // Only fewer edits than the best so far are of interest.
        let most = match best {
            Some((0, _)) => break,
            Some((edits, _)) if begins => edits - 1,
            Some((edits, _)) => (edits - 1).min(furthest(&ours)),
            None if begins => usize::MAX,
            None => furthest(&ours),
        };
        if let Some(edits) = rows.distance(&ours, &other, most) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Edits beyond which another word was meant.
fn furthest(word: &[char]) -> usize {
    (word.len() / 3).max(1)
}

/// The last three rows of the table of distances, kept for the next pair of words.
#[derive(Default)]
struct Rows {
    before_last: Vec<usize>,
    last: Vec<usize>,
    now: Vec<usize>,
}

impl Rows {
    /// Optimal string alignment distance: Levenshtein's with swapped neighbours counted once. `None` if it is more than
    /// `most`, for which most words need no second look.
    fn distance(&mut self, a: &[char], b: &[char], most: usize) -> Option<usize> {
        if a.len().abs_diff(b.len()) > most {
            return None;
        }
        self.last.clear();
        self.last.extend(0..=b.len());
        let mut least_before = 0;
        for i in 0..a.len() {
            self.now.clear();
            self.now.push(i + 1);
            let mut least_now = i + 1;
            for j in 0..b.len() {
                let change = self.last[j] + usize::from(a[i] != b[j]);
                let mut least = change.min(self.last[j + 1] + 1).min(self.now[j] + 1);
                if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                    least = least.min(self.before_last[j - 1] + 1);
                }
                self.now.push(least);
                least_now = least_now.min(least);
            }
            // A row comes from the two before it, and never gets smaller.
            if least_now.min(least_before) > most {
                return None;
            }
            least_before = least_now;
            core::mem::swap(&mut self.before_last, &mut self.last);
            core::mem::swap(&mut self.last, &mut self.now);
        }
        Some(self.last[b.len()]).filter(|edits| *edits <= most)
    }
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
