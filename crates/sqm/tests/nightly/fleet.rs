//! A router of a fleet whose daemon is killed, one whose hub is away, twenty routers in roll-outs, and the walk of the guide.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::lab::fleet::roll_outs;
use crate::lab::fleet_kill::{kill_the_daemon, start_without_the_hub};
use crate::lab::guide;

#[test]
fn kill_9_of_the_daemon_at_ten_points_of_a_trial_loses_no_document() {
    kill_the_daemon(&["0", "0.1", "0.3", "0.7", "1", "2", "10", "19.9", "20.2", "21"]);
}

#[test]
fn after_an_hour_without_the_hub_a_router_starts_as_last_told() {
    start_without_the_hub(3600);
}

#[test]
fn a_bad_document_halts_at_two_of_twenty_routers_and_a_good_one_reaches_all() {
    roll_outs(20, &["r1", "r10"]);
}

#[test]
fn the_guide_leads_from_nothing_to_two_routers_and_a_roll_out_that_halts() {
    let page = fs::read_to_string(guide::folder().join("fleet.md")).expect("the guide");
    let blocks = |text: &str| -> Vec<String> {
        let blocks = text.split("\n```").skip(1).step_by(2);
        blocks.map(|block| block.trim_start().to_owned()).collect()
    };
    let configuration = blocks(&page)
        .into_iter()
        .find(|block| block.starts_with("config queue") && block.contains("{{download}}"))
        .expect("the guide has a configuration")
        .replace("eth1", "wan0");
    let walk = page.split("### The same in the lab\n").nth(1);
    let walk = walk
        .and_then(|rest| rest.split("\n## ").next())
        .expect("the walk");
    let walk = blocks(walk);
    let [first, routers, roll_out] = walk.as_slice() else {
        panic!("three blocks of commands, not {walk:#?}");
    };
    let (up, hub) = first
        .split_once("sqm-lab shell server\n")
        .expect("a shell on the server");
    let wait = "until [ $(sqm fleet status | grep -c unjudged) = 2 ]; do sleep 1; done";
    let roll_out = roll_out.replace("sqm fleet watch", wait);

    let folder = tempfile::tempdir().expect("a folder");
    let programs = Path::new(env!("CARGO_BIN_EXE_sqm-lab"))
        .parent()
        .expect("a folder");
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").expect("a path")
    );
    let sh = |script: &str| {
        let output = Command::new("sh")
            .args(["-c", script])
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", folder.path())
            .output()
            .expect("sh runs");
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (out, err)
    };
    let on_server = |script: &str| {
        sh(&format!(
            "sqm-lab run server -- sh -c '{}'",
            script.replace('\'', "'\\''")
        ))
    };
    let said = [
        sh(up),
        on_server(hub),
        sh(routers),
        on_server(&format!(
            "cd /tmp; export SQM_FLEET=/tmp/homes; cat >sqm.conf <<END\n{configuration}\nEND\n{roll_out}"
        )),
    ];
    sh("sqm-lab down");
    let status = said[3].0.split("router  wanted").nth(1).unwrap_or_default();
    let row = |name: &str| {
        status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(row("r1 ").contains("rolled back"), "{said:#?}");
    assert!(row("r2 ").contains("unjudged"), "{said:#?}");
    assert!(
        status.contains("roll-out too-fast: halted in step 1 of 2"),
        "{said:#?}"
    );
}
