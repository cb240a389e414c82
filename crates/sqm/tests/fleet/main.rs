//! `sqm fleet` on real servers: what is killed at any moment, and what is there afterwards.

mod cluster;
mod hub;
mod kills;
mod page;
mod proxy;

#[allow(dead_code, reason = "the tests of a router's page use the rest")]
#[path = "../web/api.rs"]
mod api;
#[path = "../../../fleet/tests/support/mod.rs"]
mod servers;
#[allow(dead_code, reason = "the tests of a router's page use the rest")]
#[path = "../web/site.rs"]
mod site;
#[path = "../support/mod.rs"]
mod support;
