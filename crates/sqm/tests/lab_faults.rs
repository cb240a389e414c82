//! What is left when a change of the queues goes wrong half-way: a refusal of the kernel, or `kill -9`.

mod lab;

use std::path::Path;

use sqm_lab::{Clock, Home, Line};

fn boot() -> Home {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    home.script(
        "ip -n router link add d0 type dummy && ip -n router link set d0 up
         tc -n router qdisc add dev d0 root handle 7: tbf rate 10mbit burst 5000 limit 30000",
    )
    .expect("a device with a queue of its own");
    home.write("/tmp/look.sh", LOOK.as_bytes()).expect("a file");
    home.write("/tmp/look", QUESTIONS.as_bytes()).expect("a file");
    home
}

/// All that can be seen of the device, without counters and numbers that the kernel chooses.
const LOOK: &str = "
    set +e; tc -n router -d -force -batch /tmp/look 2>/dev/null | sed 's/refcnt [0-9]*//; s/index [0-9]* ref [0-9]* bind [0-9]*//'
    ip -n router -o link show type ifb | cut -d' ' -f2- | sed 's/ qlen.*//'
    ip netns exec router nft list ruleset
";
const QUESTIONS: &str =
    "qdisc show dev d0\nclass show dev d0\nfilter show dev d0\nfilter show dev d0 parent ffff:
qdisc show dev ifb4d0\nclass show dev ifb4d0\nfilter show dev ifb4d0\n";

const SET_UPS: [&str; 8] = [
    "best_of_cake",
    "piece_of_cake",
    "layer_cake",
    "simple",
    "simplest",
    "simplest_tbf",
    "hfsc_lite",
    "hfsc_litest",
];

fn config(home: &Home, file: &str, script: &str, options: &str) {
    let text = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'd0'\n\toption download '24000'\n\toption upload '4400'\n\
         \toption linklayer 'ethernet'\n\toption overhead '18'\n\toption tcMPU '64'\n\toption script '{script}.qos'\n{options}"
    );
    home.write(file, text.as_bytes()).expect("a file");
}

#[test]
fn a_refusal_at_any_step_of_any_set_up_leaves_everything_as_it_was() {
    let home = boot();
    for script in SET_UPS {
        config(
            &home,
            &format!("/tmp/{script}"),
            script,
            "\toption squash_ingress '0'\n",
        );
    }
    // Inside the guest, because a question from outside costs more than a process there.
    let answer = home
        .script(&format!(
            "set +e; cd /tmp; . ./look.sh >before
             for script in {}; do
                 n=1
                 while :; do
                     ip netns exec router env SQM_FAULT=error@$n sqm start --config $script >said 2>&1
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
                 ip netns exec router sqm stop >said 2>&1 || cat said
                 . ./look.sh >after
                 cmp -s before after || {{ echo \"$script: stop\"; diff before after; }}
             done; true",
            SET_UPS.join(" ")
        ))
        .expect("the lab answers");
    let unexpected: Vec<&str> = answer.lines().filter(|line| !line.ends_with(" steps")).collect();
    assert!(unexpected.is_empty(), "{answer}");
    assert_eq!(answer.lines().count(), SET_UPS.len(), "{answer}");
    // A cake is a few steps, three classes with filters both ways are many.
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
    assert!(steps("piece_of_cake") >= 5 && steps("simple:") >= 20, "{answer}");
}

#[test]
fn after_kill_9_at_any_point_a_start_ends_right_and_a_stop_too() {
    let home = boot();
    config(&home, "/tmp/first", "piece_of_cake", "");
    config(&home, "/tmp/second", "simple", "\toption squash_ingress '0'\n");
    let answer = home
        .script(
            "set +e; cd /tmp; . ./look.sh >before
             ip netns exec router sqm start --config second >/dev/null 2>said || cat said
             . ./look.sh >right
             ip netns exec router sqm stop >/dev/null
             n=1
             while [ $n -le 60 ]; do
                 # From nothing for odd points, from another set-up for even ones.
                 [ $((n % 2)) = 1 ] || ip netns exec router sqm start --config first >/dev/null 2>&1
                 ip netns exec router env SQM_FAULT=kill@$n sqm start --config second >/dev/null 2>&1
                 code=$?
                 ip netns exec router sqm start --config second >said 2>&1 || { echo \"point $n: $(cat said)\"; }
                 . ./look.sh >after
                 cmp -s right after || { echo \"point $n: not right\"; diff right after; }
                 ip netns exec router sqm stop >said 2>&1 || { echo \"point $n: stop: $(cat said)\"; }
                 . ./look.sh >after
                 cmp -s before after || { echo \"point $n: stop\"; diff before after; }
                 [ $code = 0 ] && break
                 n=$((n + 1))
             done
             echo \"$((n - 1)) points\"",
        )
        .expect("the lab answers");
    let points = answer
        .trim()
        .strip_suffix(" points")
        .and_then(|n| n.parse::<u32>().ok());
    assert!(points.is_some_and(|n| n >= 10), "{answer}");
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
    let before = home.script(". /tmp/look.sh").expect("tc looks");
    // The first change fails, so there is one; no second one is reached.
    let refused = sqm(&[
        "env",
        "SQM_FAULT=error@1",
        "sqm",
        "reload",
        "--config",
        "/tmp/second",
    ]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert_eq!(home.script(". /tmp/look.sh").expect("tc looks"), before);
    let reloaded = sqm(&[
        "env",
        "SQM_FAULT=error@2",
        "sqm",
        "reload",
        "--config",
        "/tmp/second",
    ]);
    assert_eq!(reloaded.code, 0, "{}", reloaded.stderr);
    let after = home.script(". /tmp/look.sh").expect("tc looks");
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
fn what_is_not_confirmed_is_put_back() {
    let home = boot();
    config(&home, "/tmp/first", "simple", "");
    let before = home.script(". /tmp/look.sh").expect("tc looks");
    let output = home
        .run(
            "router",
            &["sqm", "start", "--confirm", "2", "--config", "/tmp/first"],
        )
        .expect("the lab answers");
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("not confirmed"), "{}", output.stderr);
    assert_eq!(home.script(". /tmp/look.sh").expect("tc looks"), before);
    // Somebody confirms in another terminal.
    let kept = home
        .script(
            "set +e; ip netns exec router sqm start --confirm 60 --config /tmp/first >/tmp/said 2>&1 & started=$!
             while ! ip netns exec router sqm confirm >/dev/null 2>&1; do sleep 0.1; done
             wait $started && cat /tmp/said",
        )
        .expect("the lab answers");
    assert!(kept.contains("d0: shaped"), "{kept}");
    assert_eq!(
        home.run("router", &["sqm", "verify", "--config", "/tmp/first"])
            .expect("the lab answers")
            .code,
        0
    );
}

#[test]
fn another_owner_is_found_and_named() {
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
    assert!(said.contains("takes the place of tbf 7: (by tc"), "{said}");
    // sqm-scripts comes later, and its state file tells.
    home.script(
        "tc -n router qdisc replace dev d0 root handle 9: fq_codel; mkdir -p /run/sqm; : >/run/sqm/d0.state",
    )
    .expect("tc works");
    let said = sqm(&["start"]);
    assert!(
        said.contains("fq_codel 9: has replaced our cake 1: since (sqm-scripts"),
        "{said}"
    );
    home.script("tc -n router qdisc replace dev d0 root handle 9: fq_codel")
        .expect("tc works");
    let said = home.run_ok("router", &["sqm", "stop"]).expect("the lab answers");
    assert!(
        said.contains("left fq_codel 9: alone, it is not ours (sqm-scripts"),
        "{said}"
    );
    let root = home
        .script("tc -n router qdisc show dev d0 root")
        .expect("tc looks");
    assert!(root.contains("fq_codel 9:"), "{root}");
}

#[test]
fn two_hundred_damaged_files_are_planned_alike_or_refused() {
    let home = boot();
    let good = "config queue\n\toption enabled '1'\n\toption interface 'd0'\n\toption download '24000'\n\
                \toption upload '4400'\n\toption script 'simple.qos'\n\toption linklayer 'ethernet'\n\
                \toption overhead '18'\n\toption eqdisc_opts 'limit 400 noecn'\n";
    // A small generator of our own: the files are the same in every run.
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
    for n in 0..200 {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..=below(3) {
            let at = below(bytes.len());
            let end = (at + below(6)).min(bytes.len());
            bytes.splice(at..end, PIECES[below(PIECES.len())].bytes());
        }
        home.write(&format!("/tmp/damaged{n}"), &bytes).expect("a file");
    }
    let answer = home
        .script(
            "set +e; cd /tmp; . ./look.sh >before
             for n in $(seq 0 199); do
                 ip netns exec router sqm start --config damaged$n >said 2>&1
                 case $? in
                 0)  echo good;;
                 2)  grep -q \"damaged$n:[0-9]\" said || grep -q 'no network device' said || { echo \"$n: no line\"; cat said; }
                     echo refused;;
                 *)  echo \"$n: neither\"; cat said;;
                 esac
                 [ $((n % 20)) = 19 ] || continue
                 ip netns exec router sqm stop >/dev/null 2>&1
                 . ./look.sh >after; cmp -s before after || { echo \"$n: something is left\"; diff before after; }
             done; true",
        )
        .expect("the lab answers");
    let count = |word: &str| answer.lines().filter(|line| *line == word).count();
    let (good, refused) = (count("good"), count("refused"));
    assert_eq!(answer.lines().count(), 200, "{answer}");
    assert!(
        good + refused == 200 && good >= 5 && refused > 50,
        "{good} good, {refused} refused"
    );
}
