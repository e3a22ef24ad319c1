//! What is under way ends with the right to it: within a second, and never as if it were whole.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "this is a test, on real sockets")]

mod rig;

use std::time::{Duration, Instant};

use domain::TenantId;
use rig::{Client, Origin, Rig};
use tidegate_egress::switches::Scope;
use tidegate_egress::{CorrelationId, SendState, Stage};

/// What is said to be within a second, with some time for a machine that is busy.
const SOON: Duration = Duration::from_secs(5);

/// How a right ends; what the record says of it, and how a refusal begins that comes of it.
type Taken = (fn(&Rig, CorrelationId), &'static str, &'static str, u16);

const TAKEN: [Taken; 4] = [
    (|rig, _| rig.revoke(), "caller-unknown", "the caller's proof was taken back", 407),
    (|rig, _| rig.forget_tenants(), "caller-unknown", "the caller's proof was taken back", 407),
    (|rig, _| rig.switch_off(of_acme()), "switched-off", "a kill switch was thrown", 403),
    (|rig, id| assert!(rig.egress().close(id).is_some()), "switched-off", "an operator closed", 403),
];

fn of_acme() -> Scope {
    Scope { tenant: Some(TenantId::parse("acme").unwrap()), ..Scope::default() }
}

/// Whatever is under way: there is one.
fn id_of_it(rig: &Rig) -> CorrelationId {
    let all = rig.egress().parts().calls.list();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].correlation
}

fn ask_for_events(rig: &Rig, origin: &Origin, proof: &str) -> Client {
    let mut client = rig.open();
    client.send(format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{proof}\r\n", origin.name()).as_bytes());
    assert!(client.read_head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.read(14), b"9\r\ndata: 1\n\n\r\n");
    client
}

#[test]
fn a_stream_of_events_ends() {
    for (take, outcome, detail, _) in TAKEN {
        let (origin, rig) = (Origin::events(), Rig::start());
        let mut client = ask_for_events(&rig, &origin, &rig.proof());
        let began = Instant::now();
        take(&rig, id_of_it(&rig));
        assert_eq!(client.read_to_end(), b"", "{detail}: without the last chunk it is not whole");
        let record = rig.record();
        assert!(began.elapsed() < SOON, "{detail}: {:?}", began.elapsed());
        assert_eq!((&*record.outcome, record.status, record.received_bytes), (outcome, Some(200), 9), "{record:?}");
        assert!(record.detail.starts_with(detail), "{record:?}");
        origin.await_end();
        rig.await_calls(0);
    }
}

#[test]
fn whoever_knows_the_end_by_the_connection_s_sees_a_reset() {
    let (origin, rig) = (Origin::events(), Rig::start());
    let mut client = rig.open();
    client.send(format!("GET http://{0}/ HTTP/1.0\r\nHost: {0}\r\n{1}\r\n", origin.name(), rig.proof()).as_bytes());
    assert!(client.read_head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.read(9), b"data: 1\n\n");
    assert_eq!(rig.egress().close(id_of_it(&rig)), Some(Stage::Answer));
    assert!(client.is_reset(), "it looks as if it were whole");
}

#[test]
fn a_caller_that_takes_nothing_does_not_hold_a_call_beyond_its_time() {
    let (origin, rig) = (Origin::endless(), Rig::within(Duration::from_secs(1)));
    let mut client = rig.open();
    client.send(format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{1}\r\n", origin.name(), rig.proof()).as_bytes());
    assert!(client.read_head().starts_with("HTTP/1.1 200 "));
    // Whatever can be on its way is, and then nobody waits for the destination.
    let record = rig.record();
    assert_eq!((&*record.outcome, record.status), ("response-timeout", Some(200)), "{record:?}");
    origin.await_end();
    rig.await_calls(0);
}

#[test]
fn a_request_that_waits_for_its_answer_ends() {
    for (take, outcome, detail, status) in TAKEN {
        let (origin, rig) = (Origin::silent(), Rig::start());
        let mut client = rig.open();
        let head = format!(
            "POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{1}Transfer-Encoding: chunked\r\n\r\n",
            origin.name(),
            rig.proof()
        );
        client.send(format!("{head}5\r\nhello\r\n").as_bytes());
        while !origin.seen().contains("hello") {
            std::thread::yield_now();
        }
        let began = Instant::now();
        take(&rig, id_of_it(&rig));
        let head = client.read_head();
        assert!(began.elapsed() < SOON, "{detail}: {:?}", began.elapsed());
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains("tidegate-send-state: sent-no-response"), "{head}");
        let record = rig.record();
        assert_eq!((&*record.outcome, record.send_state), (outcome, SendState::SentNoResponse), "{record:?}");
        assert_eq!(record.sent_bytes, 5, "what was handed over is known: {record:?}");
        assert!(record.detail.starts_with(detail), "{record:?}");
        origin.await_end();
    }
}

#[test]
fn what_is_still_looked_up_is_never_dialled() {
    for (take, outcome, detail, status) in TAKEN {
        let rig = Rig::start();
        let mut client = rig.open();
        client.send(format!("CONNECT silent.test:443 HTTP/1.1\r\nHost: silent.test\r\n{}\r\n", rig.proof()).as_bytes());
        rig.await_calls(1);
        take(&rig, id_of_it(&rig));
        let head = client.read_head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains("tidegate-send-state: not-sent"), "{head}");
        let record = rig.record();
        assert_eq!((&*record.outcome, record.send_state), (outcome, SendState::NotSent), "{record:?}");
        assert!(record.detail.starts_with(detail), "{record:?}");
    }
}

#[test]
fn a_websocket_ends() {
    for (take, outcome, _, _) in TAKEN {
        let (origin, rig) = (Origin::websocket(), Rig::start());
        let mut client = rig.open();
        let asked = format!(
            "GET http://{0}/ws HTTP/1.1\r\nHost: {0}\r\n{1}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            origin.name(),
            rig.proof()
        );
        client.send(asked.as_bytes());
        assert!(client.read_head().starts_with("HTTP/1.1 101 "));
        client.send(b"frames");
        assert_eq!(client.read(6), b"frames");
        let all = rig.egress().parts().calls.list();
        assert_eq!(all[0].stage(), Stage::Tunnel);
        take(&rig, all[0].correlation);
        assert!(client.is_reset());
        let record = rig.record();
        assert_eq!((&*record.outcome, &*record.detail, record.sent_bytes), (outcome, "revoked", 6), "{record:?}");
    }
}

#[test]
fn nothing_goes_on_for_long_beyond_the_end_of_a_grant() {
    let origin = Origin::events();
    // Grants are for a minute, and half a minute more for what is under way: a second of it is left.
    let rig = Rig::late_by(Duration::from_secs(89));
    let grant = format!("Proxy-Authorization: Bearer {}\r\n", rig.grant(""));
    let mut client = ask_for_events(&rig, &origin, &grant);
    // A token without an end is not bound by that.
    let mut other = ask_for_events(&rig, &origin, &rig.proof());
    assert_eq!(client.read_to_end(), b"");
    let record = rig.record();
    assert_eq!(&*record.outcome, "caller-unknown", "{record:?}");
    assert!(record.detail.starts_with("the caller's proof ended"), "{record:?}");
    rig.await_calls(1);
    assert_eq!(rig.egress().close(id_of_it(&rig)), Some(Stage::Answer));
    assert_eq!(other.read_to_end(), b"");
}

#[test]
fn whose_tenant_may_not_call_has_no_idle_connections_either() {
    for take in [|rig: &Rig| rig.revoke(), |rig: &Rig| rig.switch_off(of_acme())] {
        let (origin, rig) = (Origin::http_echo(), Rig::start());
        let mut client = rig.open();
        client.send(format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{1}\r\n", origin.name(), rig.proof()).as_bytes());
        assert!(client.read_head().starts_with("HTTP/1.1 200 "));
        let idle = || rig.egress().parts().forward.idle_connections();
        assert_eq!(idle(), 1);
        take(&rig);
        let began = Instant::now();
        while idle() > 0 {
            assert!(began.elapsed() < SOON, "it is kept");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
