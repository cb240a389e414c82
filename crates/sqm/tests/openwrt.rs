//! The OpenWrt package: its content, and its scripts in a root of their own. `opkg`, `apk` and procd are stood in for by the smallest
//! scripts that behave as OpenWrt documents; each call is recorded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sqm_plan::settings::{Leaf, Script};

/// A stand-in for OpenWrt's `/etc/rc.common`, which runs an init script; it has procd's functions, which are only recorded.
const RC_COMMON: &str = r#"#!/bin/sh
script=$1 action=$2; shift 2
record() { echo "$*" >>@ROOT@/calls; }
for name in open_instance set_param close_instance send_signal add_reload_trigger; do
    eval "procd_$name() { record procd_$name \"\$@\"; }"
done
. "$script"
case $action in
    start) start_service "$@"; record procd started ;;
    stop) stop_service "$@"; record procd_kill "$(basename "$script")" "$1" ;;
    reload) reload_service "$@" ;;
    *) "$action" "$@" ;;
esac
"#;

/// A package that is unpacked into a root of its own, in which no path of its scripts leads outside.
struct Router {
    root: tempfile::TempDir,
}

impl Router {
    fn with_package() -> Self {
        let router = Self {
            root: tempfile::tempdir().unwrap(),
        };
        let (ipk, _) = packages(router.root.path());
        let data = unpacked(&ipk, "data.tar.gz", &router.root.path().join("parts"));
        run(Command::new("tar")
            .arg("-xzf")
            .arg(data)
            .arg("-C")
            .arg(router.root.path()));
        let control = unpacked(&ipk, "control.tar.gz", &router.root.path().join("parts"));
        run(Command::new("tar")
            .arg("-xzf")
            .arg(control)
            .arg("-C")
            .arg(router.path("parts")));
        for file in router.files() {
            let path = router.path(&file);
            if let Ok(text) = fs::read_to_string(&path) {
                fs::write(&path, router.rooted(&text)).unwrap();
            }
        }
        router.script("etc/rc.common", RC_COMMON);
        router.script("usr/bin/sqm", "#!/bin/sh\necho \"sqm $*\" >>@ROOT@/calls\n");
        router.script("usr/bin/uci", "#!/bin/sh\nexit 1\n");
        router
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.path().join(file)
    }

    /// A script's text with its paths inside of this root.
    fn rooted(&self, text: &str) -> String {
        let root = self.root.path().to_str().unwrap();
        let text = ["/etc/", "/usr/", "/var/"]
            .iter()
            .fold(text.to_owned(), |text, folder| {
                text.replace(folder, &format!("{root}{folder}"))
            });
        text.replace("@ROOT@", root)
    }

    fn script(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::write(&path, self.rooted(text)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Puts a recorder in place of the init script. `is_running` is its answer.
    fn record_service(&self, is_running: bool) {
        let answer = i32::from(!is_running);
        let text = format!(
            "#!/bin/sh\necho \"service $*\" >>@ROOT@/calls\n[ \"$1\" != running ] || exit {answer}\n"
        );
        self.script("etc/init.d/sqm", &text);
    }

    /// Runs a file of this root. Returns what was called meanwhile.
    fn calls(&self, file: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
        let _ = fs::remove_file(self.path("calls"));
        let mut command = Command::new("sh");
        command.arg(self.path(file)).args(arguments);
        command.env(
            "PATH",
            format!("{}:/usr/bin:/bin", self.path("usr/bin").display()),
        );
        run(command.envs(variables.iter().copied()));
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// Runs the init script as OpenWrt does.
    fn service(&self, arguments: &[&str]) -> Vec<String> {
        let script = self.path("etc/init.d/sqm");
        let arguments = [&[script.to_str().unwrap()], arguments].concat();
        self.calls("etc/rc.common", &arguments, &[])
    }

    fn files(&self) -> Vec<String> {
        files(self.root.path())
    }
}

fn files(folder: &Path) -> Vec<String> {
    let output = run(Command::new("find").current_dir(folder).args([".", "-type", "f"]));
    let mut files: Vec<String> = output.lines().map(|line| line[2..].to_owned()).collect();
    files.sort();
    files
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Builds both packages with a program that only has to be one.
fn packages(folder: &Path) -> (PathBuf, PathBuf) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/openwrt/package.py");
    let out = folder.join("out");
    let printed = run(Command::new("python3")
        .arg(script)
        .args(["/bin/true", "mipsel_24kc"])
        .arg(out));
    let mut names = printed.lines().map(PathBuf::from);
    (names.next().unwrap(), names.next().unwrap())
}

/// One part of an .ipk.
fn unpacked(ipk: &Path, part: &str, folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    run(Command::new("tar").arg("-xzf").arg(ipk).arg("-C").arg(folder));
    folder.join(part)
}

#[test]
fn the_package_has_what_programs_beside_sqm_scripts_look_for() {
    let folder = tempfile::tempdir().unwrap();
    let (ipk, _) = packages(folder.path());
    let parts = folder.path().join("parts");
    let data = unpacked(&ipk, "data.tar.gz", &parts);
    let names = run(Command::new("tar").arg("-tzf").arg(data));
    for wanted in [
        "usr/bin/sqm",
        "etc/init.d/sqm",
        "etc/config/sqm",
        "etc/hotplug.d/iface/11-sqm",
        "usr/lib/sqm/run.sh",
        "usr/lib/sqm/start-sqm",
        "usr/lib/sqm/stop-sqm",
        "usr/lib/sqm/update-available-qdiscs",
        "usr/lib/sqm/piece_of_cake.qos",
        "usr/lib/sqm/piece_of_cake.qos.help",
        "usr/lib/sqm/best_of_cake.qos",
    ] {
        assert!(
            names.lines().any(|name| name == format!("./{wanted}")),
            "{wanted}: {names}"
        );
    }
    run(Command::new("tar")
        .arg("-xzf")
        .arg(parts.join("control.tar.gz"))
        .arg("-C")
        .arg(&parts));
    let control = fs::read_to_string(parts.join("control")).unwrap();
    for line in [
        "Architecture: mipsel_24kc",
        "Conflicts: sqm-scripts",
        "Depends: kmod-sched-core, kmod-sched-cake, kmod-ifb",
        "Package: sqm",
        "Provides: sqm-scripts",
    ] {
        assert!(control.lines().any(|found| found == line), "{line}: {control}");
    }
    assert_eq!(
        fs::read_to_string(parts.join("conffiles")).unwrap(),
        "/etc/config/sqm\n"
    );
}

/// The setups of the package are those of the program, no more and no fewer.
#[test]
fn each_setup_has_a_file_for_luci() {
    let router = Router::with_package();
    let files = router.files();
    let listed = files.iter().filter_map(|file| file.strip_prefix("usr/lib/sqm/"));
    let mut listed: Vec<&str> = listed.filter(|file| file.ends_with(".qos")).collect();
    let mut known = Script::ALL.map(Script::file_name);
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
    for name in listed {
        let help = fs::read_to_string(router.path(&format!("usr/lib/sqm/{name}.help"))).unwrap();
        assert!(help.trim().len() > 10, "{name}");
    }
}

/// LuCI's list of qdiscs is that of the program.
#[test]
fn each_qdisc_has_a_file_for_luci() {
    let router = Router::with_package();
    router.calls("usr/lib/sqm/update-available-qdiscs", &[], &[]);
    let mut known = Leaf::ALL.map(Leaf::name);
    known.sort_unstable();
    assert_eq!(files(&router.path("var/run/sqm/available_qdiscs")), known);
}

/// apk refuses a package whose data has another hash, and a file whose checksum is not in its header.
#[test]
fn the_apk_has_the_hashes_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let (_, apk) = packages(folder.path());
    let check = r#"
import gzip, hashlib, io, sys, tarfile, zlib
packed = open(sys.argv[1], "rb").read()
first = zlib.decompressobj(31)
control = first.decompress(packed)
data = first.unused_data
info = dict(line.split(" = ", 1) for line in
    tarfile.open(fileobj=io.BytesIO(control + bytes(1024))).extractfile(".PKGINFO").read().decode().splitlines())
assert info["datahash"] == hashlib.sha256(data).hexdigest(), info
assert info["arch"] == "mipsel_24kc" and info["provides"].startswith("sqm-scripts="), info
count = 0
archive = tarfile.open(fileobj=io.BytesIO(gzip.decompress(data)))
for member in archive:
    if member.isfile():
        content = archive.extractfile(member).read()
        assert member.pax_headers["APK-TOOLS.checksum.SHA1"] == hashlib.sha1(content).hexdigest(), member.name
        count += 1
assert count > 15, count
"#;
    run(Command::new("python3").args(["-c", check]).arg(apk));
}

#[test]
fn an_installation_starts_the_service_and_an_upgrade_leaves_the_queues_in_force() {
    let router = Router::with_package();
    router.record_service(false);
    assert_eq!(
        router.calls("parts/postinst", &[], &[]),
        ["service running", "service enable", "service start"]
    );
    assert!(!router.path("etc/uci-defaults/sqm").exists());
    // An upgrade: opkg runs the old package's prerm and the new one's postinst.
    router.record_service(true);
    assert_eq!(router.calls("parts/prerm", &["upgrade", "0.2.0-1"], &[]), [""; 0]);
    assert_eq!(
        router.calls("parts/postinst", &[], &[]),
        ["service running", "service handover"]
    );
    // A removal.
    router.calls("usr/lib/sqm/update-available-qdiscs", &[], &[]);
    assert_eq!(
        router.calls("parts/prerm", &[], &[]),
        ["service disable", "service stop"]
    );
    assert!(!router.path("var/run/sqm/available_qdiscs").exists());
    // An image that is being built.
    assert_eq!(
        router.calls("parts/postinst", &[], &[("IPKG_INSTROOT", "/image")]),
        [""; 0]
    );
}

#[test]
fn an_existing_configuration_is_kept() {
    let router = Router::with_package();
    router.record_service(false);
    fs::write(router.path("etc/config/sqm"), "config queue\n").unwrap();
    router.calls("parts/postinst", &[], &[]);
    assert_eq!(
        fs::read_to_string(router.path("etc/config/sqm")).unwrap(),
        "config queue\n"
    );
}

#[test]
fn the_init_script_runs_the_daemon_and_takes_an_interface() {
    let router = Router::with_package();
    let sqm = router.path("usr/bin/sqm");
    let started = router.service(&["start"]);
    // /var/run is in memory: a boot begins without the list.
    assert!(router.path("var/run/sqm/available_qdiscs/cake").exists());
    let command = format!("procd_set_param command {} daemon --syslog", sqm.display());
    assert!(started.contains(&command), "{started:?}");
    assert!(!started.iter().any(|call| call.contains("stdout")), "{started:?}");
    for action in ["start", "stop", "reload"] {
        assert_eq!(router.service(&[action, "eth1"]), [format!("sqm {action} eth1")]);
    }
    assert_eq!(router.service(&["stop"]), ["procd_kill sqm "]);
    assert_eq!(router.service(&["reload"]), ["procd_send_signal sqm * HUP"]);
    assert_eq!(router.service(&["handover"]), ["procd_send_signal sqm * QUIT"]);
}

#[test]
fn the_calls_of_sqm_scripts_reach_the_program() {
    let router = Router::with_package();
    assert_eq!(
        router.calls("usr/lib/sqm/run.sh", &["start", "eth1"], &[]),
        ["sqm start eth1"]
    );
    assert_eq!(router.calls("usr/lib/sqm/run.sh", &["stop"], &[]), ["sqm stop"]);
    let interface = [("IFACE", "eth1")];
    assert_eq!(
        router.calls("usr/lib/sqm/start-sqm", &[], &interface),
        ["sqm start eth1"]
    );
    assert_eq!(
        router.calls("usr/lib/sqm/stop-sqm", &[], &interface),
        ["sqm stop eth1"]
    );
}

#[test]
fn the_shipped_configuration_shapes_nothing() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/openwrt/sqm.config");
    let printed = run(Command::new(env!("CARGO_BIN_EXE_sqm"))
        .arg("plan")
        .arg("--config")
        .arg(file));
    assert!(!printed.contains("qdisc"), "{printed}");
}
