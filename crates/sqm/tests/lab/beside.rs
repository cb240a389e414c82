//! sqm beside other programs that set queues up. sqm-scripts is played by `tc`, with the queues and the state file that
//! it makes: piece_of_cake.qos has a root with a handle of the kernel's choice, simple.qos one like ours.

use std::path::Path;

use sqm_lab::{Clock, Home, Line};

const TOOLS: &str = "
set +e
cd /tmp
on_router() { ip netns exec router \"$@\"; }
# Configures wan0 by a setup script.
configure() { printf \"config queue\\n\\toption enabled '1'\\n\\toption interface 'wan0'\\n\\toption download '24000'\\n\\toption upload '4400'\\n\\toption script '$1.qos'\\n\" >sqm; }
sqm() { on_router sqm \"$@\" >said 2>&1; }
start() { sqm start --config /tmp/sqm || echo \"start: $(cat said)\"; }
stop() { sqm stop || echo \"stop: $(cat said)\"; }
verified() { sqm verify --config /tmp/sqm || echo \"$1: $(cat said)\"; }
says() { grep -q -- \"$1\" said || echo \"not said: $1: $(cat said)\"; }
# The queues and filters of wan0 and its IFB, without counters.
queues() { on_router sh -c 'tc qdisc show dev wan0; tc class show dev wan0; tc filter show dev wan0 ingress; tc qdisc show dev ifb4wan0; tc class show dev ifb4wan0' 2>&1 | sed 's/ifindex [0-9]*//; s/index [0-9]* ref.*//'; }
theirs_redirect() {
    tc -n router qdisc add dev wan0 handle ffff: ingress
    tc -n router filter add dev wan0 parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev ifb4wan0
    mkdir -p /run/sqm; echo started >/run/sqm/wan0.state
}
theirs_stop() {
    for what in 'wan0 ingress' 'wan0 root'; do tc -n router qdisc del dev $what 2>/dev/null; done
    ip -n router link del ifb4wan0 2>/dev/null; rm -f /run/sqm/wan0.state
}
theirs_cake() {
    theirs_stop; ip -n router link add ifb4wan0 type ifb; ip -n router link set ifb4wan0 up
    tc -n router qdisc add dev wan0 root cake bandwidth 4mbit besteffort
    tc -n router qdisc add dev ifb4wan0 root cake bandwidth 20mbit besteffort wash
    theirs_redirect
}
theirs_simple() {
    theirs_stop; ip -n router link add ifb4wan0 type ifb; ip -n router link set ifb4wan0 up
    for device in wan0 ifb4wan0; do
        tc -n router qdisc add dev $device root handle 1: htb default 12
        tc -n router class add dev $device parent 1: classid 1:1 htb rate 4mbit ceil 4mbit
        tc -n router class add dev $device parent 1:1 classid 1:12 htb rate 1mbit ceil 4mbit prio 2
        tc -n router qdisc add dev $device parent 1:12 handle 120: fq_codel
    done
    theirs_redirect
}
nothing_left() {
    queues | grep 'cake\\|htb\\|ingress' && echo \"$1: queues are left\"
    on_router ip link show ifb4wan0 >/dev/null 2>&1 && echo \"$1: the IFB is left\"
}
";

fn nothing_to_say(script: &str) {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    let said = home.script(&format!("{TOOLS}{script}")).expect("the lab answers");
    assert!(said.is_empty(), "{said}");
}

#[test]
fn queues_and_filters_of_other_programs_are_named_and_never_removed() {
    nothing_to_say(
        "# Taking over, and giving back.
         configure piece_of_cake; theirs_cake; queues >theirs
         start; says 'set up by sqm-scripts'; says 'stop restores it'; says 'systemctl disable --now sqm@wan0'
         verified 'taken over'; stop; queues >after; diff theirs after; theirs_stop

         # sqm-scripts is stopped, and takes our queues along: its own queues do not come back later.
         theirs_cake; start; theirs_stop; stop; says 'had removed'; nothing_left 'stop after their stop'
         for theirs in theirs_cake theirs_simple; do
             $theirs; start; theirs_stop; start; verified 'set up again'; stop; nothing_left \"start after $theirs has stopped\"
         done

         # sqm-scripts is started over ours. It is named, and stop leaves all of it alone.
         for script in piece_of_cake simple; do
             configure $script; start; verified \"$script\"
             if [ $script = simple ]; then theirs_simple; else theirs_cake; fi
             queues >theirs
             sqm verify --config /tmp/sqm && echo \"$script: verify finds no difference\"; says 'sqm-scripts'
             sqm doctor --seconds 0 --config /tmp/sqm; says '\\[other-queue\\]'; says 'set up by sqm-scripts'
             stop; says 'left .* alone'; says 'left ifb4wan0 and the redirect'; says 'sqm-scripts'
             queues >after; diff theirs after || echo \"$script: stop changed their queues\"
             start; says 'set up by sqm-scripts'; verified \"$script over theirs\"
             stop; queues >after; diff theirs after || echo \"$script: their queues are not restored\"; theirs_stop
         done
         # Started over ours, taken over again, and then put back.
         configure simple; start; theirs_simple; queues >theirs; start; says 'has replaced .* with .*sqm-scripts'
         verified 'taken over again'; stop; queues >after; diff theirs after; theirs_stop

         # Only a part of ours is removed. Nothing is left of it after the next start and stop, or after the stop alone.
         configure piece_of_cake
         for part in 'ip -n router link del ifb4wan0' 'tc -n router filter del dev wan0 ingress' 'tc -n router qdisc del dev wan0 root'; do
             start; $part; start; verified \"after $part\"; stop; nothing_left \"$part, start, stop\"
             start; $part; stop; nothing_left \"$part, stop\"
         done

         # A filter that restores DSCP, there before the start.
         configure piece_of_cake
         ctinfo() { tc -n router filter add dev wan0 parent $1 protocol ip ${2-} u32 match u32 0 0 action ctinfo dscp 0x3f 0x80 continue; }
         has_ctinfo() { tc -n router filter show dev wan0 ingress | grep -q ctinfo || echo \"$1: their filter is gone\"; }
         tc -n router qdisc add dev wan0 handle ffff: ingress; ctinfo ffff:; queues >theirs
         start; says 'filters of another program .* stay: u32 with preference 49152'; has_ctinfo start
         verified 'beside a filter'; says 'filters of another program'
         # Their filter comes first. Otherwise it would see no packet.
         tc -n router filter show dev wan0 ingress | grep -o 'pref [0-9]*' | uniq | xargs | grep -q 'pref 49152 pref 49153' ||
             tc -n router filter show dev wan0 ingress
         stop; queues >after; diff theirs after; tc -n router qdisc del dev wan0 ingress

         # The filter comes later, and the daemon runs.
         (exec ip netns exec router sqm daemon --config /tmp/sqm >log 2>&1) & daemon=$!
         until on_router sqm verify --config /tmp/sqm >/dev/null 2>&1; do sleep 0.1; done
         ctinfo ffff: 'prio 5'; verified 'a filter was added'; on_router tc qdisc del dev wan0 root
         until on_router sqm verify --config /tmp/sqm >/dev/null 2>&1; do sleep 0.1; done
         on_router sqm status --daemon >said || cat said log; says 'wan0: shaped'; has_ctinfo 'daemon repaired'
         kill $daemon; wait $daemon
         on_router ip link show ifb4wan0 >/dev/null 2>&1 && stop
         has_ctinfo stop; queues | grep 'cake\\|redirect\\|49153' && echo 'queues are left beside a filter'; tc -n router qdisc del dev wan0 ingress

         # clsact is never ours.
         tc -n router qdisc add dev wan0 clsact; ctinfo ffff:fff2; queues >theirs
         start; verified clsact; has_ctinfo clsact; stop; queues >after; diff theirs after; tc -n router qdisc del dev wan0 clsact

         # A filter that takes the packets elsewhere is refused, and named.
         ip -n router link add other type ifb; tc -n router qdisc add dev wan0 handle ffff: ingress
         tc -n router filter add dev wan0 parent ffff: protocol ip prio 3 u32 match u32 0 0 action mirred egress redirect dev other
         sqm start --config /tmp/sqm && echo 'started though packets go elsewhere'; says 'u32 with preference 3'
         tc -n router qdisc del dev wan0 ingress; start
         tc -n router filter add dev wan0 parent ffff: protocol ip prio 3 u32 match u32 0 0 action mirred egress redirect dev other
         sqm verify --config /tmp/sqm && echo 'verified though packets go elsewhere'; says 'redirects packets to another device'
         true",
    );
}
