//! SFQ's parameters and their `tc` words (`sch_sfq.c`; iproute2 `tc/q_sfq.c`), without its RED mode.

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Words};

/// The kernel's name for it.
pub(super) const KIND: &str = "sfq";

/// Most queues, and most packets in one of them (`SFQ_MAX_FLOWS`, `SFQ_MAX_DEPTH`).
const FLOWS_MAX: u32 = 65408;
const DEPTH_MAX: u32 = 127;
/// A queue's credit is kept in 15 bits of eight bytes each.
const QUANTUM_MAX: u32 = 32767 * 8;
const DIVISOR_MAX: u32 = 65536;

/// Every parameter of one SFQ; [`Default`] is what the kernel does when no word is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sfq {
    /// Packets held by the whole qdisc.
    pub limit: u32,
    /// Most queues in use at once.
    pub flows: u32,
    /// Most packets in one queue.
    pub depth: u32,
    /// Slots of the hash table, a power of two.
    pub divisor: u32,
    /// Bytes a queue may send per round; `None` is the device's MTU with its link header.
    pub quantum: Option<u32>,
    /// Seconds between changes of the hash; 0 is never.
    pub perturb: u32,
    /// A full queue drops its oldest packet instead of the newest.
    pub headdrop: bool,
}

impl Default for Sfq {
    fn default() -> Self {
        Self {
            limit: DEPTH_MAX,
            flows: 128,
            depth: DEPTH_MAX,
            divisor: 1024,
            quantum: None,
            perturb: 0,
            headdrop: false,
        }
    }
}

impl Sfq {
    /// Lets the words of `text` change these parameters, as if they stood at the end of the same command.
    ///
    /// On an error the parameters are as they were.
    pub fn apply(&mut self, text: &str) -> Result<(), ParseError> {
        let mut changed = self.clone();
        changed.read(Words::of(text).within(KIND))?;
        *self = changed;
        Ok(())
    }

    /// The numbers as the kernel corrects them where they do not fit together (`sfq_change`): no more queues than slots, no more
    /// packets than fit into the queues, no more queues than packets.
    pub fn effective(&self) -> Self {
        let flows = self.flows.min(self.divisor);
        let limit = self.limit.min(self.depth.saturating_mul(flows));
        Self {
            limit,
            flows: flows.min(limit),
            ..self.clone()
        }
    }

    pub(super) fn read(&mut self, mut words: Words<'_>) -> Result<(), ParseError> {
        while let Some(word) = words.next() {
            match word.text {
                // Newer kernels refuse a limit of 1.
                "limit" => self.limit = words.number(word, "limit", 2..=u32::MAX.into())?,
                "flows" => self.flows = words.number(word, "flows", 1..=FLOWS_MAX.into())?,
                "depth" => self.depth = words.number(word, "depth", 1..=DEPTH_MAX.into())?,
                "divisor" => {
                    const EXPECTED: &str = "a power of two up to 65536";
                    let value = words.value(word, EXPECTED)?;
                    let number = value.text.parse().ok();
                    self.divisor = number
                        .filter(|n: &u32| n.is_power_of_two() && *n <= DIVISOR_MAX)
                        .filter(|_| !value.text.starts_with('+'))
                        .ok_or_else(|| {
                            let keyword = "divisor";
                            words.error(
                                value,
                                ParseErrorKind::BadValue {
                                    keyword,
                                    expected: EXPECTED,
                                },
                            )
                        })?;
                }
                "quantum" => self.quantum = Some(words.number(word, "quantum", 1..=QUANTUM_MAX.into())?),
                "perturb" => self.perturb = words.number(word, "perturb", 0..=i32::MAX.into())?,
                "headdrop" => self.headdrop = true,
                _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
            }
        }
        Ok(())
    }
}

impl fmt::Display for Sfq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            flows,
            depth,
            divisor,
            quantum,
            perturb,
            headdrop,
        } = self;
        write!(
            f,
            "{KIND} limit {limit} flows {flows} depth {depth} divisor {divisor}"
        )?;
        if let Some(quantum) = quantum {
            write!(f, " quantum {quantum}")?;
        }
        if *perturb > 0 {
            write!(f, " perturb {perturb}")?;
        }
        f.write_str(if *headdrop { " headdrop" } else { "" })
    }
}

/// Every keyword, for suggestions.
const KEYWORDS: [&str; 7] = [
    "limit", "flows", "depth", "divisor", "quantum", "perturb", "headdrop",
];

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::Qdisc;

    #[test]
    fn the_kernel_makes_numbers_fit_together() {
        let Ok(Qdisc::Sfq(sfq)) = Qdisc::parse("sfq limit 1001 flows 1024") else {
            panic!("it is SFQ");
        };
        assert_eq!((sfq.limit, sfq.flows), (1001, 1024));
        let effective = sfq.effective();
        assert_eq!((effective.limit, effective.flows), (1001, 1001));
        let narrow = Sfq {
            limit: 100_000,
            divisor: 64,
            ..sfq
        };
        assert_eq!((narrow.effective().limit, narrow.effective().flows), (8128, 64));
    }

    #[test]
    fn errors_name_the_word() {
        for (text, message) in [
            (
                "divisor 1000",
                "sfq keyword 'divisor': '1000' is not a power of two up to 65536",
            ),
            ("depth 128", "sfq keyword 'depth' takes 1 to 127, not '128'"),
            ("redflowlimit 1", "unknown sfq keyword 'redflowlimit'"),
        ] {
            assert_eq!(Sfq::default().apply(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            (limit, flows, depth, slots) in (2..=u32::MAX, 1..=FLOWS_MAX, 1..=DEPTH_MAX, 0..=16u32),
            quantum in proptest::option::of(1..=QUANTUM_MAX),
            (perturb, headdrop) in (0..1000u32, any::<bool>()),
        ) {
            let sfq = Sfq { limit, flows, depth, divisor: 1 << slots, quantum, perturb, headdrop };
            prop_assert_eq!(Qdisc::parse(&sfq.to_string()), Ok(Qdisc::Sfq(sfq)));
        }
    }
}
