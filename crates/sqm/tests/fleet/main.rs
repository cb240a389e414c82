//! `sqm fleet` on real servers: what is killed at any moment, and what is there afterwards.

mod cluster;
mod hub;
mod kills;
mod proxy;

#[path = "../../../fleet/tests/support/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;
