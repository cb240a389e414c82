//! `sqm start`, `stop`, `reload` and `verify` on a real kernel, checked with the real `tc`.

use std::path::Path;

use sqm_lab::{Clock, Home, Line, Output};

/// A lab with a fresh interface on the router, and the path of its configuration file.
struct Port {
    home: Home,
    name: &'static str,
}

impl Port {
    fn new(name: &'static str) -> Self {
        Self::on(Clock::Virtual, name)
    }

    fn on(clock: Clock, name: &'static str) -> Self {
        let line = Line::named("cable24").expect("a known line");
        let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
        let home = Home::boot(clock, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
        home.script(&format!(
            "ip -n router link add {name} type veth peer name {name}p
             ip -n router link set {name} up; ip -n router link set {name}p up"
        ))
        .expect("an interface can be made");
        Self { home, name }
    }

    fn config(&self, options: &str) {
        let text = format!(
            "config queue\n\toption enabled '1'\n\toption interface '{}'\n{options}",
            self.name
        );
        self.raw_config(text.as_bytes());
    }

    fn raw_config(&self, bytes: &[u8]) {
        self.home
            .write(&self.file(), bytes)
            .expect("a file can be written");
    }

    fn file(&self) -> String {
        format!("/tmp/{}.config", self.name)
    }

    fn sqm(&self, command: &str) -> Output {
        self.home
            .run("router", &["sqm", command, "--config", &self.file()])
            .expect("the lab answers")
    }

    fn sqm_ok(&self, command: &str) {
        let output = self.sqm(command);
        assert_eq!(
            output.code, 0,
            "sqm {command}: {}{}",
            output.stdout, output.stderr
        );
    }

    /// The output of `tc` and `ip` for this interface and its IFB, without counters. The "classes" of CAKE and
    /// fq_codel are left out: they are the current flows, and even IPv6 neighbour discovery is one.
    fn state(&self) -> String {
        let look = format!(
            "tc -n router qdisc show dev {0}
             tc -n router class show dev {0} | grep -v '^class \\(cake\\|fq_codel\\)' || true
             tc -n router filter show dev {0} parent ffff: 2>/dev/null || true
             ip -n router -o link show type ifb | sed 's/^[0-9]*: //' | grep -w ifb4{0} || true
             tc -n router qdisc show dev ifb4{0} 2>/dev/null || true",
            self.name
        );
        self.home.script(&look).expect("tc can look")
    }

    fn tc(&self, words: &str) -> String {
        self.home
            .script(&format!("tc -n router {words}"))
            .expect("tc works")
    }
}

const CAKE: &str = "\toption download '24000'\n\toption upload '4400'\n\toption script 'piece_of_cake.qos'
\toption linklayer 'ethernet'\n\toption overhead '18'\n\toption tcMPU '64'\n";

#[test]
fn start_sets_what_tc_reads_and_stop_restores_the_previous_state() {
    let port = Port::new("p1");
    let before = port.state();
    port.config(CAKE);
    port.sqm_ok("start");
    port.sqm_ok("verify");
    let egress = port.tc("qdisc show dev p1 root");
    for word in [
        "qdisc cake 1: root",
        "bandwidth 4400Kbit",
        "besteffort",
        " nat ",
        "overhead 18",
        "mpu 64",
        "nowash",
    ] {
        assert!(egress.contains(word), "`{word}` is missing in {egress}");
    }
    let ingress = port.tc("qdisc show dev ifb4p1 root");
    for word in [
        "qdisc cake 1: root",
        "bandwidth 24Mbit",
        "besteffort",
        " nat ",
        " wash ",
        "overhead 18",
        "mpu 64",
    ] {
        assert!(ingress.contains(word), "`{word}` is missing in {ingress}");
    }
    let redirect = port.tc("filter show dev p1 parent ffff:");
    for word in [
        "protocol all",
        "pref 10",
        "u32",
        "match 00000000/00000000 at 0",
        "Egress Redirect to device ifb4p1",
    ] {
        assert!(redirect.contains(word), "`{word}` is missing in {redirect}");
    }
    port.sqm_ok("stop");
    assert_eq!(port.state(), before);
    a_text_of_ones_own_is_started_verified_refused_and_stopped(&port, &before);
}

/// `option script 'mine.tc'`, with the text beside the configuration.
fn a_text_of_ones_own_is_started_verified_refused_and_stopped(port: &Port, before: &str) {
    const TEXT: &str = "\
tc qdisc add dev $IFACE root handle 1: $STAB htb default 20
tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK ceil $UPLINK $HTB_BURST
tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK / 3))kbit ceil $UPLINK prio 1
tc class add dev $IFACE parent 1:1 classid 1:20 htb rate $((UPLINK / 6))kbit ceil $UPLINK prio 2
tc qdisc add dev $IFACE parent 1:10 handle 110: fq_codel limit 300
tc qdisc add dev $IFACE parent 1:20 sfq
tc filter add dev $IFACE parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff match ip dport 53 0xffff flowid 1:10
tc filter add dev $IFACE parent 1: protocol ipv6 prio 2 flower src_ip 2001:db8::/36 classid 1:10
tc qdisc add dev $IFB root cake bandwidth $DOWNLINK $CAKE_FRAMING
";
    let text = |text: &str| port.home.write("/tmp/mine.tc", text.as_bytes()).expect("a file");
    text(TEXT);
    port.config(&CAKE.replace("piece_of_cake.qos", "mine.tc"));
    port.sqm_ok("start");
    port.sqm_ok("verify");
    let classes = port.tc("class show dev p1");
    assert!(
        classes.contains("class htb 1:10 parent 1:1") && classes.contains("rate 1466Kbit"),
        "{classes}"
    );
    let filters = port.tc("filter show dev p1 parent 1:");
    for word in [
        "match 00110000/00ff0000 at 8",
        "match 00000035/0000ffff at 20",
        "match 20010db8/ffffffff at 8",
    ] {
        assert!(filters.contains(word), "`{word}` is missing in {filters}");
    }
    assert!(port.tc("qdisc show dev ifb4p1 root").contains("bandwidth 24Mbit"));

    let file = port.file();
    for command in ["start", "reload"] {
        text(&TEXT.replace("limit 300", "limt 300"));
        refused(
            port,
            &["sqm", command, "--config", &file],
            2,
            &["p1.config:6", "/tmp/mine.tc:5: word 11 'limt'", "limit"],
        );
    }
    text(&TEXT.replace("limit 300", "limit 500"));
    port.sqm_ok("reload");
    port.sqm_ok("verify");
    assert!(port.tc("qdisc show dev p1").contains("limit 500p"));
    port.sqm_ok("stop");
    assert_eq!(port.state(), before);
}

#[test]
fn layer_cake_keeps_its_layers_on_the_upload() {
    let port = Port::new("p2");
    port.config("\toption download '24000'\n\toption upload '4400'\n\toption script 'layer_cake.qos'\n");
    port.sqm_ok("start");
    assert!(port.tc("qdisc show dev p2 root").contains("diffserv3"));
    let ingress = port.tc("qdisc show dev ifb4p2 root");
    assert!(
        ingress.contains("besteffort") && ingress.contains(" wash "),
        "{ingress}"
    );
    port.sqm_ok("stop");
}

#[test]
fn simplest_builds_its_tree_with_a_size_table() {
    let port = Port::new("p3");
    let before = port.state();
    port.config(
        "\toption download '13000'\n\toption upload '950'\n\toption script 'simplest.qos'\n\toption qdisc 'fq_codel'
\toption egress_ecn 'NOECN'\n\toption linklayer 'ethernet'\n\toption overhead '4'\n\toption tcMPU '64'\n",
    );
    port.sqm_ok("start");
    port.sqm_ok("verify");
    let qdiscs = port.tc("qdisc show dev p3");
    for word in [
        "qdisc htb 1: root",
        "default 0x10",
        "qdisc fq_codel 110: parent 1:10",
        "limit 1001p",
        "flows 1024",
    ] {
        assert!(qdiscs.contains(word), "`{word}` is missing in {qdiscs}");
    }
    let leaf = qdiscs
        .lines()
        .find(|line| line.contains("fq_codel 110:"))
        .expect("the leaf is there");
    assert!(!leaf.contains(" ecn"), "egress_ecn NOECN: {leaf}");
    let classes = port.tc("class show dev p3");
    for word in [
        "class htb 1:1 root",
        "class htb 1:10 parent 1:1",
        "rate 950Kbit ceil 950Kbit",
    ] {
        assert!(classes.contains(word), "`{word}` is missing in {classes}");
    }
    let table = port.tc("-s -d qdisc show dev p3 root");
    // 4 bytes above the IP packet are 10 less than the link header of 14 bytes, which the kernel counts itself.
    for word in ["overhead -10", "mpu 64", "mtu 2047", "tsize 512"] {
        assert!(table.contains(word), "`{word}` is missing in {table}");
    }
    port.sqm_ok("stop");
    assert_eq!(port.state(), before);
}

#[test]
fn a_rate_of_zero_leaves_that_direction_alone() {
    let port = Port::new("p4");
    port.config("\toption download '0'\n\toption upload '4400'\n\toption script 'piece_of_cake.qos'\n");
    port.sqm_ok("start");
    assert!(port.tc("qdisc show dev p4").contains("cake"));
    assert!(!port.tc("qdisc show dev p4").contains("ingress"));
    assert!(!port.state().contains("ifb4p4"));
    port.sqm_ok("stop");
}

#[test]
fn stop_restores_a_qdisc_that_was_set_by_hand() {
    let port = Port::new("p5");
    port.tc("qdisc add dev p5 root handle 7: tbf rate 10mbit burst 5000 limit 30000");
    let before = port.state();
    port.config(CAKE);
    port.sqm_ok("start");
    assert!(port.tc("qdisc show dev p5 root").contains("cake"));
    port.sqm_ok("stop");
    assert_eq!(port.state(), before);
}

#[test]
fn reload_changes_the_rate_and_nothing_else() {
    let port = Port::new("p6");
    port.config(CAKE);
    port.sqm_ok("start");
    let before = port.state();
    port.config(&CAKE.replace("4400", "4000"));
    port.sqm_ok("reload");
    assert_eq!(port.state(), before.replace("4400Kbit", "4Mbit"));
    port.sqm_ok("stop");
}

#[test]
fn verify_finds_changes_by_another_program() {
    let port = Port::new("p7");
    port.config(CAKE);
    port.sqm_ok("start");
    port.sqm_ok("fleet-check");
    port.tc("qdisc change dev p7 root cake bandwidth 9mbit");
    for command in ["verify", "fleet-check"] {
        let output = port.sqm(command);
        assert_eq!(output.code, 1);
        let said = output.stdout + &output.stderr;
        assert!(said.contains("bandwidth") && said.contains("p7"), "{said}");
    }
    port.sqm_ok("stop");
}

#[test]
fn status_prints_the_kernels_counters_as_json() {
    let port = Port::new("p8");
    port.config(CAKE);
    port.sqm_ok("start");
    let output = port
        .home
        .run("router", &["sqm", "status", "--json", "--config", &port.file()])
        .expect("the lab answers");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let status: serde_json::Value = serde_json::from_str(&output.stdout).expect("status --json prints JSON");
    let text = status.to_string();
    for word in ["p8", "ifb4p8", "cake", "tins", "drops", "marks"] {
        assert!(text.contains(word), "`{word}` is missing in {text}");
    }
    port.sqm_ok("stop");
}

/// Runs a command that must fail with this exit code and these words in its message, and that must leave the network
/// as it was.
fn refused(port: &Port, command: &[&str], code: i32, words: &[&str]) {
    let before = port.state();
    let output = port.home.run("router", command).expect("the lab answers");
    let said = output.stdout + &output.stderr;
    assert_eq!(output.code, code, "{command:?}: {said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
    assert_eq!(port.state(), before);
}

#[test]
fn invalid_configurations_are_refused_by_name_and_change_nothing() {
    let port = Port::new("p9");
    let start = ["sqm", "start", "--config", &port.file()];

    port.config(&format!("{CAKE}\toption eqdisc_opts 'dual-srchots'\n"));
    refused(
        &port,
        &start,
        2,
        &["p9.config:10", "dual-srchots", "dual-srchost"],
    );

    port.config(&CAKE.replace("24000", "10mbits"));
    refused(&port, &start, 2, &["p9.config:4", "10mbits", "10mbit"]);

    port.config(&CAKE.replace("piece_of_cake", "piece_of_cacke"));
    refused(
        &port,
        &start,
        2,
        &["p9.config:6", "piece_of_cacke", "piece_of_cake"],
    );

    port.raw_config(
        format!("config queue\n\toption enabled '1'\n\toption interface 'p9x'\n{CAKE}").as_bytes(),
    );
    refused(&port, &start, 2, &["p9x", "p9p"]);

    let mut state = 7_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(4096)
    .collect();
    port.raw_config(&noise);
    refused(&port, &start, 2, &["p9.config:"]);
}

#[test]
fn an_endless_line_is_refused() {
    let port = Port::new("p10");
    for (length, complaint) in [
        (1_000_000, "p10.config:1"),
        (10_000_000, "no more than 1048576 are read"),
    ] {
        let script = format!("head -c {length} /dev/zero | tr '\\0' 'a' >{}", port.file());
        port.home.script(&script).expect("a file");
        refused(
            &port,
            &["sqm", "start", "--config", &port.file()],
            2,
            &[complaint],
        );
    }
}

#[test]
fn without_root_nothing_is_changed() {
    let port = Port::new("p11");
    port.config(CAKE);
    let file = port.file();
    let words = [
        "setpriv",
        "--reuid",
        "1000",
        "--regid",
        "1000",
        "--clear-groups",
        "sqm",
        "start",
        "--config",
        &file,
    ];
    refused(&port, &words, 3, &["CAP_NET_ADMIN"]);
}

#[test]
fn a_kernel_without_cake_is_unsupported_and_the_module_is_named() {
    // Debian's kernel has its queues as modules. Its guest cannot load a module again by itself: it would look for
    // the modules of the host's kernel.
    let port = Port::on(Clock::Wall, "p13");
    port.home
        .script("/sbin/rmmod sch_cake")
        .expect("a module can be removed");
    port.config(CAKE);
    let start = ["sqm", "start", "--config", &port.file()];
    refused(
        &port,
        &start,
        4,
        &[
            "sch_cake",
            "CONFIG_NET_SCH_CAKE",
            "kmod-sched-cake",
            "linux-image",
        ],
    );

    // A setup script without CAKE still works there.
    port.config("\toption download '0'\n\toption upload '950'\n\toption script 'simplest.qos'\n\toption qdisc 'fq_codel'\n");
    port.sqm_ok("start");
    port.sqm_ok("stop");
}

#[test]
fn a_direction_the_kernel_refuses_leaves_the_other_as_it_was() {
    let port = Port::new("p12");
    // A device of another kind has the name of the IFB, so that ingress cannot be set up.
    port.home
        .script("ip -n router link add ifb4p12 type dummy")
        .expect("a dummy device");
    port.config(CAKE);
    let file = port.file();
    refused(&port, &["sqm", "start", "--config", &file], 1, &["ifb4p12"]);
}
