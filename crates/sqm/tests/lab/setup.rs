//! `sqm setup` on the lab's router: from no configuration to verified shaping.

use std::path::Path;

use sqm_lab::{Clock, Home, Line};

fn nothing_to_say(script: &str) {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    let tools = "
        set +e
        cd /tmp
        on_router() { ip netns exec router \"$@\"; }
        setup() { on_router sqm setup --config /tmp/etc/sqm \"$@\" >said 2>&1; }
        shaped() { on_router sqm verify --config /tmp/etc/sqm >verified 2>&1 || { echo \"$1: $(cat verified)\"; }; }
        has() { grep -q -- \"$1\" \"$2\" || { echo \"$2 lacks $1: $(cat $2)\"; }; }
    ";
    let said = home.script(&format!("{tools}{script}")).expect("the lab answers");
    assert!(said.is_empty(), "{said}");
}

#[test]
fn three_answers_at_a_terminal() {
    nothing_to_say(
        "# A terminal, and a user who mistypes at first.
         terminal() { script -qec 'ip netns exec router sqm setup --config /tmp/etc/sqm' /dev/null >said 2>&1; }
         printf 'docsys\\nDOCSIS\\n\\n28\\n28235\\n\\nmeasured 4632kbit\\n\\n' | terminal || echo \"exit $?: $(cat said)\"
         has 'wan0 leads to the internet: the default route goes through it' said
         has \"did you mean 'docsis'\" said; has \"'28' needs a unit: 28mbit\" said; has 'such as 80/20 Mbit/s' said
         has 'line       docsis: cable' said
         has 'verified: the kernel holds what is configured' said
         has \"option download '24000'\" etc/sqm; has \"option upload '4400'\" etc/sqm; has \"option link 'docsis'\" etc/sqm
         shaped answers
         on_router tc qdisc show dev wan0 root | grep -q 'bandwidth 4400Kbit' || echo 'tc sees another rate'
         # Again, with Enter as each answer.
         cp etc/sqm before; on_router tc -s qdisc show dev wan0 root >counters
         printf '\\n\\n\\n\\n' | terminal || echo \"second: exit $?: $(cat said)\"
         cmp before etc/sqm || echo 'the second run changed the file'
         has 'has these settings already' said; has 'wan0: unchanged' said
         # A user who stops in the middle.
         rm etc/sqm; printf 'docsis\\n' | terminal && echo 'half the answers were enough'
         [ -e etc/sqm ] && echo 'half the answers were written'
         true",
    );
}

#[test]
fn flags_alone_ask_nothing() {
    nothing_to_say(
        "setup --link docsis --measured 25264kbit 4632kbit || cat said
         shaped flags; has \"option download '24001'\" etc/sqm
         cp etc/sqm before
         setup --link docsis --measured 25264kbit 4632kbit || cat said
         cmp before etc/sqm || echo 'the second run changed the file'; has 'wan0: unchanged' said

         # One document on standard output, and the rest on standard error.
         on_router sqm setup --config /tmp/etc/sqm --link docsis --measured 25264kbit 4632kbit --json >json 2>said || cat said
         has 'wan0 leads to the internet' said; has 'verified: the kernel holds what is configured' said
         python3 -c 'import json; found = json.load(open(\"json\")); expected = dict(version=1, file=\"/tmp/etc/sqm\",
             is_written=False, text=None, interface=\"wan0\", link=\"docsis\", download_kbit=24001, upload_kbit=4400,
             overhead=dict(counted_bytes=18), is_verified=True, before=None, after=None, service=None, page_url=None)
         if found != expected: print(found)'
         # If the service cannot be enabled, the line is shaped and the command fails.
         mkdir -p bin; printf '#!/bin/sh\nexit 1\n' >bin/systemctl; chmod 755 bin/systemctl
         PATH=/tmp/bin:$PATH on_router sqm setup --link docsis --advertised 30mbit 5mbit --boot --json >json 2>said
         [ $? = 1 ] || echo \"a failed start at boot is a success: $(cat said)\"
         has 'wan0 is shaped until the next boot: its service could not be enabled' said
         has '\"service\": \"failed\"' json; has '\"is_verified\": true' json
         on_router sqm verify >said 2>&1 || cat said
         rm /etc/config/sqm

         # Comments and options of other programs stay.
         sed -i \"s/^config queue/# mine\\\\nconfig queue/; s/option link/option foreign 'x' # theirs\\\\n\\\\toption link/\" etc/sqm
         setup --link gpon --advertised 30mbit 5mbit || cat said
         has '# mine' etc/sqm; has \"option foreign 'x' # theirs\" etc/sqm; has \"option link 'gpon'\" etc/sqm; has \"option upload '4250'\" etc/sqm
         shaped changed

         setup </dev/null && echo 'setup changed something without a terminal'; has 'give --link' said
         setup --link docsis </dev/null && echo 'setup changed something without rates'; has 'give --advertised or --measured' said
         cp etc/sqm before
         setup --link docsis --advertised 1gbit 50mbit --dry-run || cat said; has \"option download '850000'\" said
         cmp before etc/sqm || echo 'a dry run changed the file'
         # If the configuration cannot be applied, the file is restored, too.
         on_router env SQM_FAULT=error@1 sqm setup --config /tmp/etc/sqm --link docsis --advertised 1gbit 50mbit >said 2>&1; [ $? = 1 ] || cat said
         cmp before etc/sqm || echo 'a failed run changed the file'
         shaped 'after a failure'
         ip -n router route del default; ip -n router -6 route del default
         setup --link docsis --advertised 1gbit 50mbit && echo 'no route, and it knew'; has 'with --interface DEVICE' said
         setup --interface wan9 --link docsis --advertised 1gbit 50mbit; has 'wan9' said

         # A VPN takes the default route. The line is the device that carries the tunnel, and nothing shows that one
         # before the route to the other end of the VPN is there.
         dry() { setup --link docsis --advertised 30mbit 5mbit --dry-run; }
         mkdir -p /dev/net; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
         ip -n router tuntap add dev tun0 mode tun; ip -n router link set tun0 up; ip -n router route add default dev tun0
         dry && echo 'setup chose a device for an unknown tunnel'; has 'goes through the tunnel tun0' said; has 'with --interface DEVICE' said
         ip -n router route add 10.66.0.2 via 10.64.0.2 dev wan0
         dry || cat said; has 'wan0 leads to the internet: it carries the tunnel tun0' said; has \"interface 'wan0'\" said
         # The kernel knows the other end of a 6in4 tunnel.
         ip -n router link del tun0; ip -n router link add six0 type sit remote 10.66.0.2 local 10.64.0.1; ip -n router link set six0 up
         ip -n router -6 route add default dev six0
         dry || cat said; has 'wan0 leads to the internet: it carries the tunnel six0' said
         true",
    );
}

#[test]
fn a_vlan_is_seen_below_the_interface() {
    nothing_to_say(
        "ip -n router link add link wan0 name wan0.7 type vlan id 7; ip -n router link set wan0.7 up
         ip -n router addr add 10.99.0.1/24 dev wan0.7
         ip -n router route replace default via 10.99.0.2 dev wan0.7; ip -n router -6 route del default
         setup --link vdsl2 --advertised 50mbit 10mbit || cat said
         has 'wan0.7 leads to the internet' said; has 'it has a VLAN tag' said; shaped vlan
         # 22 bytes for VDSL2 and 4 for the VLAN tag.
         on_router tc qdisc show dev wan0.7 root | grep -q 'ptm overhead 26' || on_router tc qdisc show dev wan0.7
         true",
    );
}

/// Another program writes the file while the user still answers questions. Its text stays, and setup reports the
/// conflict.
#[test]
fn a_change_by_another_program_during_setup_is_kept() {
    nothing_to_say(
        "setup --link docsis --advertised 30mbit 5mbit || cat said
         (cat etc/sqm; echo '# theirs') >etc/theirs; cp etc/theirs expected
         (printf 'docsis\\n28/4 Mbit/s\\n\\n'; sleep 5; mv etc/theirs etc/sqm; printf '\\n') |
             script -qec 'ip netns exec router sqm setup --config /tmp/etc/sqm' /dev/null >said 2>&1
         [ $? = 1 ] || echo \"exit $?: $(cat said)\"
         has 'etc/sqm was changed by another program' said
         cmp expected etc/sqm; shaped 'as before'",
    );
}
