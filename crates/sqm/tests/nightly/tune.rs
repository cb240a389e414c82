//! `sqm tune` on many lines, against each kind of server, and ended at random moments.

use serde_json::Value;
use sqm_lab::{Boost, Buffer, Clock, Direction, Home, Line, home::SERVER_V4};
use sqm_measure::protocol::DEFAULT_PORT;

use crate::lab::shared::{home, load, start};
use crate::lab::tune::{
    LENGTH_S, RATE, allowed_ms, check_rates, configure, number, on_the_line, tc, tune, tune_and_judge,
    tune_and_judge_at, tune_meanwhile,
};

/// The best share of one of the line's rates in steps of 1 %: the highest one at which the load of both directions
/// adds no more than is allowed, while the other direction has the rate that tune found. All shares are tried, from
/// above, each in a test of its own with fresh queues.
fn best_share(home: &Home, line: &Line, layer: &str, found: [u64; 2], direction: usize) -> f64 {
    let gross = [&line.down, &line.up].map(|way| way.kbits_per_sec);
    // A probe that waits behind the previous probe would measure that one and not the load.
    let four_packets_ms = 4.0 * on_the_line(line, 1500.0) / gross[0].min(gross[1]) as f64;
    let interval = format!("{:.0}ms", four_packets_ms.max(40.0));
    // A slow line sends few packets in 20 s, so that the 95th percentile varies from test to test.
    let duration = if gross[1] < 1000 || gross[0] < 5000 {
        "60s"
    } else {
        "20s"
    };
    // After its boost a line carries a little more than its rate for minutes, so that shares above 100 % are not
    // tried.
    let is_boosted = [&line.down, &line.up][direction].boost.is_some();
    let most = if is_boosted { 100 } else { 103 };
    let options = format!(
        "\toption linklayer '{layer}'\n\toption overhead '{}'\n",
        line.overhead
    );
    let allowed = allowed_ms(line);
    for percent in (80..=most).rev() {
        let mut rates = found;
        rates[direction] = gross[direction] * percent / 100;
        let [down, up] = rates;
        start(home, "best_of_cake", down, up, &options);
        let figures = load(
            home,
            &[
                "--after",
                "0",
                "--duration",
                duration,
                "--probe-interval",
                &interval,
            ],
        );
        home.run_ok("router", &["sqm", "stop"]).expect("sqm stop");
        let added = figures.p95_ms - figures.idle_ms;
        println!(
            "{}: {down}/{up}: load adds {added:.1} ms of {allowed:.1}",
            line.name
        );
        if added <= allowed {
            return percent as f64 / 100.0;
        }
    }
    panic!("no rate of {} holds the target", line.name);
}

/// Tunes a line and checks the report. The rates are compared with the best ones of an exhaustive search on the same
/// line.
fn check_beside_all_rates(line: &Line, layer: &str) {
    let (home, report) = tune_and_judge(line, layer, SERVER_V4);
    let directions = [("download_kbit", &line.down), ("upload_kbit", &line.up)];
    let found = directions.map(|(what, _)| number(&report[what]) as u64);
    for (direction, (what, way)) in directions.into_iter().enumerate() {
        let share = found[direction] as f64 / way.kbits_per_sec as f64;
        let best = best_share(&home, line, layer, found, direction);
        println!("{}: {what} {share:.3} of the line's, best {best:.2}", line.name);
        assert!(share >= best * (1.0 - RATE), "{what}: {share:.3}, best {best:.2}");
        // Allows for one step of the exhaustive search, and for the error of tune's shorter tests.
        assert!(share <= best * (1.0 + RATE), "{what}: {share:.3}, best {best:.2}");
    }
}

/// Tunes a line that is configured with this link layer, against any server, and checks the report. The rates are
/// compared with the line's. Returns the report.
fn check_against(line: &Line, layer: &str, server: &str) -> Value {
    let (_, report) = tune_and_judge(line, layer, server);
    check_rates(line, &report, 1.0);
    report
}

/// Prints everything that tune could leave behind: queues, devices, records, files and processes.
const TRACES: &str = "traces() {
    tc -n router qdisc show; tc -n router filter show dev wan0 ingress; ip -n router -o link | cut -d: -f2
    for file in /var/run/sqm/*.json /etc/config/*; do echo $file; cat $file; done 2>/dev/null
    pgrep -af 'sqm tune' || echo 'no search runs'
}
ended() { for i in $(seq 100); do pgrep -f 'sqm tune' >/dev/null || return 0; sleep 0.1; done; }
set +e; cd /tmp
";

/// Signals that end a search, and the exit code after each.
const ENDS: [(&str, i32); 4] = [("INT", 1), ("KILL", 137), ("TERM", 1), ("HUP", 129)];

/// A search takes longer than this, seconds.
const LAST_S: f64 = 60.0;

/// Ends a search after `moment` seconds, and expects the state from before. `what` names the seed.
fn end_it_at(home: &Home, moment: f64, (signal, code): (&str, i32), what: &str) {
    let said = home
        .script(&format!(
            "{TRACES}
             traces >before
             ip netns exec router sqm tune {SERVER_V4} >out 2>err & tune=$!
             sleep {moment:.3}; kill -{signal} $tune; wait $tune; echo code $?
             ended; traces >after; diff before after && echo as before; cat err"
        ))
        .expect("a script");
    println!(
        "{what}: {signal} after {moment:.3} s: {}",
        said.lines().next().unwrap_or_default()
    );
    assert!(
        said.starts_with(&format!("code {code}\nas before\n")),
        "{what}: {signal} after {moment:.3} s: {said}"
    );
    assert!(
        said.contains("the previous shaping has been restored") || moment < 1.0,
        "{what}: {said}"
    );
}

/// Ends searches at random moments, one in each part of a search. SEED reproduces them.
#[test]
fn tune_ended_at_any_moment_restores_the_previous_shaping() {
    let seed =
        std::env::var("SEED").map_or_else(|_| std::process::id(), |seed| seed.parse().expect("a number"));
    let what = format!("SEED={seed}");
    let mut state = u64::from(seed);
    let mut random = move || {
        // Knuth's MMIX generator, of which the high bits are used.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    let line = Line::named("cable24").expect("a known line");
    let home = home(Clock::Virtual, &line);
    configure(&home, line.overhead, "ethernet");
    let bare = tc(&home);
    let parts = 24;
    let mut moment = |part: u32| 0.3 + (f64::from(part) + random()) / f64::from(parts) * LAST_S;
    let all: Vec<_> = (0..parts)
        .map(|part| (moment(part), ENDS[part as usize % ENDS.len()]))
        .collect();
    // The search starts without shaping, with the shaping of `sqm start`, and beside the daemon. Each of these is
    // tested with every signal, at moments spread over the whole search.
    let of = |kind: usize| {
        all.iter()
            .enumerate()
            .filter(move |(place, _)| place / ENDS.len() % 3 == kind)
            .map(|(_, one)| *one)
    };
    for (moment, end) in of(0) {
        end_it_at(&home, moment, end, &what);
    }
    home.run_ok("router", &["sqm", "start"]).expect("sqm start");
    for (moment, end) in of(1) {
        end_it_at(&home, moment, end, &what);
    }
    // Kills tune together with its watchdog, as when all processes of a machine are killed. The next start restores
    // the shaping, and its stop leaves nothing.
    for place in 0..4 {
        let moment = moment(place * 6);
        let said = home
            .script(&format!(
                "{TRACES}
                 traces >before
                 ip netns exec router sqm tune {SERVER_V4} >out 2>err & tune=$!
                 sleep {moment:.3}; pkill -KILL -f 'sqm tune'; wait $tune; ended
                 ip netns exec router sqm start >/dev/null; traces >after; diff before after && echo as before"
            ))
            .expect("a script");
        assert_eq!(said, "as before\n", "{what}: all killed after {moment:.3} s");
    }
    home.run_ok("router", &["sqm", "stop"]).expect("sqm stop");
    assert_eq!(tc(&home), bare, "{what}");
    home.spawn("router", &["sqm", "daemon"]).expect("the daemon");
    home.script("for i in $(seq 100); do ip netns exec router sqm verify >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1")
        .expect("the daemon shapes");
    for (moment, end) in of(2) {
        end_it_at(&home, moment, end, &what);
    }
}

fn layer_of(line: &Line) -> &'static str {
    if line.atm { "atm" } else { "ethernet" }
}

fn check_named_beside_all_rates(name: &str) {
    let line = Line::named(name).expect("a known line");
    check_beside_all_rates(&line, layer_of(&line));
}

/// A line that is not among the lab's named ones: rates in kbit/s, buffers and round trip in ms, overhead in bytes.
fn unnamed(name: &'static str, down: (u64, u32), up: (u64, u32), base_rtt_ms: u32, overhead: u16) -> Line {
    let direction = |(kbits_per_sec, millis)| Direction {
        kbits_per_sec,
        buffer: Buffer::Millis(millis),
        boost: None,
    };
    Line {
        name,
        down: direction(down),
        up: direction(up),
        base_rtt_ms,
        overhead,
        atm: false,
    }
}

#[test]
fn a_vdsl_line() {
    check_named_beside_all_rates("vdsl80");
}

#[test]
fn an_upload_of_one_megabit() {
    check_named_beside_all_rates("up1m");
}

#[test]
fn a_line_in_atm_cells() {
    check_named_beside_all_rates("adsl8");
}

/// Lines of every kind, with figures that were not used in the development of tune.
#[test]
fn further_lines() {
    for line in [
        unnamed("100/40 VDSL2", (100_000, 100), (40_000, 150), 8, 30),
        unnamed("50/10 cable", (50_000, 250), (10_000, 500), 15, 18),
        unnamed("30/5 LTE", (30_000, 1000), (5000, 1000), 60, 22),
        unnamed("20/4 far away", (20_000, 400), (4000, 400), 80, 22),
        unnamed("16/2.5", (16_000, 200), (2500, 500), 18, 22),
        unnamed("10/10", (10_000, 300), (10_000, 300), 40, 22),
        unnamed("60/12 with short buffers", (60_000, 12), (12_000, 20), 25, 18),
    ] {
        check_beside_all_rates(&line, "ethernet");
    }
}

/// Slow in both directions: a few full packets take as long as the latency that load may add elsewhere.
#[test]
fn further_slow_lines() {
    for line in [
        unnamed("3/1", (3000, 300), (1000, 500), 40, 22),
        unnamed("5/2", (5000, 300), (2000, 500), 40, 22),
        unnamed("2/0.5", (2000, 300), (500, 500), 40, 22),
        unnamed("1.5/0.5", (1500, 300), (500, 500), 40, 22),
        unnamed("4/4", (4000, 300), (4000, 300), 40, 22),
        unnamed("3/3", (3000, 300), (3000, 300), 40, 22),
    ] {
        check_beside_all_rates(&line, "ethernet");
    }
}

/// ADSL and ADSL2+, with PPPoE and with PPPoA.
#[test]
fn further_lines_in_atm_cells() {
    for line in [
        unnamed("16/1 ADSL2+", (16_000, 300), (1000, 800), 30, 40),
        unnamed("12/1.2 ADSL2+", (12_000, 300), (1200, 800), 25, 14),
        unnamed("8/0.8 ADSL", (8000, 300), (800, 700), 45, 32),
        unnamed("6/0.384 ADSL", (6000, 400), (384, 1000), 30, 40),
        unnamed("2.5/0.5 ADSL", (2500, 500), (500, 1500), 30, 40),
    ] {
        check_beside_all_rates(&Line { atm: true, ..line }, "atm");
    }
}

/// Lines with an initial boost, in the download and in the upload.
#[test]
fn lines_that_are_faster_at_first() {
    check_named_beside_all_rates("boost24");
    let mut line = unnamed("40/8 with a boost", (40_000, 600), (8000, 800), 25, 18);
    line.down.boost = boost(80_000, 8);
    check_beside_all_rates(&line, "ethernet");
    let mut line = unnamed("30/5 with a boost upwards", (30_000, 400), (5000, 600), 20, 18);
    line.up.boost = boost(10_000, 10);
    check_beside_all_rates(&line, "ethernet");
}

fn boost(peak_kbits_per_sec: u64, seconds: u32) -> Option<Boost> {
    Some(Boost {
        peak_kbits_per_sec,
        seconds,
    })
}

/// Fast lines.
#[test]
fn further_fast_lines() {
    let mut line = unnamed("300/20 cable", (300_000, 100), (20_000, 100), 12, 18);
    line.up.buffer = Buffer::Bytes(256_000);
    check_beside_all_rates(&line, "ethernet");
    let line = unnamed("1000/50 cable", (1_000_000, 50), (50_000, 200), 8, 18);
    check_against(&line, "ethernet", SERVER_V4);
}

/// `sqm serve` also speaks the protocol of networkQuality. It reports less than sqm's own, so that tune cannot find
/// the overhead.
#[test]
fn a_server_of_the_responsiveness_test() {
    let line = Line::named("cable24").expect("a known line");
    let server = format!("{SERVER_V4} --rpm --insecure --port {DEFAULT_PORT}");
    let report = check_against(&line, "ethernet", &server);
    assert_eq!(report["server"], "rpm");
    assert!(report["overhead"].is_null(), "{report}");
    assert!(report["not_told"].to_string().contains("overhead: "), "{report}");
}

/// A plain web server accepts no uploads. The upload's rate stays as it is, in the kernel and in the file.
#[test]
fn a_large_file_on_the_web() {
    let line = Line::named("vdsl80").expect("a known line");
    let home = home(Clock::Virtual, &line);
    home.script("mkdir /tmp/files; truncate -s 4G /tmp/files/large")
        .expect("a file");
    let web = [
        "python3",
        "-m",
        "http.server",
        "8000",
        "--directory",
        "/tmp/files",
    ];
    home.spawn_server("server", &web, 8000).expect("a web server");
    let configured = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '30000'\n\toption upload '18500'\n\
         \toption script 'best_of_cake.qos'\n\toption linklayer 'ethernet'\n\toption overhead '{}'\n",
        line.overhead
    );
    home.write("/etc/config/sqm", configured.as_bytes())
        .expect("a file");
    let (report, seconds) = tune(&home, &format!("http://{SERVER_V4}:8000/large"), "--write");
    println!("{seconds:.0} s, {report:#}");
    let share = number(&report["download_kbit"]) / line.down.kbits_per_sec as f64;
    assert!(
        (1.0 - RATE..=1.01).contains(&share),
        "{share:.3} of the line's rate"
    );
    let added = number(&report["verified"]["added_p95_ms"]);
    assert!(added <= allowed_ms(&line), "{added} ms, {report}");
    assert!(
        report["warning"].is_null() && seconds <= LENGTH_S,
        "{seconds} s, {report}"
    );
    assert_eq!(report["server"], "url");
    assert_eq!(report["found"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["upload_kbit"], 18_500);
    assert!(report["not_told"].to_string().contains("upload: "), "{report}");
    let written = home.script("cat /etc/config/sqm").expect("a file");
    assert_eq!(
        written,
        configured.replace("30000", &report["download_kbit"].to_string())
    );
    home.run_ok("router", &["sqm", "verify"])
        .expect("the new rate is in force, and the old one of the upload");
}

/// A web server that is not ours. It offers a large file and accepts uploads.
const WEB: &str = r#"
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(4 << 30))
        self.end_headers()
        for _ in range(4 << 14):
            self.wfile.write(bytes(1 << 16))

    def do_POST(self):
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 1 << 16)))
        self.send_response(204)
        self.end_headers()

http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"#;

#[test]
fn a_large_file_and_an_upload_url() {
    let line = Line::named("cable24").expect("a known line");
    let home = home(Clock::Virtual, &line);
    home.write("/tmp/web.py", WEB.as_bytes()).expect("a file");
    home.spawn_server("server", &["python3", "/tmp/web.py"], 8000)
        .expect("a web server");
    let server = format!("http://{SERVER_V4}:8000/large --upload-url http://{SERVER_V4}:8000/in");
    let report = tune_and_judge_at(&home, &line, "ethernet", &server);
    check_rates(&line, &report, 1.0);
    assert_eq!(report["server"], "url");
    assert_eq!(report["found"].as_array().map(Vec::len), Some(2), "{report}");
    let not_told = report["not_told"].to_string();
    assert!(
        not_told.contains("overhead: ") && !not_told.contains("upload: "),
        "{report}"
    );
}

#[test]
fn a_configuration_that_another_program_changes_during_the_search_is_kept() {
    let line = Line::named("vdsl80").expect("a known line");
    let home = home(Clock::Virtual, &line);
    configure(&home, line.overhead, "ethernet");
    home.run_ok("router", &["sqm", "start"]).expect("sqm start");
    let before = tc(&home);
    // Another program writes the configuration during the search. Its text stays, and tune reports why it wrote
    // nothing.
    let said = tune_meanwhile(
        &home,
        "--write --quick",
        "cp /etc/config/sqm kept; (cat kept; echo '# theirs') >theirs; cp theirs new; mv new /etc/config/sqm",
    );
    assert!(said.contains("code 1"), "{said}");
    assert!(said.contains("was changed by another program"), "{said}");
    assert_eq!(tc(&home), before, "the previous shaping has been restored");
    home.script("cmp /tmp/theirs /etc/config/sqm")
        .expect("the other program's text is there");
}
