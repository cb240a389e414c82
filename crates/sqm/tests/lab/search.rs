//! A search for rates that does not end by itself, because the server never finishes, the search hangs, or the daemon
//! must stop. In each case the search ends within seconds of its time limit, and the previous shaping is restored.

use std::path::Path;

use sqm_lab::{Clock, Home, Line, home::SERVER_V4};

/// Shell functions shared by the scripts. `up` prints the time in seconds; the guest's clock is virtual, so that it
/// does not depend on the machine.
const TOOLS: &str = r#"
set +e; cd /tmp
up() { cut -d' ' -f1 /proc/uptime; }
at_most() { awk -v from="$2" -v to="$(up)" -v most="$3" -v what="$1" 'BEGIN { if (to - from > most) print what " took " to - from " s of " most }'; }
queues() { tc qdisc show dev wan0; tc filter show dev wan0 ingress; ip -o link | cut -d: -f2; }
# A user's process is `sqm tune`; that of the daemon, and each watchdog, is `/proc/self/exe tune`.
tunes="[s]qm tune|[e]xe tune"
searching() { pgrep -f "$tunes" >/dev/null; }
as_before() {
    queues >now; diff before now >differs || { echo "$1: not as before:"; cat differs; }
    searching && { echo "$1: a search is left"; pgrep -af "$tunes"; }
}
# ends NAME PID SECONDS: waits for a process, with a limit; its exit code is in $code.
ends() {
    for n in $(seq $(($3 * 2))); do [ "$(cut -d" " -f3 /proc/$2/stat 2>/dev/null || echo Z)" = Z ] && break; sleep 0.5; done
    [ "$(cut -d" " -f3 /proc/$2/stat 2>/dev/null || echo Z)" = Z ] || { echo "$1: it does not end"; kill -KILL $2; pkill -KILL -f "$tunes"; }
    wait $2; code=$?
}
ask() { python3 /tmp/ask.py "$@"; }
field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" | head -n 1; }
start_daemon() {
    (exec sqm daemon >>/tmp/log 2>&1) & daemon=$!
    # The daemon shapes before it serves.
    for n in $(seq 20); do sqm verify >/dev/null 2>&1 && ask GET /v1/tune >/dev/null 2>&1 && return; sleep 0.5; done
    echo "the daemon does not shape, or has no socket"
}
# Waits until the search has raised the rate limits.
until_lifted() { for n in $(seq 40); do tc qdisc show dev wan0 root | grep -q "bandwidth 10Gbit" && return; sleep 0.5; done; echo "$1: the limits were never lifted"; }
until_ended() {
    for n in $(seq 20); do [ "$(ask GET /v1/tune | field state)" = running ] || return; sleep 1; done
    echo "$1: still running"
}
"#;

/// `ask METHOD PATH [BODY]` sends a request to the daemon.
const ASK: &str = r#"
import socket, sys
method, path, body = (sys.argv[1:] + [""])[:3]
sock = socket.socket(socket.AF_UNIX)
sock.connect("/var/run/sqm/api.sock")
sock.sendall(f"{method} {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
answer = b""
while more := sock.recv(65536):
    answer += more
print(answer.decode())
"#;

/// A router with a configuration, and a misbehaving server. The line is the lab's cable line at a quarter of its rates, which has a
/// quarter of the packets.
pub(crate) fn boot(behaviour: &str) -> Home {
    let mut line = Line::named("cable24").expect("a known line");
    line.down.kbits_per_sec /= 4;
    line.up.kbits_per_sec /= 4;
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    let config = "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '20000'\n\
                  \toption upload '4000'\n\toption script 'best_of_cake.qos'\n\toption link 'docsis'\n";
    for (path, text) in [
        ("/etc/config/sqm", config),
        ("/tmp/ask.py", ASK),
        (
            "/tmp/hostile_server.py",
            include_str!("../support/hostile_server.py"),
        ),
        ("/tmp/hostile_web.py", include_str!("../support/hostile_web.py")),
    ] {
        home.write(path, text.as_bytes()).expect("a file");
    }
    serve(&home, behaviour, 7000);
    home
}

pub(crate) fn serve(home: &Home, behaviour: &str, port: u16) {
    let number = port.to_string();
    let server = [
        "python3",
        "/tmp/hostile_server.py",
        behaviour,
        &number,
        "--listen",
        "0.0.0.0",
    ];
    home.spawn_server("server", &server, port).expect("a server");
}

/// Runs the script on the router and fails with its output, if there is any.
pub(crate) fn nothing_to_say(home: &Home, script: &str) {
    let said = home
        .script_on("router", &format!("{TOOLS}{script}"))
        .expect("the lab answers");
    let log = home
        .script_on("router", "cat /tmp/log 2>/dev/null")
        .unwrap_or_default();
    assert!(said.is_empty(), "{said}\n{log}");
}

/// Time limit of a search, plus the tolerance of the test, seconds.
const LONGEST_S: u32 = 90 + 10;

/// Runs `sqm tune` by hand against each of these servers.
pub(crate) fn each_ends_in_time(behaviours: &[&str]) {
    let home = boot(behaviours[0]);
    for (behaviour, port) in behaviours.iter().zip(7000_u16..) {
        if port > 7000 {
            serve(&home, behaviour, port);
        }
        nothing_to_say(
            &home,
            &format!(
                r#"sqm start >/dev/null; queues >before; from=$(up)
                   sqm tune {SERVER_V4} --port {port} --json >out 2>err & tune=$!
                   peak=0
                   for n in $(seq 100); do
                       [ "$(cut -d" " -f3 /proc/$tune/stat 2>/dev/null || echo Z)" = Z ] && break
                       now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$tune/status 2>/dev/null)
                       [ "${{now:-0}}" -gt $peak ] && peak=$now
                       sleep 2
                   done
                   ends "{behaviour}" $tune 1
                   at_most "{behaviour}" $from {LONGEST_S}
                   as_before "{behaviour}"
                   [ $peak -lt 65536 ] || echo "{behaviour}: $peak KiB"
                   [ $code = 0 ] || [ $code = 1 ] || {{ echo "{behaviour}: code $code"; cat err; }}
                   echo "{behaviour}: $code after $from to $(up), $peak KiB: $(tail -n 1 err)" >>log
                   sqm stop >/dev/null"#
            ),
        );
    }
    println!("{}", home.script("cat /tmp/log").expect("a log"));
}

#[test]
fn tune_ends_in_time_with_little_memory_whatever_the_server_does() {
    each_ends_in_time(&["load-slow-words"]);
}

/// Ctrl-C ends the search in each of its stages.
#[test]
fn an_interrupted_tune_ends_at_once_whatever_the_server_does() {
    let home = boot("load-slow-words");
    serve(&home, "load-words", 7001);
    serve(&home, "hello-silence", 7002);
    nothing_to_say(
        &home,
        &format!(
            r#"sqm start >/dev/null; queues >before
               for port in 7000 7001 7002; do
                   for moment in 1 8; do
                       sqm tune {SERVER_V4} --port $port --quick >out 2>err & tune=$!
                       sleep $moment; from=$(up); kill -INT $tune; ends "port $port" $tune 60
                       at_most "port $port after $moment s" $from 3
                       as_before "port $port after $moment s"
                       # With a server that sends false figures or nothing, the search may have ended by then.
                       words='the previous shaping has been restored'; [ $moment = 1 ] && words="interrupted; $words"
                       [ $code = 1 ] && grep -q "$words" err || {{ echo "port $port: code $code"; cat err; }}
                   done
               done"#
        ),
    );
}

/// The web UI has the daemon run the search. A search that hangs is killed, and its watchdog restores the previous
/// shaping.
#[test]
fn a_search_that_is_stopped_ends_within_seconds() {
    let home = boot("load-slow-words");
    nothing_to_say(
        &home,
        &format!(
            r#"start_daemon; queues >before
               for how in talks hangs; do
                   ask POST /v1/tune '{{"host": "{SERVER_V4}", "port": 7000}}' | grep -q '202 Accepted' || echo "$how: it does not begin"
                   until_lifted $how
                   [ $how = hangs ] && {{ pkill -STOP -f '[e]xe tune --json' || echo "nothing hangs"; }}
                   ask GET /v1/tune | field state | grep -q running || echo "$how: it does not run"
                   from=$(up)
                   ask DELETE /v1/tune | grep -q '202 Accepted' || echo "$how: not accepted"
                   until_ended $how
                   at_most "$how: stopped" $from 8
                   ask GET /v1/tune | field state | grep -q stopped || echo "$how: $(ask GET /v1/tune)"
                   as_before $how
                   sleep 1; sqm status --daemon | grep -q '^wan0: shaped' || {{ echo $how; sqm status --daemon; }}
                   sqm status --daemon | grep -q 'repaired: 0' || {{ echo "$how: repaired"; sqm status --daemon; }}
               done
               # The search and its watchdog are killed together, as when memory runs out: the daemon repairs.
               ask POST /v1/tune '{{"host": "{SERVER_V4}", "port": 7000}}' >/dev/null
               until_lifted killed; pkill -KILL -f "$tunes"
               until_ended killed; sleep 1; as_before killed
               kill -TERM $daemon; ends daemon $daemon 60"#
        ),
    );
}

/// Ends the daemon at these moments of a search, in seconds, by each of these signals, while the search `goes` on or
/// `hangs`.
pub(crate) fn the_daemon_ends_at(moments: &[f64], ways: &[(&str, &str)]) {
    let home = boot("load-slow-words");
    let ways: Vec<String> = ways
        .iter()
        .map(|(signal, how)| format!("'{signal} {how}'"))
        .collect();
    let ways = ways.join(" ");
    for moment in moments {
        // One script for each moment: the lab gives up on a script that prints nothing for ten minutes.
        nothing_to_say(
            &home,
            &format!(
                r#"queues >bare
                   for way in {ways}; do
                       signal=${{way% *}} how=${{way#* }}
                       what="$signal, the search $how on, {moment} s"
                       start_daemon; queues >shaped
                       ask POST /v1/tune '{{"host": "{SERVER_V4}", "port": 7000}}' | grep -q '202 Accepted' || echo "$what: it does not begin"
                       sleep {moment}
                       [ $how = hangs ] && pkill -STOP -f '[e]xe tune --json'
                       from=$(up); kill -$signal $daemon; ends "$what" $daemon 60
                       at_most "$what" $from 10
                       [ $code = 0 ] || echo "$what: code $code"
                       if [ $signal = TERM ]; then cp bare before; else cp shaped before; fi
                       as_before "$what"
                       # No process changes the queues later.
                       sleep 3; as_before "$what, later"
                       sqm stop >/dev/null 2>&1
                   done; true"#
            ),
        );
    }
}

#[test]
fn ending_the_daemon_during_a_search_ends_the_search_completely() {
    the_daemon_ends_at(&[7.0], &[("TERM", "hangs"), ("QUIT", "goes")]);
}
