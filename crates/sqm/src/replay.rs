//! Packets that were recorded, sent through a queue in virtual time.

pub(crate) mod capture;
mod delays;
mod engine;
mod output;
mod packet;
pub(crate) mod picture;
pub(crate) mod queue;
pub(crate) mod report;
mod series;
pub(crate) mod source;
mod statistics;
mod tally;
pub(crate) mod vector;
