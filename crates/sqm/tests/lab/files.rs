//! Disks that are full or read-only, missing folders, and directories, FIFOs and links in place of files. The line is
//! shaped or the daemon gives the reason, no link is followed, nothing hangs, and the next start works.
//! docs/reference/files.md has the table.

use std::path::Path;

use sqm_lab::{Clock, Home, Line};

/// Sends METHOD PATH [BODY] to the daemon's socket. Prints the status code and the body.
const ASK: &str = r#"
import socket, sys

def ask(method, path, body=""):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(40)
    try:
        stream.connect("/tmp/disk/run/d/api.sock")
        head = f"{method} /v1{path} HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        stream.sendall((head + body).encode())
        answer = b""
        while part := stream.recv(65536):
            answer += part
    except OSError as error:
        return "000", error
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split()[1].decode(), body.decode()

if __name__ == "__main__":
    print(*ask(*sys.argv[1:]))
"#;

/// Arguments UPLOAD CONFIRM_SECONDS: changes the upload rate in the daemon's current configuration, and prints what [`ASK`] prints.
const PUT: &str = r#"
import json, re, sys
from ask import ask
known = json.loads(ask("GET", "/configuration")[1])
text = re.sub(r"option upload '[^']*'", f"option upload '{sys.argv[1]}'", known["text"])
wanted = {"text": text, "revision": known["revision"], "confirm_seconds": int(sys.argv[2])}
print(*ask("PUT", "/configuration", json.dumps(wanted)))
"#;

/// Shell functions shared by the scripts. All files of the daemon are on one small disk.
const TOOLS: &str = r#"
set +e
cd /tmp
disk=/tmp/disk
config=$disk/etc/d/sqm
say() { echo "$cell: $*"; }
# Each kind of file on its own small disk, in a folder that can be removed.
make_disks() {
    for part in etc run state log; do
        umount $disk/$part 2>/dev/null
        mkdir -p $disk/$part
        mount -t tmpfs -o size=64k tmpfs $disk/$part
        mkdir $disk/$part/d
    done
    cp ${1:-/tmp/sqm} $config
}
make_device() {
    ip link show d0 >/dev/null 2>&1 || ip link add d0 type dummy
    ip link set d0 up
}
start_daemon() {
    (STATE_DIRECTORY=$disk/state/d LOGS_DIRECTORY=$disk/log/d \
        exec sqm daemon --config $config --state-dir $disk/run/d "$@" >>/tmp/log 2>&1) & daemon=$!
}
ask() { python3 /tmp/ask.py "$@"; }
put() { python3 /tmp/put.py $1 $2; }
shaped_at() { tc qdisc show dev d0 root | grep -q "bandwidth $1 "; }
# Retries for this many seconds. In virtual time only waiting takes time.
within() {
    local seconds=$1; shift
    for n in $(seq $seconds); do "$@" && return 0; sleep 1; done; "$@"

}
is_over() { ! kill -0 $daemon 2>/dev/null; }
stop_daemon() {
    is_over && { wait $daemon; return; }
    kill -TERM $daemon
    within 20 is_over || { say "TERM does not end it"; kill -9 $daemon; }
    wait $daemon 2>/dev/null
}
in_status() { ask GET '/status?queues=no' | grep -q "$1"; }
# state STATE FILE, and state_ends to undo it: the file's disk is full or read-only, its folder is gone, or another kind of file is in its place.
state() {
    local part; part=$(echo $2 | cut -d/ -f4)
    case $1 in fifo | folder | dangling) rm -rf /tmp/aside; [ -e $2 -o -L $2 ] && cp -a $2 /tmp/aside; rm -rf $2 ;; esac
    case $1 in
        full) dd if=/dev/zero of=$disk/$part/fill bs=1k 2>/dev/null; true ;;
        read_only) mount -o remount,ro $disk/$part 2>/dev/null ;;
        gone) mv $disk/$part/d $disk/$part/away ;;
        fifo) mkfifo $2 ;;
        folder) mkdir $2 ;;
        dangling) ln -s /tmp/target $2 ;;
    esac
}
state_ends() {
    local part; part=$(echo $2 | cut -d/ -f4)
    case $1 in
        full) rm $disk/$part/fill ;;
        read_only) mount -o remount,rw $disk/$part ;;
        gone) rm -rf $disk/$part/d; mv $disk/$part/away $disk/$part/d ;;
        fifo | folder | dangling)
            [ -p $2 -o -d $2 -o -L $2 ] && rm -rf $2
            [ -f /tmp/aside ] && [ ! -e $2 ] && cp -a /tmp/aside $2 ;;
    esac
    true
}
"#;

fn boot() -> Home {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    let config = "config queue\n\toption enabled '1'\n\toption interface 'd0'\n\toption download '24000'\n\toption upload '4400'\n\
                  \toption script 'best_of_cake.qos'\n\toption link 'docsis'\n\toption autorate '1'\n\
                  \toption autorate_reflectors '192.0.2.1'\n\toption autorate_log 'rates.csv'\n";
    let plain: String = config
        .lines()
        .filter(|line| !line.contains("autorate"))
        .map(|line| format!("{line}\n"))
        .collect();
    for (file, text) in [
        ("/tmp/ask.py", ASK),
        ("/tmp/put.py", PUT),
        ("/tmp/sqm", &plain),
        ("/tmp/autorate", config),
    ] {
        home.write(file, text.as_bytes()).expect("a file");
    }
    home
}

/// Runs the script and fails with its output, if there is any.
fn nothing_to_say(home: &Home, script: &str) {
    let said = home
        .script_on("router", &format!("{TOOLS}{script}"))
        .expect("the lab answers");
    let log = home.script_on("router", "cat /tmp/log").unwrap_or_default();
    assert!(said.is_empty(), "{said}\n{log}");
}

/// The file by which `sqm reload` tells the daemon what it has applied.
#[test]
fn a_reload_shapes_whatever_is_in_place_of_the_applied_file() {
    nothing_to_say(
        &boot(),
        r#"make_device; make_disks; start_daemon; within 10 shaped_at 4400Kbit || say "not shaped"
           reload() {
               sed -i "s/option upload .*/option upload '$1'/" $config
               timeout 20 sqm reload --config $config --state-dir $disk/run/d >said 2>&1; code=$?
           }
           rate=4400
           for state in full read_only gone fifo folder dangling; do
               cell="applied, $state"
               state $state $disk/run/d/applied; rate=$((rate + 10)); reload $rate; sleep 2
               # A reload that fails changes nothing.
               case $code in 0) holds=$rate ;; 1) holds=$((rate - 10)) ;; *) holds=none ;; esac
               shaped_at ${holds}Kbit ||
                   say "code $code, $(cat said), $(tc qdisc show dev d0 root)"
               [ -e /tmp/target ] && say "the link was followed"
               state_ends $state $disk/run/d/applied; rate=$((rate + 10)); reload $rate
               [ $code = 0 ] || say "afterwards: code $code, $(cat said)"
               sleep 2; shaped_at ${rate}Kbit || say "afterwards: $(tc qdisc show dev d0 root)"
               within 70 in_status '"health":"ok"' || say "$(ask GET '/status?queues=no')"
           done
           stop_daemon"#,
    );
}

#[test]
fn an_unconfirmed_change_is_rolled_back_in_the_kernel_whatever_the_disk_does() {
    roll_back_in_each_state(&["full"]);
}

/// Rolls back a change in each state of the configuration's disk.
pub(crate) fn roll_back_in_each_state(states: &[&str]) {
    let home = boot();
    let script = format!("states='{}'", states.join(" "));
    nothing_to_say(
        &home,
        &(script
            + r#"
        make_device; make_disks; start_daemon
        within 5 shaped_at 4400Kbit || say "not shaped"
        for cell in $states; do
            put 3mbit 5 | grep -q ^200 || say "PUT is refused"
            shaped_at 3Mbit || say "the change is not in force"
            state $cell $config || say "the lab cannot"
            sleep 7
            shaped_at 4400Kbit || say "not put back in the kernel"
            in_status '"health":"degraded"' || say "the status does not say degraded: $(ask GET '/status?queues=no')"
            in_status 'could not be restored' || say "no reason"
            ask POST /configuration/revert | grep -q '^422 .*could not' || say "revert: $(ask POST /configuration/revert)"
            put 2mbit 5 2>/dev/null | grep -q ^200 && say "another change is taken"
            kill -HUP $daemon; sleep 1
            ask POST /apply >/dev/null
            shaped_at 4400Kbit || say "a reload applies the unconfirmed change"
            # Past the daemon's regular check.
            sleep 35; shaped_at 4400Kbit || say "not kept"
            state_ends $cell $config
            within 70 grep -q "upload '4400'" $config || say "the file is not put back: $(cat $config)"
            within 5 in_status '"health":"ok"' || say "not ok in the end: $(ask GET '/status?queues=no')"
            [ -e $config.before-trial ] && say "the text from before is left"
            shaped_at 4400Kbit || say "not shaped in the end"
            grep -q 'the file of the change that was not confirmed is restored' log || say "that is not told"
            >log
            ls /tmp/target 2>/dev/null && say "a link was followed"

            # The daemon is killed, and the next one starts with the disk in this state.
            put 3mbit 600 | grep -q ^200 || say "PUT is refused"
            state $cell $config
            kill -9 $daemon; wait $daemon 2>/dev/null
            shaped_at 3Mbit || say "killed, and not as it was left"
            start_daemon
            if [ $cell = gone ]; then
                # This daemon has no configuration: it waits, and leaves the queues as they are.
                within 5 grep -q "there is no configuration $config yet" log || say "the configuration is not named: $(cat log)"
                is_over && say "a daemon without a configuration ends"
                shaped_at 3Mbit || say "the queues are gone"
                state_ends $cell $config
            else
                within 5 shaped_at 4400Kbit || say "the next daemon: $(tc qdisc show dev d0 root; cat log)"
                within 5 in_status '"health":"degraded"' || say "the next daemon does not say degraded"
                state_ends $cell $config
            fi
            within 70 grep -q "upload '4400'" $config || say "the next daemon does not put the file back"
            within 5 in_status '"health":"ok"' || say "the next daemon: $(ask GET '/status?queues=no')"
            within 5 shaped_at 4400Kbit || say "the next daemon: not shaped in the end"
            put 2mbit 0 | grep -q ^200 || say "no change is taken any more"
            put 4400 0 | grep -q ^200 || say "no change is taken any more"
        done
        cell=end; stop_daemon
        true"#),
    );
}

/// Starts the daemon in each state, and brings about each state while the daemon runs.
pub(crate) fn in_each_state(files: &[&str], states: &[&str]) {
    let home = boot();
    // The lab gives up on a guest that prints nothing for ten minutes, so that the states are tested in two halves.
    let half = states.len().div_ceil(2);
    let cells = files
        .iter()
        .flat_map(|file| states.chunks(half).map(move |states| (file, states)));
    let said: String = cells
        .map(|(file, states)| each_state_of(&home, file, states))
        .collect();
    assert!(said.is_empty(), "{said}");
}

/// Tests the states of a file. Returns the complaints.
fn each_state_of(home: &Home, file: &str, states: &[&str]) -> String {
    let script = format!("files='{file}'; states='{}'", states.join(" "));
    let script = script
        + r#"
        before_trial=$config.before-trial record=$disk/run/d/d0.json lock=$disk/run/d/lock daemon_lock=$disk/run/d/daemon.lock
        socket=$disk/run/d/api.sock learned=$disk/state/d/autorate-d0.learned log=$disk/log/d/rates.csv
        tune=$disk/run/d/tune secret=$disk/run/d/tune-secret
        shaped() { tc qdisc show dev d0 root | grep -q 'cake 1: '; }
        ends_clean() {
            stop_daemon
            shaped && say "the queues are left: $(cat log)"
            ip link show ifb4d0 >/dev/null 2>&1 && say "the ifb is left"
            [ -e /tmp/target ] && { say "a link was followed"; rm /tmp/target; }
        }
        next_start_works() {
            >log; start_daemon
            within 5 shaped || say "the next start: $(cat log)"
            within 5 in_status '"state":"shaped"' || say "the next start has no API: $(cat log)"
            ends_clean
        }
        make_device
        for name in $files; do
            for state in $states; do
                eval "file=\$$name"
                cell="$name $state, at the start"
                make_disks /tmp/autorate; >log
                start_daemon
                within 5 shaped || say "not shaped before"
                kill -9 $daemon; wait $daemon 2>/dev/null
                state $state $file || say "the lab cannot"
                >log; start_daemon
                case $cell in
                    "config gone"* | "before_trial gone"*)
                        within 10 grep -q "there is no configuration" log || say "$(cat log)"
                        is_over && say "a daemon without a configuration ends: $(cat log)"
                        shaped || say "the queues are gone"
                        stop_daemon ;;
                    "config fifo"* | "config folder"* | "config dangling"*)
                        within 10 grep -q "cannot read the configuration: $config: " log || say "$(cat log)"
                        is_over && say "a daemon without a configuration ends: $(cat log)"
                        shaped || say "the queues are gone"
                        stop_daemon ;;
                    *)
                        sleep 2; is_over && say "the daemon has ended: $(cat log)"
                        tc qdisc del dev d0 root
                        within 5 shaped || say "not shaped: $(cat log)"
                        ends_clean ;;
                esac
                state_ends $state $file
                next_start_works

                cell="$name $state, while it runs"
                make_disks /tmp/autorate; >log
                start_daemon
                within 5 shaped || say "not shaped before"
                # The kernel refuses this while a file is open for writing.
                if state $state $file; then
                    kill -HUP $daemon
                    ask POST /tune '{"host": "127.0.0.1", "port": 9, "secret": "x"}' >/tmp/said
                    # The text of a file that is not there is empty: who sends that back asks for no shaping.
                    case $cell in
                        "config gone"* | "before_trial gone"*) ;;
                        *) put 4300 0 >/tmp/said 2>&1 ;;
                    esac
                    tc qdisc del dev d0 root
                    within 5 shaped || say "not shaped: $(cat log)"
                    is_over && say "the daemon has ended: $(cat log)"
                    ends_clean
                    state_ends $state $file
                    next_start_works
                else
                    stop_daemon
                fi
            done
        done
        true"#;
    home.script_on("router", &format!("{TOOLS}{script}"))
        .expect("the lab answers")
}

#[test]
fn a_line_is_shaped_with_a_few_files_in_each_state() {
    in_each_state(&["record"], &["full", "fifo"]);
}

#[test]
fn an_interface_whose_record_is_damaged_is_shaped_and_stopped() {
    damaged_records(&["best_of_cake"], &["appended"]);
}

pub(crate) fn damaged_records(scripts: &[&str], damages: &[&str]) {
    let home = boot();
    let script = format!("scripts='{}'; damages='{}'", scripts.join(" "), damages.join(" "));
    nothing_to_say(
        &home,
        &(script
            + r#"
        record=$disk/run/d/d0.json
        damage() {
            case $cell in
                appended*) echo 1,2,3 >>$record ;;
                empty*) >$record ;;
                random*) head -c 3000 /dev/urandom >$record ;;
                another*) sed -i s/d0/d1/g $record ;;
                folder*) rm $record; mkdir $record ;;
                fifo*) rm $record; mkfifo $record ;;
            esac
        }
        sqm_() { sqm "$@" --config $config --state-dir $disk/run/d; }
        unshaped() {
            tc qdisc show dev d0 | grep -q 'cake\|htb\|ingress' && say "queues are left: $(tc qdisc show dev d0)"
            ip link show ifb4d0 >/dev/null 2>&1 && say "the ifb is left"
            nft list tables | grep sqm && say "the firewall is left"
            [ -e $record ] && say "a record is left"
        }
        make_device; make_disks
        for script in $scripts; do
            sed -i "s/script .*/script '$script.qos'/" $config
            for damaged in $damages; do
                cell="$damaged, $script, the commands"
                sqm_ start >/dev/null 2>&1 || say "it cannot be started"
                damage
                sqm_ start >said 2>&1 || say "start: $(cat said)"
                grep -q 'the record .*d0.json is damaged.*d0.json.damaged' said || say "start does not tell: $(cat said)"
                sqm_ verify >said 2>&1 || say "verify: $(cat said)"
                sqm_ stop >said 2>&1 || say "stop: $(cat said)"
                unshaped
                sqm_ start >/dev/null 2>&1; damage
                sqm_ stop >said 2>&1 || say "stop of a damaged one: $(cat said)"
                grep -q 'not known' said || say "stop does not tell: $(cat said)"
                unshaped

                cell="$damaged, $script, while the daemon runs"
                >log; start_daemon
                within 5 sqm_ verify >/dev/null 2>&1 || say "not shaped"
                damage; tc qdisc del dev d0 root
                sleep 2; sqm_ verify >said 2>&1 || say "$(cat said log)"
                grep -q 'is damaged' log || say "not told: $(cat log)"
                damage; stop_daemon; unshaped

                cell="$damaged, $script, the next daemon"
                start_daemon
                within 5 sqm_ verify >/dev/null 2>&1 || say "not shaped"
                kill -9 $daemon; wait $daemon 2>/dev/null
                damage; >log; start_daemon
                within 5 sqm_ verify >/dev/null 2>&1 || say "not shaped: $(cat log)"
                within 5 grep -q 'is damaged' log || say "not told: $(cat log)"
                stop_daemon; unshaped
            done
        done
        true"#),
    );
}
