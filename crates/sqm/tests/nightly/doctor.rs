//! Faults that the doctor finds only in real time.

use sqm_lab::Clock;

use crate::lab::doctor::nothing_to_say;

/// By the wall's clock a processor can be too slow for its rates.
#[test]
fn a_saturated_processor_is_found() {
    nothing_to_say(
        Clock::Wall,
        "# A fast line, and rates that this machine cannot shape.
         tc -n modem qdisc del dev lan0 root; tc -n modem qdisc del dev wan0 root
         tc -n core qdisc del dev c0 root; tc -n core qdisc del dev c1 root
         configure \"s/'24000'/'10gbit'/; s/'4400'/'10gbit'/\"; start; seconds=3
         on_server() { ip netns exec server \"$@\"; }
         (exec ip netns exec server sqm serve --quiet >/dev/null 2>&1) & server=$!
         load() { (exec ip netns exec h1 sqm test 10.66.0.2 --test tcp_8down --idle 0.1 --duration $1 --quiet >tested 2>&1) & test=$!; }
         until ip netns exec server grep -qs ':8A19 0*:0000 0A' /proc/net/tcp6 /proc/net/tcp; do sleep 0.1; done
         # On a busy host it takes a while until the load saturates the processor.
         load 30
         for _ in $(seq 6); do
             found processor-bound >missed; [ -s missed ] || break
             doctor --facts; sed -n '/\"processors\"/,$p; /_now_/p' said >>missed; cat tested >>missed
             kill -0 $test 2>/dev/null || { wait $test || { echo 'the load failed:'; cat tested; }; load 30; }
         done
         cat missed; wait $test
         configure; start; load 12; sleep 5; healthy 'rates that it can shape'; wait $test
         kill $server",
    );
}
