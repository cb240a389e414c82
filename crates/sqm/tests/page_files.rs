//! Disks that are full or read-only, folders that are gone, and FIFOs, directories and links in the place of the files that the
//! page's server keeps: it serves or says which file it is, nothing is followed, nothing hangs, and the next start works.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Nothing here takes long; a machine that is busy gets the time it needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Files of the folder; `password` and the log of changes have their tests beside what they are for.
const FILES: [&str; 3] = ["certificate.der", "key.der", "tests"];

/// What a shell does to `$file` in `$dir`, a file system of its own, before the server starts.
const STATES: [(&str, &str); 6] = [
    (
        "full",
        "dd if=/dev/zero of=$dir/tests.fill bs=1k 2>/dev/null || true",
    ),
    ("read-only", "mount -o remount,ro $dir"),
    ("gone", "umount $dir; rm -rf $dir"),
    ("fifo", "rm -rf $file; mkfifo $file"),
    ("folder", "rm -rf $file; mkdir $file"),
    ("dangling", "rm -rf $file; ln -s $dir/target $file"),
];

/// The server in a mount namespace of its own. `before`: what it finds.
fn server(folder: &Path, file: &str, before: &str, is_known: bool) -> Child {
    let known = match is_known {
        // Made by a server before this one.
        true => format!("cp -r {}/kept/. $dir", folder.display()),
        false => "true".to_owned(),
    };
    let script = format!(
        "set -e; dir={0}/web; file=$dir/{file}; mkdir -p $dir; mount -t tmpfs -o size=32k,mode=700 tmpfs $dir; {known}; {before}
         ls $dir/target 2>/dev/null && exit 99
         sqm=$1; shift; (sleep 1; ls $dir/target >{0}/followed 2>/dev/null) & exec $sqm web --tls --listen 127.0.0.1:0 --dir $dir \
         --socket {0}/none.sock",
        folder.display()
    );
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_sqm")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("util-linux has unshare")
}

/// What it says until it serves; or until it ends, with its exit code.
fn outcome(mut server: Child) -> Result<(), (Option<i32>, String)> {
    let errors = server.stderr.take().expect("it is a pipe");
    let (sender, receiver) = channel();
    // Reading ends when the server does.
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut said = String::new();
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(line) if line.contains("the page is at") => {
                let port = line
                    .trim()
                    .trim_end_matches('/')
                    .rsplit(':')
                    .next()
                    .and_then(|port| port.parse().ok());
                answers(port.expect("a port"));
                let _ = server.kill();
                let _ = server.wait();
                return Ok(());
            }
            Ok(line) => said += &(line + "\n"),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let _ = server.kill();
                let _ = server.wait();
                panic!("it neither serves nor ends: {said}");
            }
            Err(_) => return Err((server.wait().expect("it has ended").code(), said)),
        }
    }
}

/// What is no TLS is answered by an alert, or by the end of the connection: somebody is there.
fn answers(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .expect("it takes bytes");
    let mut bytes = [0; 16];
    let read = stream.read(&mut bytes);
    assert!(read.is_ok_and(|length| length > 0), "no alert");
}

#[test]
fn the_page_serves_or_names_the_file_that_is_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    // What a first server makes.
    let mut first = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args([
            "web",
            "--tls",
            "--listen",
            "127.0.0.1:0",
            "--socket",
            "/none",
            "--dir",
        ])
        .arg(at("kept"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(first.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(at("kept/certificate.der").exists(), "{line}");
    let mut refused = Vec::new();
    for file in FILES {
        for (state, before) in STATES {
            for is_known in [false, true] {
                let cell = format!("{file}, {state}, known: {is_known}");
                match outcome(server(folder.path(), file, before, is_known)) {
                    Ok(()) => {}
                    Err((code, said)) => {
                        assert_eq!(code, Some(1), "{cell}: {said}");
                        let is_named = said.contains("/web");
                        assert!(is_named, "{cell}: {said}");
                        refused.push(cell);
                    }
                }
                assert_eq!(fs::read_to_string(at("followed")).unwrap_or_default(), "");
                outcome(server(folder.path(), file, "true", is_known)).expect("the next start works");
            }
        }
    }
    println!("refused:\n{}", refused.join("\n"));
    // With certificate and key there, a disk that is full keeps nobody from the page.
    assert!(
        !refused.iter().any(|cell| cell.contains("full, known: true")),
        "{refused:?}"
    );
}
