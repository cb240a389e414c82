//! PIE's parameters and their `tc` words (RFC 8033; `sch_pie.c`; iproute2 `tc/q_pie.c`).

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Words};
use crate::units::Nanos;

/// The kernel's name for it.
pub(super) const KIND: &str = "pie";

/// Every parameter of one PIE; [`Default`] is what the kernel does when no word is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pie {
    /// Packets held.
    pub limit: u32,
    /// Acceptable standing delay.
    pub target: Nanos,
    /// How often the drop probability is computed. The kernel keeps it in ticks of its timer.
    pub tupdate: Nanos,
    /// Weight of the delay's distance from the target, in sixteenths, 0 to 32.
    pub alpha: u32,
    /// Weight of the delay's change, in sixteenths, 0 to 32.
    pub beta: u32,
    /// Mark instead of dropping where the packet allows it, while the probability is below 10 %.
    pub ecn: bool,
    /// Drop small packets less often.
    pub bytemode: bool,
    /// Estimate the delay from the rate of departure instead of stamping each packet.
    pub dq_rate_estimator: bool,
}

impl Default for Pie {
    fn default() -> Self {
        Self {
            limit: 1000,
            target: Nanos::from_millis(15),
            tupdate: Nanos::from_millis(15),
            alpha: 2,
            beta: 20,
            ecn: false,
            bytemode: false,
            dq_rate_estimator: false,
        }
    }
}

impl Pie {
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
                "tupdate" => self.tupdate = words.time(word, "tupdate", 1)?,
                "alpha" => self.alpha = words.number(word, "alpha", 0..=32)?,
                "beta" => self.beta = words.number(word, "beta", 0..=32)?,
                "ecn" => self.ecn = true,
                "noecn" => self.ecn = false,
                "bytemode" => self.bytemode = true,
                "nobytemode" => self.bytemode = false,
                "dq_rate_estimator" => self.dq_rate_estimator = true,
                "no_dq_rate_estimator" => self.dq_rate_estimator = false,
                _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
            }
        }
        Ok(())
    }
}

/// Prints the estimator only where it is on, because older versions of `tc` do not know it.
impl fmt::Display for Pie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            target,
            tupdate,
            alpha,
            beta,
            ..
        } = self;
        write!(f, "{KIND} limit {limit} target {target} tupdate {tupdate}")?;
        write!(f, " alpha {alpha} beta {beta}")?;
        f.write_str(if self.ecn { " ecn" } else { " noecn" })?;
        f.write_str(if self.bytemode { " bytemode" } else { " nobytemode" })?;
        f.write_str(if self.dq_rate_estimator {
            " dq_rate_estimator"
        } else {
            ""
        })
    }
}

/// Every keyword, for suggestions.
const KEYWORDS: [&str; 11] = [
    "limit",
    "target",
    "tupdate",
    "alpha",
    "beta",
    "ecn",
    "noecn",
    "bytemode",
    "nobytemode",
    "dq_rate_estimator",
    "no_dq_rate_estimator",
];

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::Qdisc;

    #[test]
    fn words_set_parameters_and_errors_name_the_word() {
        let expected = Pie {
            limit: 1001,
            target: Nanos::from_millis(5),
            ecn: true,
            ..Pie::default()
        };
        let words = "pie limit 1001 target 5000us ecn";
        assert_eq!(Qdisc::parse(words), Ok(Qdisc::Pie(expected)));
        let error = Pie::default().apply("alpha 33").unwrap_err();
        assert_eq!(error.to_string(), "pie keyword 'alpha' takes 0 to 32, not '33'");
        let error = Pie::default().apply("interval 5ms").unwrap_err();
        assert_eq!(error.to_string(), "unknown pie keyword 'interval'");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            (limit, target, tupdate) in (1..=u32::MAX, any::<u32>(), 1..=u32::MAX),
            (alpha, beta) in (0..=32u32, 0..=32u32),
            (ecn, bytemode, dq_rate_estimator) in any::<(bool, bool, bool)>(),
        ) {
            let micros = |n: u32| Nanos::from_micros(n.into());
            let pie = Pie {
                limit, alpha, beta, ecn, bytemode, dq_rate_estimator,
                target: micros(target),
                tupdate: micros(tupdate),
            };
            prop_assert_eq!(Qdisc::parse(&pie.to_string()), Ok(Qdisc::Pie(pie)));
        }
    }
}
