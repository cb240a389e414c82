//! The messages of `NETLINK_ROUTE` that carry traffic control, and a socket to exchange them.
//!
//! Encoders write what iproute2 writes. Decoders take any bytes: what is cut short, unknown or out of range gives
//! `None` or a default, never a panic. Numbers are in the machine's byte order unless a field says otherwise;
//! constants are those of `linux/pkt_sched.h`, `linux/rtnetlink.h` and `linux/pkt_cls.h`.

pub mod attribute;
pub mod cake;
pub mod codel;
pub mod ethtool;
pub mod fifo;
pub mod filter;
pub mod flowtable;
pub mod fq_codel;
pub mod hfsc;
pub mod htb;
pub mod link;
pub mod monitor;
pub mod nftables;
pub mod options;
pub mod pie;
#[cfg(test)]
mod recorded;
pub mod redirect;
pub mod sfq;
pub mod size_table;
pub mod socket;
pub mod statistics;
pub mod tbf;
pub mod tc;
