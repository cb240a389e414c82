//! The size of a packet on the line below: overhead, minimum size and cells (`tc-cake`(8), "overhead compensation").
//!
//! The sum is signed and then compared with the minimum size, so that a large negative overhead counts as nothing
//! rather than as four gigabytes, which it was in kernels before 6.12.

use crate::narrow::low_u32;
use crate::packet::Aggregate;
use crate::spec::cake::{Cells, Framing};

/// Payload bytes of an ATM cell (ITU-T I.361).
const ATM_PAYLOAD: u32 = 48;

/// Bytes of an ATM cell on the line.
const ATM_CELL: u32 = 53;

/// 64b/65b coding spends a byte for every 64 (ITU-T G.993.2, annex N).
const PTM_BLOCK: u32 = 64;

impl Framing {
    /// The length that counts before anything is added: without the link header if any word gave an overhead.
    #[inline]
    pub const fn counted_len(&self, len: u32, network_offset: u16) -> u32 {
        if self.from_ip {
            len.saturating_sub(network_offset as u32)
        } else {
            len
        }
    }

    /// The bytes on the line of a packet of `counted` bytes.
    #[inline]
    pub const fn line_len(&self, counted: u32) -> u32 {
        let sum = counted as i64 + self.overhead as i64;
        let sum = if sum < self.mpu as i64 {
            self.mpu as i64
        } else {
            sum
        };
        self.cells.line_len(low_u32(sum.cast_unsigned()))
    }

    /// The bytes on the line of a super-packet of `len` bytes when the device has cut it up.
    pub const fn aggregate_line_len(&self, len: u32, network_offset: u16, aggregate: Aggregate) -> u32 {
        let Aggregate {
            headers,
            mss,
            segments,
        } = aggregate;
        let before_last = segments.saturating_sub(1);
        let full = mss.saturating_add(headers).saturating_add(network_offset as u32);
        let last = len.saturating_sub(mss.saturating_mul(before_last));
        let full = self.line_len(self.counted_len(full, network_offset));
        let last = self.line_len(self.counted_len(last, network_offset));
        full.saturating_mul(before_last).saturating_add(last)
    }
}

impl Cells {
    /// The size of `len` bytes in such cells.
    #[inline]
    pub const fn line_len(self, len: u32) -> u32 {
        match self {
            Self::None => len,
            Self::Atm => len.div_ceil(ATM_PAYLOAD).saturating_mul(ATM_CELL),
            Self::Ptm => len.saturating_add(len.div_ceil(PTM_BLOCK)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::cake::Cake;

    fn framing(words: &str) -> Framing {
        let mut cake = Cake::default();
        cake.apply(words).unwrap();
        cake.framing
    }

    /// The sizes that Linux 6.12 counts for Ethernet frames of these lengths.
    #[test]
    fn every_link_layer_counts_as_the_kernel_does() {
        const LENGTHS: [u32; 8] = [42, 54, 60, 66, 110, 578, 1506, 1514];
        for (words, expected) in [
            ("", LENGTHS),
            ("raw", LENGTHS),
            ("conservative", [106, 106, 106, 159, 159, 689, 1749, 1749]),
            ("pppoa-vcmux", [53, 106, 106, 106, 159, 636, 1696, 1696]),
            ("pppoe-llcsnap", [106, 106, 106, 106, 159, 689, 1696, 1749]),
            ("bridged-ptm", [51, 63, 70, 76, 120, 596, 1538, 1546]),
            ("pppoe-ptm", [59, 72, 78, 84, 128, 604, 1546, 1554]),
            ("docsis", [64, 64, 64, 70, 114, 582, 1510, 1518]),
            ("ethernet", [84, 84, 84, 90, 134, 602, 1530, 1538]),
            ("ethernet ether-vlan", [84, 84, 88, 94, 138, 606, 1534, 1542]),
            ("overhead -60", [0, 0, 0, 0, 36, 504, 1432, 1440]),
            ("raw overhead 18", [60, 72, 78, 84, 128, 596, 1524, 1532]),
            ("atm", [53, 106, 106, 106, 159, 689, 1696, 1696]),
            ("overhead 44 atm", [106, 106, 106, 106, 159, 689, 1696, 1749]),
        ] {
            let framing = framing(words);
            let counted = LENGTHS.map(|len| framing.line_len(framing.counted_len(len, 14)));
            assert_eq!(counted, expected, "{words}");
        }
    }

    #[test]
    fn a_super_packet_costs_what_its_segments_cost() {
        let framing = framing("ethernet");
        let aggregate = Aggregate {
            headers: 40,
            mss: 1448,
            segments: 3,
        };
        assert_eq!(
            framing.aggregate_line_len(4054, 14, aggregate),
            1526 + 1526 + 1182
        );
    }
}
