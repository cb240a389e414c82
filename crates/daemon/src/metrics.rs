//! The daemon's metrics as OpenMetrics text (OpenMetrics 1.0.0), which Prometheus reads.
//!
//! Each metric is a row of a table. Names end in their unit; times are seconds, sizes bytes, rates bits per second.

use std::fmt::Write;

use Kind::{Counter, Gauge, Info};

use sqm_api::status::{AutorateDirection, AutorateStatus, Device, Health, Interface, State, Status};
use sqm_kernel::netlink::statistics::{CakeStatistics, FqCodelStatistics, Statistics, TinStatistics};
use sqm_kernel::status::{ClassStatus, DirectionStatus, InterfaceStatus};

/// The content type of the text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics as text.
pub(super) fn text(status: &Status) -> String {
    let mut families = Families::default();
    families.add(
        (Info, "sqm_build", "The version of the program."),
        &[("version", &status.program)],
        1.0,
    );
    families.add_all(&DAEMON, &[], status);
    for interface in &status.interfaces {
        families.interface(interface);
        if let Some(autorate) = &interface.autorate {
            families.autorate(&interface.interface, autorate);
        }
        if let Some(queues) = &interface.queues {
            families.queues(queues);
        }
    }
    families.text()
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

/// A metric without its value: type, name and help text.
type Description = (Kind, &'static str, &'static str);

/// A metric, and how its value is read from a `T`.
type Metric<T> = (Kind, &'static str, &'static str, fn(&T) -> f64);

const DAEMON: [Metric<Status>; 2] = [
    (
        Gauge,
        "sqm_healthy",
        "1 if each configured interface is shaped or waits for its device, and the configuration is in force.",
        |status| f64::from(status.health == Health::Ok),
    ),
    (
        Gauge,
        "sqm_configuration_good",
        "1 if the present text of the configuration file is in force.",
        |status| f64::from(status.configuration.errors.is_empty()),
    ),
];

const INTERFACE_STATE: Description = (
    Gauge,
    "sqm_interface_state",
    "1 for the present state of the interface, 0 for all others.",
);

/// The states of [`INTERFACE_STATE`].
const STATES: [State; 8] = [
    State::Shaped,
    State::Waiting,
    State::Failed,
    State::Drifted,
    State::Contested,
    State::Stopped,
    State::Paused,
    State::Unconfirmed,
];

const INTERFACE: [Metric<Interface>; 2] = [
    (
        Counter,
        "sqm_applied",
        "Times that the queues of the interface were set up or changed.",
        |interface| interface.applied as f64,
    ),
    (
        Counter,
        "sqm_repaired",
        "Times that a change by another program was undone.",
        |interface| interface.repaired as f64,
    ),
];

const DEVICE: [Metric<Device>; 2] = [
    (Gauge, "sqm_device_up", "1 if the device is up.", |device| {
        f64::from(device.up)
    }),
    (
        Gauge,
        "sqm_device_carrier",
        "1 if the device has a carrier.",
        |device| f64::from(device.carrier),
    ),
];

const AUTORATE_DIRECTION: [Metric<AutorateDirection>; 3] = [
    (
        Gauge,
        "sqm_autorate_rate_bits_per_second",
        "The shaper rate that autorate chose.",
        |direction| direction.rate_bits_per_sec as f64,
    ),
    (
        Gauge,
        "sqm_autorate_load_bits_per_second",
        "The throughput, gross: with the overhead on the line.",
        |direction| direction.load_bits_per_sec as f64,
    ),
    (
        Counter,
        "sqm_autorate_cuts",
        "Times that autorate lowered the rate because of a queue.",
        |direction| direction.cuts as f64,
    ),
];

const AUTORATE: [Metric<AutorateStatus>; 2] = [
    (
        Counter,
        "sqm_autorate_probes",
        "Probes sent to reflectors.",
        |autorate| autorate.probes_sent as f64,
    ),
    (
        Counter,
        "sqm_autorate_tcp_samples",
        "Delay samples from TCP connections that pass the device.",
        |autorate| autorate.tcp_samples as f64,
    ),
];

const ROUND_TRIP: Description = (
    Gauge,
    "sqm_autorate_round_trip_seconds",
    "The last round trip to a reflector.",
);

const RATE: Description = (Gauge, "sqm_rate_bits_per_second", "The shaper rate.");

const QDISC: [Metric<Statistics>; 7] = [
    (
        Counter,
        "sqm_qdisc_sent_bytes",
        "Bytes that the qdisc has sent.",
        |qdisc| qdisc.sent_bytes as f64,
    ),
    (
        Counter,
        "sqm_qdisc_sent_packets",
        "Packets that the qdisc has sent.",
        |qdisc| qdisc.sent_packets as f64,
    ),
    (
        Counter,
        "sqm_qdisc_drops",
        "Packets that the qdisc dropped.",
        |qdisc| qdisc.drops.into(),
    ),
    (
        Counter,
        "sqm_qdisc_overlimits",
        "Times that the qdisc held a packet back because of its rate.",
        |qdisc| qdisc.overlimits.into(),
    ),
    (
        Counter,
        "sqm_qdisc_requeues",
        "Packets that the device did not accept.",
        |qdisc| qdisc.requeues.into(),
    ),
    (Gauge, "sqm_qdisc_backlog_bytes", "Bytes in the queue.", |qdisc| {
        qdisc.backlog_bytes.into()
    }),
    (
        Gauge,
        "sqm_qdisc_backlog_packets",
        "Packets in the queue.",
        |qdisc| qdisc.backlog_packets.into(),
    ),
];

const FQ_CODEL: [Metric<FqCodelStatistics>; 7] = [
    (
        Counter,
        "sqm_fq_codel_marks",
        "Packets that fq_codel marked with ECN.",
        |codel| codel.marks.into(),
    ),
    (
        Counter,
        "sqm_fq_codel_drops_overlimit",
        "Packets that fq_codel dropped because its queue was full.",
        |codel| codel.drops_overlimit.into(),
    ),
    (
        Counter,
        "sqm_fq_codel_drops_overmemory",
        "Packets that fq_codel dropped because its memory limit was reached.",
        |codel| codel.drops_overmemory.into(),
    ),
    (
        Counter,
        "sqm_fq_codel_new_flows",
        "Times that a packet began a new flow.",
        |codel| codel.new_flows.into(),
    ),
    (
        Gauge,
        "sqm_fq_codel_flows_new",
        "Flows in the list of new flows.",
        |codel| codel.new_flows_now.into(),
    ),
    (
        Gauge,
        "sqm_fq_codel_flows_old",
        "Flows in the list of old flows, which keep a queue.",
        |codel| codel.old_flows_now.into(),
    ),
    (
        Gauge,
        "sqm_fq_codel_memory_used_bytes",
        "Memory that fq_codel uses.",
        |codel| codel.memory_used_bytes.into(),
    ),
];

const CLASS: [Metric<ClassStatus>; 5] = [
    (
        Gauge,
        "sqm_class_rate_bits_per_second",
        "The rate that the class is guaranteed.",
        |class| class.rate_bits_per_sec as f64,
    ),
    (
        Gauge,
        "sqm_class_ceil_bits_per_second",
        "The rate that the class never exceeds.",
        |class| class.ceil_bits_per_sec as f64,
    ),
    (
        Counter,
        "sqm_class_sent_bytes",
        "Bytes that the class has sent.",
        |class| class.statistics.sent_bytes as f64,
    ),
    (
        Counter,
        "sqm_class_sent_packets",
        "Packets that the class has sent.",
        |class| class.statistics.sent_packets as f64,
    ),
    (
        Counter,
        "sqm_class_drops",
        "Packets dropped in the class.",
        |class| class.statistics.drops.into(),
    ),
];

const CAKE: [Metric<CakeStatistics>; 3] = [
    (
        Gauge,
        "sqm_cake_memory_used_bytes",
        "The most memory that CAKE has used.",
        |cake| cake.memory_used_bytes.into(),
    ),
    (
        Gauge,
        "sqm_cake_memory_limit_bytes",
        "Memory that CAKE may use.",
        |cake| cake.memory_limit_bytes.into(),
    ),
    (
        Gauge,
        "sqm_cake_capacity_estimate_bits_per_second",
        "CAKE's estimate of the line's capacity.",
        |cake| cake.capacity_estimate_bits_per_sec as f64,
    ),
];

const TIN: [Metric<TinStatistics>; 20] = [
    (
        Counter,
        "sqm_tin_arrived_bytes",
        "Bytes that arrived in the tin, including those dropped later.",
        |tin| tin.sent_bytes as f64,
    ),
    (
        Counter,
        "sqm_tin_arrived_packets",
        "Packets that arrived in the tin, including those dropped later.",
        |tin| tin.sent_packets.into(),
    ),
    (Counter, "sqm_tin_drops", "Packets dropped in the tin.", |tin| {
        tin.drops.into()
    }),
    (
        Counter,
        "sqm_tin_marks",
        "Packets marked with ECN in the tin.",
        |tin| tin.marks.into(),
    ),
    (
        Counter,
        "sqm_tin_ack_drops",
        "Acknowledgements that the ACK filter dropped.",
        |tin| tin.ack_drops.into(),
    ),
    (
        Counter,
        "sqm_tin_way_indirect_hits",
        "Hash collisions that another way of the set resolved.",
        |tin| tin.way_indirect_hits.into(),
    ),
    (
        Counter,
        "sqm_tin_way_misses",
        "Flows that took a free queue.",
        |tin| tin.way_misses.into(),
    ),
    (
        Counter,
        "sqm_tin_way_collisions",
        "Flows that had to share a queue.",
        |tin| tin.way_collisions.into(),
    ),
    (
        Gauge,
        "sqm_tin_threshold_bits_per_second",
        "Rate up to which the tin keeps its priority.",
        |tin| tin.threshold_bits_per_sec as f64,
    ),
    (
        Gauge,
        "sqm_tin_backlog_bytes",
        "Bytes in the tin's queues.",
        |tin| tin.backlog_bytes.into(),
    ),
    (
        Gauge,
        "sqm_tin_target_seconds",
        "CoDel's target in effect.",
        |tin| seconds(tin.target_us),
    ),
    (
        Gauge,
        "sqm_tin_interval_seconds",
        "CoDel's interval in effect.",
        |tin| seconds(tin.interval_us),
    ),
    (
        Gauge,
        "sqm_tin_delay_peak_seconds",
        "Average of the queue delay that follows its peaks.",
        |tin| seconds(tin.delay_peak_us),
    ),
    (
        Gauge,
        "sqm_tin_delay_average_seconds",
        "Average of the queue delay.",
        |tin| seconds(tin.delay_avg_us),
    ),
    (
        Gauge,
        "sqm_tin_delay_base_seconds",
        "Average of the queue delay that follows its lows.",
        |tin| seconds(tin.delay_base_us),
    ),
    (
        Gauge,
        "sqm_tin_flows_sparse",
        "Sparse flows, which have priority.",
        |tin| tin.sparse_flows.into(),
    ),
    (
        Gauge,
        "sqm_tin_flows_bulk",
        "Bulk flows, which keep a queue.",
        |tin| tin.bulk_flows.into(),
    ),
    (
        Gauge,
        "sqm_tin_flows_unresponsive",
        "Flows that do not react to drops.",
        |tin| tin.unresponsive_flows.into(),
    ),
    (
        Gauge,
        "sqm_tin_packet_max_bytes",
        "Largest packet so far.",
        |tin| tin.packet_max_bytes.into(),
    ),
    (
        Gauge,
        "sqm_tin_flow_quantum_bytes",
        "Bytes that a flow may send in its turn.",
        |tin| tin.flow_quantum_bytes.into(),
    ),
];

/// Samples by family, in the order of their first sample. All samples of a family must be adjacent in the text.
#[derive(Default)]
struct Families(Vec<Family>);

struct Family {
    kind: Kind,
    name: &'static str,
    help: &'static str,
    samples: String,
}

type Labels<'a> = [(&'a str, &'a str)];

impl Families {
    fn add(&mut self, (kind, name, help): Description, labels: &Labels<'_>, value: f64) {
        let at = self.0.iter().position(|family| family.name == name);
        let at = at.unwrap_or_else(|| {
            self.0.push(Family {
                kind,
                name,
                help,
                samples: String::new(),
            });
            self.0.len() - 1
        });
        let family = &mut self.0[at];
        let suffix = match kind {
            Counter => "_total",
            Info => "_info",
            Gauge => "",
        };
        let mut words = String::new();
        for (label, value) in labels {
            let comma = if words.is_empty() { "" } else { "," };
            // Writing to a String cannot fail, here and below.
            let _ = write!(words, "{comma}{label}=\"{}\"", escaped(value));
        }
        let braces = if words.is_empty() {
            String::new()
        } else {
            format!("{{{words}}}")
        };
        let _ = writeln!(family.samples, "{name}{suffix}{braces} {value}");
    }

    /// Adds a sample of each metric in the table.
    fn add_all<T>(&mut self, table: &[Metric<T>], labels: &Labels<'_>, source: &T) {
        for (kind, name, help, value) in table {
            self.add((*kind, name, help), labels, value(source));
        }
    }

    fn interface(&mut self, interface: &Interface) {
        let name = [("interface", interface.interface.as_str())];
        for state in STATES {
            let labels = [name[0], ("state", state.name())];
            self.add(INTERFACE_STATE, &labels, f64::from(interface.state == state));
        }
        self.add_all(&INTERFACE, &name, interface);
        if let Some(device) = &interface.device {
            self.add_all(&DEVICE, &name, device);
        }
    }

    fn autorate(&mut self, interface: &str, autorate: &AutorateStatus) {
        for (direction, status) in [("download", &autorate.download), ("upload", &autorate.upload)] {
            let labels = [("interface", interface), ("direction", direction)];
            self.add_all(&AUTORATE_DIRECTION, &labels, status);
        }
        let name = [("interface", interface)];
        self.add_all(&AUTORATE, &name, autorate);
        for reflector in &autorate.reflectors {
            let labels = [name[0], ("reflector", reflector.address.as_str())];
            if let Some(rtt_ms) = reflector.rtt_ms {
                self.add(ROUND_TRIP, &labels, rtt_ms / 1000.0);
            }
        }
    }

    fn queues(&mut self, queues: &InterfaceStatus) {
        self.direction(&queues.interface, "egress", &queues.egress);
        if let Some(ingress) = &queues.ingress {
            self.direction(&queues.interface, "ingress", ingress);
        }
    }

    fn direction(&mut self, interface: &str, direction: &str, queues: &DirectionStatus) {
        let base = [
            ("interface", interface),
            ("direction", direction),
            ("device", queues.device.as_str()),
        ];
        if let Some(rate) = queues.rate_bits_per_sec {
            self.add(RATE, &base, rate as f64);
        }
        for qdisc in &queues.qdiscs {
            let own = [("handle", qdisc.handle.as_str()), ("kind", qdisc.kind.as_str())];
            let labels = [&base[..], &own].concat();
            self.add_all(&QDISC, &labels, &qdisc.statistics);
            if let Some(codel) = &qdisc.fq_codel {
                self.add_all(&FQ_CODEL, &labels, codel);
            }
            if let Some(cake) = &qdisc.cake {
                self.cake(&labels, cake);
            }
        }
        for class in &queues.classes {
            let labels = [&base[..], &[("class", class.id.as_str())]].concat();
            self.add_all(&CLASS, &labels, class);
        }
    }

    fn cake(&mut self, qdisc: &Labels<'_>, cake: &CakeStatistics) {
        self.add_all(&CAKE, qdisc, cake);
        for (name, tin) in cake.tin_names.iter().zip(&cake.tins) {
            let labels = [qdisc, &[("tin", name.as_str())]].concat();
            self.add_all(&TIN, &labels, tin);
        }
    }

    fn text(self) -> String {
        let mut text = String::new();
        for Family {
            kind,
            name,
            help,
            samples,
        } in self.0
        {
            let kind = match kind {
                Counter => "counter",
                Gauge => "gauge",
                Info => "info",
            };
            let _ = write!(text, "# TYPE {name} {kind}\n# HELP {name} {help}\n{samples}");
        }
        text + "# EOF\n"
    }
}

fn seconds(micros: u32) -> f64 {
    f64::from(micros) / 1e6
}

/// Escapes a label's value for its place between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::{ConfiguredInterface, Event, Reconciler};
    use crate::status::Published;
    use sqm_api::status::ConfigurationStatus;
    use sqm_core::units::Instant;

    #[test]
    fn hostile_names_cannot_break_out_of_a_label() {
        let mut reconciler = Reconciler::default();
        let interface = ConfiguredInterface {
            rates: [None; 2],
            interface: "a\"b\\c\nd".to_owned(),
            ifb: "ifb".to_owned(),
        };
        reconciler.handle(Event::Configured(vec![interface]), Instant(1));
        let status =
            Published::new(reconciler.sections(), ConfigurationStatus::default(), false).at(Instant(1));
        let text = text(&status);
        assert!(
            text.contains("sqm_applied_total{interface=\"a\\\"b\\\\c\\nd\"} 0\n"),
            "{text}"
        );
        assert!(
            text.starts_with("# TYPE sqm_build info\n") && text.ends_with("# EOF\n"),
            "{text}"
        );
        openmetrics_parser::openmetrics::parse_openmetrics(&text).unwrap();
    }
}
