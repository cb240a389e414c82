//! The daemon of a router in a fleet is killed at any moment of a trial, and started without its hub.

use sqm_lab::{Clock, Home, Line};

use super::shared::home;

/// Shell functions. A document names its upload rate, kbit/s.
const TOOLS: &str = "cd /tmp
    fleet() { ip netns exec server sqm fleet \"$@\" --hub hub; }
    start_server() { ip netns exec server nats-server --config hub/server.conf >nats.log 2>&1 & echo $! >nats.pid; }
    start_daemon() {
        STATE_DIRECTORY=/tmp/kept ip netns exec router sqm daemon --config /tmp/sqm $(cat arguments) >>log 2>&1 & echo $! >pid
        until sqm status --daemon >said 2>&1 && grep -q '^wan0: shaped' said; do sleep 0.5; done
    }
    # Waits until a condition holds, for three minutes.
    within() { for _ in $(seq 90); do \"$@\" && return; sleep 2; done; echo \"not reached: $*\"; fleet status; return 1; }
    upload_in_file() { sed -n \"s/^.option upload '\\(.*\\)'/\\1/p\" sqm; }
    has_in_force() { tc -n router qdisc show dev wan0 root | grep -q \"bandwidth $(($1 / 1000))Mbit\"; }
    # The router has its last document for good, and nobody has overtaken it.
    is_settled() { fleet status >status 2>&1 && grep -Eq '^r1 +([0-9]+) +\\1 +(unjudged|kept) ' status; }
    give() {
        fleet set $1.conf --router r1 --observe 5s --longest 20s >set 2>&1 || cat set
    }
";

/// A hub on the server, and the router under it with a document of 4 Mbit/s.
fn start() -> Home {
    let home = home(Clock::Virtual, &Line::named("cable24").expect("a known line"));
    for upload in [3000, 4000] {
        let text = format!(
            "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '25000'\n\
             \toption upload '{upload}'\n\toption script 'best_of_cake.qos'\n"
        );
        home.write(&format!("/tmp/{upload}.conf"), text.as_bytes())
            .expect("a file");
    }
    home.script(&format!(
        "{TOOLS}
         cp 3000.conf sqm; mkdir kept
         ip netns exec server sqm fleet hub init hub --url nats://10.66.0.2:4222 --listen 10.66.0.2:4222 --store /tmp/store >/dev/null 2>&1
         fleet enroll r1 >enrolled
         key=$(sed -n \"s/^.*fleet_key '\\(.*\\)'/\\1/p\" enrolled)
         echo \"--fleet-url nats://10.66.0.2:4222 --fleet-credentials /tmp/hub/credentials/r1.creds --fleet-key $key\" >arguments
         start_server; within fleet status >/dev/null 2>&1
         start_daemon
         give 4000; within is_settled; has_in_force 4000"
    ))
    .expect("the router has a document");
    home
}

/// Kills the daemon these times after a document was written, seconds. Its trial lasts 20 s.
pub(crate) fn kill_the_daemon(after_s: &[&str]) {
    let home = start();
    let said = home.script(&format!(
        "{TOOLS}
         new=4000
         for after in {}; do
             old=$new; new=$((7000 - old))
             give $new
             sleep $after; kill -9 $(cat pid)
             # The file has one whole text, old or new, and the daemon shapes by it.
             file=$(upload_in_file)
             [ \"$file\" = $old ] || [ \"$file\" = $new ] || echo \"$after s: the file has '$file'\"
             start_daemon
             ip netns exec router sqm verify --config /tmp/sqm >verify 2>&1 || {{ echo \"$after s:\"; cat verify; }}
             within is_settled || echo \"$after s: not settled\"
             has_in_force $new || echo \"$after s: $new is not in force\"
             [ \"$(upload_in_file)\" = $new ] || echo \"$after s: the file has $(upload_in_file)\"
         done",
        after_s.join(" ")
    ));
    assert_eq!(said.expect("it runs"), "");
}

#[test]
fn kill_9_of_the_daemon_before_in_and_after_a_trial_loses_no_document() {
    kill_the_daemon(&["0", "5", "20.2"]);
}

/// The hub is away for this long, and the router loses power meanwhile.
pub(crate) fn start_without_the_hub(away_s: u32) {
    let home = start();
    let said = home.script(&format!(
        "{TOOLS}
         kill -9 $(cat nats.pid)
         sleep {away_s}
         has_in_force 4000 || echo 'without the hub'
         # The router loses power: its queues and its state folder are gone.
         kill -9 $(cat pid)
         tc -n router qdisc del dev wan0 root; tc -n router qdisc del dev wan0 ingress; ip -n router link del ifb4wan0
         rm -r /var/run/sqm
         start_daemon
         has_in_force 4000 || echo 'after the start'
         # The hub comes back with all that it had acknowledged, and the next document arrives.
         start_server; within fleet status >/dev/null 2>&1
         give 3000; within is_settled; has_in_force 3000 || echo 'the next document'"
    ));
    assert_eq!(said.expect("it runs"), "");
}

#[test]
fn a_router_that_starts_while_the_hub_is_away_is_shaped_as_last_told() {
    start_without_the_hub(300);
}
