//! `sqm fleet` on real servers: what is killed at any moment, and what is there afterwards.

mod cluster;
mod hub;

#[path = "../../../fleet/tests/support/mod.rs"]
mod servers;
