//! Builds many homes inside one guest, each with a router and a line of its own to the same provider.
//!
//! ```text
//! h1 ── lan0[r1]wan0 ── line1 ┐
//! h2 ── lan0[r2]wan0 ── line2 ┼[core]c1 ── eth0[server]
//! …                           ┘
//! ```
//!
//! There is no modem, so that a home costs few packets: the buffer of the download is on the provider's device `lineN`, and that of the
//! upload on its device `upN`, to which all packets that arrive by `lineN` are redirected. No address is translated.

use std::fmt::Write;
use std::path::Path;

use crate::{Clock, Error, Guest, Line, bottleneck};

/// A booted guest with many homes in it.
#[derive(Debug)]
pub struct Homes {
    guest: Guest,
    count: u8,
}

/// The most homes. A choice: the addresses would do for 254, and the guest's memory for about 60 that are shaped.
pub const MOST: u8 = 50;

/// The names of this many homes' hosts: a router and a user's machine each.
pub fn hosts(count: u8) -> impl Iterator<Item = String> {
    (1..=count).flat_map(|home| [format!("r{home}"), format!("h{home}")])
}

/// True if a lab of some homes has a host of this name, apart from `core` and `server`.
pub fn is_host(name: &str) -> bool {
    hosts(MOST).any(|host| host == name)
}

impl Homes {
    /// Boots a guest and builds this many homes, each with a line like this one. `agent` is the `sqm-lab` program, which has `sqm` beside
    /// it.
    pub fn boot(clock: Clock, agent: &Path, line: &Line, count: u8) -> Result<Self, Error> {
        if !(1..=MOST).contains(&count) {
            return Err(Error::State(format!(
                "the lab can have 1 to {MOST} homes, not {count}"
            )));
        }
        let guest = Guest::boot_network(clock, agent)?;
        guest.script(&hosts_and_links(count))?;
        guest.script(&lines_and_delay(line, count))?;
        Ok(Self { guest, count })
    }

    /// The names of the routers.
    pub fn routers(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.count).map(|home| format!("r{home}"))
    }
}

impl From<Homes> for Guest {
    fn from(homes: Homes) -> Self {
        homes.guest
    }
}

impl std::ops::Deref for Homes {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.guest
    }
}

/// Sets up hosts, cables, addresses and routes. `gso_max_segs 1` is for the same purpose as `ethtool` in a single home, and starts no
/// process. A router has files of its own in /etc/config and /etc/sqm: `ip netns exec` puts /etc/netns/NAME over /etc.
fn hosts_and_links(count: u8) -> String {
    let mut namespaces = String::from("netns add core\nnetns add server\n");
    let mut core = String::from("link set lo up\naddr add 10.66.0.1/30 dev c1\nlink set c1 up\n");
    let mut rest = String::new();
    for n in 1..=count {
        write!(
            namespaces,
            "netns add r{n}\nnetns add h{n}\n\
             link add eth0 netns h{n} type veth peer name lan0 netns r{n}\n\
             link add wan0 netns r{n} type veth peer name line{n} netns core\n"
        )
        .expect("a String takes everything");
        write!(
            core,
            "addr add 10.64.{n}.2/30 dev line{n}\nlink add up{n} type ifb\nlink set line{n} up\nlink set up{n} up\n\
             route add 192.168.{n}.0/24 via 10.64.{n}.1\n"
        )
        .expect("a String takes everything");
        write!(
            rest,
            "ip -n h{n} -batch - <<BATCH
link set lo up
addr add 192.168.{n}.2/24 dev eth0
link set eth0 up gso_max_segs 1
route add default via 192.168.{n}.1
BATCH
ip -n r{n} -batch - <<BATCH
link set lo up
addr add 192.168.{n}.1/24 dev lan0
addr add 10.64.{n}.1/30 dev wan0
link set lan0 up gso_max_segs 1
link set wan0 up gso_max_segs 1
route add default via 10.64.{n}.2
BATCH
ip netns exec r{n} sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
mkdir -p /etc/netns/r{n}/config /etc/netns/r{n}/sqm
"
        )
        .expect("a String takes everything");
    }
    format!(
        "mkdir -p /etc/config /etc/sqm
ip -batch - <<BATCH
{namespaces}link add c1 netns core type veth peer name eth0 netns server
BATCH
ip -n core -batch - <<BATCH
{core}BATCH
ip netns exec core sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
ip -n server -batch - <<BATCH
link set lo up
addr add 10.66.0.2/30 dev eth0
link set eth0 up gso_max_segs 1
route add default via 10.66.0.1
BATCH
{rest}"
    )
}

/// Sets up the buffers of all lines, and the delay of the path to the server. The delay is on one side alone, and not on a host that
/// sends: TCP would count the packets in it as not sent yet.
fn lines_and_delay(line: &Line, count: u8) -> String {
    let mut commands = format!(
        "qdisc replace dev c1 root netem delay {}ms limit 200000\n",
        line.base_rtt_ms
    );
    for n in 1..=count {
        commands += &bottleneck::commands(&format!("line{n}"), &line.down, line);
        commands += &bottleneck::commands(&format!("up{n}"), &line.up, line);
        write!(
            commands,
            "qdisc add dev line{n} ingress\n\
             filter add dev line{n} parent ffff: matchall action mirred egress redirect dev up{n}\n"
        )
        .expect("a String takes everything");
    }
    bottleneck::batch("core", &commands)
}
