//! Netlink sockets, and the messages that are exchanged through them.
//!
//! Devices and traffic control are in `NETLINK_ROUTE`, firewall rules in `NETLINK_NETFILTER`, driver features in
//! `NETLINK_GENERIC`. Encoders write the attributes that `tc`, `ip` and `nft` write; recorded messages of those tools are the
//! tests. Decoders accept any bytes: what is cut short, unknown or out of range becomes `None` or a default, never a
//! panic. Numbers are in the machine's byte order unless a comment says otherwise. Unless a file names another header,
//! constants are from `linux/pkt_sched.h`, `linux/rtnetlink.h` and `linux/pkt_cls.h`.

pub mod address;
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
pub mod route;
pub mod sfq;
pub mod size_table;
pub mod socket;
pub mod statistics;
pub mod tbf;
pub mod tc;
