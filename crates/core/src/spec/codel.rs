//! CoDel's parameters and their `tc` words (RFC 8289; `sch_codel.c`; iproute2 `tc/q_codel.c`).

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Words};
use crate::units::Nanos;

/// The kernel's name for it.
pub(crate) const KIND: &str = "codel";

/// Every parameter of one CoDel; [`Default`] is what the kernel does when no word is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Packets held.
    pub limit: u32,
    /// Acceptable standing delay.
    pub target: Nanos,
    /// Window in which the delay must have fallen below target once.
    pub interval: Nanos,
    /// Mark instead of dropping where the packet allows it.
    pub ecn: bool,
    /// Mark above this delay at once; `None` is off.
    pub ce_threshold: Option<Nanos>,
}

impl Default for Codel {
    fn default() -> Self {
        Self {
            limit: 1000,
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: false,
            ce_threshold: None,
        }
    }
}

impl Codel {
    /// Lets the words of `text` change these parameters, as if they stood at the end of the same command.
    ///
    /// On an error the parameters are as they were.
    pub fn apply(&mut self, text: &str) -> Result<(), ParseError> {
        let mut changed = self.clone();
        changed.read(Words::of(text).within(KIND))?;
        *self = changed;
        Ok(())
    }

    pub(super) fn read(&mut self, mut words: Words<'_>) -> Result<(), ParseError> {
        while let Some(word) = words.next() {
            match word.text {
                "limit" => self.limit = words.number(word, "limit", 1..=u32::MAX.into())?,
                "target" => self.target = words.time(word, "target", 0)?,
                "interval" => self.interval = words.time(word, "interval", 0)?,
                "ce_threshold" => self.ce_threshold = Some(words.time(word, "ce_threshold", 0)?),
                "ecn" => self.ecn = true,
                "noecn" => self.ecn = false,
                _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
            }
        }
        Ok(())
    }
}

impl fmt::Display for Codel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            target,
            interval,
            ecn,
            ce_threshold,
        } = self;
        write!(f, "{KIND} limit {limit} target {target} interval {interval}")?;
        if let Some(threshold) = ce_threshold {
            write!(f, " ce_threshold {threshold}")?;
        }
        f.write_str(if *ecn { " ecn" } else { " noecn" })
    }
}

/// Every keyword, for suggestions.
const KEYWORDS: [&str; 6] = ["limit", "target", "interval", "ce_threshold", "ecn", "noecn"];

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::Qdisc;

    #[test]
    fn words_set_parameters_and_errors_name_the_word() {
        let Ok(Qdisc::Codel(codel)) = Qdisc::parse("codel limit 1001 target 5000us interval 110ms ecn")
        else {
            panic!("it is CoDel");
        };
        let expected = Codel {
            limit: 1001,
            interval: Nanos::from_millis(110),
            ecn: true,
            ..Codel::default()
        };
        assert_eq!(codel, expected);
        for (text, message) in [
            ("ecm", "unknown codel keyword 'ecm'; did you mean 'ecn'?"),
            ("flows 8", "unknown codel keyword 'flows'"),
            ("limit 0", "codel keyword 'limit' takes 1 to 4294967295, not '0'"),
        ] {
            let mut codel = Codel::default();
            assert_eq!(codel.apply(text).unwrap_err().to_string(), message);
            assert_eq!(codel, Codel::default(), "{text} changed something");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            limit in 1..=u32::MAX, target: u32, interval: u32, ecn: bool, threshold: Option<u32>,
        ) {
            let micros = |n: u32| Nanos::from_micros(n.into());
            let codel = Codel {
                limit, ecn,
                target: micros(target),
                interval: micros(interval),
                ce_threshold: threshold.map(micros),
            };
            prop_assert_eq!(Qdisc::parse(&codel.to_string()), Ok(Qdisc::Codel(codel)));
        }
    }
}
