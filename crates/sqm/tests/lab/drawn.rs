//! Configurations drawn at random from every option of sqm-scripts, in the form of `scripts.rs`; the same ones in every run.
//!
//! Known differences (docs/reference/differences.md) are not drawn: lines below 800 kbit/s with three classes, `adsl` and `htb_private` with
//! CAKE, a mechanism that the setup script does not have, an overhead below the header with `htb_private`.

/// A generator of pseudo-random numbers (Numerical Recipes' 64-bit linear congruence).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A rate in kbit/s, as likely slow as fast.
    fn rate(&mut self, least: u64) -> u64 {
        let magnitude = self.one(&[1, 10, 100, 1000]);
        least + self.below(9000 * magnitude)
    }

    /// A configuration.
    pub(crate) fn configuration(&mut self) -> String {
        let script = self.one(&[
            "piece_of_cake",
            "layer_cake",
            "simple",
            "simplest",
            "simplest_tbf",
        ]);
        let least = if script == "simple" { 800 } else { 100 };
        let [mut down, mut up] = [self.rate(least), self.rate(least)];
        match self.below(10) {
            0 => down = 0,
            1 => up = 0,
            _ => {}
        }
        let mut options = vec![format!("{down};{up};{script}")];
        let qdisc = self.one(&["fq_codel", "cake", "codel", "pie", "sfq", "pfifo", "bfifo"]);
        let is_cake = match script {
            "piece_of_cake" | "layer_cake" => true,
            "simplest_tbf" => false,
            _ => qdisc == "cake",
        };
        if self.chance(80) {
            options.push(format!("qdisc {qdisc}"));
        }
        let is_cake = is_cake && (script.ends_with("cake") || options.len() > 1);
        let leaf = match qdisc {
            _ if is_cake => "cake",
            "cake" => "fq_codel",
            _ if options.len() == 1 => "fq_codel",
            qdisc => qdisc,
        };
        for option in ["squash_dscp", "squash_ingress", "autoflow"] {
            if self.chance(40) {
                options.push(format!("{option} {}", self.below(2)));
            }
        }
        for option in ["ingress_ecn", "egress_ecn"] {
            if self.chance(30) {
                options.push(format!("{option} {}", self.one(&["ECN", "NOECN"])));
            }
        }
        for side in ["i", "e"] {
            if self.chance(30) {
                options.push(format!("{side}limit {}", 10 + self.below(20_000)));
            }
            if self.chance(30) {
                let target = self.one(&["auto", "default", "7ms", "15ms", "20000us", "1s"]);
                options.push(format!("{side}target {target}"));
            }
            if self.chance(40) {
                let words = self.words(leaf);
                options.push(format!("{side}qdisc_opts {words}"));
            }
        }
        self.bursts(&mut options);
        if self.chance(60) {
            self.line(is_cake, &mut options);
        }
        options.join(";")
    }

    fn bursts(&mut self, options: &mut Vec<String>) {
        for option in [
            "shaper_burst_dur_us",
            "eshaper_burst_dur_us",
            "ishaper_burst_dur_us",
            "shaper_quantum_dur_us",
            "eshaper_quantum_dur_us",
            "ishaper_quantum_dur_us",
        ] {
            if self.chance(15) {
                options.push(format!("{option} {}", self.one(&[0, 1, 250, 1000, 4000, 20_000])));
            }
        }
    }

    /// The link layer.
    fn line(&mut self, is_cake: bool, options: &mut Vec<String>) {
        let layers: &[&str] = if is_cake {
            &["ethernet", "atm"]
        } else {
            &["ethernet", "atm", "adsl"]
        };
        options.push(format!("linklayer {}", self.one(layers)));
        let mechanisms: &[&str] = match is_cake {
            true => &["default", "cake", "tc_stab"],
            false => &["default", "tc_stab", "htb_private"],
        };
        let mechanism = self.one(mechanisms);
        options.push(format!("linklayer_adaptation_mechanism {mechanism}"));
        let least: i64 = if mechanism == "htb_private" { 14 } else { -20 };
        options.push(format!("overhead {}", least + self.below(80) as i64));
        if self.chance(50) {
            options.push(format!("tcMPU {}", self.below(200)));
        }
        if self.chance(30) {
            options.push(format!("tcMTU {}", self.one(&[1500, 1600, 2047, 4000])));
        }
        if self.chance(30) {
            options.push(format!("tcTSIZE {}", self.one(&[64, 128, 500, 512, 1024])));
        }
    }

    /// One to three words of `tc` for a leaf.
    fn words(&mut self, leaf: &str) -> String {
        let pool: &[&str] = match leaf {
            "cake" => &[
                "nat",
                "nonat",
                "dual-srchost",
                "dual-dsthost",
                "triple-isolate",
                "flows",
                "hosts",
                "flowblind",
                "besteffort",
                "precedence",
                "diffserv3",
                "diffserv4",
                "diffserv8",
                "wash",
                "nowash",
                "ack-filter",
                "ack-filter-aggressive",
                "no-ack-filter",
                "ingress",
                "egress",
                "split-gso",
                "no-split-gso",
                "rtt 50ms",
                "rtt 700ms",
                "memlimit 8mb",
                "fwmark 0xff",
                "overhead 30",
                "mpu 84",
                "atm",
                "ptm",
                "noatm",
                "docsis",
                "ethernet",
                "bridged-ptm",
                "ether-vlan",
                "conservative",
                "raw",
                "bandwidth 7mbit",
                "unlimited",
            ],
            "fq_codel" => &[
                "quantum 300",
                "noecn",
                "ecn",
                "limit 500",
                "flows 64",
                "target 10ms",
                "interval 80ms",
                "memory_limit 4mb",
                "ce_threshold 2ms",
                "drop_batch 32",
            ],
            "codel" => &[
                "noecn",
                "ecn",
                "limit 500",
                "target 10ms",
                "interval 80ms",
                "ce_threshold 2ms",
            ],
            "pie" => &[
                "noecn",
                "ecn",
                "limit 500",
                "target 30ms",
                "tupdate 20ms",
                "alpha 3",
                "beta 19",
                "bytemode",
            ],
            "sfq" => &[
                "perturb 10",
                "quantum 3000",
                "depth 64",
                "divisor 512",
                "headdrop",
                "limit 500",
            ],
            _ => &["limit 300", "limit 4000"],
        };
        let count = 1 + self.below(3);
        let words: Vec<&str> = (0..count).map(|_| self.one(pool)).collect();
        words.join(" ")
    }
}
