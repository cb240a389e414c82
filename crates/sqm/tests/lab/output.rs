//! Commands that change queues, with an output that is full or has no reader: they do their work, and nothing else.

use std::path::Path;

use sqm_lab::{Clock, Home, Line};

const TOOLS: &str = "
set +e
cd /tmp
on_router() { ip netns exec router \"$@\"; }
configure() {
    printf \"config queue\\n\\toption enabled '1'\\n\\toption interface 'wan0'\\n\\toption download '24000'\\n\\toption upload '4400'\\n\\toption script '$1'\\n\" >sqm
}
# Descriptor 4 is a pipe without a reader.
mkfifo pipe; exec 3<>pipe 4>pipe; exec 3>&-
# Checks that a command ends with this code, and reports in one line that it could not print.
ends() {
    code=$1; shift
    on_router \"$@\" >/dev/full 2>said
    [ $? = $code ] || echo \"$*: not $code: $(cat said)\"
    grep -q panicked said && echo \"$*: $(cat said)\"
    grep -q 'cannot write to standard output' said || echo \"$*: does not say that it could not print: $(cat said)\"
}
ends_alone() {
    code=$1; shift
    on_router \"$@\" >&4 2>said
    [ $? = $code ] || echo \"$* without a reader: not $code: $(cat said)\"
    [ ! -s said ] || echo \"$* without a reader: $(cat said)\"
    on_router \"$@\" >/dev/null 2>/dev/full
    [ $? = $code ] || echo \"$* with standard error full: not $code\"
}
shaped() { on_router sqm verify --config sqm >/dev/null || echo \"$1: not shaped as configured\"; }
";

#[test]
fn commands_that_change_queues_work_with_any_output() {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    let script = "
        configure simple.qos
        ends 0 sqm start --config sqm; shaped start
        ends_alone 0 sqm start --config sqm
        # Their output is the purpose of these commands.
        for words in 'status wan0' 'status wan0 --json' 'verify --config sqm' 'plan --config sqm --diff'; do
            ends 1 sqm $words
            ends_alone 0 sqm $words
        done
        configure best_of_cake.qos
        ends 0 sqm reload --config sqm; shaped reload
        ends_alone 0 sqm reload --config sqm
        ends 0 sqm start --config sqm --json
        ends 0 sqm setup --config sqm --interface wan0 --link docsis --advertised 20mbit 4mbit; shaped setup
        ends_alone 0 sqm setup --config sqm --interface wan0 --link docsis --advertised 20mbit 4mbit
        grep -q \"download '17000'\" sqm || cat sqm
        # Without an output setup does not ask.
        on_router sqm setup --config other --interface wan0 >/dev/full 2>said; [ $? = 2 ] || echo \"setup asks: $(cat said)\"
        [ ! -e other ] || echo 'setup wrote a file without answers'
        on_router tc qdisc del dev wan0 root
        ends 0 sqm doctor --seconds 0 --config sqm --fix; shaped 'doctor --fix'
        ends_alone 0 sqm doctor --seconds 0 --config sqm
        ends 0 sqm stop
        on_router tc qdisc show dev wan0 | grep -q cake && echo 'stop left a queue'
        on_router sqm start --config sqm >said 2>&1 || cat said
        ends_alone 0 sqm stop
        true";
    let said = home.script(&format!("{TOOLS}{script}")).expect("the lab answers");
    assert!(said.is_empty(), "{said}");
}
