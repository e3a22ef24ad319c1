//! Clients that take their time, each until the deadline that is meant for it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]
#![allow(clippy::disallowed_methods, reason = "real sockets take real time")]

mod support;

use std::time::{Duration, Instant};

use config::Listener;
use support::Running;
use support::client::{Client, End, parse};
use tidegate_listen::Phase;

const LIMIT: Duration = Duration::from_secs(10);

fn settings() -> Listener {
    Listener {
        idle_timeout: Duration::from_millis(400),
        header_timeout: Duration::from_millis(600),
        body_timeout: Duration::from_millis(1500),
        body_rate_min: 1000,
        body_rate_grace: Duration::from_millis(500),
        write_timeout: Duration::from_millis(500),
        linger_timeout: Duration::from_millis(300),
        ..Listener::default()
    }
}

/// Sends `first`, then `drip` again and again, and says when the connection ended and what was answered.
fn drip(server: &Running, first: &[u8], drip: &[u8], pause: Duration) -> (Duration, Vec<u16>, End) {
    let mut client = Client::connect(server.address);
    let began = Instant::now();
    client.send(first);
    loop {
        let end = client.read(pause, pause);
        if end != End::Open || began.elapsed() > LIMIT {
            let statuses = parse(&client.received, false).0.iter().map(|reply| reply.status).collect();
            return (began.elapsed(), statuses, end);
        }
        client.send(drip);
    }
}

fn within(taken: Duration, least_ms: u64, most_ms: u64) {
    assert!(taken >= Duration::from_millis(least_ms) && taken < Duration::from_millis(most_ms), "{taken:?}");
}

#[test]
fn a_connection_that_says_nothing_is_closed_without_a_word() {
    let server = Running::start(settings());
    let (taken, statuses, end) = drip(&server, b"", b"", Duration::from_secs(5));
    within(taken, 350, 2500);
    assert_eq!((statuses, end), (vec![], End::Closed));
    assert_eq!(*server.counts.timeouts.lock().unwrap(), [Phase::Idle]);
}

#[test]
fn a_kept_connection_that_says_nothing_more_is_closed() {
    let server = Running::start(settings());
    let first = b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let (taken, statuses, end) = drip(&server, first, b"", Duration::from_secs(5));
    within(taken, 350, 2500);
    assert_eq!((statuses, end), (vec![202], End::Closed));
}

#[test]
fn an_empty_line_behind_a_body_begins_no_request() {
    let server = Running::start(settings());
    let first = b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi\r\n";
    let (taken, statuses, end) = drip(&server, first, b"", Duration::from_secs(5));
    within(taken, 350, 2500);
    assert_eq!((statuses, end), (vec![202], End::Closed));
    assert_eq!(*server.counts.timeouts.lock().unwrap(), [Phase::Idle]);
}

#[test]
fn a_dripped_head_is_refused_on_the_total() {
    let server = Running::start(settings());
    let (taken, statuses, _) = drip(&server, b"POST /hook HTTP/1.1\r\nX: ", b"y", Duration::from_millis(50));
    within(taken, 550, 3000);
    assert_eq!(statuses, [408]);
    assert_eq!(*server.counts.timeouts.lock().unwrap(), [Phase::Header]);
}

#[test]
fn the_first_byte_of_a_head_may_come_late() {
    let server = Running::start(settings());
    let mut client = Client::connect(server.address);
    client.read(Duration::from_millis(300), Duration::from_millis(300));
    client.send(b"P");
    client.read(Duration::from_millis(400), Duration::from_millis(400));
    client.send(b"OST /hook HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.replies(1, LIMIT)[0].status, 202, "0.7 s in all, and in time for both deadlines");
}

#[test]
fn a_stalled_body_is_refused_when_its_grace_is_over() {
    let server = Running::start(settings());
    let first = b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhi";
    let (taken, statuses, end) = drip(&server, first, b"", Duration::from_secs(5));
    within(taken, 450, 2500);
    assert_eq!((statuses, end), (vec![408], End::Closed));
    assert_eq!(*server.counts.timeouts.lock().unwrap(), [Phase::Body]);
}

#[test]
fn a_body_below_the_rate_is_refused_before_the_total() {
    let server = Running::start(settings());
    for first in [
        &b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n"[..],
        b"POST /hook HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let (taken, statuses, _) = drip(&server, first, b"1\r\nx\r\n", Duration::from_millis(40));
        within(taken, 450, 1400);
        assert_eq!(statuses, [408]);
    }
}

#[test]
fn a_body_above_the_rate_is_refused_on_the_total() {
    let server = Running::start(settings());
    let first = b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n";
    let (taken, statuses, _) = drip(&server, first, &[b'x'; 200], Duration::from_millis(50));
    within(taken, 1400, 4000);
    assert_eq!(statuses, [408]);
    assert!(server.hook.bodies.lock().unwrap().is_empty());
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    let server = Running::start(settings());
    let mut client = Client::connect(server.address);
    client.send(b"POST /big HTTP/1.1\r\nHost: a\r\n\r\n");
    let began = Instant::now();
    while server.counts.timeouts.lock().unwrap().is_empty() && began.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    within(began.elapsed(), 450, 4000);
    assert_eq!(*server.counts.timeouts.lock().unwrap(), [Phase::Write]);
}

#[test]
fn a_client_that_never_stops_sending_is_let_go_after_its_answer() {
    let server = Running::start(settings());
    let first = b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n";
    let (taken, statuses, _) = drip(&server, first, b"xxxxxxxxxxxx", Duration::from_millis(20));
    assert_eq!(statuses, [400]);
    // The answer comes at once; the client sees the end when it ends itself or the linger does.
    within(taken, 0, 3000);
    let began = Instant::now();
    while server.counts.open() > 0 && began.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    assert_eq!(server.counts.open(), 0);
}
