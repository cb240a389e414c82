//! A plan realised in the Linux kernel.
//!
//! Everything goes through `NETLINK_ROUTE`; `tc` is what we print, never what we run.
#![forbid(unsafe_code)]

pub mod render;
