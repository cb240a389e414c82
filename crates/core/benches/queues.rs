//! The cost of the queues: instructions per packet, memory, and time per packet beside a FIFO in the same loop.
//!
//! Instructions are counted by `valgrind --tool=callgrind` when it is installed: the bench runs itself under it, once
//! short and once long, and the difference is what the loop's packets cost. Times depend on the machine and on what else
//! it does; instruction counts and bytes do not.

use std::env;
use std::process::Command;
use std::time::Instant;

use sqm_core::qdisc::Qdisc;
use sqm_core::workload::{self, BASE, NAMED, Named, Packet, START, Steady, Traffic, Workload};

fn main() {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["loop", name, packets] => run_loop(name, packets.parse().expect("a number of packets")),
        ["loop-fifo", name, packets] => run_fifo(name, packets.parse().expect("a number of packets")),
        _ => {
            if args.is_empty() {
                memory();
            }
            costs(args.first().map(String::as_str));
        }
    }
}

/// Instructions and nanoseconds per packet of each named workload.
fn costs(filter: Option<&str>) {
    let counted = Command::new("valgrind").arg("--version").output().is_ok();
    if !counted {
        println!("valgrind is not installed: no instruction counts");
    }
    println!("\nper packet, net of the loop    instructions   ns (median)   dropped");
    for named in NAMED
        .iter()
        .filter(|named| filter.is_none_or(|filter| named.name.contains(filter)))
    {
        let instructions = match counted {
            true => (instructions("loop", named.name) - instructions("loop-fifo", named.name))
                .round()
                .to_string(),
            false => "-".to_owned(),
        };
        let (ns, dropped) = nanoseconds(named);
        println!("{:30} {instructions:>12} {ns:13.0} {dropped:8.2}%", named.name);
    }
}

/// Instructions per packet, from a short and a long run of the same loop.
fn instructions(which: &str, name: &str) -> f64 {
    const SHORT: u64 = 20_000;
    const LONG: u64 = 60_000;
    (count(which, name, LONG) - count(which, name, SHORT)) as f64 / (LONG - SHORT) as f64
}

fn count(which: &str, name: &str, packets: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().expect("this program has a path"))
        .args([which, name, &packets.to_string()])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let refs = text
        .lines()
        .find_map(|line| line.split_once("refs:"))
        .expect("callgrind counts")
        .1;
    refs.trim().replace(',', "").parse().expect("a number")
}

fn run_loop(name: &str, packets: u64) {
    let named = find(name);
    steady(named.qdisc, named.workload).run(packets);
}

fn run_fifo(name: &str, packets: u64) {
    steady(workload::FIFO, find(name).workload).run(packets);
}

/// Net nanoseconds per packet, queue and FIFO in turns, and the share dropped.
fn nanoseconds(named: &Named) -> (f64, f64) {
    const TURNS: usize = 40;
    const PACKETS: u64 = 5000;
    let mut queue = steady(named.qdisc, named.workload);
    let mut fifo = steady(workload::FIFO, named.workload);
    let mut turns: Vec<f64> = (0..TURNS)
        .map(|_| (time(&mut queue, PACKETS) - time(&mut fifo, PACKETS)) / PACKETS as f64)
        .collect();
    turns.sort_by(f64::total_cmp);
    let (enqueued, dropped) = queue.counts();
    (turns[TURNS / 2], dropped as f64 * 100.0 / enqueued as f64)
}

fn time(steady: &mut Steady<impl Qdisc<Packet>>, packets: u64) -> f64 {
    let start = Instant::now();
    steady.run(packets);
    start.elapsed().as_nanos() as f64
}

fn steady(qdisc: &str, workload: Workload) -> Steady<impl Qdisc<Packet>> {
    Steady::new(
        workload::build(qdisc).expect("a queue that can be built"),
        workload,
    )
}

fn find(name: &str) -> &'static Named {
    NAMED
        .iter()
        .find(|named| named.name == name)
        .expect("a named workload")
}

/// Bytes of idle queues and of queues with 100 flows, one packet each.
fn memory() {
    println!(
        "bytes                                                   idle   100 flows, with the list of their packets"
    );
    for qdisc in [
        "cake bandwidth 100mbit besteffort",
        "cake bandwidth 100mbit",
        "cake bandwidth 100mbit diffserv4 dual-srchost ack-filter",
        "cake bandwidth 100mbit diffserv8",
        "fq_codel",
    ] {
        let (idle, _) = allocated(|| workload::build(qdisc).expect("a queue that can be built"));
        println!("{qdisc:52} {idle:7} {:11}", held(qdisc));
    }
    const INSTANCES: usize = 100_000;
    let (bytes, instances) = allocated(|| {
        (0..INSTANCES)
            .map(|_| workload::build("cake bandwidth 100mbit diffserv4"))
            .collect::<Vec<_>>()
    });
    println!(
        "{INSTANCES} idle instances of CAKE: {:.0} MiB",
        bytes as f64 / f64::from(1 << 20)
    );
    drop(instances);
}

/// Bytes that a queue holds while one packet of each of 100 flows waits in it, buffers apart.
fn held(qdisc: &str) -> i64 {
    const FLOWS: u32 = 100;
    let mut traffic = Traffic::new(&Workload { flows: FLOWS, ..BASE });
    let mut packets: Vec<Packet> = (0..FLOWS)
        .map(|flow| traffic.packet(flow, 1514, workload::buffer()))
        .collect();
    let (bytes, _) = allocated(|| {
        let mut queue = workload::build(qdisc).expect("a queue that can be built");
        for packet in packets.drain(..) {
            queue.enqueue(packet, START, &mut ());
        }
        queue
    });
    bytes
}

fn allocated<T>(make: impl FnOnce() -> T) -> (i64, T) {
    let mut made = None;
    let info = allocation_counter::measure(|| made = Some(make()));
    (info.bytes_current, made.expect("the closure ran"))
}
