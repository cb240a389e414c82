//! The routes that tell which devices lead to the internet, from the kernel's tables as text.

/// The routes of the main table, IPv4 before IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    device: String,
    is_ipv6: bool,
    metric: u64,
    /// Length of the destination's prefix, bits.
    prefix: u32,
    /// Its packets go to a router on the device's network.
    has_gateway: bool,
    /// Its destination is neither link-local nor multicast.
    is_global: bool,
}

/// `RTF_GATEWAY`.
const GATEWAY: u64 = 0x2;
/// `RTF_CACHE`: an exception that the kernel has learned, such as a smaller MTU.
const CACHE: u64 = 0x0100_0000;

impl Routes {
    /// The routes of this process's network namespace.
    pub fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text("/proc/net/route"), &text("/proc/net/ipv6_route"))
    }

    /// `ipv4` is the content of `/proc/net/route`, `ipv6` that of `/proc/net/ipv6_route`; lines of another form are
    /// skipped.
    pub fn parse(ipv4: &str, ipv6: &str) -> Self {
        let ipv4 = ipv4.lines().skip(1).filter_map(Route::ipv4);
        Self(ipv4.chain(ipv6.lines().filter_map(Route::ipv6)).collect())
    }

    /// The devices of default routes, the preferred one first, IPv4 before IPv6.
    pub fn default_devices(&self) -> Vec<String> {
        let mut routes: Vec<&Route> = self.0.iter().filter(|route| route.prefix == 0).collect();
        routes.sort_by_key(|route| (route.is_ipv6, route.metric, &route.device));
        unique(routes)
    }

    /// True if a device has a network of its own and no router beyond it: it leads to hosts, and not further.
    pub fn leads_to_hosts_only(&self, device: &str) -> bool {
        let mut routes = self.0.iter().filter(|route| route.device == device);
        let is_network = |route: &Route| {
            let host = if route.is_ipv6 { 128 } else { 32 };
            route.is_global && !route.has_gateway && (1..host).contains(&route.prefix)
        };
        routes.clone().any(is_network) && !routes.any(|route| route.has_gateway || route.prefix == 0)
    }

    /// The devices of routes to a single host beyond a router. A program that sends everything through a tunnel adds
    /// such a route for the packets of the tunnel itself.
    pub(crate) fn host_devices(&self) -> Vec<String> {
        let is_host =
            |route: &&Route| route.has_gateway && route.prefix == if route.is_ipv6 { 128 } else { 32 };
        unique(self.0.iter().filter(is_host))
    }
}

impl Route {
    fn ipv4(line: &str) -> Option<Self> {
        // Device, destination, gateway, flags, references, use, metric, mask.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [device, _, _, flags, _, _, metric, mask, ..] = words[..] else {
            return None;
        };
        // A route that refuses packets (`unreachable`, `blackhole`, `prohibit`) has no device.
        if device == "*" {
            return None;
        }
        Some(Self {
            device: device.to_owned(),
            is_ipv6: false,
            metric: metric.parse().unwrap_or(u64::MAX),
            prefix: u32::from_str_radix(mask, 16).ok()?.count_ones(),
            has_gateway: hexadecimal(flags)? & GATEWAY != 0,
            is_global: true,
        })
    }

    fn ipv6(line: &str) -> Option<Self> {
        // Destination, its prefix, source, its prefix, next hop, metric, references, use, flags, device.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [destination, prefix, _, _, _, metric, _, _, flags, device] = words[..] else {
            return None;
        };
        let flags = hexadecimal(flags)?;
        (device != "lo" && flags & CACHE == 0).then(|| Self {
            device: device.to_owned(),
            is_ipv6: true,
            metric: hexadecimal(metric).unwrap_or(u64::MAX),
            prefix: u32::from_str_radix(prefix, 16).unwrap_or(u32::MAX),
            has_gateway: flags & GATEWAY != 0,
            // fe80::/10 and ff00::/8.
            is_global: !["fe8", "fe9", "fea", "feb", "ff"]
                .iter()
                .any(|start| destination.starts_with(start)),
        })
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The devices of these routes, each once, in their order.
fn unique<'a>(routes: impl IntoIterator<Item = &'a Route>) -> Vec<String> {
    let mut devices: Vec<String> = Vec::new();
    for route in routes {
        if !devices.contains(&route.device) {
            devices.push(route.device.clone());
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_and_routes_to_a_host_are_found() {
        let ipv4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                    eth0.2\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                    eth0.2\t0200420A\t0101A8C0\t0007\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
                    *\t00000000\t00000000\t0201\t0\t0\t50\t00000000\t0\t0\t0\n\
                    cali0\t0300420A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
                    br0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let zero = "0".repeat(32);
        let ipv6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003  pppoe-wan\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n\
             20010db8000000000000000000000001 80 {zero} 00 fe800000000000000000000000000001 00000400 1 0 00000007 wan6\n\
             20010db8000000000000000000000002 80 {zero} 00 fe800000000000000000000000000001 00000400 1 0 01000007 br0\n\
             fd000000000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     br0\n"
        );
        let routes = Routes::parse(ipv4, &ipv6);
        assert_eq!(routes.default_devices(), ["eth0.2", "wlan0", "pppoe-wan"]);
        assert_eq!(routes.host_devices(), ["eth0.2", "wan6"]);
        assert!(routes.leads_to_hosts_only("br0"));
        for device in ["wlan0", "eth0.2", "cali0", "wan6", "absent"] {
            assert!(!routes.leads_to_hosts_only(device), "{device}");
        }
        assert_eq!(Routes::parse("", ""), Routes::default());
        assert_eq!(Routes::parse("x\ny z\n", "a b c"), Routes::default());
    }
}
