//! `sqm lab demo`: two bloated lines, measured before and after, with a configuration file in between.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use sqm_lab::{Clock, Home, Line, home};
use sqm_measure::plot;
use sqm_measure::report::{ComparedLine, html};
use sqm_measure::result::TestResult;

use super::lab::ClockName;
use crate::failure::Failure;

/// Measure two bloated lines, apply SQM from a configuration file, measure again, and show the difference.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the page, the pictures and all samples.
    #[arg(long, default_value = "demo-out")]
    out: PathBuf,
    /// How time passes: as on the wall, or virtually (figures independent of this machine's load).
    #[arg(long, value_enum, default_value_t = ClockName::Wall)]
    clock: ClockName,
}

/// One line of the demonstration.
struct Scene {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    line: &'static str,
    /// What the household would write to `/etc/config/sqm`.
    config: &'static str,
    /// Options of `sqm test`.
    load: &'static [&'static str],
}

const SCENES: [Scene; 2] = [
    Scene {
        name: "cable-24-4.4",
        title: "Cable, 24 Mbit/s down and 4.4 up",
        description: "A cable line of 28/4.8 Mbit/s with 1.2 s of buffer in modem and head end, 65 ms from the \
                      server, loaded by four downloads and four uploads at once. Shaped by CAKE with DOCSIS framing.",
        line: "cable24",
        config: "config queue 'wan'
	option enabled '1'
	option interface 'wan0'
	option download '24000'
	option upload '4400'
	option qdisc 'cake'
	option script 'piece_of_cake.qos'
	option linklayer 'ethernet'
	option overhead '18'
	option tcMPU '64'
",
        load: &["--down", "4", "--up", "4"],
    },
    Scene {
        name: "up-1mbit",
        title: "1 Mbit/s upload behind 250 packets of buffer",
        description: "A line of 15/1 Mbit/s whose modem queues 250 packets, 14 ms from the server, loaded by one \
                      upload. Shaped by HTB with fq_codel at 950 kbit/s.",
        line: "up1m",
        config: "config queue 'wan'
	option enabled '1'
	option interface 'wan0'
	option download '13000'
	option upload '950'
	option qdisc 'fq_codel'
	option script 'simplest.qos'
	option egress_ecn 'NOECN'
	option linklayer 'none'
",
        load: &["--down", "0", "--up", "1"],
    },
];

/// A line measured twice.
struct Measured {
    scene: &'static Scene,
    before: TestResult,
    after: TestResult,
    plan: String,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the folder {}", self.out.display()))?;
        let mut measured = Vec::new();
        for scene in &SCENES {
            measured.push(measure(scene, self.clock.into())?);
        }
        write_results(&self.out, &measured)?;
        print_table(&measured);
        println!(
            "\nPictures and all figures: {}",
            self.out.join("index.html").display()
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn measure(scene: &'static Scene, clock: Clock) -> Result<Measured, Failure> {
    eprintln!("{}: booting the home network", scene.name);
    let line = Line::named(scene.line).context("the demo's lines are known ones")?;
    let home = Home::boot(clock, &std::env::current_exe()?, &line)?;
    home.spawn("server", &["sqm", "serve"])?;
    eprintln!("{}: measuring the bloated line", scene.name);
    let before = test(&home, scene, "without SQM")?;
    home.write("/etc/config/sqm", scene.config.as_bytes())?;
    eprintln!("{}: sqm start, from /etc/config/sqm", scene.name);
    home.run_ok("router", &["sqm", "start"])?;
    home.run_ok("router", &["sqm", "verify"])?;
    let plan = home.run_ok("router", &["sqm", "plan", "--format", "tc"])?;
    eprintln!("{}: measuring again", scene.name);
    let after = test(&home, scene, "with SQM")?;
    home.run_ok("router", &["sqm", "stop"])?;
    Ok(Measured {
        scene,
        before,
        after,
        plan,
    })
}

fn test(home: &Home, scene: &Scene, what: &str) -> Result<TestResult, Failure> {
    let title = format!("{}, {what}", scene.title);
    let words = [
        "sqm",
        "test",
        home::SERVER_V4,
        "--quiet",
        "--json",
        "-",
        "--settle",
        "7",
        "--title",
        &title,
    ];
    let json = home.run_ok("h1", &[&words[..], scene.load].concat())?;
    Ok(TestResult::from_json(&json).map_err(anyhow::Error::msg)?)
}

fn write_results(out: &Path, measured: &[Measured]) -> Result<(), Failure> {
    let write = |name: String, text: String| {
        let file = out.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    for Measured {
        scene,
        before,
        after,
        plan,
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
    let lines: Vec<_> = measured
        .iter()
        .map(
            |Measured {
                 scene,
                 before,
                 after,
                 plan,
             }| ComparedLine {
                name: scene.name,
                title: scene.title,
                description: scene.description,
                before,
                after,
                plan_text: plan,
            },
        )
        .collect();
    write("index.html".into(), html(&lines))?;
    write(
        "summary.json".into(),
        serde_json::to_string_pretty(&Summary::of(measured))? + "\n",
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
    download_mbit: f64,
    upload_mbit: f64,
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

fn print_table(measured: &[Measured]) {
    println!(
        "\n{:<26} {:>9} {:>11} {:>9} {:>14} {:>12}",
        "", "idle ms", "median ms", "p95 ms", "down Mbit/s", "up Mbit/s"
    );
    for Measured {
        scene, before, after, ..
    } in measured
    {
        for (what, result) in [("before", before), ("after", after)] {
            let s = &result.summary;
            let ms = |figure: Option<f64>| figure.map_or_else(|| "-".into(), |ms| format!("{ms:.1}"));
            println!(
                "{:<26} {:>9} {:>11} {:>9} {:>14.2} {:>12.2}",
                format!("{} {what}", scene.name),
                ms(s.idle_ms),
                ms(s.latency_median_ms),
                ms(s.latency_p95_ms),
                s.download_mbit,
                s.upload_mbit
            );
        }
    }
}
