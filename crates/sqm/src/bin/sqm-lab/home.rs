//! The commands of the virtual home network.

use std::io::{BufRead, IsTerminal, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use sqm::{Suggested, json, suggested};
use sqm_lab::program::{Event, Program};
use sqm_lab::protocol::Act;
use sqm_lab::{Clock, Guest, Home, Homes, Line, agent, home, homes, keeper};

use sqm_process::failure::Failure;
use sqm_process::output;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Boot the network and leave it running.
    Up(Network),
    /// Run a command on one of its hosts and exit with its code.
    ///
    /// Its output appears as it comes. Ctrl-C interrupts the command; a second Ctrl-C leaves it running.
    #[command(after_help = "Examples:
  sqm-lab run h1 -- ping -c 3 10.66.0.2
  sqm-lab run router -- sqm status wan0

Exit codes: those of the command that it runs, 1 the lab failed, 2 wrong arguments")]
    Run {
        /// h1, h2, router, modem, core or server; with --homes h1, r1 and so on.
        host: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<String>,
    },
    /// Open a shell on one of its hosts; `exit` or Ctrl-D ends.
    ///
    /// It has a terminal of its own: Ctrl-C ends the program that runs there, and programs that ask questions or fill the screen work.
    /// If standard input is not a terminal, each of its lines is a command.
    #[command(after_help = "Examples:
  sqm-lab shell
  sqm-lab shell h1
  echo 'ip route' | sqm-lab shell router

Exit codes: that of the shell, 1 the lab failed, 2 wrong arguments")]
    Shell {
        /// h1, h2, router, modem, core or server; with --homes h1, r1 and so on.
        #[arg(default_value = "router")]
        host: String,
    },
    /// Forward TCP connections from this machine to a host of the lab, for a browser; Ctrl-C ends.
    Forward {
        /// h1, h2, router, modem, core or server; with --homes h1, r1 and so on.
        host: String,
        /// The TCP port on that host's loopback.
        port: u16,
        /// The port on this machine's loopback; 0 takes a free one.
        #[arg(long, default_value_t = 0)]
        from: u16,
    },
    /// List the lines that `up --line` knows.
    #[command(after_help = "Examples:
  sqm-lab lines
  sqm-lab lines --json | jq -r '.[].name'")]
    Lines {
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    /// End the lab.
    Down,
    /// The first process of the guest; of no use elsewhere.
    #[command(hide = true)]
    Agent,
    /// The background process of `up`.
    #[command(hide = true)]
    Keep(Network),
}

#[derive(clap::Args)]
pub(super) struct Network {
    /// The access line: see `sqm-lab lines`.
    #[arg(long, default_value = "cable24", hide_possible_values = true,
          value_parser = Suggested { names: line_names, parse: suggested::any })]
    line: String,
    /// The lab's clock: real time, or virtual time, whose figures do not depend on this machine's load.
    #[arg(long, value_enum, default_value_t = ClockName::Wall)]
    clock: ClockName,
    /// This many homes, each with such a line to one provider. Their hosts are r1 and h1, r2 and h2, …, core and server. Each router has
    /// its own /etc/config, /etc/sqm and state folder.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=i64::from(homes::MOST)))]
    homes: Option<u8>,
}

/// The names of all lines, for a shell to complete.
fn line_names() -> Vec<&'static str> {
    Line::all().iter().map(|line| line.name).collect()
}

/// How time passes in the lab.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ClockName {
    /// Debian's user-mode-linux.
    Wall,
    /// The kernel that `make lab-kernel` builds.
    Virtual,
}

impl From<ClockName> for Clock {
    fn from(name: ClockName) -> Self {
        match name {
            ClockName::Wall => Self::Wall,
            ClockName::Virtual => Self::Virtual,
        }
    }
}

impl Command {
    pub(super) const fn is_output_its_product(&self) -> bool {
        matches!(self, Self::Lines { .. })
    }

    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Up(network) => up(&network),
            Self::Run { host, argv } => run(&host, argv),
            Self::Shell { host } => shell(&host),
            Self::Forward { host, port, from } => forward(&host, port, from),
            Self::Lines { json } => lines(json),
            Self::Down => {
                keeper::ask(&Act::PowerOff)?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Agent => {
                agent::main().context("the lab's agent")?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Keep(network) => {
                keeper::keep(network.boot()?)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Network {
    fn boot(&self) -> Result<Guest, Failure> {
        let (program, line) = (std::env::current_exe()?, line(&self.line)?);
        Ok(match self.homes {
            None => Home::boot(self.clock.into(), &program, &line)?.into(),
            Some(count) => Homes::boot(self.clock.into(), &program, &line, count)?.into(),
        })
    }
}

fn up(network: &Network) -> Result<ExitCode, Failure> {
    line(&network.line)?;
    let clock = network.clock.to_possible_value().expect("no value is hidden");
    let mut words = ["keep", "--line", &network.line, "--clock", clock.get_name()]
        .map(String::from)
        .to_vec();
    if let Some(count) = network.homes {
        words.extend(["--homes".into(), count.to_string()]);
    }
    keeper::start(&std::env::current_exe()?, &words)?;
    match network.homes {
        None => outln!(
            "The lab is up: line {}, hosts {}.\nShape {} on the router; the server is {} and {}.",
            network.line,
            home::HOSTS.join(" "),
            home::WAN,
            home::SERVER_V4,
            home::SERVER_V6
        ),
        Some(count) => outln!(
            "The lab is up: {count} homes with the line {}, hosts {} core server.\nShape {} on each router; the server is {}.",
            network.line,
            homes::hosts(count).collect::<Vec<_>>().join(" "),
            home::WAN,
            home::SERVER_V4
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn run(host: &str, argv: Vec<String>) -> Result<ExitCode, Failure> {
    let program = Program::start(&known(host)?, argv)?;
    interrupt_on_ctrl_c(program)?;
    Ok(print_output(program)?.unwrap_or(ExitCode::SUCCESS))
}

/// Ctrl-C interrupts the program in the lab. The second one ends this process.
fn interrupt_on_ctrl_c(program: Program) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT]).context("cannot listen for signals")?;
    thread::spawn(move || {
        let mut signals = signals.forever();
        if signals.next().is_some() && program.interrupt().is_ok() {
            signals.next();
        }
        let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
    });
    Ok(())
}

/// Prints what a program writes until it ends, and returns its exit code. None if the reader of standard output goes away first: the
/// program then receives SIGPIPE when it writes more.
fn print_output(program: Program) -> Result<Option<ExitCode>, Failure> {
    loop {
        let Some(event) = next_event(program)? else {
            program.close()?;
            return Ok(None);
        };
        match event {
            Event::Ended(code) => return Ok(Some(ExitCode::from(u8::try_from(code).unwrap_or(1)))),
            Event::Output { stdout, stderr } => {
                // Printed unchanged: the output is the command's own, with its colours.
                let _ = std::io::stderr().write_all(&stderr);
                let mut screen = output::stdout();
                if let Err(error) = screen.write_all(&stdout).and_then(|()| screen.flush()) {
                    program.close()?;
                    return Err(error.into());
                }
            }
        }
    }
}

/// Waits for the program's next event. None if the reader of standard output goes away first.
fn next_event(program: Program) -> Result<Option<Event>, Failure> {
    /// Time between two looks at the reader. A choice: a person does not notice it.
    const LOOK: Duration = Duration::from_millis(100);
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(program.next()));
    loop {
        match answered.recv_timeout(LOOK) {
            Ok(event) => return Ok(Some(event?)),
            Err(RecvTimeoutError::Timeout) if !output::is_lost() => {}
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(anyhow!("cannot send the request to the lab").into());
            }
        }
    }
}

fn shell(host: &str) -> Result<ExitCode, Failure> {
    let host = known(host)?;
    if std::io::stdin().is_terminal() {
        let code = sqm_lab::terminal::shell(&host, &mut output::stdout(), keeper::ask)?;
        return Ok(ExitCode::from(code));
    }
    let mut code = ExitCode::SUCCESS;
    for text in std::io::stdin().lock().lines() {
        let text = text?;
        if text.trim() == "exit" {
            break;
        }
        let argv = vec!["sh".into(), "-c".into(), text];
        let Some(ended) = print_output(Program::start(&host, argv)?)? else {
            break;
        };
        code = ended;
    }
    Ok(code)
}

fn forward(host: &str, port: u16, from: u16) -> Result<ExitCode, Failure> {
    let host = known(host)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, from))
        .with_context(|| format!("cannot listen on port {from} of 127.0.0.1"))?;
    outln!(
        "http://{} leads to port {port} of {host}.",
        listener.local_addr()?
    );
    sqm_lab::forward::forward(&listener, &host, port, keeper::ask)?;
    Ok(ExitCode::SUCCESS)
}

fn known(host: &str) -> Result<String, Failure> {
    if home::HOSTS.contains(&host) || homes::is_host(host) {
        return Ok(host.into());
    }
    let hosts = home::HOSTS.join(", ");
    Err(Failure::Usage(anyhow!(
        "the lab has no host '{host}'; its hosts are {hosts}, or with --homes h1, r1, h2, r2 and so on, core, server"
    )))
}

/// Looks up a line by name; the error lists the known names.
pub(super) fn line(name: &str) -> Result<Line, Failure> {
    Line::named(name).ok_or_else(|| {
        let names: Vec<_> = Line::all().iter().map(|line| line.name).collect();
        Failure::Usage(anyhow!(
            "the lab has no line '{name}'; its lines are {}",
            names.join(", ")
        ))
    })
}

fn lines(is_json: bool) -> Result<ExitCode, Failure> {
    if is_json {
        let rows: Vec<Row> = Line::all().iter().map(Row::of).collect();
        json::print(&json::list(&rows))?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in Line::all() {
        outln!(
            "{:<9} {:>6} kbit/s down, {:>6} up, {:>2} ms, {} bytes of overhead{}",
            line.name,
            line.down.kbits_per_sec,
            line.up.kbits_per_sec,
            line.base_rtt_ms,
            line.overhead,
            if line.atm { " in ATM cells" } else { "" }
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A line, for programs.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    download_bits_per_sec: u64,
    upload_bits_per_sec: u64,
    round_trip_ms: u32,
    overhead_bytes: u16,
    /// True if the line carries ATM cells.
    is_atm: bool,
}

impl Row {
    fn of(line: &Line) -> Self {
        Self {
            name: line.name,
            download_bits_per_sec: line.down.kbits_per_sec * 1000,
            upload_bits_per_sec: line.up.kbits_per_sec * 1000,
            round_trip_ms: line.base_rtt_ms,
            overhead_bytes: line.overhead,
            is_atm: line.atm,
        }
    }
}
