//! The state that is left if a change of the queues fails half-way, because the kernel refuses a step or the process
//! is killed with `kill -9`.

use super::twins;
use sqm_lab::Home;

fn boot() -> Home {
    let home = twins::boot();
    home.script_on(
        "router",
        "ip link add d0 type dummy && ip link set d0 up
         tc qdisc add dev d0 root handle 7: tbf rate 10mbit burst 5000 limit 30000",
    )
    .expect("a device with a queue of its own");
    twins::look_at_d0(&home);
    home
}

fn config(home: &Home, file: &str, script: &str, options: &str) {
    let text = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'd0'\n\toption download '24000'\n\toption upload '4400'\n\
         \toption linklayer 'ethernet'\n\toption overhead '18'\n\toption tcMPU '64'\n\toption script '{script}.qos'\n{options}"
    );
    home.write(file, text.as_bytes()).expect("a file");
}

#[test]
fn an_error_at_any_step_is_rolled_back() {
    refuse_each_step(&["simple"]);
}

pub(crate) fn refuse_each_step(scripts: &[&str]) {
    let home = boot();
    for script in scripts {
        config(
            &home,
            &format!("/tmp/{script}"),
            script,
            "\toption squash_ingress '0'\n",
        );
    }
    // The loop runs inside the guest: a request from outside costs more than a process there.
    let answer = home
        .script_on(
            "router",
            &format!(
                "set +e; cd /tmp; . ./look.sh >before
             for script in {}; do
                 n=1
                 while :; do
                     SQM_FAULT=error@$n sqm start --config $script >said 2>&1
                     code=$?
                     [ $code = 0 ] && break
                     . ./look.sh >after
                     [ $code = 1 ] && cmp -s before after || {{
                         echo \"$script: step $n: exit $code: $(cat said)\"; diff before after
                     }}
                     n=$((n + 1))
                     [ $n -gt 60 ] && break
                 done
                 echo \"$script: $((n - 1)) steps\"
                 sqm stop >said 2>&1 || cat said
                 . ./look.sh >after
                 cmp -s before after || {{ echo \"$script: stop\"; diff before after; }}
             done; true",
                scripts.join(" ")
            ),
        )
        .expect("the lab answers");
    let unexpected: Vec<&str> = answer.lines().filter(|line| !line.ends_with(" steps")).collect();
    assert!(unexpected.is_empty(), "{answer}");
    assert_eq!(answer.lines().count(), scripts.len(), "{answer}");
    // Three classes with filters in both directions take many steps.
    let steps = |script: &str| -> u32 {
        let line = answer
            .lines()
            .find(|line| line.starts_with(script))
            .expect("each is named");
        line.split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .expect("a number")
    };
    assert!(steps("simple:") >= 20, "{answer}");
}

#[test]
fn after_kill_9_at_many_points_start_and_stop_succeed() {
    kill_at_each(7);
}

/// Kills a start before every `step`-th change of the kernel. `step` is odd.
pub(crate) fn kill_at_each(step: u32) {
    let home = boot();
    config(&home, "/tmp/first", "piece_of_cake", "");
    config(&home, "/tmp/second", "simple", "\toption squash_ingress '0'\n");
    let answer = home
        .script_on(
            "router",
            &(format!("step={step}\n")
                + "set +e; cd /tmp; . ./look.sh >before
             sqm start --config second >/dev/null 2>said || cat said
             . ./look.sh >right
             sqm stop >/dev/null
             n=1
             while [ $n -le 60 ]; do
                 # For odd points from unshaped, for even ones from another setup script.
                 [ $((n % 2)) = 1 ] || sqm start --config first >/dev/null 2>&1
                 SQM_FAULT=kill@$n sqm start --config second >/dev/null 2>&1
                 code=$?
                 sqm start --config second >said 2>&1 || { echo \"point $n: $(cat said)\"; }
                 . ./look.sh >after
                 cmp -s right after || { echo \"point $n: not right\"; diff right after; }
                 sqm stop >said 2>&1 || { echo \"point $n: stop: $(cat said)\"; }
                 . ./look.sh >after
                 cmp -s before after || { echo \"point $n: stop\"; diff before after; }
                 [ $code = 0 ] && break
                 n=$((n + step))
             done
             echo \"$((n - 1)) points\""),
        )
        .expect("the lab answers");
    let points = answer
        .trim()
        .strip_suffix(" points")
        .and_then(|n| n.parse::<u32>().ok());
    assert!(points.is_some_and(|n| n >= 20), "{answer}");
}

#[test]
fn a_changed_rate_is_one_change_and_nothing_else() {
    let home = boot();
    config(&home, "/tmp/first", "best_of_cake", "");
    let second = home
        .run_ok(
            "router",
            &[
                "sh",
                "-c",
                "sed s/4400/4000/ /tmp/first >/tmp/second; cat /tmp/second",
            ],
        )
        .expect("a file");
    assert!(second.contains("4000"));
    let sqm = |words: &[&str]| home.run("router", words).expect("the lab answers");
    assert_eq!(sqm(&["sqm", "start", "--config", "/tmp/first"]).code, 0);
    let diff = sqm(&["sqm", "plan", "--diff", "--config", "/tmp/second"]);
    assert!(
        diff.stdout
            .starts_with("d0: 1 change would be made\n  d0: changed 1: to cake bandwidth 4mbit"),
        "{}",
        diff.stdout
    );
    let before = home.script_on("router", ". /tmp/look.sh").expect("tc looks");
    // A fault in the first change makes the reload fail, so that there is at least one change. A fault in the second
    // one is never reached.
    let refused = sqm(&[
        "env",
        "SQM_FAULT=error@1",
        "sqm",
        "reload",
        "--config",
        "/tmp/second",
    ]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert_eq!(
        home.script_on("router", ". /tmp/look.sh").expect("tc looks"),
        before
    );
    let reloaded = sqm(&[
        "env",
        "SQM_FAULT=error@2",
        "sqm",
        "reload",
        "--config",
        "/tmp/second",
    ]);
    assert_eq!(reloaded.code, 0, "{}", reloaded.stderr);
    let after = home.script_on("router", ". /tmp/look.sh").expect("tc looks");
    assert_eq!(after, before.replace("bandwidth 4400Kbit", "bandwidth 4Mbit"));
    let again = sqm(&[
        "env",
        "SQM_FAULT=error@1",
        "sqm",
        "reload",
        "--config",
        "/tmp/second",
    ]);
    assert!(again.stdout.contains("unchanged"), "{}", again.stdout);
}

#[test]
fn an_unconfirmed_change_is_rolled_back() {
    let home = boot();
    config(&home, "/tmp/first", "simple", "");
    let before = home.script_on("router", ". /tmp/look.sh").expect("tc looks");
    let output = home
        .run(
            "router",
            &["sqm", "start", "--confirm", "2", "--config", "/tmp/first"],
        )
        .expect("the lab answers");
    assert_eq!(output.code, 1, "{}", output.stderr);
    // The user reads what has changed before the question.
    let (changes, question) = output.stderr.split_once("Keep the change?").expect("a question");
    assert!(
        changes.contains("d0: added 1: root ") && changes.contains("replaces tbf 7:"),
        "{changes}"
    );
    assert_eq!(
        question,
        " Press Enter or run 'sqm confirm' within 2 s; otherwise it is rolled back.\n\
         sqm: not confirmed within 2 s: the change was rolled back\n"
    );
    assert_eq!(output.stdout, "");
    assert_eq!(
        home.script_on("router", ". /tmp/look.sh").expect("tc looks"),
        before
    );
    // The user confirms in another terminal.
    let kept = home
        .script_on(
            "router",
            "set +e; sqm start --confirm 60 --config /tmp/first >/tmp/said 2>&1 & started=$!
             while ! sqm confirm >/dev/null 2>&1; do sleep 0.1; done
             wait $started && cat /tmp/said",
        )
        .expect("the lab answers");
    assert!(kept.contains("d0: shaped"), "{kept}");
    let is_in_force = || {
        let verified = home.run("router", &["sqm", "verify", "--config", "/tmp/first"]);
        assert_eq!(verified.expect("the lab answers").code, 0);
    };
    is_in_force();
    // A second confirmation has nothing to confirm. Enter at the terminal confirms as well.
    let typed = home
        .script_on(
            "router",
            "set +e; sqm confirm 2>&1; echo \"second: $?\"; sqm stop >/dev/null 2>&1
             mkdir -p /dev/pts; mount -t devpts devpts /dev/pts
             echo | script -qec 'sqm start --confirm 60 --config /tmp/first' /dev/null; echo \"typed: $?\"",
        )
        .expect("the lab answers");
    for words in [
        "no change waits for a confirmation: it was confirmed or rolled back already\nsecond: 1\n",
        "Press Enter or run 'sqm confirm' within 60 s",
        "d0: shaped",
        "typed: 0",
    ] {
        assert!(typed.contains(words), "`{words}` is missing in {typed}");
    }
    is_in_force();
}

#[test]
fn a_change_that_cuts_the_connection_is_rolled_back() {
    let home = boot();
    config(&home, "/tmp/first", "simple", "");
    let before = home.script_on("router", ". /tmp/look.sh").expect("tc looks");
    // If the terminal hangs up, the wait goes on, and another terminal can still confirm. SIGTERM rolls back at once.
    // After SIGKILL another process rolls back.
    let answer = home
        .script_on(
            "router",
            "set +e; cd /tmp
             wait_for_it() { while [ ! -e /var/run/sqm/unconfirmed ]; do sleep 0.05; done; }
             begin() { rm -f /var/run/sqm/unconfirmed
                 setsid sqm start --confirm $1 --config first >said 2>&1 </dev/null & started=$!
                 wait_for_it; inside=$(cat /var/run/sqm/unconfirmed); }
             begin 3; kill -HUP $inside; wait $started; echo \"hung up: $?\"
             . ./look.sh >hung-up
             begin 300; kill -HUP $inside; sqm confirm; wait $started; echo \"confirmed: $?\"
             sqm stop >/dev/null
             begin 300; kill -TERM $inside; wait $started; echo \"ended: $?\"
             . ./look.sh >ended
             begin 300; kill -KILL $inside; wait $started
             while [ -e /var/run/sqm/unconfirmed ] || [ -e /var/run/sqm/undoing ]; do sleep 0.05; done
             . ./look.sh >killed
             sqm start --config first; sqm verify --config first",
        )
        .expect("the lab answers");
    for words in [
        "hung up: 1",
        "confirmed: the change stays\nconfirmed: 0",
        "ended: 1",
        "d0: shaped",
        "the kernel holds what is configured",
    ] {
        assert!(answer.contains(words), "`{words}` is missing in {answer}");
    }
    for file in ["hung-up", "ended", "killed"] {
        assert_eq!(
            home.script_on("router", &format!("cat /tmp/{file}"))
                .expect("a file"),
            before,
            "{file}"
        );
    }
}

/// Queues that a user may have set up by hand, in the words of `tc` for `dev d0`.
const BY_HAND: [&str; 16] = [
    "qdisc replace dev d0 root handle 5: fq_codel limit 777 target 7ms interval 70ms quantum 300 ecn",
    "qdisc replace dev d0 root handle 5: fq_codel flows 64 memory_limit 3Mb drop_batch 32 ce_threshold 1ms noecn",
    "qdisc replace dev d0 root handle 5: cake bandwidth 7mbit diffserv8 nat wash ack-filter overhead 30 mpu 64 rtt 40ms",
    "qdisc replace dev d0 root handle 5: cake unlimited flowblind atm overhead 44 memlimit 3Mb fwmark 0xf0",
    "qdisc replace dev d0 root handle 1: cake bandwidth 9mbit",
    "qdisc replace dev d0 root handle 5: codel limit 50 target 3ms interval 60ms ecn ce_threshold 2ms",
    "qdisc replace dev d0 root handle 5: pie limit 70 target 30ms tupdate 30ms alpha 4 beta 20 ecn",
    "qdisc replace dev d0 root handle 5: sfq perturb 10 quantum 3000 limit 100 divisor 512",
    "qdisc replace dev d0 root handle 5: pfifo limit 33",
    "qdisc replace dev d0 root handle 5: bfifo limit 3333",
    "qdisc replace dev d0 root handle 5: tbf rate 3mbit burst 5000 latency 50ms peakrate 4mbit mtu 2000",
    "qdisc replace dev d0 root handle 5: stab overhead 10 linklayer atm tsize 128 mtu 2047 mpu 60 tbf rate 3mbit burst 9000 \
     limit 20000",
    "qdisc replace dev d0 root handle 5: htb default 20 r2q 5
class add dev d0 parent 5: classid 5:1 htb rate 9mbit ceil 9mbit burst 20000
class add dev d0 parent 5:1 classid 5:10 htb rate 4mbit ceil 9mbit prio 1 quantum 3000
class add dev d0 parent 5:1 classid 5:20 htb rate 5mbit ceil 9mbit prio 2 overhead 20 linklayer atm
qdisc add dev d0 parent 5:10 handle 50: fq_codel limit 300
qdisc add dev d0 parent 5:20 handle 60: sfq
filter add dev d0 parent 5: protocol ip prio 3 u32 match u32 0xb80000 0xfc0000 at 0 flowid 5:10
filter add dev d0 parent 5: protocol all prio 9 handle 7 fw classid 5:20",
    "qdisc replace dev d0 root handle 1: htb default 12
class add dev d0 parent 1: classid 1:12 htb rate 9mbit",
    "qdisc replace dev d0 root handle 5: hfsc default 1
class add dev d0 parent 5: classid 5:1 hfsc sc m1 5mbit d 20ms m2 3mbit ul rate 6mbit
qdisc add dev d0 parent 5:1 handle 50: pfifo limit 20",
    "qdisc replace dev d0 root handle 5: fq_codel\nqdisc add dev d0 handle ffff: ingress",
];

#[test]
fn stop_restores_queues_that_were_set_by_hand() {
    restore_by_hand(4);
}

/// Starts and stops over every `step`-th of the queues that were set by hand.
pub(crate) fn restore_by_hand(step: usize) {
    let home = boot();
    config(&home, "/tmp/first", "simple", "");
    config(&home, "/tmp/second", "best_of_cake", "");
    let mut script = String::from("set +e; cd /tmp\n");
    for (n, commands) in BY_HAND.iter().enumerate().step_by(step) {
        home.write(&format!("/tmp/hand{n}"), format!("{commands}\n").as_bytes())
            .expect("a file");
        script += &format!(
            "tc qdisc del dev d0 root 2>/dev/null; tc qdisc del dev d0 ingress 2>/dev/null
             tc -batch hand{n} || echo 'hand {n} is not possible'
             . ./look.sh >before
             for config in first second; do
                 sqm start --config $config >said 2>&1 || {{ echo \"{n}: start:\"; cat said; }}
                 sqm verify --config $config >said 2>&1 || {{ echo \"{n}: verify:\"; cat said; }}
             done
             sqm stop >said 2>&1 || {{ echo \"{n}: stop:\"; cat said; }}
             . ./look.sh >after; cmp -s before after || {{ echo '{n}:'; diff before after; }}\n"
        );
    }
    // Queues that were set up by hand after a start are what the next start must restore at its stop.
    script += "tc qdisc del dev d0 root; tc qdisc del dev d0 ingress
        sqm start --config first >/dev/null 2>&1
        tc qdisc replace dev d0 root handle 6: pfifo limit 66
        sqm start --config second >/dev/null 2>&1
        sqm stop >/dev/null 2>&1
        tc qdisc show dev d0 | grep -q 'pfifo 6: root refcnt 2 limit 66p' || tc qdisc show dev d0\n";
    // Queues that cannot be restored are not removed.
    script += "tc qdisc replace dev d0 root handle 5: prio bands 4 && . ./look.sh >before
        sqm start --config first >said 2>&1; echo \"prio: $? $(cat said)\"
        . ./look.sh >after; diff before after; true";
    let answer = home.script_on("router", &script).expect("the lab answers");
    let lines: Vec<&str> = answer.lines().collect();
    assert!(
        lines.len() == 1
            && lines[0].starts_with("prio: 1 ")
            && lines[0].contains("the qdisc \"prio 5:\" exists already"),
        "{answer}"
    );
}

#[test]
fn another_program_that_owns_the_queues_is_named() {
    let home = boot();
    config(&home, "/tmp/first", "piece_of_cake", "");
    let sqm = |words: &[&str]| {
        let output = home
            .run("router", &[&["sqm"], words, &["--config", "/tmp/first"]].concat())
            .expect("the lab answers");
        assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
        output.stdout
    };
    let said = sqm(&["start"]);
    assert!(said.contains("replaces tbf 7:, set up by tc"), "{said}");
    let status = home
        .run_ok("router", &["sqm", "status", "d0"])
        .expect("the lab answers");
    assert!(status.starts_with("d0\n"), "{status}");
    // sqm-scripts takes over later, and its state file shows that.
    home.script_on(
        "router",
        "tc qdisc replace dev d0 root handle 9: fq_codel; mkdir -p /var/run/sqm; : >/var/run/sqm/d0.state",
    )
    .expect("tc works");
    let verified = home
        .run("router", &["sqm", "verify", "--config", "/tmp/first"])
        .expect("the lab answers");
    assert_eq!(verified.code, 1, "{}", verified.stderr);
    assert!(
        verified
            .stdout
            .contains("d0 owner planned sqm, found sqm-scripts"),
        "{}",
        verified.stdout
    );
    let status = home
        .run_ok("router", &["sqm", "status", "d0"])
        .expect("the lab answers");
    assert!(status.starts_with("d0: set up by sqm-scripts"), "{status}");
    let said = sqm(&["start"]);
    assert!(
        said.contains("has replaced sqm's cake 1: with fq_codel 9: (set up by sqm-scripts"),
        "{said}"
    );
    home.script_on("router", "tc qdisc replace dev d0 root handle 9: fq_codel")
        .expect("tc works");
    let said = home.run_ok("router", &["sqm", "stop"]).expect("the lab answers");
    assert!(
        said.contains("left fq_codel 9: alone, because another program has set it up: sqm-scripts"),
        "{said}"
    );
    let root = home
        .script_on("router", "tc qdisc show dev d0 root")
        .expect("tc looks");
    assert!(root.contains("fq_codel 9:"), "{root}");
}

#[test]
fn damaged_files_are_planned_alike_or_refused() {
    start_with_damaged_files(16);
}

/// Starts with this many damaged configurations, one after the other.
pub(crate) fn start_with_damaged_files(count: usize) {
    let home = boot();
    let good = "config queue\n\toption enabled '1'\n\toption interface 'd0'\n\toption download '24000'\n\
                \toption upload '4400'\n\toption script 'simple.qos'\n\toption linklayer 'ethernet'\n\
                \toption overhead '18'\n\toption eqdisc_opts 'limit 400 noecn'\n";
    // A small generator, so that every run uses the same files.
    let mut state = 20_u64;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    const PIECES: [&str; 14] = [
        "",
        "'",
        "\"",
        "\n",
        "\\",
        "config queue\n",
        "99999999999",
        "-",
        "ü",
        "mbit",
        " noecnn ",
        "\0",
        "#",
        "\toption ",
    ];
    for n in 0..count {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..=below(3) {
            let at = below(bytes.len());
            let end = (at + below(6)).min(bytes.len());
            bytes.splice(at..end, PIECES[below(PIECES.len())].bytes());
        }
        home.write(&format!("/tmp/damaged{n}"), &bytes).expect("a file");
    }
    let answer = home
        .script_on("router", &(format!("count={count}\n") + "set +e; cd /tmp; . ./look.sh >before
             look() { tc -d -force -batch look >$1 2>/dev/null; }
             look last
             for n in $(seq 0 $((count - 1))); do
                 sqm start --config damaged$n >said 2>&1
                 case $? in
                 0)  echo good; look last
                     sqm verify --config damaged$n >said 2>&1 || { echo \"$n: not verified\"; cat said; };;
                 2)  grep -q \"damaged$n:[0-9]\" said || grep -q 'no network device' said || { echo \"$n: no line\"; cat said; }
                     look now; cmp -s last now || { echo \"$n: touched\"; diff last now; }
                     echo refused;;
                 *)  echo \"$n: neither\"; cat said;;
                 esac
             done
             sqm stop >/dev/null 2>&1
             . ./look.sh >after; diff before after; true"),
        )
        .expect("the lab answers");
    let lines = |word: &str| answer.lines().filter(|line| *line == word).count();
    let (good, refused) = (lines("good"), lines("refused"));
    assert_eq!(answer.lines().count(), count, "{answer}");
    assert!(
        good + refused == count && good >= count / 40 && refused > count / 4,
        "{good} good, {refused} refused"
    );
}
