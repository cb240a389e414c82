//! Builds the home network inside a guest.
//!
//! `ip` and `tc` set up the *surroundings* (hosts, modem, delay). They stand for hardware, and must therefore not be built with the
//! code under test. The queues of the router are left to sqm.

use std::path::Path;

use crate::{Clock, Error, Guest, Line, bottleneck};

/// A booted guest with a home network in it.
#[derive(Debug)]
pub struct Home {
    guest: Guest,
}

/// The virtual hosts, by the names that [`Guest::run`] takes.
pub const HOSTS: [&str; 6] = ["h1", "h2", "router", "modem", "core", "server"];

/// The router's address inside the home.
pub const ROUTER_V4: &str = "192.168.1.1";

/// The server's IPv4 address.
pub const SERVER_V4: &str = "10.66.0.2";
/// The server's IPv6 address.
pub const SERVER_V6: &str = "fd00:66::2";

/// The router's interface to the modem: the one to shape.
pub const WAN: &str = "wan0";

impl Home {
    /// Boots a guest and builds the network with this line. `agent` is the `sqm-lab` program, which has `sqm` beside it.
    pub fn boot(clock: Clock, agent: &Path, line: &Line) -> Result<Self, Error> {
        let guest = Guest::boot_network(clock, agent)?;
        guest.script(HOSTS_AND_LINKS)?;
        guest.script(&line_and_delay(line))?;
        Ok(Self { guest })
    }
}

impl From<Home> for Guest {
    fn from(home: Home) -> Self {
        home.guest
    }
}

impl std::ops::Deref for Home {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.guest
    }
}

/// Sets up hosts, cables, addresses and routes. It uses `ip -batch`, because starting a process is slow in User Mode
/// Linux. Offloads are off: on a home line there are no packets of 64 KB.
const HOSTS_AND_LINKS: &str = r"
ip -batch - <<BATCH
netns add h1
netns add h2
netns add router
netns add modem
netns add core
netns add server
link add eth0 netns h1 type veth peer name lan1 netns router
link add eth0 netns h2 type veth peer name lan2 netns router
link add wan0 netns router type veth peer name lan0 netns modem
link add wan0 netns modem type veth peer name c0 netns core
link add c1 netns core type veth peer name eth0 netns server
BATCH

# Routers forward, all hosts use the same congestion control, and no run uses metrics of an earlier one.
for host in h1 h2 router modem core server; do
    ip netns exec $host sh -c '
        for device in eth0 lan0 lan1 lan2 wan0 c0 c1; do
            [ ! -e /sys/class/net/$device ] || ethtool -K $device tso off gso off gro off tx off rx off >/dev/null 2>&1
        done
        echo 1 >/proc/sys/net/ipv4/ip_forward
        echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
        echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
        echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save
        echo cubic >/proc/sys/net/ipv4/tcp_congestion_control'
done

ip -n h1 -batch - <<BATCH
link set lo up
addr add 192.168.1.11/24 dev eth0
addr add fd00:1::11/64 dev eth0 nodad
link set eth0 up
route add default via 192.168.1.1
route add default via fd00:1::1
BATCH
ip -n h2 -batch - <<BATCH
link set lo up
addr add 192.168.1.12/24 dev eth0
addr add fd00:1::12/64 dev eth0 nodad
link set eth0 up
route add default via 192.168.1.1
route add default via fd00:1::1
BATCH
ip -n router -batch - <<BATCH
link set lo up
link add br0 type bridge
link set lan1 master br0
link set lan2 master br0
addr add 192.168.1.1/24 dev br0
addr add fd00:1::1/64 dev br0 nodad
addr add 10.64.0.1/30 dev wan0
addr add fd00:64::1/64 dev wan0 nodad
link set lan1 up
link set lan2 up
link set br0 up
link set wan0 up
route add default via 10.64.0.2
route add default via fd00:64::2
BATCH
ip -n modem -batch - <<BATCH
link set lo up
addr add 10.64.0.2/30 dev lan0
addr add fd00:64::2/64 dev lan0 nodad
addr add 10.65.0.1/30 dev wan0
addr add fd00:65::1/64 dev wan0 nodad
link set lan0 up
link set wan0 up
route add default via 10.65.0.2
route add default via fd00:65::2
route add fd00:1::/64 via fd00:64::1
BATCH
ip -n core -batch - <<BATCH
link set lo up
addr add 10.65.0.2/30 dev c0
addr add fd00:65::2/64 dev c0 nodad
addr add 10.66.0.1/30 dev c1
addr add fd00:66::1/64 dev c1 nodad
link set c0 up
link set c1 up
route add 10.64.0.0/30 via 10.65.0.1
route add fd00:64::/64 via fd00:65::1
route add fd00:1::/64 via fd00:65::1
BATCH
ip -n server -batch - <<BATCH
link set lo up
addr add 10.66.0.2/30 dev eth0
addr add fd00:66::2/64 dev eth0 nodad
link set eth0 up
route add default via 10.66.0.1
route add default via fd00:66::1
BATCH
# Both of the lab's kernels have the legacy tables; Debian's has no nftables for IP. IPv6 is routed, as at home.
ip netns exec router iptables-legacy -t nat -A POSTROUTING -o wan0 -j MASQUERADE
";

/// Sets up the two buffers of the modem, and the delay of the path to the server. The delay is on another host, so that its
/// limit does not limit the buffer of the bottleneck.
fn line_and_delay(line: &Line) -> String {
    let one_way_us = line.base_rtt_ms * 500;
    let delay = |device| format!("qdisc replace dev {device} root netem delay {one_way_us}us limit 200000\n");
    let modem = [
        bottleneck::commands("lan0", &line.down, line),
        bottleneck::commands("wan0", &line.up, line),
    ];
    let core = [delay("c0"), delay("c1")];
    bottleneck::batch("modem", &modem.concat()) + &bottleneck::batch("core", &core.concat())
}
