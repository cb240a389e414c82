//! The difference between two texts, line by line.

use sqm_configuration::revision;

/// The longest texts, in lines, that are compared line by line; longer ones count as replaced. The table has the square of this.
const MOST_LINES: usize = 2000;
/// The longest difference that is returned, in lines. A longer one has few unchanged lines.
const MOST_RETURNED: usize = 4000;
/// Unchanged lines before and after the changed ones.
const CONTEXT: usize = 3;

/// The lines of both texts: unchanged ones with a leading space, removed ones with `-`, added ones with `+`. Empty if the texts are
/// equal.
pub(super) fn differences(before: &str, after: &str) -> Vec<String> {
    if revision::of(before.as_bytes()) == revision::of(after.as_bytes()) {
        return Vec::new();
    }
    let (mut old, mut new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let begin = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let mut head: Vec<&str> = old.drain(..begin).collect();
    new.drain(..begin);
    let end = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(old, new)| old == new)
        .count();
    let mut tail = old.split_off(old.len() - end);
    new.truncate(new.len() - end);
    if head.len() + tail.len() + old.len() + new.len() > MOST_RETURNED {
        head.drain(..head.len().saturating_sub(CONTEXT));
        tail.truncate(CONTEXT);
    }
    let stays = |line: &&str| format!(" {line}");
    let mut result: Vec<String> = head.iter().map(stays).collect();
    result.extend(middle(&old, &new));
    result.extend(tail.iter().map(stays));
    let more = result.len().saturating_sub(MOST_RETURNED);
    if more > 0 {
        result.truncate(MOST_RETURNED);
        result.push(format!(" … and {more} more lines"));
    }
    result
}

fn middle(before: &[&str], after: &[&str]) -> Vec<String> {
    let mut result = Vec::new();
    if before.len().max(after.len()) > MOST_LINES {
        result.extend(before.iter().map(|line| format!("-{line}")));
        result.extend(after.iter().map(|line| format!("+{line}")));
        return result;
    }
    // The length of the longest common subsequence of the lines after each pair of places.
    let width = after.len() + 1;
    let mut longest = vec![0_u16; (before.len() + 1) * width];
    for old in (0..before.len()).rev() {
        for new in (0..after.len()).rev() {
            longest[old * width + new] = if before[old] == after[new] {
                longest[(old + 1) * width + new + 1] + 1
            } else {
                longest[(old + 1) * width + new].max(longest[old * width + new + 1])
            };
        }
    }
    let (mut old, mut new) = (0, 0);
    while old < before.len() || new < after.len() {
        if old < before.len() && new < after.len() && before[old] == after[new] {
            result.push(format!(" {}", before[old]));
            (old, new) = (old + 1, new + 1);
        } else if new == after.len()
            || old < before.len() && longest[(old + 1) * width + new] >= longest[old * width + new + 1]
        {
            result.push(format!("-{}", before[old]));
            old += 1;
        } else {
            result.push(format!("+{}", after[new]));
            new += 1;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_the_fewest_lines() {
        assert_eq!(differences("a\nb\n", "a\nb\n"), Vec::<String>::new());
        assert_eq!(differences("a\nb\nc\n", "a\nx\nc\n"), [" a", "-b", "+x", " c"]);
        assert_eq!(differences("", "a\n"), ["+a"]);
        assert_eq!(differences("a\nb", "b\nc"), ["-a", " b", "+c"]);
        assert_eq!(differences("a\na\n", "a\n"), [" a", "-a"]);
        let long = "x\n".repeat(MOST_LINES + 1);
        assert_eq!(differences(&long, "y\n").len(), MOST_LINES + 2);
    }

    #[test]
    fn differences_of_long_texts_are_short() {
        let long: String = (0..100_000).map(|line| format!("{line}\n")).collect();
        let changed = long.replace("\n50000\n", "\nx\n");
        let expected = [
            " 49997", " 49998", " 49999", "-50000", "+x", " 50001", " 50002", " 50003",
        ];
        assert_eq!(differences(&long, &changed), expected);
        let result = differences(&long, "");
        assert_eq!(result.len(), MOST_RETURNED + 1);
        assert_eq!(result[MOST_RETURNED], " … and 96000 more lines");
    }
}
