//! The store on real servers: the oldest that is supported and a current one. Each test runs on both.

mod support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use sqm_fleet::Name;
use sqm_fleet::credentials::Role;
use sqm_fleet::nats::Nats;
use sqm_fleet::transport::{Error, Event, Key, Kind, Store};
use support::{now, on_each};
use tokio::sync::Notify;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn desired(router: &str) -> Key {
    Key::Desired(name(router))
}

async fn value(store: &Nats, key: &Key) -> Option<String> {
    let entry = store.get(key).await.expect("an answer")?;
    Some(String::from_utf8(entry.value).expect("text"))
}

/// Waits for an event, half a minute at most.
async fn wait_for(store: &mut Nats, wanted: impl Fn(&Event) -> bool) -> Event {
    let found = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            let event = store.next().await;
            if wanted(&event) {
                return event;
            }
        }
    });
    found.await.expect("the event comes")
}

#[test]
fn values_have_revisions_and_a_history() {
    on_each(|server, hub| async move {
        // Its end ends the server.
        let _server = server;
        assert_eq!(hub.get(&desired("r1")).await, Ok(None));
        let first = hub
            .put(&desired("r1"), b"one".to_vec(), Some(0))
            .await
            .expect("written");
        let second = hub
            .put(&desired("r1"), b"two".to_vec(), Some(first))
            .await
            .expect("written");
        assert!(second > first);
        // Two operators at the same time: the second one is told.
        let late = hub.put(&desired("r1"), b"three".to_vec(), Some(first)).await;
        assert_eq!(late, Err(Error::Changed(desired("r1"))));
        let again = hub.put(&desired("r1"), b"three".to_vec(), Some(0)).await;
        assert_eq!(again, Err(Error::Changed(desired("r1"))));
        let entry = hub
            .get(&desired("r1"))
            .await
            .expect("an answer")
            .expect("a value");
        assert_eq!((entry.value.as_slice(), entry.revision), (&b"two"[..], second));
        assert!(entry.written.starts_with("20"), "{}", entry.written);
        let history = hub.history(&desired("r1")).await.expect("an answer");
        let values: Vec<&[u8]> = history.iter().map(|entry| entry.value.as_slice()).collect();
        assert_eq!(values, [b"one", b"two"]);
        // Making the buckets again changes nothing.
        hub.make_buckets(1).await.expect("buckets");
        assert_eq!(value(&hub, &desired("r1")).await.as_deref(), Some("two"));
    });
}

#[test]
fn keys_of_a_kind_are_listed_and_read_at_once() {
    on_each(|server, hub| async move {
        // Its end ends the server.
        let _server = server;
        let many: Vec<(Key, Vec<u8>)> = (0..1500)
            .map(|n| (desired(&format!("r{n:04}")), n.to_string().into_bytes()))
            .collect();
        hub.put_all(many).await.expect("written");
        hub.put(&Key::Heartbeat(name("r1")), b"x".to_vec(), None)
            .await
            .expect("written");
        let names = hub.names(&Kind::Desired).await.expect("an answer");
        assert_eq!((names.len(), names[1499].as_str()), (1500, "r1499"));
        let entries = hub.get_all(&Kind::Desired, &names).await.expect("an answer");
        assert!(
            entries
                .iter()
                .enumerate()
                .all(|(n, (_, entry))| entry.value == n.to_string().as_bytes())
        );
        assert_eq!(hub.names(&Kind::Heartbeat).await, Ok(vec![name("r1")]));
        assert_eq!(hub.names(&Kind::RollOut).await, Ok(Vec::new()));
    });
}

#[test]
fn a_router_reads_its_document_and_writes_its_reports_and_nothing_else() {
    on_each(|server, hub| async move {
        hub.put(&desired("r1"), b"for r1".to_vec(), None)
            .await
            .expect("written");
        hub.put(&desired("r2"), b"for r2".to_vec(), None)
            .await
            .expect("written");
        let mut r1 = server.connect("r1", Role::Router).await;
        assert_eq!(value(&r1, &desired("r1")).await.as_deref(), Some("for r1"));
        r1.put(&Key::Report(name("r1")), b"well".to_vec(), None)
            .await
            .expect("its own report");
        r1.publish(&Key::Heartbeat(name("r1")), b"well".to_vec())
            .await
            .expect("its own heartbeat");
        let refused = |outcome: Result<(), Error>, what: &str| match outcome {
            Err(Error::Refused(why)) => assert!(
                why.to_lowercase().contains("permissions violation"),
                "{what}: {why}"
            ),
            other => panic!("{what}: {other:?}"),
        };
        refused(r1.get(&desired("r2")).await.map(drop), "read another's document");
        refused(
            r1.put(&desired("r1"), b"mine".to_vec(), None).await.map(drop),
            "write its own document",
        );
        refused(
            r1.put(&desired("r2"), b"mine".to_vec(), None).await.map(drop),
            "write another's document",
        );
        refused(
            r1.put(&Key::Report(name("r2")), b"bad".to_vec(), None)
                .await
                .map(drop),
            "write another's report",
        );
        refused(r1.names(&Kind::Desired).await.map(drop), "list the routers");
        refused(r1.history(&desired("r1")).await.map(drop), "read the history");
        refused(r1.make_buckets(1).await, "change the buckets");
        r1.subscribe(&desired("r2"))
            .await
            .expect("the refusal comes later");
        let event = wait_for(&mut r1, |event| matches!(event, Event::Refused(_))).await;
        assert!(matches!(event, Event::Refused(why) if why.to_lowercase().contains("permissions violation")));
        assert_eq!(value(&hub, &desired("r2")).await.as_deref(), Some("for r2"));
        assert_eq!(value(&hub, &Key::Report(name("r2"))).await, None);
    });
}

#[test]
fn a_router_is_told_of_a_new_document_and_reads_what_it_missed() {
    on_each(|mut server, hub| async move {
        let mut r1 = server.connect("r1", Role::Router).await;
        r1.subscribe(&desired("r1")).await.expect("its own key");
        // The answer to this request proves that the server has the subscription.
        assert_eq!(value(&r1, &desired("r1")).await, None);
        hub.put(&desired("r1"), b"one".to_vec(), None)
            .await
            .expect("written");
        assert_eq!(
            wait_for(&mut r1, |event| matches!(event, Event::Changed(_))).await,
            Event::Changed(b"one".to_vec())
        );
        // Killed without a warning: what it had acknowledged is there when it comes back, and the router connects by itself.
        server.program.kill();
        wait_for(&mut r1, |event| *event == Event::Disconnected).await;
        server.program.restart();
        wait_for(&mut r1, |event| *event == Event::Connected).await;
        assert_eq!(value(&r1, &desired("r1")).await.as_deref(), Some("one"));
        drop(hub);
        let hub = server.connect("hub", Role::Operator).await;
        hub.put(&desired("r1"), b"two".to_vec(), None)
            .await
            .expect("written");
        assert_eq!(
            wait_for(&mut r1, |event| matches!(event, Event::Changed(_))).await,
            Event::Changed(b"two".to_vec())
        );
    });
}

/// Acknowledged writes between two kills. A choice: not a multiple of the writers, so each kill meets them at other places.
const BETWEEN_KILLS: usize = 47;
/// Values of a key that are looked for. The store keeps the last 64, and one that was written again after a kill is there twice. While the
/// others wait for a lost acknowledgement, one writer may make more writes than that.
const LOOKED_FOR: usize = 50;

#[test]
fn a_server_killed_ten_times_during_writes_has_every_acknowledged_document() {
    const WRITERS: usize = 16;
    on_each(|server, hub| async move {
        // All of it, or the folder would go before the end.
        let mut server = server;
        let acknowledged = Cell::new(0);
        let more = Notify::new();
        let is_over = Cell::new(false);
        let write = async |writer: usize| {
            let mut written = Vec::new();
            while !is_over.get() {
                let text = format!("{writer}: {}", written.len());
                let value = (desired(&format!("r{writer}")), text.clone().into_bytes());
                hub.put_all(vec![value]).await.expect("acknowledged in the end");
                written.push(text);
                acknowledged.set(acknowledged.get() + 1);
                more.notify_one();
            }
            written
        };
        let kill = async {
            for kill in 1..=10 {
                while acknowledged.get() < kill * BETWEEN_KILLS {
                    more.notified().await;
                }
                // Fifteen other writers wait for their answers.
                server.program.kill();
                server.program.restart();
            }
            is_over.set(true);
        };
        let (written, ()) = tokio::join!(join_all((0..WRITERS).map(write)), kill);
        for (writer, written) in written.into_iter().enumerate() {
            let history = hub.history(&desired(&format!("r{writer}"))).await;
            let mut found = history
                .expect("an answer")
                .into_iter()
                .map(|entry| String::from_utf8(entry.value).expect("text"));
            // One whose acknowledgement was lost is written again, so a value may be there twice.
            for text in written.iter().skip(written.len().saturating_sub(LOOKED_FOR)) {
                assert!(found.any(|found| found == *text), "{text} of {}", written.len());
            }
            assert!(found.all(|found| Some(&found) == written.last()));
        }
    });
}

#[test]
fn revoked_credentials_and_those_of_another_fleet_are_refused() {
    on_each(|mut server, _hub| async move {
        let credentials = server.keys.enroll(&name("r1"), Role::Router, now() - 10);
        let options = server.options("r1", Role::Router);
        let file = options.credentials.clone().expect("written by `options`");
        std::fs::write(&file, &credentials.text).expect("a file");
        assert!(Nats::connect_now(&options).await.is_ok());
        server.restart_without(&BTreeMap::from([(credentials.user, now() - 5)]));
        assert!(matches!(
            Nats::connect_now(&options).await,
            Err(Error::NoAnswer(_))
        ));
        // New credentials of the same router count.
        let again = server.options("r1", Role::Router);
        assert!(Nats::connect_now(&again).await.is_ok());
        let stranger = sqm_fleet::credentials::Keys::generate().enroll(&name("r1"), Role::Router, now());
        std::fs::write(&file, stranger.text).expect("a file");
        assert!(matches!(
            Nats::connect_now(&options).await,
            Err(Error::NoAnswer(_))
        ));
    });
}
