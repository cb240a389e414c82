//! From `/etc/config/sqm` to an exact plan of queues.
//!
//! Pure functions, no I/O: [`uci`] text → [`settings`] of each section → [`validate`] the whole file → a setup script in
//! [`recipes`] → [`plan::Plan`]. A [`Configuration`] is read once by [`Configuration::parse`] and planned as often as
//! needed: for other devices, or at other rates.
#![forbid(unsafe_code)]

pub mod arithmetic;
mod configuration;
pub mod device;
pub mod diagnostic;
mod framing;
pub mod import;
pub mod line;
pub mod line_rate;
pub mod link;
mod option_value;
pub mod options;
pub mod own;
pub mod plan;
mod read;
pub mod recipes;
mod respelled;
pub mod services;
pub mod settings;
pub mod side;
pub mod uci;
pub mod validate;
mod value;

pub use configuration::{Configuration, Loaded, RateOverrides, load};
pub use option_value::OptionValue;
