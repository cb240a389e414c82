//! The units and the queueing-discipline specifications of sqm.
//!
//! This crate knows no clock and no I/O: time and randomness are arguments, and `no_std` makes that a compile
//! error rather than a review comment.
//!
//! * [`units`]: [`Rate`](units::Rate), [`Bytes`](units::Bytes), [`Nanos`](units::Nanos), never bare integers.
//! * [`spec`]: the typed `tc` grammar, words in and words out.
//! * [`nearest`]: the word that was probably meant, for messages.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod nearest;
pub mod spec;
pub mod units;
