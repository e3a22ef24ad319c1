//! Bodies in both directions: whole or not, and no faster than they are read.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Body;
use outbound::ErrorType;

use super::frames::{
    CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, INTERNAL_ERROR, NO_ERROR, PING, RST_STREAM, Raw, field, status,
};
use super::{forward_tls, secure};
use crate::forward::Answered;
use crate::forward::testing::*;
use crate::{Refusal, SendState};

/// A call whose answer has begun.
async fn begun(fields: &[(&str, &str)]) -> (Answered, Raw, Origin) {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    raw.head(1, fields).await;
    (sending.await.unwrap().unwrap(), raw, origin)
}

#[tokio::test]
async fn an_answer_that_is_cut_says_so() {
    // NO_ERROR is not the end of an answer; it is the end of what the peer wants to read.
    for reason in [NO_ERROR, CANCEL, INTERNAL_ERROR] {
        let (answered, mut raw, _origin) = begun(&[]).await;
        let tally = Arc::clone(&answered.tally);
        raw.data(1, b"some", false).await;
        raw.reset(1, reason).await;
        let fault = read(answered).await.unwrap_err();
        assert_eq!((fault.refusal, fault.error_type), (Refusal::ResponseIncomplete, ErrorType::HttpResponseIncomplete));
        assert_eq!(tally.end(), Some(&Err(fault)), "{reason}");
    }
    let (answered, mut raw, _origin) = begun(&[]).await;
    raw.data(1, b"some", false).await;
    drop(raw);
    let fault = read(answered).await.unwrap_err();
    assert_eq!((fault.refusal, fault.error_type), (Refusal::ResponseIncomplete, ErrorType::ConnectionTerminated));
}

#[tokio::test]
async fn an_answer_of_another_length_than_it_says_is_no_answer() {
    for (length, pieces) in [("5", vec!["some"]), ("3", vec!["some"]), ("3", vec!["so", "me"]), ("0", vec!["some"])] {
        let (answered, mut raw, _origin) = begun(&[("content-length", length)]).await;
        for (at, piece) in pieces.iter().enumerate() {
            raw.data(1, piece.as_bytes(), at + 1 == pieces.len()).await;
        }
        let fault = read(answered).await.unwrap_err();
        assert_eq!(fault.refusal, Refusal::ResponseRefused, "{length}: {fault}");
    }
    // It said so in its head already.
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    let block = [status(200), field("content-length", "5")].concat();
    raw.send(HEADERS, END_HEADERS | END_STREAM, 1, &block).await;
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!(fault.refusal, Refusal::ResponseRefused);
}

#[tokio::test]
async fn an_answer_may_end_in_every_way_that_it_can() {
    // With its data, with a frame of nothing, with trailers; with and without a length.
    for fields in [&[][..], &[("content-length", "4")]] {
        for ending in 0..3 {
            let (answered, mut raw, _origin) = begun(fields).await;
            raw.data(1, b"some", ending == 0).await;
            match ending {
                0 => {}
                1 => raw.data(1, b"", true).await,
                _ => raw.send(HEADERS, END_HEADERS | END_STREAM, 1, &field("x-trailer", "1")).await,
            }
            let tally = Arc::clone(&answered.tally);
            let whole = answered.response.into_body().collect().await.unwrap();
            assert!(whole.trailers().is_none());
            assert_eq!((whole.to_bytes(), tally.end()), (Bytes::from_static(b"some"), Some(&Ok(()))), "{ending}");
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_are_over_at_once() {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    raw.ok(1).await;
    let answered = sending.await.unwrap().unwrap();
    assert_eq!((answered.tally.end(), forward.idle_connections()), (Some(&Ok(())), 1));
    for (method, code, length) in [(Method::HEAD, 200, "1000"), (Method::GET, 304, "1000"), (Method::GET, 204, "0")] {
        let mut hop = secure(&tls);
        (hop.asked.method, hop.bounds.response_bytes_max) = (method, 10);
        let sending = send(&forward, hop);
        let asked = raw.until(HEADERS).await;
        let block = [status(code), field("content-length", length)].concat();
        raw.send(HEADERS, END_HEADERS | END_STREAM, asked.stream, &block).await;
        let answered = sending.await.unwrap().unwrap();
        let said = answered.response.headers().get("content-length").map(|value| value.to_str().unwrap());
        assert_eq!(said, (code != 204).then_some(length));
        assert_eq!(read(answered).await.unwrap(), "");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_ends_with_a_name() {
    for says in [true, false] {
        let (forward, mut origin, tls) = forward_tls();
        let mut small = secure(&tls);
        small.bounds.response_bytes_max = 4;
        let sending = send(&forward, small);
        let mut raw = Raw::accept(&mut origin, &[]).await;
        raw.until(HEADERS).await;
        raw.head(1, if says { &[("content-length", "5")] } else { &[] }).await;
        let fault = if says {
            let fault = sending.await.unwrap().unwrap_err();
            assert_eq!(fault.state, SendState::Response);
            (fault.refusal, fault.error_type)
        } else {
            raw.data(1, b"hell", false).await;
            raw.data(1, b"o", true).await;
            let fault = read(sending.await.unwrap().unwrap()).await.unwrap_err();
            (fault.refusal, fault.error_type)
        };
        assert_eq!(fault, (Refusal::ResponseRefused, ErrorType::HttpResponseBodySize));
        assert_eq!(forward.idle_connections(), 1, "others can go on");
    }
}

/// One that is not read takes what one may hold and no more, and the others go on.
#[tokio::test]
async fn a_slow_reader_stops_its_own_answer_and_no_other() {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let mut builder = h2::server::Builder::new();
    builder.max_send_buffer_size(1 << 20);
    let mut serving = builder.handshake(origin.accept().await.0).await.unwrap();
    let (_, mut respond) = serving.accept().await.unwrap().unwrap();
    let mut slow = respond.send_response(http::Response::new(()), false).unwrap();
    slow.reserve_capacity(1 << 24);
    let (more, mut accepted) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(next)) = serving.accept().await {
            more.send(next).unwrap();
        }
    });
    let answered = sending.await.unwrap().unwrap();
    let window = 128 << 10;
    while slow.capacity() < window {
        poll_fn(|cx| slow.poll_capacity(cx)).await.unwrap().unwrap();
    }
    assert_eq!(slow.capacity(), window, "as much as one may be sent that nobody has read");
    slow.send_data(Bytes::from(vec![7; window]), false).unwrap();
    slow.reserve_capacity(1);

    let quick = send(&forward, secure(&tls));
    let (_, mut respond) = accepted.recv().await.unwrap();
    respond.send_response(http::Response::new(()), false).unwrap().send_data("quick".into(), true).unwrap();
    assert_eq!(read(quick.await.unwrap().unwrap()).await.unwrap(), "quick");
    assert_eq!(slow.capacity(), 0);

    // Reading makes room.
    let mut body = answered.response.into_body();
    let mut had = 0;
    while had < window {
        had += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    poll_fn(|cx| slow.poll_capacity(cx)).await.unwrap().unwrap();
    slow.send_data(Bytes::from_static(b"!"), true).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "!");
    assert!(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_none());
}

/// However many do not read: what they were sent is not in the way of the next one, up to the last seat.
#[tokio::test]
async fn callers_that_do_not_read_hold_up_nobody_else() {
    for count in [8, 63] {
        let (forward, mut origin, tls) = forward_tls();
        let mut sending = vec![send(&forward, secure(&tls))];
        let mut builder = h2::server::Builder::new();
        builder.max_send_buffer_size(1 << 20);
        let mut serving = builder.handshake::<_, Bytes>(origin.accept().await.0).await.unwrap();
        let first = serving.accept().await.unwrap().unwrap();
        let (more, mut accepted) = tokio::sync::mpsc::unbounded_channel();
        more.send(first).unwrap();
        tokio::spawn(async move {
            while let Some(Ok(next)) = serving.accept().await {
                more.send(next).unwrap();
            }
        });
        // More than any window, to each of them; what is sent first has the first of the connection's window.
        let mut kept = Vec::new();
        for _ in 0..count {
            let (_, mut respond) = accepted.recv().await.unwrap();
            let mut body = respond.send_response(http::Response::new(()), false).unwrap();
            body.send_data(Bytes::from(vec![7; 1 << 20]), true).unwrap();
            kept.push((body, sending.pop().unwrap().await.unwrap().unwrap()));
            sending.push(send(&forward, secure(&tls)));
        }
        let (_, mut respond) = accepted.recv().await.unwrap();
        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
        body.send_data(Bytes::from(vec![8; 1 << 20]), true).unwrap();
        let reading = async { read(sending.pop().unwrap().await.unwrap().unwrap()).await.unwrap().len() };
        let had = tokio::time::timeout(std::time::Duration::from_secs(30), reading).await;
        assert_eq!((had, origin.dialled()), (Ok(1 << 20), 1), "{count}");
        drop(kept);
    }
}

/// The peer takes 65,535 bytes at first (RFC 9113, 6.9.2). What it does not take stays with the caller, but for one
/// piece.
#[tokio::test]
async fn a_body_goes_no_faster_than_it_is_taken() {
    let (forward, mut origin, tls) = forward_tls();
    let mut post = secure(&tls);
    post.asked.method = Method::POST;
    let (pieces, body) = streamed(None);
    post.body = body;
    let sending = send(&forward, post);
    let taken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let feeding = tokio::spawn(async move {
        for _ in 0..20 {
            pieces.send(Ok(Bytes::from(vec![7; 10_000]))).await.unwrap();
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let mut raw = Raw::accept(&mut origin, &[]).await;
    let mut had = 0;
    while had < 65_535 {
        had += raw.until(DATA).await.payload.len();
    }
    assert_eq!(had, 65_535);
    raw.send(PING, 0, 0, &[0; 8]).await;
    raw.until(PING).await;
    // 7 pieces went or are at hand; 4 are in the channel of the test.
    assert!(taken.load(std::sync::atomic::Ordering::Relaxed) <= 11);
    for stream in [0, 1] {
        raw.allow(stream, 1 << 20).await;
    }
    loop {
        let frame = raw.until(DATA).await;
        had += frame.payload.len();
        if frame.ends_stream() {
            break;
        }
    }
    assert_eq!(had, 200_000);
    raw.ok(1).await;
    assert_eq!(sending.await.unwrap().unwrap().tally.sent_bytes(), 200_000);
    feeding.await.unwrap();
}

/// An answer in the middle of the request is an answer; the rest is not sent.
#[tokio::test]
async fn an_early_answer_counts_and_ends_the_body() {
    for asks_to_stop in [true, false] {
        let (forward, mut origin, tls) = forward_tls();
        let mut post = secure(&tls);
        post.asked.method = Method::POST;
        let (pieces, body) = streamed(None);
        post.body = body;
        let sending = send(&forward, post);
        pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
        let mut raw = Raw::accept(&mut origin, &[]).await;
        raw.until(DATA).await;
        raw.head(1, &[]).await;
        // The answer comes while the request is still sent.
        let answered = sending.await.unwrap().unwrap();
        let reading = tokio::spawn(read(answered));
        pieces.send(Ok(Bytes::from_static(b"more"))).await.unwrap();
        assert_eq!(raw.until(DATA).await.payload, b"more");
        raw.data(1, b"enough", true).await;
        if asks_to_stop {
            raw.reset(1, NO_ERROR).await;
        }
        assert_eq!(reading.await.unwrap().unwrap(), "enough");
        assert!(pieces.send(Ok(Bytes::from_static(b"more"))).await.is_err());
        if !asks_to_stop {
            assert_eq!(raw.until(RST_STREAM).await.reason(), CANCEL);
        }
        let sending = send(&forward, secure(&tls));
        assert_eq!(raw.until(HEADERS).await.stream, 3);
        raw.ok(3).await;
        assert!(sending.await.unwrap().unwrap().went.pooled);
    }
}
