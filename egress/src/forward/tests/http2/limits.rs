//! How many streams a peer allows.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::TlsAcceptor;

use super::frames::{HEADERS, MAX_CONCURRENT_STREAMS, REFUSED_STREAM, Raw, SETTINGS};
use super::{forward_tls, secure};
use crate::forward::testing::*;
use crate::{Refusal, SendState};

/// The one who dials asks at once; how many others may is not known before the peer says so.
#[tokio::test]
async fn a_peer_that_allows_one_gets_one_at_a_time() {
    let (forward, mut origin, tls) = forward_tls();
    let calls: Vec<_> = (0..3).map(|_| send(&forward, secure(&tls))).collect();
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::silent(&mut origin).await;
        assert_eq!(raw.until(HEADERS).await.stream, 1);
        raw.settings(&[(MAX_CONCURRENT_STREAMS, 1)]).await;
        peers.push(raw);
    }
    for raw in &mut peers {
        raw.ok(1).await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((origin.dialled(), forward.idle_connections()), (3, 3));
    // One after the other, one connection does.
    for stream in [3, 5] {
        let sending = send(&forward, secure(&tls));
        assert_eq!(peers[0].until(HEADERS).await.stream, stream);
        peers[0].ok(stream).await;
        assert!(sending.await.unwrap().unwrap().went.pooled);
    }
    assert_eq!(origin.dialled(), 3);
}

#[tokio::test]
async fn a_connection_that_is_full_has_another_one_beside_it() {
    let (forward, mut origin, tls) = forward_tls();
    let first = send(&forward, secure(&tls));
    let mut full = Raw::accept(&mut origin, &[(MAX_CONCURRENT_STREAMS, 2)]).await;
    full.until(HEADERS).await;
    let second = send(&forward, secure(&tls));
    full.until(HEADERS).await;
    let third = send(&forward, secure(&tls));
    let mut other = Raw::accept(&mut origin, &[(MAX_CONCURRENT_STREAMS, 2)]).await;
    other.until(HEADERS).await;
    for (raw, streams) in [(&mut full, &[1, 3][..]), (&mut other, &[1])] {
        for stream in streams {
            raw.ok(*stream).await;
        }
    }
    for call in [first, second, third] {
        call.await.unwrap().unwrap();
    }
    assert_eq!(origin.dialled(), 2);
}

/// What the peer lowers later holds for whoever comes later.
#[tokio::test]
async fn a_limit_may_change() {
    let (forward, mut origin, tls) = forward_tls();
    let first = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    raw.settings(&[(MAX_CONCURRENT_STREAMS, 1)]).await;
    raw.until_acknowledged(2).await;
    let second = send(&forward, secure(&tls));
    let mut other = Raw::accept(&mut origin, &[]).await;
    other.until(HEADERS).await;
    other.ok(1).await;
    second.await.unwrap().unwrap();
    raw.ok(1).await;
    first.await.unwrap().unwrap();
    assert_eq!(origin.dialled(), 2);
}

/// One that allows none from the start says so too late for the one who dialled, and refuses it; nobody else asks there.
#[tokio::test]
async fn a_peer_that_allows_none_refuses_what_it_is_sent() {
    let (forward, mut origin, tls) = forward_tls();
    for dialled in 1..=3 {
        let sending = send(&forward, secure(&tls));
        let mut raw = Raw::silent(&mut origin).await;
        raw.until(HEADERS).await;
        raw.settings(&[(MAX_CONCURRENT_STREAMS, 0)]).await;
        raw.reset(1, REFUSED_STREAM).await;
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::NotSent), "{fault}");
        assert_eq!(origin.dialled(), dialled);
    }
}

/// It says so with the end of its handshake: nothing is sent, and it is waited for for a second.
#[tokio::test(start_paused = true)]
async fn a_peer_that_allows_none_in_time_is_sent_nothing() {
    for allows_some_later in [true, false] {
        let (forward, mut origin, tls) = forward_tls();
        let began = tokio::time::Instant::now();
        let sending = send(&forward, secure(&tls));
        let mut config = (**origin.tls.as_ref().unwrap().config()).clone();
        config.send_half_rtt_data = true;
        let none = [0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0];
        let (_, stream) = origin.raw().await;
        let accepting = TlsAcceptor::from(Arc::new(config))
            .accept_with(stream, |session| session.writer().write_all(&none).unwrap());
        let mut raw = Raw(Peer(Box::new(accepting.await.unwrap())));
        raw.preface().await;
        raw.until_acknowledged(1).await;
        if allows_some_later {
            raw.settings(&[(MAX_CONCURRENT_STREAMS, 1)]).await;
            raw.until(HEADERS).await;
            raw.ok(1).await;
            sending.await.unwrap().unwrap();
        } else {
            let fault = sending.await.unwrap().unwrap_err();
            assert_eq!((fault.refusal, fault.state), (Refusal::ConnectTimedOut, SendState::NotSent), "{fault}");
            let took = began.elapsed();
            assert!((Duration::from_secs(1)..Duration::from_secs(2)).contains(&took), "{took:?}");
            forward.close_idle();
            assert!(raw.rest(HEADERS).await.is_empty());
        }
    }
}
