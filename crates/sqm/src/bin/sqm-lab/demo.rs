//! `sqm-lab demo`: two bloated lines, measured before and after, with a configuration file in between.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use sqm::json;
use sqm_lab::{Clock, Home, Line, home};
use sqm_measure::plot;
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::report::{ComparedLine, html};
use sqm_measure::result::{Finding, Severity, TestResult};

use super::home::ClockName;
use super::progress;
use sqm_process::failure::Failure;

/// Measure two bloated lines, apply SQM from a configuration file, measure again, and show the difference.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Folder for the page, the pictures and all samples.
    #[arg(long, default_value = "demo-out")]
    out: PathBuf,
    /// The lab's clock: real time, or virtual time, whose figures do not depend on this machine's load.
    #[arg(long, value_enum, default_value_t = ClockName::Wall)]
    clock: ClockName,
}

/// One line of the demonstration, with its load and its configuration.
struct Scene {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    line: &'static str,
    /// Rates to shape to, kbit/s: download and upload.
    shaped: (u64, u64),
    /// Other options that such a household would have in `/etc/config/sqm`.
    options: &'static str,
    /// Number of simultaneous downloads and uploads.
    flows: (u32, u32),
}

impl Scene {
    fn config(&self) -> String {
        let (download, upload) = self.shaped;
        format!(
            "config queue 'wan'\n\toption enabled '1'\n\toption interface '{}'\n\toption download '{download}'\n\
             \toption upload '{upload}'\n{}",
            home::WAN,
            self.options
        )
    }
}

const SCENES: [Scene; 2] = [
    Scene {
        name: "cable-24-4.4",
        title: "Cable, 24 Mbit/s down and 4.4 up",
        description: "A cable line of 28/4.8 Mbit/s with 1.2 s of buffer in modem and head end, 65 ms from the \
                      server, loaded by four downloads and four uploads at once. Shaped by CAKE with DOCSIS framing.",
        line: "cable24",
        shaped: (24_000, 4400),
        options: "	option qdisc 'cake'
	option script 'piece_of_cake.qos'
	option linklayer 'ethernet'
	option overhead '18'
	option tcMPU '64'
",
        flows: (4, 4),
    },
    Scene {
        name: "up-1mbit",
        title: "1 Mbit/s upload behind 250 packets of buffer",
        description: "A line of 15/1 Mbit/s whose modem queues 250 packets, 14 ms from the server, loaded by one \
                      upload. Shaped by HTB with fq_codel at 950 kbit/s.",
        line: "up1m",
        shaped: (13_000, 950),
        options: "	option qdisc 'fq_codel'
	option script 'simplest.qos'
	option egress_ecn 'NOECN'
	option linklayer 'none'
",
        flows: (0, 1),
    },
];

/// A line measured twice.
struct Measured {
    scene: &'static Scene,
    line: Line,
    before: TestResult,
    after: TestResult,
    plan: String,
}

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the folder {}", self.out.display()))?;
        let mut measured = Vec::new();
        for scene in &SCENES {
            measured.push(measure(scene, self.clock.into())?);
        }
        write_results(&self.out, &measured)?;
        print_table(&measured);
        outln!(
            "\nPictures and all figures: {}",
            self.out.join("index.html").display()
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn measure(scene: &'static Scene, clock: Clock) -> Result<Measured, Failure> {
    let line = Line::named(scene.line).context("the demo's lines are known ones")?;
    let home = step(scene, "booting the home network", || {
        Ok(Home::boot(clock, &std::env::current_exe()?, &line)?)
    })?;
    for host in ["server", "router"] {
        home.spawn_server(host, &["sqm", "serve"], DEFAULT_PORT)?;
    }
    let before = step(scene, "measuring the bloated line, 40 s", || {
        test(&home, scene, "without SQM")
    })?;
    let plan = step(scene, "sqm start, from /etc/config/sqm", || {
        home.write("/etc/config/sqm", scene.config().as_bytes())?;
        home.run_ok("router", &["sqm", "start"])?;
        home.run_ok("router", &["sqm", "verify"])?;
        Ok(home.run_ok("router", &["sqm", "plan", "--format", "tc"])?)
    })?;
    let after = step(scene, "measuring again, 30 s", || test(&home, scene, "with SQM"))?;
    home.run_ok("router", &["sqm", "stop"])?;
    Ok(Measured {
        scene,
        line,
        before,
        after,
        plan,
    })
}

fn step<T>(scene: &Scene, what: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    progress::step(&format!("{}: {what}", scene.name), work)
}

fn test(home: &Home, scene: &Scene, what: &str) -> Result<TestResult, Failure> {
    let title = format!("{}, {what}", scene.title);
    let (down, up) = (scene.flows.0.to_string(), scene.flows.1.to_string());
    let words = [
        &["sqm", "test", home::SERVER_V4, "--quiet", "--json", "-"][..],
        &[
            "--together",
            "--duration",
            "25",
            "--idle",
            "3",
            "--after",
            "0",
            "--settle",
            "7",
        ][..],
        &["--title", &title, "--down", &down, "--up", &up],
    ]
    .concat();
    let (json, noise) = std::thread::scope(|scope| {
        let noise = scope.spawn(|| noise(home));
        let json = home.run_ok("h1", &words);
        (json, noise.join().expect("it has nothing to panic about"))
    });
    let mut result = TestResult::from_json(&json?).map_err(anyhow::Error::msg)?;
    result.findings.extend(too_noisy(noise?));
    Ok(result)
}

/// Round-trip noise of the machine that runs the lab, ms: the 99th percentile of probes between two hosts of the
/// home, where no queue builds up. Takes as long as a test, so that it can run beside one.
fn noise(home: &Home) -> Result<f64, Failure> {
    let words = [
        &["sqm", "test", home::ROUTER_V4, "--quiet", "--json", "-"][..],
        &[
            "--down",
            "0",
            "--up",
            "0",
            "--idle",
            "27",
            "--after",
            "0",
            "--duration",
            "2",
            "--settle",
            "0",
        ],
    ]
    .concat();
    let json = home.run_ok("h2", &words)?;
    let result = TestResult::from_json(&json).map_err(anyhow::Error::msg)?;
    let idle = result
        .summary
        .probes
        .first()
        .and_then(|probes| probes.idle.p99_ms);
    Ok(idle.context("no probe was answered inside the home network")?)
}

/// With more noise than this, latencies under load say more about the machine than about the line. The value is a
/// choice.
const TOLERABLE_NOISE_MS: f64 = 2.0;

fn too_noisy(noise_ms: f64) -> Option<Finding> {
    (noise_ms > TOLERABLE_NOISE_MS).then(|| Finding {
        severity: Severity::Warning,
        code: "cpu_saturated".to_owned(),
        text: format!(
            "this machine was busy: probes inside the home network, which do not cross the line, took up to \
             {noise_ms:.1} ms (99th percentile). Latencies may be that much too high, and goodput too low; repeat \
             when the machine is idle, or with --clock virtual"
        ),
    })
}

fn write_results(out: &Path, measured: &[Measured]) -> Result<(), Failure> {
    let write = |name: String, text: String| {
        let file = out.join(name);
        sqm_process::output_file::write(&file, text)
    };
    for Measured {
        scene,
        before,
        after,
        plan,
        ..
    } in measured
    {
        let name = scene.name;
        write(format!("{name}-before.json"), before.to_json())?;
        write(format!("{name}-after.json"), after.to_json())?;
        write(format!("{name}-before.svg"), plot::rrul(before))?;
        write(format!("{name}-after.svg"), plot::rrul(after))?;
        write(
            format!("{name}-latency.svg"),
            plot::latency_comparison(before, after, scene.title),
        )?;
        write(format!("{name}-plan.txt"), plan.clone())?;
    }
    let descriptions: Vec<_> = measured.iter().map(Measured::description).collect();
    let lines: Vec<_> = measured
        .iter()
        .zip(&descriptions)
        .map(|(measured, description)| measured.compared(description))
        .collect();
    write("index.html".into(), html(&lines))?;
    write(
        "summary.json".into(),
        json::pretty(&Summary::of(measured))? + "\n",
    )?;
    Ok(())
}

/// The figures of the demonstration for programs.
#[derive(Serialize)]
struct Summary {
    lines: Vec<LineSummary>,
}

#[derive(Serialize)]
struct LineSummary {
    name: &'static str,
    idle_ms: Option<f64>,
    before: Figures,
    after: Figures,
}

#[derive(Serialize)]
struct Figures {
    latency_median_ms: Option<f64>,
    latency_p95_ms: Option<f64>,
    download_mbit: Option<f64>,
    upload_mbit: Option<f64>,
}

impl Summary {
    fn of(measured: &[Measured]) -> Self {
        let lines = measured
            .iter()
            .map(
                |Measured {
                     scene, before, after, ..
                 }| LineSummary {
                    name: scene.name,
                    idle_ms: before.summary.idle_ms,
                    before: Figures::of(before),
                    after: Figures::of(after),
                },
            )
            .collect();
        Self { lines }
    }
}

impl Figures {
    fn of(result: &TestResult) -> Self {
        let summary = &result.summary;
        Self {
            latency_median_ms: summary.latency_median_ms,
            latency_p95_ms: summary.latency_p95_ms,
            download_mbit: summary.download_mbit,
            upload_mbit: summary.upload_mbit,
        }
    }
}

impl Measured {
    /// Describes the line, followed by the notes that a reader of its figures must know.
    fn description(&self) -> String {
        let findings = self
            .findings()
            .map(|(what, text)| format!(" Note on \"{what}\": {text}."));
        std::iter::once(self.scene.description.to_owned())
            .chain(findings)
            .collect()
    }

    fn compared<'a>(&'a self, description: &'a str) -> ComparedLine<'a> {
        ComparedLine {
            name: self.scene.name,
            title: self.scene.title,
            description,
            before: &self.before,
            after: &self.after,
            plan_text: &self.plan,
        }
    }

    fn findings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("before", &self.before), ("after", &self.after)]
            .into_iter()
            .flat_map(|(what, result)| result.findings.iter().map(move |f| (what, f.text.as_str())))
    }

    /// The highest goodput, Mbit/s down and up: of the line itself and of the rates it is shaped to.
    fn ceilings(&self) -> [(f64, f64); 2] {
        let Line { down, up, .. } = &self.line;
        let of = |(down, up)| (self.line.goodput_mbit(down), self.line.goodput_mbit(up));
        [of((down.kbits_per_sec, up.kbits_per_sec)), of(self.scene.shaped)]
    }
}

fn print_table(measured: &[Measured]) {
    outln!(
        "\n{:<22} {:>8} {:>10} {:>8} {:>19} {:>19}",
        "",
        "idle ms",
        "median ms",
        "p95 ms",
        "down Mbit/s",
        "up Mbit/s"
    );
    let ms = |figure: Option<f64>| figure.map_or_else(|| "-".into(), |ms| format!("{ms:.1}"));
    for line in measured {
        let tests = [("before", &line.before), ("after", &line.after)];
        for ((what, result), ceiling) in tests.into_iter().zip(line.ceilings()) {
            let s = &result.summary;
            outln!(
                "{:<22} {:>8} {:>10} {:>8} {:>19} {:>19}",
                format!("{} {what}", line.scene.name),
                ms(s.idle_ms),
                ms(s.latency_median_ms),
                ms(s.latency_p95_ms),
                goodput(s.download_mbit, ceiling.0),
                goodput(s.upload_mbit, ceiling.1),
            );
        }
    }
    outln!(
        "\nPercentages: of the TCP payload that the rate can carry after headers and framing; before: the line's rate,\n\
         after: the shaped rate. The acknowledgements of the other direction need a part of it."
    );
    for line in measured {
        for (what, text) in line.findings() {
            outln!("warning: {} {what}: {text}", line.scene.name);
        }
    }
}

fn goodput(mbit: Option<f64>, ceiling: f64) -> String {
    mbit.map_or_else(
        || "-".into(),
        |mbit| format!("{mbit:.2} ({:.0} %)", 100.0 * mbit / ceiling),
    )
}
