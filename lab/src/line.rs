//! Models of access lines. A measurement should find their rates, and a shaper should stay below them.

/// An access line with its bloated buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Short name, such as `cable24`.
    pub name: &'static str,
    /// From the provider to the home.
    pub down: Direction,
    /// From the home to the provider.
    pub up: Direction,
    /// Round-trip time without any queue, milliseconds.
    pub base_rtt_ms: u32,
    /// Bytes that the line adds to each IP packet.
    pub overhead: u16,
    /// True if the line uses 53-byte ATM cells with 48 bytes of payload.
    pub atm: bool,
}

/// One direction of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Gross rate in kbit/s, which packets with their overhead share.
    pub kbits_per_sec: u64,
    /// The buffer in front of it.
    pub buffer: Buffer,
    /// Extra speed while a credit lasts.
    pub boost: Option<Boost>,
}

/// How much a buffer holds before it drops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buffer {
    /// A number of packets of any size.
    Packets(u32),
    /// A number of bytes.
    Bytes(u64),
    /// The bytes that the line sends in a number of milliseconds.
    Millis(u32),
}

/// "Powerboost": a faster line until a credit is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boost {
    /// Rate while the credit lasts, kbit/s.
    pub peak_kbits_per_sec: u64,
    /// How long a sender at the peak rate takes to use up a full credit, seconds.
    pub seconds: u32,
}

impl Line {
    /// The named lines, from 1 Mbit/s to gigabit fibre: those in the literature on bufferbloat, and the
    /// common access technologies.
    pub fn all() -> Vec<Self> {
        use Buffer::{Bytes, Millis, Packets};
        let up_1m = Self::new("up1m", (15_000, Bytes(400_000)), (1000, Packets(250)), 14, 18);
        let cable24 = Self::new("cable24", (28_000, Millis(1200)), (4800, Millis(1200)), 65, 18);
        let boost = Boost {
            peak_kbits_per_sec: 42_000,
            seconds: 10,
        };
        let boosted = Direction {
            boost: Some(boost),
            ..cable24.down.clone()
        };
        let boost24 = Self {
            name: "boost24",
            down: boosted,
            ..cable24.clone()
        };
        let adsl8 = Self::new("adsl8", (8000, Millis(500)), (800, Millis(1500)), 30, 40);
        vec![
            up_1m,
            cable24,
            boost24,
            Self::new("cable180", (180_000, Millis(200)), (12_600, Millis(200)), 15, 18),
            Self::new("vdsl80", (80_000, Millis(250)), (20_000, Millis(500)), 20, 30),
            Self { atm: true, ..adsl8 },
            Self::new("asym100", (100_000, Millis(200)), (2500, Millis(1000)), 20, 18),
            Self::new("fiber1g", (940_000, Millis(100)), (940_000, Millis(100)), 5, 18),
        ]
    }

    /// The line with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|line| line.name == name)
    }

    /// Highest goodput of TCP over IPv4 with timestamps at a gross rate on this line, Mbit/s: the gross rate times the payload
    /// share of a full packet.
    pub fn goodput_mbit(&self, gross_kbits_per_sec: u64) -> f64 {
        const PACKET: f64 = 1500.0;
        const HEADERS: f64 = 20.0 + 20.0 + 12.0;
        let counted = PACKET + f64::from(self.overhead);
        let on_the_line = if self.atm {
            (counted / 48.0).ceil() * 53.0
        } else {
            counted
        };
        gross_kbits_per_sec as f64 / 1000.0 * (PACKET - HEADERS) / on_the_line
    }

    fn new(
        name: &'static str,
        down: (u64, Buffer),
        up: (u64, Buffer),
        base_rtt_ms: u32,
        overhead: u16,
    ) -> Self {
        let direction = |(kbits_per_sec, buffer)| Direction {
            kbits_per_sec,
            buffer,
            boost: None,
        };
        Self {
            name,
            down: direction(down),
            up: direction(up),
            base_rtt_ms,
            overhead,
            atm: false,
        }
    }
}
