//! A destination that says much and does nothing is cut off; one that has much to say is not.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::time::timeout;

use super::frames::{DATA, END_HEADERS, GOAWAY, HEADERS, PING, Raw, SETTINGS, WINDOW_UPDATE, status};
use super::{forward_tls, secure};
use crate::forward::testing::*;
use crate::{Refusal, SendState};

const PRIORITY: u8 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// What costs it nothing: which frame, on which stream.
const FLOODS: [(u8, u32, &[u8]); 5] =
    [(PING, 0, &[0; 8]), (SETTINGS, 0, &[]), (WINDOW_UPDATE, 0, &[0, 0, 0, 1]), (PRIORITY, 1, &[0; 5]), (0xee, 0, &[])];

/// As many as nobody has a reason for, unless it is cut off before.
async fn flood(raw: &mut Raw, (kind, stream, payload): (u8, u32, &[u8])) {
    for _ in 0..5_000 {
        if raw.try_send(kind, 0, stream, payload).await.is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_ends_the_connection_and_the_calls_on_it() {
    for frame in FLOODS {
        let (forward, mut origin, tls) = forward_tls();
        let sending = send(&forward, secure(&tls));
        let mut raw = Raw::accept(&mut origin, &[]).await;
        raw.until(HEADERS).await;
        flood(&mut raw, frame).await;
        let fault = sending.await.unwrap().unwrap_err();
        let what = (fault.refusal, fault.state);
        assert_eq!(what, (Refusal::ResponseRefused, SendState::SentNoResponse), "{frame:?}: {fault}");
        timeout(Duration::from_secs(9), raw.rest(GOAWAY)).await.expect("it is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_ends_a_connection_on_which_nobody_is() {
    for frame in FLOODS {
        let (forward, mut origin, tls) = forward_tls();
        for dialled in 1..=2 {
            let sending = send(&forward, secure(&tls));
            let mut raw = Raw::accept(&mut origin, &[]).await;
            raw.until(HEADERS).await;
            raw.ok(1).await;
            sending.await.unwrap().unwrap();
            flood(&mut raw, frame).await;
            timeout(Duration::from_secs(9), raw.rest(GOAWAY)).await.expect("it is closed");
            assert_eq!(origin.dialled(), dialled, "{frame:?}");
        }
    }
}

/// Nobody waits for it any more, and the codec opens the connection's window again for what it drops.
#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_waits_for_ends_the_connection() {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    raw.head(1, &[]).await;
    drop(sending.await.unwrap().unwrap());
    let mut bytes = 0;
    while raw.try_send(DATA, 0, 1, &[7; 16 << 10]).await.is_ok() {
        bytes += 16 << 10;
        assert!(bytes < 64 << 20, "it goes on for ever");
    }
    timeout(Duration::from_secs(9), raw.rest(GOAWAY)).await.expect("it is closed");
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    raw.ok(1).await;
    sending.await.unwrap().unwrap();
}

/// What a call was announced to death with may still lie there: the next one is not put behind it.
#[tokio::test(start_paused = true)]
async fn a_flood_of_interim_answers_is_not_for_the_next_call() {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let mut first = Raw::accept(&mut origin, &[]).await;
    first.until(HEADERS).await;
    for _ in 0..40 {
        first.send(HEADERS, END_HEADERS, 1, &status(103)).await;
    }
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!(fault.refusal, Refusal::ResponseRefused, "{fault}");
    let sending = send(&forward, secure(&tls));
    let dialled = timeout(Duration::from_secs(9), Raw::accept(&mut origin, &[])).await;
    let mut second = dialled.expect("it is on a connection of its own");
    second.until(HEADERS).await;
    second.ok(1).await;
    sending.await.unwrap().unwrap();
}

/// It opens its windows a KiB at a time, which is much to say; and it has been sent as much.
#[tokio::test(start_paused = true)]
async fn what_a_destination_says_to_what_it_is_sent_is_no_flood() {
    let (forward, mut origin, tls) = forward_tls();
    let mut post = secure(&tls);
    post.asked.method = Method::POST;
    let (pieces, body) = streamed(None);
    post.body = body;
    let sending = send(&forward, post);
    tokio::spawn(async move {
        for _ in 0..100 {
            pieces.send(Ok(Bytes::from(vec![7; 10_000]))).await.unwrap();
        }
    });
    let mut raw = Raw::accept(&mut origin, &[(INITIAL_WINDOW_SIZE, 1024)]).await;
    let (mut had, mut said) = (0, 0);
    loop {
        let frame = raw.until(DATA).await;
        if frame.ends_stream() {
            break;
        }
        had += frame.payload.len();
        for stream in [0, 1] {
            raw.allow(stream, u32::try_from(frame.payload.len()).unwrap()).await;
            said += 1;
        }
    }
    raw.ok(1).await;
    sending.await.unwrap().unwrap();
    assert_eq!(had, 1_000_000);
    assert!(said > 1_500, "{said}: more than the burst");
}
