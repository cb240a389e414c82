//! CAKE's options (`TCA_CAKE_*`).

use sqm_core::spec::cake::{AckFilter, Cake, Cells, Framing, Isolation, Tins};
use sqm_core::units::{Bytes, Nanos, Rate};

use super::attribute::{Attributes, Builder};

const BASE_RATE64: u16 = 2;
const DIFFSERV_MODE: u16 = 3;
const ATM: u16 = 4;
const FLOW_MODE: u16 = 5;
const OVERHEAD: u16 = 6;
const RTT: u16 = 7;
const TARGET: u16 = 8;
const AUTORATE: u16 = 9;
const MEMORY: u16 = 10;
const NAT: u16 = 11;
const RAW: u16 = 12;
const WASH: u16 = 13;
const MPU: u16 = 14;
const INGRESS: u16 = 15;
const ACK_FILTER: u16 = 16;
const SPLIT_GSO: u16 = 17;
const FWMARK: u16 = 18;

/// `CAKE_DIFFSERV_*`, in the kernel's order.
const TINS: [Tins; 5] = [
    Tins::Diffserv3,
    Tins::Diffserv4,
    Tins::Diffserv8,
    Tins::Besteffort,
    Tins::Precedence,
];
/// `CAKE_FLOW_*`, in the kernel's order.
const ISOLATION: [Isolation; 8] = [
    Isolation::Flowblind,
    Isolation::Srchost,
    Isolation::Dsthost,
    Isolation::Hosts,
    Isolation::Flows,
    Isolation::DualSrchost,
    Isolation::DualDsthost,
    Isolation::TripleIsolate,
];
/// `CAKE_ACK_*`, in the kernel's order.
const ACK_FILTERS: [AckFilter; 3] = [AckFilter::Off, AckFilter::Filter, AckFilter::Aggressive];
/// `CAKE_ATM_*`, in the kernel's order.
const CELLS: [Cells; 3] = [Cells::None, Cells::Atm, Cells::Ptm];

/// Encodes every option, because a change keeps the old value of an option that is left out.
pub fn encode(cake: &Cake) -> Vec<u8> {
    // To the kernel 0 is unlimited, so a rate below one byte per second becomes one.
    let rate = cake.bandwidth.map_or(0, |rate| rate.bytes_per_sec().max(1));
    let interval = u32::try_from(cake.rtt.as_micros()).unwrap_or(u32::MAX).max(1);
    let options = Builder::default()
        .u64(BASE_RATE64, rate)
        .u32(DIFFSERV_MODE, position(&TINS, cake.tins))
        .u32(ATM, position(&CELLS, cake.framing.cells))
        .u32(FLOW_MODE, position(&ISOLATION, cake.isolation))
        .u32(OVERHEAD, i32::from(cake.framing.overhead).cast_unsigned())
        .u32(RTT, interval)
        .u32(TARGET, (interval / 20).max(1))
        .u32(AUTORATE, cake.autorate_ingress.into())
        .u32(
            MEMORY,
            cake.memlimit
                .map_or(0, |Bytes(n)| u32::try_from(n).unwrap_or(u32::MAX)),
        )
        .u32(FWMARK, cake.fwmark)
        .u32(NAT, cake.nat.into())
        .u32(WASH, cake.wash.into())
        .u32(MPU, cake.framing.mpu.into())
        .u32(INGRESS, cake.ingress.into())
        .u32(ACK_FILTER, position(&ACK_FILTERS, cake.ack_filter))
        .u32(SPLIT_GSO, cake.split_gso.into());
    // Any overhead makes the kernel count packets from the IP header. RAW turns that off and keeps the overhead; its value
    // and position do not matter.
    let options = if cake.framing.from_ip {
        options
    } else {
        options.u32(RAW, 0)
    };
    options.finish()
}

/// Decodes options; absent ones have their default. `None` for a mode that this program does not know.
pub fn decode_options(bytes: &[u8]) -> Option<Cake> {
    let options = Attributes(bytes);
    let default = Cake::default();
    let flag = |kind, otherwise| options.u32(kind).map_or(otherwise, |n| n != 0);
    let number = |kind| options.u32(kind).unwrap_or(0);
    Some(Cake {
        bandwidth: match options.u64(BASE_RATE64).unwrap_or(0) {
            0 => None,
            rate => Some(Rate::from_bits_per_sec(rate.saturating_mul(8))),
        },
        autorate_ingress: flag(AUTORATE, default.autorate_ingress),
        rtt: options
            .u32(RTT)
            .map_or(default.rtt, |us| Nanos::from_micros(us.into())),
        tins: *TINS.get(number(DIFFSERV_MODE) as usize)?,
        isolation: match options.u32(FLOW_MODE) {
            Some(mode) => *ISOLATION.get(mode as usize)?,
            None => default.isolation,
        },
        nat: flag(NAT, default.nat),
        wash: flag(WASH, default.wash),
        ack_filter: *ACK_FILTERS.get(number(ACK_FILTER) as usize)?,
        ingress: flag(INGRESS, default.ingress),
        split_gso: flag(SPLIT_GSO, default.split_gso),
        memlimit: match number(MEMORY) {
            0 => None,
            bytes => Some(Bytes(bytes.into())),
        },
        fwmark: number(FWMARK),
        framing: Framing {
            from_ip: options.get(RAW).is_none(),
            overhead: i16::try_from(number(OVERHEAD).cast_signed()).ok()?,
            mpu: u16::try_from(number(MPU)).ok()?,
            cells: *CELLS.get(number(ATM) as usize)?,
        },
    })
}

/// The parameters as the kernel will report them: rates in whole bytes per second, times in whole microseconds.
pub fn normalized(cake: &Cake) -> Cake {
    decode_options(&encode(cake)).unwrap_or_else(|| cake.clone())
}

/// The position of a value; the lists above hold all values.
fn position<T: PartialEq>(list: &[T], value: T) -> u32 {
    list.iter()
        .position(|v| *v == value)
        .map_or(u32::MAX, |n| n as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_parameter_reads_back() {
        for tins in TINS {
            for isolation in ISOLATION {
                let cake = Cake {
                    bandwidth: Some(Rate::from_kbits_per_sec(4400)),
                    tins,
                    isolation,
                    nat: true,
                    wash: true,
                    ack_filter: AckFilter::Aggressive,
                    ingress: true,
                    split_gso: false,
                    memlimit: Some(Bytes(4 << 20)),
                    fwmark: 0xff,
                    rtt: Nanos::from_millis(30),
                    autorate_ingress: true,
                    framing: Framing {
                        from_ip: true,
                        overhead: -4,
                        mpu: 64,
                        cells: Cells::Ptm,
                    },
                };
                assert_eq!(decode_options(&encode(&cake)).as_ref(), Some(&cake));
            }
        }
        assert_eq!(normalized(&Cake::default()), Cake::default());
    }

    #[test]
    fn rate_is_cut_to_whole_bytes_and_never_to_unlimited() {
        let normalized_rate = |bits| {
            normalized(&Cake {
                bandwidth: Some(Rate::from_bits_per_sec(bits)),
                ..Cake::default()
            })
            .bandwidth
        };
        assert_eq!(
            normalized_rate(1_000_007),
            Some(Rate::from_bits_per_sec(1_000_000))
        );
        assert_eq!(normalized_rate(1), Some(Rate::from_bits_per_sec(8)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = decode_options(&bytes);
        }
    }
}
