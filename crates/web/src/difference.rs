//! In which lines two texts differ.

use sqm_configuration::revision;

/// Lines that a difference is worked out for; two longer texts differ as a whole.
const MOST_LINES: usize = 2000;
/// Lines that are told. Of more, only few of those that stay are.
const MOST_TOLD: usize = 4000;
/// Lines that stay, beside those that do not.
const CONTEXT: usize = 3;

/// Lines of both texts: those that stay begin with a blank, those that go with `-`, those that come with `+`. Empty if
/// nothing changes.
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
    if head.len() + tail.len() + old.len() + new.len() > MOST_TOLD {
        head.drain(..head.len().saturating_sub(CONTEXT));
        tail.truncate(CONTEXT);
    }
    let stays = |line: &&str| format!(" {line}");
    let mut told: Vec<String> = head.iter().map(stays).collect();
    told.extend(middle(&old, &new));
    told.extend(tail.iter().map(stays));
    let more = told.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        told.truncate(MOST_TOLD);
        told.push(format!(" … and {more} more lines"));
    }
    told
}

fn middle(before: &[&str], after: &[&str]) -> Vec<String> {
    let mut told = Vec::new();
    if before.len().max(after.len()) > MOST_LINES {
        told.extend(before.iter().map(|line| format!("-{line}")));
        told.extend(after.iter().map(|line| format!("+{line}")));
        return told;
    }
    // The longest common sequence of lines, by its length from each place on.
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
            told.push(format!(" {}", before[old]));
            (old, new) = (old + 1, new + 1);
        } else if new == after.len()
            || old < before.len() && longest[(old + 1) * width + new] >= longest[old * width + new + 1]
        {
            told.push(format!("-{}", before[old]));
            old += 1;
        } else {
            told.push(format!("+{}", after[new]));
            new += 1;
        }
    }
    told
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
    fn differences_of_long_texts_are_told_in_few_lines() {
        let long: String = (0..100_000).map(|line| format!("{line}\n")).collect();
        let changed = long.replace("\n50000\n", "\nx\n");
        let expected = [
            " 49997", " 49998", " 49999", "-50000", "+x", " 50001", " 50002", " 50003",
        ];
        assert_eq!(differences(&long, &changed), expected);
        let told = differences(&long, "");
        assert_eq!(told.len(), MOST_TOLD + 1);
        assert_eq!(told[MOST_TOLD], " … and 96000 more lines");
    }
}
