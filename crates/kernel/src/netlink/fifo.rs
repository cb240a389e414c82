//! The plain queues' options: not attributes, but `struct tc_fifo_qopt`, a single number.

use sqm_core::spec::fifo::Fifo;

use super::attribute::u32_at;

/// Nothing if the device's queue length is the limit.
pub fn encode(fifo: Fifo) -> Vec<u8> {
    fifo.limit
        .map(|limit| limit.to_ne_bytes().to_vec())
        .unwrap_or_default()
}

/// The limit is always reported.
pub fn decode_options(bytes: &[u8]) -> Fifo {
    Fifo {
        limit: u32_at(bytes, 0),
    }
}
