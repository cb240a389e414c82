use super::super::facts::Processor;
use super::*;

/// A router with PPPoE in a VLAN, shaped as planned, under load.
fn healthy() -> Facts {
    let device = |name: &str, kind: &str, lower: Option<&str>| Device {
        name: name.to_owned(),
        kind: kind.to_owned(),
        up: true,
        lower: lower.map(str::to_owned),
        features: vec!["rx-gro".to_owned(), "tx-generic-segmentation".to_owned()],
        ..Device::default()
    };
    Facts {
        sections: vec![Section {
            interface: "pppoe-wan".to_owned(),
            index: 1,
            upload_kbit: Some(10_000),
            download_kbit: Some(85_000),
            overhead_bytes: 34,
            cells: "ptm".to_owned(),
            stack: vec!["PPPoE".to_owned(), "a VLAN tag".to_owned()],
            root: "cake 1:".to_owned(),
            upload_now_kbit: 9000,
            download_now_kbit: 80_000,
            backlog_bytes: 20_000,
            ..Section::default()
        }],
        devices: vec![
            device("eth0", "", None),
            device("eth0.7", "vlan", Some("eth0")),
            device("pppoe-wan", "ppp", Some("eth0.7")),
            device("br-lan", "bridge", None),
        ],
        default_devices: vec!["pppoe-wan".to_owned()],
        processors: vec![
            Processor {
                number: 0,
                idle_percent: 40.0,
                packets_percent: 55.0,
                governor: Some("ondemand".to_owned()),
                squeezed: 0,
                overrun: 0,
            },
            Processor {
                number: 1,
                idle_percent: 90.0,
                ..Processor::default()
            },
        ],
        ..Facts::default()
    }
}

/// Findings after one change to the healthy facts.
fn found(change: impl FnOnce(&mut Facts)) -> Vec<Finding> {
    let mut facts = healthy();
    change(&mut facts);
    diagnose(&facts)
}

#[track_caller]
fn only(id: &str, change: impl FnOnce(&mut Facts)) -> Finding {
    let mut findings = found(change);
    let ids: Vec<_> = findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(ids, [id]);
    let finding = findings.remove(0);
    assert!(!finding.evidence.is_empty() && !finding.remedy.is_empty());
    finding
}

#[test]
fn a_healthy_line_has_no_findings() {
    assert_eq!(diagnose(&healthy()), []);
    assert_eq!(diagnose(&Facts::default()), []);
}

#[test]
fn a_missing_kernel_feature() {
    only("missing-module", |facts| {
        facts.missing = vec!["this kernel has no CAKE".to_owned()];
    });
}

#[test]
fn flow_offload_past_the_queues() {
    let hardware = only("hardware-offload", |facts| {
        // The PPPoE session runs over this device.
        facts.flow_offload.hardware = vec!["eth0".to_owned()];
    });
    assert!(hardware.remedy.contains("flow_offloading_hw=0"));
    only("software-offload", |facts| {
        facts.flow_offload.software = vec!["eth0.7".to_owned(), "br-lan".to_owned()];
    });
    only("hardware-offload", |facts| {
        facts.flow_offload.configured = vec!["flow_offloading".to_owned(), "flow_offloading_hw".to_owned()];
    });
    // Offload between devices that are not shaped does no harm.
    assert_eq!(
        found(|facts| facts.flow_offload.software = vec!["br-lan".to_owned()]),
        []
    );
}

#[test]
fn the_trunk_to_the_switch() {
    let finding = only("trunk", |facts| {
        facts.sections[0].interface = "eth0".to_owned();
        facts.sections[0].stack.clear();
        facts.default_devices = vec!["eth0.7".to_owned()];
        facts.devices.push(Device {
            name: "eth0.1".to_owned(),
            kind: "vlan".to_owned(),
            up: true,
            lower: Some("eth0".to_owned()),
            ..Device::default()
        });
    });
    assert_eq!(
        finding.fix,
        Some(Fix::SetOptions {
            section: 1,
            options: vec![OptionValue::Interface("eth0.7".to_owned())]
        })
    );
    assert!(finding.what.contains("both directions"));
    // A single VLAN on the device is the line itself.
    assert_eq!(
        found(|facts| {
            facts.sections[0].interface = "eth0".to_owned();
            facts.default_devices = vec!["eth0.7".to_owned()];
        }),
        []
    );
}

#[test]
fn directions() {
    let finding = only("wrong-interface", |facts| {
        facts.sections[0].interface = "br-lan".to_owned();
    });
    assert!(finding.remedy.contains("facing 'lan'"), "{finding:?}");
    // Here the configuration faces the home network on purpose.
    let facing = |facts: &mut Facts| {
        facts.sections[0]
            .options
            .insert("facing".to_owned(), "lan".to_owned());
    };
    assert_eq!(
        found(|facts| {
            facts.sections[0].interface = "br-lan".to_owned();
            facing(facts);
        }),
        []
    );
    let finding = only("wrong-direction", facing);
    assert_eq!(
        finding.fix,
        Some(Fix::SetOptions {
            section: 1,
            options: vec![OptionValue::Facing(Facing::Internet)]
        })
    );
    only("swapped-rates", |facts| {
        facts.sections[0].upload_kbit = Some(85_000);
        facts.sections[0].download_kbit = Some(10_000);
    });
    assert_eq!(
        found(|facts| facts.sections[0].upload_kbit = Some(85_000)),
        [],
        "a symmetric line"
    );
}

/// The healthy line with a VPN: the default route goes through its tunnel, the tunnel's packets through the line.
fn with_vpn(facts: &mut Facts, carrier: Option<&str>) {
    facts.devices.push(Device {
        name: "tun0".to_owned(),
        kind: "tun".to_owned(),
        up: true,
        lower: carrier.map(str::to_owned),
        ..Device::default()
    });
    facts.default_devices = vec!["tun0".to_owned()];
}

#[test]
fn a_default_route_through_a_vpn_does_not_make_the_line_the_wrong_interface() {
    assert_eq!(found(|facts| with_vpn(facts, Some("pppoe-wan"))), []);
    // A device below the one that carries the tunnel.
    assert_eq!(
        found(|facts| {
            with_vpn(facts, Some("pppoe-wan"));
            facts.sections[0].interface = "eth0.7".to_owned();
        }),
        []
    );
    // The tunnel itself, on purpose.
    assert_eq!(
        found(|facts| {
            with_vpn(facts, Some("pppoe-wan"));
            facts.sections[0].interface = "tun0".to_owned();
        }),
        []
    );
    // It is not known which device carries the tunnel: no device is called wrong.
    for shaped in ["pppoe-wan", "br-lan"] {
        assert_eq!(
            found(|facts| {
                with_vpn(facts, None);
                facts.sections[0].interface = shaped.to_owned();
            }),
            []
        );
    }
    let mut facts = healthy();
    with_vpn(&mut facts, None);
    assert!(unknown(&facts)[0].contains("which device carries the packets of the tunnel tun0"));
}

#[test]
fn findings_beside_a_vpn_name_the_device_below_the_tunnel() {
    let finding = only("wrong-interface", |facts| {
        with_vpn(facts, Some("pppoe-wan"));
        facts.sections[0].interface = "br-lan".to_owned();
    });
    let to_the_line = OptionValue::Interface("pppoe-wan".to_owned());
    assert_eq!(
        finding.fix,
        Some(Fix::SetOptions {
            section: 1,
            options: vec![to_the_line]
        })
    );
    assert!(
        finding.evidence[0].contains("the tunnel tun0, whose packets pppoe-wan carries"),
        "{finding:?}"
    );
    only("wrong-direction", |facts| {
        with_vpn(facts, Some("pppoe-wan"));
        facts.sections[0]
            .options
            .insert("facing".to_owned(), "lan".to_owned());
    });
    let finding = only("no-device", |facts| {
        with_vpn(facts, Some("pppoe-wan"));
        facts.sections[0].interface = "wan".to_owned();
    });
    assert!(finding.remedy.contains("if you mean pppoe-wan"), "{finding:?}");
}

#[test]
fn another_queue() {
    let finding = only("other-queue", |facts| {
        facts.sections[0].differences = vec!["pppoe-wan 1: planned cake".to_owned()];
        facts.sections[0].root = "fq_codel 9:".to_owned();
        facts.sections[0].owner = Some("by tc".to_owned());
    });
    assert_eq!(finding.fix, Some(Fix::Start));
    only("not-shaped", |facts| {
        facts.sections[0].differences = vec!["pppoe-wan 1: planned cake".to_owned()];
    });
}

#[test]
fn a_device_that_is_not_there() {
    let finding = only("no-device", |facts| {
        facts.sections[0].interface = "pppoe-wam".to_owned();
        facts.sections[0].differences = vec!["there is no network device pppoe-wam".to_owned()];
    });
    assert!(finding.remedy.contains("option interface 'pppoe-wan'"));
    // The PPPoE session is down and another line stands in for it. The configuration is right.
    let finding = only("no-device", |facts| {
        facts.devices.retain(|device| device.name != "pppoe-wan");
        facts.default_devices = vec!["wwan0".to_owned()];
    });
    assert_eq!(finding.fix, None);
    only("no-device", |facts| {
        facts.devices.retain(|device| device.name != "pppoe-wan");
        facts.default_devices.clear();
    });
}

#[test]
fn accounting() {
    let finding = only("no-overhead", |facts| facts.sections[0].overhead_bytes = 0);
    assert!(finding.remedy.contains("vdsl2-vlan-pppoe"));
    only("no-overhead", |facts| {
        facts.sections[0].overhead_bytes = 0;
        facts.sections[0].stack.clear();
        facts.sections[0].cells = "atm".to_owned();
    });
    assert_eq!(
        found(|facts| {
            facts.sections[0].overhead_bytes = 0;
            (facts.sections[0].upload_kbit, facts.sections[0].download_kbit) = (None, None);
        }),
        [],
        "nothing is shaped"
    );
    // A cable to the modem without PPPoE or VLANs.
    assert_eq!(
        found(|facts| {
            facts.sections[0].overhead_bytes = 0;
            facts.sections[0].stack.clear();
            facts.sections[0].cells = "none".to_owned();
        }),
        []
    );
    only("counted-twice", |facts| {
        facts.sections[0].counted_twice = vec!["the plan for eth0".to_owned()];
    });
    let finding = only("aggregates", |facts| {
        facts.sections[0].size_tables = vec!["pppoe-wan".to_owned()];
    });
    assert!(
        finding
            .remedy
            .starts_with("run ethtool -K pppoe-wan gro off gso off;"),
        "{}",
        finding.remedy
    );
    assert_eq!(
        found(|facts| {
            facts.sections[0].size_tables = vec!["pppoe-wan".to_owned()];
            facts.devices[2].features.clear();
        }),
        []
    );
}

#[test]
fn marks_on_a_slow_upload() {
    let slow = |facts: &mut Facts| {
        facts.sections[0].upload_kbit = Some(1000);
        facts.sections[0].upload_marks = Some(true);
    };
    let finding = only("ecn-on-slow-upload", slow);
    assert_eq!(
        finding.fix,
        Some(Fix::SetOptions {
            section: 1,
            options: vec![OptionValue::Ecn(Side::Egress, false)]
        })
    );
    assert_eq!(
        found(|facts| facts.sections[0].upload_marks = Some(true)),
        [],
        "a fast one may"
    );
}

/// CAKE and fq_codel find the flows inside 6in4 themselves.
#[test]
fn a_6in4_tunnel_needs_no_section() {
    let findings = found(|facts| {
        facts.devices.push(Device {
            name: "6in4-henet".to_owned(),
            kind: "sit".to_owned(),
            up: true,
            lower: Some("pppoe-wan".to_owned()),
            ..Device::default()
        });
        facts.default_devices.push("6in4-henet".to_owned());
    });
    assert_eq!(findings, []);
}

#[test]
fn vlans_of_the_home_network_beside_an_untagged_line() {
    let vlan = |leads_to_hosts_only| {
        move |facts: &mut Facts| {
            facts.sections[0].interface = "eth0".to_owned();
            facts.sections[0].stack.clear();
            facts.default_devices = vec!["eth0".to_owned()];
            facts.devices.retain(|device| device.name != "eth0.7");
            facts.devices.push(Device {
                name: "eth0.10".to_owned(),
                kind: "vlan".to_owned(),
                up: true,
                lower: Some("eth0".to_owned()),
                leads_to_hosts_only,
                ..Device::default()
            });
        }
    };
    let finding = only("trunk", vlan(true));
    assert!(
        finding.evidence[1].contains("1 VLAN on eth0") && finding.fix.is_none(),
        "{finding:?}"
    );
    // The provider's VLAN for television has a router beyond it, or no network of hosts at all.
    assert_eq!(found(vlan(false)), []);
    // It is a port of a bridge with the home network.
    only("trunk", |facts| {
        vlan(false)(facts);
        let port = facts.devices.last_mut().unwrap();
        port.master = Some("br-lan".to_owned());
        let bridge = facts.devices.iter_mut().find(|device| device.name == "br-lan");
        bridge.unwrap().leads_to_hosts_only = true;
    });
}

#[test]
fn a_second_section_for_the_home_network_needs_facing() {
    let second = |change: fn(&mut Device)| {
        move |facts: &mut Facts| {
            let mut guest = Device {
                name: "wlan1".to_owned(),
                up: true,
                ..Device::default()
            };
            change(&mut guest);
            facts.devices.push(guest);
            facts.sections.push(Section {
                interface: "wlan1".to_owned(),
                index: 4,
                ..facts.sections[0].clone()
            });
            facts.sections[1].stack.clear();
        }
    };
    for home in [
        (|device| device.master = Some("br-lan".to_owned())) as fn(&mut Device),
        |device| device.wireless = true,
        |device| device.kind = "bridge".to_owned(),
    ] {
        let finding = only("wrong-interface", second(home));
        assert_eq!(finding.interface.as_deref(), Some("wlan1"));
        assert_eq!(
            finding.fix,
            Some(Fix::SetOptions {
                section: 4,
                options: vec![OptionValue::Facing(Facing::Lan)]
            })
        );
    }
    // A second line that has no default route at the moment.
    assert_eq!(found(second(|_| ())), []);
    // A port of the bridge that leads to the internet.
    assert_eq!(
        found(|facts| {
            second(|device| device.master = Some("pppoe-wan".to_owned()))(facts);
        }),
        []
    );
}

#[test]
fn another_device_that_feeds_the_ifb() {
    let finding = only("shared-ifb", |facts| {
        facts.sections[0].ifb_shared_with = vec!["eth1".to_owned()];
    });
    assert!(finding.what.contains("arrive on eth1"), "{finding:?}");
}

#[test]
fn facts_that_only_root_may_read_are_named_and_their_checks_not_counted() {
    let mut facts = healthy();
    let all = checks(&facts);
    assert_eq!(all, MACHINE_CHECKS.len() + SECTION_CHECKS.len());
    facts.unread = vec!["whether the kernel has all features".to_owned()];
    assert_eq!(checks(&facts), all - MACHINE_CHECKS.len());
    assert_eq!(unknown(&facts), facts.unread);
    assert_eq!(checks(&Facts::default()), 0);
}

#[test]
fn a_processor_that_is_too_slow() {
    let busy = |facts: &mut Facts| {
        facts.processors[0].idle_percent = 2.0;
        facts.processors[0].packets_percent = 89.0;
    };
    let finding = only("processor-bound", busy);
    assert!(finding.what.contains("about 100000 kbit/s"), "{}", finding.what);
    assert!(
        finding.evidence.iter().any(|e| e.contains("ondemand")) && finding.remedy.contains("performance")
    );
    // The processor is busy with other work, or no packets pass the queues.
    assert_eq!(
        found(|facts| {
            busy(facts);
            facts.processors[0].packets_percent = 5.0;
        }),
        []
    );
    assert_eq!(
        found(|facts| {
            busy(facts);
            (
                facts.sections[0].upload_now_kbit,
                facts.sections[0].download_now_kbit,
            ) = (0, 0);
        }),
        []
    );
}

/// Facts survive a round trip through JSON.
#[test]
fn facts_are_the_same_after_json() {
    let text = serde_json::to_string(&healthy()).unwrap();
    assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), healthy());
    assert_eq!(serde_json::from_str::<Facts>("{}").unwrap(), Facts::default());
}

#[test]
fn an_interface_that_was_stopped_by_hand() {
    let stop = |facts: &mut Facts| {
        facts.sections[0].stopped = true;
        facts.sections[0].root = "fq_codel 0:".to_owned();
        facts.sections[0].differences = vec!["pppoe-wan 1: planned cake".to_owned()];
    };
    let finding = only("stopped", stop);
    assert!(finding.what.contains("stopped by hand"));
    assert_eq!(finding.fix, Some(Fix::Start));
    // It was started by another program in the meantime.
    assert_eq!(found(|facts| facts.sections[0].stopped = true), []);
}

#[test]
fn a_session_that_may_run_over_several_devices() {
    let two_sessions = |facts: &mut Facts| {
        facts.devices[2].lower = None;
        facts.devices[2].possible_lowers = vec!["eth0.7".to_owned(), "eth1".to_owned()];
    };
    let mut facts = healthy();
    assert_eq!(unknown(&facts), Vec::<String>::new());
    two_sessions(&mut facts);
    let unknown = unknown(&facts);
    assert!(unknown[0].contains("eth0.7 and eth1") && unknown[0].ends_with("pppoe-wan"));
    assert_eq!(diagnose(&facts), []);
    for below in ["eth0", "eth0.7", "eth1"] {
        // Each of them may carry the line.
        let findings = found(|facts| {
            two_sessions(facts);
            facts.sections[0].interface = below.to_owned();
            facts.devices.push(Device {
                name: "eth1".to_owned(),
                ..Device::default()
            });
        });
        assert!(
            findings.iter().all(|finding| finding.id != "wrong-interface"),
            "{findings:?}"
        );
    }
}
