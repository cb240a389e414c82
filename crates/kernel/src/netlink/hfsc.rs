//! HFSC's options: `struct tc_hfsc_qopt` of the root, `TCA_HFSC_*` of a class.

use sqm_core::spec::hfsc::Curve;
use sqm_core::spec::{Hfsc, HfscClass};
use sqm_core::units::{Nanos, Rate};

use super::attribute::{Attributes, Builder, u16_at, u32_at};

const RSC: u16 = 1;
const FSC: u16 = 2;
const USC: u16 = 3;

/// Encodes the options of the root.
pub fn encode_root(hfsc: &Hfsc) -> Vec<u8> {
    u16::try_from(hfsc.default).unwrap_or(0).to_ne_bytes().to_vec()
}

/// Decodes the options of the root.
pub fn decode_root(bytes: &[u8]) -> Option<Hfsc> {
    Some(Hfsc {
        default: u16_at(bytes, 0)?.into(),
    })
}

/// Encodes the options of a class.
pub fn encode_class(class: &HfscClass) -> Vec<u8> {
    [(RSC, class.rt), (FSC, class.ls), (USC, class.ul)]
        .into_iter()
        .filter_map(|(kind, curve)| Some((kind, curve?)))
        .fold(Builder::default(), |built, (kind, curve)| {
            built.bytes(kind, &encode_curve(curve))
        })
        .finish()
}

/// Decodes the options of a class.
pub fn decode_class(bytes: &[u8]) -> HfscClass {
    let curve = |kind| Attributes(bytes).get(kind).and_then(decode_curve);
    HfscClass {
        rt: curve(RSC),
        ls: curve(FSC),
        ul: curve(USC),
    }
}

/// The parameters as the kernel will report them: slopes in whole bytes per second.
pub fn normalized(class: &HfscClass) -> HfscClass {
    decode_class(&encode_class(class))
}

/// `struct tc_service_curve`: m1, d, m2.
fn encode_curve(curve: Curve) -> Vec<u8> {
    let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    [
        word(curve.m1.bytes_per_sec()),
        word(curve.d.as_micros()),
        word(curve.m2.bytes_per_sec()),
    ]
    .iter()
    .flat_map(|word| word.to_ne_bytes())
    .collect()
}

fn decode_curve(bytes: &[u8]) -> Option<Curve> {
    let slope = |at| Some(Rate::from_bits_per_sec(u64::from(u32_at(bytes, at)?) * 8));
    Some(Curve {
        m1: slope(0)?,
        d: Nanos::from_micros(u32_at(bytes, 4)?.into()),
        m2: slope(8)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn curves_read_back() {
        let class = HfscClass::parse("rt m1 10204kbit d 1s m2 10mbit ls m2 80kbit ul m2 10204kbit").unwrap();
        assert_eq!(normalized(&class), class);
        assert_eq!(
            decode_root(&encode_root(&Hfsc { default: 0x13 })),
            Some(Hfsc { default: 0x13 })
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (decode_class(&bytes), decode_root(&bytes));
        }
    }
}
