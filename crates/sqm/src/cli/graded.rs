//! Prints texts with a grade, whose letter has the colour of a traffic light on a terminal.

use sqm_process::colour::Colour;
use sqm_process::output;

/// Prints the text on standard output.
pub(super) fn print(text: &str) {
    for line in text.split_inclusive('\n') {
        match letter(line) {
            None => out!("{line}"),
            Some((before, letter, after)) => {
                out!("{before}");
                output::print_in(colour(letter), format_args!("{letter}"));
                out!("{after}");
            }
        }
    }
}

/// The letter in a line that begins with the word "grade", and what stands before and after it.
fn letter(line: &str) -> Option<(&str, &str, &str)> {
    let rest = line.strip_prefix("grade ")?.trim_start();
    let letter = rest.split_whitespace().next()?;
    let (before, after) = line.split_at(line.len() - rest.len());
    Some((before, letter, &after[letter.len()..]))
}

/// The colours of a traffic light.
fn colour(letter: &str) -> Colour {
    match letter {
        "A+" | "A" | "B" => Colour::Green,
        "C" | "D" => Colour::Yellow,
        _ => Colour::Red,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letter_of_a_grade_is_found() {
        let line = "grade                     A+          downloads add 1.0 ms\n";
        let (before, found, after) = letter(line).expect("a grade");
        assert_eq!((found, format!("{before}{found}{after}").as_str()), ("A+", line));
        assert_eq!(letter("no grade: the test ended early"), None);
    }
}
