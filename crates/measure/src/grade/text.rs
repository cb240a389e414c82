//! A grade in words for people.

use std::fmt::Write as _;

use sqm_core::direction::Direction;

use super::conventional::{self, LETTERS, STRICT};
use super::uses::{Outcome, Use};
use super::{Basis, DecidedBy, Grade, RPM, rule};

/// The grade and the round trip that the load adds: median, 95th and 99th percentile.
pub(super) fn headline(letter: &str, loaded: &[Direction], [median, p95, p99]: [Option<f64>; 3]) -> String {
    let load = match loaded {
        [Direction::Download] => "downloads",
        [Direction::Upload] => "uploads",
        _ => "downloads and uploads together",
    };
    let ms = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    format!(
        "grade             {letter:>10} {:<8}{load} add {} ms to the round trip (median; 95 %: {}, 99 %: {})",
        "",
        ms(median),
        ms(p95),
        ms(p99)
    )
}

/// One sentence on what people notice.
pub(super) fn sentence(uses: &[Use], loaded: &[Direction], mostly: Option<Direction>) -> String {
    let of = |outcome: Outcome| -> String {
        let words = uses.iter().filter(|one| one.outcome == outcome);
        list(&words.map(|one| one.name.word()).collect::<Vec<_>>())
    };
    let (bad, fair, always) = (
        of(Outcome::Stutters),
        of(Outcome::MayStutter),
        of(Outcome::StuttersIdle),
    );
    let while_ = whenever(loaded);
    let always = (!always.is_empty())
        .then(|| format!("{always} stutter even on the idle line: its round trip is long"));
    let loaded_text = match (bad.as_str(), fair.as_str()) {
        ("", "") if always.is_some() => None,
        ("", "") => Some(format!("{} run smoothly {while_}", of(Outcome::Smooth))),
        ("", fair) => Some(format!("{fair} may stutter {while_}")),
        (bad, "") => Some(format!("{bad} will stutter {while_}")),
        (bad, fair) => Some(format!("{bad} will stutter and {fair} may {while_}")),
    };
    let most = match (mostly, loaded) {
        (Some(direction), [_, _]) if !bad.is_empty() => {
            Some(format!("most of the delay is the {}'s", direction.name()))
        }
        _ => None,
    };
    let parts: Vec<String> = [loaded_text, most, always].into_iter().flatten().collect();
    let text = parts.join("; ");
    match text.chars().next() {
        Some(first) => first.to_uppercase().to_string() + &text[first.len_utf8()..],
        None => text,
    }
}

fn whenever(loaded: &[Direction]) -> &'static str {
    match loaded {
        [Direction::Download] => "while somebody downloads",
        [Direction::Upload] => "while somebody uploads",
        _ => "while somebody downloads and uploads at the same time",
    }
}

/// "calls, games and work".
fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

impl Grade {
    /// The grade, its figures, the sentence and the verdict for each use.
    pub(super) fn to_text(&self) -> String {
        let figures = [Some(self.added_ms), self.added_p95_ms, self.added_p99_ms];
        let mut text = format!(
            "{}{}\n",
            headline(&self.letter, &self.loaded, figures),
            if self.decided_by == DecidedBy::Loss {
                format!("; {:.1} % of the probes were lost", self.lost * 100.0)
            } else {
                String::new()
            }
        );
        writeln!(text, "{:<37}{}", "", self.sentence).expect("a string grows");
        for (number, one) in self.uses.iter().enumerate() {
            let about = if number == 0 {
                "; quality of outcome: 100 % is optimal, 0 % unacceptable"
            } else {
                ""
            };
            let (name, qoo, word) = (one.name.word(), one.qoo, one.quality.word());
            writeln!(text, "  {name:<16}{qoo:>10} {:<8}{word}{about}", "%").expect("a string grows");
        }
        for (name, rpm) in [("probes", self.rpm_foreign), ("load's own TCP", self.rpm_self)] {
            if let Some(rpm) = rpm {
                let row = format!(
                    "  RPM             {rpm:>10.0} {:<8}round trips per minute, {name}\n",
                    ""
                );
                text.push_str(&row);
            }
        }
        if let Some(word) = &self.rpm_word {
            let row = format!(
                "  responsiveness  {word:>10} {:<8}{}\n",
                "",
                conventional::bounds(&RPM, "RPM", "excellent")
            );
            text.push_str(&row);
        }
        text
    }

    /// The letters of others, and the rules of all letters.
    pub(super) fn details(&self) -> String {
        let basis = match self.basis {
            Basis::EachDirection => "medians, mean of download and upload",
            Basis::OneWay => "one-way medians, mean of download and upload",
            Basis::BothAtOnce => "median, download and upload at once",
            Basis::OneDirection => "median, the one direction that was loaded",
        };
        let decided_by = match self.decided_by {
            DecidedBy::Median => "the median",
            DecidedBy::P95 => "the 95th percentile",
            DecidedBy::P99 => "the 99th percentile",
            DecidedBy::Loss => "the lost probes",
        };
        format!(
            "rule of the grade, decided by {decided_by}\n{}\
             letters of other tests\n\
             {:<18}{:>10} {:<8}load adds {:.1} ms ({basis}); {}\n\
             {:<18}{:>10} {:<8}worse direction {:.1} ms; {}\n",
            rule::words(),
            "  DSLReports",
            self.conventional,
            "",
            self.conventional_ms,
            conventional::bounds(&LETTERS, "ms", "F"),
            "  strict",
            self.strict,
            "",
            self.worst_ms,
            conventional::bounds(&STRICT, "ms", "F"),
        )
    }
}
