//! How soon `sqm test` ends with a server that never finishes. The guest's clock is virtual, so the limits hold on every
//! machine.

use super::search::{boot, nothing_to_say, serve};
use sqm_lab::home::SERVER_V4;

/// The longest test, seconds: its phases of half a second, two, and half a second, and ten more, as docs/results/promises.md says.
const LONGEST_S: u32 = 13;
/// A test ends so soon after an interrupt, seconds: 2, and up to a quarter for each of the steps that wait for a tick.
const INTERRUPT_S: u32 = 3;

/// Servers of which a test sees no end.
const SERVERS: [&str; 7] = [
    "load-slow-words",
    "accept-silence",
    "attach-drip",
    "load-silence",
    "results-drip",
    "http-silence",
    "http-slow-redirects",
];

#[test]
fn a_test_ends_in_time_and_soon_after_an_interrupt() {
    let home = boot(SERVERS[0]);
    for (behaviour, port) in SERVERS.into_iter().zip(7000_u16..) {
        if port > 7000 {
            serve(&home, behaviour, port);
        }
        let phases = "--together --settle 500ms --idle 500ms --congestion system";
        let place = match behaviour.starts_with("http-") {
            true => format!("--url http://{SERVER_V4}:{port}/"),
            false => format!("{SERVER_V4} --port {port}"),
        };
        nothing_to_say(
            &home,
            &format!(
                r#"begin() {{ sqm test {place} {phases} --duration $1 >/dev/null 2>err & test=$!; }}
                   from=$(up); begin 2s; wait $test; code=$?
                   at_most "{behaviour}" $from {LONGEST_S}
                   [ $code = 1 ] || {{ echo "{behaviour}: code $code"; cat err; }}
                   # While it connects, on the idle line, and under load.
                   for moment in 0.1 0.6 3; do
                       begin 60s; sleep $moment
                       from=$(up); kill -INT $test; wait $test; code=$?
                       at_most "{behaviour}: an interrupt after $moment s" $from {INTERRUPT_S}
                       [ $code = 1 ] && grep -q interrupted err || {{ echo "{behaviour}, $moment s: code $code"; cat err; }}
                   done
                   # While it waits for the results.
                   begin 2s; sleep 4
                   from=$(up); kill -INT $test; wait $test
                   at_most "{behaviour}: a late interrupt" $from {INTERRUPT_S}"#
            ),
        );
    }
}
