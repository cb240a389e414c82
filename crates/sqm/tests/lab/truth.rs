//! The lab agrees with reality. Queues are set up by plain `tc`, measured by `sqm test` in virtual time, and compared
//! with what other tools (a C traffic generator and ICMP pings) found for the kernel's queues on the same lines. Each
//! known figure is the mean of two runs.

use super::shared::{Figures, home, load, table};
use sqm_lab::{Clock, Line};

/// For shaped lines: 5 % of the median latency, at least half a millisecond, and 3 % of the goodput.
const STEADY: Tolerance = Tolerance {
    latency: 0.05,
    goodput: 0.03,
};
/// Unshaped lines are chaotic: one bloated cable line gave 1269, 1301, 1303 and 1323 ms. At 1 Mbit/s the median of a
/// run rests on a few hundred packets: means of three runs ranged from 21.7 to 25.2 ms.
const COARSE: Tolerance = Tolerance {
    latency: 0.10,
    goodput: 0.12,
};
/// Eight flows and their acknowledgements share one FIFO of 250 packets, where each loss has an effect for seconds.
/// Single runs gave 377 to 529 ms and 0.62 to 0.73 Mbit/s up.
const CHAOTIC: Tolerance = Tolerance {
    latency: 0.25,
    goodput: 0.25,
};
const LATENCY_FLOOR_MS: f64 = 0.5;

/// The most queues that fq_codel accepts. The kernel hashes flows to queues at random. If probes share a queue with a
/// download, their median is about 3 ms longer for the whole run; with an upload, about 10 ms. With the usual 1024
/// queues this happens in one run of 128, whatever the load of the machine; with this many, in one of 8192.
const QUEUES: &str = "flows 65536";

/// Shares of the true figures by which measured ones may differ.
struct Tolerance {
    latency: f64,
    goodput: f64,
}

pub(crate) struct Row {
    line: &'static str,
    sqm: &'static str,
    down: f64,
    up: f64,
    median_ms: f64,
}

pub(crate) const fn row(line: &'static str, sqm: &'static str, down: f64, up: f64, median_ms: f64) -> Row {
    Row {
        line,
        sqm,
        down,
        up,
        median_ms,
    }
}

const ROWS: [Row; 2] = [
    row("cable24", "recipe", 22.45, 3.64, 67.1),
    row("cable24", "piece_of_cake", 22.05, 3.59, 67.0),
];

#[test]
fn measured_latency_and_goodput_agree_with_the_truth() {
    compare(&ROWS, 1);
}

/// Measures each row in this many runs and compares the mean with the true figures.
pub(crate) fn compare(rows: &[Row], runs: usize) {
    // Two guests at a time, because each uses one core.
    let (left, right) = rows.split_at(rows.len() / 2);
    let mean = |rows: &[Row]| rows.iter().map(|row| measure(row, runs)).collect::<Vec<_>>();
    let found = std::thread::scope(|scope| {
        let left = scope.spawn(|| mean(left));
        let right = mean(right);
        let mut found = left.join().expect("the measurements run through");
        found.extend(right);
        found
    });
    let mut shown = Vec::new();
    let mut wrong = Vec::new();
    for (row, measured) in rows.iter().zip(found) {
        let name = format!("{} {}", row.line, row.sqm);
        let truth = Figures {
            down: row.down,
            up: row.up,
            median_ms: row.median_ms,
            ..measured.clone()
        };
        if !row.tolerance().allows(&measured, &truth) {
            wrong.push(name.clone());
        }
        shown.extend([(name, measured), ("  truth".into(), truth)]);
    }
    let shown = table(&shown);
    println!("{shown}");
    assert!(wrong.is_empty(), "differ from the truth: {wrong:?}\n{shown}");
}

impl Row {
    fn tolerance(&self) -> Tolerance {
        match (self.line, self.sqm) {
            ("up1m", "none") => CHAOTIC,
            ("up1m", _) | (_, "none") => COARSE,
            _ => STEADY,
        }
    }
}

impl Tolerance {
    fn allows(&self, measured: &Figures, truth: &Figures) -> bool {
        let is_near = |measured: f64, truth: f64, share: f64, floor: f64| {
            (measured - truth).abs() <= truth * share + floor
        };
        is_near(
            measured.median_ms,
            truth.median_ms,
            self.latency,
            LATENCY_FLOOR_MS,
        ) && is_near(measured.down, truth.down, self.goodput, 0.0)
            && is_near(measured.up, truth.up, self.goodput, 0.0)
    }
}

fn measure(row: &Row, runs: usize) -> Figures {
    let line = Line::named(row.line).expect("the truth is about known lines");
    let home = home(Clock::Virtual, &line);
    home.script(&by_tc(&line, row.sqm)).expect("tc sets the queues");
    let runs: Vec<_> = (0..runs)
        .map(|_| {
            // One series of probes, as in the measurement of the true figures: three would take 2 % of 1 Mbit/s.
            let flows = ["--test", "rrul_be_nflows", "--down", "4", "--up", "4"];
            load(
                &home,
                &[&flows[..], &["--settle", "7", "--duration", "25"]].concat(),
            )
        })
        .collect();
    Figures::mean(&runs)
}

/// The commands that a user would type on the router for each setup script.
fn by_tc(line: &Line, sqm: &str) -> String {
    let (down, up) = match line.name {
        "up1m" => (13_000, 950),
        "cable24" => (24_000, 4400),
        "vdsl80" => (76_000, 19_000),
        other => panic!("no shaped rates for {other}"),
    };
    let overhead = line.overhead;
    let ifb = "ip -n router link add ifb0 type ifb
        ip -n router link set ifb0 up
        tc -n router qdisc add dev wan0 handle ffff: ingress
        tc -n router filter add dev wan0 parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
            action mirred egress redirect dev ifb0\n";
    match sqm {
        "none" => String::new(),
        "recipe" => {
            recipe("br0", down, "fq_codel")
                + &recipe(
                    "wan0",
                    up,
                    if up < 4000 {
                        "fq_codel target 15ms noecn"
                    } else {
                        "fq_codel"
                    },
                )
        }
        "simplest" => {
            ifb.to_owned()
                + &simplest("wan0", up, overhead, "noecn")
                + &simplest("ifb0", down, overhead, "ecn")
        }
        "piece_of_cake" => {
            let cake = |device, rate| {
                format!(
                    "tc -n router qdisc add dev {device} root cake bandwidth {rate}kbit besteffort nat \
                     overhead {overhead} mpu 64\n"
                )
            };
            ifb.to_owned() + &cake("wan0", up) + &cake("ifb0", down)
        }
        other => panic!("no setup script {other}"),
    }
}

/// A well-known recipe: one HTB class and fq_codel.
fn recipe(device: &str, rate: u64, leaf: &str) -> String {
    format!(
        "tc -n router qdisc add dev {device} root handle 1: htb default 1
        tc -n router class add dev {device} parent 1: classid 1:1 htb rate {rate}kbit quantum 1514
        tc -n router qdisc add dev {device} parent 1:1 {leaf} {QUEUES}\n"
    )
}

/// The parameters of simplest.qos, with the overhead in a size table.
fn simplest(device: &str, rate: u64, overhead: u16, ecn: &str) -> String {
    let target = (13_992_000 / rate).max(5000);
    let interval = 95_000 + target;
    let burst = (rate * 1000 / 8000).max(1749);
    let beyond_ethernet = overhead - 14;
    let rate = format!("rate {rate}kbit ceil {rate}kbit quantum {burst} burst {burst} cburst {burst}");
    format!(
        "tc -n router qdisc add dev {device} root handle 1: stab mtu 2047 tsize 512 mpu 64 \
            overhead {beyond_ethernet} linklayer ethernet htb default 10
        tc -n router class add dev {device} parent 1: classid 1:1 htb {rate}
        tc -n router class add dev {device} parent 1:1 classid 1:10 htb {rate} prio 0
        tc -n router qdisc add dev {device} parent 1:10 handle 110: fq_codel limit 1001 \
            target {target}us interval {interval}us {ecn} {QUEUES}\n"
    )
}
