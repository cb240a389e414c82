//! Size tables (`TCA_STAB_*`): user space computes the table, and the kernel looks up the length of each packet in it.

use sqm_core::spec::{LinkLayer, Stab};

use super::attribute::{Attributes, Builder, i32_at, u32_at};

const BASE: u16 = 1;
const DATA: u16 = 2;

const LINKLAYER_ETHERNET: u32 = 1;
const LINKLAYER_ATM: u32 = 2;
/// An ATM cell has 53 bytes, 48 of them payload.
const ATM_PAYLOAD: u64 = 48;
const ATM_CELL: u64 = 53;

/// Defaults of `tc` for the size of a table (`tc_calc_size_table`).
const MTU_DEFAULT: u32 = 2047;
const TSIZE_DEFAULT: u32 = 512;

/// Encodes the content of the attribute: `struct tc_sizespec`, then the table if one is needed.
pub fn encode(stab: &Stab) -> Vec<u8> {
    let Table {
        cell_log,
        size_log,
        sizes,
        mtu,
    } = table(stab);
    let cell_align: i16 = if sizes.is_empty() { 0 } else { -1 };
    let tsize = sizes.len() as u32;
    let mut base = vec![cell_log, size_log];
    base.extend_from_slice(&cell_align.to_ne_bytes());
    base.extend_from_slice(&stab.overhead.to_ne_bytes());
    for word in [linklayer(stab.linklayer), stab.mpu, mtu, tsize] {
        base.extend_from_slice(&word.to_ne_bytes());
    }
    let content = Builder::default().bytes(BASE, &base);
    if sizes.is_empty() {
        return content.finish();
    }
    let data: Vec<u8> = sizes.iter().flat_map(|size| size.to_ne_bytes()).collect();
    content.bytes(DATA, &data).finish()
}

/// Decodes the parameters. The kernel does not report the table.
pub fn decode_stab(bytes: &[u8]) -> Option<Stab> {
    let base = Attributes(bytes).get(BASE)?;
    Some(Stab {
        overhead: i32_at(base, 4)?,
        linklayer: match u32_at(base, 8)? {
            LINKLAYER_ATM => LinkLayer::Atm,
            0 | LINKLAYER_ETHERNET => LinkLayer::Ethernet,
            _ => return None,
        },
        mpu: u32_at(base, 12)?,
        mtu: u32_at(base, 16)?,
        tsize: u32_at(base, 20)?,
    })
}

/// The parameters as the kernel will report them: without a table, its size is 0.
pub fn normalized(stab: &Stab) -> Stab {
    decode_stab(&encode(stab)).unwrap_or_else(|| stab.clone())
}

/// The encoded parameters, without the table.
pub(crate) fn base(bytes: &[u8]) -> Option<&[u8]> {
    Attributes(bytes).get(BASE)
}

struct Table {
    cell_log: u8,
    size_log: u8,
    sizes: Vec<u16>,
    mtu: u32,
}

/// Computes the table as `tc_calc_size_table` of iproute2 does.
fn table(stab: &Stab) -> Table {
    // Without cells and without a minimum size there is nothing to look up: the kernel adds the overhead itself.
    if stab.linklayer == LinkLayer::Ethernet && stab.mpu == 0 {
        return Table {
            cell_log: 0,
            size_log: 0,
            sizes: Vec::new(),
            mtu: 0,
        };
    }
    let or = |n, default| if n == 0 { default } else { n };
    // The 16-bit length of an attribute allows 32765 entries of two bytes; 16384 is the largest power of two below.
    let tsize = or(stab.tsize, TSIZE_DEFAULT).min(16_384);
    let mtu = or(stab.mtu, MTU_DEFAULT);
    let cell_log = (0u8..32).find(|log| mtu >> log < tsize).unwrap_or(31);
    let costs: Vec<u64> = (1..=u64::from(tsize))
        .map(|slot| cost(slot << cell_log, stab))
        .collect();
    let largest = costs.iter().copied().max().unwrap_or(0);
    let size_log = (0u8..64)
        .find(|log| largest >> log <= u16::MAX.into())
        .unwrap_or(63);
    let sizes = costs.iter().map(|cost| (cost >> size_log) as u16).collect();
    Table {
        cell_log,
        size_log,
        sizes,
        mtu,
    }
}

/// The length of a packet on the line, bytes (`tc_adjust_size` of iproute2).
fn cost(size: u64, stab: &Stab) -> u64 {
    let size = size.max(stab.mpu.into());
    match stab.linklayer {
        LinkLayer::Ethernet => size,
        LinkLayer::Atm => size.div_ceil(ATM_PAYLOAD) * ATM_CELL,
    }
}

fn linklayer(layer: LinkLayer) -> u32 {
    match layer {
        LinkLayer::Ethernet => LINKLAYER_ETHERNET,
        LinkLayer::Atm => LINKLAYER_ATM,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stab(mpu: u32, linklayer: LinkLayer) -> Stab {
        Stab {
            mtu: 2047,
            tsize: 512,
            mpu,
            overhead: 30,
            linklayer,
        }
    }

    #[test]
    fn ethernet_without_a_minimum_size_needs_no_table() {
        let stab = stab(0, LinkLayer::Ethernet);
        assert_eq!(Attributes(&encode(&stab)).get(DATA), None);
        assert_eq!(
            normalized(&stab),
            Stab {
                mtu: 0,
                tsize: 0,
                ..stab
            }
        );
    }

    #[test]
    fn sizes_rise_in_steps_of_four_bytes_from_the_minimum_size() {
        let table = table(&stab(64, LinkLayer::Ethernet));
        assert_eq!((table.cell_log, table.size_log), (2, 0));
        assert_eq!(table.sizes[14..18], [64, 64, 68, 72]);
        assert_eq!(table.sizes.last(), Some(&2048));
    }

    #[test]
    fn cells_are_counted_whole() {
        let table = table(&stab(0, LinkLayer::Atm));
        // 4, 48, 52 and 1500 bytes: 1, 1, 2 and 32 cells.
        assert_eq!(
            [0, 11, 12, 374].map(|slot| table.sizes[slot]),
            [53, 53, 106, 1696]
        );
    }

    #[test]
    fn large_sizes_are_scaled_down() {
        let table = table(&Stab {
            mtu: 100_000,
            ..stab(64, LinkLayer::Ethernet)
        });
        assert_eq!((table.cell_log, table.size_log), (8, 2));
    }

    proptest! {
        #[test]
        fn any_parameters_make_a_table(mtu: u32, tsize: u32, mpu: u32, overhead: i32, atm: bool) {
            let linklayer = if atm { LinkLayer::Atm } else { LinkLayer::Ethernet };
            let stab = Stab { mtu, tsize, mpu, overhead, linklayer };
            prop_assert_eq!(normalized(&stab).overhead, overhead);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode_stab(&bytes);
        }
    }
}
