//! The size of packets on the line, and the least latency that load can add to it.

use sqm_core::direction::Direction;
use sqm_core::spec::cake::Framing as LineFraming;
use sqm_core::units::{Nanos, Rate};
use sqm_measure::protocol::Probe;
use sqm_plan::arithmetic::{self, Headers};

/// A full-size packet with its IP header, bytes: the MTU of Ethernet.
const PACKET: u32 = 1500;
/// The headers of a TCP segment as Linux sends it, with timestamps (RFC 7323).
const HEADERS: Headers = Headers::IPV4.timestamps();
/// A UDP probe with its IPv4 and UDP headers, bytes.
const UDP_PROBE: u32 = 28 + Probe::LENGTH as u32;
/// An ICMP probe with its IPv4 header, bytes: 56 bytes of data, as `ping` sends them.
const ICMP_PROBE: u32 = 84;
/// Time between two ICMP probes.
const ICMP_INTERVAL_MS: u64 = 200;
/// Time between two UDP probes. Our choice.
pub(crate) const PROBE_INTERVAL_MS: u64 = 40;
/// Time between two UDP probes on the slowest lines. Our choice.
const LONGEST_PROBE_INTERVAL_MS: u64 = 200;
/// Full-size packets that a packet may wait for even at the head of its queue: the one that is being sent, and at times a second one, of
/// another flow whose queue was empty as well.
const AHEAD: u64 = 2;

/// How packets are counted on the line and by the interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framing {
    /// The link layer and overhead, as the shaper counts them.
    pub(crate) line: LineFraming,
    /// The link header that the interface counts in each packet, bytes.
    pub(crate) header: u32,
}

impl Framing {
    /// Gross bytes per byte of goodput, with full-size packets.
    pub(crate) fn per_good(self) -> f64 {
        f64::from(self.line.line_len(PACKET)) / f64::from(PACKET - HEADERS.bytes())
    }

    /// Gross bytes per byte that the interface counts, with full-size packets.
    pub(crate) fn per_counted(self) -> f64 {
        f64::from(self.line.line_len(PACKET)) / f64::from(PACKET + self.header)
    }

    /// The size of a full-size packet on the line, megabits.
    pub(crate) fn packet_mbit(self) -> f64 {
        f64::from(self.line.line_len(PACKET)) * 8.0 / 1e6
    }

    /// The gross rate of the probes, Mbit/s. It matters on slow lines.
    pub(crate) fn probes_mbit(self) -> f64 {
        let mbit = |ip_bytes: u32, interval_ms: u64| {
            f64::from(self.line.line_len(ip_bytes)) * 8.0 / 1000.0 / interval_ms as f64
        };
        mbit(UDP_PROBE, PROBE_INTERVAL_MS) + mbit(ICMP_PROBE, ICMP_INTERVAL_MS)
    }

    /// The latency that load adds on this line even to packets at the head of every queue, 95th percentile, ms.
    ///
    /// The line does not interrupt a packet. In each direction, two full-size packets can be ahead, and the acknowledgements that the
    /// other direction's load causes in that time: one for every second packet there. `loaded` has the rates of the loaded directions.
    pub(crate) fn floor_ms(self, loaded: LoadedRates) -> f64 {
        let one_way_ms = |own: Option<Rate>, other: Option<Rate>| {
            let Some(own) = own else { return 0.0 };
            let Nanos(wait) = arithmetic::queue_delay(AHEAD, PACKET, &self.line, own);
            let acks = other.map_or(0, |other| {
                arithmetic::acknowledgements(other, PACKET, HEADERS, &self.line).bits_per_sec()
            });
            wait as f64 / 1e6 * (1.0 + (acks as f64 / own.bits_per_sec() as f64).min(1.0))
        };
        one_way_ms(loaded.down, loaded.up) + one_way_ms(loaded.up, loaded.down)
    }

    /// The time between two UDP probes while these directions are loaded, ms. A probe that waits behind the one before would measure the
    /// probes instead of the load. On slow lines they are therefore as far apart as the packets that may be ahead of two probes take.
    pub(crate) fn probe_interval_ms(self, loaded: LoadedRates) -> u64 {
        let slowest = [loaded.down, loaded.up].into_iter().flatten().min();
        let apart = slowest.map_or(0, |rate| {
            let Nanos(wait) = arithmetic::queue_delay(2 * AHEAD, PACKET, &self.line, rate);
            wait.div_ceil(1_000_000)
        });
        apart.clamp(PROBE_INTERVAL_MS, LONGEST_PROBE_INTERVAL_MS)
    }

    /// A message if the acknowledgements of downloads at the rate `down` need more than the upload rate `up`; otherwise `None`.
    pub(crate) fn too_narrow_for_acknowledgements(self, down: Rate, up: Rate) -> Option<String> {
        let acks = arithmetic::acknowledgements(down, PACKET, HEADERS, &self.line);
        (acks > up).then(|| {
            format!(
                "downloads at this rate need about {} kbit/s of acknowledgements, but the configured upload rate is {} kbit/s: this may \
                 limit the download",
                acks.bits_per_sec() / 1000,
                up.bits_per_sec() / 1000,
            )
        })
    }
}

/// The rates of the loaded directions; `None` for a direction without load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadedRates {
    pub(crate) down: Option<Rate>,
    pub(crate) up: Option<Rate>,
}

impl LoadedRates {
    /// Load in one direction alone, at a rate in Mbit/s.
    pub(crate) fn only(direction: Direction, mbit: f64) -> Self {
        let rate = Some(rate(mbit));
        match direction {
            Direction::Download => Self { down: rate, up: None },
            Direction::Upload => Self { down: None, up: rate },
        }
    }
}

/// The rate of `mbit` Mbit/s, rounded down to whole bits per second.
pub(crate) fn rate(mbit: f64) -> Rate {
    Rate::from_bits_per_sec((mbit * 1e6) as u64)
}

#[cfg(test)]
impl Framing {
    /// The framing of an Ethernet device.
    pub(super) fn ethernet(overhead: i16, cells: sqm_core::spec::cake::Cells) -> Self {
        Self {
            line: LineFraming {
                from_ip: true,
                overhead,
                mpu: 0,
                cells,
            },
            header: 14,
        }
    }
}

#[cfg(test)]
mod tests {
    use sqm_core::spec::cake::Cells;

    use super::*;

    #[test]
    fn the_floor_is_two_packets_each_way_and_the_acknowledgements_of_the_other() {
        let both = |down, up| LoadedRates {
            down: Some(rate(down)),
            up: Some(rate(up)),
        };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.05, "{found}");
        // One direction: two packets of 1518 bytes at 4.8 Mbit/s.
        near(
            Framing::ethernet(18, Cells::None).floor_ms(LoadedRates::only(Direction::Upload, 4.8)),
            5.06,
        );
        // Both directions: 0.87 ms down, 5.06 ms up, and 28/4.8 · 70/3036 of the latter.
        near(Framing::ethernet(18, Cells::None).floor_ms(both(28.0, 4.8)), 6.61);
        // ATM: a packet takes 33 cells, an acknowledgement two.
        near(Framing::ethernet(40, Cells::Atm).floor_ms(both(8.0, 0.8)), 49.1);
        assert_eq!(
            Framing::ethernet(18, Cells::None).floor_ms(LoadedRates::default()),
            0.0
        );
    }

    #[test]
    fn probes_do_not_wait_behind_one_another() {
        let framing = Framing::ethernet(40, Cells::Atm);
        let interval = |mbit| framing.probe_interval_ms(LoadedRates::only(Direction::Upload, mbit));
        // 112 ms: four packets of 33 ATM cells at 0.5 Mbit/s.
        assert_eq!((interval(0.5), interval(20.0), interval(0.1)), (112, 40, 200));
        assert_eq!(framing.probe_interval_ms(LoadedRates::default()), 40);
    }

    #[test]
    fn an_upload_too_narrow_for_the_acknowledgements_of_a_download_is_reported() {
        let framing = Framing::ethernet(18, Cells::None);
        // 70 bytes for every two packets of 1518: 1.84 of 80 Mbit/s.
        let message = framing.too_narrow_for_acknowledgements(rate(80.0), rate(1.0));
        assert!(message.is_some_and(|message| message.contains("1844 kbit/s")));
        assert_eq!(
            framing.too_narrow_for_acknowledgements(rate(80.0), rate(2.0)),
            None
        );
    }
}
