//! The setup scripts of sqm-scripts 1.6, option by option. Its commands are computed here from its documented arithmetic
//! and run by the real `tc`. The queues must be those that `sqm start` builds from the same section.
//!
//! Where the two differ on purpose, the commands are changed here with a reference to docs/reference/differences.md,
//! so that this file documents the differences. Filters are compared by their effect, in `lab/setups.rs`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::drawn::Draw;
use super::twins::{boot, difference, section, seen};

/// Download and upload in kbit/s, setup script, and options, separated by semicolons.
const CONFIGURATIONS: &[&str] = &[
    "85000;10000;piece_of_cake",
    "85000;10000;layer_cake",
    "85000;10000;simple",
    "85000;10000;simplest",
    "85000;10000;simplest_tbf",
    // One direction only.
    "85000;0;simple",
    "0;10000;simple",
    "85000;0;piece_of_cake",
    "0;10000;simplest_tbf",
    // Rates, and everything that is computed from them.
    "2500;1000;simplest",
    "2799;2798;simplest",
    "8000;800;simple",
    "16000;1024;simple;squash_ingress 0",
    "1000;384;simplest_tbf",
    "1000;100;simplest",
    "250000;13993;simplest",
    "1000000;500000;simple;squash_ingress 0",
    "4000000;1000000;simplest_tbf",
    "24000;4400;layer_cake",
    // Kinds of leaves.
    "85000;10000;simplest;qdisc fq_codel",
    "85000;10000;simplest;qdisc codel",
    "85000;2000;simplest;qdisc codel",
    "85000;10000;simplest;qdisc pie",
    "85000;2000;simplest;qdisc pie",
    "85000;10000;simplest;qdisc sfq",
    "85000;10000;simplest;qdisc pfifo",
    "85000;10000;simplest;qdisc bfifo",
    "85000;10000;simplest;qdisc cake",
    "85000;10000;simple;qdisc cake",
    "85000;10000;simple;qdisc cake;squash_ingress 0;squash_dscp 0",
    "85000;10000;simple;qdisc codel;squash_ingress 0",
    "85000;10000;simple;qdisc pie;squash_ingress 0",
    "85000;10000;simple;qdisc sfq",
    "85000;10000;simplest_tbf;qdisc cake",
    "85000;10000;simplest_tbf;qdisc codel",
    "85000;10000;simplest_tbf;qdisc bfifo;ilimit 60000;elimit 30000",
    // Set-ups that ignore the kind of leaf.
    "85000;10000;piece_of_cake;qdisc fq_codel",
    "85000;10000;layer_cake;qdisc sfq",
    // DSCP.
    "85000;10000;piece_of_cake;squash_dscp 0",
    "85000;10000;piece_of_cake;squash_ingress 0",
    "85000;10000;layer_cake;squash_dscp 0",
    "85000;10000;layer_cake;squash_ingress 0",
    "85000;10000;layer_cake;squash_ingress 0;squash_dscp 0",
    "85000;10000;simple;squash_ingress 0",
    "85000;10000;simple;squash_ingress 0;squash_dscp 0",
    // ECN marking, limits, targets.
    "85000;10000;simplest;ingress_ecn NOECN",
    "85000;10000;simple;egress_ecn NOECN;squash_ingress 0;ingress_ecn NOECN",
    "85000;10000;simplest;qdisc codel;egress_ecn NOECN",
    "85000;10000;piece_of_cake;ingress_ecn NOECN;egress_ecn NOECN",
    "85000;10000;simplest;ilimit 600;elimit 300",
    "85000;10000;simple;elimit 50;squash_ingress 0;ilimit 60",
    "85000;10000;piece_of_cake;ilimit 600;elimit 300",
    "85000;10000;simplest;itarget 15ms;etarget default",
    "85000;500;simplest;itarget auto;etarget Auto",
    "85000;500;simplest;etarget DEFAULT",
    "85000;500;simplest_tbf;etarget 30msecs;itarget 1s",
    "85000;500;simplest;qdisc pie;etarget 20000us",
    "85000;10000;piece_of_cake;itarget 15ms;etarget default",
    "85000;10000;simplest;target 15ms",
    // Free-form qdisc options.
    "85000;10000;piece_of_cake;iqdisc_opts nat dual-dsthost ingress;eqdisc_opts nat dual-srchost ack-filter",
    "85000;10000;layer_cake;eqdisc_opts diffserv4 rtt 50ms memlimit 4mb;iqdisc_opts diffserv8 nowash",
    "85000;10000;piece_of_cake;eqdisc_opts docsis;iqdisc_opts overhead 22 mpu 64",
    "85000;10000;simplest;eqdisc_opts quantum 300 noecn;iqdisc_opts memory_limit 4mb interval 50ms",
    "85000;10000;simple;eqdisc_opts limit 200 flows 64 quantum 1000",
    "85000;10000;simplest;qdisc pie;eqdisc_opts bytemode",
    "85000;10000;simplest;qdisc cake;eqdisc_opts diffserv4 nat",
    // The link layer.
    "85000;10000;piece_of_cake;linklayer ethernet;overhead 34;tcMPU 68",
    "85000;10000;layer_cake;linklayer ethernet;overhead -4",
    "8000;800;piece_of_cake;linklayer atm;overhead 44",
    "8000;800;layer_cake;linklayer atm;overhead 40;tcMPU 96;linklayer_adaptation_mechanism cake",
    "85000;10000;piece_of_cake;linklayer ethernet;overhead 26;linklayer_adaptation_mechanism tc_stab",
    "85000;10000;piece_of_cake;linklayer none;overhead 26",
    "85000;10000;simplest;linklayer ethernet;overhead 44;tcMPU 64",
    "85000;10000;simple;linklayer ethernet;overhead 30;tcMTU 1500;tcTSIZE 1024;tcMPU 84",
    "8000;800;simple;linklayer atm;overhead 40;tcTSIZE 128;squash_ingress 0",
    "8000;800;simplest;linklayer adsl;overhead 40;tcMTU 2047;tcTSIZE 128",
    "85000;10000;simplest_tbf;linklayer ethernet;overhead 18;linklayer_adaptation_mechanism tc_stab",
    "85000;10000;simplest;linklayer ethernet;overhead -10",
    "85000;10000;simplest;linklayer ethernet;overhead 22;tcMPU 64;linklayer_adaptation_mechanism htb_private",
    "8000;800;simple;linklayer atm;overhead 44;linklayer_adaptation_mechanism htb_private;squash_ingress 0",
    "8000;800;simplest_tbf;linklayer atm;overhead 44;tcMPU 53;linklayer_adaptation_mechanism htb_private",
    "85000;10000;simplest;qdisc cake;linklayer ethernet;overhead 34",
    // Variables of sqm-scripts that are set outside its configuration file.
    "85000;2000;simplest;autoflow 1",
    "9000;999;simple;autoflow 1;qdisc sfq",
    "500000;500000;simplest;shaper_burst_dur_us 5000",
    "500000;500000;simple;eshaper_burst_dur_us 2000;ishaper_quantum_dur_us 500",
    "500000;500000;simple;shaper_burst_dur_us 0;squash_ingress 0",
    "500000;500000;simplest;shaper_quantum_dur_us 0",
    // Odd rates.
    "1;1;piece_of_cake",
    "12345;6789;simple;squash_ingress 0",
    "801;805;simple;squash_ingress 0",
    "9999999;2499999;simplest",
    "383;384;simplest_tbf",
    // `autoflow` uses the rate of the class, not of the line. The quantum follows the burst of both directions.
    "85000;10000;simple;autoflow 1;squash_ingress 0",
    "300000;299999;simple;autoflow 1;squash_ingress 0;qdisc sfq",
    "39999;19999;simplest_tbf;autoflow 1",
    "500000;500000;simplest;shaper_burst_dur_us 10000;shaper_quantum_dur_us 2000",
    "500000;500000;simple;eshaper_burst_dur_us 50;ishaper_burst_dur_us 4000;squash_ingress 0",
    "500000;500000;simplest_tbf;shaper_burst_dur_us 0",
    "500000;500000;simplest;ishaper_burst_dur_us 0",
    // Free-form options of every kind of leaf.
    "85000;10000;simplest;qdisc sfq;eqdisc_opts perturb 10 quantum 3000;iqdisc_opts depth 64 divisor 512 headdrop",
    "85000;10000;simplest;qdisc codel;eqdisc_opts ce_threshold 2ms;iqdisc_opts interval 80ms",
    "85000;10000;simplest;qdisc pie;eqdisc_opts alpha 3 beta 19 tupdate 20ms;ingress_ecn NOECN",
    "85000;10000;simplest;eqdisc_opts ce_threshold 1ms drop_batch 32;iqdisc_opts target 20ms",
    "85000;10000;piece_of_cake;linklayer ethernet;overhead 22;eqdisc_opts bridged-ptm;iqdisc_opts ether-vlan",
    "85000;10000;layer_cake;eqdisc_opts memlimit 32mb flowblind;iqdisc_opts dsthost nonat fwmark 0xff",
    // More link layers.
    "8000;800;piece_of_cake;linklayer atm;overhead 40;linklayer_adaptation_mechanism tc_stab;tcTSIZE 128",
    "8000;800;simplest;linklayer atm;overhead 46;tcMTU 1600;tcTSIZE 100;tcMPU 53",
    "85000;10000;simple;linklayer ethernet;overhead 44;tcMTU 2048;linklayer_adaptation_mechanism htb_private",
    "85000;10000;piece_of_cake;linklayer ethernet;overhead 256;tcMPU 256",
    "85000;10000;simplest;linklayer ethernet",
    // Options without an effect on the queues.
    "85000;10000;simplest;debug_logging 1;verbosity 8;qdisc_advanced 0;qdisc_really_really_advanced 0;linklayer_advanced 0;\
     egress_ecn NOECN;ilimit 500;iqdisc_opts quantum 400;linklayer ethernet;overhead 44;tcMPU 84",
];

/// A kind of device, and the bytes that the kernel counts before the network header.
struct Kind {
    /// Arguments of `ip` that create such a device.
    add: &'static str,
    mtu: u32,
    header: i32,
}

/// The configurations are tested on these kinds of devices in turn.
const KINDS: [Kind; 5] = [
    Kind {
        add: "link add NAME mtu 1500 type dummy",
        mtu: 1500,
        header: 14,
    },
    Kind {
        add: "link add NAME mtu 9000 type dummy",
        mtu: 9000,
        header: 14,
    },
    Kind {
        add: "link add NAME link base mtu 1496 type vlan id VLAN",
        mtu: 1496,
        header: 14,
    },
    // Like on PPP, packets have no link header here.
    Kind {
        add: "tuntap add NAME mode tun",
        mtu: 1500,
        header: 0,
    },
    Kind {
        add: "link add NAME mtu 1280 type dummy",
        mtu: 1280,
        header: 14,
    },
];

/// How many drawn configurations join those of the list. `make nightly` draws others, and more.
const DRAWN: usize = 60;

#[test]
fn every_option_builds_what_sqm_scripts_builds() {
    let listed = CONFIGURATIONS.iter().map(|text| (*text).to_owned());
    let mut draw = Draw::seeded(1);
    let drawn = std::iter::repeat_with(|| draw.configuration());
    require_equal(&listed.chain(drawn.take(DRAWN)).collect::<Vec<_>>());
}

/// Fails if the kernel holds other queues after `sqm start` than after the commands of sqm-scripts.
pub(crate) fn require_equal(configurations: &[String]) {
    let home = boot();
    let (mut config, mut commands, mut devices) = (String::new(), String::new(), Vec::new());
    let mut links = String::from("link add base mtu 9000 type dummy\n");
    let put = |text: &mut String, line: &str| writeln!(text, "{line}").expect("a String takes everything");
    for (n, configuration) in configurations.iter().enumerate() {
        let kind = &KINDS[n % KINDS.len()];
        for (twin, vlan) in [("a", 100 + 2 * n), ("b", 101 + 2 * n)] {
            let name = format!("{twin}{n}");
            let add = kind.add.replace("NAME", &name).replace("VLAN", &vlan.to_string());
            put(&mut links, &add);
            devices.extend([name.clone(), format!("ifb4{name}")]);
        }
        put(&mut links, &format!("link add ifb4b{n} type ifb"));
        config += &section(&format!("a{n}"), configuration);
        let asked = Asked::read(configuration, kind);
        for (device, side) in [
            (format!("b{n}"), Side::Egress),
            (format!("ifb4b{n}"), Side::Ingress),
        ] {
            for command in asked.commands(side) {
                put(&mut commands, &command.replace("DEV", &device));
            }
        }
    }
    for (file, text) in [("links", &links), ("commands", &commands), ("config", &config)] {
        home.write(&format!("/tmp/{file}"), text.as_bytes())
            .expect("a file");
    }
    // Without an explicit burst, `tc` computes one from the kernel's timer frequency. HZ sets the frequency of real
    // machines.
    home.script("ip -n router -batch /tmp/links && HZ=1000000000 tc -n router -batch /tmp/commands")
        .expect("tc works");
    home.run_ok("router", &["sqm", "start", "--config", "/tmp/config"])
        .expect("sqm start");
    home.run_ok("router", &["sqm", "verify", "--config", "/tmp/config"])
        .expect("sqm verify");

    let seen = seen(&home, &devices);
    let mut wrong = Vec::new();
    for (n, configuration) in configurations.iter().enumerate() {
        for device in ["", "ifb4"] {
            let of = |twin: &str| queues(&seen[&format!("{device}{twin}{n}")]);
            // We create no IFB for a direction that is not shaped.
            let shaped = Asked::read(configuration, &KINDS[0]).rate(if device.is_empty() {
                Side::Egress
            } else {
                Side::Ingress
            }) > 0;
            if !shaped {
                assert!(
                    of("a").iter().all(|line| line.contains("noqueue")),
                    "{configuration}"
                );
            } else if let Some(difference) = difference(&of("a"), &of("b")) {
                wrong.push(format!("{configuration} {device}\n{difference}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        configurations.len(),
        wrong.join("\n\n")
    );
}

/// The qdiscs and classes of one device. The handle of CAKE is left out: we set one, and sqm-scripts does not
/// (docs/reference/differences.md).
fn queues(lines: &[String]) -> Vec<String> {
    lines
        .iter()
        .filter(|line| line.starts_with("qdisc") || line.starts_with("class"))
        .filter(|line| !line.starts_with("qdisc ingress"))
        .map(|line| match line.strip_prefix("qdisc cake ") {
            Some(rest) => rest.split_once(' ').map_or(rest, |(_, rest)| rest).to_owned(),
            None => line.clone(),
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Egress,
    Ingress,
}

/// A section as sqm-scripts reads it.
struct Asked<'a> {
    rates: [u64; 2],
    script: &'a str,
    options: BTreeMap<&'a str, &'a str>,
    kind: &'a Kind,
}

impl<'a> Asked<'a> {
    fn read(configuration: &'a str, kind: &'a Kind) -> Self {
        let mut parts = configuration.split(';');
        let mut next = || parts.next().expect("rates and a setup script");
        let (down, up, script) = (next(), next(), next());
        let number = |text: &str| text.parse().expect("sqm-scripts knows kbit/s only");
        Self {
            rates: [number(up), number(down)],
            script,
            options: parts.filter_map(|part| part.split_once(' ')).collect(),
            kind,
        }
    }

    fn rate(&self, side: Side) -> u64 {
        self.rates[side as usize]
    }

    fn get(&self, option: &str, default: &'a str) -> &'a str {
        self.options.get(option).copied().unwrap_or(default)
    }

    /// The value of an option whose name begins with the letter of the direction.
    fn of(&self, side: Side, option: &str) -> &'a str {
        let letter = if side == Side::Egress { 'e' } else { 'i' };
        self.get(&format!("{letter}{option}"), "")
    }

    fn squashes(&self, what: &str) -> bool {
        self.get(&format!("squash_{what}"), "1") == "1"
    }

    fn qdisc(&self) -> &'a str {
        match (self.script, self.get("qdisc", "fq_codel")) {
            ("piece_of_cake" | "layer_cake", _) => "cake",
            ("simplest_tbf", "cake") => "fq_codel",
            (_, qdisc) => qdisc,
        }
    }

    /// The `tc` commands for one direction on the device `DEV`.
    fn commands(&self, side: Side) -> Vec<String> {
        let rate = self.rate(side);
        if rate == 0 {
            return Vec::new();
        }
        if self.qdisc() == "cake" {
            return vec![self.cake(side)];
        }
        let stab = self.stab();
        let three_classes = self.script == "simple" && (side == Side::Egress || !self.squashes("ingress"));
        let [burst, quantum] = self.durations(side);
        let burst = match burst {
            0 => String::new(),
            micros => {
                let bytes = self.burst(rate, micros);
                format!("burst {bytes} cburst {bytes}")
            }
        };
        let quantum = self.burst(rate, quantum);
        let private = self.private();
        let class = |parent: &str, id: &str, own: u64, most: u64, rest: &str| {
            format!(
                "class add dev DEV parent {parent} classid {id} htb quantum {quantum} rate {own}kbit ceil {most}kbit \
                 {rest} {private}"
            )
        };
        let leaf = |parent: &str, handle: &str, share: u64, quantum: Option<u32>| {
            let leaf = self.leaf(side, share, quantum);
            format!("qdisc add dev DEV parent {parent} handle {handle} {leaf}")
        };
        if self.script == "simplest_tbf" {
            let burst = self.burst(rate, self.durations(side)[0]);
            return vec![
                format!(
                    "qdisc add dev DEV root handle 1: {stab} tbf rate {rate}kbit burst {burst} latency 300ms {private}"
                ),
                leaf("1:", "110:", rate, None),
            ];
        }
        if !three_classes {
            return vec![
                format!("qdisc add dev DEV root handle 1: {stab} htb default 10"),
                class("1:", "1:1", rate, rate, &burst),
                class("1:1", "1:10", rate, rate, &format!("{burst} prio 0")),
                leaf("1:10", "110:", rate, None),
            ];
        }
        let (own, quanta) = match side {
            Side::Egress => (128, [300, 300, 300]),
            Side::Ingress => (32, [500, 1500, 300]),
        };
        let (third, sixth, nearly_all) = (rate / 3, rate / 6, rate - 16);
        vec![
            format!("qdisc add dev DEV root handle 1: {stab} htb default 12"),
            class("1:", "1:1", rate, rate, &burst),
            class("1:1", "1:11", own, third, "prio 1"),
            class("1:1", "1:12", sixth, nearly_all, &format!("prio 2 {burst}")),
            class("1:1", "1:13", sixth, nearly_all, &format!("prio 3 {burst}")),
            leaf("1:11", "110:", third, Some(quanta[0])),
            leaf("1:12", "120:", sixth, Some(quanta[1])),
            leaf("1:13", "130:", sixth, Some(quanta[2])),
        ]
    }

    fn cake(&self, side: Side) -> String {
        let base = match self.script {
            "piece_of_cake" => "diffserv3 nat besteffort",
            "layer_cake" => "diffserv3 nat",
            "simplest" => "besteffort",
            _ => "",
        };
        let mut words = vec![base];
        if side == Side::Ingress {
            if self.script != "simplest" && self.squashes("ingress") {
                words.push("besteffort");
            }
            // sqm-scripts' simple.qos erases DSCPs in its firewall; here CAKE does (docs/reference/differences.md).
            if self.script != "simplest" && self.squashes("dscp") {
                words.push("wash");
            }
        }
        let mechanism = self.get("linklayer_adaptation_mechanism", "default");
        let line = match self.get("linklayer", "none") {
            "none" => String::new(),
            _ if mechanism == "tc_stab" => String::new(),
            layer => {
                let cells = if layer == "atm" { "atm " } else { "" };
                let (overhead, mpu) = (self.get("overhead", "0"), self.get("tcMPU", "0"));
                format!("{cells}overhead {overhead} mpu {mpu}")
            }
        };
        format!(
            "qdisc add dev DEV root {} cake bandwidth {}kbit {line} {} {}",
            self.stab(),
            self.rate(side),
            words.join(" "),
            self.of(side, "qdisc_opts")
        )
    }

    fn leaf(&self, side: Side, share: u64, quantum: Option<u32>) -> String {
        let (qdisc, rate) = (self.qdisc(), self.rate(side));
        let mut words = vec![qdisc.to_owned()];
        let limit = self.of(side, "limit");
        words.push(match (limit, qdisc) {
            ("", "bfifo") => format!("limit {}", 1001 * self.kind.mtu),
            ("", _) => "limit 1001".to_owned(),
            (limit, _) => format!("limit {limit}"),
        });
        if matches!(qdisc, "fq_codel" | "codel" | "pie") {
            match self.of(side, "target").to_ascii_lowercase().as_str() {
                "" | "auto" => {
                    let target = (13_992_000 / rate).max(5000);
                    words.push(format!("target {target}us"));
                    if qdisc != "pie" {
                        words.push(format!("interval {}us", 95_000 + target));
                    }
                }
                "default" => {}
                target => words.push(format!("target {target}")),
            }
            let option = if side == Side::Egress {
                "egress_ecn"
            } else {
                "ingress_ecn"
            };
            words.push(self.get(option, "ECN").to_ascii_lowercase());
        }
        if let (Some(quantum), "fq_codel") = (quantum, qdisc) {
            words.push(format!("quantum {quantum}"));
        }
        if matches!(qdisc, "fq_codel" | "sfq") {
            let flows = match share {
                _ if self.get("autoflow", "0") == "0" => 1024,
                0..1000 => 8,
                1000..3000 => 16,
                3000..8000 => 32,
                8000..10_000 => 48,
                10_000..20_000 => 64,
                20_000..40_000 => 128,
                40_000..70_000 => 256,
                70_000..100_000 => 512,
                _ => 1024,
            };
            words.push(format!("flows {flows}"));
        }
        words.push(self.of(side, "qdisc_opts").to_owned());
        words.join(" ")
    }

    /// The size table. For sqm-scripts its overhead is added to what the kernel counts; for us it is everything above
    /// IP.
    fn stab(&self) -> String {
        let default = if self.qdisc() == "cake" { "cake" } else { "tc_stab" };
        let mechanism = match self.get("linklayer_adaptation_mechanism", "default") {
            "default" => default,
            mechanism => mechanism,
        };
        let layer = self.get("linklayer", "none");
        if layer == "none" || mechanism != "tc_stab" {
            return String::new();
        }
        format!(
            "stab mtu {} tsize {} mpu {} overhead {} linklayer {layer}",
            self.get("tcMTU", "2047"),
            self.get("tcTSIZE", "512"),
            self.get("tcMPU", "0"),
            self.above_header(),
        )
    }

    /// The framing that HTB classes or TBF apply themselves.
    fn private(&self) -> String {
        let layer = self.get("linklayer", "none");
        if layer == "none" || self.get("linklayer_adaptation_mechanism", "default") != "htb_private" {
            return String::new();
        }
        format!(
            "mpu {} linklayer {layer} overhead {} mtu {}",
            self.get("tcMPU", "0"),
            self.above_header(),
            self.get("tcMTU", "2047"),
        )
    }

    fn above_header(&self) -> i32 {
        let overhead: i32 = self.get("overhead", "0").parse().expect("bytes");
        overhead - self.kind.header
    }

    /// Durations of burst and quantum, microseconds. Unless it is set, the quantum is the burst of both directions,
    /// not the burst of its own direction.
    fn durations(&self, side: Side) -> [u64; 2] {
        let number = |text: &str, default: u64| match text {
            "" => default,
            text => text.parse().expect("microseconds"),
        };
        let burst = number(self.get("shaper_burst_dur_us", ""), 1000);
        let quantum = number(self.get("shaper_quantum_dur_us", ""), burst);
        [
            number(self.of(side, "shaper_burst_dur_us"), burst),
            number(self.of(side, "shaper_quantum_dur_us"), quantum),
        ]
    }

    /// Bytes that the rate sends in that time, but at least one packet in ATM cells. The device's MTU applies to its
    /// IFB as well.
    fn burst(&self, rate: u64, micros: u64) -> u64 {
        let packet = (u64::from(self.kind.mtu) + 48).div_ceil(48) * 53;
        (micros * rate / 8000).max(packet)
    }
}
