//! TBF's options (`TCA_TBF_*`).

use sqm_core::spec::tbf::{Peak, Tbf};
use sqm_core::spec::{LinkLayer, size_table::RateFraming};
use sqm_core::units::{Bytes, Rate};

use super::attribute::{Attributes, Builder, u32_at};
use super::htb::{RATESPEC, framing, ratespec, size, ticks};

const PARMS: u16 = 1;
const RATE64: u16 = 4;
const PRATE64: u16 = 5;
const BURST: u16 = 6;
const PBURST: u16 = 7;

/// Encodes every option. Bursts are sent in bytes, too: the kernel then computes their transmission time itself.
pub fn encode(tbf: &Tbf) -> Vec<u8> {
    let rate = tbf.rate.bytes_per_sec();
    let burst = word(tbf.burst);
    let (peak_rate, peak_mtu) = tbf
        .peak
        .map_or((0, Bytes(0)), |peak| (peak.rate.bytes_per_sec(), peak.mtu));
    // struct tc_tbf_qopt: rate, peakrate, limit, buffer, mtu.
    let mut parms = Vec::with_capacity(2 * RATESPEC + 12);
    parms.extend(ratespec(rate, tbf.framing));
    parms.extend(match tbf.peak {
        Some(_) => ratespec(peak_rate, tbf.framing),
        None => [0; RATESPEC],
    });
    let peak_ticks = if tbf.peak.is_some() {
        ticks(peak_mtu, peak_rate)
    } else {
        0
    };
    for word in [word(tbf.limit), ticks(tbf.burst, rate), peak_ticks] {
        parms.extend_from_slice(&word.to_ne_bytes());
    }
    let mut options = Builder::default().bytes(PARMS, &parms).u32(BURST, burst);
    if rate > u32::MAX.into() {
        options = options.u64(RATE64, rate);
    }
    if tbf.peak.is_some() {
        options = options.u32(PBURST, word(peak_mtu));
        if peak_rate > u32::MAX.into() {
            options = options.u64(PRATE64, peak_rate);
        }
    }
    options.finish()
}

/// Decodes options. The kernel reports bursts as transmission times.
pub fn decode_options(bytes: &[u8]) -> Option<Tbf> {
    let options = Attributes(bytes);
    let parms = options.get(PARMS)?;
    let word = |at| u32_at(parms, at);
    let rate = options.u64(RATE64).map_or_else(|| word(8).map(u64::from), Some)?;
    let peak_rate = options
        .u64(PRATE64)
        .map_or_else(|| word(RATESPEC + 8).map(u64::from), Some)?;
    let of_bytes = |n: u64| Rate::from_bits_per_sec(n.saturating_mul(8));
    Some(Tbf {
        rate: of_bytes(rate),
        limit: Bytes(word(2 * RATESPEC)?.into()),
        burst: size(word(2 * RATESPEC + 4)?, rate),
        peak: match peak_rate {
            0 => None,
            rate => Some(Peak {
                rate: of_bytes(rate),
                mtu: size(word(2 * RATESPEC + 8)?, rate),
            }),
        },
        framing: framing(parms)?,
    })
}

/// The parameters as the kernel will report them.
pub fn normalized(tbf: &Tbf) -> Tbf {
    let through_time = |bytes: Bytes, rate: Rate| {
        let rate = rate.bytes_per_sec();
        size(ticks(cost(bytes, tbf.framing), rate), rate)
    };
    let decoded = decode_options(&encode(tbf)).unwrap_or_else(|| tbf.clone());
    Tbf {
        burst: through_time(tbf.burst, decoded.rate),
        peak: decoded.peak.map(|peak| Peak {
            mtu: through_time(tbf.peak.map_or(peak.mtu, |peak| peak.mtu), peak.rate),
            ..peak
        }),
        ..decoded
    }
}

/// The length on the line that the kernel computes for a size.
fn cost(Bytes(size): Bytes, framing: RateFraming) -> Bytes {
    let size = (size + u64::from(framing.overhead)).max(framing.mpu.into());
    Bytes(match framing.linklayer {
        LinkLayer::Ethernet => size,
        LinkLayer::Atm => size.div_ceil(48) * 53,
    })
}

fn word(Bytes(size): Bytes) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_read_back() {
        let tbf = Tbf::parse("rate 8mbit burst 8000 limit 300000 overhead 22 mpu 64 linklayer atm").unwrap();
        let normalized = normalized(&tbf);
        assert_eq!(
            (normalized.rate, normalized.limit, normalized.framing),
            (tbf.rate, tbf.limit, tbf.framing)
        );
        // 8022 bytes in 168 cells.
        assert_eq!(normalized.burst, Bytes(168 * 53));
        let fast = Tbf::parse("rate 40gbit burst 100kb limit 1mb peakrate 80gbit mtu 9000").unwrap();
        assert_eq!(decode_options(&encode(&fast)).unwrap().rate, fast.rate);
        assert_eq!(
            super::normalized(&fast).peak.unwrap().rate,
            fast.peak.unwrap().rate
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = decode_options(&bytes);
        }
    }
}
