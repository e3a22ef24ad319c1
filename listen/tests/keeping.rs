//! Connections that serve several requests, and how they end.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]
#![allow(clippy::disallowed_methods, reason = "real sockets take real time")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use config::Listener;
use support::client::{Client, End, parse};
use support::{Hook, Running};
use tidegate_listen::Service;

const LIMIT: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(300);

fn post(path: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Running::start(Listener::default());
    let mut client = Client::connect(server.address);
    let bodies: Vec<String> = (0..200).map(|at| format!("body {at}")).collect();
    let all: Vec<u8> = bodies.iter().flat_map(|body| post("/hook", body)).collect();
    client.send(&all);
    let replies = client.replies(200, LIMIT);
    let answered: Vec<_> = replies.iter().map(|reply| String::from_utf8_lossy(&reply.body).into_owned()).collect();
    assert_eq!(answered, bodies);
    assert!(replies.iter().all(|reply| reply.header("connection") == Some("keep-alive")));
}

#[test]
fn an_answer_has_a_date_and_no_name() {
    let server = Running::start(Listener::default());
    let mut client = Client::connect(server.address);
    client.send(&post("/hook", "x")).send(b"GET / HTTP/9.9\r\n\r\n");
    let replies = client.replies(2, LIMIT);
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [202, 505]);
    for reply in &replies {
        assert!(reply.header("date").is_some_and(|date| date.ends_with(" GMT")) && reply.header("server").is_none());
    }
}

#[test]
fn head_is_answered_without_a_body_and_with_its_length() {
    let server = Running::start(Listener::default());
    let mut client = Client::connect(server.address);
    client
        .send(b"HEAD /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcHEAD /nope HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read(MOMENT, LIMIT);
    let (replies, rest) = parse(&client.received, true);
    let told: Vec<_> = replies.iter().map(|reply| (reply.status, reply.header("content-length").unwrap())).collect();
    assert_eq!((told, rest), (vec![(202, "3"), (404, "16")], &b""[..]));
}

#[test]
fn continue_is_sent_when_the_body_is_asked_for() {
    let server = Running::start(Listener::default());
    let ask = |path: &str, version: &str| {
        format!("POST {path} HTTP/{version}\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    };
    let mut client = Client::connect(server.address);
    client.send(ask("/hook", "1.1").as_bytes());
    eventually("100 comes", || {
        client.read(Duration::from_millis(5), Duration::from_millis(5));
        client.received.ends_with(b"\r\n\r\n")
    });
    assert_eq!(client.received, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"hi");
    assert_eq!(client.replies(1, LIMIT).last().unwrap().body, b"hi");

    let mut client = Client::connect(server.address);
    client.send(ask("/nope", "1.1").as_bytes());
    assert_eq!(client.read(MOMENT, LIMIT), End::Closed, "the body was never asked for, and may or may not come");
    let statuses: Vec<_> = parse(&client.received, false).0.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [404]);

    let mut client = Client::connect(server.address);
    client.send(ask("/hook", "1.0").as_bytes());
    assert_eq!(client.read(MOMENT, MOMENT), End::Open);
    assert!(client.received.is_empty(), "HTTP/1.0 knows no 100");
}

#[test]
fn an_unread_body_ends_the_connection_unless_it_has_come() {
    let server = Running::start(Listener::default());
    let mut client = Client::connect(server.address);
    client.send(&[post("/unread", "all of it is here"), post("/hook", "next")].concat());
    let replies = client.replies(2, LIMIT);
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [202, 202]);
    assert_eq!(replies[1].body, b"next");
    client.send(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart");
    assert_eq!(client.read(MOMENT, LIMIT), End::Closed);
    assert_eq!(parse(&client.received, false).0[2].header("connection"), Some("close"));
}

#[test]
fn an_early_answer_reaches_a_client_that_goes_on_sending() {
    let server = Running::start(Listener::default());
    let mut client = Client::connect(server.address);
    client.send(b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n");
    for _ in 0..40 {
        client.send(&[b'x'; 10_000]);
    }
    client.fin();
    assert_eq!(client.read(LIMIT, LIMIT), End::Closed, "no reset");
    assert_eq!(parse(&client.received, false).0[0].status, 413);
}

#[test]
fn a_connection_serves_so_many_requests_and_says_when_it_is_the_last() {
    let server = Running::start(Listener { requests_per_connection_max: 3, ..Listener::default() });
    let mut client = Client::connect(server.address);
    client.send(&post("/hook", "x").repeat(5));
    assert_eq!(client.read(LIMIT, LIMIT), End::Closed);
    let (replies, _) = parse(&client.received, false);
    let told: Vec<_> = replies.iter().map(|reply| reply.header("connection").unwrap()).collect();
    assert_eq!(told, ["keep-alive", "keep-alive", "close"]);
}

#[test]
fn connections_beyond_the_cap_are_told_so_and_take_no_room() {
    let server = Running::start(Listener { connections_max: 2, ..Listener::default() });
    let mut kept: Vec<Client> = (0..2).map(|_| Client::connect(server.address)).collect();
    for client in &mut kept {
        client.send(&post("/hook", "x"));
        assert_eq!(client.replies(1, LIMIT)[0].status, 202);
    }
    let mut extra = Client::connect(server.address);
    extra.send(&post("/hook", "x"));
    assert_eq!(extra.read(LIMIT, LIMIT), End::Closed);
    let reply = parse(&extra.received, false).0.remove(0);
    assert_eq!((reply.status, reply.header("connection")), (503, Some("close")));
    assert_eq!((server.counts.capped.load(Ordering::SeqCst), server.counts.open()), (1, 2));
    drop(kept.pop());
    eventually("there is room again", || {
        let mut client = Client::connect(server.address);
        client.send(&post("/hook", "x"));
        client.replies(1, LIMIT)[0].status == 202
    });
}

#[test]
fn a_panic_costs_one_request() {
    let server = Running::start(Listener::default());
    let mut client = Client::connect(server.address);
    client.send(&post("/panic", "x"));
    assert_eq!(client.read(LIMIT, LIMIT), End::Closed);
    assert_eq!(parse(&client.received, false).0[0].status, 500);
    assert_eq!(server.counts.panicked.load(Ordering::SeqCst), 1);
    let mut client = Client::connect(server.address);
    assert_eq!(client.send(&post("/hook", "x")).replies(1, LIMIT)[0].status, 202);
}

#[test]
fn absolute_targets_are_understood() {
    let server = Running::start(Listener::default());
    let mut client = Client::connect(server.address);
    client.send(b"POST http://A.test/host?x=1 HTTP/1.1\r\nHost: a.TEST:80\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.replies(1, LIMIT)[0].body, b"a.test Some(80) /host Some(\"x=1\")");
    assert_eq!(*server.hook.targets.lock().unwrap(), ["http://A.test/host?x=1"]);
}

#[test]
fn a_drain_of_idle_connections_is_short() {
    let server = Running::start(Listener::default());
    let mut kept = Client::connect(server.address);
    kept.send(&post("/hook", "x"));
    assert_eq!(kept.replies(1, LIMIT)[0].status, 202);
    let _silent = Client::connect(server.address);
    eventually("both are open", || server.counts.open() == 2);
    let began = Instant::now();
    server.handle.drain();
    let drained = server.join();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(drained.cut, 0);
    assert_eq!(kept.read(LIMIT, LIMIT), End::Closed);
}

#[test]
fn a_drain_waits_for_what_is_in_flight_and_tells_clients_to_go() {
    let hook = Hook { slow: Duration::from_millis(1500), ..Hook::default() };
    let server = Running::start_with(Listener::default(), hook);
    let address = server.address;
    let mut slow = Client::connect(address);
    slow.send(&post("/slow", "x"));
    let mut half = Client::connect(address);
    half.send(b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nh");
    let mut idle = Client::connect(address);
    idle.send(&post("/hook", "x"));
    assert_eq!(idle.replies(1, LIMIT)[0].header("connection"), Some("keep-alive"));
    eventually("all have arrived", || server.hook.targets.lock().unwrap().len() == 3);

    server.handle.drain();
    // Another thread begins it: what overtakes that is answered as before, and is no longer so in a moment.
    let told = (2..1_000).find(|count| {
        idle.send(&post("/hook", "on its way"));
        idle.replies(*count, LIMIT)[count - 1].header("connection") == Some("close")
    });
    assert!(told.is_some(), "nobody is told to go");
    half.send(b"i");
    let reply = half.replies(1, LIMIT).remove(0);
    assert_eq!((reply.status, &reply.body[..], reply.header("connection")), (202, &b"hi"[..], Some("close")));
    let mut refused = false;
    eventually("nobody listens", || {
        refused |= std::net::TcpStream::connect(address).is_err();
        refused
    });
    assert_eq!(server.join().cut, 0);
    let reply = slow.replies(1, LIMIT).remove(0);
    assert_eq!((reply.status, reply.header("connection")), (202, Some("close")));
}

#[test]
fn a_drain_has_an_end_and_counts_what_it_cuts() {
    let hook = Hook { slow: Duration::from_secs(30), ..Hook::default() };
    let settings = Listener { drain_timeout: Duration::from_millis(600), ..Listener::default() };
    let server = Running::start_with(settings, hook);
    let mut slow = Client::connect(server.address);
    slow.send(&post("/slow", "x"));
    eventually("it has arrived", || server.hook.targets.lock().unwrap().len() == 1);
    let began = Instant::now();
    server.handle.drain();
    assert_eq!(server.join().cut, 1);
    let taken = began.elapsed();
    assert!(taken >= Duration::from_millis(550) && taken < Duration::from_secs(5), "{taken:?}");
}

#[test]
fn every_service_has_its_own_time_to_drain() {
    let mut server = tidegate_listen::Server::new();
    let mut serve = |slow: Duration, drain_timeout: Duration| {
        let hook = Arc::new(Hook { slow, ..Hook::default() });
        let settings = Listener { drain_timeout, ..Listener::default() };
        let bound = tidegate_listen::Bound::new(&[([127, 0, 0, 1], 0).into()]).unwrap().listen().unwrap();
        let service = Service::new("test", settings, bound, Arc::clone(&hook) as _, Arc::new(tidegate_listen::Silent));
        let mut client = Client::connect(service.addresses()[0]);
        server.add(service.with_threads(2));
        client.send(&post("/slow", "x"));
        (hook, client)
    };
    let (short, mut cut) = serve(Duration::from_secs(30), Duration::from_millis(500));
    let (long, mut kept) = serve(Duration::from_millis(2_500), Duration::from_secs(20));
    let handle = server.handle();
    let running = std::thread::spawn(move || server.run());
    let arrived = |hook: &Hook| hook.targets.lock().unwrap().len() == 1;
    eventually("both have arrived", || arrived(&short) && arrived(&long));
    let began = Instant::now();
    handle.drain();
    assert_eq!(cut.read(LIMIT, LIMIT), End::Closed);
    let taken = began.elapsed();
    assert!(taken >= Duration::from_millis(450) && taken < Duration::from_secs(2), "{taken:?}");
    assert_eq!(kept.replies(1, LIMIT)[0].status, 202, "it had its time");
    assert_eq!(running.join().unwrap().cut, 1);
    assert!(began.elapsed() < Duration::from_secs(10), "the last one ends it");
}

#[test]
fn an_address_that_is_taken_is_an_error_at_once() {
    let server = Running::start(Listener::default());
    let began = Instant::now();
    let again = tidegate_listen::Bound::new(&[server.address]);
    let text = again.unwrap_err().to_string();
    assert!(text.contains(&server.address.to_string()), "{text}");
    assert!(began.elapsed() < Duration::from_secs(5));
}
