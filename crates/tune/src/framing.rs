//! What packets take on the line that is tuned, and the latency below which no queue on it can stay.

use sqm_core::spec::cake::Framing as LineFraming;
use sqm_core::units::{Nanos, Rate};
use sqm_measure::protocol::Probe;
use sqm_measure::result::Direction;
use sqm_plan::arithmetic::{self, Headers};

/// A packet of full size, with its IP header.
const PACKET: u32 = 1500;
/// TCP as Linux sends it.
const HEADERS: Headers = Headers::IPV4.timestamps();
/// The probes with their IP headers, bytes.
const UDP_PROBE: u32 = 28 + Probe::LENGTH as u32;
const ICMP_PROBE: u32 = 84;
/// Time between two ICMP probes.
const ICMP_INTERVAL_MS: u64 = 200;
/// Time between two UDP probes.
pub(crate) const PROBE_INTERVAL_MS: u64 = 40;
/// The same on the slowest lines.
const LONGEST_PROBE_INTERVAL_MS: u64 = 200;
/// A packet waits for one of full size that is being sent, and now and then for a second, of a flow whose queue had been
/// empty and which therefore is as new as it.
const AHEAD: u64 = 2;

/// How packets are counted on this line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framing {
    /// As the shaper counts.
    pub(crate) line: LineFraming,
    /// Bytes of link header that the interface counts in each packet.
    pub(crate) header: u32,
}

impl Framing {
    /// Gross bytes for a byte of goodput in packets of full size.
    pub(crate) fn per_good(self) -> f64 {
        f64::from(self.line.line_len(PACKET)) / f64::from(PACKET - HEADERS.bytes())
    }

    /// Gross bytes for a byte that the interface counts in packets of full size.
    pub(crate) fn per_counted(self) -> f64 {
        f64::from(self.line.line_len(PACKET)) / f64::from(PACKET + self.header)
    }

    /// What a packet of full size takes, megabits.
    pub(crate) fn packet_mbit(self) -> f64 {
        f64::from(self.line.line_len(PACKET)) * 8.0 / 1e6
    }

    /// What the probes take, Mbit/s: noticeable on slow lines.
    pub(crate) fn probes_mbit(self) -> f64 {
        let of = |ip_bytes: u32, interval_ms: u64| {
            f64::from(self.line.line_len(ip_bytes)) * 8.0 / 1000.0 / interval_ms as f64
        };
        of(UDP_PROBE, PROBE_INTERVAL_MS) + of(ICMP_PROBE, ICMP_INTERVAL_MS)
    }

    /// What load adds on this line even to the packets that are first in every queue, 95th percentile, ms.
    ///
    /// A packet on the line is not interrupted. Each way, two of full size can be in front, and the acknowledgements that
    /// the other direction's load sends in that time, of which every second packet there makes one. `loaded` is the rates
    /// of the directions under load.
    pub(crate) fn floor_ms(self, loaded: Loaded) -> f64 {
        let of = |own: Option<Rate>, other: Option<Rate>| {
            let Some(own) = own else { return 0.0 };
            let Nanos(wait) = arithmetic::queue_delay(AHEAD, PACKET, &self.line, own);
            let acks = other.map_or(0, |other| {
                arithmetic::acknowledgements(other, PACKET, HEADERS, &self.line).bits_per_sec()
            });
            wait as f64 / 1e6 * (1.0 + (acks as f64 / own.bits_per_sec() as f64).min(1.0))
        };
        of(loaded.down, loaded.up) + of(loaded.up, loaded.down)
    }

    /// Time between two UDP probes while these directions are loaded, ms. One that stands behind the one before tells of that, and
    /// not of the load: on slow lines they are as far apart as what may be in front of two of them takes.
    pub(crate) fn probe_interval_ms(self, loaded: Loaded) -> u64 {
        let slowest = [loaded.down, loaded.up].into_iter().flatten().min();
        let apart = slowest.map_or(0, |rate| {
            let Nanos(wait) = arithmetic::queue_delay(2 * AHEAD, PACKET, &self.line, rate);
            wait.div_ceil(1_000_000)
        });
        apart.clamp(PROBE_INTERVAL_MS, LONGEST_PROBE_INTERVAL_MS)
    }

    /// Why downloads of one rate do not go with uploads of the other, if they do not: their acknowledgements need more.
    pub(crate) fn too_narrow_for_acknowledgements(self, down: Rate, up: Rate) -> Option<String> {
        let acks = arithmetic::acknowledgements(down, PACKET, HEADERS, &self.line);
        (acks > up).then(|| {
            format!(
                "downloads at this rate send back about {} kbit/s of acknowledgements where {} kbit/s are configured: the \
                 download may be held back by that",
                acks.bits_per_sec() / 1000,
                up.bits_per_sec() / 1000,
            )
        })
    }
}

/// The rates of the directions under load, and none of the others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) down: Option<Rate>,
    pub(crate) up: Option<Rate>,
}

impl Loaded {
    /// Load in one direction alone.
    pub(crate) fn only(direction: Direction, mbit: f64) -> Self {
        let rate = Some(rate(mbit));
        match direction {
            Direction::Down => Self { down: rate, up: None },
            Direction::Up => Self { down: None, up: rate },
        }
    }
}

/// A rate of so many Mbit/s.
pub(crate) fn rate(mbit: f64) -> Rate {
    Rate::from_bits_per_sec((mbit * 1e6) as u64)
}

#[cfg(test)]
impl Framing {
    /// Of an Ethernet device.
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
        let both = |down, up| Loaded {
            down: Some(rate(down)),
            up: Some(rate(up)),
        };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.05, "{found}");
        // Alone: two packets of 1518 bytes at 4.8 Mbit/s.
        near(
            Framing::ethernet(18, Cells::None).floor_ms(Loaded::only(Direction::Up, 4.8)),
            5.06,
        );
        // Both: 0.87 ms down, 5.06 up, and 28/4.8 · 70/3036 of the latter.
        near(Framing::ethernet(18, Cells::None).floor_ms(both(28.0, 4.8)), 6.61);
        // Cells: a packet is 33 of them, an acknowledgement two.
        near(Framing::ethernet(40, Cells::Atm).floor_ms(both(8.0, 0.8)), 49.1);
        assert_eq!(
            Framing::ethernet(18, Cells::None).floor_ms(Loaded::default()),
            0.0
        );
    }

    #[test]
    fn probes_do_not_stand_behind_one_another() {
        let framing = Framing::ethernet(40, Cells::Atm);
        let interval = |mbit| framing.probe_interval_ms(Loaded::only(Direction::Up, mbit));
        // Four packets of 33 cells.
        assert_eq!((interval(0.5), interval(20.0), interval(0.1)), (112, 40, 200));
        assert_eq!(framing.probe_interval_ms(Loaded::default()), 40);
    }

    #[test]
    fn an_upload_too_narrow_for_the_acknowledgements_of_a_download_is_told() {
        let framing = Framing::ethernet(18, Cells::None);
        // 70 bytes for every two packets of 1518: 1.84 of 80 Mbit/s.
        let told = framing.too_narrow_for_acknowledgements(rate(80.0), rate(1.0));
        assert!(told.is_some_and(|told| told.contains("1844 kbit/s")));
        assert_eq!(
            framing.too_narrow_for_acknowledgements(rate(80.0), rate(2.0)),
            None
        );
    }
}
