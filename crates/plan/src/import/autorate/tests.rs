use super::*;
use crate::device::Device;
use crate::import::Reader;

fn source<'a>(name: &'a str, text: &'a str) -> Source<'a> {
    Source {
        name,
        text,
        reader: Reader::Shell,
    }
}

fn shell(text: &str) -> Imported {
    from_shell(&source("config.primary.sh", text)).unwrap()
}

fn uci(text: &str) -> Vec<Imported> {
    from_uci(&source("cake-autorate", text)).unwrap().unwrap()
}

fn options(imported: &Imported) -> String {
    let options = imported.options.iter();
    options.map(|(name, value)| format!("{name} {value};")).collect()
}

fn said(imported: &Imported) -> String {
    imported
        .differences
        .iter()
        .map(|remark| format!("{remark}\n"))
        .collect()
}

/// A section that was imported is read without an error or a warning.
fn require_valid(imported: &Imported) {
    let loaded = crate::load(imported.to_string().as_bytes(), "sqm", &Device::absent).unwrap();
    assert_eq!(loaded.warnings, []);
}

const USUAL: &str = "#!/usr/bin/env bash
# *** INSTANCE ***
dl_if=ifb-pppoe-wan # download interface
ul_if=pppoe-wan     # upload interface

adjust_dl_shaper_rate=1 # enable
adjust_ul_shaper_rate=1
min_dl_shaper_rate_kbps=3000  # minimum
base_dl_shaper_rate_kbps=4000
max_dl_shaper_rate_kbps=9000
min_ul_shaper_rate_kbps=600
base_ul_shaper_rate_kbps=800
max_ul_shaper_rate_kbps=1000
connection_active_thr_kbps=500
output_summary_stats=0
";

#[test]
fn a_file_of_cake_autorate_becomes_a_section_with_autorate() {
    let imported = shell(USUAL);
    assert_eq!(
        options(&imported),
        "interface pppoe-wan;enabled 1;min_download 3000;download 4000;max_download 9000;min_upload 600;upload 800;\
         max_upload 1000;script best_of_cake.qos;autorate 1;"
    );
    require_valid(&imported);
    let said = said(&imported);
    for part in [
        "config.primary.sh:3: dl_if is ifb-pppoe-wan: sqm makes the device ifb4pppoe-wan",
        "config.primary.sh:14: left out: connection_active_thr_kbps: sqm's controller has no such parameter",
        "config.primary.sh:15: left out: output_summary_stats: 'sqm daemon' logs",
        "a new section uses best_of_cake.qos",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(imported.differences.len(), 4, "{said}");
}

#[test]
fn a_direction_that_is_not_adjusted_keeps_its_rate() {
    let imported = shell(&USUAL.replace("adjust_dl_shaper_rate=1", "adjust_dl_shaper_rate=0"));
    let text = options(&imported);
    assert!(
        text.contains("download 4000;") && !text.contains("_download"),
        "{text}"
    );
    assert!(text.contains("autorate upload;"), "{text}");
    assert!(
        said(&imported).contains("adjust_dl_shaper_rate is off: the download stays at 4000"),
        "{}",
        said(&imported)
    );
    require_valid(&imported);

    let neither = shell(&USUAL.replace("shaper_rate=1", "shaper_rate=0"));
    let text = options(&neither);
    assert!(
        text.contains("autorate 0;") && !text.contains("min_") && !text.contains("max_"),
        "{text}"
    );
    require_valid(&neither);

    let upload_only = shell(&format!("{USUAL}upload_only=1\n"));
    let text = options(&upload_only);
    assert!(
        text.contains("download 0;") && !text.contains("min_download") && text.contains("autorate upload;"),
        "{text}"
    );
    require_valid(&upload_only);
}

#[test]
fn missing_rates_are_those_of_cake_autorate_and_reported() {
    let imported = shell("ul_if=eth1\ndl_if=ifb4eth1\nmax_ul_shaper_rate_kbps=40000\n");
    assert_eq!(
        options(&imported),
        "interface eth1;enabled 1;min_download 5000;download 20000;max_download 80000;min_upload 5000;upload 20000;\
         max_upload 40000;script best_of_cake.qos;autorate 1;"
    );
    let said = said(&imported);
    assert!(
        said.contains("base_dl_shaper_rate_kbps is missing, and cake-autorate would use 20000 kbit/s"),
        "{said}"
    );
    assert_eq!(said.matches("is missing").count(), 5, "{said}");
    assert!(
        shell("")
            .differences
            .iter()
            .any(|remark| remark.message.contains("ul_if is missing"))
    );
}

#[test]
fn the_reflectors_in_use_are_kept() {
    let list =
        "reflectors=(\n\"1.1.1.1\" \"1.0.0.1\"  # Cloudflare\n# none\n9.9.9.9 '9.9.9.10'\n)\nno_pingers=3\n";
    let imported = shell(&format!("{USUAL}{list}"));
    assert_eq!(
        imported.get("autorate_reflectors"),
        Some("1.1.1.1 1.0.0.1 9.9.9.9")
    );
    let said = said(&imported);
    assert!(
        said.contains("config.primary.sh:16: of 4 reflectors the first 3 are kept"),
        "{said}"
    );
    require_valid(&imported);

    let irtt = shell(&format!(
        "{USUAL}pinger_method=irtt\nreflectors=(\"192.0.2.1\" 2001:db8::1)\n"
    ));
    assert_eq!(
        irtt.get("autorate_reflectors"),
        Some("irtt://192.0.2.1 irtt://2001:db8::1")
    );
    require_valid(&irtt);
}

#[test]
fn lines_that_are_no_assignments_are_refused_with_their_number() {
    let text = "ul_if=wan\nsource common.sh\nif true; then\nmin_dl_shaper_rate_kbps=$((1000*5))\nfi\nreflectors=(1.1.1.1\n";
    let errors = from_shell(&source("config.a.sh", text)).unwrap_err();
    let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6], "{errors:?}");
    assert!(errors[4].message.contains("not closed"), "{errors:?}");
}

#[test]
fn each_instance_of_openwrts_cake_autorate_becomes_a_section() {
    let text = "config cake-autorate 'primary'\n\toption enabled '1'\n\toption dl_if 'ifb4eth1'\n\toption ul_if 'eth1'\n\
        \toption min_dl_shaper_rate_kbps '5000'\n\toption base_dl_shaper_rate_kbps '20000'\n\
        \toption max_dl_shaper_rate_kbps '80000'\n\toption min_ul_shaper_rate_kbps '5000'\n\
        \toption base_ul_shaper_rate_kbps '20000'\n\toption max_ul_shaper_rate_kbps '35000'\n\
        \tlist reflectors '1.1.1.1'\n\tlist reflectors '9.9.9.9'\n\toption high_load_thr '0.75'\n\
        \toption alpha_baseline_increase '0.001'\n\toption frobnicate '1'\n\
        config cake_autorate 'lte'\n\toption enabled 'off'\n\toption ul_if 'wwan0'\n\toption adjust_ul_shaper_rate 'no'\n";
    let [primary, lte] = &uci(text)[..] else {
        panic!("two instances");
    };
    require_valid(primary);
    assert_eq!(primary.get("interface"), Some("eth1"));
    assert_eq!(primary.get("autorate_reflectors"), Some("1.1.1.1 9.9.9.9"));
    let said = said(primary);
    assert!(
        said.contains("left out: alpha_baseline_increase, high_load_thr: sqm's controller"),
        "{said}"
    );
    assert!(
        said.contains("left out: frobnicate: import knows no such variable"),
        "{said}"
    );
    assert_eq!(
        (lte.get("enabled"), lte.get("autorate")),
        (Some("0"), Some("download"))
    );
    assert!(
        from_uci(&source("sqm", "config queue\n\toption enabled 1\n"))
            .unwrap()
            .is_none()
    );
    assert!(from_uci(&source("sqm", "nonsense")).is_err());
}

#[test]
fn a_file_of_sqm_autorate_becomes_a_section_with_autorate() {
    let text = "config network\n\toption upload_interface 'eth1'\n\toption download_interface 'ifb4eth1'\n\
        \toption upload_base_kbits '10000'\n\toption download_base_kbits '90000'\n\toption upload_min_percent '30'\n\
        \toption download_min_percent '5'\n\
        config output\n\toption log_level 'INFO'\n\toption stats_file '/tmp/x.csv'\n\
        config advanced_settings\n\toption speed_hist_size '100'\n\toption upload_delay_ms '15'\n";
    let [imported] = &uci(text)[..] else {
        panic!("one line");
    };
    assert_eq!(
        options(imported),
        "interface eth1;enabled 1;min_download 9000;download 90000;min_upload 3000;upload 10000;\
         script best_of_cake.qos;autorate 1;"
    );
    require_valid(imported);
    let said = said(imported);
    assert!(
        said.contains("left out: log_level, stats_file: 'sqm daemon' logs"),
        "{said}"
    );
    assert!(
        said.contains("left out: speed_hist_size, upload_delay_ms: sqm's controller"),
        "{said}"
    );

    let older = "config network\n\toption transmit_interface 'wan'\n\toption receive_interface 'ifb4wan'\n\
        \toption transmit_kbits_base '10000'\n\toption receive_kbits_base '10000'\n\toption transmit_kbits_min '1500'\n\
        \toption reflector_type 'icmp'\n";
    let older = &uci(older)[0];
    assert_eq!(
        (older.get("min_upload"), older.get("min_download")),
        (Some("1500"), Some("2000"))
    );
    require_valid(older);
}
