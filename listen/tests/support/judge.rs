//! Judges what a listener does with a case: the rules of the shared corpus, which the project's own cases follow too.

use std::net::SocketAddr;
use std::time::Duration;

use super::client::{Client, End, Reply, parse};

/// Long enough for a loaded machine to answer in.
const LIMIT: Duration = Duration::from_secs(8);
/// Silence after which an open connection is taken to stay open.
const QUIET: Duration = Duration::from_millis(700);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `accept`, `reject-400`, `close` or `timeout`.
    pub(crate) outcome: &'static str,
    pub(crate) informational: Vec<u16>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) end: End,
    pub(crate) rest: Vec<u8>,
}

/// Sends pieces with pauses between them and reads what comes back.
pub(crate) fn observe(
    address: SocketAddr,
    pieces: &[(Vec<u8>, Duration)],
    fin: bool,
    to_head: bool,
    quiet: Duration,
) -> Seen {
    let mut client = Client::connect(address);
    for (piece, pause) in pieces {
        client.send(piece);
        if !pause.is_zero() {
            client.read(*pause, *pause);
        }
    }
    if fin {
        client.fin();
    }
    let end = client.read(quiet, LIMIT);
    let (replies, rest) = parse(&client.received, to_head);
    let (informational, replies): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status < 200);
    let outcome = match replies.first() {
        Some(reply) if reply.status < 300 => "accept",
        Some(_) => "reject-400",
        None if end == End::Open => "timeout",
        None => "close",
    };
    let informational = informational.iter().map(|reply| reply.status).collect();
    Seen { outcome, informational, replies, end, rest: rest.to_vec() }
}

pub(crate) fn observe_once(address: SocketAddr, bytes: &[u8]) -> Seen {
    observe(address, &[(bytes.to_vec(), Duration::ZERO)], false, bytes.starts_with(b"HEAD "), QUIET)
}

/// What is wrong with how a case of the shared corpus went; empty if nothing is.
pub(crate) fn faults(case: &serde_json::Value, address: SocketAddr) -> Vec<String> {
    let flag = |name: &str| case[name].as_bool().unwrap_or(false);
    let texts = |name: &str| -> Vec<&str> {
        case[name]
            .as_array()
            .map(|list| list.iter().filter_map(serde_json::Value::as_str).collect())
            .unwrap_or_default()
    };
    let decode = |text: &serde_json::Value| data_encoding::BASE64.decode(text.as_str().unwrap().as_bytes()).unwrap();
    let pieces: Vec<(Vec<u8>, Duration)> = match case["segments"].as_array() {
        Some(segments) => segments
            .iter()
            .map(|one| (decode(&one["b64"]), Duration::from_millis(one["delay_ms_after"].as_u64().unwrap_or(0))))
            .collect(),
        None => vec![(decode(&case["raw_bytes_base64"]), Duration::ZERO)],
    };
    let quiet = if flag("needs_timeout") { Duration::from_secs(4) } else { QUIET };
    let seen = observe(address, &pieces, flag("send_fin"), flag("head"), quiet);

    let mut faults = Vec::new();
    let expected = case["expected"].as_str().unwrap();
    if seen.outcome != expected && !texts("also_allowed").contains(&seen.outcome) {
        faults.push(format!("outcome {} where {expected} is", seen.outcome));
    }
    let first = seen.replies.first().map_or(0, |reply| reply.status);
    let allowed: Vec<u64> =
        case["status_ok"].as_array().unwrap().iter().filter_map(serde_json::Value::as_u64).collect();
    if seen.outcome == "reject-400" && !allowed.contains(&u64::from(first)) {
        faults.push(format!("status {first} where {allowed:?} are"));
    }
    if flag("must_close") && seen.end == End::Open {
        faults.push("left open".into());
    }
    if seen.replies.len() as u64 > case["max_final_responses"].as_u64().unwrap() {
        faults.push(format!("{} answers", seen.replies.len()));
    }
    if let (Some(second), "accept") = (case["second_expected"].as_str(), seen.outcome) {
        let rejected = seen.replies.get(1).is_some_and(|reply| reply.status >= 400);
        if second == "reject-400" && !rejected {
            faults.push("the second message is not refused".into());
        }
    }
    if flag("forbid_1xx") && !seen.informational.is_empty() {
        faults.push("a 1xx answer".into());
    }
    if flag("forbid_101") && seen.informational.contains(&101) {
        faults.push("a 101 answer".into());
    }
    if !seen.rest.is_empty() {
        faults.push(format!("bytes that are no answer: {:?}", String::from_utf8_lossy(&seen.rest)));
    }
    // Not a rule of the corpus but of ours: an answer is never lost to a reset.
    if seen.end == End::Reset {
        faults.push("reset".into());
    }
    faults
}
