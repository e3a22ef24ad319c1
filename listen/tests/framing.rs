//! The project's own cases of messages that are framed, spelled or placed wrongly, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]
#![allow(clippy::disallowed_methods, reason = "real sockets take real time")]

mod support;

use std::time::Duration;

use config::Listener;
use support::Running;
use support::client::End;
use support::judge::observe_once;

/// What a case is to get.
enum Expect {
    /// 202 with this body, and the connection stays open.
    Taken(&'static str),
    /// The same, and it is closed.
    TakenLast(&'static str),
    /// One answer with this status, and it is closed.
    Refused(u16),
    /// One answer with this status, and it stays open.
    Declined(u16),
    /// 202 for the first, this status for the second, and it is closed.
    TakenThenRefused(u16),
}
use Expect::{Declined, Refused, Taken, TakenLast, TakenThenRefused};

const CANARY: &str = "GET /canary HTTP/1.1\r\nHost: a.test\r\n\r\n";

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<(&'static str, String, Expect)> {
    let post = |fields: &str, body: &str| format!("POST /hook HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n{body}");
    let chunked = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    let line = |line: &str| format!("{line}\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi");
    let whole = post("Content-Length: 2\r\n", "hi");
    vec![
        ("length", whole.clone(), Taken("hi")),
        ("no body", post("", ""), Taken("")),
        ("empty body", post("Content-Length: 0\r\n", ""), Taken("")),
        ("chunks", chunked("2;x=y\r\nhi\r\n1\r\n!\r\n0\r\n\r\n"), Taken("hi!")),
        ("trailer", chunked("2\r\nhi\r\n0\r\nContent-Length: 9\r\nHost: b\r\n\r\n"), Taken("hi")),
        ("empty line first", format!("\r\n{whole}"), Taken("hi")),
        ("empty line between", format!("{whole}\r\n{whole}"), Taken("hi")),
        ("1.0", whole.replace("HTTP/1.1", "HTTP/1.0"), TakenLast("hi")),
        (
            "1.0 that asks to stay",
            post("Connection: keep-alive\r\nContent-Length: 2\r\n", "hi").replace("/1.1", "/1.0"),
            TakenLast("hi"),
        ),
        ("close", post("Connection: close\r\nContent-Length: 2\r\n", "hi"), TakenLast("hi")),
        ("absolute", line("POST http://A.TEST:80/hook HTTP/1.1"), Taken("hi")),
        (
            "upgrade is ignored",
            post("Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n", "hi"),
            Taken("hi"),
        ),
        (
            "h2c upgrade is ignored",
            post(
                "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 2\r\n",
                "hi",
            ),
            Taken("hi"),
        ),
        ("continue with the body sent", post("Expect: 100-continue\r\nContent-Length: 2\r\n", "hi"), Taken("hi")),
        ("other method", line("PATCH /hook HTTP/1.1"), Declined(405)),
        ("method in lower case", line("post /hook HTTP/1.1"), Declined(405)),
        ("trace", line("TRACE /hook HTTP/1.1"), Declined(405)),
        ("unknown path", line("POST //a.test/hook HTTP/1.1"), Declined(404)),
        (
            "body that nobody reads is no request",
            format!("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{CANARY}", CANARY.len()),
            Declined(404),
        ),
        ("too large, said so", post("Content-Length: 1048577\r\n", "hi"), Refused(413)),
        (
            "too large for any number",
            post("Content-Length: 18446744073709551618\r\n", &format!("hi{CANARY}")),
            Refused(413),
        ),
        ("too large a chunk", chunked("100001\r\nhi"), Refused(413)),
        (
            "too large in chunks",
            chunked(&format!("{}0\r\n\r\n", format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(17))),
            Refused(413),
        ),
        ("two lengths", post("Content-Length: 2\r\nContent-Length: 2\r\n", "hi"), Refused(400)),
        ("length and coding", post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), Refused(400)),
        (
            "coding and length, canary",
            post(
                &format!("Transfer-Encoding: chunked\r\nContent-Length: {}\r\n", CANARY.len() + 5),
                &format!("0\r\n\r\n{CANARY}"),
            ),
            Refused(400),
        ),
        ("folded coding", post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), Refused(400)),
        ("other coding", post("Transfer-Encoding: deflate\r\n", "hi"), Refused(501)),
        ("coding in 1.0", chunked("0\r\n\r\n").replace("/1.1", "/1.0"), Refused(400)),
        ("look-alike", post("Transfer_Encoding: chunked\r\n", "0\r\n\r\n"), Refused(400)),
        ("empty size", chunked("2\r\nhi\r\n\r\n"), Refused(400)),
        ("empty size, canary", chunked(&format!("\r\n\r\n{CANARY}")), Refused(400)),
        ("no end, canary", chunked(&format!("0\r\nXX{CANARY}")), Refused(400)),
        ("size in another base", chunked("0x2\r\nhi\r\n0\r\n\r\n"), Refused(400)),
        ("chunk longer than it says", chunked("2\r\nhi!\r\n0\r\n\r\n"), Refused(400)),
        ("bare LF", chunked("2\nhi\n0\n\n"), Refused(400)),
        ("trailer without end", chunked(&format!("0\r\nX: {}", "x".repeat(40_000))), Refused(431)),
        ("no host", "POST /hook HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi".into(), Refused(400)),
        ("two hosts", post("Host: a.test\r\nContent-Length: 2\r\n", "hi"), Refused(400)),
        ("other host in the target", line("POST http://b.test/hook HTTP/1.1"), Refused(400)),
        ("space before the colon", post(&format!("Content-Length : {}\r\n", CANARY.len()), CANARY), Refused(400)),
        ("NUL in a value", post("X: a\0b\r\n", ""), Refused(400)),
        ("bare CR", post("X: a\rb\r\n", ""), Refused(400)),
        ("CR alone", "POST /hook HTTP/1.1\rHost: a\r\r".into(), Refused(400)),
        ("many fields", post(&"X: y\r\n".repeat(200), ""), Refused(431)),
        ("long field", post(&format!("X: {}\r\n", "y".repeat(40_000)), ""), Refused(431)),
        ("long target", line(&format!("POST /{} HTTP/1.1", "a".repeat(9_000))), Refused(414)),
        ("endless line", "A".repeat(9_000), Refused(414)),
        ("dot segments", line("POST /hook/../hook HTTP/1.1"), Refused(400)),
        ("escaped dot segments", line("POST /x/%2E%2e/hook HTTP/1.1"), Refused(400)),
        ("fragment", line("POST /hook#x HTTP/1.1"), Refused(400)),
        ("not ASCII", line("POST /hö\u{f6}k HTTP/1.1"), Refused(400)),
        ("connect", line("CONNECT a.test:443 HTTP/1.1"), Refused(400)),
        ("asterisk", line("OPTIONS * HTTP/1.1"), Refused(400)),
        ("version 2", line("POST /hook HTTP/2.0"), Refused(505)),
        ("version 1.2", line("POST /hook HTTP/1.2"), Refused(505)),
        ("H2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), Refused(505)),
        ("version 0.9", "POST /hook\r\n".into(), Refused(400)),
        ("TLS", "\u{16}\u{3}\u{1}".into(), Refused(400)),
        ("SMTP", "EHLO a.test\r\n".into(), Refused(400)),
        ("other expectation", post("Expect: 102-processing\r\nContent-Length: 2\r\n", "hi"), Refused(417)),
        ("refused HEAD", "HEAD /hook HTTP/1.1\r\n\r\n".into(), Refused(400)),
        ("garbage behind", format!("{whole}GARBAGE\r\n\r\n"), TakenThenRefused(400)),
        ("length that is short", format!("{whole}!"), Taken("hi")),
        (
            "canary behind an empty body",
            format!("{}\0{CANARY}", post("Content-Length: 0\r\n", "")),
            TakenThenRefused(400),
        ),
    ]
}

#[test]
fn every_own_case_gets_what_it_should() {
    let server = Running::start(Listener { linger_timeout: Duration::from_millis(300), ..Listener::default() });
    let server = &server;
    let cases = cases();
    std::thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(8)) {
            scope.spawn(move || part.iter().for_each(|(name, bytes, expect)| judge(server, name, bytes, expect)));
        }
    });
    let targets = server.hook.targets.lock().unwrap();
    assert!(!targets.iter().any(|target| target.contains("canary")), "a canary was run");
}

fn judge(server: &Running, name: &str, bytes: &str, expect: &Expect) {
    let seen = observe_once(server.address, bytes.as_bytes());
    let statuses: Vec<u16> = seen.replies.iter().map(|reply| reply.status).collect();
    let body = seen.replies.first().map(|reply| String::from_utf8_lossy(&reply.body).into_owned());
    let told = seen.replies.last().and_then(|reply| reply.header("connection").map(str::to_owned));
    let (wanted, wanted_body, end) = match *expect {
        Taken(body) => (vec![202], Some(body), End::Open),
        TakenLast(body) => (vec![202], Some(body), End::Closed),
        Refused(status) => (vec![status], None, End::Closed),
        Declined(status) => (vec![status], None, End::Open),
        TakenThenRefused(status) => (vec![202, status], None, End::Closed),
    };
    // Two messages in one case get two answers; the case says what the first one is.
    let wanted = if name == "empty line between" { [wanted.clone(), wanted].concat() } else { wanted };
    assert_eq!((statuses, seen.end), (wanted, end), "{name}");
    assert!(wanted_body.is_none_or(|wanted| body.as_deref() == Some(wanted)), "{name}: {body:?}");
    assert_eq!(told.as_deref(), Some(if end == End::Closed { "close" } else { "keep-alive" }), "{name}");
    assert!(seen.informational.is_empty() && seen.rest.is_empty(), "{name}: {seen:?}");
}
