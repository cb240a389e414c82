//! A PPPoE line, dialled by the real `pppd` to a real `pppoe-server`. `sqm setup` finds the session and counts its
//! overhead, and the daemon shapes each new session, whose connections autorate sees.

use std::path::Path;
use std::process::Command;

use super::shared;
use sqm_lab::{Clock, Home, Line};

/// The modem answers calls and the router dials. Debian allows only some users to run `pppd`, but any user can run a
/// copy. `pppoe-server` normally hands a session to `pppd` through a terminal, for which the lab's kernel lacks the
/// line discipline. Here both ends of the session are in the kernel.
const DIAL: &str = r#"
cd /tmp
cp /usr/sbin/pppd pppd; chmod 755 pppd
[ -e /dev/ppp ] || mknod /dev/ppp c 108 0
printf 'noauth\nmtu 1492\nmru 1492\n' >options
cat >answer <<'END'
#!/bin/sh
id=$(echo "$2" | sed 's/.*-e \([^ ]*\).*/\1/')
shift 2
exec /tmp/pppd plugin rp-pppoe.so rp_pppoe_sess "$id" lan0 "$@"
END
chmod 755 answer
(exec ip netns exec modem pppoe-server -F -I lan0 -L 10.77.0.1 -R 10.77.0.2 -O /tmp/options -q /tmp/answer >server 2>&1) &
(exec ip netns exec router ./pppd plugin rp-pppoe.so wan0 noauth nodetach ifname pppoe-wan linkname wan \
    defaultroute replacedefaultroute persist maxfail 0 holdoff 1 mtu 1492 >dialled 2>&1) &
ip -n core route add 10.77.0.0/30 via 10.65.0.1
ip netns exec router iptables-legacy -t nat -A POSTROUTING -o pppoe-wan -j MASQUERADE
"#;

const TOOLS: &str = "
set +e
cd /tmp
index() { ip -n router -o addr show dev pppoe-wan 2>/dev/null | sed -n 's/^\\([0-9]*\\):.* inet .*/\\1/p'; }
# Waits for a session with a route and another index than this one.
session() {
    for try in $(seq 120); do
        now=$(index)
        [ -n \"$now\" ] && [ \"$now\" != \"$1\" ] && ip -n router route show default | grep -q pppoe-wan && return
        sleep 0.5
    done
    echo \"no session after a minute: $(cat dialled server)\"
}
# Starts the daemon for the session, with additional options.
begin() {
    printf \"config queue\\n option enabled 1\\n option interface pppoe-wan\\n option download 24000\\n option upload 4400\\n
        option script best_of_cake.qos\\n option link docsis\\n ${1:-}\" >sqm
    (exec ip netns exec router sqm daemon --config sqm >log 2>&1) & daemon=$!
}
has() { grep -q -- \"$1\" \"$2\" || { echo \"$2 lacks $1: $(cat $2)\"; }; }
";

fn dialled(line: &Line) -> Home {
    let home = shared::home(Clock::Virtual, line);
    home.script(DIAL)
        .expect("the programs are there: lab/deps.sh build");
    home
}

fn named(line: &str) -> Line {
    Line::named(line).expect("a known line")
}

/// The lab's VDSL2 line at other rates, Mbit/s: lower rates have fewer packets.
fn vdsl(down: u64, up: u64) -> Line {
    let mut line = named("vdsl80");
    line.down.kbits_per_sec = down * 1000;
    line.up.kbits_per_sec = up * 1000;
    line
}

fn nothing_to_say(home: &Home, script: &str) {
    let said = home.script(&format!("{TOOLS}{script}")).expect("the lab answers");
    assert!(said.is_empty(), "{said}");
}

/// Installs the Debian package on the router, in place of the program that the lab brings along. Returns the folder with the package,
/// which the guest reads. The guest sees this machine's files, and what it writes stays in its memory.
fn install_package(home: &Home) -> tempfile::TempDir {
    // The lab covers /tmp.
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("open to the guest");
    let built = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/debian/build.sh"))
        .args([
            env!("CARGO_BIN_EXE_sqm"),
            folder.path().to_str().expect("UTF-8"),
            "200",
        ])
        .env("DPKG_DEB_COMPRESSOR_TYPE", "none")
        .output()
        .expect("build.sh runs");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    home.script(&format!(
        "for tree in usr var; do
             mkdir -p /run/install/$tree/upper /run/install/$tree/work
             mount -t overlay overlay -o lowerdir=/$tree,upperdir=/run/install/$tree/upper,workdir=/run/install/$tree/work /$tree
         done
         # Only root of this machine may read these.
         (cd /etc && rm -f shadow gshadow .pwd.lock *- && touch shadow gshadow)
         mkdir -p /run/install/dpkg/info /run/install/dpkg/updates
         dpkg-query --status libc6 libgcc-s1 passwd >/run/install/dpkg/status
         dpkg --admindir=/run/install/dpkg -i {} >/run/install/log 2>&1 || {{ cat /run/install/log >&2; exit 1; }}
         umount /run/bin/sqm; rm /run/bin/sqm
         [ $(command -v sqm) = /usr/bin/sqm ]",
        String::from_utf8_lossy(&built.stdout).trim()
    ))
    .expect("the package installs");
    folder
}

/// First by flags, then as a dialogue on a fresh Debian router with the package: kind of line, speeds, tests before and after, the
/// search for rates, the start at boot, the page with a password. The guest has no systemd: a stand-in records what `systemctl` was
/// asked for, and starts the page with the options that setup wrote.
#[test]
fn setup_finds_the_session_and_what_it_adds_to_a_packet() {
    let home = dialled(&vdsl(32, 8));
    nothing_to_say(
        &home,
        "session none
         ip netns exec router sqm setup --config sqm --link vdsl2 --advertised 32mbit 8mbit </dev/null >said 2>&1 || cat said
         has 'pppoe-wan leads to the internet: the default route goes through it' said
         has 'it has PPPoE' said
         has 'verified: the kernel holds what is configured' said
         # 22 bytes for VDSL2 and 8 for PPPoE.
         tc -n router qdisc show dev pppoe-wan root >tc; has 'cake 1: root .*bandwidth 6800Kbit .*ptm overhead 30 ' tc
         tc -n router qdisc show dev ifb4pppoe-wan root >tc; has 'cake 1: root .*bandwidth 27200Kbit .*ptm overhead 30 ' tc
         ip netns exec router sqm stop >stopped 2>&1 || cat stopped",
    );
    let _package = install_package(&home);
    let said = home
        .script(
            "set +e; cd /tmp
             mkdir -p bin
             cat >bin/systemctl <<'END'
#!/bin/sh
echo \"$@\" >>/tmp/enabled
[ \"$*\" != 'enable --now sqm-web.service' ] || { . /etc/default/sqm; setsid sqm web $SQM_WEB_OPTIONS >/tmp/page 2>&1 & }
END
             cat >walk <<'END'
mount -t tmpfs none /etc/default; mount -t tmpfs none /var/lib; echo 'OTHER=1' >/etc/default/sqm
export PATH=/tmp/bin:$PATH
sqm setup --server 10.66.0.2; echo \"exit $?, $(($(date +%s) - $1)) s\"; cat /etc/default/sqm /etc/config/sqm
curl -sk https://192.168.1.1:8443/api/v1/session; echo
# The same by flags, without a terminal. A page that is set up keeps its address.
again() { sqm setup --link vdsl2 --advertised 32mbit 8mbit --page \"$@\" >flags 2>&1 </dev/null; echo \"flags: exit $?\"; }
again; grep -q 'the page: https://192.168.1.1:8443/' flags || cat flags
rm /var/lib/sqm-web/password; again; cat flags
echo short >password; again --page-password password; cat flags
END
             chmod 755 bin/systemctl
             # A password is typed after the terminal has asked for it, because it discards what was typed before.
             typed() { until grep -q \"$1\" said; do sleep 1; done; printf \"$2\"; }
             { printf 'vdsl\n32 Mbit/s\n\n\n\n\n'; typed 'Password: ' 'correct horse\n'; typed 'Again: ' 'correct horse\n'; } |
                 script -qefc \"ip netns exec router sh walk $(date +%s)\" /dev/null >said
             cat said enabled page
             readlink -e /etc/systemd/system/multi-user.target.wants/sqm.service
             ip netns exec router sqm verify && echo in force
             for pid in $(pidof sqm); do case $(tr '\\0' ' ' </proc/$pid/cmdline) in 'sqm web'*) kill $pid; esac; done",
        )
        .expect("the dialogue ends");
    println!("{said}");
    let has = |text: &str| assert!(said.contains(text), "no '{text}': {said}");
    has("verified: the kernel holds what is configured");
    has("enable --now sqm.service");
    has("/lib/systemd/system/sqm.service");
    has("in force");
    has("overhead   30, of vdsl2: measured");
    has("Open the page to browsers at https://192.168.1.1:8443/?");
    has("the page: https://192.168.1.1:8443/");
    has("OTHER=1\r\nSQM_WEB_OPTIONS=\"--listen 192.168.1.1:8443 --tls\"");
    has("try-restart sqm-web.service\nenable --now sqm-web.service");
    has("\"password_set\":true");
    has("flags: exit 0");
    has(
        "flags: exit 2\r\nsqm: the page's password is missing and standard input is not a terminal: give --page-password FILE",
    );
    has("flags: exit 2\r\nsqm: a password has 8 to 1024 bytes, this one 5");
    let seconds = between(&said, "exit 0, ", " s").expect("setup succeeds");
    assert!(seconds.parse::<u64>().expect("a number") < 240, "{seconds} s");
    let rate = |direction: &str| -> f64 {
        let kbit = between(&said, &format!("option {direction} '"), "'").expect("a rate");
        kbit.parse().expect("a number")
    };
    // CAKE counts a packet of 1492 bytes and its 30 bytes of overhead as 65 bytes for each 64, the lab's line as they are.
    let ptm = 65.0 / 64.0;
    for (direction, line) in [("download", 32_000.0 * ptm), ("upload", 8000.0 * ptm)] {
        assert!(
            (line * 0.97..line * 1.001).contains(&rate(direction)),
            "{direction}: {said}"
        );
    }
    let grade = |when: &str| between(&said, &format!("{when}: grade "), ",").expect("a grade");
    assert!(["D", "F"].contains(&grade("before")), "{said}");
    assert!(["A+", "A"].contains(&grade("now")), "{said}");
}

#[test]
fn tests_of_the_session_give_rates_and_its_shaping_is_compared() {
    let home = dialled(&vdsl(16, 4));
    nothing_to_say(
        &home,
        "session none
         ip netns exec router sqm setup --config sqm --link vdsl2 --advertised 16mbit 4mbit </dev/null >said 2>&1 || cat said
         ip netns exec router sqm stop --config sqm >stopped 2>&1 || cat stopped",
    );
    // The rates that setup takes from tests of the unshaped line are up to 5 % below the line's, whose packets CAKE counts as 65 bytes
    // for each 64. A test of one direction leaves the other rate as it was, and one with both at once is far below, with a warning.
    nothing_to_say(
        &home,
        "measure() { ip netns exec router sqm test 10.66.0.2 --quiet --idle 1 --after 0 --json \"$@\" || echo \"$@\"; }
         rates() { ip netns exec router sqm setup --config sqm --dry-run --link vdsl2 --test \"$@\" </dev/null >said 2>warned; }
         # An option of the configuration that setup would write is between these values.
         between() { value=$(sed -n \"s/.*option $1 '\\([0-9]*\\)'.*/\\1/p\" said)
             [ \"$value\" -ge $2 ] && [ \"$value\" -le $3 ] || echo \"$4: $1 $value: $(cat warned)\"; }
         measure phases; measure down --up 0 --duration 10; measure up --down 0 --duration 10; measure both --together --duration 20
         rates phases; between download 15200 16250 phases; between upload 3800 4062 phases; [ -s warned ] && cat warned
         rates down up; between download 15200 16250 'two files'; between upload 3800 4062 'two files'
         rates down; between download 15200 16250 'one file'; between upload 3400 3400 'one file'
         rates both; between download 1000 14000 both; has 'understates what the line carries: run' warned
         true",
    );
    let said = home
        .script(
            "set +e; cd /tmp
             ip netns exec router sqm start --config sqm
             # Responsiveness without and with what was set up, as one document.
             (exec ip netns exec router sqm daemon --config sqm >kept 2>&1) & daemon=$!
             for try in $(seq 60); do ip netns exec router sqm status --daemon | grep -q '^pppoe-wan: shaped' && break; sleep 0.5; done; cat kept
             ip netns exec router sqm test --rpm --insecure --port 35353 10.66.0.2 --duration 8s --without-and-with pppoe-wan --json >pair 2>progress
             echo \"pair: exit $?\"; tail -n 3 progress
             ip netns exec router sqm verify --config sqm >verified && echo 'in force again' || cat verified
             kill $daemon; wait $daemon",
        )
        .expect("the tests end");
    for text in ["pair: exit 0", "in force again"] {
        assert!(said.contains(text), "no '{text}': {said}");
    }
    let pair = home.run_ok("router", &["cat", "/tmp/pair"]).expect("the pair");
    let pair: serde_json::Value = serde_json::from_str(&pair).expect("JSON");
    let figure = |name: &str, which: &str| pair["comparison"][name][which].as_f64().expect(name);
    assert_eq!(
        (&pair["version"], &pair["with"]["version"]),
        (&1.into(), &1.into())
    );
    assert!(
        figure("download_rpm", "with") > 2.0 * figure("download_rpm", "without"),
        "{pair}"
    );
    assert_eq!(pair["comparison"]["idle_ms"]["with"], pair["with"]["idle_ms"]);
    // TCP payload that the upload can carry: the report counts what arrived, not what left for the buffer of half a second.
    let upload = pair["without"]["upload"]["mbit"].as_f64().expect("an upload");
    assert!((3.0..4.0 * 1440.0 / 1522.0).contains(&upload), "{pair}");
    // The modem's buffer delays the handshakes of new connections, too.
    let added = pair["without"]["upload"]["added"]["median_ms"].as_f64();
    assert!(added > Some(200.0), "{pair}");
}

/// The text between two others, at its first occurrence.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

#[test]
fn each_new_session_is_shaped_within_a_second() {
    let home = dialled(&named("cable24"));
    nothing_to_say(
        &home,
        "session none
         begin
         for n in 1 2; do
             before=$(index)
             # The provider or the router ends the session.
             case $((n % 2)) in
                 0) pkill -HUP -F /run/ppp-wan.pid ;;
                 1) kill -TERM $(ip netns pids modem | xargs ps -o pid=,args= -p | sed -n 's/^ *\\([0-9]*\\) .*rp_pppoe_sess.*/\\1/p') ;;
             esac
             session ${before:-none}
             sleep 1
             ip netns exec router sqm verify --config sqm >said 2>&1 || { echo \"session $n: $(cat said)\"; cat log; }
             ip netns exec router sqm status --daemon >said 2>&1; has '^pppoe-wan: shaped' said
             tc -n router qdisc show dev pppoe-wan root >tc; has 'bandwidth 4400Kbit .* overhead 26 ' tc
         done
         kill -TERM $daemon; wait $daemon; [ $? = 0 ] || echo \"TERM: exit $?\"
         ip -n router link show ifb4pppoe-wan 2>/dev/null && echo 'the ifb is left'
         true",
    );
}

#[test]
fn the_daemon_sees_connections_in_the_session() {
    let home = dialled(&named("cable24"));
    nothing_to_say(
        &home,
        "session none
         begin 'option autorate 1\\n list autorate_reflectors 192.0.2.1\\n'
         for try in $(seq 20); do grep -q 'pppoe-wan: shaped' log && break; sleep 0.5; done
         has 'pppoe-wan: shaped' log",
    );
    let flows = ["--test", "rrul_be_nflows", "--down", "2", "--up", "2"];
    let found = shared::load(
        &home,
        &[&flows[..], &["--settle", "2", "--duration", "10"]].concat(),
    );
    assert!(found.down > 10.0, "{found:?}");
    nothing_to_say(
        &home,
        "ip netns exec router sqm status --daemon --json >said
         # Four connections with ten samples a second each, less the time until the clocks are known.
         seen=$(sed -n 's/.*\"tcp_samples\": *\\([0-9]*\\).*/\\1/p' said)
         [ \"${seen:-0}\" -ge 150 ] || echo \"$seen samples: $(cat said log)\"",
    );
}
