//! `sqm replay` on the command line: takes hand-made captures, and reports what a queue would have done with their
//! packets.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sqm_core::frame::Frame;
use sqm_core::packet::Packet as _;
use sqm_core::units::Instant;
use sqm_replay::pcap::{Format, LinkNumber, Reader, Writer};

/// Time at which all captures begin, nanoseconds since 1970.
const START: u64 = 1_700_000_000_000_000_000;

const MS: u64 = 1_000_000;

/// An Ethernet frame of `length` bytes with the headers of a UDP packet.
fn udp(flow: u16, ds_field: u8, length: u32) -> (u32, Vec<u8>) {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, ds_field];
    bytes.extend(((length - 14) as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 168, 1, 2, 203, 0, 113, 3]);
    let sum: u32 = bytes[14..34]
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(flow.to_be_bytes());
    bytes.extend([0, 53, 0, 0, 0, 0]);
    (length, bytes)
}

/// A frame in the opposite direction.
fn answer(flow: u16, length: u32) -> (u32, Vec<u8>) {
    let (length, mut bytes) = udp(flow, 0, length);
    let (source, destination) = (bytes[26..30].to_vec(), bytes[30..34].to_vec());
    bytes[26..30].copy_from_slice(&destination);
    bytes[30..34].copy_from_slice(&source);
    let ports = bytes[34..38].to_vec();
    bytes[34..36].copy_from_slice(&ports[2..]);
    bytes[36..38].copy_from_slice(&ports[..2]);
    (length, bytes)
}

/// Packets with their times after the start, nanoseconds.
type Packets = Vec<(u64, (u32, Vec<u8>))>;

/// `count` packets of 1000 bytes every `gap`.
fn stream(flow: u16, ds_field: u8, count: u64, gap: u64) -> Packets {
    (0..count).map(|n| (n * gap, udp(flow, ds_field, 1000))).collect()
}

fn together(streams: &[Packets]) -> Packets {
    let mut all = streams.concat();
    all.sort_by_key(|(time, _)| *time);
    all
}

fn capture(packets: &Packets) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Format::Pcap).unwrap();
    for (time, (length, bytes)) in packets {
        let time = Instant(START + time);
        writer.packet(time, LinkNumber::ETHERNET, *length, bytes).unwrap();
    }
    writer.finish().unwrap()
}

/// A folder with one capture in it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(file: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("capture.pcap"), file).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_sqm"))
            .current_dir(self.folder.path())
            .arg("replay")
            .args(arguments)
            .arg("capture.pcap")
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn milliseconds(delay: &Value) -> [f64; 4] {
    ["min", "median", "p95", "max"].map(|name| delay[name].as_f64().unwrap())
}

/// Ten packets of 1000 bytes arrive at once. At 8 Mbit/s they leave a millisecond apart, whether the link or the
/// shaper sets the rate.
#[test]
fn packets_wait_as_long_as_those_ahead_of_them_take() {
    let bench = Bench::new(&capture(&stream(1, 0, 10, 0)));
    for arguments in [
        &["--qdisc", "cake bandwidth 8mbit besteffort"][..],
        &["--qdisc", "pfifo", "--link", "8mbit"],
        &["--qdisc", "fq_codel", "--link", "8mbit"],
    ] {
        let report = bench.json(arguments);
        let total = &report["total"];
        assert_eq!(
            (&total["packets"], &total["sent_packets"]),
            (&json!(10), &json!(10))
        );
        let [min, median, _, max] = milliseconds(&total["delay_ms"]);
        assert_eq!((min, max), (0.0, 9.0));
        assert!((median - 4.0).abs() < 0.05, "{median}");
        let rate = total["throughput_mbit"].as_f64().unwrap();
        assert!((rate - 10.0 * 8.0 / 9.0).abs() < 1e-6, "{rate}");
        assert_eq!(report["flows"][0]["source_port"], 1);
        assert_eq!(report["flows"][0]["destination"], "203.0.113.3");
    }
}

#[test]
fn each_tin_and_flow_has_its_own_figures() {
    let bulk = stream(1, 0, 400, MS);
    let voice = (0..40).map(|n| (n * 10 * MS, udp(2, 0xb8, 200))).collect();
    let bench = Bench::new(&capture(&together(&[bulk, voice])));
    let report = bench.json(&["--qdisc", "cake bandwidth 5mbit diffserv3"]);
    let names: Vec<_> = report["tins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tin| tin["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Bulk", "Best Effort", "Voice"]);
    assert_eq!(report["tins"][0]["packets"], 0);
    assert_eq!(report["tins"][0]["delay_ms"], Value::Null);
    assert_eq!(
        (&report["tins"][1]["packets"], &report["tins"][2]["packets"]),
        (&json!(400), &json!(40))
    );
    let worst = |counts: &Value| milliseconds(&counts["delay_ms"])[3];
    assert!(worst(&report["tins"][1]) > 20.0 && worst(&report["tins"][2]) < 5.0);
    assert_eq!(worst(&report["flows"][1]), worst(&report["tins"][2]));

    let [cake] = report["statistics"].as_array().unwrap().as_slice() else {
        panic!("{}", report["statistics"]);
    };
    assert_eq!(
        (&cake["kind"], &cake["parent"], &cake["qlen"]),
        (&json!("cake"), &Value::Null, &json!(0))
    );
    assert_eq!(cake["packets"], report["total"]["sent_packets"]);
    assert_eq!(cake["drops"], report["total"]["drops"]["aqm"]);
    let [bulk, best_effort, voice] = cake["tins"].as_array().unwrap().as_slice() else {
        panic!("{}", cake["tins"]);
    };
    assert_eq!(
        (&bulk["name"], &bulk["sent_packets"], &bulk["peak_delay_us"]),
        (&json!("Bulk"), &json!(0), &json!(0))
    );
    assert_eq!(
        (&voice["sent_packets"], &voice["max_pkt_len"]),
        (&json!(40), &json!(200))
    );
    assert_eq!(best_effort["threshold_rate_bits_per_sec"], 5_000_000);
    assert_eq!(best_effort["drops"], cake["drops"]);
    let micros = |tin: &Value, name: &str| tin[name].as_u64().unwrap();
    assert!(micros(best_effort, "peak_delay_us") > 20_000 && micros(voice, "peak_delay_us") < 5_000);
    assert!(micros(best_effort, "base_delay_us") <= micros(best_effort, "avg_delay_us"));
    assert_eq!(cake["classes"].as_array().unwrap().len(), 2);

    let text = text(&bench.run(&["--qdisc", "cake bandwidth 5mbit diffserv3"]).stdout);
    for words in [
        "tin Voice",
        "udp 192.168.1.2:1 > 203.0.113.3:53",
        "capture.pcap: 440 packets",
        "dropped: ",
        " aqm",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
}

#[test]
fn a_class_tree_comes_from_tc_commands() {
    let bench = Bench::new(&capture(&together(&[
        stream(1, 0, 100, 0),
        stream(2, 0xb8, 100, 0),
    ])));
    let commands = "# Two classes.
tc qdisc add dev eth0 root handle 1: htb default 10
tc class add dev eth0 parent 1: classid 1:1 htb rate 8mbit
tc class add dev eth0 parent 1:1 classid 1:10 htb rate 2mbit
tc class add dev eth0 parent 1:1 classid 1:11 htb rate 6mbit
tc qdisc add dev eth0 parent 1:10 pfifo limit 1000
tc qdisc add dev eth0 parent 1:11 pfifo limit 1000
tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:11
";
    fs::write(bench.path("classes.tc"), commands.replace("tc ", "")).unwrap();
    let report = bench.json(&["--tree", "classes.tc"]);
    let rate = |flow: usize| report["flows"][flow]["throughput_mbit"].as_f64().unwrap();
    assert!(
        (rate(0) - 2.0).abs() < 0.3 && (rate(1) - 6.0).abs() < 0.6,
        "{} {}",
        rate(0),
        rate(1)
    );
    assert_eq!(report["warnings"], json!([]));
    let statistics = report["statistics"].as_array().unwrap();
    let of = |name: &str| -> Vec<&Value> { statistics.iter().map(|node| &node[name]).collect() };
    assert_eq!(
        Value::from_iter(of("kind").into_iter().cloned()),
        json!(["htb", "htb", "htb", "pfifo", "htb", "pfifo"])
    );
    assert_eq!(
        Value::from_iter(of("packets").into_iter().cloned()),
        json!([200, 200, 100, 100, 100, 100])
    );
    assert_eq!(
        (&statistics[2]["handle"], &statistics[2]["parent"]),
        (&json!("1:10"), &json!("1:1"))
    );
    assert_eq!(
        (&statistics[0]["direct_packets_stat"], &statistics[2]["lended"]),
        (&json!(0), &json!(100))
    );

    fs::write(
        bench.path("nowhere.tc"),
        "qdisc add dev eth0 root handle 1: htb default 7\n",
    )
    .unwrap();
    let unshaped = text(&bench.run(&["--tree", "nowhere.tc"]).stderr);
    assert!(unshaped.contains("UNSHAPED"), "{unshaped}");
    fs::write(bench.path("bad.tc"), "\nqdisc add dev eth0 root handle 1: hbt\n").unwrap();
    let complaint = bench.refused(&["--tree", "bad.tc"]);
    assert!(
        complaint.contains("bad.tc: line 2: ") && complaint.contains("did you mean 'htb'?"),
        "{complaint}"
    );
    fs::write(bench.path("rootless.tc"), "").unwrap();
    assert!(
        bench
            .refused(&["--tree", "rootless.tc"])
            .contains("rootless.tc: there is no root qdisc")
    );
    assert!(
        bench
            .refused(&["--tree", "missing.tc"])
            .contains("cannot read the tree missing.tc")
    );
}

#[test]
fn drops_and_marks_are_counted_separately_and_add_up() {
    let not_capable = Bench::new(&capture(&stream(1, 0, 1000, MS)));
    let report = not_capable.json(&["--qdisc", "fq_codel", "--link", "6mbit"]);
    let drops = report["total"]["drops"]["aqm"].as_u64().unwrap();
    assert!(drops > 5);
    assert_eq!(report["total"]["sent_packets"].as_u64().unwrap() + drops, 1000);
    assert_eq!(report["total"]["marks"], 0);

    let capable = Bench::new(&capture(&stream(1, 2, 1000, MS)));
    let report = capable.json(&["--qdisc", "fq_codel", "--link", "6mbit"]);
    assert_eq!(report["total"]["drops"], json!({}));
    assert!(report["total"]["marks"].as_u64().unwrap() > 5);

    let already_marked = Bench::new(&capture(&stream(1, 3, 1000, MS)));
    let report = already_marked.json(&["--qdisc", "fq_codel", "--link", "6mbit"]);
    assert_eq!(report["total"]["marks"], 0, "they came so");

    let full = Bench::new(&capture(&stream(1, 0, 100, 0)));
    let report = full.json(&["--qdisc", "pfifo limit 10", "--link", "1mbit"]);
    assert_eq!(
        report["total"]["drops"],
        json!({"tail": 89}),
        "ten wait and one is on its way"
    );
}

#[test]
fn events_show_what_happens_to_each_packet() {
    let bench = Bench::new(&capture(&stream(1, 2, 1000, MS)));
    let arguments = ["--qdisc", "cake bandwidth 6mbit", "--events"];
    let output = bench.run(&arguments);
    let events: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 1000);
    assert_eq!(
        events[0],
        json!({"ev": "sent", "id": 1, "t_ns": START, "ce": 0, "reason": null, "delay_ns": 0, "tin": "Best Effort"})
    );
    let times: Vec<_> = events
        .iter()
        .map(|event| event["t_ns"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted());
    let report = bench.json(&arguments[..2]);
    let marked = events.iter().filter(|event| event["ce"] == 1).count();
    assert_eq!(report["total"]["marks"], marked);
    assert_eq!(output.stdout, bench.run(&arguments).stdout, "twice the same");
}

#[test]
fn the_packets_that_left_are_a_capture_again() {
    let bench = Bench::new(&capture(&stream(1, 2, 1000, MS)));
    for name in ["shaped.pcap", "shaped.pcapng"] {
        let report = bench.json(&["--qdisc", "cake bandwidth 6mbit", "--out", name]);
        let file = fs::read(bench.path(name)).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        let (mut count, mut marks, mut last) = (0, 0, 0);
        while let Some(record) = reader.next_packet().unwrap() {
            let time = record.time.unwrap().0;
            assert!(time >= last && record.length == 1000);
            (count, last) = (count + 1, time);
            let header: u32 = record.bytes[14..34]
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
                .sum();
            assert_eq!(
                (header & 0xffff) + (header >> 16),
                0xffff,
                "checksums are those of the marks"
            );
            let frame = Frame::new(record.link.link().unwrap(), record.bytes.to_vec(), record.length);
            marks += u64::from(frame.view().ds_field == 3);
        }
        assert_eq!(report["total"]["sent_packets"], count);
        assert_eq!(report["total"]["marks"], marks);
        assert!(marks > 0);
        // 1000 packets of 1000 bytes take 1.333 s at 6 Mbit/s.
        assert!(last.abs_diff(START + 1_332 * MS) < 2 * MS, "{last}");
    }
    let names: Vec<_> = fs::read_dir(bench.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3, "nothing else is left: {names:?}");
    let complaint = bench.refused(&["--qdisc", "cake bandwidth 6mbit", "--out", "./capture.pcap"]);
    assert!(
        complaint.contains("--out would overwrite the capture"),
        "{complaint}"
    );
}

#[test]
fn the_picture_shows_delay_and_throughput() {
    let bench = Bench::new(&capture(&stream(1, 0, 1000, MS)));
    bench.json(&["--qdisc", "cake bandwidth 6mbit", "--svg", "picture.svg"]);
    let svg = fs::read_to_string(bench.path("picture.svg")).unwrap();
    for words in [
        "<svg ",
        "Delay (ms)",
        "Throughput (Mbit/s)",
        "Best Effort",
        "offered",
        "sent",
        "dropped",
    ] {
        assert!(svg.contains(words), "{words}");
    }
    assert!(!svg.contains("Voice"), "what no packet used is not drawn");
    assert!(!svg.contains("NaN"));
}

#[test]
fn options_without_effect_are_reported() {
    let bench = Bench::new(&capture(&stream(1, 0, 3, MS)));
    let warnings = |words: &str| text(&bench.run(&["--qdisc", words]).stderr);
    assert!(
        warnings("cake bandwidth 8mbit nat").contains("warning: nat has no effect: a capture does not show")
    );
    assert!(warnings("cake bandwidth 8mbit fwmark 0xff").contains("warning: fwmark has no effect"));
    assert_eq!(warnings("cake bandwidth 8mbit"), "");

    let joined = Bench::new(&capture(&vec![(0, udp(1, 0, 9014))]));
    let complaint = text(&joined.run(&["--qdisc", "cake bandwidth 8mbit"]).stderr);
    assert!(
        complaint.contains("frames longer than the MTU of 1514 bytes (number: 1)"),
        "{complaint}"
    );
    assert_eq!(
        text(
            &joined
                .run(&["--qdisc", "cake bandwidth 8mbit", "--mtu", "9000"])
                .stderr
        ),
        ""
    );
}

#[test]
fn one_direction_is_chosen_by_address() {
    let there = stream(1, 0, 10, MS);
    let back = (0..5).map(|n| (n * MS, answer(1, 1000))).collect();
    let bench = Bench::new(&capture(&together(&[there, back])));
    let both = bench.run(&["--qdisc", "cake bandwidth 8mbit"]);
    assert!(
        text(&both.stderr).contains("has both directions of its flows (number: 1)"),
        "{}",
        text(&both.stderr)
    );
    for (direction, count) in [
        (["--from", "192.168.0.0/16"], 10),
        (["--from", "192.0.2.0/24,192.168.0.0/16"], 10),
        (["--to", "192.168.1.2"], 5),
    ] {
        let arguments = [&["--qdisc", "cake bandwidth 8mbit"][..], &direction].concat();
        let report = bench.json(&arguments);
        assert_eq!(report["total"]["packets"], count);
        assert_eq!(report["capture"]["skipped"]["other_direction"], 15 - count);
        assert_eq!(report["warnings"], json!([]));
    }
}

#[test]
fn odd_packets_are_counted_and_reported() {
    let mut packets = stream(1, 0, 3, 500 * MS);
    packets.push((1000 * MS - 5000, udp(1, 0, 1000)));
    packets.push((10, udp(1, 0, 1000)));
    packets.push((2000 * MS, (0, Vec::new())));
    let bench = Bench::new(&capture(&packets));
    let report = bench.json(&["--qdisc", "cake bandwidth 8mbit"]);
    assert_eq!(
        (&report["capture"]["packets"], &report["total"]["packets"]),
        (&json!(6), &json!(4))
    );
    let skipped = json!({
        "other_direction": 0, "zero_length": 1, "without_time": 0, "backwards_in_time": 1, "unknown_link_type": 0
    });
    assert_eq!(
        (&report["capture"]["skipped"], &report["capture"]["reordered"]),
        (&skipped, &json!(1))
    );
    let told = text(&bench.run(&["--qdisc", "cake bandwidth 8mbit"]).stdout);
    assert!(
        told.contains("6 packets, 1 skipped: of zero length, 1 skipped: earlier than the packets before them, 1 a little out of order"),
        "{told}"
    );
    let events = bench.run(&["--qdisc", "cake bandwidth 8mbit", "--events"]);
    assert_eq!(text(&events.stdout).lines().count(), 4);
    let told = text(&events.stderr);
    assert!(told.contains("packets: 1 skipped: of zero length\n"), "{told}");
}

#[test]
fn a_truncated_file_is_reported_up_to_its_end_and_fails() {
    let mut file = capture(&stream(1, 0, 10, MS));
    file.truncate(file.len() - 3);
    let bench = Bench::new(&file);
    let output = bench.run(&["--qdisc", "cake bandwidth 8mbit", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["total"]["packets"], 9);
    assert!(
        report["capture"]["damage"]
            .as_str()
            .unwrap()
            .starts_with("cut short: it ends at byte ")
    );
    let complaint = text(&output.stderr);
    assert!(
        complaint.contains("in the middle of a packet; the report above covers the part before that"),
        "{complaint}"
    );
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let bench = Bench::new(&capture(&stream(1, 0, 3, MS)));
    for (arguments, complaint) in [
        (
            &["--qdisc", "cake bandwith 8mbit"][..],
            "unknown cake keyword 'bandwith'; did you mean 'bandwidth'?",
        ),
        (
            &["--qdisc", "cakes"],
            "unknown queueing discipline 'cakes'; did you mean 'cake'?",
        ),
        (&["--qdisc", ""], "the name of a queueing discipline is missing"),
        (&["--qdisc", "fq_codel"], "give the device's rate with --link"),
        (&["--qdisc", "cake"], "give the device's rate with --link"),
        (
            &["--qdisc", "fq_codel", "--link", "0"],
            "'0' needs a unit: 0mbit, or 0kbit",
        ),
        (
            &["--qdisc", "fq_codel", "--link", "10MB/s"],
            "could mean 10mbit or 80mbit",
        ),
        (
            &["--qdisc", "cake bandwidth 8mbit", "--from", "lan"],
            "not an address",
        ),
        (
            &["--qdisc", "cake bandwidth 8mbit", "--json", "--events"],
            "cannot be used with",
        ),
        (&[], "--qdisc"),
    ] {
        let said = bench.refused(arguments);
        assert!(said.contains(complaint), "{said}");
    }
    let qdisc = ["--qdisc", "cake bandwidth 8mbit"];
    let html = Bench::new(b"<!DOCTYPE html>");
    assert!(html.refused(&qdisc).contains("capture.pcap: not a capture"));
    let empty = Bench::new(b"");
    assert!(empty.refused(&qdisc).contains("it ends at byte 0"));
    let mut wireless = capture(&stream(1, 0, 3, MS));
    wireless[20] = 105;
    assert!(
        Bench::new(&wireless)
            .refused(&qdisc)
            .contains("frames of link type 105 are not supported")
    );
    fs::remove_file(bench.path("capture.pcap")).unwrap();
    assert!(
        bench
            .refused(&qdisc)
            .contains("cannot read the capture capture.pcap")
    );
}

#[test]
fn a_capture_without_packets_is_no_failure() {
    let report = Bench::new(&capture(&Vec::new())).json(&["--qdisc", "cake bandwidth 8mbit"]);
    assert_eq!(report["total"]["packets"], 0);
    assert_eq!(report["total"]["throughput_mbit"], Value::Null);
}

#[test]
fn a_capture_may_come_through_a_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["replay", "--qdisc", "cake bandwidth 8mbit", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let file = capture(&stream(1, 0, 10, MS));
    child.stdin.take().unwrap().write_all(&file).unwrap();
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["total"]["packets"], 10);
    assert_eq!(report["capture"]["file"], "-");
}

/// Random bytes behind a valid beginning cause an error message, never a panic.
#[test]
fn damaged_files_never_panic() {
    let good = capture(&stream(1, 0, 10, MS));
    let mut state = 0x5eed_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for _ in 0..40 {
        let mut file = good.clone();
        for _ in 0..=random() % 20 {
            let place = random() as usize % file.len();
            file[place] = random() as u8;
        }
        let output = Bench::new(&file).run(&["--qdisc", "cake bandwidth 8mbit nat ack-filter"]);
        let code = output.status.code();
        assert!(matches!(code, Some(0..=2)), "{code:?} {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"));
    }
}

#[test]
fn help_shows_examples_and_exit_codes() {
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["replay", "--help"])
        .output()
        .unwrap();
    let help = text(&output.stdout);
    for words in [
        "sqm replay --qdisc 'cake bandwidth 20mbit",
        "Exit codes: 0 done",
        "--link <RATE>",
    ] {
        assert!(help.contains(words), "{help}");
    }
}

/// Timestamps up to the last that a file can hold, lengths likewise, and rates at which no packet ever leaves.
#[test]
fn times_and_lengths_that_cannot_be_true_are_damage() {
    let queues: [&[&str]; 4] = [
        &["--qdisc", "cake bandwidth 1mbit"],
        &["--qdisc", "fq_codel", "--link", "1bit"],
        &["--qdisc", "codel", "--link", "1kbit"],
        &[
            "--qdisc",
            "tbf rate 1kbit burst 3000 limit 900000 peakrate 2kbit mtu 3000",
        ],
    ];
    let (length, bytes) = udp(1, 0, 1000);
    let file = |times: &[u64], length: u32| {
        let mut writer = Writer::new(Vec::new(), Format::Pcapng).unwrap();
        for time in times {
            let time = Instant(*time);
            writer.packet(time, LinkNumber::ETHERNET, length, &bytes).unwrap();
        }
        Bench::new(&writer.finish().unwrap())
    };
    for queue in queues {
        let late = file(&[0, u64::MAX], length).run(queue);
        assert_eq!(late.status.code(), Some(1), "{queue:?}: {}", text(&late.stderr));
        assert!(text(&late.stderr).contains("after the year 2079"), "{queue:?}");
        let long = file(&[0, 1], u32::MAX).run(queue);
        assert_eq!(long.status.code(), Some(1), "{queue:?}: {}", text(&long.stderr));
        assert!(
            text(&long.stderr).contains("a packet of 4294967295 bytes"),
            "{queue:?}"
        );
        // The last possible timestamp, and a queue that delays the packet beyond it.
        let last = file(&[(1 << 62) - (1 << 60); 300], length).run(queue);
        assert!(
            matches!(last.status.code(), Some(0 | 2)),
            "{queue:?}: {}",
            text(&last.stderr)
        );
    }
}
