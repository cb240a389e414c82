//! Trees of queueing disciplines: from a [`Description`], which may be a list of `tc` commands, to a running [`Tree`].
//!
//! ```
//! use sqm_core::flow_hash::HashKey;
//! use sqm_core::qdisc::Environment;
//! use sqm_core::tree::Description;
//! use sqm_core::units::Instant;
//!
//! let description = Description::parse(
//!     "qdisc add dev eth0 root handle 1: htb default 10
//!      class add dev eth0 parent 1: classid 1:10 htb rate 20mbit
//!      qdisc add dev eth0 parent 1:10 fq_codel",
//! )
//! .unwrap();
//! assert_eq!(description.warnings(), []);
//! assert!(description.check().is_ok());
//! # let _ = Environment::ethernet(Instant(0), HashKey(0, 0));
//! ```

mod any;
mod change;
mod description;
mod stats;

pub use any::{AnyHfsc, AnyHtb, AnyQdisc, AnyTbf, Node};
pub use change::ChangeError;
pub use description::{BuildError, Description, LineError, Warning};
pub use stats::{Details, NodeStats};

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::{Backlog, Dequeued, DropReason, Drops, Environment, Qdisc};
use crate::rng::{Random, Xorshift};
use crate::size_table::{SizeTable, Sized};
use crate::units::Instant;

/// A running tree.
#[derive(Debug)]
pub struct Tree<P, R = Xorshift> {
    root: Root<P, R>,
    environment: Environment,
}

#[derive(Debug)]
enum Root<P, R> {
    Plain(Node<P, R>),
    /// Everything below counts packets as the size table does.
    Sized(SizeTable, Node<Sized<P>, R>),
}

impl<P: Packet, R: Random> Tree<P, R> {
    /// Builds what is described. `random` gives each queue that draws lots a source of its own.
    pub fn build(
        description: &Description,
        environment: &Environment,
        mut random: impl FnMut() -> R,
    ) -> Result<Self, BuildError> {
        let plan = description.plan()?;
        let root = match &plan.stab {
            Some(stab) => Root::Sized(
                SizeTable::new(stab),
                Node::build(&plan.root, environment, &mut random),
            ),
            None => Root::Plain(Node::build(&plan.root, environment, &mut random)),
        };
        Ok(Self {
            root,
            environment: *environment,
        })
    }

    /// Every discipline and class as it stands now: the root first, then in depth, classes by their numbers.
    pub fn stats(&self) -> Vec<NodeStats> {
        let mut stats = Vec::new();
        match &self.root {
            Root::Plain(root) => root.collect(None, &mut stats),
            Root::Sized(_, root) => root.collect(None, &mut stats),
        }
        stats
    }
}

impl<P: Packet, R: Random> Qdisc<P> for Tree<P, R> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        match &mut self.root {
            Root::Plain(root) => root.enqueue(packet, now, drops),
            Root::Sized(table, root) => root.enqueue(Sized::new(packet, table), now, &mut Unsized(drops)),
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        match &mut self.root {
            Root::Plain(root) => root.dequeue(now, drops),
            Root::Sized(_, root) => match root.dequeue(now, &mut Unsized(drops)) {
                Dequeued::Packet(packet) => Dequeued::Packet(packet.into_packet()),
                Dequeued::NotBefore(time) => Dequeued::NotBefore(time),
                Dequeued::Empty => Dequeued::Empty,
            },
        }
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        match &self.root {
            Root::Plain(root) => root.backlog(),
            Root::Sized(_, root) => root.backlog(),
        }
    }
}

/// Hands dropped packets on without their sizes.
struct Unsized<'a, P>(&'a mut dyn Drops<P>);

impl<P: Packet> Drops<Sized<P>> for Unsized<'_, P> {
    fn dropped(&mut self, packet: Sized<P>, reason: DropReason) {
        self.0.dropped(packet.into_packet(), reason);
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::flow_hash::HashKey;
    use crate::packet::{Addresses, Network, Tuple};
    use crate::test_packet::TestPacket;

    const UDP: TestPacket = with_ports(17, 40_000, 50_000);

    const fn with_ports(protocol: u8, source_port: u16, destination_port: u16) -> TestPacket {
        let addresses = Addresses::V4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(192, 0, 2, 1),
        };
        TestPacket {
            tuple: Some(Tuple {
                addresses,
                protocol,
                source_port,
                destination_port,
                flow_label: 0,
            }),
            ..TestPacket::new(1, 1000)
        }
    }

    fn build(text: &str) -> Tree<TestPacket> {
        let description = Description::parse(text).unwrap();
        let environment = Environment::ethernet(Instant(1 << 40), HashKey(1, 2));
        Tree::build(&description, &environment, || Xorshift::new(1)).unwrap()
    }

    /// The class in which a packet is queued; 0 is none.
    fn class_of(filters: &str, packet: TestPacket) -> u16 {
        let mut text = alloc::string::String::from("qdisc add root handle 1: htb default 12\n");
        for class in ["11", "12", "13"] {
            text += &alloc::format!("class add parent 1: classid 1:{class} htb rate 1mbit\n");
        }
        let mut tree = build(&(text + filters));
        tree.enqueue(packet, Instant(1 << 40), &mut ());
        let stats = tree.stats();
        let queued = stats
            .iter()
            .find(|node| matches!(node.details, Details::HtbClass(_)) && node.backlog.packets == 1);
        queued.map_or(0, |node| node.handle.minor)
    }

    #[test]
    fn filters_choose_by_mark_dscp_and_five_tuple() {
        let filters = "
            filter add dev eth0 parent 1:0 protocol ip prio 1 handle 0x1/0xff fw classid 1:11
            filter add dev eth0 parent 1:0 protocol ip prio 2 u32 match ip dsfield 0xb8 0xfc flowid 1:11
            filter add dev eth0 parent 1:0 protocol ip prio 3 u32 match ip protocol 1 0xff flowid 1:13
            filter add dev eth0 parent 1:0 protocol arp prio 4 handle 1 fw classid 1:13
            filter add dev eth0 parent 1:0 protocol ip prio 5 u32 match u32 0x00060000 0x00ff0000 at 8 \
                match u32 0x00000000 0x0000fc00 at 20 flowid 1:13
            filter add dev eth0 parent 1:0 protocol ip prio 6 flower ip_proto udp src_ip 10.0.0.0/8 \
                dst_port 443 classid 1:13
            filter add dev eth0 parent 1:0 protocol ip prio 7 u32 match ip dst 198.51.100.0/24 flowid 1:1f"
            .replace("\\\n", "");
        let mark = |mark| TestPacket { mark, ..UDP };
        for (packet, class) in [
            (UDP, 0x12),
            (mark(0x101), 0x11),
            (
                TestPacket {
                    ds_field: 0xba,
                    ..UDP
                },
                0x11,
            ),
            (with_ports(1, 40_000, 50_000), 0x13),
            (with_ports(6, 40_000, 1023), 0x13),
            (with_ports(6, 1023, 40_000), 0x12),
            (with_ports(17, 40_000, 443), 0x13),
            (
                TestPacket {
                    network: Network::Arp,
                    ..mark(1)
                },
                0x13,
            ),
        ] {
            assert_eq!(class_of(&filters, packet), class, "{packet:?}");
        }
    }

    #[test]
    fn a_filter_without_preference_goes_before_those_that_are_there() {
        let filters = "filter add parent 1: matchall classid 1:11
            filter add parent 1: matchall classid 1:13";
        assert_eq!(class_of(filters, UDP), 0x13);
        let filters = "filter add parent 1: matchall classid 1:11
            filter add parent 1: prio 50000 matchall classid 1:13";
        assert_eq!(class_of(filters, UDP), 0x11);
        assert_eq!(
            class_of("filter add parent 1: matchall classid 1:1f", UDP),
            0x12,
            "to nowhere"
        );
        assert_eq!(
            class_of("filter add parent 1: matchall classid 1:", UDP),
            0,
            "unshaped"
        );
    }

    #[test]
    fn a_size_table_counts_for_everything_below_it() {
        let mut tree = build(
            "qdisc add root handle 1: stab overhead 40 linklayer atm htb default 10
             class add parent 1: classid 1:10 htb rate 1mbit burst 1600 cburst 1600",
        );
        let now = Instant(1 << 40);
        for _ in 0..2 {
            tree.enqueue(UDP, now, &mut ());
        }
        assert_eq!(tree.backlog().bytes, 2 * 1166);
        let Dequeued::Packet(packet) = tree.dequeue(now, &mut ()) else {
            panic!("a full bucket");
        };
        assert_eq!(packet.len(), 1000);
        let Details::HtbClass(class) = tree.stats()[1].details else {
            panic!("{:?}", tree.stats()[1]);
        };
        assert_eq!(class.tokens, (1600 - 1166) * 8000);
    }

    #[test]
    fn statistics_walk_the_tree_from_the_root() {
        let tree = build(
            "qdisc add root handle 1: htb default 10
             class add parent 1: classid 1:1 htb rate 1mbit
             class add parent 1:1 classid 1:20 htb rate 1mbit
             class add parent 1:1 classid 1:10 htb rate 1mbit
             qdisc add parent 1:10 handle 110: tbf rate 1mbit burst 2k limit 10k
             qdisc add parent 110: handle 111: fq_codel",
        );
        let nodes: Vec<_> = tree
            .stats()
            .iter()
            .map(|node| alloc::format!("{} {}", node.handle, node.kind))
            .collect();
        assert_eq!(
            nodes,
            [
                "1: htb",
                "1:1 htb",
                "1:10 htb",
                "110: tbf",
                "111: fq_codel",
                "1:20 htb",
                "0: pfifo"
            ]
        );
    }
}
