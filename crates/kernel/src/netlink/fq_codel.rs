//! fq_codel's options (`TCA_FQ_CODEL_*`).

use sqm_core::spec::fq_codel::{FqCodel, Selector};
use sqm_core::units::{Bytes, Nanos};

use super::attribute::{Attributes, Builder};

const TARGET: u16 = 1;
const LIMIT: u16 = 2;
const INTERVAL: u16 = 3;
const ECN: u16 = 4;
const FLOWS: u16 = 5;
const QUANTUM: u16 = 6;
const CE_THRESHOLD: u16 = 7;
const DROP_BATCH_SIZE: u16 = 8;
const MEMORY_LIMIT: u16 = 9;
const CE_THRESHOLD_SELECTOR: u16 = 10;
const CE_THRESHOLD_MASK: u16 = 11;

/// Largest memory limit the kernel keeps (`min(1 << 31)` in `fq_codel_change`).
const MEMORY_LIMIT_MAX: u64 = 1 << 31;

/// The purpose of options: to make a qdisc, or to change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Make a new qdisc.
    Create,
    /// Change a qdisc. The number of flows is fixed, and the kernel refuses options that name it.
    Change,
}

/// Encodes every option, `quantum` and `ce_threshold` only if given.
pub fn encode(codel: &FqCodel, purpose: Purpose) -> Vec<u8> {
    let mut options = Builder::default()
        .u32(LIMIT, codel.limit)
        .u32(ECN, codel.ecn.into())
        .u32(INTERVAL, micros(codel.interval))
        .u32(TARGET, micros(codel.target))
        .u32(DROP_BATCH_SIZE, codel.drop_batch)
        .u32(MEMORY_LIMIT, codel.memory_limit.0.min(MEMORY_LIMIT_MAX) as u32);
    if purpose == Purpose::Create {
        options = options.u32(FLOWS, codel.flows);
    }
    if let Some(quantum) = codel.quantum {
        options = options.u32(QUANTUM, quantum);
    }
    if let Some(threshold) = codel.ce_threshold {
        // A mask of 0 is no selector. It is always sent, because a change would keep an old selector.
        let Selector { value, mask } = codel
            .ce_threshold_selector
            .unwrap_or(Selector { value: 0, mask: 0 });
        options = options
            .u32(CE_THRESHOLD, micros(threshold))
            .bytes(CE_THRESHOLD_SELECTOR, &[value])
            .bytes(CE_THRESHOLD_MASK, &[mask]);
    }
    options.finish()
}

/// Decodes options; absent ones have their default. The kernel always reports a quantum.
pub fn decode_options(bytes: &[u8]) -> Option<FqCodel> {
    let options = Attributes(bytes);
    let default = FqCodel::default();
    let time = |kind| options.u32(kind).map(|us| Nanos::from_micros(us.into()));
    let byte = |kind| {
        options
            .get(kind)
            .and_then(|payload| payload.first().copied())
            .unwrap_or(0)
    };
    Some(FqCodel {
        limit: options.u32(LIMIT).unwrap_or(default.limit),
        flows: options.u32(FLOWS).unwrap_or(default.flows),
        target: time(TARGET).unwrap_or(default.target),
        interval: time(INTERVAL).unwrap_or(default.interval),
        quantum: options.u32(QUANTUM),
        ecn: options.u32(ECN).map_or(default.ecn, |n| n != 0),
        ce_threshold: time(CE_THRESHOLD),
        ce_threshold_selector: match (byte(CE_THRESHOLD_SELECTOR), byte(CE_THRESHOLD_MASK)) {
            (_, 0) => None,
            (value, mask) => Some(Selector { value, mask }),
        },
        drop_batch: options.u32(DROP_BATCH_SIZE).unwrap_or(default.drop_batch),
        memory_limit: options
            .u32(MEMORY_LIMIT)
            .map_or(default.memory_limit, |n| Bytes(n.into())),
    })
}

/// The parameters as the kernel will report them.
pub fn normalized(codel: &FqCodel) -> FqCodel {
    FqCodel {
        target: normalized_time(codel.target),
        interval: normalized_time(codel.interval),
        ce_threshold: codel.ce_threshold.map(normalized_time),
        // Without a threshold the kernel does not report a selector.
        ce_threshold_selector: codel.ce_threshold.and(codel.ce_threshold_selector),
        quantum: codel.quantum.map(|n| n.max(256)),
        drop_batch: codel.drop_batch.max(1),
        memory_limit: Bytes(codel.memory_limit.0.min(MEMORY_LIMIT_MAX)),
        ..codel.clone()
    }
}

/// A time as the kernel will report it. CoDel's clock ticks every 1024 ns (`CODEL_SHIFT` is 10): 5000 µs are kept as 4882
/// ticks and reported as 4999 µs.
pub(super) fn normalized_time(time: Nanos) -> Nanos {
    let ticks = (time.as_micros().min(u32::MAX.into()) * 1000) >> 10;
    Nanos::from_micros((ticks << 10) / 1000)
}

/// A time as it is sent, in microseconds.
pub(super) fn micros(time: Nanos) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Turns reported options into options with which the kernel reports the same again. For every qdisc that keeps times in
/// ticks of CoDel's clock; `times` are their attributes.
///
/// A reported time was rounded down to microseconds, and would be rounded down to ticks again. One microsecond more is in
/// the same tick as the original, because a tick is longer than that.
pub(crate) fn recreate_options(options: &[u8], times: &[u16]) -> Vec<u8> {
    Attributes(options)
        .fold(Builder::default(), |built, (kind, payload)| {
            match Attributes(options).u32(kind) {
                Some(us) if times.contains(&kind) => built.u32(kind, us.saturating_add(1)),
                _ => built.bytes(kind, payload),
            }
        })
        .finish()
}

/// The attributes of fq_codel that are times.
pub(crate) const TIMES: [u16; 3] = [TARGET, INTERVAL, CE_THRESHOLD];

/// Reported options without the number of flows, which cannot be changed.
pub(crate) fn without_flows(options: &[u8]) -> Vec<u8> {
    Attributes(options)
        .filter(|(kind, _)| *kind != FLOWS)
        .fold(Builder::default(), |built, (kind, payload)| {
            built.bytes(kind, payload)
        })
        .finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normalized_micros(us: u64) -> u64 {
        normalized_time(Nanos::from_micros(us)).as_micros()
    }

    #[test]
    fn every_parameter_reads_back() {
        let codel = FqCodel {
            limit: 1001,
            quantum: Some(300),
            ce_threshold: Some(Nanos::from_millis(1)),
            ce_threshold_selector: Some(Selector { value: 1, mask: 3 }),
            ecn: false,
            ..FqCodel::default()
        };
        assert_eq!(decode_options(&encode(&codel, Purpose::Create)), Some(codel));
    }

    #[test]
    fn a_change_does_not_name_the_number_of_flows() {
        let change = encode(&FqCodel::default(), Purpose::Change);
        assert_eq!(Attributes(&change).get(FLOWS), None);
    }

    #[test]
    fn times_are_reported_in_ticks_of_1024_ns() {
        assert_eq!(
            [5000, 100_000, 13_992].map(normalized_micros),
            [4999, 99_999, 13_991]
        );
    }

    proptest! {
        #[test]
        fn a_restored_time_is_reported_unchanged(us in 0u64..4_000_000) {
            let reported = normalized_micros(us);
            prop_assert_eq!(normalized_micros(reported + 1), reported);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = decode_options(&bytes);
            recreate_options(&bytes, &TIMES);
        }
    }
}
