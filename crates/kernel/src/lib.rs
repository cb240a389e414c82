//! A plan, realised in the Linux kernel.
//!
//! [`observe`] reads what the kernel holds, [`verify`] compares it with a plan, [`diff`] computes the smallest change, and
//! [`transaction`] makes that change completely or not at all; [`stop`] restores what was there before.
//!
//! All changes go through netlink: devices and queues through `NETLINK_ROUTE`, firewall rules through `NETLINK_NETFILTER`;
//! driver features are read through `NETLINK_GENERIC`. No command is run: [`render`] only prints a plan as `tc` commands.
//! Beside netlink, [`state`] keeps records in `/var/run/sqm`, [`stack`] reads the PPPoE sessions in `/proc`, and [`foreign`]
//! looks for the traces of other programs in `/run`.
#![forbid(unsafe_code)]

pub mod capability;
pub mod diff;
pub mod error;
pub mod execute;
pub mod fault;
mod firewall;
pub mod foreign;
pub mod netlink;
pub mod observe;
pub mod other_rates;
mod ownership;
pub mod plan_json;
pub mod render;
pub mod routes;
pub mod scripts_state;
pub mod snapshot;
pub mod stack;
pub mod state;
pub mod status;
pub mod stop;
pub mod transaction;
pub mod uplink;
pub mod verify;

pub use error::{Difference, Error};
