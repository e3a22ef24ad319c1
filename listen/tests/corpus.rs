//! The shared corpus of malformed messages, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]
#![allow(clippy::disallowed_methods, reason = "real sockets take real time")]

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use config::Listener;
use domain::Refusal;
use http::{HeaderMap, StatusCode};
use support::{Running, judge};
use tidegate_listen::{Answer, Behaviour, Exchange, Form, Forms, Handler, Reply, Streamed, Takeover};

/// Every case of one role; none where the shared cases are not there.
fn cases(role: &str) -> Vec<serde_json::Value> {
    let Some(text) = skip::shared_cases("http1_malformed.json") else { return Vec::new() };
    let mut cases: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    cases.retain(|case| case["role"] == role);
    assert!(!cases.is_empty());
    cases
}

/// What is wrong with how `cases` went, eight of them at a time.
fn faults<'a>(cases: &[serde_json::Value], server: impl Fn(&serde_json::Value) -> &'a Running + Sync) -> String {
    let found = Mutex::new(Vec::<String>::new());
    let (faults, server) = (&found, &server);
    std::thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(8).max(1)) {
            scope.spawn(move || {
                for case in part {
                    for fault in judge::faults(case, server(case).address) {
                        faults.lock().unwrap().push(format!("{}: {fault}", case["id"].as_str().unwrap()));
                    }
                }
            });
        }
    });
    println!("{} cases", cases.len());
    found.into_inner().unwrap().join("\n")
}

#[test]
fn every_shared_case_gets_what_it_should() {
    let cases = cases("ingress");
    let patient = Running::start(Listener::default());
    let hasty = Running::start(Listener {
        idle_timeout: Duration::from_secs(1),
        header_timeout: Duration::from_secs(1),
        body_timeout: Duration::from_secs(1),
        ..Listener::default()
    });
    let faults = faults(&cases, |case| if case["needs_timeout"] == true { &hasty } else { &patient });
    assert!(faults.is_empty(), "{faults}");
    let targets = patient.hook.targets.lock().unwrap();
    assert!(!targets.iter().any(|target| target.contains("canary")), "a canary was run");
}

/// Lets through what is for one origin, and tunnels to nowhere.
struct Proxy;

#[async_trait]
impl Handler for Proxy {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        if exchange.head().authority() != Some("origin.test:18090") {
            return Answer::new(403).into();
        }
        if exchange.head().form() == Form::Authority {
            return Takeover::new(StatusCode::OK, HeaderMap::new(), |_| async {}).into();
        }
        let Ok(body) = exchange.body_stream(1 << 20) else { return Answer::new(413).into() };
        let response = http::Response::builder().header("content-type", "text/plain");
        Streamed::new(response.body(body).unwrap()).into()
    }

    fn refused(&self, _: SocketAddr, refusal: Refusal) -> Answer {
        Answer::new(support::status(refusal))
    }
}

#[test]
fn every_shared_case_of_a_proxy_gets_what_it_should() {
    let cases = cases("forward");
    let behaviour = Behaviour { forms: Forms::Proxy, ..Behaviour::default() };
    let server = Running::start_handler(Listener::default(), behaviour, Arc::new(Proxy));
    let faults = faults(&cases, |_| &server);
    assert!(faults.is_empty(), "{faults}");
}
