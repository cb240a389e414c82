//! SFQ's options: not attributes, but `struct tc_sfq_qopt_v1`.

use sqm_core::spec::sfq::Sfq;

use super::attribute::{i32_at, u32_at};

/// Length of the structure: five words of the first version, thirteen more, six of them counters of its RED mode. One byte
/// less, and the kernel reads the first version alone: depth and headdrop would be lost.
const LENGTH: usize = 72;

/// The structure, with RED off.
pub fn encode(sfq: &Sfq) -> Vec<u8> {
    let sfq = sfq.effective();
    let mut bytes = Vec::with_capacity(LENGTH);
    // quantum, perturb_period, limit, divisor, flows; then depth, headdrop.
    for word in [
        // 0 leaves it to the kernel.
        sfq.quantum.unwrap_or(0),
        sfq.perturb,
        sfq.limit,
        sfq.divisor,
        sfq.flows,
        sfq.depth,
        sfq.headdrop.into(),
    ] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.resize(LENGTH, 0);
    bytes
}

/// `None` for a structure that is too short. The quantum is always reported, so it is always `Some`.
pub fn decode_options(bytes: &[u8]) -> Option<Sfq> {
    let default = Sfq::default();
    Some(Sfq {
        quantum: Some(u32_at(bytes, 0)?),
        perturb: u32::try_from(i32_at(bytes, 4)?).ok()?,
        limit: u32_at(bytes, 8)?,
        divisor: u32_at(bytes, 12)?,
        flows: u32_at(bytes, 16)?,
        depth: u32_at(bytes, 20).unwrap_or(default.depth),
        headdrop: u32_at(bytes, 24).unwrap_or(0) != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_read_back() {
        let sfq = Sfq {
            limit: 1001,
            flows: 300,
            quantum: Some(1514),
            perturb: 10,
            headdrop: true,
            ..Sfq::default()
        };
        assert_eq!(decode_options(&encode(&sfq)), Some(sfq));
        assert_eq!(decode_options(&[0; 7]), None);
    }

    /// `sizeof(struct tc_sfq_qopt_v1)`, below which the kernel takes no notice of depth and headdrop.
    #[test]
    fn the_second_version_is_whole() {
        assert_eq!(encode(&Sfq::default()).len(), 72);
    }
}
