//! The shared corpus of malformed messages, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]
#![allow(clippy::disallowed_methods, reason = "real sockets take real time")]

mod support;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use config::Listener;
use support::{Running, judge};

#[test]
fn every_shared_case_gets_what_it_should() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/http1_malformed.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("skipped: no shared cases");
        return;
    };
    let cases: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let cases: Vec<_> = cases.iter().filter(|case| case["role"] == "ingress").collect();
    let patient = Running::start(Listener::default());
    let hasty = Running::start(Listener {
        idle_timeout: Duration::from_secs(1),
        header_timeout: Duration::from_secs(1),
        body_timeout: Duration::from_secs(1),
        ..Listener::default()
    });
    let found = Mutex::new(Vec::<String>::new());
    let (faults, patient, hasty) = (&found, &patient, &hasty);
    std::thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(8)) {
            scope.spawn(move || {
                for case in part {
                    let server = if case["needs_timeout"] == true { hasty } else { patient };
                    for fault in judge::faults(case, server.address) {
                        faults.lock().unwrap().push(format!("{}: {fault}", case["id"].as_str().unwrap()));
                    }
                }
            });
        }
    });
    let faults = faults.lock().unwrap();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
    let targets = patient.hook.targets.lock().unwrap();
    assert!(!targets.iter().any(|target| target.contains("canary")), "a canary was run");
    println!("{} cases", cases.len());
}
