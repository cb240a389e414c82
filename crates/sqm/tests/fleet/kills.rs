//! The operator's commands are killed at their requests, and run again.

use std::thread;

use sqm_fleet::Name;
use sqm_fleet::desired::Desired;
use sqm_fleet::nats::Nats;
use sqm_fleet::rollout::{Progress, RollOut};
use sqm_fleet::transport::{Key, Store as _};

use super::hub::{Hub, Single, block_on};
use super::proxy::{End, Event, Proxy};
use super::servers::agents::{Agents, News};
use super::servers::programs;
use super::support::is_nightly;

/// Routers of each point.
const ROUTERS: usize = 4;

/// Ten of the requests of a command, the first and the last among them; at night all.
fn points(requests: usize) -> Vec<usize> {
    if is_nightly() {
        return (1..=requests).collect();
    }
    let mut points: Vec<usize> = (0..10).map(|point| 1 + (requests - 1) * point / 9).collect();
    points.dedup();
    points
}

/// The routers of a point.
fn routers(point: usize) -> Vec<Name> {
    (0..ROUTERS)
        .map(|router| format!("p{point}r{router}").parse().expect("a name"))
        .collect()
}

fn group(point: usize) -> String {
    format!("p{point}")
}

/// The download rate of a document, kbit/s.
fn download(document: &Desired) -> usize {
    let rate = document.configuration.split("download '").nth(1);
    let rate = rate.and_then(|rest| rest.split('\'').next()?.parse().ok());
    rate.expect("a rate")
}

/// Runs a command through a proxy.
fn through_proxy(single: &Single, args: &[&str], event: &Event<'_>) -> End {
    let proxy = Proxy::new(single.server.port);
    let behind = single.hub.with_url(&proxy.url());
    proxy.run(&mut behind.command(args), event)
}

async fn documents(hub: &Hub, store: &Nats, point: usize) -> Vec<Vec<Desired>> {
    let mut all = Vec::new();
    for router in routers(point) {
        all.push(hub.documents(store, &router).await);
    }
    all
}

#[test]
fn set_killed_at_any_request_leaves_whole_documents_and_can_be_repeated() {
    for program in programs() {
        let single = Single::start(program);
        let hub = &single.hub;
        let (first, second) = (hub.configuration(50_000), hub.configuration(60_000));
        hub.enroll(&routers(0), &group(0));
        hub.run(&["set", &first, "--group", &group(0)]);
        let end = through_proxy(&single, &["set", &second, "--group", &group(0)], &Event::Nothing);
        assert_eq!(end.code, Some(0), "{end:?}");
        // Two buckets are looked at, and each router's document is read and written.
        assert_eq!(end.requests, 2 + 2 * ROUTERS);
        for point in points(end.requests) {
            hub.enroll(&routers(point), &group(point));
            hub.run(&["set", &first, "--group", &group(point)]);
            let end = through_proxy(
                &single,
                &["set", &second, "--group", &group(point)],
                &Event::Kill(point),
            );
            assert_eq!((end.code, end.requests), (None, point));
            let written = point.saturating_sub(2 + ROUTERS);
            block_on(async {
                let store = hub.connect().await;
                let found = documents(hub, &store, point).await;
                let new = found.iter().filter(|documents| documents.len() == 2);
                assert_eq!(new.count(), written, "point {point}: each request counts");
                hub.run(&["set", &second, "--group", &group(point)]);
                for documents in documents(hub, &store, point).await {
                    let last = documents.last().expect("a document");
                    let revision = if written == 0 { 2 } else { 3 };
                    assert_eq!(
                        (last.revision, download(last)),
                        (revision, 60_000),
                        "point {point}"
                    );
                }
            });
        }
    }
}

/// A roll-out in three steps of which each begins as soon as the one before is settled.
fn start<'a>(name: &'a str, file: &'a str, group: &'a str) -> Vec<&'a str> {
    let rest = ["--group", group, "--steps", "1,2,100%", "--hold", "0s"];
    [&["roll-out", "start", name, file][..], &rest].concat()
}

#[test]
fn a_roll_out_killed_at_any_request_goes_on_and_gives_each_router_one_document() {
    let program = programs().last().expect("a current server");
    let single = Single::start(program);
    let hub = &single.hub;
    let (first, second) = (hub.configuration(50_000), hub.configuration(60_000));
    hub.enroll(&routers(0), &group(0));
    hub.run(&["set", &first, "--group", &group(0)]);
    let mut agents = agents(hub, &[0]);
    block_on(agents.all(News::Reported(1)));
    let end = through_proxy(&single, &start("p0", &second, &group(0)), &Event::Nothing);
    assert_eq!(end.code, Some(0), "{end:?}");
    let points = points(end.requests);
    for &point in &points {
        hub.enroll(&routers(point), &group(point));
    }
    for &point in &points {
        hub.run(&["set", &first, "--group", &group(point)]);
    }
    let mut agents = self::agents(hub, &points);
    block_on(agents.all(News::Reported(1)));
    // All at the same time: a roll-out looks every ten seconds only.
    thread::scope(|scope| {
        for &point in &points {
            let (single, second) = (&single, &second);
            scope.spawn(move || kill_and_go_on(single, second, point));
        }
    });
}

fn agents(hub: &Hub, points: &[usize]) -> Agents {
    let routers = points.iter().flat_map(|&point| routers(point));
    let routers = routers.map(|name| (name.clone(), hub.options(&name))).collect();
    Agents::start(routers, &hub.key())
}

fn kill_and_go_on(single: &Single, second: &str, point: usize) {
    let hub = &single.hub;
    let (name, group) = (group(point), group(point));
    let start = start(&name, second, &group);
    let end = through_proxy(single, &start, &Event::Kill(point));
    // How often it looks depends on the routers, so it may be done before the last points.
    assert!(end.code.is_none_or(|code| code == 0), "point {point}: {end:?}");
    let key = Key::RollOut(name.parse().expect("a name"));
    block_on(async {
        let store = hub.connect().await;
        // Before the roll-out is written nothing was handed out, and it is started anew.
        if store.get(&key).await.expect("an answer").is_some() {
            hub.run(&["roll-out", "run", &name]);
        } else {
            hub.run(&start);
        }
        for documents in documents(hub, &store, point).await {
            let given: Vec<_> = documents
                .iter()
                .map(|document| (document.revision, download(document)))
                .collect();
            assert_eq!(given, [(1, 50_000), (2, 60_000)], "point {point}");
        }
        let entry = store.get(&key).await.expect("an answer").expect("a roll-out");
        let roll_out = RollOut::parse(&entry.value).expect("a roll-out");
        assert_eq!(roll_out.progress, Progress::Done, "point {point}");
    });
}

/// The requests of 'roll-out run' before it claims the first step: it looks at two buckets, and reads the roll-out and a heartbeat.
const BEFORE_CLAIM: usize = 4;

#[test]
fn a_roll_out_halted_between_look_and_write_hands_nothing_out() {
    let program = programs().last().expect("a current server");
    let single = Single::start(program);
    let hub = &single.hub;
    let (first, second) = (hub.configuration(50_000), hub.configuration(60_000));
    for point in 1..=BEFORE_CLAIM + 1 {
        let name = group(point);
        hub.enroll(&routers(point), &name);
        hub.run(&["set", &first, "--group", &name]);
        // Killed when it has been written and before it is looked at: two buckets, the documents, the roll-out, the drafts, the roll-out.
        let written = 2 + ROUTERS + 1 + 2 * ROUTERS + 1;
        through_proxy(&single, &start(&name, &second, &name), &Event::Kill(written));
        let halt = || drop(hub.run(&["roll-out", "halt", &name]));
        let run = ["roll-out", "run", &name];
        let end = through_proxy(&single, &run, &Event::Before(point, &halt));
        assert_eq!(end.code, Some(1), "point {point}: it has halted: {end:?}");
        block_on(async {
            let store = hub.connect().await;
            for documents in documents(hub, &store, point).await {
                assert_eq!(documents.len(), 1, "point {point}");
            }
        });
    }
}
