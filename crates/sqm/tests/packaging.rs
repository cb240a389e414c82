//! The files that are shipped with the program. `packaging/debian/test.sh` (`make test-deb`) tests that the Debian
//! package installs, starts, and leaves nothing behind on a clean Debian. That takes minutes and needs root.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(file)
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} must be there (lab/deps.sh build): {error}"))
}

/// The limit is on systemd's scale from 0 to 10. The remaining exposure is what shaping needs: root's files, netlink,
/// sockets, and the host's network.
#[test]
fn the_units_expose_little() {
    for unit in ["sqm.service", "sqm-serve.service", "sqm-web.service"] {
        let file = packaging(unit);
        let arguments = ["security", "--offline=true", "--threshold=20", "--no-pager"];
        let output = run(
            "systemd-analyze",
            &[&arguments[..], &[file.to_str().unwrap()]].concat(),
        );
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or_default();
        assert!(output.status.success(), "{unit}: {last}");
        assert!(last.contains("Overall exposure level"), "{unit}: {said}");
    }
}

#[test]
fn systemd_accepts_the_units() {
    // systemd checks that the program exists, so that a path that exists stands in for the package's.
    let folder = tempfile::tempdir().unwrap();
    for unit in ["sqm.service", "sqm-serve.service", "sqm-web.service"] {
        let text = std::fs::read_to_string(packaging(unit)).unwrap();
        let text = text
            .replace("/usr/bin/sqm", "/bin/true")
            .replace("Documentation=man:sqm(8)\n", "")
            .replace("Documentation=man:sqm-web(8)\n", "");
        let file = folder.path().join(unit);
        std::fs::write(&file, text).unwrap();
        let output = run("systemd-analyze", &["verify", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        // Ignore faults in other units of this machine.
        let ours: Vec<&str> = said.lines().filter(|line| line.contains(unit)).collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}

/// Flash memory is small, and most routers are in no fleet.
#[test]
fn the_program_for_routers_carries_nothing_of_the_fleet() {
    let crates = |features: &str| {
        let of_router = [
            "tree",
            "--locked",
            "--offline",
            "-p",
            "sqm",
            "--no-default-features",
        ];
        let form = ["--edges", "normal", "--prefix", "none", "--format", "{p}"];
        let output = run(
            env!("CARGO"),
            &[&of_router[..], &["--features", features], &form].concat(),
        );
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let tree = String::from_utf8(output.stdout).unwrap();
        let names = tree.lines().filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let of_fleet = ["sqm-fleet", "async-nats", "nkeys", "rustls", "ring"];
    let [without, with] = ["router", "router,fleet"].map(crates);
    for name in of_fleet {
        assert!(!without.iter().any(|one| one == name), "{name}");
        assert!(
            with.iter().any(|one| one == name),
            "{name} is no crate of the fleet any more"
        );
    }
}

/// By default systemd would stop the service when the kernel's OOM killer ends one of its processes.
#[test]
fn a_child_that_takes_all_memory_does_not_end_its_service() {
    for unit in ["sqm.service", "sqm-web.service"] {
        let text = std::fs::read_to_string(packaging(unit)).unwrap();
        assert!(text.lines().any(|line| line == "OOMPolicy=continue"), "{unit}");
    }
}

#[test]
fn the_scripts_are_valid_shell() {
    for script in [
        "debian/build.sh",
        "debian/test.sh",
        "debian/postinst",
        "debian/prerm",
        "debian/postrm",
        "tarball/build.sh",
        "tarball/install.sh",
        "ifupdown/sqm",
        "openwrt/sqm.init",
        "openwrt/sqm-web.init",
        "openwrt/sqm.hotplug",
        "openwrt/sqm.uci-defaults",
        "openwrt/postinst",
        "openwrt/prerm",
        "openwrt/build-router.sh",
        "openwrt/check-32-bit.sh",
        "openwrt/lib/run.sh",
        "openwrt/lib/start-sqm",
        "openwrt/lib/stop-sqm",
        "openwrt/lib/update-available-qdiscs",
    ] {
        let output = run("sh", &["-n", packaging(script).to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {said}");
    }
}

/// Each script makes its temporary folder and then runs `program`, of which a stand-in sends SIGTERM to the script.
#[test]
fn scripts_that_are_interrupted_remove_their_temporary_folder() {
    let stand_ins = |program: &str| {
        let folder = tempfile::tempdir().unwrap();
        let add = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        add("file", "echo statically linked");
        add(program, "kill -TERM $PPID");
        folder
    };
    let (tarball, out) = (unpacked(), tempfile::tempdir().unwrap());
    let build = [env!("CARGO_BIN_EXE_sqm"), out.path().to_str().unwrap()];
    for (script, arguments, program) in [
        (packaging("debian/build.sh"), &build[..], "install"),
        (packaging("tarball/build.sh"), &build, "install"),
        (tarball.path().join("install.sh"), &[], "sed"),
    ] {
        let (programs, temporary) = (stand_ins(program), tempfile::tempdir().unwrap());
        let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .arg(&script)
            .args(arguments)
            .env("PATH", path)
            .env("TMPDIR", temporary.path())
            .env("DESTDIR", out.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(130), "{script:?}: {output:?}");
        let left = std::fs::read_dir(temporary.path()).unwrap().count();
        assert_eq!(left, 0, "{script:?}");
    }
}

#[test]
fn the_shipped_configuration_is_valid_and_shapes_nothing() {
    let file = packaging("debian/sqm.conf");
    let output = run(
        env!("CARGO_BIN_EXE_sqm"),
        &["plan", "--format", "json", "--config", file.to_str().unwrap()],
    );
    assert!(output.status.success());
    let plans: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plans, serde_json::json!([]));
}

#[test]
fn every_command_has_a_page_and_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        env!("CARGO_BIN_EXE_sqm"),
        &["manual", folder.path().to_str().unwrap()],
    );
    assert!(output.status.success());
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("sqm.8").contains(".TH sqm 8"));
    assert!(page("sqm-daemon.8").contains("api.sock"));
    let options = page("sqm.conf.5");
    assert!(
        options.contains(".SS \"autorate\"") && options.contains(".SS \"linklayer\""),
        "{options}"
    );
    assert!(page("sqm-calc-goodput.8").contains("Gross rate"));
}

/// The folder of an unpacked tarball, with the program of this build in it.
fn unpacked() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &str| {
        let to = folder.path().join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    copy(Path::new(env!("CARGO_BIN_EXE_sqm")), "bin/sqm");
    copy(&packaging("tarball/install.sh"), "install.sh");
    copy(&packaging("sqm.preset"), "systemd/80-sqm.preset");
    for unit in ["sqm.service", "sqm-serve.service", "sqm-web.service"] {
        copy(&packaging(unit), &format!("systemd/{unit}"));
    }
    std::fs::create_dir_all(folder.path().join("share/man/man8")).unwrap();
    std::fs::write(folder.path().join("share/man/man8/sqm.8"), ".TH sqm 8").unwrap();
    folder
}

/// The files below a folder, without the folder's own name.
fn files(folder: &Path) -> Vec<String> {
    let listed = Command::new("find")
        .args([".", "-type", "f"])
        .current_dir(folder)
        .output()
        .unwrap();
    let mut names: Vec<String> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .map(|line| line.trim_start_matches('.').to_owned())
        .collect();
    names.sort();
    names
}

fn install(tarball: &Path, destination: &Path, options: &[&str]) -> Output {
    Command::new("sh")
        .arg(tarball.join("install.sh"))
        .args(options)
        .env("DESTDIR", destination)
        .output()
        .unwrap()
}

#[test]
fn the_tarball_installs_upgrades_and_leaves_nothing_behind() {
    let (tarball, system) = (unpacked(), tempfile::tempdir().unwrap());
    let installed = install(tarball.path(), system.path(), &[]);
    assert!(installed.status.success(), "{installed:?}");
    assert!(String::from_utf8_lossy(&installed.stdout).contains("sudo sqm setup"));
    let unit = std::fs::read_to_string(system.path().join("etc/systemd/system/sqm.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/sqm daemon"), "{unit}");
    let program = system.path().join("usr/local/bin/sqm");
    assert!(run(program.to_str().unwrap(), &["--version"]).status.success());

    // The next version has one file less. The configuration is the user's.
    std::fs::create_dir_all(system.path().join("etc/config")).unwrap();
    std::fs::write(system.path().join("etc/config/sqm"), "config queue\n").unwrap();
    std::fs::remove_file(tarball.path().join("share/man/man8/sqm.8")).unwrap();
    assert!(install(tarball.path(), system.path(), &[]).status.success());
    assert!(!system.path().join("usr/local/share/man/man8/sqm.8").exists());

    assert!(
        install(tarball.path(), system.path(), &["--uninstall"])
            .status
            .success()
    );
    assert_eq!(files(system.path()), ["/etc/config/sqm"]);
}

#[test]
fn an_installation_into_another_folder_is_removed_from_there() {
    let (tarball, system) = (unpacked(), tempfile::tempdir().unwrap());
    let prefix = ["--prefix", "/opt/sqm"];
    assert!(install(tarball.path(), system.path(), &prefix).status.success());
    let names = files(system.path());
    assert!(names.contains(&"/opt/sqm/bin/sqm".to_owned()), "{names:?}");
    // Without the folder the script does not find the installation, and removes nothing.
    let refused = install(tarball.path(), system.path(), &["--uninstall"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("was not installed there"));
    assert_eq!(files(system.path()), names);
    let purge = [&prefix[..], &["--uninstall", "--purge"]].concat();
    assert!(install(tarball.path(), system.path(), &purge).status.success());
    assert!(files(system.path()).is_empty());
}

#[test]
fn the_install_script_refuses_what_it_does_not_know() {
    let (tarball, system) = (unpacked(), tempfile::tempdir().unwrap());
    for options in [
        &["--prefx", "/opt"][..],
        &["--prefix"],
        &["--prefix", "opt"],
        &["--purge"],
    ] {
        let refused = install(tarball.path(), system.path(), options);
        assert_eq!(refused.status.code(), Some(1), "{options:?}");
        assert!(!refused.stderr.is_empty(), "{options:?}");
    }
    assert!(files(system.path()).is_empty());
}
