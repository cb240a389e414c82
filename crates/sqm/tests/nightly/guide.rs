//! The guide's walk: each command of its pages that needs a line, in the order of the pages, in one home network with the line cable24 in
//! virtual time. `SQM_UPDATE=1` writes the outputs and the plots of the guide anew.

use std::fs;

use sqm_lab::{Clock, Home, Line};

use crate::lab::guide as pages;
use crate::lab::shared;

/// Files of the walk that are pictures of the guide.
const PICTURES: [(&str, &str); 3] = [
    ("/tmp/walk/after.svg", "test-over-time.svg"),
    ("/tmp/walk/ping_cdf.svg", "compare-cdf.svg"),
    ("/tmp/walk/tune.svg", "tune.svg"),
];

#[test]
fn the_walk_of_the_guide_prints_what_the_guide_shows() {
    let home = shared::home(Clock::Virtual, &Line::named("cable24").expect("a known line"));
    // The guest has no systemd: a stand-in accepts what `systemctl` is asked for.
    home.script(
        "mkdir -p /tmp/walk /tmp/bin
         printf '#!/bin/sh\n' >/tmp/bin/systemctl; chmod 755 /tmp/bin/systemctl; rm -f /etc/config/sqm",
    )
    .expect("the guest is prepared");
    let is_update = std::env::var_os("SQM_UPDATE").is_some();
    let mut wrong = String::new();
    for block in pages::blocks() {
        let Some(host) = block.place.as_deref().filter(|place| *place != "here") else {
            continue;
        };
        println!("{}", block.page.display());
        if let Some(first) = &block.first {
            home.script(&format!("set +e; cd /tmp/walk; {first}"))
                .expect(first);
        }
        for (command, shown) in &block.commands {
            let printed = run(&home, host, command);
            println!("$ sqm {command}\n{printed}");
            let [as_shown, as_printed] = [shown, &printed].map(|text| pages::without_figures(text));
            if as_shown == as_printed {
                continue;
            }
            let page = block.page.display();
            if is_update {
                let text = fs::read_to_string(&block.page).expect("a page");
                let [old, new] =
                    [shown, &printed].map(|output| format!("sqm {command}\n{}", output.trim_end()));
                fs::write(&block.page, text.replacen(&old, &new, 1)).expect("a page");
            }
            wrong += &format!(
                "{page}: sqm {command}\n--- shown\n{as_shown}\n--- printed\n{as_printed}\n{printed}\n"
            );
        }
    }
    if is_update {
        for (file, picture) in PICTURES {
            let svg = home.script(&format!("cat {file}")).expect(file);
            fs::write(pages::folder().join("pictures").join(picture), svg).expect(picture);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    for (file, _) in PICTURES {
        home.script(&format!("grep -q '<svg' {file}")).expect(file);
    }
}

fn run(home: &Home, host: &str, command: &str) -> String {
    let script = format!(
        "set +e; cd /tmp/walk; ip netns exec {host} env PATH=/tmp/bin:$PATH sqm {command} 2>/tmp/told </dev/null || true"
    );
    home.script(&script).expect(command)
}
