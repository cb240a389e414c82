//! The status of the daemon and its interfaces.

use serde::{Deserialize, Serialize};
use sqm_kernel::status::InterfaceStatus;

/// The answer to `GET /v1/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// [`VERSION`](crate::VERSION).
    pub version: u32,
    /// The program's version.
    pub program: String,
    /// The daemon's process ID.
    pub process: u32,
    /// The daemon's health.
    pub health: Health,
    /// The configuration file.
    pub configuration: ConfigurationStatus,
    /// The interfaces of the configuration.
    pub interfaces: Vec<Interface>,
}

/// The daemon's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Each configured interface is shaped, waits for its device, or is paused for a while.
    Ok,
    /// The interfaces, the errors or the warnings say why.
    Degraded,
}

/// The status of the configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// Its path.
    pub file: String,
    /// Why the file's present text is not in force. The text that was read before is.
    pub errors: Vec<String>,
    /// The warnings of the configuration in force.
    pub warnings: Vec<String>,
}

/// The status of one interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub interface: String,
    /// Its state.
    pub state: State,
    /// Why it is not shaped, or why its rates are not the configured ones.
    pub why: Option<String>,
    /// The other program that controls its rates, if there is one. The daemon leaves the rates alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_controller: Option<RateController>,
    /// Time until the daemon shapes it again, seconds, while it is paused; see [`Pause`](crate::pause::Pause).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_for_seconds: Option<f64>,
    /// How long it has been in this state at the time of the response, seconds.
    pub for_seconds: f64,
    /// How often its queues were set up or changed.
    pub applied: u64,
    /// How often a change of another program was undone.
    pub repaired: u64,
    /// The steps of the last change.
    pub changes: Vec<String>,
    /// Its device; none if there is none now.
    pub device: Option<Device>,
    /// The rate controller and its last decision, with `option autorate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autorate: Option<AutorateStatus>,
    /// The kernel's queues at the time of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<InterfaceStatus>,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not checked yet.
    New,
    /// The queues are as planned: they were read back and compared.
    Shaped,
    /// There is no device.
    Waiting,
    /// The last check failed.
    Failed,
    /// The queues differ from the plan, and drift is only reported.
    Drifted,
    /// Another program keeps changing the queues, and the daemon backs off.
    Contested,
    /// Stopped by hand.
    Stopped,
    /// A client of the API has removed the shaping for a while.
    Paused,
    /// A change waits for its confirmation, or another sqm program is changing the queues.
    Unconfirmed,
}

impl State {
    /// The state's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Shaped => "shaped",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Drifted => "drifted",
            Self::Contested => "contested",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// Another program that changes the rates again and again, such as cake-autorate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateController {
    /// The directions in which it has changed a rate: `download`, `upload`.
    pub directions: Vec<String>,
    /// How long ago it was found, seconds.
    pub for_seconds: f64,
    /// How long ago it changed a rate last, seconds.
    pub silent_for_seconds: f64,
    /// After this long without a change the daemon sets the rates as configured, seconds.
    pub ends_after_seconds: f64,
}

/// The state of the device that the kernel reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its largest packet, bytes.
    pub mtu_bytes: u32,
    /// Administratively up.
    pub up: bool,
    /// It has a carrier.
    pub carrier: bool,
}

/// The status of the controller that follows a line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AutorateStatus {
    /// The download.
    pub download: AutorateDirection,
    /// The upload.
    pub upload: AutorateDirection,
    /// `true` while reflectors are probed.
    pub is_probing: bool,
    /// The number of probes that were sent to reflectors.
    pub probes_sent: u64,
    /// The reflectors that are used.
    pub reflectors: Vec<ReflectorStatus>,
    /// The number of delay samples from TCP connections that pass the device.
    pub tcp_samples: u64,
    /// The kinds of probes that bypass the queue in which the user's packets wait, so that the rates follow TCP connections:
    /// `icmp`, `udp`.
    #[serde(default)]
    pub specially_treated: Vec<String>,
    /// A recommended change of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Why the rates do not follow the line. The configured rates are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A sentence about the kinds of probes that bypass the queue; `None` if none does.
pub fn special_treatment(kinds: &[String]) -> Option<String> {
    let (are, they) = match kinds.len() {
        0 => return None,
        1 => ("is", "it bypasses"),
        _ => ("are", "they bypass"),
    };
    let kinds = kinds.join(" and ");
    Some(format!(
        "{kinds} {are} treated specially on this line: {they} the queue, so the rates follow the user's TCP connections"
    ))
}

/// The controller's status in one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AutorateDirection {
    /// The shaper rate.
    pub rate_bits_per_sec: u64,
    /// Why the controller chose this rate.
    pub reason: String,
    /// The throughput, gross.
    pub load_bits_per_sec: u64,
    /// How often the rate was lowered because of a queue.
    pub cuts: u64,
}

/// The status of one reflector.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReflectorStatus {
    /// The reflector as `option autorate_reflector` writes it.
    pub address: String,
    /// The last round trip.
    pub rtt_ms: Option<f64>,
    /// `true` if its answers show the one-way delay of each direction.
    pub is_one_way: bool,
    /// The number of answers.
    pub answers: u64,
    /// The number of probes without an answer.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sqm_kernel::netlink::statistics::{Statistics, TinStatistics};

    use super::*;

    #[test]
    fn a_status_with_queues_reads_back() {
        let statistics = Statistics {
            sent_bytes: u64::MAX,
            ..Statistics::default()
        };
        let cake = json!({
            "tin_names": ["Tin 0"], "memory_used_bytes": 1, "memory_limit_bytes": 2, "capacity_estimate_bits_per_sec": 3,
            "network_size_bytes": [40, 1500], "adjusted_size_bytes": [84, 1518], "tins": [TinStatistics::default()],
        });
        let qdisc = json!({"handle": "1:", "parent": null, "kind": "cake", "spec": null, "statistics": statistics, "cake": cake});
        let direction = json!({
            "device": "wan0", "kind": "cake", "rate_bits_per_sec": 10_000_000, "drops": 1, "marks": 0, "backlog_bytes": 0,
            "backlog_packets": 0, "delay_peak_us": 7, "delay_avg_us": null, "delay_base_us": null, "qdiscs": [qdisc], "classes": [],
        });
        let interface = json!({
            "interface": "wan0", "state": "shaped", "why": null, "for_seconds": 0.1, "applied": 1, "repaired": 0, "changes": [],
            "device": {"index": 3, "mtu_bytes": 1500, "up": true, "carrier": true},
            "queues": {"interface": "wan0", "owner": "sqm", "egress": direction, "ingress": null},
        });
        let answer = json!({
            "version": 1, "program": "0", "process": 1, "health": "degraded",
            "configuration": {"file": "f", "errors": [], "warnings": []}, "interfaces": [interface],
        });
        let status: Status = serde_json::from_value(answer.clone()).unwrap();
        assert_eq!(serde_json::to_value(status).unwrap(), answer);
    }
}
