//! Modelled and recorded lines in virtual time. No clock, no I/O, no threads: the same seed gives the same figures, byte for byte.
//!
//! * [`autorate_bench`]: controllers of `sqm_autorate` against lines whose rate varies.
//! * [`capacity`], [`fifo`]: a line whose rate varies, and the buffer in front of it.
//! * [`shaper`]: the shaper whose rate the controller sets.
//! * [`tcp`]: senders with congestion control.
//! * [`reflector`]: far hosts that answer probes, with faults.
//!
//! Floating point is used for the senders' arithmetic: `+ - * /` and `sqrt` only, which IEEE 754 defines to the last
//! bit.
#![forbid(unsafe_code)]

pub mod autorate_bench;
pub mod capacity;
pub mod fifo;
pub mod reflector;
pub mod shaper;
pub mod tcp;
