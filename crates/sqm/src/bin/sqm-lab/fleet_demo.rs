//! `sqm-lab fleet-demo`: many homes under one hub, a roll-out that halts by itself, and one that reaches all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use sqm_lab::{Buffer, Direction, Homes, Line, home, homes};
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_process::failure::Failure;

use super::home::ClockName;
use super::progress::step;

/// Roll two configurations out to many virtual routers: one above the rates of their lines, and a good one.
///
/// Each router has a line, a user who uploads all the time, and `sqm daemon`. A nats-server is the hub. The last router is offline
/// while both configurations are rolled out.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm-lab fleet-demo
  sqm-lab fleet-demo --routers 4

Exit codes: 0 the first roll-out halted by itself and the second one reached all, 1 failed, 2 wrong arguments")]
pub(super) struct Args {
    /// How many homes there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 20,
          value_parser = clap::value_parser!(u8).range(4..=i64::from(homes::MOST)))]
    routers: u8,
    /// Folder for the reports and the history of each router.
    #[arg(long, default_value = "demo-out/fleet")]
    out: PathBuf,
    /// The lab's clock: virtual time, in which a slow machine changes nothing, or real time, for which twenty routers want a processor
    /// of their own.
    #[arg(long, value_enum, default_value_t = ClockName::Virtual)]
    clock: ClockName,
}

/// Port of the hub's nats-server.
const HUB_PORT: u16 = 4222;
/// How the rates of the routers compare with those of their lines, per cent: at first, and by the two roll-outs.
const FIRST: u64 = 85;
const TOO_FAST: u64 = 120;
const GOOD: u64 = 95;
/// Seconds of load before the first roll-out. A verdict needs 20.
const BEFORE_S: u32 = 30;
/// Both roll-outs give the document to a tenth first, and wait for short times.
const STEPS: &str = "--all --steps 10%,100% --hold 20s --silent 90s --observe 20s --longest 1m";

/// A slow line, so that many cost few packets.
fn line() -> Line {
    let direction = |kbits_per_sec| Direction {
        kbits_per_sec,
        buffer: Buffer::Millis(1000),
        boost: None,
    };
    Line {
        name: "slow",
        down: direction(2000),
        up: direction(1000),
        base_rtt_ms: 20,
        overhead: 18,
        atm: false,
    }
}

/// A configuration whose rates are this share of the line's.
fn configuration(percent: u64) -> String {
    let Line { down, up, .. } = line();
    let of = |direction: Direction| direction.kbits_per_sec * percent / 100;
    format!(
        "config queue\n\toption enabled '1'\n\toption interface '{}'\n\toption download '{}'\n\toption upload '{}'\n\
         \toption script 'piece_of_cake.qos'\n\toption linklayer 'ethernet'\n\toption overhead '18'\n",
        home::WAN,
        of(down),
        of(up)
    )
}

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let count = self.routers;
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the folder {}", self.out.display()))?;
        let fleet = step(&format!("booting {count} homes"), || {
            let program = std::env::current_exe()?;
            Ok(Fleet(Homes::boot(self.clock.into(), &program, &line(), count)?))
        })?;
        step("starting the hub and the routers", || fleet.start())?;
        let last = fleet.0.routers().last().context("there are four at least")?;
        outln!(
            "{count} homes have lines of 2 Mbit/s down and 1 Mbit/s up, with one second of buffer in front of them."
        );
        outln!(
            "Each router is shaped to {FIRST} % of its line, takes its documents from the hub, and has a user who uploads."
        );
        outln!("The line of {last} is cut: it is offline.\n");
        fleet.cut(&last)?;
        step(&format!("uploading for {BEFORE_S} s"), || fleet.load(count - 1))?;

        outln!("Roll-out 1 would shape all routers to {TOO_FAST} % of their lines, a tenth of them first:");
        step("rolling out", || fleet.roll_out("too-fast", TOO_FAST, "halted"))?;
        fleet.print_status()?;
        let had = fleet.export("too-fast", &self.out)?;
        outln!(
            "It halted by itself: {} of {count} routers never had that document.",
            usize::from(count) - had
        );

        outln!("\nRoll-out 2 is to shape them to {GOOD} %:");
        step("rolling out", || fleet.roll_out("faster", GOOD, "done"))?;
        fleet.unload(count - 1)?;
        outln!("\nThe line of {last} is back.");
        step(&format!("waiting for {last}"), || fleet.wait_for(&last))?;
        fleet.print_status()?;
        fleet.export("faster", &self.out)?;
        fleet.write_histories(&self.out)?;
        outln!("Reports and histories: {}", self.out.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// The homes and their hub.
struct Fleet(Homes);

impl Fleet {
    /// Starts the hub's server, and the daemon of each router.
    fn start(&self) -> Result<(), Failure> {
        let Self(homes) = self;
        let server = home::SERVER_V4;
        let url = format!("{server}:{HUB_PORT}");
        self.hub(&format!(
            "sqm fleet hub init hub --url nats://{url} --listen {url} --store /tmp/store >hub.log 2>&1"
        ))?;
        homes.spawn_server(
            "server",
            &["nats-server", "--config", "/tmp/hub/server.conf"],
            HUB_PORT,
        )?;
        let limits = ["--max-clients", "100", "--max-duration", "1h"];
        homes.spawn_server("server", &[&["sqm", "serve"][..], &limits].concat(), DEFAULT_PORT)?;
        homes.write("/tmp/first.conf", configuration(FIRST).as_bytes())?;
        for router in homes.routers() {
            self.hub(&format!(
                "sqm fleet enroll {router} >/dev/null
                 cp hub/credentials/{router}.creds /etc/netns/{router}/sqm/fleet.creds
                 cat first.conf hub/credentials/{router}.conf >/etc/netns/{router}/config/sqm"
            ))?;
        }
        for router in homes.routers() {
            homes.spawn(&router, &["sqm", "daemon"])?;
        }
        // The first report says that a router is connected and has no document.
        self.hub(&format!(
            "until [ \"$(sqm fleet status | grep -c 'no document')\" = {} ]; do sleep 1; done",
            homes.routers().count()
        ))?;
        Ok(())
    }

    /// Runs a script on the hub.
    fn hub(&self, script: &str) -> Result<String, Failure> {
        Ok(self
            .0
            .script_on("server", &format!("cd /tmp; export SQM_FLEET=/tmp/hub; {script}"))?)
    }

    fn cut(&self, router: &str) -> Result<(), Failure> {
        self.set_line(router, "down")
    }

    fn set_line(&self, router: &str, state: &str) -> Result<(), Failure> {
        let device = router.replace('r', "line");
        self.0.script(&format!("ip -n core link set {device} {state}"))?;
        // The kernel forgets the routes of a device that is down.
        if state == "up" {
            let number = router.trim_start_matches('r');
            self.0.script(&format!(
                "ip -n core route replace 192.168.{number}.0/24 via 10.64.{number}.1"
            ))?;
        }
        Ok(())
    }

    /// The users of the first homes upload from now on, one test after the other: on a busy machine hours of virtual time may pass.
    fn load(&self, homes: u8) -> Result<(), Failure> {
        // In virtual time a loop that never sleeps would never end.
        self.0.script(&format!(
            "touch /tmp/uploading
             for home in $(seq {homes}); do
                 while [ -e /tmp/uploading ]; do
                     ip netns exec h$home sqm test {} --together --down 0 --up 1 --idle 1 --after 0 --duration 50m --probe-interval 1s \
                         --quiet --json /tmp/load$home.json || true
                     sleep 1
                 done >/tmp/load$home.log 2>&1 &
             done
             sleep {BEFORE_S}",
            home::SERVER_V4
        ))?;
        Ok(())
    }

    /// The users stop.
    fn unload(&self, homes: u8) -> Result<(), Failure> {
        // One may just have ended by itself.
        self.0.script(&format!(
            "rm /tmp/uploading
             for home in $(seq {homes}); do kill $(ip netns pids h$home) 2>/dev/null || true; done"
        ))?;
        Ok(())
    }

    /// Runs a roll-out until it is done or halts, and prints its last line, which must begin with `end`.
    fn roll_out(&self, name: &str, percent: u64, end: &str) -> Result<(), Failure> {
        self.0
            .write(&format!("/tmp/{name}.conf"), configuration(percent).as_bytes())?;
        self.hub(&format!(
            "(sqm fleet roll-out start {name} {name}.conf {STEPS} >{name}.log 2>&1 || true; touch {name}.end) >/dev/null 2>&1 &"
        ))?;
        // Short requests: a busy machine may need long for a minute of virtual time.
        while self
            .hub(&format!("sleep 2; ls {name}.end 2>/dev/null || true"))?
            .is_empty()
        {}
        let last = self.hub(&format!("tail -n 1 {name}.log"))?;
        outln!("  {}", last.trim_end());
        if last.starts_with(end) {
            return Ok(());
        }
        Err(anyhow!("the roll-out {name} has not ended as {end}").into())
    }

    fn print_status(&self) -> Result<(), Failure> {
        outln!("\nsqm fleet status:\n{}", self.hub("sqm fleet status")?);
        Ok(())
    }

    /// Connects a line again, and waits until its router has made up its mind about the newest document.
    fn wait_for(&self, router: &str) -> Result<(), Failure> {
        self.set_line(router, "up")?;
        // Ten minutes. It stays offline no longer than both ends take to notice that it is back.
        for _ in 0..60 {
            let row = self.hub(&format!("sleep 10; sqm fleet status | grep '^{router} '"))?;
            let words: Vec<&str> = row.split_whitespace().collect();
            if matches!(words[..], [_, wanted, in_force, ..] if wanted == in_force) {
                return Ok(());
            }
        }
        Err(anyhow!("{router} has not taken its document ten minutes after its line is back").into())
    }

    /// Copies what 'sqm fleet export' writes to a folder of the host. Returns the number of routers that have a document.
    fn export(&self, name: &str, out: &Path) -> Result<usize, Failure> {
        // One request for all files: virtual time goes on between two of them. A form feed separates the files.
        let files = self.hub(&format!(
            "sqm fleet export export/{name} >/dev/null; cd export/{name}; for file in *; do printf '%s\\n' $file; cat $file; printf '\\f'; done"
        ))?;
        write_all(&out.join(name), &files)?;
        Ok(files.lines().filter(|line| line.ends_with(".conf")).count())
    }

    fn write_histories(&self, out: &Path) -> Result<(), Failure> {
        let routers = self.0.routers().collect::<Vec<_>>().join(" ");
        let files = self.hub(&format!(
            "for router in {routers}; do echo $router.history.json; sqm fleet history $router --json; printf '\\f'; done"
        ))?;
        write_all(out, &files)
    }
}

/// Writes files that a script has printed: the name of each on a line of its own, its text, and a form feed.
fn write_all(folder: &Path, files: &str) -> Result<(), Failure> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in files.split_terminator('\u{c}') {
        let (name, text) = file.split_once('\n').context("a file has a name")?;
        sqm_process::output_file::write(&folder.join(name), text)?;
    }
    Ok(())
}
