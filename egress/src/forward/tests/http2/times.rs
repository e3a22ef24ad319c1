//! Waiting has an end, and the end has a name; a connection that is dead has one for all.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use outbound::ErrorType;
use tokio::time::Instant;

use super::frames::{ACK, HEADERS, PING, RST_STREAM, Raw};
use super::{forward_tls, secure};
use crate::forward::Waits;
use crate::forward::testing::*;
use crate::{Refusal, SendState};

fn waits(first_byte_s: u64, idle_s: u64, total_s: Option<u64>) -> Waits {
    let seconds = Duration::from_secs;
    Waits { first_byte: seconds(first_byte_s), idle: seconds(idle_s), total: total_s.map(seconds) }
}

#[tokio::test(start_paused = true)]
async fn each_wait_ends_and_takes_its_stream_along() {
    let (forward, mut origin, tls) = forward_tls();
    let keep = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    // No answer; a caller that stops; the whole of it; a peer that takes nothing.
    let stuck = Bytes::from(vec![7; 100_000]);
    for (waits, body, after, refusal, state) in [
        (waits(7, 3, None), None, 7, Refusal::ResponseTimedOut, SendState::SentNoResponse),
        (waits(7, 3, None), Some(None), 3, Refusal::RequestTimeout, SendState::PartiallySent),
        (waits(7, 3, Some(2)), None, 2, Refusal::ResponseTimedOut, SendState::SentNoResponse),
        (waits(7, 3, None), Some(Some(stuck)), 3, Refusal::IdleTimeout, SendState::PartiallySent),
    ] {
        let began = Instant::now();
        let mut hop = secure(&tls);
        hop.waits = waits;
        let (pieces, streamed) = streamed(None);
        if let Some(piece) = &body {
            hop.asked.method = Method::POST;
            hop.body = streamed;
            if let Some(piece) = piece.clone() {
                pieces.send(Ok(piece)).await.unwrap();
            }
        }
        let sending = send(&forward, hop);
        let reset = raw.until(RST_STREAM).await;
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!((fault.refusal, fault.state), (refusal, state), "{fault}");
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(after) && took < Duration::from_secs(after + 1), "{took:?}");
        assert!(reset.stream > 1);
        drop(pieces);
    }
    raw.ok(1).await;
    keep.await.unwrap().unwrap();
    assert_eq!(origin.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stops_is_given_up_and_one_that_goes_on_is_not() {
    let (forward, mut origin, tls) = forward_tls();
    let mut slow = secure(&tls);
    slow.waits = waits(7, 3, None);
    let sending = send(&forward, slow);
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    raw.head(1, &[]).await;
    let reading = tokio::spawn(read(sending.await.unwrap().unwrap()));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        raw.data(1, b"hello", false).await;
    }
    let fault = reading.await.unwrap().unwrap_err();
    assert_eq!(fault.refusal, Refusal::IdleTimeout);
    assert_eq!(raw.until(RST_STREAM).await.stream, 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_with_calls_is_asked_for_a_sign_of_life() {
    let (forward, mut origin, tls) = forward_tls();
    let mut long = secure(&tls);
    long.waits = waits(3600, 3600, None);
    let sending = send(&forward, long);
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    // Twice, and no more before something of an answer has come: of its head, or of its body.
    for part in 0..3 {
        let began = Instant::now();
        for _ in 0..2 {
            let ping = raw.until(PING).await;
            raw.send(PING, ACK, 0, &ping.payload).await;
        }
        let took = began.elapsed();
        assert!((Duration::from_secs(119)..Duration::from_secs(122)).contains(&took), "{part}: {took:?}");
        raw.settings(&[]).await;
        let asked = tokio::time::timeout(Duration::from_mins(10), raw.until(PING)).await;
        assert!(asked.is_err(), "{part}");
        match part {
            0 => raw.head(1, &[]).await,
            1 => raw.data(1, b"some", false).await,
            _ => raw.data(1, b"more", true).await,
        }
    }
    assert_eq!(read(sending.await.unwrap().unwrap()).await.unwrap(), "somemore");
    // Nobody is on it any more: it is left alone.
    let asked = tokio::time::timeout(Duration::from_mins(2), raw.until(PING)).await;
    assert!(asked.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_ends_for_all_and_the_next_call_dials() {
    let (forward, mut origin, tls) = forward_tls();
    let long = || {
        let mut long = secure(&tls);
        long.waits = waits(300, 300, None);
        long
    };
    let began = Instant::now();
    let first = send(&forward, long());
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    let second = send(&forward, long());
    raw.until(HEADERS).await;
    for sending in [first, second] {
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!((fault.refusal, fault.state), (Refusal::IdleTimeout, SendState::SentNoResponse), "{fault}");
        assert_eq!(fault.error_type, ErrorType::ConnectionReadTimeout);
    }
    let took = began.elapsed();
    assert!((Duration::from_secs(70)..Duration::from_secs(72)).contains(&took), "{took:?}");
    let next = send(&forward, long());
    let mut other = Raw::accept(&mut origin, &[]).await;
    other.until(HEADERS).await;
    other.ok(1).await;
    assert!(!next.await.unwrap().unwrap().went.pooled);
}

/// Whatever comes is a sign of life, an answer to a PING or not.
#[tokio::test(start_paused = true)]
async fn a_connection_that_says_something_is_alive() {
    let (forward, mut origin, tls) = forward_tls();
    let mut long = secure(&tls);
    long.waits = waits(300, 300, None);
    let sending = send(&forward, long);
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(69)).await;
        raw.settings(&[]).await;
    }
    raw.ok(1).await;
    sending.await.unwrap().unwrap();
}
