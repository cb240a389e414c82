//! Our queues must behave like Linux's in recorded scenarios: the same packets at the same nanosecond, the same
//! marks, drops, reasons and counters. A difference must be detected and explained.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

#[test]
fn cake_does_what_linux_did() {
    all_of("cake", 89);
}

#[test]
fn codel_does_what_linux_did() {
    all_of("codel", 11);
}

#[test]
fn fq_codel_does_what_linux_did() {
    all_of("fq_codel", 23);
}

#[test]
fn tbf_does_what_linux_did() {
    all_of("tbf", 10);
}

#[test]
fn htb_does_what_linux_did() {
    all_of("htb", 20);
}

#[test]
fn hfsc_does_what_linux_did() {
    all_of("hfsc", 24);
}

#[test]
fn a_difference_is_found_counted_and_explained() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut vector = recorded("fq_codel-a000");
        change(&mut vector);
        let output = replay(&vector, &[]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
        (verdict["mismatches"].as_u64().unwrap(), text(&output.stderr))
    };
    let recorded = recorded("fq_codel-a000");
    let Value::Array(sent) = &recorded["expect"]["sent"] else {
        panic!()
    };
    let (id, t) = (sent[2][0].as_u64().unwrap(), sent[2][1].as_u64().unwrap());

    let (count, explained) = changed(&|vector| vector["expect"]["sent"][2][1] = json!(t + 1));
    let expected = format!(
        "fq_codel-a000: sent[2]: expected id {id} at {} ns, CE 0; our queue: id {id} at {t} ns, CE 0\n",
        t + 1
    );
    assert_eq!((count, explained), (1, expected));

    let (count, explained) = changed(&|vector| vector["expect"]["dropped"][0][2] = json!("tail"));
    assert_eq!(count, 1);
    assert!(
        explained.contains("dropped[0]: ") && explained.contains(", tail; our queue: "),
        "{explained}"
    );

    let (count, explained) = changed(&|vector| vector["expect"]["final"]["maxpacket"] = json!(7));
    assert_eq!(count, 1);
    assert!(
        explained.contains("final.maxpacket: expected 7; our queue: 1514"),
        "{explained}"
    );

    let (count, _) = changed(&|vector| {
        vector["packets"].as_array_mut().unwrap().truncate(2);
        vector["expect"]["sent"].as_array_mut().unwrap().truncate(3);
        vector["expect"]["dropped"] = json!([]);
        vector["expect"]["final"] = json!({});
    });
    assert_eq!(count, 1, "a packet too few is a difference");
}

#[test]
fn events_are_printed_whatever_was_expected() {
    let mut vector = recorded("fq_codel-a000");
    let whole = replay(&vector, &["--events"]);
    assert!(whole.status.success());
    let events: Vec<Value> = text(&whole.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sent = |event: &&Value| event["ev"] == "sent";
    let told: Vec<_> = events
        .iter()
        .filter(sent)
        .map(|event| json!([event["id"], event["t_ns"], event["ce"]]))
        .collect();
    assert_eq!(Value::from(told), vector["expect"]["sent"]);
    let told: Vec<_> = events
        .iter()
        .filter(|event| event["ev"] == "drop")
        .map(|event| json!([event["id"], event["t_ns"], event["reason"]]))
        .collect();
    assert_eq!(Value::from(told), vector["expect"]["dropped"]);
    for event in &events {
        let keys: Vec<_> = event.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["ce", "ev", "id", "reason", "t_ns"]);
    }

    vector["expect"]["sent"] = json!([]);
    assert_eq!(replay(&vector, &["--events"]).stdout, whole.stdout);
    vector.as_object_mut().unwrap().remove("expect");
    assert_eq!(replay(&vector, &["--events"]).stdout, whole.stdout);

    let output = replay(&vector, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("has no expected events to compare with"));
}

#[test]
fn invalid_vectors_are_refused_with_the_place_of_the_error() {
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 12] = [
        (
            |v| v["packets"][1]["t_ns"] = json!(0),
            "packets[1] has the time 0",
        ),
        (
            |v| v["packets"][1]["id"] = json!(0),
            "packets[1]: the id 0 is used twice",
        ),
        (|v| v["packets"][1]["dscp"] = json!(64), "dscp 64 is more than 63"),
        (
            |v| v["packets"][1]["len"] = json!(-1),
            "invalid value: integer `-1`",
        ),
        (
            |v| v["packets"][1]["proto"] = json!("ipx"),
            "unknown variant `ipx`",
        ),
        (
            |v| v["packets"][1]["class"] = json!("ten"),
            "'ten' is not a class",
        ),
        (
            |v| v["packets"][1]["tcp"] = json!({"src": "10.0.0.1", "dst": "::1", "sport": 1, "dport": 1, "seq": 1, "ack": 1, "flags": 16, "payload": 0}),
            "not addresses of its proto",
        ),
        (
            |v| v["dequeue"] = json!({"kind": "link", "rate_bps": 0}),
            "needs a rate_bps above 0",
        ),
        (
            |v| v["dequeue"] = json!({"kind": "sometimes"}),
            "unknown variant `sometimes`",
        ),
        (
            |v| v["truesize"] = json!("len*2"),
            "unknown truesize model 'len*2'",
        ),
        (
            |v| v["tc"] = json!("limit many"),
            "fq_codel keyword 'limit': 'many' is not a whole number",
        ),
        (
            |v| v["qdisc"] = json!("cakes"),
            "unknown queueing discipline 'cakes'; did you mean 'cake'?",
        ),
    ];
    for (change, complaint) in changes {
        let mut vector = recorded("fq_codel-a000");
        change(&mut vector);
        let output = replay(&vector, &[]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{complaint}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(complaint),
            "{}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stdout), "");
    }
    let missing = run(&[Path::new("/nonexistent.json").to_owned()], &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot read the vector /nonexistent.json"));
}

/// Plays every kind of queue, without a recording to compare with. Events are printed, and `tc qdisc change` takes
/// effect in between.
#[test]
fn every_kind_plays_and_can_be_changed() {
    // Packets of 1000 bytes: three at 1 s, the change at 1.5 s, three at 2 s, on a link of 8 kbit/s.
    let play = |qdisc: &str, tc: Value, change: &str| {
        let packet = |id: u64| json!({"id": id, "t_ns": (1 + id / 3) * 1_000_000_000, "len": 1000, "flow_hash": 7, "dscp": if id % 3 == 2 { 46 } else { 0 }});
        let mut vector = json!({
            "name": "unrecorded", "qdisc": qdisc, "profile": "kernel", "tc": tc, "mtu": 1514,
            "origin_ns": 1_000_000_000, "end_ns": 60_000_000_000_u64, "truesize": "len+256",
            "random": {"r16": 0, "r32": 0}, "dequeue": {"kind": "link", "rate_bps": 8000},
            "packets": (0..6).map(packet).collect::<Vec<_>>(),
        });
        if !change.is_empty() {
            vector["events"] = json!([{"t_ns": 1_500_000_000, "change": change}]);
        }
        let output = replay(&vector, &["--events"]);
        let told: Vec<String> = text(&output.stdout)
            .lines()
            .map(|line| {
                let event: Value = serde_json::from_str(line).unwrap();
                let name = if event["ev"] == "sent" {
                    ""
                } else {
                    event["reason"].as_str().unwrap()
                };
                format!(
                    "{name}{}@{}",
                    event["id"],
                    event["t_ns"].as_u64().unwrap() / 100_000_000
                )
            })
            .collect();
        (told.join(" "), output.status.code(), text(&output.stderr))
    };
    let htb = json!([
        "qdisc add dev eth0 root handle 1: htb default 11",
        "class add dev eth0 parent 1: classid 1:10 htb rate 1mbit prio 0",
        "class add dev eth0 parent 1: classid 1:11 htb rate 1mbit prio 1",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:10"
    ]);
    let hfsc = json!([
        "tc qdisc add dev eth0 root handle 1: hfsc default 11",
        "tc class add dev eth0 parent 1: classid 1:10 hfsc rt m2 1mbit ls m2 1mbit",
        "tc class add dev eth0 parent 1: classid 1:11 hfsc ls m2 1mbit",
        "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:10"
    ]);
    let cake_below = json!([
        "qdisc add dev eth0 root handle 1: htb default 10",
        "class add dev eth0 parent 1: classid 1:10 htb rate 1mbit",
        "qdisc add dev eth0 parent 1:10 handle 10: cake besteffort"
    ]);
    let all = "0@10 1@20 2@30 3@40 4@50 5@60";
    for (qdisc, tc, change, expected) in [
        ("pfifo", json!("limit 4"), "", "0@10 tail5@20 1@20 2@30 3@40 4@50"),
        ("pfifo", json!("limit 4"), "limit 5", all),
        (
            "pfifo",
            json!(""),
            "limit 1",
            "0@10 tail3@20 tail4@20 tail5@20 1@20 2@30",
        ),
        (
            "bfifo",
            json!("limit 4000"),
            "",
            "0@10 tail5@20 1@20 2@30 3@40 4@50",
        ),
        ("bfifo", json!("limit 4000"), "limit 5k", all),
        (
            "pfifo_head_drop",
            json!("limit 4"),
            "",
            "0@10 overflow1@20 2@20 3@30 4@40 5@50",
        ),
        (
            "pfifo_head_drop",
            json!("limit 4"),
            "limit 1",
            "0@10 overflow1@20 overflow2@20 overflow3@20 4@20 5@30",
        ),
        (
            "codel",
            json!(""),
            "limit 1",
            "0@10 reconfigure1@15 tail3@20 tail4@20 tail5@20 2@20",
        ),
        (
            "fq_codel",
            json!(""),
            "limit 1",
            "0@10 reconfigure1@15 overflow2@20 overflow3@20 overflow4@20 5@20",
        ),
        ("fq_codel", json!(""), "interval 2s", all),
        (
            "tbf",
            json!("rate 1mbit burst 2000 limit 9000"),
            "rate 1mbit burst 1000 limit 1000",
            "0@10 tail3@20 tail4@20 tail5@20 1@20 2@30",
        ),
        ("cake", json!("besteffort"), "rtt 100s", all),
        ("htb", htb.clone(), "", "0@10 2@20 5@30 1@40 3@50 4@60"),
        ("hfsc", hfsc, "default 10", "0@10 2@20 3@30 4@40 5@50 1@60"),
        ("htb", cake_below, "", "0@10 1@20 aqm2@30 aqm3@30 aqm4@30 5@30"),
    ] {
        let (told, code, complaint) = play(qdisc, tc.clone(), change);
        assert_eq!(
            (told.as_str(), code),
            (expected, Some(0)),
            "{qdisc} {tc}, {change}: {complaint}"
        );
    }
    let (_, code, complaint) = play("htb", htb, "default 10");
    assert_eq!(code, Some(4));
    assert!(
        complaint.contains("htb cannot be changed while it runs"),
        "{complaint}"
    );
    let (_, code, complaint) = play("fq_codel", json!(""), "limti 1");
    assert_eq!(code, Some(2));
    assert!(complaint.contains("did you mean 'limit'?"), "{complaint}");
}

/// Extreme and nonsensical values and truncated files give an answer or an error, never a panic.
#[test]
fn damaged_vectors_never_panic() {
    let mut state = 0x5eed_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let fields = [
        "t_ns",
        "len",
        "net_off",
        "proto",
        "dscp",
        "ecn",
        "flow_hash",
        "src_hash",
        "mark",
        "class",
        "tcp",
    ];
    let values = [
        json!(0),
        json!(1),
        json!(-1),
        json!(65_535),
        json!(1 << 20),
        json!(u32::MAX),
        json!(1_u64 << 62),
        json!(u64::MAX),
        json!(0.5),
        json!(null),
        json!("1:10"),
        json!("ffff:ffff"),
        json!("arp"),
        json!([]),
        json!({}),
        json!({"src": "::1", "dst": "::2", "sport": 0, "dport": 0, "seq": 0, "ack": 0, "flags": 255, "payload": 0, "options_hex": "0501"}),
    ];
    let names = [
        "cake-a000",
        "codel-a000",
        "fq_codel-a001",
        "htb-a000",
        "hfsc-a000",
        "tbf-a000",
    ];
    for name in names.iter().cycle().take(90) {
        let mut vector = recorded(name);
        let packets = vector["packets"].as_array_mut().unwrap();
        packets.truncate(200);
        for _ in 0..=random(3) {
            let packet = random(packets.len());
            packets[packet][fields[random(fields.len())]] = values[random(values.len())].clone();
        }
        let mut bytes = serde_json::to_vec(&vector).unwrap();
        if random(4) == 0 {
            bytes.truncate(random(bytes.len()));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        let output = run(&[file.path().to_owned()], &["--events"]);
        let (code, said) = (output.status.code(), text(&output.stderr));
        assert!(
            matches!(code, Some(0 | 2)) && !said.contains("panicked"),
            "{name}: {code:?} {said}"
        );
    }
}

/// A file with errors does not hide the results of the others.
#[test]
fn valid_files_are_played_even_if_others_are_invalid() {
    let (good, bad) = (folder().join("codel-a000.json"), folder().join("README.md"));
    let output = run(&[bad.clone(), good, bad], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert_eq!(text(&output.stderr).lines().count(), 2);
}

/// Plays every recorded scenario of a kind.
fn all_of(kind: &str, count: usize) {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            name.ends_with(".json") && name.split('-').next() == Some(kind)
        })
        .collect();
    files.sort();
    assert_eq!(files.len(), count, "recorded scenarios of {kind}");
    let output = run(&files, &[]);
    let wrong = text(&output.stdout)
        .lines()
        .filter(|line| !line.ends_with("\"mismatches\":0}"))
        .count();
    assert!(
        output.status.success(),
        "{wrong} of {count} differ:\n{}",
        text(&output.stderr)
    );
    assert_eq!((text(&output.stdout).lines().count(), wrong), (count, 0));
}

fn recorded(name: &str) -> Value {
    let file = fs::read(folder().join(name).with_extension("json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

fn replay(vector: &Value, arguments: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(&file, vector).unwrap();
    run(&[file.path().to_owned()], arguments)
}

fn run(files: &[PathBuf], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["replay", "--vector"])
        .args(files)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/testdata/vectors")
}
