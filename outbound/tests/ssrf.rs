//! The shared corpus of ways to reach the inside, as far as this layer decides it: with a resolver by script, and a
//! connector that fails the test if it is used for anything that was not vetted.
//!
//! What this layer does not decide is printed with the layer that does. Every authority in such a case goes through this
//! one all the same, and must not be dialled if it is internal.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]

mod support;

use std::collections::BTreeMap;
use std::net::IpAddr;

use outbound::{Authority, DialSettings, Dialer, Exit, Own, Resolve, ResolveError, Rules, Target, resolve_and_vet};
use proptest::prelude::*;
use serde_json::Value;
use support::{Scripted, Watched, rules};

/// Where the appliance of the placeholders lives.
const LISTEN_IP: &str = "198.51.100.20";
const EGRESS_IP: &str = "93.184.216.200";
const PEER_IP: &str = "93.184.216.201";

fn node() -> Rules {
    let own = [LISTEN_IP, EGRESS_IP, PEER_IP].map(|address| address.parse().unwrap());
    Rules { own: Own::new(own, ["127.0.0.1:9090".parse().unwrap()]), ..rules() }
}

/// Names that the corpus takes for ordinary ones.
const PUBLIC: &str = "93.184.216.34";

/// What a case comes to here.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Refused before anything was dialled, and why.
    Refused(String),
    /// Dialled at these addresses only.
    Dialled,
}

/// Parse, resolve, vet, dial; twice or as often as the script goes on, so that rebinding has its chance.
async fn run(
    authority: Result<Authority, outbound::Malformed>,
    resolver: &Scripted,
    rules: &Rules,
    rounds: usize,
) -> Outcome {
    let authority = match authority {
        Ok(authority) => authority,
        Err(reason) => return Outcome::Refused(format!("malformed: {reason}")),
    };
    let watched = Watched::default();
    let dialer = Dialer::with_connector(watched.clone(), DialSettings::default());
    for _ in 0..rounds {
        let before = watched.count();
        match resolve_and_vet(&authority, &[], rules, resolver).await {
            Err(why) => {
                assert_eq!(watched.count(), before, "a refusal dialled");
                return Outcome::Refused(why.to_string());
            }
            Ok(vetted) => {
                let addresses: Vec<IpAddr> = vetted.addresses().iter().map(|address| address.socket().ip()).collect();
                assert!(addresses.iter().all(is_outside), "{authority} was vetted as {addresses:?}");
                *watched.allowed.lock().unwrap() = addresses;
                dialer.dial(&vetted, &Exit::Unbound).await.unwrap();
                assert_eq!(watched.count(), before + 1);
            }
        }
    }
    Outcome::Dialled
}

/// A second opinion, from the standard library.
fn is_outside(address: &IpAddr) -> bool {
    let node = [LISTEN_IP, EGRESS_IP, PEER_IP].contains(&address.to_string().as_str());
    let inside = match address {
        IpAddr::V4(v4) => {
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_multicast()
        }
        // NAT64 where it was opted into; else global unicast.
        IpAddr::V6(v6) => !matches!(v6.segments()[0], 0x2000..=0x3fff | 0x64),
    };
    !node && !inside
}

/// The answers of a case: successive ones, of which each is a whole answer.
fn script(case: &Value, host: &str) -> (Scripted, usize) {
    let records = |answer: &Value| -> Result<Vec<IpAddr>, ResolveError> {
        let records = answer.as_array().unwrap();
        // A chain of aliases without an address at its end has none.
        Ok(records.iter().filter_map(|record| record["data"].as_str()?.parse().ok()).collect())
    };
    let outcomes = match &case["dns"] {
        Value::Null => vec![Ok(vec![PUBLIC.parse().unwrap()])],
        Value::Object(object) if object.contains_key("rcode") => vec![Err(ResolveError::NotFound { ttl: None })],
        Value::Object(object) => object["sequence"].as_array().unwrap().iter().map(records).collect(),
        answer @ (Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => vec![records(answer)],
    };
    let rounds = outcomes.len();
    (Scripted::default().with(host, outcomes), rounds)
}

/// The authority that a target asks for, as the way in that the case describes would read it.
fn authority(target: &str) -> Result<Authority, outbound::Malformed> {
    let target = target
        .replace("PROXY_LISTEN_PORT", "3128")
        .replace("PROXY_LISTEN_IP", LISTEN_IP)
        .replace("PROXY_PUBLIC_EGRESS_IP", EGRESS_IP)
        .replace("OTHER_NODE_EGRESS_IP", PEER_IP)
        .replace("ADMIN_PORT", "9090");
    match target.strip_prefix("CONNECT ") {
        Some(authority) => Authority::with_port(authority),
        None => Target::parse(&target).map(|target| target.authority),
    }
}

/// The layer that decides a case that this one lets through, or that is no destination at all.
fn decided_later(id: &str, kind: &str, expected: &str) -> Option<&'static str> {
    match (kind, id) {
        ("message", _) => Some("the request's framing and headers: the listener and the proxy's head"),
        ("redirect", _) => Some("redirects: each hop comes here on its own, the rules between hops do not"),
        ("connect-authority", "port-22" | "port-6379") => Some("policy: ports"),
        (
            "connect-authority",
            "connect-deny-dot" | "connect-deny-uc" | "connect-glob-apex" | "connect-glob-suffix2",
        ) => Some("policy: names (this layer gives it one canonical name to decide on)"),
        _ => {
            assert!(expected == "allow" || expected == "deny");
            None
        }
    }
}

#[tokio::test]
async fn every_shared_case_that_this_layer_decides() {
    let Some(text) = skip::shared_cases("ssrf.json") else { return };
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let (mut faults, mut later, mut decided) = (Vec::new(), BTreeMap::<&str, Vec<&str>>::new(), 0);
    for case in &cases {
        let field = |name: &str| case[name].as_str().unwrap();
        let (id, kind, target, expected) = (field("id"), field("kind"), field("target"), field("expected"));
        if let Some(layer) = decided_later(id, kind, expected) {
            later.entry(layer).or_default().push(id);
            for text in authorities_within(case) {
                // Whatever the later layer says, an internal authority is stopped here.
                let asked = authority(&text);
                let host = asked.as_ref().ok().and_then(|asked| Some(asked.name()?.to_string())).unwrap_or_default();
                let resolver = Scripted::default().with(&host, vec![Ok(vec![PUBLIC.parse().unwrap()])]);
                run(asked, &resolver, &node(), 1).await;
            }
            continue;
        }
        decided += 1;
        let asked = authority(target);
        let host = asked.as_ref().ok().and_then(|asked| Some(asked.name()?.to_string())).unwrap_or_default();
        let (resolver, rounds) = script(case, &host);
        let mut rules = node();
        if case["policy"].as_str().is_some_and(|policy| policy.contains("nat64_prefix")) {
            rules.nat64 = vec!["64:ff9b::/96".parse().unwrap()];
        }
        let outcome = run(asked, &resolver, &rules, rounds).await;
        let is_right = match expected {
            "allow" => outcome == Outcome::Dialled,
            _ => matches!(outcome, Outcome::Refused(_)),
        };
        if !is_right {
            faults.push(format!("{id}: {target:?} should be {expected}, and was {outcome:?}"));
        }
    }
    println!("{decided} of {} cases decided here", cases.len());
    for (layer, ids) in &later {
        println!("{} later, by {layer}: {}", ids.len(), ids.join(" "));
    }
    assert!(faults.is_empty(), "{} cases:\n{}", faults.len(), faults.join("\n"));
    assert!(decided > 200, "the corpus is not what it was");
}

/// Everything in a case that could be taken for a destination.
fn authorities_within(case: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let chain = case["chain"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for text in chain.chain(case["target"].as_str()) {
        found.extend(
            text.split([' ', '|', '\r', '\n', '=', '"']).filter(|word| word.contains("://")).map(str::to_owned),
        );
        if text.starts_with("CONNECT ") {
            found.extend(text.split(' ').nth(1).map(|authority| format!("CONNECT {authority}")));
        }
    }
    found
}

/// The hops of the redirect cases that lead inside, each on its own.
#[tokio::test]
async fn hops_that_lead_inside_are_refused() {
    for hop in [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/",
        "http://localhost/",
        "ftp://allowed.example.com/",
        "http://x:y@allowed.example.com/",
        "http://PROXY_LISTEN_IP:PROXY_LISTEN_PORT/",
        "",
        "http://127.0.0.1/",
    ] {
        let resolver = Scripted::default().with("allowed.example.com", vec![Ok(vec![PUBLIC.parse().unwrap()])]);
        assert!(matches!(run(authority(hop), &resolver, &node(), 1).await, Outcome::Refused(_)), "{hop}");
    }
}

#[tokio::test]
async fn internal_names_and_malformed_ones_are_not_resolved() {
    for target in ["http://localhost/", "http://metadata.google.internal/", "http://127.1/", "http://intranet/"] {
        let resolver = Scripted::default();
        run(authority(target), &resolver, &node(), 1).await;
        assert_eq!(*resolver.asked.lock().unwrap(), Vec::<String>::new(), "{target}");
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    let known = [
        "93.184.216.34",
        "8.8.8.8",
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        EGRESS_IP,
        "2606:4700::1111",
        "::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "fd00:ec2::254",
        "2606:4700::5efe:7f00:1",
        "2002:a00:1::",
        "fe80::1",
    ];
    let known = known.map(|text| text.parse::<IpAddr>().unwrap());
    prop_oneof![
        4 => prop::sample::select(known.to_vec()),
        1 => any::<[u8; 4]>().prop_map(IpAddr::from),
        1 => any::<[u8; 16]>().prop_map(IpAddr::from),
    ]
}

fn any_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "http://",
        "https://",
        "a.example",
        "b.example",
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "8.8.8.8",
        "[2606:4700::1111]",
        ":",
        "80",
        "443",
        "@",
        "/",
        "\\",
        "#",
        "?",
        "%",
        ".",
        "①",
        " ",
        "\t",
        "x",
    ]);
    prop::collection::vec(pieces, 0..7).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// No text, no set of answers and no sequence of them, also over a pool that keeps connections, leads to a dial
    /// outside of what was vetted; and nothing vetted is inside.
    #[test]
    fn nothing_leads_outside_of_the_vetted_set(
        text in any_text(),
        answers in prop::collection::vec(prop::collection::vec(any_address(), 0..4), 1..5),
        grown in any_address(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for asked in [authority(&text), Authority::with_port(&text), Authority::with_port("a.example:443")] {
                let Ok(asked) = asked else { continue };
                let host = asked.name().map(ToString::to_string).unwrap_or_default();
                let resolver = Scripted::default().with(&host, answers.iter().cloned().map(Ok).collect());
                let rules = node();
                let watched = Watched::default();
                let dialer = Dialer::with_connector(watched.clone(), DialSettings::default());
                let mut pool = Vec::new();
                for answer in &answers {
                    let Ok(vetted) = resolve_and_vet(&asked, &[], &rules, &resolver).await else { continue };
                    let allowed: Vec<_> = vetted.addresses().iter().map(|address| address.socket().ip()).collect();
                    assert!(allowed.iter().all(is_outside), "{asked}: {allowed:?}");
                    if asked.name().is_some() {
                        assert!(allowed.iter().all(|address| answer.contains(address)));
                    }
                    *watched.allowed.lock().unwrap() = allowed;
                    pool.push(dialer.dial(&vetted, &Exit::Unbound).await.unwrap().address);
                }
                // The appliance grows an address: no connection to it is used any longer, and the others are.
                let later = Rules { own: Own::new([grown], []), ..node() };
                for address in pool {
                    let usable = later.still_vetted(&asked, address, &[]).is_ok();
                    assert_eq!(usable, address.socket().ip() != grown.to_canonical(), "{address} and {grown}");
                }
            }
        });
    }
}

#[tokio::test]
async fn the_script_itself_resolves() {
    let resolver = Scripted::default().with("a.example", vec![Ok(vec![PUBLIC.parse().unwrap()])]);
    let name = outbound::HostName::parse("a.example").unwrap();
    assert_eq!(resolver.resolve(&name).await.unwrap().addresses[0].to_string(), PUBLIC);
}
