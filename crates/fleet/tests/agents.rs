//! Many routers on one server. `cargo bench -p sqm-fleet --bench agents` has thousands, with figures.

mod support;

use sqm_fleet::report::Report;
use sqm_fleet::signed::SigningKey;
use sqm_fleet::transport::{Key, Kind, Store};
use support::agents::{Agents, News, documents, routers};
use support::{on_each, process};

const ROUTERS: usize = 300;
/// The server's memory for each connection, bytes. A choice: three times the 77 kB that it takes with 5,000, because the heap of a small
/// server is coarse.
const MEMORY: u64 = 256 * 1024;

#[test]
fn each_of_many_routers_gets_its_own_document_and_reports() {
    process::allow_many_files();
    on_each(|server, hub| async move {
        let idle = server.program.process().memory();
        let key = SigningKey::generate();
        let mut agents = Agents::start(routers(&server, ROUTERS), &key.public());
        agents.all(News::Connected).await;
        for revision in [1, 2] {
            hub.put_all(documents(&key, ROUTERS, revision))
                .await
                .expect("written");
            agents.all(News::Reported(revision)).await;
        }
        let names = hub.names(&Kind::Report).await.expect("an answer");
        assert_eq!(names.len(), ROUTERS);
        for name in names {
            let entry = hub.get(&Key::Report(name.clone())).await.expect("an answer");
            let text = entry.expect("a report").value;
            let report = Report::parse(&text).expect("a report");
            assert_eq!((&report.router, report.in_force), (&name, 2));
        }
        let each = server.program.process().memory().saturating_sub(idle) / ROUTERS as u64;
        assert!(each < MEMORY, "{each} bytes for each router");
    });
}
