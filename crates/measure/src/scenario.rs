//! The flows and probes of a test, as data: Flent's tests under Flent's names. Pure.
//!
//! Some tests have more series than Flent's. Their names follow Flent's pattern, and Flent ignores them.

use sqm_core::direction::Direction;

use crate::result::ProbeKind;

/// Best effort: the DSCP of unmarked packets.
const BE: u8 = 0;
/// Background: CS1 (RFC 2474). RFC 8622 later gave background traffic its own DSCP.
const BK: u8 = 8;
/// Class selector 5, which Wi-Fi maps to video.
const CS5: u8 = 40;
/// Expedited forwarding (RFC 3246).
const EF: u8 = 46;
/// The DSCPs of RRUL, one for each Wi-Fi queue.
const RRUL_MARKS: [(&str, u8); 4] = [("BE", BE), ("BK", BK), ("CS5", CS5), ("EF", EF)];

/// Time between two ICMP echo requests, milliseconds: Flent's step size.
const ICMP_INTERVAL_MS: u64 = 200;
/// Time between two new connections, milliseconds. A choice: a handshake and its end take five packets.
const CONNECT_INTERVAL_MS: u64 = 500;
/// With web servers, a handshake for every this many probes of other kinds, if that is more often than usual. A choice.
#[cfg(feature = "full")]
const HANDSHAKE_EVERY: u64 = 5;
/// Time between two packets of a voice call (G.711), milliseconds.
const VOIP_INTERVAL_MS: u64 = 20;
/// Payload of such a packet, bytes: 160 of sound and the RTP header (RFC 3550).
const VOIP_BYTES: usize = 172;
/// Payload of other probes, bytes.
const PROBE_BYTES: usize = crate::protocol::Probe::LENGTH;

/// A version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A test as data: its servers, flows and probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Flent's name of the test.
    pub test: String,
    /// The servers, each with a control connection of its own.
    pub endpoints: Vec<Endpoint>,
    /// The load: downloads first.
    pub flows: Vec<FlowPlan>,
    /// The probes, from before the load until after it.
    pub probes: Vec<ProbePlan>,
}

/// A server, and the version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the host among those that the user named. If there are fewer, the last one serves.
    pub host: usize,
    /// Version of IP. `None` leaves it to the user, or to the name of the host.
    pub family: Option<Family>,
}

/// One TCP flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// Flent's name of the series.
    pub name: String,
    /// Its direction.
    pub direction: Direction,
    /// DSCP of the sender's packets, 0 to 63.
    pub dscp: u8,
    /// Index in [`Scenario::endpoints`].
    pub endpoint: usize,
    /// Name of the endpoint, if there are several.
    pub peer: Option<String>,
}

/// One series of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// Flent's name of the series.
    pub name: String,
    /// Kind of the probes.
    pub kind: ProbeKind,
    /// DSCP of the probes and their answers, 0 to 63.
    pub dscp: u8,
    /// Time between two probes. `None` leaves it to the user.
    pub interval_ms: Option<u64>,
    /// Payload in bytes.
    pub bytes: usize,
    /// Index in [`Scenario::endpoints`].
    pub endpoint: usize,
    /// Name of the endpoint, if there are several.
    pub peer: Option<String>,
}

/// Name and description of every test.
pub const TESTS: [(&str, &str); 21] = [
    ("rrul_be", "4 downloads and 4 uploads at once, unmarked"),
    (
        "rrul",
        "like rrul_be, but marked BE, BK, CS5 and EF, one of each in each direction",
    ),
    ("rrul_noclassification", "unmarked flows, marked probes"),
    (
        "rrul_be_nflows",
        "--down downloads and --up uploads at once, unmarked",
    ),
    (
        "rrul46",
        "rrul over IPv4 and IPv6 at once, half of the flows each",
    ),
    ("tcp_download", "1 download"),
    ("tcp_upload", "1 upload"),
    ("tcp_bidirectional", "1 download and 1 upload"),
    ("tcp_ndown", "--down downloads"),
    ("tcp_nup", "--up uploads"),
    ("tcp_2down", "2 downloads"),
    ("tcp_2up", "2 uploads"),
    ("tcp_8down", "8 downloads"),
    ("tcp_8up", "8 uploads"),
    ("tcp_12down", "12 downloads"),
    ("tcp_12up", "12 uploads"),
    ("rtt_fair", "4 servers, a flow each way: 2 unmarked, 2 marked BK"),
    ("rtt_fair4be", "4 servers, a flow each way, unmarked"),
    ("ping", "no load, latency only"),
    ("voip", "one call (172 bytes every 20 ms), no load"),
    ("voip-rrul", "rrul and one call"),
];

impl Scenario {
    /// The test of this name. `down` and `up` are the numbers of flows if the name leaves them open. `None` if the name is unknown.
    pub fn named(name: &str, hosts: &[String], down: u32, up: u32) -> Option<Self> {
        let counted = |prefix: &str, suffix: &str| -> Option<u32> {
            name.strip_prefix(prefix)?
                .strip_suffix(suffix)?
                .parse()
                .ok()
                .filter(|n| (1..=crate::protocol::MAX_FLOWS).contains(n))
        };
        let mut scenario = match name {
            "rrul" => rrul(),
            "rrul_be" => rrul_be(["BE1", "BE2", "BE3"].map(|name| (name, BE))),
            "rrul_noclassification" => rrul_be([("EF", EF), ("BK", BK), ("BE", BE)]),
            "rrul_be_nflows" => numbered("BE", down, up),
            "rrul46" => rrul46(),
            "ping" => plain(0, 0),
            "tcp_download" => plain(1, 0),
            "tcp_upload" => plain(0, 1),
            "tcp_bidirectional" => plain(1, 1),
            "tcp_ndown" => numbered("", down.max(1), 0),
            "tcp_nup" => numbered("", 0, up.max(1)),
            "rtt_fair" => rtt_fair(hosts, [("BE1", BE), ("BE2", BE), ("BK1", BK), ("BK2", BK)]),
            "rtt_fair4be" => rtt_fair(hosts, [("BE1", BE), ("BE2", BE), ("BE3", BE), ("BE4", BE)]),
            "voip" => voip(),
            "voip-rrul" => with_call(rrul()),
            _ => match (counted("tcp_", "down"), counted("tcp_", "up")) {
                (Some(n), _) => numbered("", n, 0),
                (_, Some(n)) => numbered("", 0, n),
                _ => return None,
            },
        };
        name.clone_into(&mut scenario.test);
        Some(scenario)
    }

    /// The test with these numbers of flows. The flows of each direction take the DSCPs in turn.
    pub fn of_flows(down: u32, up: u32, dscp: &[u8]) -> Self {
        let marks: Vec<u8> = RRUL_MARKS.iter().map(|(_, mark)| *mark).collect();
        let name = match (down, up) {
            (0, 0) => "ping",
            (4, 4) if dscp == marks => "rrul",
            (4, 4) if dscp == [BE] => "rrul_be",
            (1, 1) => "tcp_bidirectional",
            (1, 0) => "tcp_download",
            (0, 1) => "tcp_upload",
            (_, 0) => "tcp_ndown",
            (0, _) => "tcp_nup",
            _ => "rrul_be_nflows",
        };
        let mut scenario = Self::named(name, &[], down, up).unwrap_or_else(|| numbered("BE", down, up));
        if name != "rrul" {
            for direction in Direction::BOTH {
                let flows = scenario.flows.iter_mut().filter(|f| f.direction == direction);
                for (flow, mark) in flows.zip(dscp.iter().cycle()) {
                    flow.dscp = *mark;
                }
            }
        }
        scenario
    }

    /// A test against web servers: HTTP transfers, and the probes that any host may answer.
    #[cfg(feature = "full")]
    pub(crate) fn of_urls(down: u32, up: u32, probe_interval_ms: u64) -> Self {
        let flows = Self::of_flows(down, up, &[BE]);
        // Handshakes are work for the server, but may be the only probes that it answers: send fewer of them.
        let handshakes = ProbePlan {
            interval_ms: Some((probe_interval_ms * HANDSHAKE_EVERY).min(CONNECT_INTERVAL_MS)),
            ..connect()
        };
        let often = ProbePlan {
            interval_ms: None,
            ..icmp("ICMP")
        };
        let mut probes = vec![often, udp("UDP DNS", BE), handshakes];
        for probe in &mut probes {
            probe.bytes = 0;
        }
        Self { probes, ..flows }
    }

    /// Number of flows of one direction.
    pub fn count(&self, direction: Direction) -> u32 {
        self.flows.iter().filter(|f| f.direction == direction).count() as u32
    }

    fn new(flows: Vec<FlowPlan>, probes: Vec<ProbePlan>) -> Self {
        Self {
            test: String::new(),
            endpoints: vec![Endpoint {
                host: 0,
                family: None,
            }],
            flows,
            probes,
        }
    }
}

/// A flow for each name and DSCP: first all downloads, then all uploads.
fn flows<'a>(names: impl Iterator<Item = (&'a str, u8)> + Clone) -> Vec<FlowPlan> {
    let way = |direction, way: &'static str| {
        names
            .clone()
            .map(move |(name, dscp)| flow(format!("{way} {name}"), direction, dscp))
    };
    way(Direction::Download, "TCP download")
        .chain(way(Direction::Upload, "TCP upload"))
        .collect()
}

fn flow(name: String, direction: Direction, dscp: u8) -> FlowPlan {
    FlowPlan {
        name,
        direction,
        dscp,
        endpoint: 0,
        peer: None,
    }
}

fn udp(name: &str, dscp: u8) -> ProbePlan {
    ProbePlan {
        name: format!("Ping (ms) {name}"),
        kind: ProbeKind::Udp,
        dscp,
        interval_ms: None,
        bytes: PROBE_BYTES,
        endpoint: 0,
        peer: None,
    }
}

fn icmp(name: &str) -> ProbePlan {
    ProbePlan {
        kind: ProbeKind::Icmp,
        interval_ms: Some(ICMP_INTERVAL_MS),
        ..udp(name, BE)
    }
}

fn connect() -> ProbePlan {
    ProbePlan {
        kind: ProbeKind::Tcp,
        interval_ms: Some(CONNECT_INTERVAL_MS),
        bytes: 0,
        ..udp("TCP", BE)
    }
}

fn rrul() -> Scenario {
    let mut probes = vec![
        udp("UDP EF", EF),
        udp("UDP BK", BK),
        udp("UDP BE", BE),
        icmp("ICMP"),
        // Flent has no probe with the fourth DSCP.
        udp("UDP CS5", CS5),
    ];
    probes.push(connect());
    Scenario::new(flows(RRUL_MARKS.into_iter()), probes)
}

fn rrul_be(probed: [(&str, u8); 3]) -> Scenario {
    let names = ["BE", "BE2", "BE3", "BE4"].into_iter().map(|name| (name, BE));
    let probes = probed
        .into_iter()
        .map(|(name, dscp)| udp(&format!("UDP {name}"), dscp));
    Scenario::new(flows(names), probes.chain([icmp("ICMP"), connect()]).collect())
}

/// Half of the flows over IPv4 and half over IPv6, as in Flent: BE and BK over IPv4, the others over IPv6.
fn rrul46() -> Scenario {
    let mut scenario = rrul();
    let (four, six) = (Some("IPv4".to_owned()), Some("IPv6".to_owned()));
    // The user names one host with both addresses, or first an IPv4 and then an IPv6 address.
    scenario.endpoints = [(0, Family::V4), (1, Family::V6)]
        .map(|(host, family)| Endpoint {
            host,
            family: Some(family),
        })
        .to_vec();
    for flow in &mut scenario.flows {
        let by_four = flow.dscp == BE || flow.dscp == BK;
        (flow.endpoint, flow.peer) = if by_four {
            (0, four.clone())
        } else {
            (1, six.clone())
        };
    }
    let by = |endpoint, peer: &Option<String>, probe: ProbePlan| ProbePlan {
        endpoint,
        peer: peer.clone(),
        ..probe
    };
    scenario.probes = vec![
        by(0, &four, udp("UDP BE", BE)),
        by(0, &four, udp("UDP BK", BK)),
        by(1, &six, udp("UDP6 BE", BE)),
        by(1, &six, udp("UDP6 BK", BK)),
        by(1, &six, icmp("ICMP")),
    ];
    scenario
}

/// At most one flow in each direction, without numbers in the names.
fn plain(down: usize, up: usize) -> Scenario {
    let downloads = std::iter::repeat_n(("TCP download", Direction::Download), down);
    let uploads = std::iter::repeat_n(("TCP upload", Direction::Upload), up);
    let flows = downloads.chain(uploads);
    let flows = flows.map(|(name, direction)| flow(name.to_owned(), direction, BE));
    Scenario::new(flows.collect(), single_probes())
}

/// Flows that are numbered from one, as in those tests of Flent that have a parameter.
fn numbered(class: &str, down: u32, up: u32) -> Scenario {
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" {class}")
    };
    let way = |direction, way: &'static str, count| {
        let class = class.clone();
        (1..=count).map(move |n| flow(format!("{way}{class}::{n}"), direction, BE))
    };
    let downloads = way(Direction::Download, "TCP download", down);
    let uploads = way(Direction::Upload, "TCP upload", up);
    Scenario::new(downloads.chain(uploads).collect(), single_probes())
}

fn single_probes() -> Vec<ProbePlan> {
    vec![udp("UDP BE", BE), icmp("ICMP")]
}

/// Four servers. With fewer hosts, some serve more than once.
fn rtt_fair(hosts: &[String], marks: [(&str, u8); 4]) -> Scenario {
    let host = |at: usize| at % hosts.len().max(1);
    let named = |at: usize| hosts.get(host(at)).cloned().unwrap_or_default();
    let mut scenario = Scenario::new(Vec::new(), Vec::new());
    scenario.endpoints = (0..4)
        .map(|at| Endpoint {
            host: host(at),
            family: None,
        })
        .collect();
    for (direction, way) in [
        (Direction::Download, "TCP download"),
        (Direction::Upload, "TCP upload"),
    ] {
        for (endpoint, (mark, dscp)) in marks.into_iter().enumerate() {
            scenario.flows.push(FlowPlan {
                endpoint,
                peer: Some(named(endpoint)),
                ..flow(format!("{way} {mark} {}", named(endpoint)), direction, dscp)
            });
        }
    }
    for endpoint in 0..4 {
        let at = |probe: ProbePlan| ProbePlan {
            endpoint,
            peer: Some(named(endpoint)),
            ..probe
        };
        let number = endpoint + 1;
        scenario
            .probes
            .push(at(icmp(&format!("ICMP{number} {}", named(endpoint)))));
        scenario
            .probes
            .push(at(udp(&format!("UDP{number} {}", named(endpoint)), BE)));
    }
    scenario
}

fn voip() -> Scenario {
    with_call(Scenario::new(Vec::new(), Vec::new()))
}

fn with_call(mut scenario: Scenario) -> Scenario {
    scenario.probes.push(ProbePlan {
        name: "VoIP".to_owned(),
        kind: ProbeKind::Voip,
        interval_ms: Some(VOIP_INTERVAL_MS),
        bytes: VOIP_BYTES,
        ..udp("", BE)
    });
    scenario
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Scenario {
        let hosts = ["a", "b"].map(str::to_owned);
        Scenario::named(name, &hosts, 3, 2).unwrap_or_else(|| panic!("{name} is a test"))
    }

    fn names(scenario: &Scenario) -> Vec<&str> {
        scenario.flows.iter().map(|f| f.name.as_str()).collect()
    }

    #[test]
    fn every_test_in_the_list_exists_and_refers_to_its_endpoints() {
        for (name, _) in TESTS {
            let scenario = named(name);
            assert_eq!(scenario.test, name);
            let endpoints = scenario.flows.iter().map(|f| f.endpoint);
            let endpoints = endpoints.chain(scenario.probes.iter().map(|p| p.endpoint));
            assert!(endpoints.max() < Some(scenario.endpoints.len()), "{name}");
            let mut series = names(&scenario);
            series.extend(scenario.probes.iter().map(|p| p.name.as_str()));
            let distinct: std::collections::BTreeSet<_> = series.iter().collect();
            assert_eq!(distinct.len(), series.len(), "{name}");
        }
        assert_eq!(Scenario::named("no-such", &[], 1, 1), None);
        assert_eq!(Scenario::named("tcp_65up", &[], 1, 1), None);
    }

    #[test]
    fn rrul_is_as_flent_defines_it() {
        let rrul = named("rrul");
        assert_eq!(names(&rrul)[1], "TCP download BK");
        assert_eq!(names(&rrul)[7], "TCP upload EF");
        let marks: Vec<_> = rrul.flows.iter().map(|f| f.dscp).collect();
        assert_eq!(marks, [0, 8, 40, 46, 0, 8, 40, 46]);
        assert_eq!(names(&named("rrul_be"))[5], "TCP upload BE2");
        assert_eq!(named("rrul_be").probes[0].name, "Ping (ms) UDP BE1");
        assert_eq!(names(&named("rrul_be_nflows"))[4], "TCP upload BE::2");
        assert_eq!(names(&named("tcp_nup")), ["TCP upload::1", "TCP upload::2"]);
        assert_eq!(names(&named("tcp_8down")).len(), 8);
        assert_eq!(names(&named("rtt_fair"))[2], "TCP download BK1 a");
        let marks = named("rrul_noclassification");
        assert!(marks.flows.iter().all(|f| f.dscp == 0) && marks.probes[0].dscp == 46);
    }

    #[test]
    fn ipv4_and_ipv6_each_carry_half_of_rrul46() {
        let both = named("rrul46");
        let by = |endpoint| both.flows.iter().filter(|f| f.endpoint == endpoint).count();
        assert_eq!((by(0), by(1)), (4, 4));
        assert_eq!(both.endpoints[1].family, Some(Family::V6));
    }

    #[test]
    fn numbers_of_flows_select_the_test_that_has_them() {
        for (down, up, dscp, test) in [
            (4, 4, &[0][..], "rrul_be"),
            (4, 4, &[0, 8, 40, 46], "rrul"),
            (0, 0, &[0], "ping"),
            (1, 0, &[46], "tcp_download"),
            (0, 3, &[0], "tcp_nup"),
            (3, 2, &[0, 46], "rrul_be_nflows"),
        ] {
            assert_eq!(Scenario::of_flows(down, up, dscp).test, test);
        }
        let marks = Scenario::of_flows(3, 2, &[0, 46]);
        let marks: Vec<_> = marks.flows.iter().map(|f| f.dscp).collect();
        assert_eq!(marks, [0, 46, 0, 0, 46]);
    }
}
