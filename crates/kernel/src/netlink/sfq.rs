//! SFQ's options: `struct tc_sfq_qopt_v1`, not attributes.

use sqm_core::spec::sfq::Sfq;

use super::attribute::{i32_at, u32_at};

/// Length of `struct tc_sfq_qopt_v1`, bytes: the five words of the first version, and thirteen more. If a request is
/// shorter, the kernel reads the first version only, and depth and headdrop are lost.
const LENGTH: usize = 72;

/// Offsets in `struct tc_sfq_qopt_v1`, bytes.
mod offset {
    pub(super) const QUANTUM: usize = 0;
    pub(super) const PERTURB: usize = 4;
    pub(super) const LIMIT: usize = 8;
    pub(super) const DIVISOR: usize = 12;
    pub(super) const FLOWS: usize = 16;
    pub(super) const DEPTH: usize = 20;
    pub(super) const HEADDROP: usize = 24;
    /// Where the fields of the RED mode begin. The kernel also puts its counters behind this.
    pub(super) const RED: usize = 28;
    /// Lower queue length of the RED mode; 0 while that mode is off.
    pub(super) const QTH_MIN: usize = 32;
}

/// Encodes the structure, with the RED mode off.
pub fn encode(sfq: &Sfq) -> Vec<u8> {
    let sfq = sfq.effective();
    let mut bytes = Vec::with_capacity(LENGTH);
    // quantum, perturb_period, limit, divisor, flows; then depth, headdrop.
    for word in [
        // With 0 the kernel chooses a quantum.
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

/// Decodes the structure; `None` if it is too short. The kernel always reports a quantum.
pub fn decode_options(bytes: &[u8]) -> Option<Sfq> {
    let default = Sfq::default();
    Some(Sfq {
        quantum: Some(u32_at(bytes, offset::QUANTUM)?),
        perturb: u32::try_from(i32_at(bytes, offset::PERTURB)?).ok()?,
        limit: u32_at(bytes, offset::LIMIT)?,
        divisor: u32_at(bytes, offset::DIVISOR)?,
        flows: u32_at(bytes, offset::FLOWS)?,
        depth: u32_at(bytes, offset::DEPTH).unwrap_or(default.depth),
        headdrop: u32_at(bytes, offset::HEADDROP).unwrap_or(0) != 0,
    })
}

/// True if the RED mode is on, which plans do not use.
pub(crate) fn has_red(options: &[u8]) -> bool {
    u32_at(options, offset::QTH_MIN).is_some_and(|qth_min| qth_min != 0)
}

/// Options as reported, without the packet counters that the kernel reports among them. Options with the RED mode stay as
/// they are.
pub(crate) fn without_counters(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    if !has_red(&options)
        && let Some(rest) = options.get_mut(offset::RED..)
    {
        rest.fill(0);
    }
    options
}

/// Turns reported options into options that make the same SFQ.
///
/// The kernel reports more flows than the limit only if it chose both numbers; if they were given, it would lower
/// flows to the limit. Such an SFQ is made with neither.
pub(crate) fn recreate_options(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    if u32_at(&options, offset::FLOWS) > u32_at(&options, offset::LIMIT) {
        for at in [offset::LIMIT, offset::FLOWS] {
            options[at..at + 4].fill(0);
        }
    }
    options
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

    /// If it is shorter than `sizeof(struct tc_sfq_qopt_v1)`, the kernel ignores depth and headdrop.
    #[test]
    fn the_structure_has_its_full_length() {
        assert_eq!(encode(&Sfq::default()).len(), 72);
    }
}
