//! qhook with `SQLite`, as its own documentation sets it up. It verifies GitHub's signature as the appliance does. Its
//! events go into a pull-mode queue that nobody reads: handlers would cost it deliveries that are not measured here.

use std::fs;
use std::path::Path;

use super::{Kind, Server, free_port, fresh, program, spawn, wait_ready};
use crate::Result;
use crate::hook::Target;

pub fn start(binary: &Path, scratch: &Path) -> Result<Server> {
    let data = fresh(scratch, "qhook")?;
    let address = free_port()?;
    let secret = "bench-secret-of-qhook";
    // Two values are not its defaults, in its favour: with 10 connections to SQLite it does half as much, and with 100
    // concurrent requests it answers 503 to the rest.
    fs::write(
        data.join("qhook.yaml"),
        format!(
            "database:\n  driver: sqlite\n  url: sqlite:qhook.db?mode=rwc\n  max_connections: 1\nserver:\n  port: {}\n  max_inbound: 4096\n\
             sources:\n  github:\n    type: webhook\n    verify: github\n    secret: {secret}\n\
             queues:\n  all:\n    source: github\n    events: []\n",
            address.port()
        ),
    )?;
    let log = data.join("output.log");
    let mut child = spawn(program(binary).arg("start").current_dir(&data).env("RUST_LOG", "warn"), &log)?;
    let ready_after = wait_ready(&mut child, address, "/health", &log)?;
    let targets = vec![Target { path: "/webhooks/github".into(), secret: secret.into() }];
    Ok(Server { kind: Kind::Qhook, address, targets, data, ready_after, child, helpers: Vec::new() })
}
