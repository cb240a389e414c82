//! Tests that need a real kernel. They are one program, so that its guests share the processors well.

pub(crate) mod autorate;
mod beside;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod drawn;
mod end;
pub(crate) mod faults;
pub(crate) mod files;
pub(crate) mod fleet;
pub(crate) mod fleet_kill;
#[path = "../support/guide.rs"]
pub(crate) mod guide;
mod in_time;
pub(crate) mod measure;
mod output;
mod own_scripts;
mod pppoe;
pub(crate) mod rows;
pub(crate) mod scripts;
pub(crate) mod search;
mod setup;
pub(crate) mod setups;
mod shape;
pub(crate) mod shared;
pub(crate) mod traffic;
pub(crate) mod truth;
pub(crate) mod tune;
mod twins;
