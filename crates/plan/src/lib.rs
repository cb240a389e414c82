//! From `/etc/config/sqm` to an exact plan of queues.
//!
//! Pure functions in a row, no I/O: [`uci`] text → [`settings`] per interface → [`validate`] the whole file →
//! a recipe in [`recipes`] → [`plan::Plan`].
#![forbid(unsafe_code)]

pub mod plan;
