//! Size tables (`tc-stab`): what a packet costs on the line, for disciplines that know nothing of framing.
//!
//! `tc` computes a table of sizes and the kernel looks packets up in it. The table has slots of `2^cell_log` bytes and
//! gives a packet the cost of the largest of its slot, so that with an `mpu` Ethernet sizes are rounded up to 4 bytes
//! by default; beyond the table costs are added up from whole tables, each with its own `mpu`. That is reproduced here:
//! a line is accounted for as the kernel accounts for it.

use alloc::vec::Vec;

use crate::flow_hash::HashKey;
use crate::narrow::{fits_u16, fits_u32, fits_usize};
use crate::packet::{Aggregate, Hashed, Packet, Tcp, View};
use crate::spec::{LinkLayer, Stab};

/// Sizes are limited to this, bytes.
const SIZE_MAX: i64 = 1 << 20;

/// A size table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeTable {
    overhead: i32,
    cell_log: u32,
    size_log: u32,
    /// Sizes by slot; empty if only `overhead` counts.
    sizes: Vec<u16>,
}

impl SizeTable {
    /// The table that `tc` computes.
    pub fn new(spec: &Stab) -> Self {
        let mut table = Self {
            overhead: spec.overhead,
            cell_log: 0,
            size_log: 0,
            sizes: Vec::new(),
        };
        if spec.mpu == 0 && spec.linklayer == LinkLayer::Ethernet {
            return table;
        }
        while u64::from(spec.mtu) >> table.cell_log > u64::from(spec.tsize.max(1)) - 1 {
            table.cell_log += 1;
        }
        let sizes =
            || (1..=u64::from(spec.tsize.max(1))).map(|slot| on_the_line(spec, slot << table.cell_log));
        let largest = sizes().max().unwrap_or(0);
        while largest >> table.size_log > u16::MAX.into() {
            table.size_log += 1;
        }
        table.sizes = sizes().map(|size| fits_u16(size >> table.size_log)).collect();
        table
    }

    /// The size with which a packet of `length` bytes counts.
    pub fn size_of(&self, length: u32) -> u32 {
        let with_overhead = i64::from(length) + i64::from(self.overhead);
        let Some(last) = self.sizes.last() else {
            return fits_u32(with_overhead.clamp(1, SIZE_MAX).cast_unsigned());
        };
        let slot = fits_usize((with_overhead - 1).max(0).cast_unsigned()) >> self.cell_log;
        let size = match self.sizes.get(slot) {
            Some(&size) => u64::from(size),
            None => {
                let (tables, rest) = (slot / self.sizes.len(), slot % self.sizes.len());
                u64::from(*last) * tables as u64 + u64::from(self.sizes[rest])
            }
        };
        fits_u32((size << self.size_log).clamp(1, SIZE_MAX.cast_unsigned()))
    }
}

fn on_the_line(spec: &Stab, size: u64) -> u64 {
    let size = size.max(spec.mpu.into());
    match spec.linklayer {
        LinkLayer::Ethernet => size,
        LinkLayer::Atm => size.div_ceil(48) * 53,
    }
}

/// A packet whose length is what the size table says.
#[derive(Clone, Debug)]
pub struct Sized<P> {
    packet: P,
    size: u32,
}

impl<P: Packet> Sized<P> {
    /// `packet` with its size on the line.
    pub fn new(packet: P, table: &SizeTable) -> Self {
        let size = table.size_of(packet.len());
        Self { packet, size }
    }

    /// The packet as it came.
    pub fn into_packet(self) -> P {
        self.packet
    }
}

impl<P: Packet> Packet for Sized<P> {
    #[inline]
    fn len(&self) -> u32 {
        self.size
    }

    fn truesize(&self) -> u32 {
        self.packet.truesize()
    }

    fn view(&self) -> View {
        self.packet.view()
    }

    #[inline]
    fn hashed(&self, key: &HashKey) -> Hashed {
        self.packet.hashed(key)
    }

    fn set_ce(&mut self) -> bool {
        self.packet.set_ce()
    }

    fn clear_dscp(&mut self) {
        self.packet.clear_dscp();
    }

    fn tcp(&self) -> Option<Tcp<'_>> {
        self.packet.tcp()
    }

    fn mark(&self) -> u32 {
        self.packet.mark()
    }

    fn priority(&self) -> u32 {
        self.packet.priority()
    }

    fn aggregate(&self) -> Option<Aggregate> {
        self.packet.aggregate()
    }

    /// Segments count with the length they have: the kernel does not look them up again.
    fn split(self, mut each: impl FnMut(Self)) {
        if self.packet.aggregate().is_none() {
            return each(self);
        }
        self.packet.split(|packet| {
            let size = packet.len();
            each(Self { packet, size });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, cell_log: u32, sizes: &[(u32, u32)]) {
        let table = SizeTable::new(&Stab::parse(words).unwrap());
        assert_eq!(table.cell_log, cell_log, "{words}");
        for &(length, size) in sizes {
            assert_eq!(table.size_of(length), size, "{words}: {length}");
        }
    }

    #[test]
    fn sizes_are_the_kernels() {
        check(
            "overhead 40 linklayer atm",
            2,
            &[
                (40, 106),
                (54, 106),
                (60, 159),
                (110, 212),
                (578, 689),
                (1000, 1166),
                (1500, 1749),
                (2100, 2385),
                (4000, 4505),
            ],
        );
        check(
            "overhead 34 mpu 64 linklayer ethernet mtu 2047 tsize 512",
            2,
            &[
                (40, 76),
                (54, 88),
                (66, 100),
                (1000, 1036),
                (1500, 1536),
                (1514, 1548),
                (2047, 2112),
                (4000, 4036),
            ],
        );
        check("overhead 44", 0, &[(1500, 1544)]);
        check(
            "mtu 1500 tsize 128 linklayer atm",
            4,
            &[(100, 159), (1000, 1113), (1514, 1696)],
        );
    }

    #[test]
    fn sizes_stay_within_bounds() {
        check("overhead -2000", 0, &[(1500, 1), (2500, 500)]);
        check("mtu 4294967295 tsize 1 mpu 4294967295", 32, &[(1, 1 << 20)]);
        check("overhead 2147483647 linklayer atm", 2, &[(1, 1 << 20)]);
    }
}
