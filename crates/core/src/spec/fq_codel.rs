//! fq_codel's parameters and their `tc` words (RFC 8290; `sch_fq_codel.c`; iproute2 `tc/q_fq_codel.c`).
//!
//! Times have the granularity of the `tc` command line, microseconds.

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Words};
use crate::units::{Bytes, Nanos};

/// The kernel's name for it.
pub(crate) const KIND: &str = "fq_codel";

/// Every parameter of one fq_codel instance; [`Default`] is what the kernel does when no word is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// Packets held by the whole qdisc.
    pub limit: u32,
    /// Number of queues; fixed once created.
    pub flows: u32,
    /// Acceptable standing delay.
    pub target: Nanos,
    /// Window in which the delay must have fallen below target once.
    pub interval: Nanos,
    /// Bytes a flow may send per round; `None` is the device's MTU with its link header.
    pub quantum: Option<u32>,
    /// Mark instead of dropping where the packet allows it.
    pub ecn: bool,
    /// Mark above this delay at once; `None` is off.
    pub ce_threshold: Option<Nanos>,
    /// Which packets `ce_threshold` is for; `None` is all.
    pub ce_threshold_selector: Option<Selector>,
    /// Packets dropped in one go on overflow.
    pub drop_batch: u32,
    /// Memory held by the whole qdisc.
    pub memory_limit: Bytes,
}

/// Chooses packets whose DSCP and ECN byte, under a mask, has one value (`0x1/0x3` is ECT(1), L4S).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The value of the masked byte.
    pub value: u8,
    /// The bits that are looked at.
    pub mask: u8,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self {
            limit: 10240,
            flows: 1024,
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            quantum: None,
            ecn: true,
            ce_threshold: None,
            ce_threshold_selector: None,
            drop_batch: 64,
            memory_limit: Bytes(32 << 20),
        }
    }
}

impl FqCodel {
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
                "flows" => self.flows = words.number(word, "flows", 1..=65536)?,
                // The kernel lifts less to 256 without a word, and refuses more than 2^20.
                "quantum" => self.quantum = Some(words.number(word, "quantum", 256..=1 << 20)?),
                "target" => self.target = words.time(word, "target", 0)?,
                "interval" => self.interval = words.time(word, "interval", 0)?,
                "ce_threshold" => self.ce_threshold = Some(words.time(word, "ce_threshold", 0)?),
                "ce_threshold_selector" => {
                    const EXPECTED: &str = "value/mask, such as 0x1/0x3";
                    let value = words.value(word, EXPECTED)?;
                    let keyword = "ce_threshold_selector";
                    self.ce_threshold_selector = Some(selector(value.text).ok_or_else(|| {
                        words.error(
                            value,
                            ParseErrorKind::BadValue {
                                keyword,
                                expected: EXPECTED,
                            },
                        )
                    })?);
                }
                "memory_limit" => self.memory_limit = words.size(word, "memory_limit")?,
                "drop_batch" => self.drop_batch = words.number(word, "drop_batch", 1..=u32::MAX.into())?,
                "ecn" => self.ecn = true,
                "noecn" => self.ecn = false,
                _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
            }
        }
        Ok(())
    }
}

/// Prints what sets one fq_codel apart from another. The memory limit and the drop batch appear only where they
/// are not the kernel's own, because older versions of `tc` do not know them.
impl fmt::Display for FqCodel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        write!(f, "{KIND} limit {} flows {}", self.limit, self.flows)?;
        if let Some(quantum) = self.quantum {
            write!(f, " quantum {quantum}")?;
        }
        write!(f, " target {} interval {}", self.target, self.interval)?;
        if let Some(threshold) = self.ce_threshold {
            write!(f, " ce_threshold {threshold}")?;
        }
        if let Some(Selector { value, mask }) = self.ce_threshold_selector {
            write!(f, " ce_threshold_selector {value:#x}/{mask:#x}")?;
        }
        if self.memory_limit != default.memory_limit {
            write!(f, " memory_limit {}", self.memory_limit)?;
        }
        f.write_str(if self.ecn { " ecn" } else { " noecn" })?;
        if self.drop_batch != default.drop_batch {
            write!(f, " drop_batch {}", self.drop_batch)?;
        }
        Ok(())
    }
}

/// Every keyword, for suggestions.
const KEYWORDS: [&str; 11] = [
    "limit",
    "flows",
    "quantum",
    "target",
    "interval",
    "ce_threshold",
    "ce_threshold_selector",
    "memory_limit",
    "drop_batch",
    "ecn",
    "noecn",
];

/// `value/mask`, each a byte in decimal or, after `0x`, hexadecimal.
fn selector(text: &str) -> Option<Selector> {
    let byte = |text: &str| {
        let (digits, radix) = match text.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        u8::from_str_radix(digits, radix)
            .ok()
            .filter(|_| !digits.starts_with('+'))
    };
    let (value, mask) = text.split_once('/')?;
    Some(Selector {
        value: byte(value)?,
        mask: byte(mask)?,
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::Qdisc;

    #[test]
    fn every_word_sets_its_parameter() {
        let d = FqCodel::default;
        let selector = Some(Selector { value: 1, mask: 3 });
        for (text, expected) in [
            ("", d()),
            ("limit 1001", FqCodel { limit: 1001, ..d() }),
            ("flows 65536", FqCodel { flows: 65536, ..d() }),
            (
                "quantum 300",
                FqCodel {
                    quantum: Some(300),
                    ..d()
                },
            ),
            (
                "target 2.5ms",
                FqCodel {
                    target: Nanos::from_micros(2500),
                    ..d()
                },
            ),
            (
                "interval 30",
                FqCodel {
                    interval: Nanos::from_micros(30),
                    ..d()
                },
            ),
            (
                "ce_threshold 1ms",
                FqCodel {
                    ce_threshold: Some(Nanos::from_millis(1)),
                    ..d()
                },
            ),
            (
                "ce_threshold_selector 0x1/3",
                FqCodel {
                    ce_threshold_selector: selector,
                    ..d()
                },
            ),
            (
                "memory_limit 4Mb",
                FqCodel {
                    memory_limit: Bytes(4 << 20),
                    ..d()
                },
            ),
            ("drop_batch 1", FqCodel { drop_batch: 1, ..d() }),
            ("noecn", FqCodel { ecn: false, ..d() }),
            ("noecn limit 5 ecn limit 6", FqCodel { limit: 6, ..d() }),
        ] {
            let mut fq_codel = d();
            assert_eq!(fq_codel.apply(text), Ok(()), "{text}");
            assert_eq!(fq_codel, expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (text, message) in [
            ("ecm", "unknown fq_codel keyword 'ecm'; did you mean 'ecn'?"),
            ("nat", "unknown fq_codel keyword 'nat'"),
            ("limit", "fq_codel keyword 'limit' needs a whole number"),
            ("flows 0", "fq_codel keyword 'flows' takes 1 to 65536, not '0'"),
            (
                "flows 65537",
                "fq_codel keyword 'flows' takes 1 to 65536, not '65537'",
            ),
            (
                "quantum 255",
                "fq_codel keyword 'quantum' takes 256 to 1048576, not '255'",
            ),
            (
                "target 5mss",
                "fq_codel keyword 'target': '5mss' is not a time: unknown unit 'mss'; did you mean '5ms'?",
            ),
            (
                "interval 9999s",
                "fq_codel keyword 'interval' takes 0us to 4294s, not '9999s'",
            ),
            (
                "ce_threshold_selector 3",
                "fq_codel keyword 'ce_threshold_selector': '3' is not value/mask, such as 0x1/0x3",
            ),
        ] {
            let mut fq_codel = FqCodel::default();
            assert_eq!(fq_codel.apply(text).unwrap_err().to_string(), message);
            assert_eq!(fq_codel, FqCodel::default(), "{text} changed something");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            (limit, flows, quantum) in (1..=u32::MAX, 1..=65536u32, proptest::option::of(256..=1u32 << 20)),
            (target, interval, ce_threshold) in (any::<u32>(), any::<u32>(), proptest::option::of(any::<u32>())),
            (ecn, drop_batch, memory) in (any::<bool>(), 1..=u32::MAX, any::<u32>()),
            selector in proptest::option::of(any::<(u8, u8)>()),
        ) {
            let micros = |n: u32| Nanos::from_micros(n.into());
            let fq_codel = FqCodel {
                limit, flows, quantum, ecn, drop_batch,
                target: micros(target),
                interval: micros(interval),
                ce_threshold: ce_threshold.map(micros),
                ce_threshold_selector: selector.map(|(value, mask)| Selector { value, mask }),
                memory_limit: Bytes(memory.into()),
            };
            prop_assert_eq!(Qdisc::parse(&fq_codel.to_string()), Ok(Qdisc::FqCodel(fq_codel)));
        }
    }
}
