//! The first process inside the guest, and the only permanent one. It mounts what a system needs over the host's read-only files,
//! and then carries out the requests that the host sends over the console.

mod program;
mod streams;
mod terminal;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::system::{RebootCommand, reboot};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::launch;
use crate::protocol::{Act, LAST, MARK, MORE, RECEIVED, Reply, Request};

/// Runs as process 1 of the guest and does not return while the guest lives.
pub fn main() -> io::Result<()> {
    prepare_system()?;
    let console = File::options().read(true).write(true).open("/dev/console")?;
    make_raw(&console)?;
    let out = Arc::new(Mutex::new(console.try_clone()?));
    answer(&out, &Reply::default())?;
    let mut request = Vec::new();
    // The loop ends when the console closes, at the latest when the process on the host ends. A read error has the same cause.
    for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
        let [MARK, kind @ (MORE | LAST), piece @ ..] = &line[..] else {
            continue;
        };
        request.extend_from_slice(piece);
        answer(
            &out,
            &Reply {
                id: RECEIVED,
                ..Reply::default()
            },
        )?;
        if *kind == MORE {
            continue;
        }
        let complete: Request = serde_json::from_slice(&std::mem::take(&mut request))?;
        let out = Arc::clone(&out);
        // A thread for each request: a long measurement must not delay other commands.
        std::thread::spawn(move || {
            let reply = carry_out(complete);
            // An error means that the console is closed, and the guest is about to end.
            let _ = answer(&out, &reply);
        });
    }
    power_off()
}

/// Mounts what a system needs over the host's read-only root. Nothing that is written here reaches the host.
fn prepare_system() -> io::Result<()> {
    let none = MountFlags::empty();
    mount("proc", "/proc", "proc", none, None)?;
    mount("sysfs", "/sys", "sysfs", none, None)?;
    mount("tmpfs", "/run", "tmpfs", none, None)?;
    // The results of tests name the computer that they ran on. All virtual hosts share this name.
    fs::write("/proc/sys/kernel/hostname", "sqm-lab")?;
    // Before /tmp is covered, because both programs usually are there. Not a copy: a debug build has a hundred megabytes.
    fs::create_dir("/run/bin")?;
    File::create("/run/bin/sqm")?;
    mount_bind(std::env::current_exe()?.with_file_name("sqm"), "/run/bin/sqm")?;
    for folder in ["/tmp", "/mnt"] {
        mount("tmpfs", folder, "tmpfs", none, None)?;
    }
    // The kernel may have mounted it already.
    let _ = mount("devtmpfs", "/dev", "devtmpfs", none, None);
    // Terminals, for `sqm-lab shell` and `script`.
    fs::create_dir_all("/dev/pts")?;
    mount("devpts", "/dev/pts", "devpts", none, None)?;
    // Process substitution of bash needs it.
    let _ = symlink("/proc/self/fd", "/dev/fd");
    fs::create_dir_all("/run/etc/upper")?;
    fs::create_dir_all("/run/etc/work")?;
    let layers = c"lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work";
    load_modules()?;
    // The kernel would start a program for each question about a device that is missing, to load a module of that name. There is none
    // to load, and that takes longer than the question.
    fs::write("/proc/sys/kernel/modprobe", "\n")?;
    mount("overlay", "/etc", "overlay", none, Some(layers))?;
    Ok(())
}

/// Loads the modules of Debian's package. The kernel would not find them, because the host's own `/lib/modules` are those of
/// another kernel. The virtual-time kernel needs no modules.
fn load_modules() -> io::Result<()> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    if !Path::new("/usr/lib/uml/modules").join(release.trim()).is_dir() {
        return Ok(());
    }
    fs::create_dir_all("/run/modules/lib")?;
    symlink("/usr/lib/uml/modules", "/run/modules/lib/modules")?;
    let status = Command::new("/sbin/modprobe")
        .args(["-d", "/run/modules", "-a"])
        .args(MODULES)
        .status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(
        "the kernel's modules could not be loaded (Debian packages user-mode-linux and kmod)",
    ))
}

/// The modules that the home network and its queues need.
const MODULES: [&str; 26] = [
    "overlay",
    "veth",
    "bridge",
    "ifb",
    "dummy",
    "ipv6",
    "sch_cake",
    "sch_fq_codel",
    "sch_codel",
    "sch_pie",
    "sch_sfq",
    "sch_htb",
    "sch_hfsc",
    "sch_tbf",
    "sch_netem",
    "sch_ingress",
    "cls_u32",
    "cls_fw",
    "cls_matchall",
    "act_mirred",
    "act_skbedit",
    "iptable_nat",
    "iptable_mangle",
    "xt_MASQUERADE",
    "nf_conntrack",
    "tcp_bbr",
];

/// Switches the console to raw mode. Otherwise it would echo requests and change their line ends.
fn make_raw(console: &File) -> io::Result<()> {
    let mut settings = tcgetattr(console)?;
    settings.make_raw();
    tcsetattr(console, OptionalActions::Now, &settings)?;
    Ok(())
}

fn answer(out: &Mutex<File>, reply: &Reply) -> io::Result<()> {
    let mut line = vec![MARK];
    serde_json::to_writer(&mut line, reply)?;
    line.push(b'\n');
    out.lock()
        .expect("no holder of this lock panics")
        .write_all(&line)
}

fn carry_out(request: Request) -> Reply {
    let id = request.id;
    let result = match request.act {
        Act::Run { host, argv, stdin } => run(host.as_deref(), &argv, &stdin),
        Act::Start { host, argv, stream } => streams::start(&host, &argv, stream),
        Act::Interrupt { stream } => streams::interrupt(stream),
        Act::Close { stream } => streams::close(stream),
        Act::Spawn { host, argv } => spawn(host.as_deref(), &argv),
        Act::Write { path, bytes } => write(Path::new(&path), &bytes),
        Act::Connect { host, port, stream } => streams::connect(&host, port, stream),
        Act::Terminal {
            host,
            stream,
            size,
            kind,
        } => streams::open_terminal(&host, stream, size, &kind),
        Act::Resize { stream, size } => streams::resize(stream, size),
        Act::Send { stream, bytes } => streams::send(stream, &bytes),
        Act::Receive { stream } => streams::receive(stream),
        Act::PowerOff => power_off().map(|()| (0, String::new(), String::new())),
    };
    let (code, stdout, stderr) = result.unwrap_or_else(|error| (127, String::new(), error.to_string()));
    Reply {
        id,
        code,
        stdout,
        stderr,
    }
}

type Outcome = io::Result<(i32, String, String)>;

/// Runs a program to its end.
fn run(host: Option<&str>, argv: &[String], stdin: &str) -> Outcome {
    let mut child = command(host, argv)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().expect("standard input is piped");
    // A program may end without reading its input. Its exit code reports the outcome, and not this write.
    let _ = input.write_all(stdin.as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        exit_code(output.status),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

/// The exit code of a program; 128 + n for signal n.
fn exit_code(status: ExitStatus) -> i32 {
    let code = status.code();
    code.unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn spawn(host: Option<&str>, argv: &[String]) -> Outcome {
    command(host, argv)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok((0, String::new(), String::new()))
}

/// The state folder of a router that has files of its own in /etc: see [`homes`](crate::homes). Other hosts have the usual one.
fn state_folder(host: &str) -> Option<String> {
    Path::new("/etc/netns")
        .join(host)
        .exists()
        .then(|| format!("/run/sqm-of-{host}"))
}

fn command(host: Option<&str>, argv: &[String]) -> Command {
    let mut words = argv.iter().map(String::as_str);
    let mut command = match host {
        Some(host) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", host]);
            command
        }
        None => Command::new(words.next().unwrap_or("true")),
    };
    command.args(words);
    command
        .env_clear()
        .env("PATH", GUEST_PATH)
        .env("HOME", "/run")
        // With any other locale each program first reads a dozen files.
        .env("LC_ALL", "C");
    command.envs(host.and_then(state_folder).map(|folder| (STATE_FOLDER, folder)));
    command.envs(std::env::var_os(launch::TUNABLES).map(|value| (launch::TUNABLES, value)));
    command
}

/// The variable by which sqm finds its state folder.
const STATE_FOLDER: &str = "SQM_STATE_DIR";

const GUEST_PATH: &str = "/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes)?;
    Ok((0, String::new(), String::new()))
}

fn power_off() -> io::Result<()> {
    Ok(reboot(RebootCommand::PowerOff)?)
}
