//! How far a request got, when its stream has no answer.

use bytes::Bytes;
use http::Method;
use outbound::ErrorType;

use super::frames::{CANCEL, DATA, HEADERS, INTERNAL_ERROR, NO_ERROR, PING, REFUSED_STREAM, RST_STREAM, Raw, SETTINGS};
use super::{forward_tls, secure};
use crate::forward::testing::*;
use crate::forward::{BodyFault, Hop};
use crate::{Refusal, SendState};

fn post(tls: &outbound::TlsClient) -> Hop {
    let mut post = secure(tls);
    post.asked.method = Method::POST;
    post.body = whole("hello");
    post
}

#[tokio::test]
async fn a_refused_stream_was_not_sent_and_is_not_sent_again() {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, post(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    let asked = raw.until(DATA).await;
    raw.reset(asked.stream, REFUSED_STREAM).await;
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::NotSent));
    assert_eq!(&*fault.detail, "the destination reset the stream: REFUSED_STREAM");
    assert!(fault.tried.is_some());
    // The connection is as good as before.
    let sending = send(&forward, secure(&tls));
    assert_eq!(raw.until(HEADERS).await.stream, 3);
    raw.ok(3).await;
    assert!(sending.await.unwrap().unwrap().went.pooled);
    assert_eq!(origin.dialled(), 1);
}

#[tokio::test]
async fn a_stream_that_is_reset_for_another_reason_may_have_had_an_effect() {
    for reason in [NO_ERROR, INTERNAL_ERROR, CANCEL, 0xd, 0xdead] {
        let (forward, mut origin, tls) = forward_tls();
        let sending = send(&forward, post(&tls));
        let mut raw = Raw::accept(&mut origin, &[]).await;
        let asked = raw.until(DATA).await;
        raw.reset(asked.stream, reason).await;
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::SentNoResponse), "{reason}");
        assert_eq!(fault.error_type, ErrorType::HttpResponseIncomplete);
    }
    // Of a body that has not ended, nobody can have the whole.
    let (forward, mut origin, tls) = forward_tls();
    let mut half = post(&tls);
    let (pieces, body) = streamed(Some(10));
    half.body = body;
    let sending = send(&forward, half);
    pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
    let mut raw = Raw::accept(&mut origin, &[]).await;
    let asked = raw.until(DATA).await;
    raw.reset(asked.stream, INTERNAL_ERROR).await;
    assert_eq!(sending.await.unwrap().unwrap_err().state, SendState::PartiallySent);
}

#[tokio::test]
async fn above_the_last_stream_of_a_goaway_nothing_was_sent_and_below_all_goes_on() {
    let (forward, mut origin, tls) = forward_tls();
    let below = send(&forward, post(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    assert_eq!(raw.until(DATA).await.stream, 1);
    let above = send(&forward, post(&tls));
    assert_eq!(raw.until(DATA).await.stream, 3);
    raw.go_away(1, NO_ERROR).await;
    let fault = above.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::NotSent));
    assert_eq!(fault.error_type, ErrorType::ConnectionTerminated);
    assert_eq!(&*fault.detail, "the destination closes and did not take it: NO_ERROR", "nothing that it wrote");
    // The next one has a connection of its own, while the first still waits.
    let next = send(&forward, post(&tls));
    let mut other = Raw::accept(&mut origin, &[]).await;
    other.until(DATA).await;
    other.ok(1).await;
    assert!(!next.await.unwrap().unwrap().went.pooled);
    raw.head(1, &[("content-length", "2")]).await;
    raw.data(1, b"ok", true).await;
    assert_eq!(read(below.await.unwrap().unwrap()).await.unwrap(), "ok");
    assert!(raw.rest(RST_STREAM).await.is_empty(), "and it was closed");
}

/// A server that is about to close says so first with the highest id there is (RFC 9113, 6.8): what is under way is
/// still answered, and it is nobody's "not sent".
#[tokio::test]
async fn a_goaway_for_later_leaves_what_is_under_way() {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, post(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(DATA).await;
    raw.go_away(0x7fff_ffff, NO_ERROR).await;
    raw.send(PING, 0, 0, &[0; 8]).await;
    raw.until(PING).await;
    assert!(!sending.is_finished());
    drop(raw);
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::SentNoResponse));
    assert_eq!(fault.error_type, ErrorType::ConnectionTerminated);
}

#[tokio::test]
async fn a_connection_that_ends_may_have_had_an_effect_for_all_on_it() {
    let (forward, mut origin, tls) = forward_tls();
    let first = send(&forward, post(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(DATA).await;
    let second = send(&forward, secure(&tls));
    raw.until(HEADERS).await;
    drop(raw);
    for sending in [first, second] {
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::SentNoResponse));
    }
    assert_eq!(origin.dialled(), 1);
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_is_refused() {
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0, 0, 1, SETTINGS, 0, 0, 0, 0, 0, 0]] {
        let (forward, mut origin, tls) = forward_tls();
        let sending = send(&forward, secure(&tls));
        let mut raw = Raw::silent(&mut origin).await;
        raw.until(HEADERS).await;
        raw.0.write(garbage).await;
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!((fault.refusal, fault.state), (Refusal::ResponseRefused, SendState::SentNoResponse), "{fault}");
        assert_eq!(fault.error_type, ErrorType::HttpProtocolError);
    }
}

#[tokio::test]
async fn a_caller_that_fails_is_called_by_its_fault_and_resets_its_stream_alone() {
    for (sends, refusal) in [
        (vec![Err(BodyFault::new(Refusal::RequestTimeout, "gone"))], Refusal::RequestTimeout),
        (vec![Ok(Bytes::from_static(b"0123456789a"))], Refusal::RequestMalformed),
        (vec![Ok(Bytes::from_static(b"012"))], Refusal::RequestMalformed),
    ] {
        let (forward, mut origin, tls) = forward_tls();
        let mut hop = post(&tls);
        let (pieces, body) = streamed(Some(10));
        hop.body = body;
        let sending = send(&forward, hop);
        let mut raw = Raw::accept(&mut origin, &[]).await;
        raw.until(HEADERS).await;
        for piece in sends {
            pieces.send(piece).await.unwrap();
        }
        drop(pieces);
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!((fault.refusal, fault.state), (refusal, SendState::PartiallySent), "{fault}");
        assert_eq!(raw.until(RST_STREAM).await.reason(), CANCEL);
        let sending = send(&forward, secure(&tls));
        raw.until(HEADERS).await;
        raw.ok(3).await;
        assert!(sending.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_body_that_grows_too_large_is_cut() {
    let (forward, mut origin, tls) = forward_tls();
    let mut hop = post(&tls);
    hop.bounds.request_bytes_max = 8;
    let (pieces, body) = streamed(None);
    hop.body = body;
    let sending = send(&forward, hop);
    let mut raw = Raw::accept(&mut origin, &[]).await;
    for _ in 0..2 {
        pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
    }
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::BodyTooLarge, SendState::PartiallySent));
    let reset = raw.until(RST_STREAM).await;
    assert_eq!((reset.stream, reset.reason()), (1, CANCEL));
}

/// Whoever hangs up stops the work at the other end, and nobody else's.
#[tokio::test]
async fn a_caller_that_goes_resets_its_stream_and_no_other() {
    let (forward, mut origin, tls) = forward_tls();
    let goes = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    let stays = send(&forward, secure(&tls));
    raw.until(HEADERS).await;
    goes.abort();
    let reset = raw.until(RST_STREAM).await;
    assert_eq!((reset.stream, reset.reason()), (1, CANCEL));
    // In the middle of its answer, too, and while it still sends.
    let (pieces, body) = streamed(None);
    let mut uploads = post(&tls);
    uploads.body = body;
    let sending = send(&forward, uploads);
    raw.until(HEADERS).await;
    raw.head(5, &[]).await;
    raw.data(5, b"some", false).await;
    drop(sending.await.unwrap().unwrap());
    let reset = raw.until(RST_STREAM).await;
    assert_eq!((reset.stream, reset.reason()), (5, CANCEL));
    assert!(pieces.send(Ok(Bytes::from_static(b"more"))).await.is_err(), "nobody reads its body any more");
    raw.ok(3).await;
    assert!(stays.await.unwrap().is_ok());
    assert_eq!(origin.dialled(), 1);
}
