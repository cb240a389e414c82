//! HTB's options (`TCA_HTB_*`), for the root and for a class.

use sqm_core::spec::size_table::RateFraming;
use sqm_core::spec::{Htb, HtbClass, LinkLayer};
use sqm_core::units::{Bytes, Rate};

use super::attribute::{Attributes, Builder, u16_at, u32_at};

const PARMS: u16 = 1;
const INIT: u16 = 2;
const DIRECT_QLEN: u16 = 5;
const RATE64: u16 = 6;
const CEIL64: u16 = 7;

/// Version of the protocol between `tc` and the kernel (`TC_HTB_PROTOVER`).
const VERSION: u32 = 3;
/// `TC_LINKLAYER_*`. With any value but 0 the kernel computes transmission times itself and uses no rate table.
const LINKLAYER_ETHERNET: u8 = 1;
const LINKLAYER_ATM: u8 = 2;
/// Length of `struct tc_ratespec`, bytes.
pub(super) const RATESPEC: usize = 12;
/// Highest priority (`TC_HTB_NUMPRIO` is 8); the kernel lowers a higher one to it.
const PRIO_MAX: u32 = 7;
/// Nanoseconds in one tick of the packet scheduler (`PSCHED_SHIFT` is 6).
pub(super) const TICK_NS: u128 = 64;
const NS_PER_SEC: u128 = 1_000_000_000;

/// Encodes the options of the root.
pub fn encode_root(htb: &Htb) -> Vec<u8> {
    // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
    let mut init = Vec::with_capacity(20);
    for word in [VERSION, htb.r2q, htb.default, 0, 0] {
        init.extend_from_slice(&word.to_ne_bytes());
    }
    let options = Builder::default().bytes(INIT, &init);
    match htb.direct_qlen {
        Some(limit) => options.u32(DIRECT_QLEN, limit),
        None => options,
    }
    .finish()
}

/// Decodes the options of the root. The kernel always reports `direct_qlen`.
pub fn decode_root(bytes: &[u8]) -> Option<Htb> {
    let options = Attributes(bytes);
    let init = options.get(INIT)?;
    Some(Htb {
        default: u32_at(init, 8)?,
        r2q: u32_at(init, 4)?,
        direct_qlen: options.u32(DIRECT_QLEN),
    })
}

/// Turns reported options of a root into options that make the same root. The kernel reports its full version number, but
/// accepts the major number only.
pub(crate) fn recreate_root_options(options: &[u8]) -> Vec<u8> {
    let with_protocol_version = |init: &[u8]| match init.get(4..) {
        Some(rest) => [&VERSION.to_ne_bytes(), rest].concat(),
        None => init.to_vec(),
    };
    Attributes(options)
        .fold(Builder::default(), |built, (kind, payload)| match kind {
            INIT => built.bytes(kind, &with_protocol_version(payload)),
            _ => built.bytes(kind, payload),
        })
        .finish()
}

/// Encodes the options of a class.
pub fn encode_class(class: &HtbClass) -> Vec<u8> {
    let (rate, ceil) = (class.rate.bytes_per_sec(), class.ceil.bytes_per_sec());
    // struct tc_htb_opt: rate, ceil, buffer, cbuffer, quantum, level, prio.
    let mut parms = Vec::with_capacity(2 * RATESPEC + 20);
    parms.extend(ratespec(rate, class.framing));
    parms.extend(ratespec(ceil, class.framing));
    for word in [
        ticks(class.burst, rate),
        ticks(class.cburst, ceil),
        // With 0 the kernel divides the rate by r2q.
        class.quantum.unwrap_or(0),
        0,
        class.prio,
    ] {
        parms.extend_from_slice(&word.to_ne_bytes());
    }
    let mut options = Builder::default();
    if rate > u32::MAX.into() {
        options = options.u64(RATE64, rate);
    }
    if ceil > u32::MAX.into() {
        options = options.u64(CEIL64, ceil);
    }
    options.bytes(PARMS, &parms).finish()
}

/// Decodes the options of a class.
pub fn decode_class(bytes: &[u8]) -> Option<HtbClass> {
    let options = Attributes(bytes);
    let parms = options.get(PARMS)?;
    let word = |at| u32_at(parms, at);
    let rate = options.u64(RATE64).map_or_else(|| word(8).map(u64::from), Some)?;
    let ceil = options
        .u64(CEIL64)
        .map_or_else(|| word(RATESPEC + 8).map(u64::from), Some)?;
    let of_bytes = |n: u64| Rate::from_bits_per_sec(n.saturating_mul(8));
    Some(HtbClass {
        rate: of_bytes(rate),
        ceil: of_bytes(ceil),
        burst: size(word(2 * RATESPEC)?, rate),
        cburst: size(word(2 * RATESPEC + 4)?, ceil),
        quantum: Some(word(2 * RATESPEC + 8)?),
        prio: word(2 * RATESPEC + 16)?,
        framing: framing(parms)?,
    })
}

/// The parameters as the kernel will report them: rates in whole bytes per second, bursts rounded to ticks.
pub fn normalized(class: &HtbClass) -> HtbClass {
    let mut normalized = decode_class(&encode_class(class)).unwrap_or_else(|| class.clone());
    normalized.prio = normalized.prio.min(PRIO_MAX);
    normalized
}

/// `struct tc_ratespec`: cell_log, linklayer, overhead, cell_align, mpu, rate.
pub(super) fn ratespec(bytes_per_sec: u64, framing: RateFraming) -> [u8; RATESPEC] {
    let mut spec = [0; RATESPEC];
    spec[1] = match framing.linklayer {
        LinkLayer::Ethernet => LINKLAYER_ETHERNET,
        LinkLayer::Atm => LINKLAYER_ATM,
    };
    spec[2..4].copy_from_slice(&framing.overhead.to_ne_bytes());
    spec[6..8].copy_from_slice(&framing.mpu.to_ne_bytes());
    spec[8..].copy_from_slice(&u32::try_from(bytes_per_sec).unwrap_or(u32::MAX).to_ne_bytes());
    spec
}

/// The framing in a `struct tc_ratespec`.
pub(super) fn framing(spec: &[u8]) -> Option<RateFraming> {
    Some(RateFraming {
        overhead: u16_at(spec, 2)?,
        mpu: u16_at(spec, 6)?,
        linklayer: match *spec.get(1)? {
            LINKLAYER_ATM => LinkLayer::Atm,
            _ => LinkLayer::Ethernet,
        },
    })
}

/// Transmission time of a burst, ticks, rounded up (`tc_calc_xmittime` of iproute2). The kernel keeps bursts as times.
pub(super) fn ticks(Bytes(size): Bytes, bytes_per_sec: u64) -> u32 {
    let ns = (u128::from(size) * NS_PER_SEC).div_ceil(u128::from(bytes_per_sec.max(1)));
    // Rounding up twice is rounding up once: ceil(ceil(x) / n) = ceil(x / n) for whole n.
    u32::try_from(ns.div_ceil(TICK_NS)).unwrap_or(u32::MAX)
}

/// Bytes that pass in this many ticks, rounded down (`tc_calc_xmitsize` of iproute2).
pub(super) fn size(ticks: u32, bytes_per_sec: u64) -> Bytes {
    let size = u128::from(ticks) * TICK_NS * u128::from(bytes_per_sec) / NS_PER_SEC;
    Bytes(u64::try_from(size).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn class(kbits: u64) -> HtbClass {
        let rate = Rate::from_kbits_per_sec(kbits);
        HtbClass {
            rate,
            ceil: rate,
            prio: 0,
            quantum: Some(1749),
            burst: Bytes(1749),
            cburst: Bytes(1749),
            framing: Default::default(),
        }
    }

    #[test]
    fn parameters_are_where_the_kernel_expects_them() {
        // `tc class add dev d parent 1: classid 1:1 htb rate 8mbit burst 1749 quantum 1749`:
        // 1749 bytes at 1,000,000 bytes/s are 1749 us, 27328.125 ticks.
        let encoded = encode_class(&class(8000));
        let parms = Attributes(&encoded).get(PARMS).unwrap();
        assert_eq!(parms.len(), 44);
        assert_eq!(&parms[..2], &[0, LINKLAYER_ETHERNET]);
        assert_eq!(u32_at(parms, 8), Some(1_000_000));
        assert_eq!(u32_at(parms, 24), Some(27_329));
        assert_eq!(u32_at(parms, 32), Some(1749));
    }

    #[test]
    fn rate_above_32_bits_of_bytes_has_its_own_attribute() {
        let fast = class(40_000_000);
        assert_eq!(normalized(&fast).rate, fast.rate);
        let encoded = encode_class(&fast);
        assert_eq!(Attributes(&encoded).u64(RATE64), Some(5_000_000_000));
    }

    #[test]
    fn root_reads_back() {
        assert_eq!(
            decode_root(&encode_root(&Htb::with_default(0x10))),
            Some(Htb::with_default(0x10))
        );
    }

    proptest! {
        #[test]
        fn a_burst_is_reported_with_a_deviation_of_one_tick(kbits in 8u64..10_000_000, burst in 1u64..1_000_000) {
            let mut planned = class(kbits);
            planned.burst = Bytes(burst);
            let normalized = normalized(&planned);
            // Rounding adds no more than what passes in one tick.
            let tick_bytes = planned.rate.bytes_per_sec() * 64 / 1_000_000_000 + 1;
            prop_assert!(normalized.burst.0 + 1 >= burst && normalized.burst.0 <= burst + tick_bytes);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = (decode_class(&bytes), decode_root(&bytes));
        }
    }
}
