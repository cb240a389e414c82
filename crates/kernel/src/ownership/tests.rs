//! Each combination of record, found queues and plan.

use super::*;

const DEVICE: u32 = 7;
const IFB: u32 = 8;

/// The IFB of [`record`].
fn our_ifb() -> FoundIfb {
    FoundIfb {
        index: IFB,
        root: Some(root("cake", 1)),
        is_redirected: true,
    }
}

/// A state file that sqm-scripts has written since [`record`].
fn newer_state_file() -> ScriptsState {
    serde_json::from_str(r#""7:1.000000000""#).unwrap()
}

fn root(kind: &str, major: u32) -> RootId {
    RootId::from((kind.to_owned(), major << 16))
}

/// A plan of the setup script, with the rates in kbit/s; 0 does not shape the direction.
fn plan(script: &str, download: u32, upload: u32) -> Plan {
    let text = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'eth0'\n\toption script '{script}.qos'\n\
         \toption download '{download}'\n\toption upload '{upload}'\n"
    );
    let loaded = sqm_plan::load(text.as_bytes(), "test", &sqm_plan::device::Device::absent);
    loaded.expect("a configuration").plans.remove(0)
}

fn both() -> Plan {
    plan("piece_of_cake", 20_000, 4000)
}

fn only_download() -> Plan {
    plan("piece_of_cake", 20_000, 0)
}

fn only_upload() -> Plan {
    plan("piece_of_cake", 0, 4000)
}

fn with_firewall() -> Plan {
    let plan = plan("simple", 20_000, 4000);
    assert!(plan.firewall.is_some());
    plan
}

/// A device that holds this root and is not as planned.
fn found(root: Option<RootId>) -> Found {
    Found {
        index: DEVICE,
        root,
        ifb: Some(our_ifb()),
        scripts_state: ScriptsState::default(),
        firewall: None,
        is_as_planned: false,
    }
}

fn as_planned(root: Option<RootId>) -> Found {
    Found {
        is_as_planned: true,
        ..found(root)
    }
}

/// The record of a start that shapes both directions, and that made the IFB.
fn record() -> Record {
    Record {
        interface: "eth0".to_owned(),
        index: DEVICE,
        ifb: "ifb4eth0".to_owned(),
        egress: Some(root("cake", 1)),
        replaces: None,
        ingress: true,
        ifb_index: Some(IFB),
        ifb_root: Some(root("cake", 1)),
        scripts_state: Some(ScriptsState::default()),
        is_changing: false,
        firewall: None,
        previous: Snapshot {
            egress: Some(tree("pfifo", 3)),
            ingress: Some(IngressState::default()),
        },
        is_lost: false,
    }
}

fn tree(kind: &str, major: u32) -> QdiscTree {
    QdiscTree::with_root(&root(kind, major))
}

fn actions(decision: &Decision) -> (Action, Action) {
    (decision.egress.action, decision.ingress.action)
}

fn previous(decision: &Decision) -> (Previous, Previous) {
    (decision.egress.previous, decision.ingress.previous)
}

#[test]
fn a_first_start_records_the_previous_queues() {
    for root in [None, Some(root("fq", 2))] {
        let decision = decide(None, &found(root.clone()), &both());
        assert_eq!(actions(&decision), (Action::Shape, Action::Shape));
        assert_eq!(previous(&decision), (Previous::Snapshot, Previous::Snapshot));
        assert_eq!(decision.takeover, root.map(|theirs| Takeover::First { theirs }));
        assert_eq!((decision.replaces, decision.is_unchanged), (None, false));
    }
}

#[test]
fn a_direction_without_a_plan_and_without_a_record_is_left_alone() {
    let theirs = Some(root("fq", 2));
    let decision = decide(None, &found(theirs.clone()), &only_download());
    assert_eq!(actions(&decision), (Action::Leave, Action::Shape));
    assert_eq!(decision.takeover, None, "their root stays");
    let decision = decide(None, &found(theirs), &only_upload());
    assert_eq!(actions(&decision), (Action::Shape, Action::Leave));
}

#[test]
fn our_own_queues_are_never_remembered_as_the_previous_state() {
    let decision = decide(Some(&record()), &found(Some(root("cake", 1))), &both());
    assert_eq!(previous(&decision), (Previous::Recorded, Previous::Recorded));
    assert_eq!((decision.takeover, decision.replaces), (None, None));
}

#[test]
fn queues_removed_by_another_program_are_set_again_and_those_from_before_do_not_return() {
    let nothing = Found {
        ifb: None,
        ..found(None)
    };
    let decision = decide(Some(&record()), &nothing, &both());
    assert_eq!(actions(&decision), (Action::Shape, Action::Shape));
    assert_eq!(
        previous(&decision),
        (Previous::Snapshot, Previous::SnapshotWithoutHook)
    );
    assert_eq!(decision.takeover, None);
    // A process of ours was killed while it changed them: what was there before is still on record.
    let killed = Record {
        is_changing: true,
        ..record()
    };
    let decision = decide(Some(&killed), &nothing, &both());
    assert_eq!(previous(&decision), (Previous::Recorded, Previous::Recorded));
}

#[test]
fn a_redirect_that_another_program_has_removed_does_not_return() {
    let ifb = Some(FoundIfb {
        is_redirected: false,
        ..our_ifb()
    });
    let found = Found {
        ifb,
        ..found(Some(root("cake", 1)))
    };
    assert_eq!(record().ingress_standing(&found), Standing::WithoutRedirect);
    let decision = decide(Some(&record()), &found, &both());
    assert_eq!(previous(&decision), (Previous::Recorded, Previous::RecordedIfb));
}

#[test]
fn an_ifb_that_another_program_has_made_is_not_ours() {
    let of = |ifb: FoundIfb| {
        let found = Found {
            ifb: Some(ifb),
            ..found(Some(root("cake", 1)))
        };
        record().ingress_standing(&found)
    };
    assert_eq!(of(our_ifb()), Standing::Ours);
    assert_eq!(
        of(FoundIfb {
            index: 9,
            ..our_ifb()
        }),
        Standing::Foreign
    );
    let other_root = Some(root("cake", 0x8005));
    assert_eq!(
        of(FoundIfb {
            root: other_root,
            ..our_ifb()
        }),
        Standing::Foreign
    );
    // A record of an older version does not identify the IFB.
    let old = Record {
        ifb_index: None,
        ifb_root: None,
        ..record()
    };
    let other = FoundIfb {
        index: 9,
        ..our_ifb()
    };
    let found = Found {
        ifb: Some(other),
        ..found(None)
    };
    assert_eq!(old.ingress_standing(&found), Standing::Ours);
}

/// simple.qos of sqm-scripts and ours have roots of the same kind and handle.
#[test]
fn a_root_like_ours_is_foreign_if_sqm_scripts_has_written_its_state_file_since() {
    let htb = Record {
        egress: Some(root("htb", 1)),
        ifb_root: Some(root("htb", 1)),
        ..record()
    };
    let theirs = Found {
        scripts_state: newer_state_file(),
        ifb: Some(FoundIfb {
            index: 9,
            root: Some(root("htb", 1)),
            is_redirected: true,
        }),
        ..found(Some(root("htb", 1)))
    };
    assert_eq!(htb.egress_standing(&theirs), Standing::Foreign);
    assert_eq!(htb.ingress_standing(&theirs), Standing::Foreign);
    let decision = decide(Some(&htb), &theirs, &plan("simple", 20_000, 4000));
    assert_eq!(previous(&decision), (Previous::Snapshot, Previous::Snapshot));
    assert!(matches!(decision.takeover, Some(Takeover::Again { .. })));
    assert_eq!(decision.replaces, None);
    // It was there already when we took over.
    let after = Record {
        scripts_state: Some(newer_state_file()),
        ifb_index: Some(9),
        ..htb
    };
    assert_eq!(after.egress_standing(&theirs), Standing::Ours);
    assert_eq!(after.ingress_standing(&theirs), Standing::Ours);
}

#[test]
fn a_root_that_another_program_has_set_since_is_the_one_to_restore() {
    let (ours, theirs) = (root("cake", 1), root("tbf", 9));
    let decision = decide(Some(&record()), &found(Some(theirs.clone())), &both());
    assert_eq!(previous(&decision), (Previous::Snapshot, Previous::Recorded));
    assert_eq!(decision.takeover, Some(Takeover::Again { ours, theirs }));
}

#[test]
fn the_previous_root_is_not_foreign_after_an_interrupted_stop() {
    let restored = root("pfifo", 3);
    let decision = decide(Some(&record()), &found(Some(restored.clone())), &both());
    assert_eq!(previous(&decision).0, Previous::Recorded);
    // The user is still told: it has replaced ours.
    assert!(matches!(decision.takeover, Some(Takeover::Again { theirs, .. }) if theirs == restored));
}

#[test]
fn a_start_with_other_queues_owns_both_roots_until_it_is_complete() {
    let record = record();
    let decision = decide(
        Some(&record),
        &found(Some(root("cake", 1))),
        &plan("simple", 20_000, 4000),
    );
    assert_eq!(decision.replaces, Some(root("cake", 1)));
    // Killed half-way: the record names the new root, and the old one still stands.
    let killed = Record {
        egress: Some(root("htb", 1)),
        replaces: decision.replaces,
        ..record
    };
    assert!(killed.owns(&root("cake", 1)) && killed.owns(&root("htb", 1)));
    assert!(!killed.owns(&root("tbf", 1)) && !killed.owns(&root("htb", 2)));
    let again = decide(Some(&killed), &found(Some(root("cake", 1))), &both());
    assert_eq!((again.takeover, again.replaces), (None, None));
    assert_eq!(again.egress.previous, Previous::Recorded);
}

#[test]
fn a_direction_that_is_no_longer_shaped_is_restored() {
    let ours = Some(root("cake", 1));
    let decision = decide(Some(&record()), &found(ours.clone()), &only_download());
    assert_eq!(actions(&decision), (Action::Restore, Action::Shape));
    let decision = decide(Some(&record()), &found(ours), &only_upload());
    assert_eq!(actions(&decision), (Action::Shape, Action::Restore));
    let nothing = Plan {
        egress: None,
        ingress: None,
        ..both()
    };
    let decision = decide(Some(&record()), &as_planned(None), &nothing);
    assert_eq!(actions(&decision), (Action::Restore, Action::Restore));
    assert!(!decision.is_unchanged, "a restored direction is a change");
}

#[test]
fn restored_state_is_removed_from_the_record() {
    let decision = decide(Some(&record()), &found(Some(root("cake", 1))), &only_download());
    let (now, later) = decision.split(decision.previous(Some(&record()), &Snapshot::default()));
    assert_eq!(now.egress, Some(tree("pfifo", 3)));
    assert_eq!(now.ingress, None);
    assert_eq!(later.egress, None);
    assert_eq!(later.ingress, Some(IngressState::default()));
}

#[test]
fn the_recorded_state_takes_precedence_and_the_snapshot_fills_the_gaps() {
    let snapshot = Snapshot {
        egress: Some(tree("cake", 1)),
        ingress: Some(IngressState::default()),
    };
    let decision = decide(Some(&record()), &found(Some(root("cake", 1))), &both());
    let before = decision.previous(Some(&record()), &snapshot);
    assert_eq!(before.egress, Some(tree("pfifo", 3)));
    // So far only the upload was shaped.
    let upload = Record {
        ingress: false,
        previous: Snapshot {
            ingress: None,
            ..record().previous
        },
        ..record()
    };
    let before = decision.previous(Some(&upload), &snapshot);
    assert_eq!(before.ingress, snapshot.ingress);
}

#[test]
fn queues_as_planned_without_a_record_are_ours_from_a_process_that_was_killed() {
    let decision = decide(None, &as_planned(Some(root("cake", 1))), &both());
    assert_eq!(previous(&decision), (Previous::Default, Previous::Default));
    assert_eq!((decision.takeover.clone(), decision.is_unchanged), (None, true));
    let snapshot = Snapshot {
        egress: Some(tree("cake", 1)),
        ingress: Some(IngressState::default()),
    };
    let before = decision.previous(None, &snapshot);
    assert_eq!(before.egress, Some(QdiscTree::default()));
}

#[test]
fn queues_as_planned_with_a_record_change_nothing() {
    let decision = decide(Some(&record()), &as_planned(Some(root("cake", 1))), &both());
    assert!(decision.is_unchanged);
    assert_eq!(previous(&decision), (Previous::Recorded, Previous::Recorded));
}

#[test]
fn a_recreated_device_is_a_new_one_but_its_ifb_is_still_ours() {
    let gone = Record {
        index: DEVICE - 1,
        ..record()
    };
    let theirs = root("fq", 2);
    let decision = decide(Some(&gone), &found(Some(theirs.clone())), &both());
    assert_eq!(
        previous(&decision),
        (Previous::Snapshot, Previous::SnapshotWithoutIfb)
    );
    assert_eq!(decision.takeover, Some(Takeover::First { theirs }));
    // Nothing of ours stands on the new device, so there is nothing to restore.
    let decision = decide(Some(&gone), &found(None), &only_download());
    assert_eq!(decision.egress.action, Action::Leave);
    // An IFB that was there before our first start is not ours.
    let with_ifb = Record {
        ifb: "ifb0".to_owned(),
        ..gone
    };
    let decision = decide(Some(&with_ifb), &found(None), &both());
    assert_eq!(decision.ingress.previous, Previous::Snapshot);
}

#[test]
fn a_table_that_is_not_on_record_must_not_exist() {
    let plan = with_firewall();
    let table = plan.firewall.as_ref().map(|firewall| firewall.table.clone());
    let found = |firewall| Found {
        firewall,
        ..found(None)
    };
    let decision = decide(None, &found(Some(false)), &plan);
    assert_eq!(decision.unrecorded_table, table);
    // It holds exactly our rules: it is ours, from a process that was killed.
    assert_eq!(decide(None, &found(Some(true)), &plan).unrecorded_table, None);
    let recorded = Record {
        firewall: plan.firewall.clone(),
        ..record()
    };
    assert_eq!(
        decide(Some(&recorded), &found(Some(false)), &plan).unrecorded_table,
        None
    );
    // The table stays when a device goes, so the record of that device counts.
    let gone = Record { index: 1, ..recorded };
    let decision = decide(Some(&gone), &found(Some(false)), &plan);
    assert_eq!(decision.unrecorded_table, None);
    assert_eq!(decision.firewall.before, plan.firewall);
}

#[test]
fn a_table_that_the_plan_does_not_have_any_more_is_stale() {
    let plan = with_firewall();
    let recorded = Record {
        firewall: plan.firewall.clone(),
        ..record()
    };
    let decision = decide(Some(&recorded), &found(None), &both());
    assert_eq!(decision.firewall.stale_table(), Some("sqm_eth0"));
    let decision = decide(Some(&recorded), &found(None), &plan);
    assert_eq!(decision.firewall.stale_table(), None);
}

fn lost(root: Option<RootId>) -> Record {
    let record = Record {
        index: 0,
        egress: None,
        previous: Snapshot {
            egress: Some(QdiscTree::default()),
            ingress: Some(IngressState::default()),
        },
        is_lost: true,
        ..record()
    };
    record.completed(DEVICE, root)
}

#[test]
fn with_a_lost_record_a_root_of_our_kind_and_handle_is_taken_for_ours() {
    let ours = Some(root("htb", 1));
    let decision = decide(Some(&lost(ours.clone())), &found(ours), &both());
    assert_eq!(
        (decision.takeover, decision.replaces),
        (None, Some(root("htb", 1)))
    );
    assert_eq!(decision.egress.previous, Previous::Recorded);
    for theirs in [root("fq", 1), root("htb", 9)] {
        let record = lost(Some(theirs.clone()));
        let decision = decide(Some(&record), &found(Some(theirs.clone())), &both());
        assert_eq!(decision.egress.previous, Previous::Snapshot, "{theirs}");
        assert_eq!(decision.takeover, Some(Takeover::First { theirs }));
    }
}

#[test]
fn with_a_lost_record_a_table_of_our_name_may_be_ours() {
    let found = Found {
        firewall: Some(false),
        ..found(None)
    };
    let decision = decide(Some(&lost(None)), &found, &with_firewall());
    assert_eq!((decision.unrecorded_table, decision.leftover_table), (None, None));
    let decision = decide(Some(&lost(None)), &found, &both());
    assert_eq!(decision.leftover_table.as_deref(), Some("sqm_eth0"));
    assert_eq!(decide(Some(&record()), &found, &both()).leftover_table, None);
}

#[test]
fn a_root_of_another_handle_is_foreign() {
    let standing = |record: &Record, now| record.egress_standing(&found(now));
    let record = record();
    assert_eq!(standing(&record, Some(root("cake", 1))), Standing::Ours);
    assert_eq!(standing(&record, Some(root("tbf", 9))), Standing::Foreign);
    assert_eq!(standing(&record, None), Standing::Gone);
    let only_ingress = Record {
        egress: None,
        ..record
    };
    assert_eq!(
        standing(&only_ingress, Some(root("tbf", 9))),
        Standing::Ours,
        "egress was never shaped, and nothing is restored there"
    );
    let tbf = |major| Some(root("tbf", major));
    assert_eq!(standing(&lost(tbf(9)), tbf(9)), Standing::Foreign);
    assert_eq!(standing(&lost(tbf(1)), tbf(1)), Standing::Ours);
}

#[test]
fn a_plain_cake_stands_in_for_cake_mq() {
    let many = Record {
        egress: Some(root("cake_mq", 1)),
        ..record()
    };
    assert!(many.owns(&root("cake", 1)) && many.owns(&root("cake_mq", 1)));
    assert!(!many.owns(&root("cake", 2)) && !record().owns(&root("cake_mq", 1)));
}
