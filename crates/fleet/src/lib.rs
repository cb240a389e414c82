//! Many routers under one hand.
//!
//! An operator writes a *desired document* for each router: the configuration that it should have ([`desired`]), signed by a key that no
//! server needs to hold ([`signed`]). The router takes it from a store ([`transport`]), tries it, judges it by the round trips of its own
//! users ([`judgement`]) or, if they load the line too little, by a test at a quiet hour ([`quiet_test`]), keeps it or rolls it back
//! ([`agent`]), and writes what came of it as a *report* ([`report`]). A roll-out ([`rollout`]) gives documents to a few routers first and
//! halts if they roll back.
//!
//! The store is a bucket of NATS JetStream ([`nats`]), with credentials that let a router read its own documents and write its own
//! reports only ([`credentials`]). No document can run a command: it holds a configuration and nothing else.
//!
//! Everything but [`nats`] is pure: the caller has the clock, the files and the network.
#![forbid(unsafe_code)]

pub mod agent;
#[cfg(feature = "operator")]
pub mod credentials;
pub mod daily;
pub mod desired;
pub mod judgement;
pub mod name;
pub mod nats;
pub mod quiet_test;
pub mod report;
#[cfg(feature = "operator")]
pub mod rollout;
#[cfg(feature = "operator")]
pub mod server;
pub mod signed;
pub mod transport;
mod user;

pub use name::Name;
pub use user::name_in;
