//! What somebody who is not trusted can do to `sqm web` and what he cannot: hold it up, get in without the password, and use the
//! rights of root that it was started with.

#[allow(dead_code, reason = "web.rs uses the rest")]
#[path = "web/api.rs"]
mod api;
#[allow(dead_code, reason = "web.rs uses the rest")]
#[path = "web/site.rs"]
mod site;
mod support;

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};

use site::Site;

/// Texts and changes of which each made the server compute for many seconds.
fn laborious() -> [(Value, u16); 5] {
    let change = |at: usize| json!({"section": at + 1, "option": "interface", "value": format!("e{at}")});
    let changes: Vec<Value> = (0..4000).map(change).collect();
    let disabled = "config queue\n\toption interface 'eth0'\n".repeat(3000);
    let misspelt: String = (0..4500)
        .map(|at| format!("\toption interface{at} 'a'\n"))
        .collect();
    let enabled: String = (0..1000)
        .map(|at| {
            format!(
                "config queue\n\toption enabled 1\n\toption interface 'e{at}'\n\toption upload 1mbit\n\
                 \toption download 0\n\toption script simple.qos\n"
            )
        })
        .collect();
    [
        (json!({"text": "config queue\n".repeat(10_000)}), 200),
        (json!({"changes": changes}), 400),
        (json!({"text": disabled}), 200),
        (json!({"text": format!("config queue\n{misspelt}")}), 200),
        (json!({"text": enabled}), 200),
    ]
}

#[test]
fn a_laborious_check_holds_nobody_up_and_its_answer_is_small() {
    let site = Site::start(&[]);
    site.admin();
    for (body, code) in laborious() {
        let (sender, ended) = std::sync::mpsc::channel();
        let mut served = 0;
        let (token, host, port) = (site.token(), site.host(), site.port);
        std::thread::spawn(move || sender.send(ask(port, &host, &token, &body.to_string())));
        let answer = loop {
            match ended.recv_timeout(Duration::from_millis(1)) {
                Ok(answer) => break answer,
                Err(_) => served += usize::from(site.get("/session").code == 200),
            }
        };
        assert!(
            answer.contains(&format!("HTTP/1.1 {code}")),
            "{}",
            &answer[..answer.len().min(300)]
        );
        assert!(answer.len() < 1 << 20, "{} bytes", answer.len());
        assert!(served > 0, "nobody else was answered meanwhile");
    }
}

/// What the page asks, by a connection of its own.
fn ask(port: u16, host: &str, token: &str, body: &str) -> String {
    let mut stream = site::connect(port);
    let request = format!(
        "POST /api/v1/config/check HTTP/1.1\r\nHost: {host}\r\nX-SQM-Token: {token}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn with_a_password_only_who_has_logged_in_has_a_configuration_checked() {
    let site = Site::start_with_password("correct horse");
    assert_eq!(site.send("POST", "/config/check", &json!({"text": ""})).code, 403);
    site.log_in("correct horse");
    assert_eq!(site.send("POST", "/config/check", &json!({"text": ""})).code, 200);
    let changes: Vec<Value> = (0..1001)
        .map(|_| json!({"section": 0, "option": "upload", "value": "1"}))
        .collect();
    let answer = site.send("POST", "/config/check", &json!({"changes": changes}));
    assert_eq!(answer.code, 400, "{}", answer.body);
    assert!(answer.body.contains("at most 1000 changes"), "{}", answer.body);
}
