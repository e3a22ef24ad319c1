//! The redirect chains of the shared cases: each decided as expected, and nothing dialled for a hop that is refused.

use std::sync::Arc;

use config::CredentialKind;
use http::Method;
use outbound::{HostPattern, Scheme, Target};
use serde::Deserialize;

use super::harness::*;
use crate::forward::redirect::HopEnd;
use crate::forward::testing::{Origin, forward, rules, tls, whole};
use crate::governed::Called;

#[derive(Debug, Deserialize)]
struct Case {
    id: String,
    kind: String,
    expected: String,
    #[serde(default)]
    chain: Vec<String>,
}

/// None where the shared cases are not beside the repository.
fn cases() -> Option<Vec<Case>> {
    let text = skip::shared_cases("ssrf.json")?;
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    Some(cases.into_iter().filter(|case| case.kind == "redirect").collect())
}

/// One answer of a chain: `302 -> URL`, `302 -> URL | URL`, `300 Location: URL`, `200 Refresh: …`.
fn answer(step: &str) -> String {
    let (status, rest) = step.split_at(3);
    let fields = match rest.trim_start().strip_prefix("->") {
        Some(locations) => {
            let lines: Vec<_> =
                locations.split(" | ").map(|location| format!("Location: {}\r\n", location.trim())).collect();
            lines.concat()
        }
        None => format!("{}\r\n", rest.trim_start()),
    };
    format!("HTTP/1.1 {status} x\r\n{fields}Content-Length: 0\r\n\r\n")
}

const LISTENER: &str = "93.184.216.99";

/// Answers the hops of a chain one after the other, and says what they asked for. The last one that is dialled is told
/// that all is well.
async fn serve(mut origin: Origin, steps: Vec<String>) -> (Vec<String>, usize) {
    let mut requests = Vec::new();
    let mut peer = origin.accept().await;
    for step in steps.iter().map(|step| answer(step)).chain([answer("200 X-End: yes")]) {
        let request = loop {
            tokio::select! {
                request = peer.try_request() => match request {
                    Some(request) => break Some(request),
                    // Closed: if there is more, it comes over another one.
                    None => match origin.try_accept().await {
                        Some(next) => peer = next,
                        None => break None,
                    },
                },
                next = origin.try_accept() => match next {
                    Some(next) => peer = next,
                    None => break None,
                },
            }
        };
        let Some(request) = request else { break };
        requests.push(request);
        peer.write(step).await;
    }
    (requests, origin.dialled())
}

/// The case, with these hosts allowed by the tenant's policy beside the first one, and named by the rule.
async fn run(case: &Case, allowed: &[&str], posts: bool) -> (Called, Vec<String>, usize) {
    let target = Target::parse(case.chain[0].split(' ').next().unwrap()).unwrap();
    let host = target.authority.host().to_string();
    let steps: Vec<String> =
        case.chain[1..].iter().map(|step| step.replace("PROXY_LISTEN_IP:PROXY_LISTEN_PORT", LISTENER)).collect();
    let generic = config::connector::Catalogue::shipped().unwrap();
    let generic = generic.get(&domain::ConnectorId::parse("http").unwrap()).unwrap();
    let connector = Arc::new(crate::governed::Connector::new(Arc::clone(generic)).unwrap());
    let bearer = credential(CredentialKind::Bearer, Some("VAULT"));
    let bearer = Some(&bearer).filter(|_| target.scheme == Scheme::Https);
    let base_url = format!("{}://{}", target.scheme.as_str(), target.authority);
    let connection = connection(&connector, &base_url, bearer);
    let mut made = Made::new(connection, if posts { Method::POST } else { Method::GET }, target.path_and_query);
    if posts {
        made.body = whole("secret body");
    }
    made.headers = map(&[("Accept", "a/b"), ("If-Match", "\"caller-token\"")]);
    let mut rule = made.connection.redirects(Some(20), 20).unwrap();
    // Wherever the chain leads, the rule lets it: it is the judge who says no.
    let named = steps.iter().flat_map(|step| step.split([' ', '|'])).filter_map(|word| Target::parse(word).ok());
    rule.elsewhere = named.map(|target| HostPattern::Exactly(target.authority.host().clone())).collect();
    made.rule = Some(rule);
    let mut judge = TableJudge::new(allowed).answers("localhost", &["127.0.0.1"]);
    judge.allowed.push(HostPattern::parse(&host).unwrap());
    judge.rules = rules(&[LISTENER]);
    let names = ["api.provider.example", "sub.api.provider.example", "evil.attacker.test"];
    let (client, acceptor) = tls(&names, &[]);
    judge.tls = Some(client);
    let (forward, mut origin) = forward();
    origin.tls = Some(acceptor);
    let served = tokio::spawn(serve(origin, steps));
    let called = made.send(&forward, &Arc::new(judge)).await.unwrap();
    drop(forward);
    let (requests, dialled) = served.await.unwrap();
    (called, requests, dialled)
}

/// Cases that are about what travels along to another origin. Where they lead is public.
const ABOUT_CREDENTIALS: &[&str] = &[
    "redir-https-http",
    "redir-cross-port-cred",
    "redir-sub-cred",
    "redir-xapikey",
    "redir-query-cred",
    "redir-body-replay",
];

#[tokio::test(start_paused = true)]
async fn every_chain_is_decided_as_expected_and_nothing_is_dialled_for_a_hop_that_is_refused() {
    let Some(cases) = cases() else { return };
    assert!(cases.len() >= 24, "{}", cases.len());
    for case in &cases {
        let id = case.id.as_str();
        // Everything internal is allowed by name: addresses are refused by themselves.
        let allowed = ["169.254.169.254", "[::ffff:169.254.169.254]", "localhost", LISTENER, "127.0.0.1"];
        let (called, requests, dialled) = run(case, &allowed, id == "redir-body-replay").await;
        let is_final = called.result.is_ok();
        if id == "redir-cross-port-cred" {
            // This policy says nothing of ports: it is gone to, without what is the first one's. See below.
            assert!(is_final && requests.len() == 2, "{id}");
            continue;
        }
        assert_eq!(is_final, case.expected == "allow", "{id}: {:?}", called.result);
        match id {
            "redir-same-ok" | "redir-crlf" => {
                assert_eq!((requests.len(), dialled), (2, 1), "{id}");
                assert!(requests[1].contains("caller-token"), "{id}");
                assert_eq!(requests[1].contains("Bearer VAULT"), id == "redir-same-ok", "{id}");
            }
            // Five are followed, as the connector says.
            "redir-long" => assert!(requests.len() == 6 && dialled == 1, "{id}: {}", requests.len()),
            // Refused, or no redirect at all: one request, one connection.
            _ => assert_eq!((requests.len(), dialled), (1, 1), "{id}"),
        }
        if id == "redir-crlf" {
            assert!(requests[1].starts_with("GET /%0d%0aX:%20y HTTP/1.1\r\n"), "{}", requests[1]);
        }
        let was_judged = called.hops.iter().any(|hop| matches!(hop.end, HopEnd::Refused { .. }));
        assert!(!was_judged || !is_final);
    }
}

#[tokio::test(start_paused = true)]
async fn what_travels_to_another_origin_says_nothing() {
    let Some(cases) = cases() else { return };
    for case in cases.iter().filter(|case| ABOUT_CREDENTIALS.contains(&case.id.as_str())) {
        let id = case.id.as_str();
        let allowed = ["*.provider.example", "*.api.provider.example", "evil.attacker.test"];
        let (called, requests, _) = run(case, &allowed, id == "redir-body-replay").await;
        if id == "redir-body-replay" {
            assert!(called.result.is_err(), "{id}");
            assert_eq!(requests.len(), 1, "{id}");
            continue;
        }
        if id == "redir-https-http" {
            assert!(called.result.is_err() && requests.len() == 1, "{id}");
            continue;
        }
        assert_eq!(requests.len(), 2, "{id}: {called:?}");
        assert!(requests[0].contains("Bearer VAULT"), "{id}");
        assert!(!called.hops[1].has_credential, "{id}");
        let mut lines: Vec<_> = requests[1].lines().skip(1).filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        let names: Vec<_> = lines.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(names, ["accept", "host", "tidegate-correlation-id", "user-agent", "via"], "{id}");
        assert!(!requests[1].contains("VAULT"), "{id}");
    }
}

#[test]
fn answers_are_what_the_chain_says() {
    assert_eq!(answer("302 -> http://a/ | http://b/").matches("Location: ").count(), 2);
    assert!(answer("300 Location: http://127.0.0.1/").contains("Location: http://127.0.0.1/\r\n"));
}
