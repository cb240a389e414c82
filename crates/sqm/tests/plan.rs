//! `sqm plan` on the command line: takes configuration files, prints commands or exact error messages.

use std::io::Write;
use std::process::{Command, Output};

const GOOD: &str = "config queue 'wan'
	option enabled '1'
	option interface 'sqm-none0'
	option download '85000'
	option upload '10mbit'
	option script 'piece_of_cake.qos'
";

/// Runs `sqm plan` on a file with this content. Returns the file's name as well.
fn plan(content: &[u8], arguments: &[&str]) -> (String, Output) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .arg("plan")
        .arg("--config")
        .arg(file.path())
        .args(arguments)
        .output()
        .unwrap();
    (file.path().display().to_string(), output)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn prints_the_plan_in_each_format() {
    let (_, output) = plan(GOOD.as_bytes(), &[]);
    assert!(output.status.success());
    assert!(
        text(&output.stdout)
            .starts_with("sqm-none0 by piece_of_cake.qos\n  egress on sqm-none0\n    1: root cake")
    );
    assert_eq!(text(&output.stderr), "");

    let (_, output) = plan(GOOD.as_bytes(), &["--format", "tc", "sqm-none0"]);
    let commands = text(&output.stdout);
    assert!(
        commands.starts_with("tc qdisc add dev sqm-none0 root handle 1: cake bandwidth 10mbit"),
        "{commands}"
    );
    assert!(
        commands.contains("tc qdisc add dev ifb4sqm-none0 root handle 1: cake bandwidth 85mbit"),
        "{commands}"
    );

    let (_, output) = plan(GOOD.as_bytes(), &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["ingress"]["device"], "ifb4sqm-none0");
    assert_eq!(json[0]["egress"]["qdiscs"][0]["kind"], "cake");

    let simplest = GOOD.replace("piece_of_cake", "simplest");
    let (_, output) = plan(simplest.as_bytes(), &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["egress"]["classes"][1]["id"], "1:10");
    assert_eq!(json[0]["egress"]["classes"][1]["rate_bits_per_sec"], 10_000_000);
    assert_eq!(json[0]["egress"]["classes"][1]["burst_bytes"], 1749);
}

#[test]
fn a_check_names_the_section_and_option_of_each_finding() {
    let wrong = format!(
        "config daemon\n\toption drift 'report'\n\n{}\toption blorp '1'\n",
        GOOD.replace("85000", "85mbt")
    );
    let (_, output) = plan(wrong.as_bytes(), &["--check", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = serde_json::json!({
        "line": 7, "section": 1, "option": "download", "message": "'85mbt' is not a rate: unknown unit 'mbt'", "suggestion": "85mbit",
    });
    assert_eq!(json["errors"], serde_json::json!([error]));
    let (file, output) = plan(wrong.as_bytes(), &["--check"]);
    let line = format!(
        "error: {file}:7: option 'download': '85mbt' is not a rate: unknown unit 'mbt'; did you mean '85mbit'?\n"
    );
    assert_eq!((text(&output.stdout), output.status.code()), (&*line, Some(2)));

    let (_, output) = plan(
        wrong.replace("85mbt", "85mbit").as_bytes(),
        &["--check", "--json"],
    );
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["errors"], serde_json::json!([]));
    assert_eq!(json["warnings"][0]["section"], 1);
    assert_eq!(json["warnings"][0]["option"], "blorp");
}

#[test]
fn each_format_shows_what_moves_the_rates() {
    let autorate = format!(
        "{GOOD}\toption autorate '1'\n\toption min_download '2mbit'\n\toption max_upload '12mbit'\n\
         \tlist autorate_reflectors '192.0.2.1'\n\tlist autorate_reflectors 'sqm://192.0.2.2'\n"
    );
    let moving = "autorate: 'sqm daemon' moves the download between 2mbit and 10gbit";
    let (_, output) = plan(autorate.as_bytes(), &[]);
    let said = text(&output.stdout);
    for line in [
        moving,
        "autorate: 'sqm daemon' moves the upload between 156250bit and 12mbit",
        "autorate: reflectors: 192.0.2.1 sqm://192.0.2.2",
    ] {
        assert!(said.contains(&format!("\n  {line}\n")), "{said}");
    }
    let (_, output) = plan(autorate.as_bytes(), &["--format", "tc"]);
    let first = text(&output.stdout).lines().next();
    assert_eq!(first, Some(&*format!("# sqm-none0: {moving}")));

    let json = |text: &str| -> serde_json::Value {
        let (_, output) = plan(text.as_bytes(), &["--format", "json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let moved = json(&autorate);
    assert_eq!(moved[0]["autorate"]["download"]["min_bits_per_sec"], 2_000_000);
    assert_eq!(moved[0]["autorate"]["upload"]["max_bits_per_sec"], 12_000_000);
    assert_eq!(moved[0]["autorate"]["reflectors"][1], "sqm://192.0.2.2");
    assert_eq!(moved[0]["egress"]["rate_moved_by"], "daemon");

    let by_cake = json(&format!("{GOOD}\toption ingress_cake_autorate_ingress '1'\n"));
    assert_eq!(by_cake[0]["ingress"]["rate_moved_by"], "cake");
    let fixed = json(GOOD);
    assert!(fixed[0]["autorate"].is_null() && fixed[0]["egress"]["rate_moved_by"].is_null());
}

#[test]
fn an_error_names_its_line_and_word() {
    let with = |option: &str| format!("{GOOD}\toption {option}\n");
    for (content, line, words) in [
        (
            with("iqdisc_opts 'nat besteffrot'"),
            7,
            &["besteffrot", "did you mean 'besteffort'?"][..],
        ),
        (
            GOOD.replace("10mbit", "10mbits"),
            5,
            &["10mbits", "did you mean '10mbit'?"],
        ),
        (
            GOOD.replace("piece_of_cake.qos", "piece_of_pie.qos"),
            6,
            &["piece_of_pie.qos", "layer_cake.qos"],
        ),
        (
            GOOD.replace("piece_of_cake", "simpel"),
            6,
            &["simpel.qos", "did you mean 'simple.qos'?"],
        ),
        (
            GOOD.replace("option upload '10mbit'", ""),
            1,
            &["upload", "no default"],
        ),
        (with("overhead 'x"), 7, &["quote", "is not closed"]),
    ] {
        let (file, output) = plan(content.as_bytes(), &[]);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains(&format!("{file}:{line}: ")), "{complaint}");
        assert!(words.iter().all(|word| complaint.contains(word)), "{complaint}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn all_errors_of_a_file_are_reported_together() {
    let content = GOOD.replace("10mbit", "10mbits").replace("85000", "fast");
    let (file, output) = plan(content.as_bytes(), &[]);
    let complaint = text(&output.stderr);
    assert!(
        complaint.contains(":4: ") && complaint.contains(":5: "),
        "{complaint}"
    );
    assert!(
        complaint.ends_with(&format!("{file} has 2 errors; nothing was done\n")),
        "{complaint}"
    );
}

#[test]
fn options_without_effect_cause_warnings() {
    let (file, output) = plan(format!("{GOOD}\toption ilimit 100\n").as_bytes(), &[]);
    assert!(output.status.success());
    let warning = text(&output.stderr);
    assert!(
        warning.starts_with(&format!("warning: {file}:7: option 'ilimit': ignored: ")),
        "{warning}"
    );
}

#[test]
fn files_that_are_not_configurations_are_refused() {
    // A small generator, so that every run uses the same bytes.
    let mut state = 0x5eed_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let noise: Vec<u8> = (0..100_000).map(|_| random()).collect();
    for content in [
        noise,
        vec![b'x'; 1 << 20],
        [b"config queue '".to_vec(), vec![b'y'; 1_000_000]].concat(),
    ] {
        let (file, output) = plan(&content, &[]);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint.contains(&format!("{file}:1: ")), "{complaint}");
        assert!(complaint.len() < 5000);
    }
    let (file, output) = plan(&vec![b'x'; 10 << 20], &[]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    let limit = format!("{file}: is 10485760 bytes long, and no more than 1048576 are read");
    assert!(complaint.contains(&limit), "{complaint}");
}

#[test]
fn a_missing_configuration_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["plan", "--config", "/nonexistent/sqm"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    assert!(
        complaint.contains("there is no configuration /nonexistent/sqm: run 'sqm setup'"),
        "{complaint}"
    );

    let (_, output) = plan(GOOD.as_bytes(), &["eth7"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("no enabled section for eth7; it has enabled sections for: sqm-none0")
    );

    let (_, output) = plan(GOOD.replace("'1'", "'0'").as_bytes(), &[]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("there is nothing to shape"));
}

/// A file with no enabled section is said to hold nothing, once, and not to be in force.
#[test]
fn verify_of_a_file_without_an_enabled_section_compares_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), GOOD.replace("'1'", "'0'")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["verify", "--config"])
        .arg(file.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(
        text(&output.stdout),
        "no interface is configured and enabled: there is nothing to compare\n"
    );
    let said = text(&output.stderr);
    assert_eq!(said.matches("has no enabled section").count(), 1, "{said}");
}

#[test]
fn help_shows_examples() {
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["plan", "--help"])
        .output()
        .unwrap();
    assert!(text(&output.stdout).contains("sqm plan --format tc eth0"));
}

#[test]
fn links_are_listed_with_their_sources() {
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["calc", "links", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| {
        let links = links.as_array().unwrap();
        links
            .iter()
            .find(|link| link["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
            .clone()
    };
    let docsis = of("docsis");
    assert_eq!(
        (docsis["overhead_bytes"].as_i64(), docsis["mpu_bytes"].as_i64()),
        (Some(18), Some(64))
    );
    // 1448 bytes of payload take 1518 bytes on the line.
    let goodput = docsis["goodput_percent"].as_f64().unwrap();
    assert!((goodput - 95.39).abs() < 0.01, "{goodput}");
    for name in ["vdsl2-pppoe", "adsl-pppoe-llc", "gpon"] {
        assert!(of(name)["source"].as_str().unwrap().len() > 10, "{name}");
    }
    let text = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["calc", "links"])
        .output()
        .unwrap();
    assert!(String::from_utf8(text.stdout).unwrap().contains("vdsl2-pppoe"));
}

#[test]
fn setup_refuses_a_device_that_leads_nowhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("sqm");
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["setup", "--dry-run", "--interface", "lo", "--link", "docsis"])
        .args(["--measured", "90mbit", "9mbit", "--config"])
        .arg(&config)
        .output()
        .expect("the program runs");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("lo leads to no other machine") && said.contains("--interface"),
        "{said}"
    );
    assert!(output.stdout.is_empty() && !config.exists());
}
