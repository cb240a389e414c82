//! The plain queues `pfifo`, `bfifo` and `pfifo_head_drop` (`sch_fifo.c`; iproute2 `tc/q_fifo.c`).

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Words};

/// The kernel's names.
pub(crate) const PFIFO: &str = "pfifo";
pub(crate) const BFIFO: &str = "bfifo";
pub(crate) const PFIFO_HEAD_DROP: &str = "pfifo_head_drop";

/// A queue's only parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fifo {
    /// Packets held, or bytes; `None` is the device's queue length (`txqueuelen`), times its MTU for bytes.
    pub limit: Option<u32>,
}

impl Fifo {
    pub(super) fn read(words: Words<'_>) -> Result<Self, ParseError> {
        let mut fifo = Self::default();
        fifo.apply(words)?;
        Ok(fifo)
    }

    pub(super) fn read_bytes(words: Words<'_>) -> Result<Self, ParseError> {
        let mut fifo = Self::default();
        fifo.apply_bytes(words)?;
        Ok(fifo)
    }

    /// A limit in packets.
    pub(super) fn apply(&mut self, mut words: Words<'_>) -> Result<(), ParseError> {
        let mut changed = *self;
        while let Some(word) = limit(&mut words)? {
            changed.limit = Some(words.number(word, "limit", 0..=u32::MAX.into())?);
        }
        *self = changed;
        Ok(())
    }

    /// A limit in bytes, with or without a unit.
    pub(super) fn apply_bytes(&mut self, mut words: Words<'_>) -> Result<(), ParseError> {
        let mut changed = *self;
        while let Some(word) = limit(&mut words)? {
            let bytes = words.size(word, "limit")?;
            changed.limit = u32::try_from(bytes.0).ok();
        }
        *self = changed;
        Ok(())
    }

    pub(super) fn print(self, f: &mut fmt::Formatter<'_>, kind: &str, unit: &str) -> fmt::Result {
        f.write_str(kind)?;
        match self.limit {
            Some(limit) => write!(f, " limit {limit}{unit}"),
            None => Ok(()),
        }
    }
}

/// The keyword, or the end, or an error.
fn limit<'a>(words: &mut Words<'a>) -> Result<Option<super::words::Word<'a>>, ParseError> {
    match words.next() {
        Some(word) if word.text != "limit" => {
            Err(words.unknown(word, ParseErrorKind::UnknownWord, ["limit"].into_iter()))
        }
        word => Ok(word),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::Qdisc;

    #[test]
    fn bytes_have_units_and_packets_have_none() {
        let limit = |n| Fifo { limit: Some(n) };
        assert_eq!(Qdisc::parse("bfifo limit 10k"), Ok(Qdisc::Bfifo(limit(10_240))));
        assert_eq!(Qdisc::parse("pfifo limit 50"), Ok(Qdisc::Pfifo(limit(50))));
        assert_eq!(Qdisc::parse("pfifo"), Ok(Qdisc::Pfifo(Fifo::default())));
        let error = Qdisc::parse("pfifo limit 10k").unwrap_err();
        assert_eq!(
            error.to_string(),
            "pfifo keyword 'limit': '10k' is not a whole number"
        );
        let error = Qdisc::parse("pfifo_head_drop limmit 1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown pfifo_head_drop keyword 'limmit'; did you mean 'limit'?"
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(limit: Option<u32>) {
            let fifo = Fifo { limit };
            for qdisc in [Qdisc::Pfifo(fifo), Qdisc::Bfifo(fifo), Qdisc::PfifoHeadDrop(fifo)] {
                prop_assert_eq!(Qdisc::parse(&qdisc.to_string()), Ok(qdisc));
            }
        }
    }
}
