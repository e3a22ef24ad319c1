//! Who may be on a connection, and how long it is kept.

use std::time::Duration;

use domain::{ConnectionId, TenantId};
use outbound::Alpn;

use super::frames::{GOAWAY, HEADERS, Raw};
use super::{NAMES, forward_tls, secure, secure_to};
use crate::forward::testing::*;
use crate::forward::{ForwardSettings, Hop, Waits};

/// One call, answered by the next connection, whose other end is given back.
async fn called(forward: &std::sync::Arc<crate::forward::Forward<Memory>>, origin: &mut Origin, hop: Hop) -> Raw {
    let sending = send(forward, hop);
    let mut raw = Raw::accept(origin, &[]).await;
    let asked = raw.until(HEADERS).await;
    raw.ok(asked.stream).await;
    assert!(!sending.await.unwrap().unwrap().went.pooled);
    raw
}

#[tokio::test]
async fn a_connection_is_used_again_with_its_next_stream() {
    let (forward, mut origin, tls) = forward_tls();
    let mut raw = called(&forward, &mut origin, secure(&tls)).await;
    for stream in [3, 5, 7] {
        let sending = send(&forward, secure(&tls));
        assert_eq!(raw.until(HEADERS).await.stream, stream);
        raw.ok(stream).await;
        let went = sending.await.unwrap().unwrap().went;
        assert!(went.pooled && went.connect.is_zero() && went.tls.is_zero());
    }
    assert_eq!((origin.dialled(), forward.idle_connections()), (1, 1));
}

/// The certificate covers both names, and the address is the same: browsers would put them on one connection.
#[tokio::test]
async fn nobody_else_gets_it() {
    let (forward, mut origin, tls) = forward_tls();
    let _first = called(&forward, &mut origin, secure(&tls)).await;
    let mut other_tenant = secure(&tls);
    other_tenant.tenant = TenantId::parse("other").unwrap();
    let mut with_credential = secure(&tls);
    with_credential.connection = Some(ConnectionId::parse("conn_1").unwrap());
    let mut elsewhere = secure(&tls);
    elsewhere.passage.vetted =
        rules(&[]).vet(&elsewhere.asked.authority, &["93.184.216.35".parse().unwrap()], &[]).unwrap();
    let mut other_exit = secure(&tls);
    other_exit.passage.exit = outbound::Exit::From(outbound::ExitAddress {
        v4: Some("192.0.2.7".parse().unwrap()),
        v6: None,
        freebind: false,
    });
    let other_name = secure_to(&tls, "www.example.com:443");
    let other_port = secure_to(&tls, "api.example.com:8443");
    let others = [other_tenant, with_credential, elsewhere, other_exit, other_name, other_port];
    let mut kept = Vec::new();
    for other in others {
        kept.push(called(&forward, &mut origin, other).await);
    }
    assert_eq!((origin.dialled(), forward.idle_connections()), (7, 7));
    // Trust that merely looks alike is another one.
    let (alike, acceptor) = crate::forward::testing::tls(NAMES, &[Alpn::Http2]);
    origin.tls = Some(acceptor);
    kept.push(called(&forward, &mut origin, secure(&alike)).await);
}

/// The rules have changed since it was dialled: its address is the appliance's own now.
#[tokio::test]
async fn an_address_that_would_not_be_vetted_now_takes_no_new_call() {
    let (forward, mut origin, tls) = forward_tls();
    let mut raw = called(&forward, &mut origin, secure(&tls)).await;
    let mut changed = secure(&tls);
    changed.passage.rules = rules(&["93.184.216.34"]);
    let _other = called(&forward, &mut origin, changed).await;
    assert!(raw.rest(HEADERS).await.is_empty(), "nothing more was asked on it, and it was closed");
}

#[tokio::test(start_paused = true)]
async fn idle_and_old_ones_end_and_say_so() {
    let (forward, mut origin, tls) = forward_tls();
    let settings = ForwardSettings::default().pool;
    let mut raw = called(&forward, &mut origin, secure(&tls)).await;
    tokio::time::advance(settings.idle_max.checked_sub(Duration::from_secs(1)).unwrap()).await;
    forward.reap();
    assert_eq!(forward.idle_connections(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    forward.reap();
    assert_eq!(forward.idle_connections(), 0);
    raw.until(GOAWAY).await;
    assert!(raw.next().await.is_none());
    // Old while somebody is on it: that call goes on, and no other one comes.
    let mut slow = secure(&tls);
    slow.waits = Waits { idle: Duration::from_hours(1), total: None, ..Waits::default() };
    let sending = send(&forward, slow);
    let mut old = Raw::accept(&mut origin, &[]).await;
    let asked = old.until(HEADERS).await;
    old.head(asked.stream, &[]).await;
    let answered = sending.await.unwrap().unwrap();
    tokio::time::advance(settings.age_max).await;
    let _young = called(&forward, &mut origin, secure(&tls)).await;
    old.data(asked.stream, b"ok", true).await;
    assert_eq!(read(answered).await.unwrap(), "ok");
    old.until(GOAWAY).await;
    assert!(old.next().await.is_none());
}

#[tokio::test]
async fn a_tenant_s_connections_and_all_of_them_can_be_closed() {
    let (forward, mut origin, tls) = forward_tls();
    let mut raw = called(&forward, &mut origin, secure(&tls)).await;
    forward.close_tenants(|tenant| tenant.as_str() == "other");
    assert_eq!(forward.idle_connections(), 1);
    forward.close_tenants(|tenant| tenant.as_str() == "acme");
    raw.until(GOAWAY).await;
    let mut raw = called(&forward, &mut origin, secure(&tls)).await;
    forward.close_idle();
    raw.until(GOAWAY).await;
    // While the rest of the calls end, each has a connection of its own.
    for _ in 0..2 {
        let mut raw = called(&forward, &mut origin, secure(&tls)).await;
        raw.until(GOAWAY).await;
    }
    assert_eq!(forward.idle_connections(), 0);
}

#[tokio::test]
async fn one_that_ended_meanwhile_is_replaced_by_a_fresh_one() {
    for says_goodbye in [true, false] {
        let (forward, mut origin, tls) = forward_tls();
        let mut raw = called(&forward, &mut origin, secure(&tls)).await;
        if says_goodbye {
            raw.go_away(1, super::frames::NO_ERROR).await;
            // What was read is noted when it is written back.
            raw.send(super::frames::PING, 0, 0, &[0; 8]).await;
            raw.until(super::frames::PING).await;
        } else {
            drop(raw);
            // It is idle until its end was read.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        }
        let mut post = secure(&tls);
        post.asked.method = http::Method::POST;
        post.body = whole("hello");
        let sending = send(&forward, post);
        let mut raw = Raw::accept(&mut origin, &[]).await;
        assert_eq!(raw.until(HEADERS).await.stream, 1);
        assert_eq!(raw.until(super::frames::DATA).await.payload, b"hello");
        raw.ok(1).await;
        assert!(!sending.await.unwrap().unwrap().went.pooled);
        assert_eq!(origin.dialled(), 2);
    }
}

#[tokio::test]
async fn whoever_dials_in_vain_does_not_fail_the_others() {
    let (forward, mut origin, tls) = forward_tls();
    let calls: Vec<_> = (0..10).map(|_| send(&forward, secure(&tls))).collect();
    // The first handshake fails.
    let (_, stream) = origin.raw().await;
    drop(stream);
    let mut raw = Raw::accept(&mut origin, &[]).await;
    for _ in 0..9 {
        let asked = raw.until(HEADERS).await;
        raw.ok(asked.stream).await;
    }
    let mut failed = 0;
    for call in calls {
        failed += usize::from(call.await.unwrap().is_err());
    }
    assert_eq!((failed, origin.dialled()), (1, 2));
}

/// Nobody waits longer than a second for who dials.
#[tokio::test(start_paused = true)]
async fn a_dial_that_hangs_holds_nobody_up() {
    let (forward, mut origin, tls) = forward_tls();
    let began = tokio::time::Instant::now();
    let _stuck = send(&forward, secure(&tls));
    let (_, _silent) = origin.raw().await;
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    let asked = raw.until(HEADERS).await;
    raw.ok(asked.stream).await;
    sending.await.unwrap().unwrap();
    let took = began.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(2)).contains(&took), "{took:?}");
}

/// Whoever dials hangs up: another one takes it over.
#[tokio::test]
async fn a_dial_that_is_given_up_is_taken_over() {
    let (forward, mut origin, tls) = forward_tls();
    let first = send(&forward, secure(&tls));
    let (_, silent) = origin.raw().await;
    let second = send(&forward, secure(&tls));
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    drop(silent);
    let mut raw = Raw::accept(&mut origin, &[]).await;
    let asked = raw.until(HEADERS).await;
    raw.ok(asked.stream).await;
    second.await.unwrap().unwrap();
}
