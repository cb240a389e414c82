//! A plan realised in the Linux kernel.
//!
//! Everything goes through `NETLINK_ROUTE`; `tc` is what we print, never what we run.
#![forbid(unsafe_code)]

pub mod apply;
pub mod capability;
pub mod diff;
pub mod error;
pub mod fault;
pub mod netlink;
pub mod observe;
pub mod owner;
pub mod plan_json;
pub mod render;
pub mod snapshot;
pub mod stack;
pub mod state;
pub mod status;
pub mod verify;

pub use error::Error;
