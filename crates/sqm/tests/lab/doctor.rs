//! `sqm doctor` on a real kernel: each fault is made on purpose, found, fixed, and gone. Faults that the lab's
//! devices cannot have (hardware flow offload, variable clock frequency) are judged from facts in
//! `crates/sqm/src/doctor/findings/tests.rs`.

use std::path::Path;

use sqm_lab::{Clock, Home, Line};

const TOOLS: &str = "
set +e
cd /tmp
on_router() { ip netns exec router \"$@\"; }
# Writes a correct configuration of wan0, changed by a sed command ($1) and with lines added ($2).
configure() {
    printf \"# the line\\nconfig queue\\n\\toption enabled '1'\\n\\toption interface 'wan0'\\n\\toption download '24000'\\n\\toption upload '4400'\\n\\toption script 'best_of_cake.qos'\\n\\toption link 'docsis'\\n\\toption foreign 'kept' # by whom?\\n\" >sqm
    [ $# -lt 1 ] || sed -i \"$1\" sqm
    [ $# -lt 2 ] || printf \"$2\" >>sqm
}
start() { on_router sqm reload --config /tmp/sqm >said 2>&1 || { echo \"reload: $(cat said)\"; }; }
seconds=0
doctor() { on_router sqm doctor --seconds $seconds --config /tmp/sqm \"$@\" >said 2>&1; }
healthy() { doctor && grep -q '^No problems found on [a-z0-9.]* ([0-9]* checks)' said || echo \"$1: not healthy: $(cat said)\"; }
# Checks that the doctor has exactly these findings.
found() {
    doctor; [ $? = 1 ] || echo \"$1: exit code\"
    [ \"$(grep -o '\\[[a-z0-9-]*\\]$' said | tr -d '[]' | xargs)\" = \"$1\" ] || echo \"$1: found $(cat said)\"
}
fixed() { doctor --fix || echo \"$1: --fix leaves $(cat said)\"; healthy \"$1 fixed\"; }
";

pub(crate) fn nothing_to_say(clock: Clock, script: &str) {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home = Home::boot(clock, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    let said = home.script(&format!("{TOOLS}{script}")).expect("the lab answers");
    assert!(said.is_empty(), "{said}");
}

#[test]
fn mistakes_in_the_configuration_are_found_and_fixed() {
    nothing_to_say(
        Clock::Virtual,
        "configure; start; healthy start

         configure s/wan0/br0/; start; found wrong-interface; fixed wrong-interface
         grep -q \"interface 'wan0'\" sqm && grep -q '# the line' sqm && grep -q \"'kept' # by whom\" sqm || cat sqm
         on_router tc qdisc show dev br0 | grep cake && echo 'br0 is still shaped'

         configure '' \"\\toption facing 'lan'\\n\"; start; found wrong-direction; fixed wrong-direction

         configure \"s/'24000'/'x'/; s/'4400'/'24000'/; s/'x'/'4400'/\"; start; found swapped-rates
         configure; start; healthy 'rates corrected by hand'

         configure \"s/option link 'docsis'/option linklayer 'atm'/\"; start; found no-overhead; fixed no-overhead
         configure 's/best_of_cake/piece_of_cake/' \"\\toption linklayer_adaptation_mechanism 'tc_stab'\\n\\toption eqdisc_opts 'overhead 18'\\n\"
         sed -i '/link .docsis/d' sqm; printf \"\\toption linklayer 'ethernet'\\n\\toption overhead '18'\\n\" >>sqm
         start; found counted-twice; fixed counted-twice

         configure 's/best_of_cake/simplest/; s/4400/1000/' \"\\toption egress_ecn 'ECN'\\n\"; start; found ecn-on-slow-upload; fixed ecn-on-slow-upload
         true",
    );
}

#[test]
fn faults_of_the_machine_are_found() {
    nothing_to_say(
        Clock::Virtual,
        "configure; start
         tc -n router qdisc replace dev wan0 root handle 9: fq_codel; found other-queue
         grep -q 'the root of wan0 is fq_codel 9:' said || cat said
         fixed other-queue
         on_router sqm stop >/dev/null; tc -n router qdisc del dev wan0 root; found not-shaped; fixed not-shaped

         # Only a daemon knows that an interface was stopped by hand.
         (exec ip netns exec router sqm daemon --config /tmp/sqm >/dev/null 2>&1) & daemon=$!
         until on_router sqm status --daemon >/dev/null 2>&1; do sleep 0.5; done
         on_router sqm stop >/dev/null; until on_router sqm status --daemon | grep -q stopped; do sleep 0.5; done
         found stopped; fixed stopped; kill $daemon; wait $daemon

         # A trunk to a switch, with VLANs for the internet and the home network.
         ip -n router link add trunk type dummy; ip -n router link set trunk up
         ip -n router link add link trunk name trunk.1 type vlan id 1; ip -n router link set trunk.1 up
         ip -n router link add link trunk name trunk.2 type vlan id 2; ip -n router link set trunk.2 up
         ip -n router addr add 10.99.0.1/24 dev trunk.2
         ip -n router route replace default via 10.99.0.2 dev trunk.2
         ip -n router -6 route replace default via fe80::2 dev trunk.2
         configure s/wan0/trunk/; start; found trunk; fixed trunk
         grep -q \"interface 'trunk.2'\" sqm || cat sqm
         ip -n router route replace default via 10.64.0.2 dev wan0
         ip -n router -6 route replace default via fd00:64::2 dev wan0

         # A VPN takes the default route: wan0 carries its packets and is right. --fix never shapes the tunnel.
         mkdir -p /dev/net; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
         ip -n router tuntap add dev tun0 mode tun; ip -n router link set tun0 up
         ip -n router route add 10.66.0.2 via 10.64.0.2 dev wan0
         ip -n router route replace default dev tun0; ip -n router -6 route replace default dev tun0
         configure; start; healthy 'a VPN is up'
         configure s/wan0/br0/; start; found wrong-interface; fixed wrong-interface
         grep -q \"interface 'wan0'\" sqm || cat sqm
         ip -n router link del tun0; ip -n router route del 10.66.0.2
         ip -n router route replace default via 10.64.0.2 dev wan0
         ip -n router -6 route replace default via fd00:64::2 dev wan0

         # Size tables and super-packets.
         configure s/best_of_cake/simplest/; start; healthy 'offloads are off in the lab'
         on_router ethtool -K wan0 gro on gso on tso on >/dev/null 2>&1; found aggregates
         grep -q 'do: *run ethtool -K wan0 .*gso off' said || cat said
         on_router $(sed -n 's/.*do: *run \\(ethtool [^;]*\\);.*/\\1/p' said) >/dev/null 2>&1
         healthy 'with the right interface'

         # A 6in4 tunnel needs no section. One for it is no mistake.
         ip -n router link add henet type sit remote 10.66.0.2 local 10.64.0.1; ip -n router link set henet up
         configure; start; healthy '6in4'
         sed \"s/'wan0'/'henet'/; s/24000/22000/; s/4400/4000/\" sqm >>sqm.more; cat sqm.more >>sqm; rm sqm.more; start
         doctor && grep -q '^No problems found on wan0, henet (' said || echo \"6in4 with a section: $(cat said)\"
         ip -n router link del henet; found no-device; doctor --fix && echo 'a device cannot be made'
         configure; start; healthy 'no tunnel'
         # A VLAN with a network of hosts on an untagged line.
         ip -n router link add link wan0 name wan0.10 type vlan id 10; ip -n router link set wan0.10 up
         healthy 'a VLAN without addresses'; ip -n router addr add 10.98.0.1/24 dev wan0.10; found trunk; ip -n router link del wan0.10
         # A section for a port of the home's bridge.
         sed \"s/'wan0'/'lan2'/; s/24000/5000/; s/4400/1000/\" sqm >>sqm.more; cat sqm.more >>sqm; rm sqm.more; start; found wrong-interface
         doctor --fix || cat said; grep -q \"facing 'lan'\" sqm || cat sqm; configure; start; healthy 'no section for lan2'
         # Another device feeds our IFB.
         tc -n router qdisc add dev lan2 handle ffff: ingress
         tc -n router filter add dev lan2 parent ffff: protocol all matchall action mirred egress redirect dev ifb4wan0
         found shared-ifb; tc -n router qdisc del dev lan2 ingress; healthy 'no other device'
         # Without privileges.
         on_router setpriv --reuid=65534 --clear-groups sqm doctor --seconds 0 --config /tmp/sqm >said 2>&1 || cat said
         grep -q '^not known: whether the kernel has all features' said && grep -q '^No problems found on wan0 (10 checks)' said || cat said

         configure s/wan0/wan9/; found no-device; grep -q \"if you mean wan0, set option interface 'wan0'\" said || cat said
         configure; healthy 'with the right interface'

         # OpenWrt's firewall with flow offloading.
         mkdir -p /etc/config; printf \"config defaults\\n\\toption flow_offloading '1'\\n\\toption flow_offloading_hw '1'\\n\" >/etc/config/firewall
         found hardware-offload; sed -i /_hw/d /etc/config/firewall; found software-offload; rm /etc/config/firewall
         printf 'table inet fast {\n flowtable f { hook ingress priority 0; devices = { wan0, br0 }; }\n}\n' >flows
         on_router nft -f flows; found software-offload; grep -q wan0 said || cat said
         on_router nft delete table inet fast; healthy 'no flowtable'
         # Another flag is not taken for hardware offload. No device of this kernel can offload in hardware.
         sed 's/}; }$/}; counter; }/' flows >counted; on_router nft -f counted; found software-offload
         on_router nft delete table inet fast
         sed 's/}; }$/}; flags offload; }/' flows >hardware; on_router nft -f hardware 2>/dev/null && echo 'the lab can offload: judge it here'
         healthy end
         true",
    );
}

/// The lab's kernel of the wall clock has its queues as modules.
#[test]
fn a_kernel_without_cake_is_found() {
    nothing_to_say(
        Clock::Wall,
        "configure; mkdir -p none; mount --bind none /run/modules/lib; rmmod sch_cake
         found 'missing-module not-shaped'; grep -q 'sch_cake' said || cat said
         doctor --fix && echo 'nothing can be brought into force'
         umount /run/modules/lib; modprobe -d /run/modules sch_cake; start; healthy 'with the module'",
    );
}

#[test]
fn a_report_has_everything_for_a_help_request_and_no_secrets() {
    nothing_to_say(
        Clock::Virtual,
        "configure '' \"# my password is hunter2; I am 203.0.113.9 and 2001:db8::77, my card is 52:54:00:12:34:56\\n\"; start
         ip -n router addr add 198.51.100.77/32 dev wan0
         on_router sqm bugreport --seconds 0 --config /tmp/sqm --out /tmp/report.txt >said 2>&1 || cat said
         for words in 'option download' 'bandwidth 4400kbit' 'the kernel holds what is configured' 'No problems found' 'wan0' \
             'sent_bytes' 'Linux' 'default' 'cpu0\\|processor'; do
             grep -q \"$words\" report.txt || echo \"the report lacks $words\"
         done
         mac=$(ip -n router -o link show wan0 | sed 's/.*ether \\([0-9a-f:]*\\).*/\\1/')
         for secret in hunter2 \"$mac\" 203.0.113.9 198.51.100.77 2001:db8::77 52:54:00; do
             grep -n \"$secret\" report.txt && echo \"the report tells $secret\"
         done
         true",
    );
}
