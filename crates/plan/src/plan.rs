//! The plan: which queues stand on which device. Plain data that the kernel, the user-space engine and the
//! simulator all understand.
//!
//! Qdiscs, classes and filters are flat lists in the order of their creation, each naming its parent, as the kernel
//! itself lists them: printing, comparing and applying are then one walk.

pub mod moving;
mod nft;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sqm_core::filter::{Address, Condition as Fields, Masked};
pub use sqm_core::handle::Handle;
use sqm_core::spec::{Class, Qdisc, Stab};
use sqm_core::units::Nanos;

use moving::MovingRates;

/// Everything that shapes one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The shaped network device.
    pub interface: String,
    /// Name of the setup script that made the plan, such as `piece_of_cake.qos`; both if the directions differ.
    pub script: String,
    /// Queues on the device itself; `None` leaves what leaves the device unshaped.
    pub egress: Option<Tree>,
    /// Queues on the IFB that arriving packets are redirected to; `None` leaves them unshaped.
    pub ingress: Option<Tree>,
    /// Firewall rules that the queues rely on.
    pub firewall: Option<Firewall>,
    /// How the daemon moves the rates, with `option autorate`.
    pub autorate: Option<MovingRates>,
    /// Notes for people: values that were computed or converted.
    pub notes: Vec<String>,
}

impl Plan {
    /// The intermediate functional block that carries the ingress queues: `ifb4` and the device's name, cut to the
    /// 15 bytes a device name may have. Other tools look for this name.
    pub fn ifb(&self) -> String {
        Self::ifb_of(&self.interface)
    }

    /// The name of that device for any plan of an interface.
    pub fn ifb_of(interface: &str) -> String {
        let mut name = format!("ifb4{interface}");
        while name.len() > 15 {
            name.pop();
        }
        name
    }

    /// The shortest interval of its CoDel queues (CAKE's `rtt`). On a longer path CoDel signals congestion again before a flow
    /// can have reacted to the previous signal. None without such a queue.
    pub fn least_interval(&self) -> Option<Nanos> {
        let trees = [&self.egress, &self.ingress].into_iter().flatten();
        let intervals = trees
            .flat_map(|tree| &tree.qdiscs)
            .filter_map(|planned| match &planned.qdisc {
                Qdisc::Cake(cake) | Qdisc::CakeMq(cake) => Some(cake.rtt),
                Qdisc::FqCodel(queue) => Some(queue.interval),
                Qdisc::Codel(queue) => Some(queue.interval),
                _ => None,
            });
        intervals.min()
    }
}

/// Prints the plan for people: what stands where, in lines that belong together.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} by {}", self.interface, self.script)?;
        for (direction, device, tree) in [
            ("egress", &self.interface, &self.egress),
            ("ingress", &self.ifb(), &self.ingress),
        ] {
            match tree {
                Some(tree) => write!(f, "  {direction} on {device}\n{tree}")?,
                None => writeln!(f, "  {direction} is not shaped")?,
            }
        }
        if let Some(firewall) = &self.firewall {
            writeln!(f, "  firewall table inet {}", firewall.table)?;
            firewall
                .rules()
                .iter()
                .try_for_each(|(hook, rule)| writeln!(f, "    {hook}: {rule}"))?;
        }
        self.moving()
            .iter()
            .try_for_each(|line| writeln!(f, "  {line}"))?;
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

/// The queues of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Root first, then leaves, in order of creation.
    pub qdiscs: Vec<PlannedQdisc>,
    /// Parents before children. Created after the root qdisc and before the leaves.
    pub classes: Vec<PlannedClass>,
    /// How packets find their class, in the order in which they are asked. Created last.
    pub filters: Vec<PlannedFilter>,
}

impl Tree {
    /// The root qdisc. Every tree that a recipe makes has one.
    pub fn root(&self) -> Option<&PlannedQdisc> {
        self.qdiscs.iter().find(|qdisc| qdisc.parent.is_none())
    }

    /// The qdiscs below the root.
    pub fn leaves(&self) -> impl Iterator<Item = &PlannedQdisc> {
        self.qdiscs.iter().filter(|qdisc| qdisc.parent.is_some())
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root()
            .iter()
            .try_for_each(|root| writeln!(f, "    {root}"))?;
        self.classes
            .iter()
            .try_for_each(|class| writeln!(f, "    {class}"))?;
        self.leaves().try_for_each(|leaf| writeln!(f, "    {leaf}"))?;
        self.filters
            .iter()
            .try_for_each(|filter| writeln!(f, "    {filter}"))
    }
}

/// A qdisc and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedQdisc {
    /// `None` is the root of the device.
    pub parent: Option<Handle>,
    /// Its own handle, minor number 0.
    pub handle: Handle,
    /// Size table; only on a root.
    pub stab: Option<Stab>,
    /// Kind and parameters.
    pub qdisc: Qdisc,
}

impl fmt::Display for PlannedQdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.handle)?;
        match self.parent {
            Some(parent) => write!(f, " parent {parent} ")?,
            None => f.write_str(" root ")?,
        }
        if let Some(stab) = &self.stab {
            write!(f, "stab {stab} ")?;
        }
        self.qdisc.fmt(f)
    }
}

/// A class and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedClass {
    /// The qdisc or class above.
    pub parent: Handle,
    /// Its own number.
    pub id: Handle,
    /// Its parameters.
    pub class: Class,
}

impl fmt::Display for PlannedClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} parent {} {}", self.id, self.parent, self.class)
    }
}

/// A filter on the root qdisc that sends packets to a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFilter {
    /// Lower ones are asked first.
    pub preference: u16,
    /// The packets it looks at.
    pub protocol: Protocol,
    /// The condition that a packet must meet.
    pub condition: Condition,
    /// Where a packet that fits goes.
    pub class: Handle,
}

/// Prints what `tc filter add` takes after `parent 1:`, so that it can be pasted.
impl fmt::Display for PlannedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            preference,
            protocol,
            condition,
            class,
        } = self;
        write!(f, "protocol {protocol} prio {preference} ")?;
        match condition {
            Condition::Mark { value, mask } => write!(f, "handle {value:#x}/{mask:#x} fw classid {class}"),
            _ => {
                f.write_str("u32")?;
                for Key { at, value, mask } in condition.keys(*protocol) {
                    write!(f, " match u32 {value:#x} {mask:#x} at {at}")?;
                }
                write!(f, " flowid {class}")
            }
        }
    }
}

/// Which packets a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// All of them.
    All,
    /// IPv4.
    Ip,
    /// IPv6.
    Ipv6,
    /// Address resolution of IPv4.
    Arp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Ip => "ip",
            Self::Ipv6 => "ipv6",
            Self::Arp => "arp",
        })
    }
}

/// The condition of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing: every packet fits.
    Always,
    /// A firewall mark.
    Mark {
        /// The value of the masked mark.
        value: u32,
        /// The bits that are looked at.
        mask: u32,
    },
    /// A DSCP; the two ECN bits are not looked at.
    Dscp(u8),
    /// A TCP or UDP port below 1024, on the far side of the line. (In packets without IP options, as is usual.)
    WellKnownPort {
        /// TCP is 6, UDP 17.
        transport: u8,
        /// The destination's port; else the source's.
        destination: bool,
    },
    /// Header fields of IPv4 or IPv6, all of which must fit. Ports are those of packets without IP options.
    Fields(Fields),
}

/// A 32-bit word of the packet that a `u32` filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Bytes from the start of the network header, a multiple of 4.
    pub at: u32,
    /// The value of the masked word.
    pub value: u32,
    /// The bits that are looked at.
    pub mask: u32,
}

impl Condition {
    /// The words to compare; none that narrows anything down for [`Condition::Always`] and for marks.
    pub fn keys(self, protocol: Protocol) -> Vec<Key> {
        let ipv6 = protocol == Protocol::Ipv6;
        match self {
            Self::Always | Self::Mark { .. } => vec![Key {
                at: 0,
                value: 0,
                mask: 0,
            }],
            Self::Dscp(dscp) => {
                // Second byte of IPv4; in IPv6 four bits further left.
                let shift = if ipv6 { 20 } else { 16 };
                vec![Key {
                    at: 0,
                    value: u32::from(dscp) << 2 << shift,
                    mask: 0xfc << shift,
                }]
            }
            Self::WellKnownPort {
                transport,
                destination,
            } => {
                let (at, shift, ports_at) = if ipv6 { (4, 8, 40) } else { (8, 16, 20) };
                let protocol = Key {
                    at,
                    value: u32::from(transport) << shift,
                    mask: 0xff << shift,
                };
                let port = Key {
                    at: ports_at,
                    value: 0,
                    mask: if destination { 0xfc00 } else { 0xfc00_0000 },
                };
                vec![protocol, port]
            }
            Self::Fields(fields) => keys_of_fields(&fields, ipv6),
        }
    }
}

/// The words of a header that hold these fields.
fn keys_of_fields(fields: &Fields, is_ipv6: bool) -> Vec<Key> {
    let mut keys: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut add = |at: u32, value: u32, mask: u32| {
        let key = keys.entry(at).or_default();
        (key.0, key.1) = (key.0 | value, key.1 | mask);
    };
    if let Some(Masked { value, mask }) = fields.ds_field {
        let shift = if is_ipv6 { 20 } else { 16 };
        add(0, u32::from(value) << shift, u32::from(mask) << shift);
    }
    if let Some(protocol) = fields.transport {
        let (at, shift) = if is_ipv6 { (4, 8) } else { (8, 16) };
        add(at, u32::from(protocol) << shift, 0xff << shift);
    }
    let (source_at, destination_at, ports_at) = if is_ipv6 { (8, 24, 40) } else { (12, 16, 20) };
    for (address, at) in [(fields.source, source_at), (fields.destination, destination_at)] {
        match address {
            Some(Masked {
                value: Address::V4(value),
                mask: Address::V4(mask),
            }) => add(at, value, mask),
            Some(Masked {
                value: Address::V6(value),
                mask: Address::V6(mask),
            }) => {
                for word in 0..4 {
                    let part = |bits: u128| (bits >> (96 - 32 * word)) as u32;
                    if part(mask) != 0 {
                        add(at + 4 * word, part(value), part(mask));
                    }
                }
            }
            _ => {}
        }
    }
    for (port, shift) in [(fields.source_port, 16), (fields.destination_port, 0)] {
        if let Some(Masked { value, mask }) = port {
            add(ports_at, u32::from(value) << shift, u32::from(mask) << shift);
        }
    }
    let keys = keys
        .into_iter()
        .map(|(at, (value, mask))| Key { at, value, mask });
    keys.collect()
}

/// One table of the firewall, family `inet`, that belongs to one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firewall {
    /// Its name: `sqm_` and the device's, other than word characters replaced.
    pub table: String,
    /// The device whose packets the rules are for.
    pub interface: String,
    /// The bits of the mark that are ours.
    pub mask: u32,
    /// True if packets that leave are marked.
    pub marks_leaving: bool,
    /// True if the DSCP of arriving packets is erased after they were queued.
    pub erases_dscp: bool,
}

/// Where a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Packets that arrive.
    Prerouting,
    /// Packets that the router itself sends.
    Output,
    /// Packets that leave.
    Postrouting,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prerouting => "prerouting",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        })
    }
}

/// A firewall rule: if all conditions hold, the actions follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The conditions.
    pub conditions: Vec<RuleCondition>,
    /// The actions.
    pub actions: Vec<RuleAction>,
}

/// A condition of a firewall rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleCondition {
    /// The packet arrived on the interface.
    Arrives,
    /// The packet leaves by the interface.
    Leaves,
    /// The packet leaves by another one.
    LeavesElsewhere,
    /// Bits of ours in the mark are set (true) or all zero.
    Marked(bool),
    /// IPv6 (true) or IPv4.
    Ipv6(bool),
    /// The transport protocol's number.
    Transport(u8),
    /// The destination port.
    Port(u16),
    /// First and last type of an ICMPv6 message.
    Icmpv6Type(u8, u8),
    /// A DSCP.
    Dscp {
        /// IPv6 or IPv4.
        ipv6: bool,
        /// The six bits.
        dscp: u8,
        /// Must be this (true) or anything else.
        is: bool,
    },
}

/// An action of a firewall rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Sets our bits of the mark; others keep theirs.
    Mark(u32),
    /// Sets DSCP 0; the ECN bits stay.
    EraseDscp {
        /// IPv6 or IPv4.
        ipv6: bool,
    },
    /// No further rule of this chain is asked.
    Return,
}

impl Firewall {
    /// The table of a device.
    pub fn table_of(interface: &str) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("sqm_{}", interface.chars().map(word).collect::<String>())
    }

    /// The rules of each chain, in the order in which the kernel evaluates them.
    ///
    /// A mark is a packet's class: 1 has priority, 2 is the default, 3 is the background class. A mark in our bits that
    /// another program has set is left alone.
    pub fn rules(&self) -> Vec<(Hook, Rule)> {
        use RuleCondition::{Dscp, Icmpv6Type, Ipv6, Leaves, LeavesElsewhere, Marked, Port, Transport};

        const ICMP: u8 = 1;
        const UDP: u8 = 17;
        const ICMPV6: u8 = 58;
        let rule = |conditions: &[RuleCondition], actions: &[RuleAction]| Rule {
            conditions: conditions.to_vec(),
            actions: actions.to_vec(),
        };
        let mark = |conditions: &[RuleCondition], mark| {
            let rule = rule(conditions, &[RuleAction::Mark(mark), RuleAction::Return]);
            (Hook::Postrouting, rule)
        };
        let mut rules = Vec::new();
        if self.erases_dscp {
            for ipv6 in [false, true] {
                let marked = Dscp {
                    ipv6,
                    dscp: 0,
                    is: false,
                };
                let conditions = [RuleCondition::Arrives, Ipv6(ipv6), marked];
                rules.push((
                    Hook::Prerouting,
                    rule(&conditions, &[RuleAction::EraseDscp { ipv6 }]),
                ));
            }
        }
        if !self.marks_leaving {
            return rules;
        }
        // The router's own questions for names and time.
        for port in [53, 123] {
            let conditions = [Leaves, Marked(false), Transport(UDP), Port(port)];
            rules.push((Hook::Output, rule(&conditions, &[RuleAction::Mark(1)])));
        }
        rules.push((Hook::Postrouting, rule(&[LeavesElsewhere], &[RuleAction::Return])));
        rules.push((Hook::Postrouting, rule(&[Marked(true)], &[RuleAction::Return])));
        // Router and neighbour discovery is to IPv6 what ARP is to IPv4.
        rules.push(mark(&[Ipv6(true), Transport(ICMPV6), Icmpv6Type(133, 137)], 1));
        rules.push(mark(&[Ipv6(true), Transport(ICMPV6)], 3));
        rules.push(mark(&[Ipv6(false), Transport(ICMP)], 3));
        for ipv6 in [false, true] {
            for (dscp, value) in MARKED_DSCP {
                let is = true;
                rules.push(mark(&[Ipv6(ipv6), Dscp { ipv6, dscp, is }], value));
            }
        }
        rules.push(mark(&[], 2));
        rules
    }
}

/// DSCPs and what they are marked: lower effort (RFC 8622) and CS1 wait; network control, EF, AF42 and the old
/// low-delay bit go first.
pub(crate) const MARKED_DSCP: [(u8, u32); 7] = [(8, 3), (1, 3), (4, 1), (46, 1), (48, 1), (56, 1), (36, 1)];

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self
            .conditions
            .iter()
            .map(ToString::to_string)
            .chain(self.actions.iter().map(ToString::to_string))
            .collect();
        f.write_str(&words.join(" "))
    }
}

impl fmt::Display for RuleCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |ipv6: bool| if ipv6 { "ip6" } else { "ip" };
        match *self {
            Self::Arrives => f.write_str("arriving"),
            Self::Leaves => f.write_str("leaving"),
            Self::LeavesElsewhere => f.write_str("leaving elsewhere"),
            Self::Marked(true) => f.write_str("marked"),
            Self::Marked(false) => f.write_str("not marked"),
            Self::Ipv6(ipv6) => f.write_str(if ipv6 { "ipv6" } else { "ipv4" }),
            Self::Transport(protocol) => write!(f, "protocol {protocol}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Icmpv6Type(first, last) => write!(f, "type {first}-{last}"),
            Self::Dscp { ipv6, dscp, is } => {
                write!(f, "{} dscp {}{dscp}", family(ipv6), if is { "" } else { "not " })
            }
        }
    }
}

impl fmt::Display for RuleAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark(mark) => write!(f, "mark {mark}"),
            Self::EraseDscp { .. } => f.write_str("erase dscp"),
            Self::Return => f.write_str("done"),
        }
    }
}
