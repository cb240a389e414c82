//! Randomness as an argument: two runs with the same source give the same packets.

/// A source of random bits. The two widths are drawn independently, because recorded traces keep a list of each.
pub trait Random {
    /// For the dither of divided quanta.
    fn r16(&mut self) -> u16;

    /// For BLUE's verdicts.
    fn r32(&mut self) -> u32;
}

/// xorshift64* (Vigna 2016), seeded. Not for secrets.
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    /// A source that is determined by `seed`.
    pub const fn new(seed: u64) -> Self {
        // The all-zero state would stay there.
        Self(if seed == 0 { 0x9e37_79b9_7f4a_7c15 } else { seed })
    }

    /// The next 64 bits, of which the upper are the better ones.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(2_685_821_657_736_338_717)
    }
}

impl Random for Xorshift {
    fn r16(&mut self) -> u16 {
        (self.next_u64() >> 48) as u16
    }

    fn r32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }
}
