//! `sqm daemon` on a real kernel: whatever happens to an interface, it is shaped as planned within a second of being
//! usable, or the status gives the reason.

use std::collections::BTreeSet;
use std::path::Path;

use sqm_autorate::cake_autorate::CakeAutorate;
use sqm_autorate::{Bounds, Controller, Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Bytes, Instant, Nanos, Rate};
use sqm_lab::{Clock, Home, Line};

/// Shell functions shared by the scripts: the router's d0, a veth whose peer is in the core, and the daemon.
const TOOLS: &str = "
set +e
cd /tmp
make_device() {
    ip -batch - <<BATCH
link add $1 type veth peer name ${1}p netns core
BATCH
    ip -batch - <<BATCH
addr add 10.9.0.1/30 dev $1
link set $1 up
BATCH
    ip -n core -batch - <<BATCH
addr add 10.9.0.2/30 dev ${1}p
link set ${1}p up
BATCH
}
start_daemon() { (exec sqm daemon --config /tmp/sqm \"$@\" >>/tmp/log 2>&1) & daemon=$!; }
verified() { sqm verify --config /tmp/sqm >/tmp/said 2>&1; }
# One second after an event. In virtual time only waiting takes time, so the second is exact.
within_a_second() {
    sleep 1
    verified || { echo \"$1: not as planned after a second: $(cat /tmp/said)\"; sqm status --daemon; }
    sqm status --daemon | grep -q \"^d0: shaped\" || { echo \"$1: the status does not say so\"; sqm status --daemon; }
}
says() {
    sleep 1
    sqm status --daemon >/tmp/said 2>&1
    grep -q \"$2\" /tmp/said || { echo \"$1: the status does not say why: $(cat /tmp/said)\"; }
}
";

fn boot() -> Home {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    config(&home, "best_of_cake", 24000);
    home
}

fn config(home: &Home, script: &str, download: u32) {
    let text = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'd0'\n\toption download '{download}'\n\
         \toption upload '4400'\n\toption script '{script}.qos'\n\toption link 'docsis'\n"
    );
    home.write("/tmp/sqm", text.as_bytes()).expect("a file");
}

/// Runs the script and fails with its output, if there is any.
fn nothing_to_say(home: &Home, script: &str) {
    let said = home
        .script_on("router", &format!("{TOOLS}{script}"))
        .expect("the lab answers");
    assert!(said.is_empty(), "{said}\n{}", log(home));
}

fn log(home: &Home) -> String {
    home.script_on("router", "cat /tmp/log").unwrap_or_default()
}

#[test]
fn a_device_is_shaped_within_a_second_of_any_event() {
    let home = boot();
    nothing_to_say(
        &home,
        "start_daemon
         says absent 'there is no network device d0'
         make_device d0
         within_a_second 'late arrival'
         tc qdisc show dev d0 root | grep -q 'cake 1: root .*bandwidth 4400Kbit' || echo 'tc sees no cake'

         ip link set d0 mtu 1400; within_a_second 'mtu'
         ip -n core link set d0p down; within_a_second 'carrier lost'
         ip -n core link set d0p up; within_a_second 'carrier back'
         ip link set d0 down; within_a_second 'down'
         ip link set d0 up; within_a_second 'up'

         tc qdisc replace dev d0 root handle 9: fq_codel; within_a_second 'another root'
         tc qdisc del dev d0 ingress; within_a_second 'no redirect'
         ip link del ifb4d0; within_a_second 'no ifb'
         ip link set ifb4d0 down; within_a_second 'ifb down'

         ip link set d0 down; ip link set d0 name d1; ip link set d1 up
         says renamed 'it was renamed to d1, and is no longer shaped'
         tc qdisc show dev d1 | grep cake && echo 'd1 is still shaped'
         ip link show ifb4d0 2>/dev/null && echo 'the ifb is left'
         ip link set d1 down; ip link set d1 name d0; ip link set d0 up
         within_a_second 'renamed back'

         ip link del d0
         says gone 'there is no network device d0'
         make_device d0
         within_a_second 'made again'
         # An entry names its interface once.
         grep -q '^d0: ' log || echo 'no entry of d0'; grep '^d0: d0: \\|; d0: ' log
         kill -TERM $daemon; wait $daemon; [ $? = 0 ] || echo \"TERM: exit $?\"
         tc qdisc show dev d0 | grep cake && echo 'TERM leaves the queues'
         ip link show ifb4d0 2>/dev/null && echo 'TERM leaves the ifb'
         ls /var/run/sqm | grep -v lock && echo 'TERM leaves files'
         true",
    );
}

/// Receives what journald would receive, and prints each field as a line `NAME=value`, with an empty line after each
/// entry (systemd's native journal protocol).
const JOURNAL: &str = r#"
import os, socket
os.makedirs("/run/systemd/journal", exist_ok=True)
journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
journal.bind("/run/systemd/journal/socket")
print("ready", flush=True)
while True:
    left = journal.recv(65536)
    while left:
        line, left = left.split(b"\n", 1)
        if b"=" not in line:
            length = int.from_bytes(left[:8], "little")
            line, left = line + b"=" + left[8:8 + length], left[9 + length:]
        print(line.decode())
    print(flush=True)
"#;

/// The guest has no journald; a script takes its place.
#[test]
fn under_systemd_each_log_entry_has_a_priority_and_its_interface() {
    let home = boot();
    home.write("/tmp/journal.py", JOURNAL.as_bytes()).expect("a file");
    nothing_to_say(
        &home,
        r#"entry() { awk -v RS= "/MESSAGE=$1/" entries | grep -q "^$2\$" || { echo "$1: no $2:"; cat entries; }; }
         python3 journal.py >entries & journal=$!
         until grep -qs ready entries; do sleep 0.1; done
         touch log; export JOURNAL_STREAM=$(stat -c %d:%i log)
         make_device d0; start_daemon; within_a_second start
         # Notice, and error.
         entry 'd0: shaped' PRIORITY=5; entry 'd0: shaped' SQM_INTERFACE=d0; entry 'd0: shaped' SQM_KIND=state
         cp sqm good; sed -i s/4400/44mbits/ sqm; kill -HUP $daemon; says 'a wrong file' 44mbits
         entry '.*44mbits' PRIORITY=3
         [ -s log ] && { echo 'standard error has entries, too:'; cat log; }
         cp good sqm; kill -TERM $daemon; wait $daemon

         # Elsewhere they are lines, of the wanted level and above.
         unset JOURNAL_STREAM; start_daemon --log-level debug; within_a_second debug
         grep -q '^debug: the kernel reports' log && grep -q '^d0: shaped' log || cat log
         kill -TERM $daemon; wait $daemon; >log
         SQM_LOG_LEVEL=error start_daemon; within_a_second error
         sed -i s/4400/44mbits/ sqm; kill -HUP $daemon; says 'a wrong file' 44mbits
         [ "$(grep -c '^error: ' log)" = "$(grep -c . log)" ] || cat log
         kill -TERM $daemon; wait $daemon; kill $journal; cp good sqm; >log

         # OpenWrt's system log: facility daemon, and the level of each entry.
         python3 -c '
import os, socket
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); log.bind("/dev/log")
print("ready", flush=True)
while True: print(log.recv(65536).decode(), flush=True)' >entries & syslog=$!
         until grep -qs ready entries; do sleep 0.1; done
         start_daemon --syslog; within_a_second syslog
         sed -i s/4400/44mbits/ sqm; kill -HUP $daemon; says 'a wrong file' 44mbits
         grep -q "^<30>sqm\[$daemon\]: d0: shaped" entries && grep -q "^<27>sqm\[$daemon\]: .*44mbits" entries || cat entries
         [ -s log ] && { echo 'standard error has entries, too:'; cat log; }
         kill -TERM $daemon; kill $syslog; true"#,
    );
}

#[test]
fn three_classes_with_firewall_rules_are_kept_in_force_too() {
    let home = boot();
    config(&home, "simple", 24000);
    nothing_to_say(
        &home,
        "make_device d0; start_daemon
         within_a_second 'start'
         nft delete table inet sqm_d0; within_a_second 'firewall'
         tc qdisc del dev d0 root; within_a_second 'no root'
         tc class change dev d0 parent 1:1 classid 1:11 htb rate 64kbit ceil 64kbit; within_a_second 'a class'
         ip link set d0 mtu 1300; within_a_second 'mtu, which bursts depend on'
         kill -TERM $daemon; wait $daemon
         nft list tables | grep sqm && echo 'TERM leaves the firewall'
         true",
    );
}

#[test]
fn a_device_recreated_many_times_under_load_is_shaped() {
    remove_and_make_again(8);
}

pub(crate) fn remove_and_make_again(times: u32) {
    let home = boot();
    nothing_to_say(
        &home,
        &(format!("times={times}\n") + "make_device d0; start_daemon
         (while :; do ip netns exec core ping -q -i 0.01 -c 50 10.9.0.1 >/dev/null 2>&1 || sleep 0.1; done) & load=$!
         within_a_second 'start'
         for n in $(seq $times); do
             ip link del d0
             [ $((n % 3)) = 0 ] && sleep 0.0$((n % 10))
             make_device d0
             within_a_second \"time $n\"
         done
         kill $load
         ip -o link show type ifb | grep -v 'ifb4d0\\|ifb[01]:' && echo 'devices are left'
         true"),
    );
}

#[test]
fn kill_9_of_the_daemon_at_some_points_leaves_the_line_shaped() {
    kill_the_daemon(2, 8);
}

/// Kills the daemon at this many random points in time, and before every `step`-th of 24 changes of the kernel.
pub(crate) fn kill_the_daemon(times: usize, step: usize) {
    let home = boot();
    // This setup script takes many steps.
    config(&home, "simple", 24000);
    nothing_to_say(
        &home,
        &(format!("times={times} step={step}\n")
            + "make_device d0
         # A minimal service manager: restarts the daemon whenever it ends.
         (until [ -e /tmp/over ]; do
             fault=$(cat /tmp/fault 2>/dev/null); rm -f /tmp/fault
             (SQM_FAULT=$fault exec sqm daemon --config /tmp/sqm >>/tmp/log 2>&1) & echo $! >/tmp/process
             wait $!; echo \"ended: $?\" >>/tmp/log; sleep 0.05
         done) &
         within_a_second 'start'
         # Pseudo-random moments after a change that causes work for the daemon; the same moments in every run.
         seed=20
         for n in $(seq $times); do
             seed=$(((seed * 1103515245 + 12345) % 2147483648))
             ip link del d0; make_device d0
             sleep 0.0$((seed / 65536 % 100))
             kill -9 $(cat /tmp/process)
             within_a_second \"time $n\"
         done
         # Then before each change of the kernel that shaping a device needs.
         for n in $(seq 1 $step 24); do
             echo kill@$n >/tmp/fault
             ip link del d0; ip link del ifb4d0
             kill -9 $(cat /tmp/process)
             sleep 0.2
             make_device d0
             within_a_second \"change $n\"
         done
         touch /tmp/over; kill -TERM $(cat /tmp/process); sleep 1
         tc qdisc show dev d0 | grep htb && echo 'queues are left'
         ip link show ifb4d0 2>/dev/null && echo 'the ifb is left'
         nft list tables | grep sqm && echo 'the firewall is left'
         true"),
    );
    let killed = log(&home).matches("ended: 137").count();
    // One at each random point in time, one in each round, and another one in each round whose change was reached.
    let rounds = 24_usize.div_ceil(step);
    assert!(
        killed >= times + rounds + rounds * 2 / 3,
        "{killed} kills\n{}",
        log(&home)
    );
}

#[test]
fn some_events_leave_memory_and_descriptors_as_they_were() {
    events_leave_memory_and_descriptors(50);
}

/// Causes about two hundred events, then three in each round. Memory and descriptors must not grow in the rounds.
pub(crate) fn events_leave_memory_and_descriptors(rounds: u32) {
    let home = boot();
    let said = home.script_on("router", &format!(
            "{TOOLS}
             make_device d0; start_daemon
             within_a_second 'start'
             process=$daemon
             look() {{ echo \"$1 $(ls /proc/$process/fd | wc -l) $(sed -n 's/VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$process/status)\"; }}
             storm() {{
                 for n in $(seq $1); do
                     # Rarely enough that the daemon repairs it each time and does not back off.
                     [ $((n % 60)) = 0 ] && tc qdisc replace dev d0 root handle 9: fq_codel
                     ip -batch - <<BATCH
link set d0 mtu $((1400 + n % 50))
link set d0 down
link set d0 up
BATCH
                     sleep 0.3
                 done
             }}
             storm 67; sleep 1; look before
             storm {rounds}; sleep 1; look after
             within_a_second end; kill -TERM $daemon"
        ))
        .expect("the lab answers");
    let figures: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    let [before, after] = figures.as_slice() else {
        panic!("{said}\n{}", log(&home));
    };
    println!("descriptors and memory in kB after 200 events and in the end:\n{said}");
    assert_eq!(before[1], after[1], "descriptors: {said}");
    let kilobytes = |row: &[&str]| row[2].parse::<u64>().expect("a number");
    assert!(
        kilobytes(after) <= kilobytes(before) + 128,
        "memory, kB, after 200 events and in the end: {said}"
    );
}

#[test]
fn metrics_of_real_queues_are_openmetrics_and_agree_with_tc() {
    let home = boot();
    let said = home
        .script_on(
            "router",
            &format!(
                "{TOOLS}
                 make_device d0; start_daemon --metrics 127.0.0.1:9469
                 within_a_second 'start'
                 # A different number of packets for EF, CS1 and unmarked.
                 ping -q -Q 0xb8 -c 7 -i 0.01 10.9.0.2 >/dev/null
                 ping -q -Q 0x20 -c 5 -i 0.01 10.9.0.2 >/dev/null
                 ping -q -c 3 -i 0.01 10.9.0.2 >/dev/null
                 bash -c 'exec 3<>/dev/tcp/127.0.0.1/9469; printf \"GET /metrics HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3' | tr -d '\\r' >metrics
                 tc -s -j qdisc show dev d0 root
                 sed '1,/^$/d' metrics
                 kill -TERM $daemon"
            ),
        )
        .expect("the lab answers");
    let (tc, text) = said.split_once('\n').expect("two answers");
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(text).expect("it is OpenMetrics");
    assert!(
        parsed.families.contains_key("sqm_tin_delay_peak_seconds"),
        "{text}"
    );
    let tc: serde_json::Value = serde_json::from_str(tc).expect("tc prints JSON");
    let sample = |family: &str, tin: usize| -> u64 {
        let tin = format!("tin=\"{}\"", ["Bulk", "Best Effort", "Video", "Voice"][tin]);
        let line = text.lines().find(|line| {
            line.starts_with(family) && line.contains(&tin) && line.contains("direction=\"egress\"")
        });
        let line = line.unwrap_or_else(|| panic!("no {family} of {tin}: {text}"));
        let value = line.rsplit(' ').next().expect("a value");
        value.parse().expect("a number")
    };
    for tin in 0..4 {
        let theirs = &tc[0]["tins"][tin];
        assert_eq!(
            sample("sqm_tin_arrived_packets_total", tin),
            theirs["sent_packets"],
            "{tin}"
        );
        assert_eq!(
            sample("sqm_tin_arrived_bytes_total", tin),
            theirs["sent_bytes"],
            "{tin}"
        );
    }
    assert!(sample("sqm_tin_arrived_packets_total", 3) >= 7, "{text}");
    assert!(sample("sqm_tin_arrived_packets_total", 0) >= 5, "{text}");
}

/// Changes the rates of the CAKEs on d0 and ifb4d0 20 times a second to those in `rates`, by netlink, and asks for the kernel's
/// answer each time.
const CONTROLLER: &str = r#"
import socket, struct, time
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def attribute(kind, value): return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
def change(device, bits):
    # RTM_NEWQDISC without NLM_F_CREATE, of the root 1:; TCA_KIND, and TCA_OPTIONS with TCA_CAKE_BASE_RATE64.
    rate = attribute(2, struct.pack("Q", bits // 8))
    body = struct.pack("BxxxiIII", 0, device, 0x10000, 0xFFFFFFFF, 0) + attribute(1, b"cake\0") + attribute(2, rate)
    netlink.send(struct.pack("IHHII", 16 + len(body), 36, 5, 0, 0) + body)
    error, = struct.unpack_from("i", netlink.recv(4096), 16)
    if error: print("change:", error)
upload, download = [socket.if_nametoindex(name) for name in ("d0", "ifb4d0")]
for line in open("/tmp/rates"):
    rates = line.split()
    change(download, int(rates[0])); change(upload, int(rates[1]))
    time.sleep(0.05)
"#;

/// The rates of cake-autorate, bit/s, in steps of 50 ms for two and a half minutes: both directions are used fully, and the line's
/// capacity falls and rises each half minute.
fn rates_of_cake_autorate() -> String {
    let mbits = |n: u64| Some(Rate::from_bits_per_sec(n * 1_000_000));
    let bounds = |least, base, most| Bounds {
        min: mbits(least),
        base: mbits(base),
        max: mbits(most),
    };
    let bounds = PerDirection::from([bounds(2, 20, 60), bounds(1, 4, 12)]);
    let mut controller = CakeAutorate::new(Instant(0), bounds);
    let mut rates = PerDirection::from([20_000_000, 4_000_000]);
    let mut text = String::new();
    for step in 0..3000_u64 {
        let now = Instant(step * 50_000_000);
        let capacity = PerDirection::from(match (step / 600) % 2 {
            0 => [30_000_000, 6_000_000],
            _ => [10_000_000, 2_000_000],
        });
        let is_full = Direction::BOTH
            .into_iter()
            .any(|direction| rates[direction] > capacity[direction]);
        let rtt = Nanos::from_millis(if is_full { 200 } else { 25 });
        let sent = Instant(now.0.saturating_sub(rtt.0));
        let reflector = (step % 6) as u16;
        let signal = Signal::Echo { reflector, sent, rtt };
        let mut samples = vec![Sample { at: now, signal }];
        for direction in Direction::BOTH {
            let passed = rates[direction].min(capacity[direction]);
            let signal = Signal::Traffic {
                direction,
                bytes: Bytes(passed / 160),
                span: Nanos::from_millis(50),
            };
            samples.push(Sample { at: now, signal });
        }
        let decision = controller.step(now, &samples);
        rates = decision.rates.map(|choice| choice.rate.bits_per_sec());
        text += &format!("{} {}\n", rates.download, rates.upload);
    }
    text
}

#[test]
fn the_daemon_backs_off_from_a_persistent_program_and_leaves_the_rates_to_a_controller() {
    let home = boot();
    home.write("/tmp/controller.py", CONTROLLER.as_bytes())
        .expect("a file");
    let rates = rates_of_cake_autorate();
    let different: BTreeSet<_> = rates.lines().collect();
    assert!(different.len() > 300, "{}", different.len());
    home.write("/tmp/rates", rates.as_bytes()).expect("a file");
    nothing_to_say(
        &home,
        "make_device d0; start_daemon
         within_a_second 'start'
         for n in 1 2 3 4 5; do tc qdisc replace dev d0 root handle 9: fq_codel; sleep 0.5; done
         says contested 'd0: contested'
         grep -q 'another program has changed the queues 5 times.*has replaced sqm.s cake 1: with fq_codel 9:' said || cat said
         tc qdisc replace dev d0 root handle 9: fq_codel; says 'backs off' 'd0: contested'
         tc qdisc show dev d0 root | grep -q 'fq_codel 9:' || echo 'the daemon does not back off'
         sleep 61
         within_a_second 'later'
         kill -TERM $daemon; wait $daemon

         start_daemon --drift report
         within_a_second 'report: start'
         tc qdisc replace dev d0 root handle 9: fq_codel
         says report 'd0: drifted'
         tc qdisc show dev d0 root | grep -q 'fq_codel 9:' || echo 'repaired, though it should only report'
         grep -q 'planned.*cake' said || cat said
         kill -TERM $daemon; wait $daemon

         # A person's change of a rate is undone. Those of a controller are not, while a changed overhead is repaired.
         counts() { sqm status --daemon | grep -q \"repaired: $2)\" || { echo \"$1:\"; sqm status --daemon; }; }
         start_daemon; within_a_second 'beside a controller'; >log
         tc qdisc change dev d0 root cake bandwidth 1mbit; within_a_second person; counts person 1
         python3 controller.py & controller=$!
         says controller 'another program controls the rates'
         # verify and doctor name the controller and its rates, and find no fault. Without the daemon they know of none.
         moves='d0: another program, a rate controller, moves the rates, .* d0 at [0-9.]*.bit'
         sqm verify --config /tmp/sqm >said 2>&1 || { echo 'verify beside a controller:'; cat said; }
         grep -q \"$moves\" said && grep -q 'apart from these rates the kernel holds what is configured' said || cat said
         sqm verify --config /tmp/sqm --json | tr -d '[:space:]' | grep -q '^\\[\\]$' || echo 'verify: the JSON has a difference'
         sqm doctor --seconds 0 --config /tmp/sqm >said 2>&1; grep -q \"note: $moves\" said && ! grep 'not-shaped\\|other-queue' said || cat said
         sqm bugreport --seconds 0 --config /tmp/sqm --out - | grep -q \"$moves\" || echo 'the report does not name the controller'
         sqm verify --config /tmp/sqm --state-dir /tmp/none >said 2>&1 && echo 'verify without a daemon: no difference'
         for n in 2 3 4; do
             sleep 45; tc qdisc change dev d0 root cake overhead 40; sleep 1
             tc qdisc show dev d0 root | grep -q 'overhead 18 mpu 64' || { echo \"overhead $n:\"; tc qdisc show dev d0 root; }
             counts \"overhead $n\" $n
         done
         wait $controller || echo 'the controller failed'
         counts end 4; [ $(grep -c 'controls the rates' log) = 1 ] || echo 'not said once'
         sqm status --daemon --json | python3 -c '
import json, sys
[interface] = json.load(sys.stdin)[\"interfaces\"]
other = interface[\"rate_controller\"]
if (interface[\"state\"], other[\"directions\"], other[\"ends_after_seconds\"]) != (\"shaped\", [\"download\", \"upload\"], 600): print(interface)'
         sleep 540; tc qdisc show dev d0 root | grep -q 4400Kbit && echo 'taken back too soon'
         sleep 62; within_a_second silent; counts silent 5
         grep -q 'the other program has not changed the rates for 600 s' log || echo 'the end is not said'

         # Rates of HTB and TBF, and `option drift`.
         sed -i 's/best_of_cake/simple/' sqm; kill -HUP $daemon; within_a_second simple
         for n in 1 2 3 4 5 6 7 8; do tc class change dev d0 classid 1:1 htb rate ${n}mbit ceil ${n}mbit; sleep 0.4; done
         says htb 'another program controls the rates'; counts htb 5
         sed -i 's/simple/simplest_tbf/; /option link/d' sqm; echo \"	option drift report\" >>sqm; kill -HUP $daemon; sleep 1
         for n in 1 2 3 4 5 6 7 8; do tc qdisc change dev d0 root handle 1: tbf rate ${n}mbit burst 5kb latency 300ms; sleep 0.4; done
         says tbf 'another program controls the rates'; counts tbf 5
         tc qdisc replace dev d0 root handle 9: fq_codel; says 'option drift' 'd0: drifted'
         tc qdisc show dev d0 root | grep -q 'fq_codel 9:' || echo 'repaired in spite of the option'
         true",
    );
}

#[test]
fn other_commands_work_while_the_daemon_runs() {
    let home = boot();
    nothing_to_say(
        &home,
        "make_device d0; start_daemon
         within_a_second 'start'
         sqm stop d0 >/dev/null
         says stopped 'stopped by hand'
         tc qdisc show dev d0 | grep cake && echo 'stop did not last'
         sqm start --config /tmp/sqm >/dev/null; within_a_second 'started by hand'

         # A file with errors changes nothing, and the status reports it.
         cp sqm good; echo \"	option uplaod '1'\" >>sqm; sed -i s/4400/44mbits/ sqm
         kill -HUP $daemon; says wrong \"44mbits\"
         cp good sqm; kill -HUP $daemon; within_a_second 'right again'

         # Another rate, by a reload of the daemon, and by `sqm reload`, whose configuration the daemon takes over.
         sed -i s/4400/4100/ sqm; kill -HUP $daemon; within_a_second 'HUP'
         tc qdisc show dev d0 root | grep -q 'bandwidth 4100Kbit' || echo 'HUP: another rate'
         sed -i s/4100/3000/ sqm; sqm reload --config /tmp/sqm >/dev/null; within_a_second 'sqm reload'
         tc qdisc show dev d0 root | grep -q 'bandwidth 3Mbit' || echo 'sqm reload was undone'

         # A text of one's own that has changed, while the configuration has not.
         cp sqm built_in; sed -i s/best_of_cake.qos/mine.tc/ sqm
         both() { printf 'tc qdisc add dev $IFACE root cake bandwidth %s\\ntc qdisc add dev $IFB root cake bandwidth $DOWNLINK\\n' $1 >mine.tc; }
         both 7mbit; kill -HUP $daemon; within_a_second 'own text'
         both 6mbit; kill -HUP $daemon; within_a_second 'HUP after a change of the text'
         tc qdisc show dev d0 root | grep -q 'bandwidth 6Mbit' || echo 'HUP: another text'
         both 5mbit; sqm reload --config /tmp/sqm >/dev/null; within_a_second 'sqm reload after a change of the text'
         tc qdisc show dev d0 root | grep -q 'bandwidth 5Mbit' || echo 'sqm reload of another text was undone'
         both 5mbits; kill -HUP $daemon; says 'a text with an error' \"mine.tc:1\"
         tc qdisc show dev d0 root | grep -q 'bandwidth 5Mbit' || echo 'a text with an error has changed the queues'
         cp built_in sqm; kill -HUP $daemon; within_a_second 'a built-in setup script again'

         # The daemon leaves an unconfirmed change alone, and its rollback stays.
         sed -i s/3000/2000/ sqm; sqm start --confirm 3 --config /tmp/sqm >/dev/null 2>&1 &
         says trial 'waits for'
         tc qdisc show dev d0 root | grep -q 'bandwidth 2Mbit' || echo 'the trial was undone too soon'
         sleep 4; tc qdisc show dev d0 root | grep -q 'bandwidth 3Mbit' || echo 'the trial was not undone'
         says 'after the trial' 'd0: shaped'

         # A section that is disabled, and enabled again.
         cp sqm full; sed -i 's/enabled .1./enabled 0/' sqm; kill -HUP $daemon; sleep 1
         tc qdisc show dev d0 | grep cake && echo 'what is disabled is still shaped'
         cp full sqm; kill -HUP $daemon; within_a_second 'enabled again'

         # A second daemon is refused; a daemon that ends by QUIT is replaced without a gap.
         sqm daemon --config /tmp/sqm >said 2>&1; [ $? = 1 ] && grep -q 'another daemon' said || cat said
         tc monitor >events & monitor=$!
         ping -q -i 0.01 -w 4 10.9.0.2 >/dev/null & ping=$!; sleep 1
         through_the_device() { ip -s link show d0 | awk '/TX:/ { getline; print $2 }'; }
         through_the_queue() { tc -s qdisc show dev d0 root | awk '/Sent/ { print $4; exit }'; }
         device=$(through_the_device); queue=$(through_the_queue)
         kill -QUIT $daemon; wait $daemon || echo \"QUIT: exit $?\"
         verified || echo \"QUIT takes the queues away: $(cat said)\"
         sleep 1; start_daemon; within_a_second 'the next one'
         wait $ping; kill $monitor
         device=$(($(through_the_device) - device)); queue=$(($(through_the_queue) - queue))
         [ $device -gt 100 ] && [ $device = $queue ] || echo \"QUIT: $device packets left, $queue of them through the queue\"
         cat events
         grep -q 'stay as they are' log || cat log
         kill -TERM $daemon; wait $daemon

         # A daemon that starts with a wrong file leaves the queues alone, and takes the corrected file.
         sqm start --config /tmp/sqm >/dev/null; cp sqm good; echo nonsense >sqm; >log; start_daemon
         says wrong \"no interface is shaped: /tmp/sqm:1: unknown keyword 'nonsense'\"
         tc qdisc show dev d0 root | grep -q cake || echo 'the queues are gone'
         cp good sqm; sleep 1; within_a_second corrected; [ $(grep -c nonsense log) = 1 ] || cat log
         kill -TERM $daemon; wait $daemon
         true",
    );
}

#[test]
fn an_interface_stopped_by_hand_stays_stopped_until_a_command_starts_it() {
    let home = boot();
    nothing_to_say(
        &home,
        "still() {
             sleep ${2:-1}
             tc qdisc show dev d0 | grep cake && echo \"$1: shaped again\"
             sqm status --daemon | grep -q '^d0: stopped' || { echo \"$1: the status does not say so\"; sqm status --daemon; }
         }
         stop() { sqm stop d0 >/dev/null; still \"$1: at once\"; }
         make_device d0; start_daemon
         within_a_second 'start'
         stop 'by hand'
         still 'the look of every 30 s' 31
         ip link set d0 mtu 1400; still 'mtu'
         ip link set d0 down; still 'down'
         ip link set d0 up; still 'up'
         ip -n core link set d0p down; still 'carrier lost'
         ip -n core link set d0p up; still 'carrier back'
         ip link add ifb4d0 type ifb; still 'an IFB of that name'
         ip link del ifb4d0; still 'no IFB'
         tc qdisc add dev d0 ingress; still 'ingress'
         tc qdisc del dev d0 ingress; still 'no ingress'
         nft add table inet other; still 'firewall'
         ip link del d0; says gone 'there is no network device d0'
         make_device d0; still 'another device of that name'
         still 'after all that' 61

         # The command shapes the interface itself, whatever the daemon does at that moment.
         sqm start --config /tmp/sqm >started; grep -q '^d0: shaped' started || cat started; within_a_second 'sqm start'
         ip link del d0; make_device d0; within_a_second 'made again, not stopped'
         stop HUP; kill -HUP $daemon; within_a_second 'HUP'
         stop 'a new daemon'; kill -TERM $daemon; wait $daemon; start_daemon; within_a_second 'a new daemon'
         # Stopped while the device does not exist.
         ip link del d0; sleep 1; sqm stop d0 >/dev/null; make_device d0; still 'stopped while it was away'
         sqm start --config /tmp/sqm >/dev/null; within_a_second 'started once more'

         # `sqm reload` with the section disabled does not count as a stop by hand.
         : >log; sed -i 's/enabled .1./enabled 0/' sqm; sqm reload --config /tmp/sqm >/dev/null; sleep 1
         sqm status --daemon >said; grep -q d0 said && cat said; grep 'stopped by hand' log
         sed -i 's/enabled 0/enabled 1/' sqm; kill -HUP $daemon; within_a_second 'enabled again'
         kill -TERM $daemon; wait $daemon; true",
    );
}

/// Requests to the daemon: `put TEXT SECONDS` changes its configuration, `api METHOD PATH` sends any request.
const ASK: &str = r#"
api() {
    python3 - "$1" "$2" "$3" <<'PYTHON'
import json, socket, sys
method, path, body = sys.argv[1:]
s = socket.socket(socket.AF_UNIX); s.connect("/var/run/sqm/api.sock")
s.sendall(f"{method} /v1{path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
print(answer.split("\r\n\r\n", 1)[1])
PYTHON
}
put() {
    python3 - "$1" "$2" >/tmp/put <<'PYTHON'
import json, socket, sys
def ask(method, body):
    s = socket.socket(socket.AF_UNIX); s.connect("/var/run/sqm/api.sock")
    s.sendall(f"{method} /v1/configuration HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return b"".join(iter(lambda: s.recv(65536), b"")).decode().split("\r\n\r\n", 1)[1]
revision = json.loads(ask("GET", ""))["revision"]
text = open(sys.argv[1]).read()
print(ask("PUT", json.dumps({"text": text, "revision": revision, "confirm_seconds": int(sys.argv[2])})))
PYTHON
    grep -q '"revision"' /tmp/put || { echo "put $1: $(cat /tmp/put)"; }
}
is_stopped() {
    tc qdisc show dev $2 | grep cake && echo "$1: $2 is shaped"
    sqm status --daemon | grep -q "^$2: stopped" || { echo "$1: the status does not say so"; sqm status --daemon; }
}
# Pauses an interface in the background, until the daemon ends the pause or the client is killed.
pause() {
    python3 - "$1" "$2" >/tmp/pause <<'PYTHON' &
import json, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect("/var/run/sqm/api.sock")
body = json.dumps({"interface": sys.argv[1], "seconds": int(sys.argv[2])})
s.sendall(f"POST /v1/pause HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
for part in iter(lambda: s.recv(65536), b""): print(part.decode(), flush=True)
PYTHON
    client=$!
    for n in $(seq 100); do grep -qs 'event: paused' /tmp/pause && return; sleep 0.1; done
    echo "$1 cannot be paused: $(cat /tmp/pause)"
}
is_paused() {
    tc qdisc show dev $2 | grep -E 'cake|ingress' && echo "$1: $2 is shaped"
    sqm status --daemon | grep -q "^$2: paused" || { echo "$1: the status does not say so"; sqm status --daemon; }
}
is_verified() { verified || echo "$1: not as planned: $(cat /tmp/said)"; }
holds() { tc qdisc show dev $2 root | grep -q "bandwidth $3 " || { echo "$1: $2 holds $(tc qdisc show dev $2 root)"; } }
counts() { sqm status --daemon | grep -q "^$2: shaped.*repaired: $3" || { echo "$1:"; sqm status --daemon; }; }
sections() { for device in d0 d1; do sed "s/'d0'/'$device'/; s/4400/$1/" /tmp/one; done; }
"#;

/// An interface that was stopped by hand stays stopped when a change is rolled back, whether it was stopped before
/// the change or after it. A paused interface, in contrast, is shaped again however the pause ends.
#[test]
fn a_rollback_does_not_start_an_interface_stopped_by_hand_and_every_pause_ends() {
    let home = boot();
    nothing_to_say(
        &home,
        &format!(
            "{ASK}
             cp sqm one; sections 4400 >sqm; sections 5000 >other
             make_device d0; make_device d1; start_daemon; within_a_second 'start'
             put other 10; holds 'tried' d0 5Mbit; sqm stop d0 >/dev/null; sleep 12
             is_stopped 'stopped while a change waited' d0; holds 'rolled back' d1 4400Kbit
             put other 10; holds 'a change shapes it' d0 5Mbit; sleep 12
             is_stopped 'stopped before a change' d0; holds 'rolled back again' d1 4400Kbit
             put other 10; api POST /configuration/revert '' >/dev/null; sleep 1
             is_stopped 'reverted' d0; holds 'reverted' d1 4400Kbit
             # The file cannot be restored at once.
             put other 10; mount --bind /tmp/other sqm; sleep 12; is_stopped 'in the kernel alone' d0
             sqm start --config /tmp/one d0 >/dev/null; sleep 1; holds 'started since' d0 4400Kbit
             sqm stop d0 >/dev/null; umount sqm; sleep 70; is_stopped 'the file is back' d0
             put other 0; sleep 1; holds 'kept' d0 5Mbit; holds 'kept' d1 5Mbit

             pause d0 30; is_paused 'paused' d0; holds 'the other line' d1 5Mbit
             api POST /pause '{{\"interface\":\"d0\",\"seconds\":9}}' | grep -q 'd0 is not shaped' || echo 'paused twice'
             api POST /pause '{{\"interface\":\"d1\",\"seconds\":121}}' | grep -q 'from 1 to 120' || echo 'paused for too long'
             ip link set d0 mtu 1400; sleep 20; is_paused 'after an event' d0
             sleep 10; wait $client; is_verified 'the time is over'
             pause d0 120; kill $client; wait $client 2>/dev/null; sleep 3; is_verified 'the client has gone'
             pause d0 120; api POST /apply '{{\"interface\":\"d0\"}}' >/dev/null; is_verified 'resumed'; wait $client
             pause d0 120; sqm start --config sqm d0 >/dev/null; sleep 1; is_verified 'sqm start'
             sqm status --daemon | grep -q '^d0: shaped' || echo 'a start by hand does not end the pause'
             pause d0 120; kill -HUP $daemon; sleep 1; is_verified 'reload'
             pause d0 9; sqm stop d0 >/tmp/said; grep -q 'its shaping was paused' said || cat said; sleep 1
             is_stopped 'stopped during a pause' d0; wait $client; sleep 10; is_stopped 'after that pause' d0
             api POST /apply '{{\"interface\":\"d0\"}}' >/dev/null; is_verified 'shaped again after a stop'
             pause d0 120; sqm stop >/dev/null; kill $client; wait $client 2>/dev/null; sleep 3
             is_stopped 'stopped at the end of a pause' d0; api POST /apply '{{\"interface\":\"d0\"}}' >/dev/null
             sqm start --config sqm >/dev/null; sleep 1; is_verified 'started'; ls /var/run/sqm/*.paused 2>/dev/null
             pause d0 120; kill -KILL $daemon; wait $daemon $client 2>/dev/null; tc qdisc show dev d0 | grep cake
             start_daemon; within_a_second 'the next daemon'
             kill -TERM $daemon; wait $daemon; true"
        ),
    );
}

/// `sqm reload` takes effect even if the file changes again before the daemon has read it.
#[test]
fn an_applied_reload_stays_in_force_whatever_happens_to_the_file() {
    let home = boot();
    nothing_to_say(
        &home,
        &format!(
            "{ASK}
             cp sqm one; sections 4400 >sqm
             make_device d0; make_device d1; start_daemon; within_a_second 'start'
             for rate in 4500 4600 4700 4800; do
                 sections $rate >new; mv new sqm; sqm reload --config /tmp/sqm >/dev/null
                 sections 9000 >new; mv new sqm
             done
             holds 'reloaded' d0 4800Kbit; sleep 1; holds 'after a second' d0 4800Kbit; holds 'after a second' d1 4800Kbit
             sleep 31; holds 'after half a minute' d0 4800Kbit; counts 'half a minute' d0 0; counts 'half a minute' d1 0
             # A repair restores the reloaded configuration.
             tc qdisc del dev d0 root; sleep 1; holds 'repaired' d0 4800Kbit; counts 'repaired' d0 1
             # `sqm start` with another file does not change the daemon's configuration, and its queues are repaired.
             sections 4900 >foreign; sqm start --config /tmp/foreign >/dev/null; sleep 1; holds 'foreign' d0 4800Kbit
             kill -HUP $daemon; sleep 1; holds 'HUP' d0 9Mbit
             kill -TERM $daemon; wait $daemon; [ -e /var/run/sqm/applied ] && echo 'something is left'; true"
        ),
    );
}

/// Shapes `shaped` of `devices` dummy devices, and expects no queues after the daemon has ended.
pub(crate) fn all_are_released(shaped: usize, devices: usize) {
    let home = boot();
    nothing_to_say(
        &home,
        &format!(
            "for n in $(seq {devices}); do echo \"link add s$n type dummy\"; echo \"link set s$n up\"; done | ip -batch -
             for n in $(seq {shaped}); do
                 printf \"config queue\\n\\toption enabled 1\\n\\toption interface s$n\\n\\toption download 9000\\n\\toption upload 900\\n\"
                 printf \"\\toption script piece_of_cake.qos\\n\"
             done >sqm
             start_daemon
             for n in $(seq 300); do [ $(sqm status --daemon 2>/dev/null | grep -c ': shaped') = {shaped} ] && break; sleep 1; done
             [ $(tc qdisc | grep -c cake) = $((2 * {shaped})) ] || echo \"$(tc qdisc | grep -c cake) queues\"
             kill -TERM $daemon; wait $daemon || echo \"exit $?\"
             tc qdisc | grep cake; ip -o link show type ifb | grep ifb4s; ls /var/run/sqm | grep json
             true"
        ),
    );
}

#[test]
fn a_daemon_that_ends_releases_many_interfaces() {
    all_are_released(50, 100);
}

#[test]
fn own_changes_count_as_applied_and_changes_of_others_as_repaired_but_not_cakes_own_rate() {
    let home = boot();
    nothing_to_say(
        &home,
        "counts() { sqm status --daemon | grep -q \"set up or changed: $2, repaired: $3\" || { echo \"$1:\"; sqm status --daemon; }; }
         make_device d0; start_daemon
         within_a_second 'start'; counts start 1 0
         sed -i s/4400/4100/ sqm; kill -HUP $daemon; within_a_second 'HUP'; counts HUP 2 0
         sed -i s/4100/4200/ sqm
         bash -c 'printf \"POST /v1/apply HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n\" | python3 -c \"
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(\\\"/var/run/sqm/api.sock\\\"); s.sendall(sys.stdin.buffer.read()); s.recv(100)\"'
         within_a_second 'apply'; counts apply 3 0
         tc qdisc del dev d0 root; within_a_second 'others'; counts others 4 1

         # With autorate-ingress CAKE moves its rate by itself, and nobody moves it back.
         rate() { tc qdisc show dev ifb4d0 root | sed -n 's/.*bandwidth \\([^ ]*\\) autorate-ingress.*/\\1/p'; }
         moved() { rate | grep -v '^24Mbit$' | grep -q bit || { echo \"$1: the rate is:\"; rate; }; }
         echo \"	option iqdisc_opts 'autorate-ingress'\" >>sqm; kill -HUP $daemon; within_a_second 'estimate'; counts estimate 5 1
         ip netns exec core ping -q -i 0.01 -s 1200 -c 500 10.9.0.1 >/dev/null; moved 'load'
         within_a_second 'load'
         sqm plan --diff --config sqm >said; grep -q 'nothing would change' said || cat said
         sqm start --config sqm >said || cat said; moved 'start'
         sqm doctor --config sqm >said; grep not-shaped said
         sleep 61; moved 'checks'; counts checks 5 1
         tc qdisc change dev ifb4d0 root cake rtt 50ms; within_a_second 'another round trip'
         counts repair 6 2; moved 'repair'
         kill -TERM $daemon; wait $daemon; true",
    );
}

/// A change of the rate in the web UI takes effect in the kernel at once. It is rolled back if it is not confirmed,
/// or if the daemon dies.
#[test]
fn a_change_by_the_page_reaches_the_kernel_and_is_rolled_back_unless_confirmed() {
    let home = boot();
    // Sends METHOD PATH [BODY] to the web server on the router.
    let ask = "exec 3<>/dev/tcp/127.0.0.1/8080 || exit 1
               token=$(cat /tmp/token 2>/dev/null)
               printf '%s /api/v1%s HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\nX-SQM-Token: %s\\r\\n' \"$1\" \"$2\" \"$token\" >&3
               printf 'Content-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n%s' ${#3} \"$3\" >&3
               cat <&3";
    home.write("/tmp/ask", ask.as_bytes()).expect("a file");
    nothing_to_say(
        &home,
        r#"ask() { bash /tmp/ask "$@" 2>/dev/null; }
         field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | tail -n 1; }
         put() {
             revision=$(ask GET /config | field revision)
             body="{\"revision\":\"$revision\",\"confirm_seconds\":$2,\"changes\":[{\"section\":0,\"option\":\"upload\",\"value\":\"$1\"}]}"
             ask PUT /config "$body" >/tmp/said
             head -n 1 /tmp/said | grep -q "200 OK" || echo "PUT $1: $(cat /tmp/said)"
         }
         holds() {
             tc qdisc show dev d0 root | grep -q "bandwidth $2 " || echo "$1: tc shows $(tc qdisc show dev d0 root)"
             grep -q "option upload '$3'" /tmp/sqm || echo "$1: the file says $(cat /tmp/sqm)"
         }
         make_device d0; ip link set lo up; start_daemon; within_a_second 'start'
         (exec sqm web --dir /tmp/web >>/tmp/log 2>&1) & web=$!
         for n in $(seq 100); do ask GET /session >/tmp/session && break; sleep 0.1; done
         field token </tmp/session >/tmp/token
         grep -q '^CapEff:.0000000000000000$' /proc/$web/status || echo 'the server has privileges'
         holds 'before' 4400Kbit 4400
         put 2mbit 20
         holds 'tried' 2Mbit 2mbit
         within_a_second 'tried'
         sleep 20
         holds 'not confirmed' 4400Kbit 4400
         within_a_second 'not confirmed'
         put 2mbit 20
         ask POST /config/confirm | grep -q '200 OK' || echo 'it cannot be confirmed'
         sleep 30
         holds 'confirmed' 2Mbit 2mbit
         put 3mbit 600
         holds 'tried again' 3Mbit 3mbit
         kill -KILL $daemon; wait $daemon 2>/dev/null
         holds 'no client' 3Mbit 3mbit
         start_daemon; within_a_second 'the next daemon'
         holds 'the next daemon' 2Mbit 2mbit
         put 3mbit 600
         ask POST /config/revert | grep -q '200 OK' || echo 'it cannot be put back'
         holds 'put back' 2Mbit 2mbit
         ask GET /status | grep -q '"shaped_bits_per_sec":2000000' || echo "the page does not show it: $(ask GET /status)"

         # A pair of tests, without and with SQM. The first server does not answer. Tests without load: d0 has no limit of its own, so
         # a load would take the lab hours.
         pair() {
             ask POST /tests "{\"host\":\"$1\",\"kind\":\"ping\",\"duration_s\":6,\"without_and_with\":\"d0\"}" >/tmp/said
             grep -q '202 Accepted' /tmp/said || echo "$1: $(cat /tmp/said)"
             tc qdisc show dev d0 | grep cake && echo "$1: shaped during the test without SQM"
             ask GET /status | grep -q '"state":"paused"' || echo "$1: the page does not show the pause"
             for n in $(seq 100); do ask GET /tests | grep -q '"running":null' && break; sleep 1; done
             verified || echo "$1: not as planned after the tests: $(cat /tmp/said)"
             ask GET /tests | tail -n 1 >/tmp/tests
         }
         pair 10.9.0.9
         grep -q '"is_shaped":true' tests && echo "a second test after a failed one: $(cat tests)"
         (exec ip netns exec core sqm serve >>/tmp/log 2>&1) & server=$!
         for n in $(seq 100); do ip netns exec core ss -ltn | grep -q :35353 && break; sleep 0.1; done
         pair 10.9.0.2
         python3 - <<'PYTHON' || cat tests
import json
by_id = {one["id"]: one for one in json.load(open("/tmp/tests"))["tests"]}
second, first = list(by_id.values())[:2]
assert second["pair"] == {"interface": "d0", "is_shaped": True, "other": first["id"]}, second
assert first["pair"] == {"interface": "d0", "is_shaped": False, "other": second["id"]}, first
assert first["state"] == second["state"] == "done", (first, second)
PYTHON
         # The pair of the command line. A signal and a server that does not answer leave the line shaped.
         pair="sqm test --test ping --idle 1 --without-and-with d0 --duration"
         $pair 6 10.9.0.2 --save pair.flent.gz >said 2>&1 || { echo 'sqm test:'; cat said; }
         grep -q 'without SQM *with SQM' said && grep -q '^grade' said && grep -q 'd0 is shaped again' said || cat said
         [ -s pair-without.flent.gz ] && [ -s pair-with.flent.gz ] || echo 'a result is missing'
         # One document, and everything else on standard error.
         $pair 6 10.9.0.2 --json >pair.json 2>said || { echo 'sqm test --json:'; cat said; }
         grep -q 'test 1 of 2' said && grep -q 'test 2 of 2' said || cat said
         python3 - <<'PYTHON' || head -c 2000 pair.json
import json
pair = json.load(open("/tmp/pair.json"))
assert pair["version"] == 1 and pair["interface"] == "d0", pair.keys()
for one in "without", "with":
    assert pair[one]["version"] and pair[one]["summary"]["idle_ms"] == pair["comparison"]["idle_ms"][one]
    assert pair[one]["meta"]["title"] == one + " SQM", pair[one]["meta"]
assert pair["comparison"]["download_mbit"] == {"without": None, "with": None}, pair["comparison"]
PYTHON
         sqm test --sweep 10.9.0.2 --without-and-with d0 >said 2>&1; [ $? = 2 ] && grep -q 'leave one of them out' said || cat said
         verified || echo "sqm test: not as planned: $(cat said)"
         $pair 6 10.9.0.9 >said 2>&1; [ $? = 1 ] || echo "no server: exit code: $(cat said)"; verified || echo 'no server: not as planned'
         $pair 119 10.9.0.2 >said 2>&1; [ $? = 2 ] || echo 'too long: exit code'; grep -q 'at most 110 s' said || cat said
         $pair 60 10.9.0.2 >said 2>&1 & client=$!
         for n in $(seq 100); do sqm status --daemon | grep -q '^d0: paused' && break; sleep 0.1; done
         tc qdisc show dev d0 | grep cake && echo 'shaped during the test of the command line'; sleep 3
         kill -TERM $client; wait $client && echo 'a signal: exit code'; verified || echo "a signal: not as planned: $(cat said)"
         grep -q 'test 2' said && echo "a second test after a signal: $(cat said)"
         kill -TERM $server
         kill -TERM $web $daemon; wait $web $daemon
         true"#,
    );
}

/// d0 and d1 are configured; each thing that can be wrong with d1's section leaves d0 shaped, and d1's queues as they are.
#[test]
fn one_bad_section_does_not_take_the_others_with_it() {
    let home = boot();
    nothing_to_say(
        &home,
        "# Without a configuration the daemon waits and answers; the first one is written by another program, or by the API.
         mv sqm good; start_daemon; sleep 1
         sqm status --daemon >said || cat said; grep -q 'there is no configuration /tmp/sqm yet' log || cat log
         make_device d0; make_device d1; api() { curl -s --unix-socket /var/run/sqm/api.sock http://x/v1/configuration \"$@\"; }
         api | grep -q revision || api
         cp good sqm; within_a_second 'the file has come'
         kill $daemon; wait $daemon; rm sqm

         # Commands without a configuration say what to do.
         for command in plan start reload status verify doctor; do
             sqm $command --config /tmp/sqm >said 2>&1; [ $? = 2 ] || echo \"$command: exit code\"
             grep -q \"run 'sqm setup'\" said || { echo \"$command: not said\"; cat said; }
         done
         sed s/\"enabled '1'\"/\"enabled '0'\"/ good >sqm; sqm verify --config /tmp/sqm >said 2>&1; grep -q 'there is nothing to compare' said || cat said
         sqm status d0 >said; grep -q '^d0: not shaped' said || cat said

         # An interface that does not exist.
         sed 's/d0/d9/' good >more; cat good more >sqm; sqm start --config /tmp/sqm >said 2>&1; [ $? = 1 ] || echo 'start: exit code'
         grep -q '^d0: shaped' said && grep -q '^d9: no such device' said || cat said
         sqm status --config /tmp/sqm >said 2>&1 && echo 'status: exit code'; grep -q 'bandwidth 4400kbit' said || cat said
         verified && echo 'verify: exit code'; grep -q 'd9 planned a network device' said || cat said; grep -q d0 said && cat said
         sqm start d9 --config /tmp/sqm >said 2>&1; [ $? = 2 ] || echo 'start d9: exit code'; sqm stop >/dev/null

         # A section in error: the daemon shapes the other one, and names it.
         sed 's/d0/d1/' good >more; cat good more >sqm; start_daemon; sleep 1; verified || cat said
         tc qdisc show dev d1 >queues
         sed -i 's/best_of_cake/my_own/' more; cat good more | sed 's/4400/4000/' >sqm; kill -HUP $daemon; sleep 1
         tc qdisc show dev d0 | grep -q 'bandwidth 4Mbit' || echo 'd0 has not followed the reload'
         tc qdisc show dev d1 | diff queues - || echo 'the queues of d1 were changed'
         sqm status --daemon >said && echo 'status --daemon: exit code'; grep -q '^d1: failed' said && grep -q 'my_own' said || cat said
         kill $daemon; wait $daemon; tc qdisc show dev d1 >queues; start_daemon; sleep 1
         tc qdisc show dev d0 | grep -q 'bandwidth 4Mbit' || echo 'd0 is not shaped at the start'
         tc qdisc show dev d1 | diff queues - || echo 'the queues of d1 were changed at the start'

         # A reload that removes a section is not a stop by hand, and an entry names its interface once.
         >log; cp good sqm; kill -HUP $daemon; within_a_second mended; sed 's/d0/d1/' good >more; cat good more >sqm
         sqm reload --config /tmp/sqm >/dev/null; sleep 1; cp good sqm; sqm reload --config /tmp/sqm >/dev/null; sleep 1
         sqm status --daemon | grep d1; grep 'stopped by hand' log; grep 'd[01]: d[01]:' log
         kill $daemon; wait $daemon

         # At boot, with a staged change of OpenWrt and a line that is not UCI: the change counts, the line is left out and named. A
         # person's own commands refuse the whole file. The program `uci` shows that there may be staged changes.
         mkdir -p /run/sbin/up /run/sbin/work /etc/config; mount -t overlay -o lowerdir=/usr/sbin,upperdir=/run/sbin/up,workdir=/run/sbin/work none /usr/sbin
         cp /bin/true /usr/sbin/uci; ls /sbin/uci >/dev/null; mkdir -m 700 .uci; echo \"sqm.wan.upload='3000'\" >.uci/sqm
         sed \"s/config queue/config queue 'wan'/\" good >right; (cat right; echo nonsense) >/etc/config/sqm
         >log; (exec sqm daemon >>log 2>&1) & daemon=$!
         sleep 1; tc qdisc show dev d0 | grep -q 'bandwidth 3Mbit' || { echo 'the staged rate is not in force'; cat log; }
         sqm status --daemon >said && echo 'a line is left out: exit code'
         for said in said log; do
             grep -q 'staged, not committed: sqm.wan.upload=3000' $said && grep -q \"a line is not in force: .*nonsense\" $said || cat $said
         done
         sqm status --daemon --json | python3 -c '
import json, sys
status = json.load(sys.stdin); warnings = \" \".join(status[\"configuration\"][\"warnings\"])
if status[\"health\"] != \"degraded\" or \"nonsense\" not in warnings or \"staged\" not in warnings: print(status)'
         for command in plan start reload; do sqm $command >said 2>&1; [ $? = 2 ] && grep -q nonsense said || { echo $command; cat said; }; done
         cp right /etc/config/sqm; kill -HUP $daemon; sleep 1; sqm status --daemon >said || cat said
         tc qdisc show dev d0 | grep -q 'bandwidth 3Mbit' || echo 'the staged rate is not in force any more'
         # Every command counts it. Those that would write the file are refused, as is a client of the API.
         sqm doctor --facts 2>said | python3 -c '
import json, sys
upload = json.load(sys.stdin)[\"sections\"][0][\"upload_kbit\"]
if upload != 3000: print(\"doctor has the rate\", upload)'
         grep -q 'staged, not committed: sqm.wan.upload=3000' said || { echo 'doctor does not name it'; cat said; }
         sqm bugreport --out - --duration 1s >said; grep -q 'bandwidth 3mbit' said && grep -q '^staged, not committed: sqm.wan.upload=3000' said || echo 'bugreport has another plan'
         printf 'IFACE=d1\\nUPLINK=1000\\nSCRIPT=simple.qos\\n' >old.iface.conf
         for command in 'setup --interface d0 --link ethernet --advertised 9mbit 9mbit' 'doctor --fix' 'tune 127.0.0.1 --write' 'import --write old.iface.conf'; do
             sqm $command >said 2>&1; [ $? = 2 ] && grep -q \"run 'uci commit sqm'\" said || { echo \"$command with a staged change:\"; cat said; }
             cmp right /etc/config/sqm || echo \"$command has written the file\"
         done
         ask() { curl -s --unix-socket /var/run/sqm/api.sock http://x/v1/configuration \"$@\"; }
         ask | python3 -c '
import json, sys
now = json.load(sys.stdin); print(json.dumps({\"text\": now[\"text\"].replace(\"4400\", \"2000\"), \"revision\": now[\"revision\"], \"confirm_seconds\": 0}))' >wanted
         ask -X PUT --data-binary @wanted >said; grep -q \"run 'uci commit sqm'\" said || cat said; cmp right /etc/config/sqm
         echo \"sqm.wan.enabled='0'\" >.uci/sqm; sqm tune 127.0.0.1 >said 2>&1; [ $? = 2 ] && grep -q 'no enabled section' said || { echo 'tune:'; cat said; }

         # A file in /var/run/uci takes the place of the one in /etc/config, as for OpenWrt's own programs, unless other users can write there.
         rm .uci/sqm; mkdir -m 755 /var/run/uci; sed s/4400/2000/ right >/var/run/uci/sqm; kill -HUP $daemon; sleep 1
         tc qdisc show dev d0 | grep -q 'bandwidth 2Mbit' || echo 'the file in /var/run/uci is not in force'
         sqm status --daemon >said || cat said; grep -q 'warning: /var/run/uci/sqm is read and changed in place of /etc/config/sqm' said || cat said
         sqm verify >said 2>&1 || cat said; sqm plan 2>&1 | grep -q 'bandwidth 2mbit' || echo 'plan reads another file'
         sqm import --help >/dev/null; sqm status --daemon --json | grep -q '\"file\": \"/var/run/uci/sqm\"' || echo 'the status names another file'
         chmod 777 /var/run/uci; sqm plan 2>&1 | grep -q 'bandwidth 4400kbit' || echo 'a file that other users can write is read'
         rm -r /var/run/uci; kill -HUP $daemon; sleep 1
         tc qdisc show dev d0 | grep -q 'bandwidth 4400Kbit' || echo 'the file in /etc/config is not in force again'
         kill $daemon; wait $daemon

         # Staged options of the fleet count, too: a URL without a key is an error.
         (cat right; echo \"config daemon 'd'\") >/etc/config/sqm; echo \"sqm.d.fleet_url='nats://127.0.0.1:1'\" >.uci/sqm
         >log; (exec sqm daemon >>log 2>&1) & daemon=$!
         sleep 1; grep -q 'option fleet_key.*shapes without its fleet' log || { echo 'a staged fleet_url does not count'; cat log; }
         kill $daemon; wait $daemon",
    );
}
