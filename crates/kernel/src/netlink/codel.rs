//! CoDel's options (`TCA_CODEL_*`).

use sqm_core::spec::codel::Codel;
use sqm_core::units::Nanos;

use super::attribute::{Attributes, Builder};
use super::fq_codel::{micros, normalized_time};

const TARGET: u16 = 1;
const LIMIT: u16 = 2;
const INTERVAL: u16 = 3;
const ECN: u16 = 4;
const CE_THRESHOLD: u16 = 5;

/// The attributes that are times, which the kernel keeps in units of CoDel's clock.
pub(crate) const TIMES: [u16; 3] = [TARGET, INTERVAL, CE_THRESHOLD];

/// Encodes every option, `ce_threshold` only if given.
pub fn encode(codel: &Codel) -> Vec<u8> {
    let options = Builder::default()
        .u32(LIMIT, codel.limit)
        .u32(TARGET, micros(codel.target))
        .u32(INTERVAL, micros(codel.interval))
        .u32(ECN, codel.ecn.into());
    match codel.ce_threshold {
        Some(threshold) => options.u32(CE_THRESHOLD, micros(threshold)),
        None => options,
    }
    .finish()
}

/// Decodes options; absent ones have their default.
pub fn decode_options(bytes: &[u8]) -> Codel {
    let options = Attributes(bytes);
    let default = Codel::default();
    let time = |kind| options.u32(kind).map(|us| Nanos::from_micros(us.into()));
    Codel {
        limit: options.u32(LIMIT).unwrap_or(default.limit),
        target: time(TARGET).unwrap_or(default.target),
        interval: time(INTERVAL).unwrap_or(default.interval),
        ecn: options.u32(ECN).map_or(default.ecn, |n| n != 0),
        ce_threshold: time(CE_THRESHOLD),
    }
}

/// The parameters as the kernel will report them.
pub fn normalized(codel: &Codel) -> Codel {
    Codel {
        target: normalized_time(codel.target),
        interval: normalized_time(codel.interval),
        ce_threshold: codel.ce_threshold.map(normalized_time),
        ..codel.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_read_back() {
        let codel = Codel {
            limit: 7,
            ecn: true,
            ce_threshold: Some(Nanos::from_millis(1)),
            ..Codel::default()
        };
        assert_eq!(decode_options(&encode(&codel)), codel);
        assert_eq!(normalized(&codel).target, Nanos::from_micros(4999));
    }
}
