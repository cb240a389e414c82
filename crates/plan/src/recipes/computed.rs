//! Parameters that sqm-scripts computes from the rate and the MTU, with its integer arithmetic.

use sqm_core::units::{Bytes, Rate};

use crate::settings::Mechanism;
use crate::side::DirectionContext;

/// CoDel's target, microseconds: 5 ms, or on a slow line the time of one large packet, 33 ATM cells of 53 bytes.
///
/// Less than a packet's own time would make CoDel drop from a queue of one.
pub(crate) fn target_micros(rate: Rate) -> u64 {
    /// Microseconds that 33 cells take at 1 kbit/s.
    const LARGE_PACKET_AT_1_KBIT: u64 = 33 * 53 * 8 * 1000;
    (LARGE_PACKET_AT_1_KBIT / rate.kbits_per_sec().max(1)).max(5000)
}

/// CoDel's interval, microseconds: the usual 100 ms, longer by as much as the target is.
pub(crate) const fn interval_micros(target_micros: u64) -> u64 {
    95_000 + target_micros
}

/// The number of queues in a leaf that `autoflow` chooses: as many as a line of that rate may keep busy.
pub(crate) fn flows(rate: Rate) -> u32 {
    /// Least kilobits per second, and flows.
    const STEPS: [(u64, u32); 8] = [
        (100_000, 1024),
        (70_000, 512),
        (40_000, 256),
        (20_000, 128),
        (10_000, 64),
        (8000, 48),
        (3000, 32),
        (1000, 16),
    ];
    let kbits = rate.kbits_per_sec();
    STEPS
        .iter()
        .find(|(least, _)| kbits >= *least)
        .map_or(8, |(_, flows)| *flows)
}

/// HTB's burst; a duration of 0 leaves it to `tc`.
pub(crate) fn htb_burst(context: DirectionContext<'_>) -> Bytes {
    match context.direction().burst_micros {
        0 => default_burst(context),
        micros => Bytes(burst(context.rate(), micros, context.device.mtu).into()),
    }
}

/// The burst that `tc` gives a class of HTB without one: one packet, of 1600 bytes unless the words have its size (`mtu`), as
/// they do where each class counts the framing.
pub(crate) fn default_burst(context: DirectionContext<'_>) -> Bytes {
    const LARGEST_PACKET: u32 = 1600;
    Bytes(match context.mechanism() {
        Some(Mechanism::HtbPrivate) => context.settings.link.table_mtu.into(),
        _ => LARGEST_PACKET.into(),
    })
}

/// HTB's quantum, bytes.
pub(crate) fn quantum(context: DirectionContext<'_>) -> u32 {
    burst(
        context.rate(),
        context.direction().quantum_micros,
        context.device.mtu,
    )
}

/// A token bucket's burst or quantum, bytes: the bytes that pass at the rate in `micros` microseconds, and at least one
/// packet with 48 bytes of overhead in ATM cells, or nothing could be sent.
pub(crate) fn burst(rate: Rate, micros: u32, mtu: u32) -> u32 {
    let by_time = u64::from(micros).saturating_mul(rate.kbits_per_sec()) / 8000;
    let packet = (u64::from(mtu) + 48).div_ceil(48) * 53;
    u32::try_from(by_time.max(packet)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_and_interval_follow_slow_rates() {
        for (kbit, target, interval) in [
            (1, 13_992_000, 14_087_000),
            (100, 139_920, 234_920),
            (128, 109_312, 204_312),
            (256, 54_656, 149_656),
            (384, 36_437, 131_437),
            (512, 27_328, 122_328),
            (768, 18_218, 113_218),
            (1000, 13_992, 108_992),
            (1500, 9328, 104_328),
            (2000, 6996, 101_996),
            (2500, 5596, 100_596),
            (2798, 5000, 100_000),
            (2799, 5000, 100_000),
            (u64::MAX / 1000, 5000, 100_000),
        ] {
            let computed = target_micros(Rate::from_kbits_per_sec(kbit));
            assert_eq!(
                (computed, interval_micros(computed)),
                (target, interval),
                "{kbit} kbit/s"
            );
        }
    }

    #[test]
    fn flows_follow_the_rate() {
        for (kbit, expected) in [
            (999, 8),
            (1000, 16),
            (7999, 32),
            (8000, 48),
            (99_999, 512),
            (100_000, 1024),
        ] {
            assert_eq!(flows(Rate::from_kbits_per_sec(kbit)), expected, "{kbit} kbit/s");
        }
    }

    #[test]
    fn burst_is_a_millisecond_or_a_packet() {
        for (mtu, floor) in [
            (576, 689),
            (1280, 1484),
            (1400, 1643),
            (1480, 1696),
            (1492, 1749),
            (1500, 1749),
            (1540, 1802),
            (9000, 10017),
        ] {
            assert_eq!(
                burst(Rate::from_kbits_per_sec(100), 1000, mtu),
                floor,
                "MTU {mtu}"
            );
        }
        for (kbit, bytes) in [
            (13_992, 1749),
            (25_000, 3125),
            (50_000, 6250),
            (100_000, 12_500),
            (250_000, 31_250),
            (500_000, 62_500),
            (1_000_000, 125_000),
        ] {
            assert_eq!(
                burst(Rate::from_kbits_per_sec(kbit), 1000, 1500),
                bytes,
                "{kbit} kbit/s"
            );
        }
        assert_eq!(burst(Rate::from_bits_per_sec(u64::MAX), 1000, u32::MAX), u32::MAX);
    }
}
