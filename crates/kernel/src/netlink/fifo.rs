//! Options of the plain queues `pfifo`, `bfifo` and `pfifo_head_drop`: `struct tc_fifo_qopt`, a single number.

use sqm_core::spec::fifo::Fifo;

use super::attribute::u32_at;

/// Encodes the limit; nothing if the kernel shall derive it from the device's queue length.
pub fn encode(fifo: Fifo) -> Vec<u8> {
    fifo.limit
        .map(|limit| limit.to_ne_bytes().to_vec())
        .unwrap_or_default()
}

/// Decodes the limit, which the kernel always reports.
pub fn decode_options(bytes: &[u8]) -> Fifo {
    Fifo {
        limit: u32_at(bytes, 0),
    }
}
