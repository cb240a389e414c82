//! PIE's options (`TCA_PIE_*`).

use sqm_core::spec::pie::Pie;
use sqm_core::units::Nanos;

use super::attribute::{Attributes, Builder};
use super::fq_codel::micros;
use super::htb::TICK_NS;

const TARGET: u16 = 1;
const LIMIT: u16 = 2;
const TUPDATE: u16 = 3;
const ALPHA: u16 = 4;
const BETA: u16 = 5;
const ECN: u16 = 6;
const BYTEMODE: u16 = 7;
const DQ_RATE_ESTIMATOR: u16 = 8;

/// Encodes every option, the estimator only if it is on, because older kernels do not know it.
pub fn encode(pie: &Pie) -> Vec<u8> {
    let options = Builder::default()
        .u32(LIMIT, pie.limit)
        .u32(TARGET, micros(pie.target))
        .u32(TUPDATE, micros(pie.tupdate))
        .u32(ALPHA, pie.alpha)
        .u32(BETA, pie.beta)
        .u32(ECN, pie.ecn.into())
        .u32(BYTEMODE, pie.bytemode.into());
    if pie.dq_rate_estimator {
        options.u32(DQ_RATE_ESTIMATOR, 1)
    } else {
        options
    }
    .finish()
}

/// Decodes options; absent ones have their default.
pub fn decode_options(bytes: &[u8]) -> Pie {
    let options = Attributes(bytes);
    let default = Pie::default();
    let time = |kind| options.u32(kind).map(|us| Nanos::from_micros(us.into()));
    let flag = |kind, otherwise| options.u32(kind).map_or(otherwise, |n| n != 0);
    Pie {
        limit: options.u32(LIMIT).unwrap_or(default.limit),
        target: time(TARGET).unwrap_or(default.target),
        tupdate: time(TUPDATE).unwrap_or(default.tupdate),
        alpha: options.u32(ALPHA).unwrap_or(default.alpha),
        beta: options.u32(BETA).unwrap_or(default.beta),
        ecn: flag(ECN, default.ecn),
        bytemode: flag(BYTEMODE, default.bytemode),
        dq_rate_estimator: flag(DQ_RATE_ESTIMATOR, default.dq_rate_estimator),
    }
}

/// The parameters as the kernel will report them: the target rounded to ticks of the packet scheduler. The kernel also
/// rounds `tupdate`, to jiffies, whose length netlink does not report.
pub fn normalized(pie: &Pie) -> Pie {
    let ticks = u128::from(pie.target.as_micros()) * 1000 / TICK_NS;
    Pie {
        target: Nanos::from_micros(u64::try_from(ticks * TICK_NS / 1000).unwrap_or(u64::MAX)),
        ..pie.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_read_back() {
        let pie = Pie {
            limit: 7,
            alpha: 1,
            beta: 3,
            ecn: true,
            bytemode: true,
            dq_rate_estimator: true,
            ..Pie::default()
        };
        assert_eq!(decode_options(&encode(&pie)), pie);
        assert_eq!(normalized(&pie), pie);
    }
}
