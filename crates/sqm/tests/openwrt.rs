//! The OpenWrt package: its content, and its scripts in a root of their own. `opkg`, `apk` and procd are stood in for by the smallest
//! scripts that behave as OpenWrt documents; each call is recorded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use sqm_plan::settings::{Leaf, Script};

/// The hash by which LuCI looks up the translation of "Basic Settings", as its own po2lmo computes it.
const BASIC_SETTINGS: usize = 0x7e0634c3;

/// A stand-in for OpenWrt's `/etc/rc.common`, which runs an init script; it has procd's functions, which are only recorded.
const RC_COMMON: &str = r#"#!/bin/sh
script=$1 action=$2; shift 2
. /lib/functions.sh
record() { echo "$*" >>@ROOT@/calls; }
for name in open_instance close_instance send_signal add_reload_trigger; do
    eval "procd_$name() { record procd_$name \"\$@\"; }"
done
command=
procd_set_param() { if [ "$1" = command ]; then shift; command="$*"; else record procd_set_param "$@"; fi; }
procd_append_param() { shift; command="$command $*"; }
logger() { shift 4; record logger "$*"; }
rc_procd() { "$@"; record command "$command"; }
. "$script"
case $action in
    start) rc_procd start_service "$@" ;;
    stop) stop_service "$@"; record procd_kill "$(basename "$script")" "$1" ;;
    reload) reload_service "$@" ;;
    *) "$action" "$@" ;;
esac
"#;

/// A stand-in for OpenWrt's functions that read a file of UCI. It reads files whose values have single quotes, with LINE_END in
/// place of the end of a line.
const FUNCTIONS: &str = r#"#!/bin/sh
config_load() {
    awk '
        BEGIN { q = "\047"; dq = "\042" }
        function value() { text = $0; sub("^[^" q "]*" q, "", text); sub(q "[^" q "]*$", "", text); gsub("LINE_END", "\n", text); return q text q }
        $1 == "config" { n++; print "TYPE_" n "=" $2; next }
        $1 == "option" { print "CONFIG_" n "_" $2 "=" value() }
        $1 == "list" { print "LIST_" n "_" $2 "=" dq "$LIST_" n "_" $2 " " value() dq }
        END { print "SECTIONS=" n + 0 }' /etc/config/"$1" >@ROOT@/loaded
    . @ROOT@/loaded
}
config_get() { eval "$1=\${CONFIG_${2}_$3:-\$4}"; }
config_get_bool() {
    config_get "$@"
    eval "case \$$1 in 1 | on | true | yes | enabled) $1=1 ;; 0 | off | false | no | disabled) $1=0 ;; *) $1=\$4 ;; esac"
}
config_foreach() {
    local each=1 type
    while [ "$each" -le "$SECTIONS" ]; do
        eval "type=\$TYPE_$each"
        [ "$type" != "$2" ] || "$1" "$each"
        each=$((each + 1))
    done
}
config_list_foreach() { local list item; eval "list=\$LIST_${1}_$2"; eval "for item in $list; do $3 \"\$item\"; done"; }
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
        let ipk = packages().join(IPK);
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
        fs::create_dir_all(router.path("lib")).unwrap();
        router.script("lib/functions.sh", FUNCTIONS);
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
        text.replace(". /lib/", &format!(". {root}/lib/"))
            .replace("@ROOT@", root)
    }

    fn script(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::write(&path, self.rooted(text)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Puts a recorder in place of the init script. `is_running` is its answer.
    fn record_service(&self, is_running: bool) {
        self.record("etc/init.d/sqm", is_running);
    }

    fn record(&self, script: &str, is_running: bool) {
        let answer = i32::from(!is_running);
        let text = format!(
            "#!/bin/sh\necho \"service $*\" >>@ROOT@/calls\n[ \"$1\" != running ] || exit {answer}\n"
        );
        self.script(script, &text);
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

/// Builds the packages, once, with a program that only has to be one. Returns their folder.
fn packages() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openwrt-packages");
        run(Command::new("python3")
            .arg(source("package.py"))
            .args(["/bin/true", "mipsel_24kc"])
            .arg(&folder)
            .arg("/bin/true"));
        folder
    });
    &FOLDER
}

const IPK: &str = "sqm_0.1.0-1_mipsel_24kc.ipk";
const APK: &str = "sqm-0.1.0-r1.mipsel_24kc.apk";

/// A file of packaging/openwrt.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging/openwrt")
        .join(name)
}

/// An .ipk that is unpacked: the text of a file of its control part, and what its data part holds.
struct Unpacked {
    folder: tempfile::TempDir,
}

impl Unpacked {
    fn of(package: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ipk = packages().join(package);
        for part in ["control", "data"] {
            let archive = unpacked(&ipk, &format!("{part}.tar.gz"), folder.path());
            let to = folder.path().join(part);
            fs::create_dir(&to).unwrap();
            run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(to));
        }
        Self { folder }
    }

    fn control(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join("control").join(file)).ok()
    }

    fn data(&self, file: &str) -> PathBuf {
        self.folder.path().join("data").join(file)
    }

    fn has_line(&self, line: &str) -> bool {
        self.control("control")
            .unwrap()
            .lines()
            .any(|found| found == line)
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().unwrap().permissions().mode() & 0o111 != 0
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
    let ipk = packages().join(IPK);
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
        "usr/lib/sqm/state-files",
        "lib/upgrade/keep.d/sqm",
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
        "Depends: kmod-sched-core, kmod-sched-cake, kmod-ifb, kmod-nft-core",
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

#[test]
fn the_luci_application_is_a_package_for_each_architecture() {
    let app = Unpacked::of("luci-app-sqm_0.1.0-1_all.ipk");
    assert!(app.has_line("Architecture: all") && app.has_line("Depends: luci-base, sqm"));
    assert!(is_executable(&app.data("usr/libexec/rpcd/sqm")));
    let mut missing: Vec<String> = files(&source("luci-app-sqm/htdocs"))
        .into_iter()
        .map(|file| format!("www/{file}"))
        .collect();
    missing.extend(files(&source("luci-app-sqm/root")));
    assert!(missing.len() > 8);
    missing.retain(|file| !app.data(file).exists());
    assert_eq!(missing, [""; 0]);
    // LuCI looks a text up by its hash: this is that of its own po2lmo for "Basic Settings".
    let german = fs::read(app.data("usr/lib/lua/luci/i18n/sqm.de.lmo")).unwrap();
    let number = |at: usize| u32::from_be_bytes(german[at..at + 4].try_into().unwrap()) as usize;
    let index = number(german.len() - 4);
    let entries = (index..german.len() - 4).step_by(16);
    let hashes: Vec<usize> = entries.clone().map(number).collect();
    assert!(hashes.len() > 150 && hashes.is_sorted());
    let entry = entries.clone().find(|at| number(*at) == BASIC_SETTINGS).unwrap();
    let (offset, length) = (number(entry + 8), number(entry + 12));
    assert_eq!(&german[offset..offset + length], b"Grundeinstellungen");
}

#[test]
fn the_page_is_a_package_with_the_full_program() {
    let page = Unpacked::of("sqm-web_0.1.0-1_mipsel_24kc.ipk");
    assert!(page.has_line("Architecture: mipsel_24kc") && page.has_line("Depends: sqm"));
    for file in ["usr/sbin/sqm-web", "etc/init.d/sqm-web"] {
        assert!(is_executable(&page.data(file)), "{file}");
    }
    let kept = fs::read_to_string(page.data("lib/upgrade/keep.d/sqm-web")).unwrap();
    assert_eq!(kept, "/etc/sqm-web/\n");
    // A new page takes the place of one that runs; nothing starts by itself.
    let router = Router::with_package();
    for (is_running, wanted) in [
        (true, &["service running", "service restart"][..]),
        (false, &["service running"]),
    ] {
        router.record("etc/init.d/sqm-web", is_running);
        router.script("parts/page", &page.control("postinst").unwrap());
        assert_eq!(router.calls("parts/page", &[], &[]), wanted);
    }
    router.script("parts/page", &page.control("prerm").unwrap());
    assert_eq!(router.calls("parts/page", &["upgrade"], &[]), [""; 0]);
    assert_eq!(
        router.calls("parts/page", &[], &[]),
        ["service disable", "service stop"]
    );
}

/// The text between `define NAME` and `endef`, with make's `$$` as a shell reads it.
fn definition<'a>(makefile: &'a str, name: &str) -> Vec<std::borrow::Cow<'a, str>> {
    let text = makefile.split(&format!("define {name}\n")).nth(1);
    let text = text.unwrap_or_else(|| panic!("no {name}"));
    let lines = text.lines().take_while(|line| *line != "endef");
    lines.map(|line| line.replace("$$", "$").into()).collect()
}

#[test]
fn the_feed_makes_the_packages_of_the_script() {
    let makefile = fs::read_to_string(source("feed/sqm/Makefile")).unwrap();
    let variable = |name: &str| {
        makefile
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:=")))
            .unwrap()
    };
    assert_eq!(variable("PKG_VERSION"), env!("CARGO_PKG_VERSION"));
    for (name, package) in [("sqm", IPK), ("sqm-web", "sqm-web_0.1.0-1_mipsel_24kc.ipk")] {
        let unpacked = Unpacked::of(package);
        let fields = definition(&makefile, &format!("Package/{name}"));
        let field = |key: &str| {
            fields
                .iter()
                .find_map(|line| line.trim().strip_prefix(key))
                .unwrap_or_default()
        };
        let depends: Vec<&str> = field("DEPENDS:=")
            .split(' ')
            .filter_map(|word| word.strip_prefix('+'))
            .collect();
        assert!(
            unpacked.has_line(&format!("Depends: {}", depends.join(", "))),
            "{depends:?}"
        );
        for (key, line) in [("PROVIDES:=", "Provides: "), ("CONFLICTS:=", "Conflicts: ")] {
            let control = unpacked.control("control").unwrap();
            let found = control.lines().find_map(|found| found.strip_prefix(line));
            assert_eq!(field(key), found.unwrap_or_default(), "{name}");
        }
        let description = definition(&makefile, &format!("Package/{name}/description"));
        assert!(unpacked.has_line(&format!("Description: {}", description[0].trim())));
        for script in ["postinst", "prerm"] {
            let text = definition(&makefile, &format!("Package/{name}/{script}")).join("\n") + "\n";
            assert_eq!(Some(text), unpacked.control(script), "{name} {script}");
        }
        if let Some(kept) = unpacked.control("conffiles") {
            let listed = definition(&makefile, &format!("Package/{name}/conffiles")).join("\n") + "\n";
            assert_eq!(listed, kept);
        }
        // Each file of the package has its place in the recipe.
        let recipe = definition(&makefile, &format!("Package/{name}/install")).join("\n");
        for file in files(&unpacked.data("")) {
            let folder = file.rsplit_once('/').unwrap().0;
            assert!(
                recipe.contains(&format!("$(1)/{file}"))
                    || recipe.contains(&format!("$(1)/{folder}/\n"))
                    || file.contains(".qos"),
                "{file}"
            );
        }
    }
    let app = fs::read_to_string(source("luci-app-sqm/Makefile")).unwrap();
    assert!(app.contains("\nLUCI_DEPENDS:=+luci-base +sqm\n"), "{app}");
}

/// OpenWrt's build system puts a call of default_prerm before our own script, which stops the services of a package.
#[test]
fn an_upgrade_of_a_package_of_the_feed_leaves_the_daemon_running() {
    let router = Router::with_package();
    fs::write(
        router.path("etc/config/sqm"),
        "config queue\n option enabled '1'\n option interface 'eth1'\n",
    )
    .unwrap();
    router.service(&["start"]);
    let script = router.path("etc/init.d/sqm");
    let stop = [script.to_str().unwrap(), "stop"];
    assert_eq!(
        router.calls("etc/rc.common", &stop, &[("PKG_UPGRADE", "1")]),
        [""; 0]
    );
    assert!(router.path("var/run/sqm/eth1.state").exists());
    assert_eq!(router.calls("parts/prerm", &[], &[("PKG_UPGRADE", "1")]), [""; 0]);
    assert_eq!(router.calls("etc/rc.common", &stop, &[]), ["procd_kill sqm "]);
}

/// The setups of the package are those of the program, no more and no fewer.
#[test]
fn each_setup_has_a_file_for_luci() {
    let router = Router::with_package();
    let files = router.files();
    let listed = files.iter().filter_map(|file| file.strip_prefix("usr/lib/sqm/"));
    let mut listed: Vec<&str> = listed.filter(|file| file.ends_with(".qos")).collect();
    let built_in = Script::BUILT_IN;
    let mut known: Vec<&str> = built_in.iter().map(Script::file_name).collect();
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
    let apk = packages().join(APK);
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
    let command = format!("command {} daemon --syslog", sqm.display());
    assert!(started.contains(&command), "{started:?}");
    assert!(!started.iter().any(|call| call.contains("stdout")), "{started:?}");
    for action in ["start", "stop", "reload"] {
        assert_eq!(router.service(&[action, "eth1"]), [format!("sqm {action} eth1")]);
    }
    assert_eq!(router.service(&["stop"]), ["procd_kill sqm "]);
    // procd compares the arguments; if they are the same, the signal is all that the daemon receives.
    let reloaded = router.service(&["reload"]);
    assert!(reloaded.contains(&command), "{reloaded:?}");
    assert!(reloaded.contains(&"procd_set_param reload_signal QUIT".to_owned()));
    assert_eq!(reloaded.last().unwrap(), "procd_send_signal sqm * HUP");
    assert_eq!(router.service(&["handover"]), ["procd_send_signal sqm * QUIT"]);
}

#[test]
fn an_interface_that_comes_up_starts_the_daemon_and_one_that_goes_down_stops_nothing() {
    let router = Router::with_package();
    let hotplug = |action: &str| {
        let variables = [("ACTION", action), ("INTERFACE", "wan"), ("DEVICE", "eth1")];
        router.calls("etc/hotplug.d/iface/11-sqm", &[], &variables)
    };
    router.record_service(false);
    assert_eq!(
        hotplug("ifup"),
        ["service enabled", "service running", "service start"]
    );
    assert_eq!(hotplug("ifdown"), [""; 0]);
    router.record_service(true);
    assert_eq!(hotplug("ifup"), ["service enabled", "service running"]);
}

/// The command line of a service.
fn command_line(router: &Router, script: &str) -> String {
    let script = router.path(script);
    let calls = router.calls("etc/rc.common", &[script.to_str().unwrap(), "start"], &[]);
    let command = calls.iter().find_map(|call| call.strip_prefix("command "));
    let program = router.path("usr/bin/sqm");
    let command = command.unwrap().strip_prefix(program.to_str().unwrap()).unwrap();
    let root = router.root.path().to_str().unwrap();
    command.trim().replace(root, "")
}

#[test]
fn the_sections_of_the_services_are_their_arguments() {
    let router = Router::with_package();
    let config = |text: &str| fs::write(router.path("etc/config/sqm"), text).unwrap();
    config(
        "config daemon\n option drift 'report'\n option metrics '127.0.0.1:9469'\n option log_level 'debug'\n option admin_user 'root'\n \
         option syslog '0'\nconfig web\n option listen '192.168.1.1:8443'\n option tls '1'\n list name 'router.lan'\n \
         list name 'two words'\n option user 'nobody'\n option dir '/root/kept'\n option results '/root/results'\n option log_level 'info'\n",
    );
    fs::create_dir_all(router.path("etc/default")).unwrap();
    fs::write(
        router.path("etc/default/sqm"),
        "SQM_WEB_OPTIONS='--listen 10.0.0.1:80'\n",
    )
    .unwrap();
    assert_eq!(
        command_line(&router, "etc/init.d/sqm"),
        "daemon --drift report --metrics 127.0.0.1:9469 --log-level debug --admin-user root"
    );
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/openwrt/sqm-web.init");
    router.script("etc/init.d/sqm-web", &fs::read_to_string(web).unwrap());
    assert_eq!(
        command_line(&router, "etc/init.d/sqm-web"),
        "web --tls --name router.lan --name two words --listen 192.168.1.1:8443 --user nobody --log-level info --dir /root/kept \
         --results /root/results"
    );
    // Every option of the two sections that the program knows has had its argument.
    config("");
    assert_eq!(command_line(&router, "etc/init.d/sqm"), "daemon --syslog");
    assert_eq!(
        command_line(&router, "etc/init.d/sqm-web"),
        "web --listen 10.0.0.1:80 --dir /etc/sqm-web --results /var/lib/sqm-web"
    );
}

/// The daemon would end at once, again and again, and shape nothing.
#[test]
fn a_value_that_the_daemon_would_refuse_is_left_out() {
    let router = Router::with_package();
    for (option, value) in [
        ("drift", "repot"),
        ("metrics", "192.0.2.1:80"),
        ("metrics", "127.0.0.1:80 --socket /x"),
        ("log_level", "-x"),
        ("admin_user", "no such user"),
        ("drift", "reportLINE_ENDrepair"),
    ] {
        let text = format!("config daemon\n option {option} '{value}'\n");
        fs::write(router.path("etc/config/sqm"), text).unwrap();
        assert_eq!(
            command_line(&router, "etc/init.d/sqm"),
            "daemon --syslog",
            "{option} {value}"
        );
    }
}

#[test]
fn the_init_scripts_know_every_option_of_the_services() {
    for (kind, file) in [("daemon", "sqm.init"), ("web", "sqm-web.init")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../packaging/openwrt")
            .join(file);
        let script = fs::read_to_string(path).unwrap();
        for option in sqm_plan::services::options(kind).unwrap() {
            let is_word =
                |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_') == option;
            assert!(script.split_whitespace().any(is_word), "{file}: {option}");
        }
    }
}

/// A file of sqm-scripts is one of assignments, which programs read as a shell does.
#[test]
fn interfaces_that_are_to_be_shaped_have_the_files_of_sqm_scripts() {
    let router = Router::with_package();
    let config = |text: &str| fs::write(router.path("etc/config/sqm"), text).unwrap();
    let names = || -> Vec<String> {
        let all = files(&router.path("var/run/sqm"));
        all.into_iter()
            .filter(|name| !name.starts_with("available_qdiscs/"))
            .collect()
    };
    let other = "config queue\n option enabled '0'\n option interface 'eth2'\nconfig queue\n option enabled '1'\n option interface '../x'\n";
    config(&format!(
        "config queue\n option enabled 'on'\n option interface 'eth1'\n option download '8.5mbit'\n option upload '10000'\n \
         option script 'simple.qos$(touch x)'\n option qdisc 'fq_codel'\n option debug_logging '1'\n{other}"
    ));
    router.service(&["start"]);
    assert_eq!(names(), ["eth1.start-sqm.log", "eth1.state"]);
    let state = fs::read_to_string(router.path("var/run/sqm/eth1.state")).unwrap();
    let wanted = "SQM_PROGRAM=\"sqm\"\nIFACE=\"eth1\"\nENABLED=\"1\"\nSQM_DEBUG=\"1\"\nUPLINK=\"10000\"\nDOWNLINK=\"8500\"\nQDISC=\"fq_codel\"\n";
    assert_eq!(state, wanted);
    let log = fs::read_to_string(router.path("var/run/sqm/eth1.start-sqm.log")).unwrap();
    assert!(log.starts_with("start-sqm: Log for interface eth1: "), "{log}");
    // A section that was switched off is gone, and a file of sqm-scripts itself stays.
    fs::write(router.path("var/run/sqm/eth3.state"), "IFACE=\"eth3\"\n").unwrap();
    config(other);
    router.service(&["reload"]);
    assert_eq!(names(), ["eth1.start-sqm.log", "eth3.state"]);
    config("config queue\n option enabled '1'\n option interface 'eth4'\n");
    router.calls("usr/lib/sqm/start-sqm", &[], &[("IFACE", "eth4")]);
    assert!(names().contains(&"eth4.state".to_owned()));
    router.service(&["stop"]);
    assert!(!names().contains(&"eth4.state".to_owned()));
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

/// The LuCI application in OpenWrt's feed refuses to save a section with a value of another form than its own.
#[test]
fn the_luci_application_of_sqm_scripts_can_save_the_shipped_section() {
    let router = Router::with_package();
    router.service(&["start"]);
    let text = fs::read_to_string(router.path("etc/config/sqm")).unwrap();
    let value = |option: &str| {
        let mut options = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("option "));
        let found = options.find_map(|line| line.strip_prefix(option)?.trim().strip_prefix('\''));
        found
            .and_then(|value| value.strip_suffix('\''))
            .unwrap_or_else(|| panic!("no {option}"))
    };
    for rate in ["download", "upload"] {
        assert!(value(rate).bytes().all(|byte| byte.is_ascii_digit()), "{rate}");
    }
    assert!(["0", "1"].contains(&value("enabled")));
    assert!(["none", "ethernet", "atm"].contains(&value("linklayer")));
    let names = |folder: &str| files(&router.path(folder));
    assert!(names("var/run/sqm/available_qdiscs").contains(&value("qdisc").to_owned()));
    let script = value("script");
    assert!(names("usr/lib/sqm").contains(&script.to_owned()), "{script}");
    assert!(names("usr/lib/sqm").contains(&format!("{script}.help")));
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
