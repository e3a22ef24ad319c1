//! Clients that people use, against the built binary: each is a program of `tests/clients` that says what works.
//!
//! ```text
//! edge: client ── 127.0.0.1:3128 ── appliance ──── world: DNS, HTTP/1.1 and HTTP/2 (tests/clients/origin)
//! ```
//!
//! `docs/clients.md` says what is found here, for people.

mod lab;

use std::path::Path;
use std::process::Command;

use lab::{Lab, clients};

/// What every client does.
const EVERY: [&str; 10] = [
    "https",
    "base-url",
    "keep-alive-https",
    "upload-https",
    "download-https",
    "redirect-https",
    "upload-base-url",
    "redirect-base-url",
    "refused",
    "unknown",
];

/// What those do that send plain HTTP to the proxy and not through a tunnel.
const PLAIN: [&str; 5] = ["http", "keep-alive-http", "upload-http", "download-http", "redirect-http"];

/// Runs a client, which has to say that all of this works and nothing else.
fn works(name: &str, client: impl FnOnce(&Path) -> Option<Command>, also: &[&[&str]]) {
    let Some(lab) = Lab::up() else { return };
    let Some(client) = client(lab.scratch()) else {
        skip::skipped(&format!("there is no {name} here"));
        return;
    };
    let output = lab.run(&client);
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = || format!("{name}\n{said}{}\n{}", String::from_utf8_lossy(&output.stderr), lab.records());
    assert!(output.status.success(), "{}", failed());
    let mut works: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
    let mut expected: Vec<&str> = EVERY.iter().chain(also.iter().copied().flatten()).copied().collect();
    works.sort_unstable();
    expected.sort_unstable();
    assert_eq!(works, expected, "{}", failed());
}

/// The program, where it is.
fn program(name: &str) -> Option<Command> {
    let found = Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    found.then(|| Command::new(name))
}

#[test]
fn curl() {
    let client = |_: &Path| {
        program("curl")?;
        let mut script = Command::new("bash");
        script.arg(clients("curl.sh"));
        Some(script)
    };
    works("curl", client, &[&PLAIN, &["unknown-base-url", "events", "hops", "environment"]]);
}

/// Debian's Python has the libraries.
fn python(library: &str) -> Option<Command> {
    let mut python = Command::new("/usr/bin/python3");
    let imports = python.args(["-c", &format!("import {library}, websocket")]).output();
    imports.is_ok_and(|output| output.status.success()).then(|| {
        let mut python = Command::new("/usr/bin/python3");
        python.arg(clients("python_clients.py")).arg(library);
        python
    })
}

#[test]
fn python_requests() {
    let also = ["unknown-base-url", "events", "environment", "websocket-wss", "websocket-base-url"];
    works("requests", |_| python("requests"), &[&PLAIN, &also]);
}

#[test]
fn python_httpx() {
    works("httpx", |_| python("httpx"), &[&PLAIN, &["unknown-base-url", "events", "environment"]]);
}

#[test]
fn node_fetch() {
    let client = |_: &Path| {
        let mut node = program("node")?;
        // Debian's libraries.
        node.arg(clients("node.mjs")).env("NODE_PATH", "/usr/share/nodejs");
        Path::new("/usr/share/nodejs/undici").exists().then_some(node)
    };
    works("undici", client, &[&["unknown-base-url", "events"]]);
}

#[test]
fn go_net_http() {
    let client = |scratch: &Path| Some(Command::new(lab::go("go", scratch)?));
    works("Go", client, &[&PLAIN, &["unknown-base-url", "events", "environment"]]);
}

#[test]
fn java_http_client() {
    let client = |scratch: &Path| {
        let compiled = program("javac")?.arg("-d").arg(scratch).arg(clients("Client.java")).status();
        assert!(compiled.expect("a compiler").success());
        let mut java = Command::new("java");
        java.arg("-cp").arg(scratch).arg("Client");
        Some(java)
    };
    works("Java", client, &[&PLAIN, &["unknown-base-url", "websocket-wss"]]);
}

#[test]
fn reqwest() {
    let client = |_: &Path| {
        let manifest = clients("reqwest/Cargo.toml");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reqwest");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(manifest).arg("--target-dir").arg(&target);
        assert!(cargo.status().expect("cargo").success());
        Some(Command::new(target.join("debug/client")))
    };
    works("reqwest", client, &[&PLAIN, &["unknown-base-url", "events", "environment"]]);
}
