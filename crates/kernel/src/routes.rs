//! The devices of the default routes, from the kernel's tables as text.

/// The devices of default routes, the preferred one first, IPv4 before IPv6. `ipv4` is the content of `/proc/net/route`, `ipv6` that of
/// `/proc/net/ipv6_route`; lines of another form are skipped.
pub fn default_devices(ipv4: &str, ipv6: &str) -> Vec<String> {
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(u64::MAX);
    let mut found: Vec<(u8, u64, String)> = Vec::new();
    for line in ipv4.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Device, destination, gateway, flags, references, use, metric, mask.
        if let [device, "00000000", _, _, _, _, metric, "00000000", ..] = words[..] {
            found.push((4, metric.parse().unwrap_or(u64::MAX), device.to_owned()));
        }
    }
    for line in ipv6.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Destination, its prefix, source, its prefix, next hop, metric, references, use, flags, device.
        if let [destination, "00", _, _, _, metric, .., device] = words[..]
            && destination.bytes().all(|b| b == b'0')
            && device != "lo"
        {
            found.push((6, number(metric), device.to_owned()));
        }
    }
    found.sort();
    let mut devices: Vec<String> = Vec::new();
    for (.., device) in found {
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_found() {
        let ipv4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                    eth0.2\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                    br0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let zero = "0".repeat(32);
        let ipv6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003  pppoe-wan\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n\
             fd000000000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     br0\n"
        );
        assert_eq!(default_devices(ipv4, &ipv6), ["eth0.2", "wlan0", "pppoe-wan"]);
        assert_eq!(default_devices("", ""), Vec::<String>::new());
        assert_eq!(default_devices("x\ny z\n", "a b c"), Vec::<String>::new());
    }
}
