//! TBF's parameters and their `tc` words (`sch_tbf.c`; iproute2 `tc/q_tbf.c`).

use core::fmt;

use super::size_table::RateFraming;
use super::words::{ParseError, ParseErrorKind, Words};
use crate::units::{Bytes, Nanos, Rate};

/// The kernel's name for it.
pub(crate) const KIND: &str = "tbf";

/// Every parameter of one TBF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tbf {
    /// Sustained rate.
    pub rate: Rate,
    /// Bytes that may leave at once; a longer packet is dropped.
    pub burst: Bytes,
    /// Bytes held by its own queue. Of no effect once another queue hangs in it. (`latency` in `tc`'s words: what
    /// the rate passes in that time, and a burst.)
    pub limit: Bytes,
    /// Limit within a burst.
    pub peak: Option<Peak>,
    /// The framing of a packet.
    pub framing: RateFraming,
}

/// How fast a burst may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// `peakrate`, above the sustained rate.
    pub rate: Rate,
    /// `mtu`: bytes that may leave at once at the peak rate; a longer packet is dropped.
    pub mtu: Bytes,
}

impl Tbf {
    /// Reads the words after `tbf`.
    ///
    /// ```
    /// use sqm_core::spec::tbf::Tbf;
    ///
    /// let tbf = Tbf::parse("rate 8mbit burst 5kb latency 300ms").unwrap();
    /// assert_eq!(tbf.to_string(), "tbf rate 8mbit burst 5kb limit 305120b");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(Words::of(text).within(KIND))
    }

    /// The queue that a latency allows, bytes.
    pub fn limit_for(latency: Nanos, rate: Rate, burst: Bytes, peak: Option<Peak>) -> Bytes {
        let passes = |rate: Rate, burst: Bytes| {
            let bytes = u128::from(rate.bytes_per_sec()) * u128::from(latency.as_micros()) / 1_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(burst.0)
        };
        let limit = passes(rate, burst);
        Bytes(peak.map_or(limit, |peak| limit.min(passes(peak.rate, peak.mtu))))
    }

    pub(super) fn read(mut words: Words<'_>) -> Result<Self, ParseError> {
        let (mut rate, mut burst, mut limit, mut latency) = (None, None, None, None);
        let (mut peakrate, mut mtu) = (None, None);
        let mut framing = RateFraming::default();
        while let Some(word) = words.next() {
            match word.text {
                "rate" => {
                    words.once(rate.as_ref(), word)?;
                    rate = Some(words.shaped_rate(word, "rate")?);
                }
                "burst" | "buffer" | "maxburst" => {
                    words.once(burst.as_ref(), word)?;
                    burst = Some(words.size(word, "burst")?);
                }
                "limit" => {
                    words.once(limit.as_ref(), word)?;
                    limit = Some(words.size(word, "limit")?);
                }
                "latency" => latency = Some(words.time(word, "latency", 0)?),
                "peakrate" => peakrate = Some(words.shaped_rate(word, "peakrate")?),
                "mtu" | "minburst" => mtu = Some(words.size(word, "mtu")?),
                _ if framing.read(&mut words, word)? => {}
                _ => {
                    let known = KEYWORDS.into_iter().chain(RateFraming::KEYWORDS);
                    return Err(words.unknown(word, ParseErrorKind::UnknownWord, known));
                }
            }
        }
        let incomplete = |missing| words.at_end(ParseErrorKind::Incomplete { missing });
        let contradiction = |reason| words.at_end(ParseErrorKind::Contradiction { reason });
        let rate = rate.ok_or_else(|| incomplete("'rate'"))?;
        let burst = burst
            .filter(|burst| burst.0 > 0)
            .ok_or_else(|| incomplete("'burst'"))?;
        let peak = match (peakrate, mtu.filter(|mtu: &Bytes| mtu.0 > 0)) {
            (None, _) => None,
            (Some(_), None) => return Err(incomplete("'mtu' beside 'peakrate'")),
            (Some(peak), Some(_)) if peak <= rate => {
                return Err(contradiction("'peakrate' must be above 'rate'"));
            }
            (Some(rate), Some(mtu)) => Some(Peak { rate, mtu }),
        };
        let limit = match (limit, latency) {
            (Some(_), Some(_)) => {
                return Err(contradiction(
                    "'limit' and 'latency' both set the size of the queue: give one of them",
                ));
            }
            (Some(limit), None) => limit,
            (None, Some(latency)) => Self::limit_for(latency, rate, burst, peak),
            (None, None) => return Err(incomplete("'limit' or 'latency'")),
        };
        if limit.0 > u32::MAX.into() {
            return Err(contradiction(
                "'latency' at this rate means a queue of 4gb or more",
            ));
        }
        Ok(Self {
            rate,
            burst,
            limit,
            peak,
            framing,
        })
    }
}

impl fmt::Display for Tbf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate,
            burst,
            limit,
            peak,
            framing,
        } = self;
        write!(f, "{KIND} rate {rate} burst {burst} limit {limit}")?;
        if let Some(Peak { rate, mtu }) = peak {
            write!(f, " peakrate {rate} mtu {mtu}")?;
        }
        framing.fmt(f)
    }
}

/// Every keyword, for suggestions.
const KEYWORDS: [&str; 9] = [
    "rate", "burst", "buffer", "maxburst", "limit", "latency", "peakrate", "mtu", "minburst",
];

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::{LinkLayer, Qdisc};

    #[test]
    fn latency_is_the_smaller_of_two_queues() {
        let tbf = Tbf::parse("rate 1mbit burst 5000 latency 100ms peakrate 2mbit mtu 1500").unwrap();
        assert_eq!(tbf.limit, Bytes(17_500));
        let slow = Tbf::parse("rate 1mbit burst 50000 latency 10ms peakrate 2mbit mtu 1500").unwrap();
        assert_eq!(slow.limit, Bytes(4000));
    }

    #[test]
    fn errors_name_what_is_missing() {
        for (text, message) in [
            ("", "tbf needs 'rate'"),
            ("rate 1mbit rate 2mbit", "tbf: the word stands twice"),
            ("rate 1mbit limit 10k limit 20k", "tbf: the word stands twice"),
            ("rate 1mbit limit 10k", "tbf needs 'burst'"),
            ("rate 1mbit burst 5k", "tbf needs 'limit' or 'latency'"),
            (
                "rate 1mbit burst 5k limit 10k latency 1ms",
                "tbf: 'limit' and 'latency' both set the size of the queue: give one of them",
            ),
            (
                "rate 2mbit burst 5k limit 10k peakrate 1mbit mtu 1500",
                "tbf: 'peakrate' must be above 'rate'",
            ),
            (
                "rate 2mbit burst 5k limit 10k peakrate 3mbit",
                "tbf needs 'mtu' beside 'peakrate'",
            ),
            (
                "rate 1mbit brust 5k",
                "unknown tbf keyword 'brust'; did you mean 'burst'?",
            ),
        ] {
            assert_eq!(Tbf::parse(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            (rate, burst, limit) in (8..u64::MAX / 2, 1..=u32::MAX, any::<u32>()),
            peak in proptest::option::of((1..u64::MAX / 4, 1..=u32::MAX)),
            (overhead, mpu, atm) in any::<(u16, u16, bool)>(),
        ) {
            let tbf = Tbf {
                rate: Rate::from_bits_per_sec(rate),
                burst: Bytes(burst.into()),
                limit: Bytes(limit.into()),
                peak: peak.map(|(more, mtu)| Peak {
                    rate: Rate::from_bits_per_sec(rate + more),
                    mtu: Bytes(mtu.into()),
                }),
                framing: RateFraming {
                    overhead, mpu,
                    linklayer: if atm { LinkLayer::Atm } else { LinkLayer::Ethernet },
                },
            };
            prop_assert_eq!(Qdisc::parse(&tbf.to_string()), Ok(Qdisc::Tbf(tbf)));
        }
    }
}
