//! The status of a controller, as the API returns it.

use serde::Serialize;

/// The status of one interface's controller.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Status {
    pub(crate) download: DirectionStatus,
    pub(crate) upload: DirectionStatus,
    /// `true` while reflectors are probed.
    pub(crate) is_probing: bool,
    pub(crate) probes_sent: u64,
    pub(crate) reflectors: Vec<ReflectorStatus>,
    /// The number of delay samples from TCP connections that pass the device.
    pub(crate) tcp_samples: u64,
    /// A recommended change of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
    /// Why the rates do not follow the line. The configured rates are in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
}

/// The status of one direction.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct DirectionStatus {
    pub(crate) rate_bits_per_sec: u64,
    /// Why the controller chose this rate.
    pub(crate) reason: String,
    /// The throughput, gross.
    pub(crate) load_bits_per_sec: u64,
    /// How often the rate was lowered because of a queue.
    pub(crate) cuts: u64,
}

/// The status of one reflector.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReflectorStatus {
    /// The reflector as `option autorate_reflector` writes it.
    pub(crate) address: String,
    /// The last round trip.
    pub(crate) rtt_ms: Option<f64>,
    /// `true` if its answers show the one-way delay of each direction.
    pub(crate) is_one_way: bool,
    pub(crate) answers: u64,
    pub(crate) lost: u64,
}
