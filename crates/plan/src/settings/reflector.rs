//! Reflectors: hosts that answer the probes of autorate, and the protocol of each.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A host beyond the line that answers probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflector {
    /// Where it is.
    pub address: IpAddr,
    /// The protocol that it answers.
    pub protocol: ReflectorProtocol,
}

/// The protocol of a reflector; the port is the program's usual one unless it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReflectorProtocol {
    /// Timestamps and echoes of ICMP (RFC 792, RFC 4443).
    Icmp,
    /// `sqm serve`, by UDP.
    Sqm(Option<u16>),
    /// `irtt server`, by UDP.
    Irtt(Option<u16>),
}

impl Reflector {
    /// One that answers pings.
    pub const fn icmp(address: IpAddr) -> Self {
        Self {
            address,
            protocol: ReflectorProtocol::Icmp,
        }
    }
}

/// The error of a word that names no reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is neither an IP address nor sqm:// or irtt:// with one")]
pub struct NoReflector;

impl FromStr for Reflector {
    type Err = NoReflector;

    /// `192.0.2.1`, `sqm://192.0.2.1`, `irtt://[2001:db8::1]:2112`.
    fn from_str(word: &str) -> Result<Self, NoReflector> {
        let Some((scheme, place)) = word.split_once("://") else {
            return word.parse().map(Self::icmp).map_err(|_| NoReflector);
        };
        let protocol = match scheme {
            "sqm" => ReflectorProtocol::Sqm,
            "irtt" => ReflectorProtocol::Irtt,
            _ => return Err(NoReflector),
        };
        let (address, port) = place_and_port(place).ok_or(NoReflector)?;
        Ok(Self {
            address,
            protocol: protocol(port),
        })
    }
}

/// An address of IPv6 stands in brackets if a port follows, and may otherwise.
fn place_and_port(place: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(both) = place.parse::<SocketAddr>() {
        let is_whole = both.port() != 0 && !matches!(both, SocketAddr::V6(v6) if v6.scope_id() != 0);
        return is_whole.then_some((both.ip(), Some(both.port())));
    }
    let bare = match place.strip_prefix('[') {
        Some(rest) => IpAddr::V6(rest.strip_suffix(']')?.parse().ok()?),
        None => place.parse().ok()?,
    };
    Some((bare, None))
}

impl fmt::Display for Reflector {
    /// As it can be configured.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, port) = match self.protocol {
            ReflectorProtocol::Icmp => return self.address.fmt(f),
            ReflectorProtocol::Sqm(port) => ("sqm", port),
            ReflectorProtocol::Irtt(port) => ("irtt", port),
        };
        match (self.address, port) {
            (address, Some(port)) => write!(f, "{scheme}://{}", SocketAddr::new(address, port)),
            (IpAddr::V6(address), None) => write!(f, "{scheme}://[{address}]"),
            (IpAddr::V4(address), None) => write!(f, "{scheme}://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reflectors_are_addresses_or_name_their_protocol() {
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        for (word, address, protocol) in [
            ("192.0.2.1", v4, ReflectorProtocol::Icmp),
            ("2001:db8::1", v6, ReflectorProtocol::Icmp),
            ("sqm://192.0.2.1", v4, ReflectorProtocol::Sqm(None)),
            ("sqm://[2001:db8::1]:5000", v6, ReflectorProtocol::Sqm(Some(5000))),
            ("irtt://192.0.2.1:2112", v4, ReflectorProtocol::Irtt(Some(2112))),
            ("irtt://[2001:db8::1]", v6, ReflectorProtocol::Irtt(None)),
        ] {
            let reflector = Reflector { address, protocol };
            assert_eq!(word.parse(), Ok(reflector), "{word}");
            assert_eq!(reflector.to_string(), word);
        }
        assert_eq!(
            "sqm://2001:db8::1".parse::<Reflector>().unwrap().to_string(),
            "sqm://[2001:db8::1]"
        );
        for wrong in [
            "",
            "dns.example",
            "sqm://",
            "sqm://dns.example",
            "sqm://192.0.2.1:0",
            "sqm://192.0.2.1:65536",
            "sqm://192.0.2.1:",
            "sqm://[192.0.2.1]",
            "sqm://[2001:db8::1",
            "sqm://[fe80::1%2]:9",
            "sqm://192.0.2.1/",
            "http://192.0.2.1",
            "192.0.2.1:53",
        ] {
            assert_eq!(wrong.parse::<Reflector>(), Err(NoReflector), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_reflector_is_read_back(word in "((sqm|irtt|x)://)?[0-9a-f:.\\[\\]%]{0,30}") {
            if let Ok(reflector) = word.parse::<Reflector>() {
                prop_assert_eq!(reflector.to_string().parse(), Ok(reflector));
            }
        }
    }
}
