//! Packets that were recorded, sent through a queue in virtual time.

pub(crate) mod vector;
