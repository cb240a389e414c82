//! What a test loads the line with and how it looks at latency meanwhile: Flent's tests under Flent's names, as data. Pure.
//!
//! Series that Flent's test has not are extra: they bear names of the same pattern, and Flent leaves them alone.

use crate::result::{Direction, ProbeKind};

/// Best effort: the code point of packets that nobody marked.
const BE: u8 = 0;
/// Background, CS1 (RFC 2474; RFC 8622 has since given background a code point of its own).
const BK: u8 = 8;
/// Class selector 5, which Wi-Fi takes for video.
const CS5: u8 = 40;
/// Expedited forwarding (RFC 3246).
const EF: u8 = 46;
/// The marks of RRUL, one for each queue of Wi-Fi.
const RRUL_MARKS: [(&str, u8); 4] = [("BE", BE), ("BK", BK), ("CS5", CS5), ("EF", EF)];

/// Between two ICMP echoes, milliseconds: Flent's step.
const ICMP_INTERVAL_MS: u64 = 200;
/// Between two new connections, milliseconds. A handshake and its end are five packets.
const CONNECT_INTERVAL_MS: u64 = 500;
/// Probes of other kinds to web servers for each handshake, where probes are closer together than usual.
const HANDSHAKE_EVERY: u64 = 5;
/// A call in G.711: 20 ms of sound, and with it a header of RTP (RFC 3550).
const VOIP_INTERVAL_MS: u64 = 20;
/// Payload of such a packet, bytes.
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

/// A test as data: what goes where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Flent's name.
    pub test: String,
    /// The servers, each with a control connection of its own.
    pub endpoints: Vec<Endpoint>,
    /// The load: downloads first.
    pub flows: Vec<FlowPlan>,
    /// Latency, from before the load to after it.
    pub probes: Vec<ProbePlan>,
}

/// A server, by one version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which of the hosts that the user named; the last stands in for one that is missing.
    pub host: usize,
    /// None takes what the user or the name gives.
    pub family: Option<Family>,
}

/// One TCP flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// Flent's name of the series.
    pub name: String,
    /// Which way.
    pub direction: Direction,
    /// Code point of the sender's packets, 0 to 63.
    pub dscp: u8,
    /// Which of [`Scenario::endpoints`].
    pub endpoint: usize,
    /// What tells this endpoint from others, if there are several.
    pub peer: Option<String>,
}

/// One series of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// Flent's name of the series.
    pub name: String,
    /// How they travel.
    pub kind: ProbeKind,
    /// Code point there and back, 0 to 63.
    pub dscp: u8,
    /// Time between two; none is what the user asks for.
    pub interval_ms: Option<u64>,
    /// Payload in bytes.
    pub bytes: usize,
    /// Which of [`Scenario::endpoints`].
    pub endpoint: usize,
    /// What tells this endpoint from others, if there are several.
    pub peer: Option<String>,
}

/// Name and meaning of every test.
pub const TESTS: [(&str, &str); 21] = [
    ("rrul_be", "4 downloads and 4 uploads at once, unmarked"),
    ("rrul", "the same, one each way marked BE, BK, CS5 and EF"),
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
    /// The test of this name; `down` and `up` count where the name leaves the number of flows open. None for an unknown one.
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

    /// The test that fits so many flows with these marks, in turn.
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
            for direction in [Direction::Down, Direction::Up] {
                let flows = scenario.flows.iter_mut().filter(|f| f.direction == direction);
                for (flow, mark) in flows.zip(dscp.iter().cycle()) {
                    flow.dscp = *mark;
                }
            }
        }
        scenario
    }

    /// Transfers by HTTP, and the probes that a stranger answers.
    pub(crate) fn of_urls(down: u32, up: u32, probe_interval_ms: u64) -> Self {
        let flows = Self::of_flows(down, up, &[BE]);
        // A handshake makes work there, and may be all that is answered: one for every few of the others.
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

    /// Flows of one direction.
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

/// One flow of each name and mark, first all downloads, then all uploads.
fn flows<'a>(names: impl Iterator<Item = (&'a str, u8)> + Clone) -> Vec<FlowPlan> {
    let way = |direction, way: &'static str| {
        names
            .clone()
            .map(move |(name, dscp)| flow(format!("{way} {name}"), direction, dscp))
    };
    way(Direction::Down, "TCP download")
        .chain(way(Direction::Up, "TCP upload"))
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
        // Flent has no probe of the fourth mark.
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

/// Half of the flows by each version of the protocol, as in Flent: BE and BK by IPv4, the others by IPv6.
fn rrul46() -> Scenario {
    let mut scenario = rrul();
    let (four, six) = (Some("IPv4".to_owned()), Some("IPv6".to_owned()));
    // One name with both addresses, or first the IPv4 and then the IPv6 address.
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

/// One flow each way at most, without numbers in the names.
fn plain(down: usize, up: usize) -> Scenario {
    let downloads = std::iter::repeat_n(("TCP download", Direction::Down), down);
    let uploads = std::iter::repeat_n(("TCP upload", Direction::Up), up);
    let flows = downloads.chain(uploads);
    let flows = flows.map(|(name, direction)| flow(name.to_owned(), direction, BE));
    Scenario::new(flows.collect(), single_probes())
}

/// Flows with numbers from one on, as Flent's tests with a parameter name them.
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
    let downloads = way(Direction::Down, "TCP download", down);
    let uploads = way(Direction::Up, "TCP upload", up);
    Scenario::new(downloads.chain(uploads).collect(), single_probes())
}

fn single_probes() -> Vec<ProbePlan> {
    vec![udp("UDP BE", BE), icmp("ICMP")]
}

/// Four servers; with fewer hosts than that, some are asked twice.
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
    for (direction, way) in [(Direction::Down, "TCP download"), (Direction::Up, "TCP upload")] {
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
    fn both_protocols_carry_a_half_of_rrul46() {
        let both = named("rrul46");
        let by = |endpoint| both.flows.iter().filter(|f| f.endpoint == endpoint).count();
        assert_eq!((by(0), by(1)), (4, 4));
        assert_eq!(both.endpoints[1].family, Some(Family::V6));
    }

    #[test]
    fn numbers_of_flows_find_the_test_that_they_are() {
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
