//! Everything countable as OpenMetrics text (OpenMetrics 1.0.0), which Prometheus reads.
//!
//! Names end in their unit; times are seconds, sizes bytes, rates bits per second.

use std::fmt::Write;

use super::autorate;
use super::status::{Interface, Status};
use sqm_kernel::status::{DirectionStatus, InterfaceStatus};

/// What the text is, for the header of an answer.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole text.
pub(super) fn text(status: &Status) -> String {
    let mut families = Families::default();
    let program = [("version", status.program)];
    families.add(Kind::Info, "sqm_build", "The program.", &program, 1.0);
    let healthy = f64::from(status.health == "ok");
    families.add(
        Kind::Gauge,
        "sqm_healthy",
        "1 if all that is configured is shaped or waits for its device.",
        &[],
        healthy,
    );
    let good = f64::from(status.configuration.errors.is_empty());
    families.add(
        Kind::Gauge,
        "sqm_configuration_good",
        "1 if the configuration file is in force as it is.",
        &[],
        good,
    );
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

/// Samples by family, in the order of their first sample: a family's samples must stand together.
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
    fn add(&mut self, kind: Kind, name: &'static str, help: &'static str, labels: &Labels<'_>, value: f64) {
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
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge => "",
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

    fn autorate(&mut self, interface: &str, autorate: &autorate::Status) {
        for (direction, one) in [("download", &autorate.download), ("upload", &autorate.upload)] {
            let labels = [("interface", interface), ("direction", direction)];
            self.add(
                Kind::Gauge,
                "sqm_autorate_rate_bits_per_second",
                "The rate that the controller chose.",
                &labels,
                one.rate_bits_per_sec as f64,
            );
            self.add(
                Kind::Gauge,
                "sqm_autorate_load_bits_per_second",
                "What passes, with what packets take on the line.",
                &labels,
                one.load_bits_per_sec as f64,
            );
            self.add(
                Kind::Counter,
                "sqm_autorate_cuts",
                "How often the rate was lowered because of a queue.",
                &labels,
                one.cuts as f64,
            );
        }
        let name = [("interface", interface)];
        self.add(
            Kind::Counter,
            "sqm_autorate_probes",
            "Probes sent to reflectors.",
            &name,
            autorate.probes_sent as f64,
        );
        self.add(
            Kind::Counter,
            "sqm_autorate_tcp_samples",
            "Delays that were seen of connections that pass.",
            &name,
            autorate.tcp_samples as f64,
        );
        for reflector in &autorate.reflectors {
            let labels = [name[0], ("reflector", reflector.address.as_str())];
            if let Some(rtt_ms) = reflector.rtt_ms {
                self.add(
                    Kind::Gauge,
                    "sqm_autorate_round_trip_seconds",
                    "The last round trip to a reflector.",
                    &labels,
                    rtt_ms / 1000.0,
                );
            }
        }
    }

    fn interface(&mut self, interface: &Interface) {
        let name = [("interface", interface.interface.as_str())];
        for state in [
            "shaped",
            "waiting",
            "failed",
            "drifted",
            "contested",
            "stopped",
            "unconfirmed",
        ] {
            let labels = [name[0], ("state", state)];
            self.add(
                Kind::Gauge,
                "sqm_interface_state",
                "1 for the state that the interface is in.",
                &labels,
                f64::from(interface.state == state),
            );
        }
        self.add(
            Kind::Counter,
            "sqm_applied",
            "How often the interface was set up or changed.",
            &name,
            interface.applied as f64,
        );
        self.add(
            Kind::Counter,
            "sqm_repaired",
            "How often a change that others made was undone.",
            &name,
            interface.repaired as f64,
        );
        if let Some(device) = &interface.device {
            for (family, help, is) in [
                ("sqm_device_up", "1 if the device is up.", device.up),
                (
                    "sqm_device_carrier",
                    "1 if the device has a line.",
                    device.carrier,
                ),
            ] {
                self.add(Kind::Gauge, family, help, &name, f64::from(is));
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
            self.add(
                Kind::Gauge,
                "sqm_rate_bits_per_second",
                "The rate that is shaped to.",
                &base,
                rate as f64,
            );
        }
        for qdisc in &queues.qdiscs {
            let labels = [
                base[0],
                base[1],
                base[2],
                ("handle", &qdisc.handle),
                ("kind", &qdisc.kind),
            ];
            let s = &qdisc.statistics;
            for (name, help, value) in [
                ("sqm_qdisc_sent_bytes", "Bytes that left the qdisc.", s.sent_bytes),
                (
                    "sqm_qdisc_sent_packets",
                    "Packets that left the qdisc.",
                    s.sent_packets,
                ),
                (
                    "sqm_qdisc_drops",
                    "Packets that the qdisc dropped.",
                    s.drops.into(),
                ),
                (
                    "sqm_qdisc_overlimits",
                    "Times the qdisc held packets back.",
                    s.overlimits.into(),
                ),
                (
                    "sqm_qdisc_requeues",
                    "Packets that the device gave back.",
                    s.requeues.into(),
                ),
            ] {
                self.add(Kind::Counter, name, help, &labels, value as f64);
            }
            for (name, help, value) in [
                (
                    "sqm_qdisc_backlog_bytes",
                    "Bytes that the qdisc holds.",
                    s.backlog_bytes,
                ),
                (
                    "sqm_qdisc_backlog_packets",
                    "Packets that the qdisc holds.",
                    s.backlog_packets,
                ),
            ] {
                self.add(Kind::Gauge, name, help, &labels, value.into());
            }
            if let Some(codel) = &qdisc.fq_codel {
                for (name, help, value) in [
                    (
                        "sqm_fq_codel_marks",
                        "Packets that fq_codel marked with ECN.",
                        codel.marks,
                    ),
                    (
                        "sqm_fq_codel_drops_overlimit",
                        "Packets that fq_codel dropped because it was full.",
                        codel.drops_overlimit,
                    ),
                    (
                        "sqm_fq_codel_drops_overmemory",
                        "Packets that fq_codel dropped for lack of memory.",
                        codel.drops_overmemory,
                    ),
                    (
                        "sqm_fq_codel_new_flows",
                        "Times a packet began a new flow.",
                        codel.new_flows,
                    ),
                ] {
                    self.add(Kind::Counter, name, help, &labels, value.into());
                }
                for (name, help, value) in [
                    (
                        "sqm_fq_codel_flows_new",
                        "Flows that are new at this moment.",
                        codel.new_flows_now,
                    ),
                    (
                        "sqm_fq_codel_flows_old",
                        "Flows that keep a queue.",
                        codel.old_flows_now,
                    ),
                    (
                        "sqm_fq_codel_memory_used_bytes",
                        "Memory that fq_codel uses.",
                        codel.memory_used_bytes,
                    ),
                ] {
                    self.add(Kind::Gauge, name, help, &labels, value.into());
                }
            }
            if let Some(cake) = &qdisc.cake {
                self.cake(&labels, cake);
            }
        }
        for class in &queues.classes {
            let labels = [base[0], base[1], base[2], ("class", &class.id)];
            let s = &class.statistics;
            self.add(
                Kind::Gauge,
                "sqm_class_rate_bits_per_second",
                "What the class is guaranteed.",
                &labels,
                class.rate_bits_per_sec as f64,
            );
            self.add(
                Kind::Gauge,
                "sqm_class_ceil_bits_per_second",
                "What the class never exceeds.",
                &labels,
                class.ceil_bits_per_sec as f64,
            );
            for (name, help, value) in [
                ("sqm_class_sent_bytes", "Bytes that left the class.", s.sent_bytes),
                (
                    "sqm_class_sent_packets",
                    "Packets that left the class.",
                    s.sent_packets,
                ),
                ("sqm_class_drops", "Packets dropped in the class.", s.drops.into()),
            ] {
                self.add(Kind::Counter, name, help, &labels, value as f64);
            }
        }
    }

    fn cake(&mut self, qdisc: &Labels<'_>, cake: &sqm_kernel::status::CakeStatus) {
        let whole = &cake.statistics;
        self.add(
            Kind::Gauge,
            "sqm_cake_memory_used_bytes",
            "The most memory CAKE has used.",
            qdisc,
            whole.memory_used_bytes.into(),
        );
        self.add(
            Kind::Gauge,
            "sqm_cake_memory_limit_bytes",
            "Memory CAKE may use.",
            qdisc,
            whole.memory_limit_bytes.into(),
        );
        self.add(
            Kind::Gauge,
            "sqm_cake_capacity_estimate_bits_per_second",
            "What CAKE takes the line's capacity for.",
            qdisc,
            whole.capacity_estimate_bits_per_sec as f64,
        );
        for (name, tin) in cake.tin_names.iter().zip(&whole.tins) {
            let labels = [qdisc, &[("tin", name.as_str())]].concat();
            for (family, help, value) in [
                (
                    "sqm_tin_arrived_bytes",
                    "Bytes that came into the tin, later drops included.",
                    tin.sent_bytes,
                ),
                (
                    "sqm_tin_arrived_packets",
                    "Packets that came into the tin, later drops included.",
                    tin.sent_packets.into(),
                ),
                ("sqm_tin_drops", "Packets dropped in the tin.", tin.drops.into()),
                (
                    "sqm_tin_marks",
                    "Packets marked with ECN in the tin.",
                    tin.marks.into(),
                ),
                (
                    "sqm_tin_ack_drops",
                    "Acknowledgements filtered out.",
                    tin.ack_drops.into(),
                ),
                (
                    "sqm_tin_way_indirect_hits",
                    "Hash collisions that another way of the set resolved.",
                    tin.way_indirect_hits.into(),
                ),
                (
                    "sqm_tin_way_misses",
                    "Flows that took a free queue.",
                    tin.way_misses.into(),
                ),
                (
                    "sqm_tin_way_collisions",
                    "Flows that had to share a queue.",
                    tin.way_collisions.into(),
                ),
            ] {
                self.add(Kind::Counter, family, help, &labels, value as f64);
            }
            let seconds = |micros: u32| f64::from(micros) / 1e6;
            for (family, help, value) in [
                (
                    "sqm_tin_threshold_bits_per_second",
                    "Rate up to which the tin keeps its priority.",
                    tin.threshold_bits_per_sec as f64,
                ),
                (
                    "sqm_tin_backlog_bytes",
                    "Bytes that the tin holds.",
                    tin.backlog_bytes.into(),
                ),
                (
                    "sqm_tin_target_seconds",
                    "CoDel's target in effect.",
                    seconds(tin.target_us),
                ),
                (
                    "sqm_tin_interval_seconds",
                    "CoDel's interval in effect.",
                    seconds(tin.interval_us),
                ),
                (
                    "sqm_tin_delay_peak_seconds",
                    "Delay, following its peaks.",
                    seconds(tin.delay_peak_us),
                ),
                (
                    "sqm_tin_delay_average_seconds",
                    "Delay, averaged.",
                    seconds(tin.delay_avg_us),
                ),
                (
                    "sqm_tin_delay_base_seconds",
                    "Delay, following its lows.",
                    seconds(tin.delay_base_us),
                ),
                (
                    "sqm_tin_flows_sparse",
                    "Flows that send little.",
                    tin.sparse_flows.into(),
                ),
                (
                    "sqm_tin_flows_bulk",
                    "Flows that keep a queue.",
                    tin.bulk_flows.into(),
                ),
                (
                    "sqm_tin_flows_unresponsive",
                    "Flows that do not react to drops.",
                    tin.unresponsive_flows.into(),
                ),
                (
                    "sqm_tin_packet_max_bytes",
                    "Largest packet offered.",
                    tin.packet_max_bytes.into(),
                ),
                (
                    "sqm_tin_flow_quantum_bytes",
                    "Bytes a flow sends per round.",
                    tin.flow_quantum_bytes.into(),
                ),
            ] {
                self.add(Kind::Gauge, family, help, &labels, value);
            }
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
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Info => "info",
            };
            let _ = write!(text, "# TYPE {name} {kind}\n# HELP {name} {help}\n{samples}");
        }
        text + "# EOF\n"
    }
}

/// A label's value as it stands between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep::{Event, Keeper, Named};
    use crate::status::File;
    use sqm_core::units::Instant;

    #[test]
    fn hostile_names_cannot_break_out_of_a_label() {
        let mut keeper = Keeper::default();
        let named = Named {
            interface: "a\"b\\c\nd".to_owned(),
            ifb: "ifb".to_owned(),
        };
        keeper.on(Event::Configured(vec![named]), Instant(1));
        let status = Status::of(keeper.sections(), File::default(), Instant(1));
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
