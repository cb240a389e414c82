//! The capacity of a line in figures: gross rate and goodput, packets per second, and the delay of a queue.
//!
//! A rate is rounded down, what must not be too little is rounded up; each function says which. Sizes of packets are
//! those of the IP packet, header included; a [`Framing`] says what such a packet takes on the line.

use sqm_core::spec::cake::Framing;
use sqm_core::units::{Nanos, Rate};

use crate::link::Preset;

/// The bytes of an IP packet that are headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Bytes of the IP header: 20 (RFC 791, without options) or 40 (RFC 8200).
    pub ip: u32,
    /// Bytes of the transport's header, options included: 20 of TCP (RFC 9293), 12 more with timestamps (RFC 7323).
    pub transport: u32,
}

impl Headers {
    /// TCP over IPv4 without options.
    pub const IPV4: Self = Self {
        ip: 20,
        transport: 20,
    };
    /// None: whole IP packets are counted.
    pub const NONE: Self = Self { ip: 0, transport: 0 };
    /// TCP over IPv6 without options.
    pub const IPV6: Self = Self {
        ip: 40,
        transport: 20,
    };

    /// These headers with TCP's timestamps, which most systems send.
    pub const fn timestamps(self) -> Self {
        Self {
            ip: self.ip,
            transport: self.transport + 12,
        }
    }

    /// Bytes of both.
    pub const fn bytes(self) -> u32 {
        self.ip + self.transport
    }
}

/// The size of IP packets on a line of that technology.
pub const fn framing(preset: &Preset) -> Framing {
    Framing {
        from_ip: true,
        overhead: preset.overhead as i16,
        mpu: preset.mpu as u16,
        cells: preset.layer.cells(),
    }
}

/// The payload that a gross rate carries in packets of this size; rounded down. Nothing if the headers fill them.
pub fn goodput(gross: Rate, packet: u32, headers: Headers, framing: &Framing) -> Rate {
    let payload = u128::from(packet.saturating_sub(headers.bytes()));
    let line = u128::from(framing.line_len(packet)).max(1);
    rate(u128::from(gross.bits_per_sec()) * payload / line)
}

/// The least gross rate that carries this goodput; rounded up. `None` if packets of this size have no payload.
pub fn gross(goodput: Rate, packet: u32, headers: Headers, framing: &Framing) -> Option<Rate> {
    let payload = u128::from(packet.saturating_sub(headers.bytes()));
    let line = u128::from(framing.line_len(packet));
    (payload > 0).then(|| rate((u128::from(goodput.bits_per_sec()) * line).div_ceil(payload)))
}

/// Whole packets per second; rounded down.
pub fn packets_per_sec(gross: Rate, packet: u32, framing: &Framing) -> u64 {
    gross.bits_per_sec() / (8 * u64::from(framing.line_len(packet).max(1)))
}

/// The time until the last of `packets` packets in a plain queue has been sent; rounded up, and the longest time at a rate of
/// 0.
pub fn queue_delay(packets: u64, packet: u32, framing: &Framing, gross: Rate) -> Nanos {
    let bits = u128::from(packets) * u128::from(framing.line_len(packet)) * 8;
    let nanos = bits
        .saturating_mul(1_000_000_000)
        .checked_div(u128::from(gross.bits_per_sec()))
        .unwrap_or(u128::MAX);
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The number of packets in a plain queue that delays by `delay`: a measured delay tells the size of a modem's buffer.
/// Rounded down.
pub fn queued_packets(delay: Nanos, packet: u32, framing: &Framing, gross: Rate) -> u64 {
    let bits = u128::from(delay.0) * u128::from(gross.bits_per_sec()) / 1_000_000_000;
    let each = u128::from(framing.line_len(packet).max(1)) * 8;
    u64::try_from(bits / each).unwrap_or(u64::MAX)
}

/// The rate of the acknowledgements that a download of this gross rate causes in the other direction, if every second
/// packet is acknowledged (RFC 9293, 3.8.6.3); rounded down.
pub fn acknowledgements(gross: Rate, packet: u32, headers: Headers, framing: &Framing) -> Rate {
    let one = u128::from(framing.line_len(headers.bytes()));
    let two = 2 * u128::from(framing.line_len(packet).max(1));
    rate(u128::from(gross.bits_per_sec()) * one / two)
}

/// Where a rate to begin with comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The rate of the contract: lines rarely carry all of it.
    Advertised,
    /// The rate that a test without shaping measured.
    Measured,
    /// The rate that our own test without shaping measured with this direction loaded alone: it is the line's to within a hundredth.
    MeasuredAlone,
}

/// The rate to shape at: 85 % of what is advertised, 95 % of what was measured (the advice of OpenWrt's SQM pages), 97 % of what was
/// measured alone (a choice: a hundredth for the error of the measurement, two to keep the queue in the shaper);
/// rounded to the nearest kbit/s, as there, and never to 0 from a rate that is more.
pub fn shaped(line: Rate, known: Known) -> Rate {
    let percent = match known {
        Known::Advertised => 85,
        Known::Measured => 95,
        Known::MeasuredAlone => 97,
    };
    let kbits = (u128::from(line.bits_per_sec()) * percent + 50_000) / 100_000;
    let least = u128::from(line.bits_per_sec() > 0);
    rate(kbits.max(least) * 1000)
}

fn rate(bits_per_sec: u128) -> Rate {
    Rate::from_bits_per_sec(u64::try_from(bits_per_sec).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use sqm_core::spec::cake::Cells;

    use super::*;
    use crate::link::PRESETS;
    use crate::recipes;

    const MBIT: Rate = Rate::from_kbits_per_sec(1000);

    fn over_ip(overhead: i16) -> Framing {
        Framing {
            from_ip: true,
            overhead,
            mpu: 0,
            cells: Cells::None,
        }
    }

    /// Percent of the gross rate, as people write it.
    fn percent(packet: u32, headers: u32, overhead: i16) -> f64 {
        let gross = Rate::from_kbits_per_sec(100_000_000);
        let headers = Headers {
            ip: headers,
            transport: 0,
        };
        let carried = goodput(gross, packet, headers, &over_ip(overhead));
        carried.bits_per_sec() as f64 / gross.bits_per_sec() as f64 * 100.0
    }

    /// The numbers worked out in the pages that taught people SQM (OpenWrt's SQM pages of 2016 and 2018, a blog on fighting
    /// bufferbloat with FQ_CoDel). Where a page is wrong the right number stands here with the reason; docs/reference/numbers.md
    /// tells the same.
    #[test]
    fn numbers_of_the_pages() {
        let near = |computed: f64, page: f64, digits: i32| {
            let scale = 10_f64.powi(digits);
            assert_eq!((computed * scale).round() / scale, page, "{computed}");
        };
        // "for a DOCSIS link with 18 bytes overhead you at best get a 3.82 % lower good-put"
        near(100.0 - percent(1500, 40, 18), 3.82, 2);
        // "100 * ((1500 - 8 - 20 - 20 - 12) / (1500 + 38 + 4)) = 93.39": PPPoE leaves packets of 1492 bytes.
        near(
            percent(1492, Headers::IPV4.timestamps().bytes(), 8 + 38 + 4),
            93.39,
            2,
        );
        // "100 * (1000 / (1000 + 100)) = 90.91", the same rate with no overhead, and 181.82 with one of 1000.
        near(percent(1000, 0, 100), 90.91, 2);
        near(percent(1000, 0, 0) * 0.9091, 90.91, 2);
        near(percent(1000, 0, 1000) * 1.8182, 90.91, 2);
        let carried = Rate::from_kbits_per_sec(90_910);
        for (overhead, page) in [(0, 90.91), (1000, 181.82)] {
            let needed = gross(carried, 1000, Headers::NONE, &over_ip(overhead)).unwrap();
            near(needed.bits_per_sec() as f64 / 1e6, page, 2);
        }
        // "100 * ((216 + 40) / (216 + 40 + 100)) = 68.354": that formula gives 71.91. 68.35 is 216 / (216 + 100), which
        // leaves the 40 bytes of headers out; the payload's share is 216 / 356 = 60.67.
        near(percent(256, 0, 100), 71.91, 2);
        near(percent(216, 0, 100), 68.3544, 4);
        near(percent(256, 40, 100), 60.67, 2);
        // "90.91 * (216 / (216 + 0)) = 90.91" and "181.82 * (216 / (216 + 1000)) = 32.297"
        near(percent(216, 0, 0) * 0.9091, 90.91, 2);
        near(percent(216, 0, 1000) * 1.8182, 32.297, 3);
        // "150 bytes and say 44 bytes are added to it, then the packet is 29 % larger"
        near(f64::from(over_ip(44).line_len(150)) / 1.5 - 100.0, 29.0, 0);
        // "the ATM framing bytes of a DSL link add an average of 9 % overhead": 5 of 53 bytes; the rest of the last cell
        // comes on top.
        let atm = Framing {
            cells: Cells::Atm,
            ..over_ip(0)
        };
        near(100.0 - 48.0 * 100.0 / f64::from(atm.line_len(48)), 9.0, 0);
        // "1,000,000,000 bits/sec / 8 / 1,538 = 81,274 packets/sec"; 1,000 packets are 12 ms.
        let gigabit = Rate::from_kbits_per_sec(1_000_000);
        assert_eq!(packets_per_sec(gigabit, 1500, &over_ip(38)), 81_274);
        near(millis(queue_delay(1000, 1500, &over_ip(38), gigabit)), 12.0, 0);
        // "1 Mbps ... a 1,000-packet buffer would represent a massive 12,000 ms delay", of the bare packets; with the 38
        // bytes of the line before it is 12,304.
        near(millis(queue_delay(1000, 1500, &over_ip(0), MBIT)), 12_000.0, 0);
        near(millis(queue_delay(1000, 1500, &over_ip(38), MBIT)), 12_304.0, 0);
        // "at 1 Mbps transmitting a 1,500-byte packet takes ~12 ms"
        near(millis(queue_delay(1, 1500, &over_ip(0), MBIT)), 12.0, 0);
        // "Based on the observed 3,000 ms delay ... the modem transmit queue length is ~250 packets"
        assert_eq!(
            queued_packets(Nanos::from_millis(3000), 1500, &over_ip(0), MBIT),
            250
        );
        near(millis(queue_delay(250, 1500, &over_ip(0), MBIT)), 3000.0, 0);
        // "fq_codel target 15ms" at 950 kbit/s: sqm-scripts' rule gives 14.7 ms.
        let (target, _) = recipes::auto_target(Rate::from_kbits_per_sec(950));
        near(millis(target), 15.0, 0);
        // "switch from MSS 1460 to MSS 146: ~10 times as many packets"
        let packets = |size| packets_per_sec(gigabit, size, &over_ip(18)) as f64;
        near(packets(146 + 40) / packets(1500), 7.0, 0); // With headers and overhead it is 7.4 times.
        // "1/40 asymmetry ... the same 1/40 ratio between data and reverse ACK traffic": 1/47 with an mpu of 64, 1/43
        // with timestamps.
        let docsis = framing(PRESETS.iter().find(|p| p.name == "docsis").unwrap());
        for (headers, ratio) in [(Headers::IPV4, 47.0), (Headers::IPV4.timestamps(), 43.0)] {
            let acks = acknowledgements(gigabit, 1500, headers, &docsis);
            near(1e9 / acks.bits_per_sec() as f64, ratio, 0);
        }
    }

    /// "7 megabit download / 768 kbps upload: 5950 and 653", "6200 and 670 measured: 5890 and 637".
    #[test]
    fn advised_rates_of_the_pages() {
        for (line, known, kbits) in [
            (7000, Known::Advertised, 5950),
            (768, Known::Advertised, 653),
            (6200, Known::Measured, 5890),
            (670, Known::Measured, 637),
            // "the rate limit must be lower than the available upload bandwidth (~95 %)": 950 kbit of 1 Mbit/s.
            (1000, Known::Measured, 950),
            (1, Known::Advertised, 1),
        ] {
            let shaped = shaped(Rate::from_kbits_per_sec(line), known);
            assert_eq!(shaped, Rate::from_kbits_per_sec(kbits), "{line}");
        }
        assert_eq!(
            shaped(Rate::from_bits_per_sec(0), Known::Measured).bits_per_sec(),
            0
        );
    }

    fn millis(time: Nanos) -> f64 {
        time.0 as f64 / 1e6
    }

    proptest! {
        #[test]
        fn gross_is_the_least_rate_that_carries_the_goodput(
            bits in 0..10_000_000_000_u64, packet in 53..9000_u32, preset in 0..PRESETS.len(),
        ) {
            let framing = framing(&PRESETS[preset]);
            let headers = Headers::IPV4.timestamps();
            let wanted = Rate::from_bits_per_sec(bits);
            let needed = gross(wanted, packet, headers, &framing).unwrap();
            prop_assert!(goodput(needed, packet, headers, &framing) >= wanted);
            let less = Rate::from_bits_per_sec(needed.bits_per_sec().saturating_sub(1));
            prop_assert!(bits == 0 || goodput(less, packet, headers, &framing) < wanted);
        }

        #[test]
        fn arbitrary_numbers_do_not_panic(bits: u64, packet: u32, packets: u64, overhead: i16, ip: u16) {
            let framing = over_ip(overhead);
            let rate = Rate::from_bits_per_sec(bits);
            let headers = Headers { ip: ip.into(), transport: 0 };
            let _ = (goodput(rate, packet, headers, &framing), gross(rate, packet, headers, &framing));
            let delay = queue_delay(packets, packet, &framing, rate);
            let _ = (queued_packets(delay, packet, &framing, rate), packets_per_sec(rate, packet, &framing));
            let _ = (acknowledgements(rate, packet, headers, &framing), shaped(rate, Known::Measured));
        }
    }
}
