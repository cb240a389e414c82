//! Every setup script and every option on a real kernel. The queues of `sqm start` must be those that the real `tc` builds
//! from the commands that `sqm plan` prints.
//!
//! All configurations are set up side by side in one guest, each on its own device, with a twin device for `tc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;

use super::twins::{PLAIN, boot, difference, look_at_d0, section, seen};
use sqm_lab::Home;

/// The options of each configuration, separated by semicolons. Rates and setup script come first, then `name value`.
const CONFIGURATIONS: &[&str] = &[
    // Set-ups with default options.
    "85000;10000;best_of_cake",
    "85000;10000;piece_of_cake",
    "85000;10000;layer_cake",
    "85000;10000;simple",
    "85000;10000;simplest",
    "85000;10000;simplest_tbf",
    "85000;10000;hfsc_lite",
    "85000;10000;hfsc_litest",
    // One direction only.
    "85000;0;piece_of_cake",
    "0;10000;simple",
    "0;10000;hfsc_lite",
    // Slow and fast lines.
    "2000;256;simplest",
    "2000;96;simple",
    "1gbit;1gbit;simple",
    "10gbit;10gbit;simplest",
    "900mbit;40mbit;best_of_cake",
    "10gbit;10gbit;simplest_tbf",
    // Kinds of leaves.
    "85000;10000;simplest;qdisc cake",
    "85000;10000;simplest;qdisc codel",
    "85000;10000;simplest;qdisc pie",
    "85000;10000;simplest;qdisc sfq",
    "85000;10000;simplest;qdisc pfifo;elimit 50",
    "85000;10000;simplest;qdisc bfifo;ilimit 100000",
    "85000;10000;simple;qdisc cake;squash_ingress 0",
    "85000;10000;simple;qdisc codel;squash_ingress 0",
    "85000;10000;simplest_tbf;qdisc cake",
    "85000;10000;hfsc_lite;qdisc sfq",
    "85000;10000;hfsc_litest;qdisc pie",
    // DSCP.
    "85000;10000;piece_of_cake;squash_dscp 0",
    "85000;10000;layer_cake;squash_ingress 0;squash_dscp 0",
    "85000;10000;simple;squash_ingress 0;squash_dscp 0",
    "85000;10000;best_of_cake;squash_ingress 1;squash_dscp 1",
    "85000;10000;simple;mark_mask 0xff00ff",
    // ECN, limits, targets.
    "85000;10000;simplest;ingress_ecn NOECN;egress_ecn NOECN;ilimit 600;elimit 300",
    "85000;10000;simplest;itarget 15ms;etarget default",
    "2000;500;simplest_tbf;itarget auto;etarget 30ms",
    "2000;500;simplest;autoflow 1",
    // Free-form qdisc options.
    "85000;10000;piece_of_cake;iqdisc_opts nat dual-dsthost ingress;eqdisc_opts nat dual-srchost ack-filter rtt 50ms",
    "85000;10000;simplest;eqdisc_opts quantum 300 noecn;iqdisc_opts memory_limit 4mb",
    "85000;10000;simplest;qdisc pie;iqdisc_opts alpha 4 beta 30 bytemode",
    // The link layer, counted by the size table or by the qdisc.
    "85000;10000;piece_of_cake;linklayer ethernet;overhead 34;tcMPU 68",
    "85000;10000;piece_of_cake;linklayer atm;overhead 44",
    "85000;10000;best_of_cake;linklayer ptm;overhead 30;tcMPU 64",
    "85000;10000;piece_of_cake;linklayer ethernet;overhead 26;linklayer_adaptation_mechanism tc_stab",
    "85000;10000;simplest;linklayer atm;overhead 40;tcTSIZE 128;tcMTU 2047",
    "85000;10000;simple;linklayer ethernet;overhead 44;tcMPU 64",
    "85000;10000;simplest_tbf;linklayer adsl;overhead 40",
    "85000;10000;hfsc_lite;linklayer ethernet;overhead 18;tcMPU 64",
    "85000;10000;simplest;linklayer ethernet;overhead 8;linklayer_adaptation_mechanism htb_private",
    "85000;10000;simple;linklayer atm;overhead 44;tcMPU 53;linklayer_adaptation_mechanism htb_private",
    "85000;10000;simplest_tbf;linklayer ethernet;overhead 38;linklayer_adaptation_mechanism htb_private",
    "85000;10000;simplest;linklayer ptm;overhead 30",
    "85000;10000;best_of_cake;link vdsl2-pppoe",
    "24000;4400;best_of_cake;link docsis",
    "8000;800;simple;link adsl-pppoe-llc",
    "300000;300000;simplest;link gpon",
    // CAKE's own options.
    "85000;10000;best_of_cake;cake_rtt 30ms;cake_tins diffserv8;cake_isolation triple-isolate;cake_nat 0",
    "85000;10000;piece_of_cake;cake_wash 1;cake_split_gso 0;cake_memlimit 4mb;cake_fwmark 0xff",
    "85000;10000;piece_of_cake;egress_cake_ack_filter aggressive;ingress_cake_ingress 1;ingress_cake_tins precedence",
    "85000;10000;piece_of_cake;ingress_cake_autorate_ingress 1;cake_rtt satellite;cake_isolation hosts",
    // Upload and download swapped, and a setup script of its own for each direction.
    "85000;10000;best_of_cake;facing lan",
    "85000;10000;hfsc_lite;facing lan",
    "85000;10000;best_of_cake;ingress_script simplest.qos;ingress_qdisc fq_codel",
    "85000;10000;simple;egress_script piece_of_cake.qos",
    // Bursts.
    "500000;500000;simplest;shaper_burst_dur_us 5000",
    "500000;500000;simple;eshaper_burst_dur_us 0;ishaper_quantum_dur_us 100",
    "85000;10000;piece_of_cake;use_mq 1",
];

/// The output of `sqm plan --format tc` on this machine, which lacks the device.
fn printed(config: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sqm");
    std::fs::write(&file, config).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["plan", "--format", "tc", "--config"])
        .arg(&file)
        .output()
        .expect("sqm runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout)
        .expect("text")
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Runs each line with the program that it begins with, many lines in one process.
fn run(home: &Home, lines: &[String]) {
    let of = |program: &str| -> String {
        lines
            .iter()
            .filter_map(|line| line.strip_prefix(program)?.strip_prefix(' '))
            .fold(String::new(), |all, line| all + line + "\n")
            .replace('\'', "")
    };
    // Devices first, then their queues, then `up`, in the order in which `sqm plan` prints them for each device.
    let (add, up): (Vec<_>, Vec<_>) = lines
        .iter()
        .filter_map(|line| line.strip_prefix("ip "))
        .partition(|line| line.starts_with("link add"));
    for (file, text) in [
        ("add", add.join("\n") + "\n"),
        ("tc", of("tc")),
        ("up", up.join("\n") + "\n"),
        ("nft", of("nft")),
    ] {
        home.write(&format!("/tmp/{file}"), text.as_bytes())
            .expect("a file");
    }
    home.script(
        "ip -n router -batch /tmp/add && tc -n router -batch /tmp/tc && ip -n router -batch /tmp/up \
         && ip netns exec router nft -f /tmp/nft",
    )
    .expect("what sqm plan prints can be run");
}

#[test]
fn the_kernel_holds_what_tc_would_have_built_from_the_printed_plan() {
    let home = boot();
    let mut config = String::new();
    let (mut lines, mut devices, mut dummies) = (Vec::new(), Vec::new(), String::new());
    for (n, configuration) in CONFIGURATIONS.iter().enumerate() {
        let (ours, theirs) = (format!("a{n}"), format!("b{n}"));
        config += &section(&ours, configuration);
        lines.extend(printed(&section(&theirs, configuration)));
        for device in [ours, theirs] {
            writeln!(dummies, "link add {device} type dummy").expect("a String takes everything");
            let ifb = format!("ifb4{device}");
            devices.extend([device, ifb]);
        }
    }
    home.write("/tmp/dummies", dummies.as_bytes()).expect("a file");
    home.write("/tmp/config", config.as_bytes()).expect("a file");
    home.script("ip -n router -batch /tmp/dummies").expect("devices");
    run(&home, &lines);
    home.run_ok("router", &["sqm", "start", "--config", "/tmp/config"])
        .expect("sqm start");
    home.run_ok("router", &["sqm", "verify", "--config", "/tmp/config"])
        .expect("sqm verify");

    let seen = seen(&home, &devices);
    let mut wrong = Vec::new();
    for (n, configuration) in CONFIGURATIONS.iter().enumerate() {
        for device in ["", "ifb4"] {
            // The lines may differ in the device's name only.
            let of = |twin: &str| -> Vec<String> {
                let lines = &seen[&format!("{device}{twin}{n}")];
                lines
                    .iter()
                    .map(|line| line.replace(&format!("ifb4{twin}{n})"), "IFB)"))
                    .collect()
            };
            if let Some(difference) = difference(&of("a"), &of("b")) {
                wrong.push(format!("{configuration} {device}\n{difference}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // The firewall rules must be those that `nft` makes from the printed ones as well.
    let tables = home
        .script("ip netns exec router nft list ruleset")
        .expect("nft lists");
    let table = |twin: &str, n: usize| -> String {
        let from = tables
            .find(&format!("table inet sqm_{twin}{n} "))
            .unwrap_or_else(|| panic!("{tables}"));
        let end = tables[from..].find("\n}").expect("a table ends");
        tables[from..from + end]
            .replace(&format!("{twin}{n}\""), "DEV\"")
            .replace(&format!("sqm_{twin}{n} "), "")
    };
    let mut compared = 0;
    for (n, _) in CONFIGURATIONS
        .iter()
        .enumerate()
        .filter(|(n, _)| tables.contains(&format!("sqm_a{n} ")))
    {
        assert_eq!(table("a", n), table("b", n));
        compared += 1;
    }
    assert!(compared >= 8, "{compared} tables");

    home.run_ok("router", &["sqm", "stop"]).expect("sqm stop");
    let left = home
        .script("set +e; tc -n router qdisc show | grep -E ' dev (ifb4)?a[0-9]' | grep -v noqueue; ip netns exec router nft list tables | grep sqm_a; true")
        .expect("tc looks");
    assert_eq!(left, "");
}

/// The lab's own kernel has no cake_mq and falls back to a single CAKE. Linux 7.0 and later (CONTRIBUTING.md) have
/// one for each queue.
#[test]
fn many_queues_get_a_cake_each_or_one_for_all() {
    let home = boot();
    home.script(
        "ip -n router link add q0 numtxqueues 4 numrxqueues 4 type veth peer name q1 numtxqueues 4 numrxqueues 4
         ip -n router link set q0 addrgenmode none; ip -n router link set q0 up; ip -n router link set q1 up
         tc -n router qdisc add dev q0 root handle beef: pfifo limit 77",
    )
    .expect("a device with four queues");
    let release = home.script("uname -r").expect("the kernel's release");
    let major: u32 = release
        .split('.')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    let slow = section("q0", "85000;10000;best_of_cake;use_mq 1");
    let planned = sqm(&home, "plan", &slow);
    // A kernel for one processor does not report its receive queues.
    let words = [
        "egress on q0\n    1: root cake_mq bandwidth",
        "use_mq: cake for arriving packets: q0 has one hardware queue",
    ];
    assert!(words.iter().all(|words| planned.contains(words)), "{planned}");
    let said = sqm(&home, "start", &slow);
    let stands_in = said.contains("q0: plain cake in place of cake_mq, which this kernel lacks");
    assert_eq!(stands_in, major < 7, "{said}");

    // A second start changes nothing; a new rate changes the queues in place.
    sqm(&home, "verify", &slow);
    let again = sqm(&home, "start", &slow);
    assert!(again.starts_with("q0: unchanged"), "{again}");
    let fast = slow.replace("10000", "20000");
    let reloaded = sqm(&home, "reload", &fast);
    assert_eq!(reloaded.lines().count(), 2, "{reloaded}");
    let root = home.script("tc -n router qdisc show dev q0").expect("tc looks");
    // An older `tc` does not know cake_mq, but lists the CAKEs below it.
    let start = if stands_in {
        "qdisc cake 1: root"
    } else {
        "qdisc cake 0: parent 1:"
    };
    let cakes: Vec<&str> = root.lines().filter(|line| line.starts_with(start)).collect();
    assert_eq!(cakes.len(), if stands_in { 1 } else { 4 }, "{root}");
    let words =
        "bandwidth 20Mbit diffserv4 dual-srchost nat nowash no-ack-filter split-gso rtt 240ms raw overhead 0";
    assert!(cakes.iter().all(|cake| cake.contains(words)), "{root}");

    // The statistics are the sums over all of them.
    home.script(
        "# The kernel's own packets of IPv6 would be counted in one of the sums only.
         ip netns exec router sh -c 'echo 1 >/proc/sys/net/ipv6/conf/q0/disable_ipv6'
         ip -n router address add 10.9.0.1/24 dev q0
         ip -n router neigh replace 10.9.0.2 lladdr 02:00:00:00:00:01 dev q0
         ip netns exec router bash -c 'for port in $(seq 5000 5063); do echo x >/dev/udp/10.9.0.2/$port; done'",
    )
    .expect("packets of 64 flows");
    let told = home
        .script("ip netns exec router sqm status --json --config /tmp/config")
        .expect("sqm status");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let tins = told
        .pointer("/0/egress/qdiscs/0/cake/tins")
        .and_then(|tins| tins.as_array());
    let counted: u64 = tins
        .expect("tins")
        .iter()
        .filter_map(|tin| tin["sent_packets"].as_u64())
        .sum();
    let seen = home
        .script("tc -n router -s qdisc show dev q0 | grep pkts")
        .expect("tc looks");
    let seen: u64 = seen
        .split_whitespace()
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    assert!(counted >= 64 && counted == seen, "{counted} and {seen}");

    // To another setup script and back, and finally to the queues from before.
    let other = fast.replace("best_of_cake", "simplest");
    sqm(&home, "start", &other);
    sqm(&home, "verify", &other);
    sqm(&home, "start", &fast);
    sqm(&home, "verify", &fast);
    sqm(&home, "stop", &fast);
    let left = home.script("tc -n router qdisc show dev q0").expect("tc looks");
    assert!(
        left.starts_with("qdisc pfifo beef: root") && left.contains("limit 77p"),
        "{left}"
    );
}

/// Runs an `sqm` command with that configuration. Returns its output.
fn sqm(home: &Home, word: &str, config: &str) -> String {
    home.write("/tmp/config", config.as_bytes()).expect("a file");
    home.run_ok("router", &["sqm", word, "--config", "/tmp/config"])
        .unwrap_or_else(|e| panic!("sqm {word}: {e}"))
}

#[test]
fn some_configurations_of_a_setup_script_are_reached_from_others() {
    // Coprime to the number of pairs of most setup scripts, so that all kinds of changes occur over the whole list.
    reach_each_other(101);
}

/// Changes from one configuration to another by `sqm reload`, and back: every `step`-th pair within each setup script, then
/// through all configurations, or every seventh. The queues must be those of a fresh start.
pub(crate) fn reach_each_other(step: usize) {
    let home = boot();
    home.script_on("router", "ip link add d0 type dummy && ip link set d0 up")
        .expect("a device");
    look_at_d0(&home);
    for (n, configuration) in CONFIGURATIONS.iter().enumerate() {
        home.write(&format!("/tmp/c{n}"), section("d0", configuration).as_bytes())
            .expect("a file");
    }
    let script = |n: usize| CONFIGURATIONS[n].split(';').nth(2);
    let pairs =
        (0..CONFIGURATIONS.len()).flat_map(|from| (from + 1..CONFIGURATIONS.len()).map(move |to| (from, to)));
    let of_one = pairs
        .filter(|(from, to)| script(*from) == script(*to))
        .step_by(step);
    let way: Vec<usize> = of_one
        .flat_map(|(from, to)| [from, to, from])
        .chain((0..CONFIGURATIONS.len()).rev().step_by(step.min(7)))
        .collect();
    let used: BTreeSet<usize> = way.iter().copied().collect();
    let numbers = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    // Each change uses few processes: starting one is what costs most in the guest.
    const HELPERS: &str = "set +e; cd /tmp
        look() { tc -d -force -batch look 2>/dev/null | sed '$PLAIN' | sort >$1; }";
    let helpers = HELPERS.replace("$PLAIN", PLAIN);
    let script = |text: String| {
        home.script_on("router", &format!("{helpers}\n{text}"))
            .expect("the lab answers")
    };
    let mut answer = script(format!(
        ". ./look.sh >before; echo nothing >last
         for n in {}; do
             timeout 60 sqm start --config c$n >said 2>&1 || cat said
             look fresh$n
             sqm stop >said 2>&1 || cat said
         done",
        numbers(&Vec::from_iter(used))
    ));
    // In several scripts: the lab gives up on a guest that prints nothing for ten minutes.
    for piece in way.chunks(100) {
        answer += &script(format!(
            "for n in {}; do
                 timeout 60 sqm reload --config c$n >said 2>&1 || echo \"$(cat last) to $n: $(cat said)\"
                 look now
                 cmp -s fresh$n now || {{ echo \"$(cat last) to $n:\"; diff fresh$n now; }}
                 echo $n >last
             done; true",
            numbers(piece)
        ));
    }
    answer +=
        &script("sqm stop >said 2>&1 || cat said; . ./look.sh >after; diff before after; true".to_owned());
    println!("{} changes", way.len());
    assert!(way.len() > 10, "{}", way.len());
    assert!(answer.is_empty(), "{answer}");
}

#[test]
fn marks_are_set_as_the_rules_say() {
    let home = boot();
    let config = section("wan0", "24000;4400;simple");
    home.write("/tmp/config", config.as_bytes()).expect("a file");
    home.run_ok("router", &["sqm", "start", "--config", "/tmp/config"])
        .expect("sqm start");
    // The port determines the DSCP of a packet from h1, and some packets have ECN bits set. Packets to port 3100
    // already have another program's mark.
    let mut rules = String::from("table inet test {\nchain output {\ntype filter hook output priority 0;\n");
    for dscp in DSCP_CLASSES.map(|(dscp, _)| dscp) {
        let port = 3000 + u32::from(dscp);
        writeln!(rules, "udp dport {port} meta nfproto ipv4 ip dscp set {dscp}")
            .expect("a String takes everything");
        writeln!(rules, "udp dport {port} meta nfproto ipv6 ip6 dscp set {dscp}")
            .expect("a String takes everything");
    }
    rules += "udp dport 3046 meta nfproto ipv4 ip ecn set 1\nudp dport 3020 meta nfproto ipv4 ip ecn set 2\n}\n}\n";
    home.write("/tmp/h1", rules.as_bytes()).expect("a file");
    let foreign = "table inet test {\nchain prerouting {\ntype filter hook prerouting priority -200;\n\
                   udp dport 3100 meta mark set 0x10000001\nudp dport 3101 meta mark set 0x500\n}\n}\n";
    home.write("/tmp/router", foreign.as_bytes()).expect("a file");
    let mut script = String::from(
        "set +e; ip netns exec h1 nft -f /tmp/h1 && ip netns exec router nft -f /tmp/router
         look() { tc -n router -s class show dev wan0 | awk '/^class/ { id = $3 } /Sent/ { printf \"%s %s \", id, $4 }'; }
         send() { echo \"$1 $(look)\"; ip netns exec $2 bash -c \"for n in 1 2 3 4 5 6 7 8 9 10; do echo x >/dev/udp/$3/$4; done\"; sleep 0.5; }
         ",
    );
    // Resolve the addresses of all neighbours before packets are counted.
    for address in [sqm_lab::home::SERVER_V4, sqm_lab::home::SERVER_V6] {
        writeln!(
            script,
            "for host in h1 router; do ip netns exec $host ping -q -c 1 {address} >/dev/null; done; sleep 1"
        )
        .expect("a String takes everything");
        for (dscp, _) in DSCP_CLASSES {
            writeln!(script, "send dscp{dscp} h1 {address} {}", 3000 + u32::from(dscp))
                .expect("a String takes everything");
        }
        writeln!(
            script,
            "send forwarded-dns h1 {address} 53\nsend own-dns router {address} 53"
        )
        .and_then(|()| {
            writeln!(
                script,
                "send own-ntp router {address} 123\nsend foreign h1 {address} 3100"
            )
        })
        .and_then(|()| writeln!(script, "send elsewhere h1 {address} 3101"))
        .and_then(|()| {
            writeln!(
                script,
                "echo \"icmp $(look)\"; ip netns exec h1 ping -q -c 10 -i 0.02 {address} >/dev/null"
            )
        })
        .expect("a String takes everything");
    }
    // The modem's address is forgotten, so that ARP and neighbour discovery ask for it.
    script += "for n in 1 2 3 4 5 6 7 8 9 10; do echo \"arp $(look)\" >>/tmp/arp; ip -n router neigh flush dev wan0
               ip netns exec router ping -q -c 1 10.64.0.2 >/dev/null; done; head -1 /tmp/arp; echo \"end $(look)\"";
    let answer = home.script(&script).expect("the lab answers");
    let counts = |line: &str| -> BTreeMap<String, i64> {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        words
            .chunks(2)
            .filter_map(|pair| Some((pair[0].to_owned(), pair.get(1)?.parse().ok()?)))
            .collect()
    };
    let lines: Vec<&str> = answer.lines().collect();
    let mut wrong = Vec::new();
    for pair in lines.windows(2) {
        let what = pair[0].split_whitespace().next().unwrap_or_default();
        let expected = match what.strip_prefix("dscp") {
            Some(dscp) => DSCP_CLASSES
                .iter()
                .find(|(d, _)| d.to_string() == dscp)
                .map_or("", |(_, class)| class),
            None => match what {
                "own-dns" | "own-ntp" | "foreign" | "arp" => "1:11",
                "icmp" => "1:13",
                _ => "1:12",
            },
        };
        let (before, after) = (counts(pair[0]), counts(pair[1]));
        for class in ["1:11", "1:12", "1:13"] {
            let packets = after[class] - before[class];
            // A few packets more come from neighbour discovery. The pings that cause ARP requests are ICMP, which
            // waits in 1:13.
            if (packets >= 10) != (class == expected) && !(what == "arp" && class == "1:13") {
                wrong.push(format!(
                    "{what}: {packets} packets in {class}, expected in {expected}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty() && lines.len() > 20,
        "{}\n{answer}",
        wrong.join("\n")
    );
}

/// DSCPs and their classes in `simple.qos`. AF22 and all DSCPs without a meaning there are best effort.
const DSCP_CLASSES: [(u8, &str); 10] = [
    (0, "1:12"),
    (1, "1:13"),
    (4, "1:11"),
    (8, "1:13"),
    (20, "1:12"),
    (36, "1:11"),
    (46, "1:11"),
    (48, "1:11"),
    (56, "1:11"),
    (63, "1:12"),
];
