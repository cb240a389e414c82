//! Prints the kernel's queues as text.

use sqm_kernel::netlink::statistics::{CakeStatistics, Statistics, TinStatistics};
use sqm_kernel::status::{ClassStatus, DirectionStatus, InterfaceStatus, QdiscStatus};

/// Prints the queues of an interface, direction by direction.
pub(super) fn print(status: &InterfaceStatus) {
    match status.owner.as_deref() {
        None if status.ingress.is_none() => outln!("{}: not shaped", status.interface),
        None | Some("sqm") => outln!("{}", status.interface),
        Some(other) => outln!("{}: set up by {other}", status.interface),
    }
    print_direction("egress", &status.egress);
    match &status.ingress {
        Some(ingress) => print_direction("ingress", ingress),
        None => outln!("  ingress: not shaped"),
    }
}

fn print_direction(name: &str, status: &DirectionStatus) {
    outln!("  {name} on {}", status.device);
    for QdiscStatus {
        handle,
        parent,
        kind,
        spec,
        statistics,
        cake,
        fq_codel,
    } in &status.qdiscs
    {
        let place = parent
            .as_ref()
            .map_or_else(|| "root".to_owned(), |p| format!("in {p}"));
        outln!("    {handle} {place} {}", spec.as_ref().unwrap_or(kind));
        let Statistics {
            sent_bytes,
            sent_packets,
            drops,
            backlog_bytes,
            backlog_packets,
            ..
        } = statistics;
        out!(
            "      sent {sent_bytes} bytes in {sent_packets} packets, dropped {drops}, \
             holds {backlog_bytes} bytes in {backlog_packets} packets"
        );
        match fq_codel {
            Some(codel) => outln!(", marked {}", codel.marks),
            None => outln!(),
        }
        if let Some(cake) = cake {
            print_tins(cake);
        }
    }
    for ClassStatus {
        id,
        rate_bits_per_sec,
        statistics,
        ..
    } in &status.classes
    {
        outln!(
            "    class {id} {rate_bits_per_sec} bit/s: sent {} bytes",
            statistics.sent_bytes
        );
    }
}

/// Prints a row for each tin. Delays are CAKE's own averages: `peak` follows the peaks, `avg` is the plain average,
/// and `base` follows the lows.
fn print_tins(cake: &CakeStatistics) {
    outln!(
        "      {:<12}{:>14}{:>12}{:>12}{:>12}{:>12}{:>9}{:>9}{:>9}",
        "tin",
        "thresh bit/s",
        "packets",
        "peak us",
        "avg us",
        "base us",
        "drops",
        "marks",
        "acks"
    );
    for (name, tin) in cake.tin_names.iter().zip(&cake.tins) {
        let TinStatistics {
            threshold_bits_per_sec,
            sent_packets,
            delay_peak_us,
            delay_avg_us,
            delay_base_us,
            drops,
            marks,
            ack_drops,
            ..
        } = tin;
        outln!(
            "      {name:<12}{threshold_bits_per_sec:>14}{sent_packets:>12}{delay_peak_us:>12}{delay_avg_us:>12}\
             {delay_base_us:>12}{drops:>9}{marks:>9}{ack_drops:>9}"
        );
    }
}
