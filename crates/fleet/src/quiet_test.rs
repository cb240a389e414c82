//! The test of a line that its users do not load: at a quiet hour the router itself transfers as much as the line carries, to and from a
//! server of the operator.

use serde::{Deserialize, Serialize};

use crate::daily::{DAY_S, Daily};

/// The longest name of a host, bytes (RFC 1035, section 2.3.4).
const LONGEST_HOST: usize = 253;
/// The beginning of a test that does not count as loaded, seconds. A choice: TCP takes about that long to fill a line.
pub const SETTLE_S: u32 = 5;
/// The longest load of one test, seconds; a choice.
const LONGEST_LOAD_S: u32 = 300;
/// The longest time that a test takes besides its load, seconds. A choice: to connect, the idle baseline, and to collect the results
/// take less each.
const AROUND_S: u32 = 120;
/// The most that one test may be allowed to transfer, megabytes. A choice: a gigabit line both ways for [`LONGEST_LOAD_S`].
const MOST_MBYTE: u32 = 75_000;

/// A test that the document asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuietTest {
    /// A machine that runs `sqm serve`: `HOST:PORT`, or `[ADDRESS]:PORT` for an IPv6 address.
    pub server: String,
    /// The times at which a test may begin.
    pub daily: Daily,
    /// The length of the load of each of the two tests, seconds.
    pub load_s: u32,
    /// A test ends early when it has transferred this much, both directions together, megabytes (10⁶ bytes).
    pub most_mbyte: u32,
}

impl QuietTest {
    /// Returns what is wrong with these fields.
    ///
    /// # Errors
    /// A sentence that begins with the name of the field.
    pub fn check(&self, minimum_s: u32) -> Result<(), String> {
        if self.address().is_none() {
            return Err("server must be HOST:PORT, such as hub.example.net:35353".into());
        }
        self.daily.check().map_err(|error| format!("daily: {error}"))?;
        let shortest = minimum_s.saturating_add(SETTLE_S);
        if !(shortest..=LONGEST_LOAD_S).contains(&self.load_s) {
            return Err(format!(
                "load_s must be {shortest} (minimum_s and {SETTLE_S} s to fill the line) to {LONGEST_LOAD_S} seconds"
            ));
        }
        if !(1..=MOST_MBYTE).contains(&self.most_mbyte) {
            return Err(format!("most_mbyte must be 1 to {MOST_MBYTE}"));
        }
        Ok(())
    }

    /// The longest time from the moment at which a test is wanted to its end, seconds.
    pub(crate) fn longest_s(&self) -> u64 {
        u64::from(DAY_S) + u64::from(self.load_s) + u64::from(AROUND_S)
    }

    /// The host and the port of the server; `None` if it is not in that form.
    pub fn address(&self) -> Option<(&str, u16)> {
        let (host, port) = self.server.rsplit_once(':')?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|&port| port > 0 && is_number)?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .filter(|text| text.parse::<std::net::Ipv6Addr>().is_ok())?,
            None => host,
        };
        let is_name = bare.starts_with(|c: char| c.is_ascii_alphanumeric())
            && bare
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
        (bare.len() <= LONGEST_HOST && (is_name || bare.len() < host.len())).then_some((bare, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(server: &str) -> QuietTest {
        QuietTest {
            server: server.into(),
            daily: Daily {
                from_s: 3600,
                to_s: 18_000,
            },
            load_s: 30,
            most_mbyte: 1000,
        }
    }

    #[test]
    fn a_server_is_a_host_and_a_port_and_nothing_else() {
        for (server, address) in [
            ("hub.example.net:35353", ("hub.example.net", 35353)),
            ("10.66.0.2:1", ("10.66.0.2", 1)),
            ("[fd00::2]:35353", ("fd00::2", 35353)),
            ("[::1]:35353", ("::1", 35353)),
        ] {
            assert_eq!(test(server).address(), Some(address), "{server}");
        }
        let long = format!("{}:1", "a".repeat(254));
        for server in [
            "",
            "hub",
            "hub:",
            "hub:0",
            "hub:65536",
            "hub:+1",
            ":1",
            "fd00::2:1",
            "[hub]:1",
            "[fd00::2:1",
            "[]:1",
            "-o:1",
            "--help:1",
            "a b:1",
            "a;b:1",
            "$(id):1",
            "hub/x:1",
            "http://hub:1",
            "hub\n:1",
            &long,
        ] {
            assert_eq!(test(server).address(), None, "{server}");
            let said = test(server).check(20).expect_err("refused");
            assert!(said.starts_with("server must be HOST:PORT"), "{said}");
        }
    }

    #[test]
    fn each_bound_is_named() {
        let usual = test("hub:35353");
        assert_eq!(usual.check(20), Ok(()));
        let said = |test: QuietTest| test.check(20).expect_err("refused");
        for load_s in [0, 24, 301, u32::MAX] {
            let test = QuietTest {
                load_s,
                ..usual.clone()
            };
            assert!(said(test).starts_with("load_s must be 25 "), "{load_s}");
        }
        for most_mbyte in [0, 75_001] {
            let test = QuietTest {
                most_mbyte,
                ..usual.clone()
            };
            assert_eq!(said(test), "most_mbyte must be 1 to 75000");
        }
        let daily = Daily { from_s: 7, to_s: 7 };
        assert!(
            said(QuietTest {
                daily,
                ..usual.clone()
            })
            .starts_with("daily: the times")
        );
        assert!(usual.check(u32::MAX).is_err(), "no load is long enough");
    }
}
