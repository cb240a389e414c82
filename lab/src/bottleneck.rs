//! The bottleneck of a line: the buffer in front of its slow link, as a queue of `tc`.

use crate::Line;
use crate::line::{Boost, Buffer, Direction};

/// A script that gives a virtual host these commands of `tc`: one process for all of them.
pub(crate) fn batch(host: &str, commands: &str) -> String {
    format!("tc -n {host} -batch - <<BATCH\n{commands}BATCH\n")
}

/// The commands of `tc` for one direction: a token bucket with the line's buffer, on a device.
pub(crate) fn commands(device: &str, direction: &Direction, line: &Line) -> String {
    let kbits_per_sec = direction.kbits_per_sec;
    let bytes_per_ms = kbits_per_sec / 8;
    let limit = match direction.buffer {
        Buffer::Bytes(bytes) => bytes,
        Buffer::Millis(ms) => bytes_per_ms * u64::from(ms),
        // The inner queue counts the packets. This limit is only large enough.
        Buffer::Packets(packets) => u64::from(packets) * 2000,
    };
    // The token bucket already counts the 14 bytes of the Ethernet header.
    let overhead = line.overhead.saturating_sub(14);
    let cells = if line.atm { " linklayer atm" } else { "" };
    // On the wall clock timers fire late, and a bucket of one packet would lose rate. In virtual time such a bucket
    // would delay the small bursts of a shaper just below the rate of the line.
    let burst = 1600 + bytes_per_ms * 2;
    let (burst, peak) = match direction.boost {
        None => (burst, String::new()),
        Some(Boost {
            peak_kbits_per_sec,
            seconds,
        }) => {
            let credit = (peak_kbits_per_sec - kbits_per_sec) * 1000 / 8 * u64::from(seconds);
            (credit, format!(" peakrate {peak_kbits_per_sec}kbit mtu {burst}"))
        }
    };
    let packets = match direction.buffer {
        Buffer::Packets(packets) => {
            format!("qdisc add dev {device} parent 1:1 handle 10: pfifo limit {packets}\n")
        }
        _ => String::new(),
    };
    format!(
        "qdisc replace dev {device} root handle 1: tbf rate {kbits_per_sec}kbit burst {burst} \
         limit {limit}{peak} overhead {overhead}{cells}\n{packets}"
    )
}
