//! Heads of answers: what they may be, and what may come before them.

use super::frames::{CONTINUATION, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, Raw, field, status};
use super::{BOTH, forward_tls, forward_tls_with, secure};
use crate::forward::testing::*;
use crate::forward::{Answered, ForwardSettings, HopFault};
use crate::{Refusal, SendState};

/// What comes of an answer whose header block is this.
async fn of_block(settings: ForwardSettings, block: &[u8]) -> Result<Answered, HopFault> {
    let (forward, mut origin, tls) = forward_tls_with(settings, BOTH);
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    let mut frames = block.chunks(16_384).peekable();
    let mut kind = HEADERS;
    while let Some(frame) = frames.next() {
        let flags = if kind == HEADERS { END_STREAM } else { 0 };
        let flags = if frames.peek().is_none() { flags | END_HEADERS } else { flags };
        raw.send(kind, flags, 1, frame).await;
        kind = CONTINUATION;
    }
    sending.await.unwrap()
}

#[tokio::test]
async fn heads_are_bounded_in_bytes_and_fields_as_those_of_http_1_1_are() {
    let settings = ForwardSettings { head_bytes_max: 8192, head_fields_max: 20, ..ForwardSettings::default() };
    // `x-a: aaa…\r\n`, and fields that HTTP/2 counts 32 bytes more for.
    let long = |bytes: usize| [status(200), field("x-a", &"a".repeat(bytes - 7))].concat();
    let many = |fields| [status(200), field("x-a", "b").repeat(fields)].concat();
    let both = [many(19), field("x-b", &"b".repeat(8192 - 19 * 8 - 7))].concat();
    for (block, passes) in [(long(8192), true), (long(8193), false), (many(20), true), (many(21), false), (both, true)]
    {
        match of_block(settings.clone(), &block).await {
            Ok(_) => assert!(passes, "{}", block.len()),
            Err(fault) => assert!(!passes && fault.refusal == Refusal::ResponseRefused, "{}: {fault}", block.len()),
        }
    }
}

#[tokio::test]
async fn bombs_go_off_elsewhere() {
    // A block without an end.
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let mut raw = Raw::accept(&mut origin, &[]).await;
    raw.until(HEADERS).await;
    raw.send(HEADERS, 0, 1, &status(200)).await;
    let mut sent = 0;
    while raw.try_send(CONTINUATION, 0, 1, &field("x-a", &"a".repeat(16_000))).await.is_ok() && sent < 1000 {
        sent += 1;
        if sending.is_finished() {
            break;
        }
    }
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!(fault.refusal, Refusal::ResponseRefused, "{fault}");
    assert!(sent < 100, "{sent} frames");
    raw.until(GOAWAY).await;
    // A field that is put into the table once, and named ten thousand times with a byte each (RFC 7541, 6.1).
    let name = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'a'; 4000]].concat();
    let bomb = [status(200), name, vec![0xbe; 10_000]].concat();
    let fault = of_block(ForwardSettings::default(), &bomb).await.unwrap_err();
    assert_eq!(fault.refusal, Refusal::ResponseRefused, "{fault}");
}

#[tokio::test]
async fn heads_that_http_2_does_not_know_are_refused() {
    for block in [
        field("x-a", "b"),
        [status(200), status(200)].concat(),
        [field("x-a", "b"), status(200)].concat(),
        [status(200), field("connection", "close")].concat(),
        [status(200), field("transfer-encoding", "chunked")].concat(),
        [status(200), field("X-A", "b")].concat(),
        [status(200), field("x-a", "b\r\nc: d")].concat(),
        [status(200), field("content-length", "1"), field("content-length", "2")].concat(),
        [status(200), field("content-length", "+0")].concat(),
        [status(200), field("x a", "b")].concat(),
        status(99),
        vec![0xff; 40],
    ] {
        let fault = of_block(ForwardSettings::default(), &block).await.unwrap_err();
        assert_eq!(fault.refusal, Refusal::ResponseRefused, "{block:?}: {fault}");
        assert_eq!(fault.state, SendState::SentNoResponse);
    }
}

#[tokio::test]
async fn what_is_ours_or_the_connection_s_does_not_come_back() {
    let block = [
        status(200),
        field("tidegate-hops", "forged"),
        field("trailer", "x"),
        field("proxy-authenticate", "Basic"),
        field("set-cookie", "a"),
        field("set-cookie", "b"),
    ];
    let answered = of_block(ForwardSettings::default(), &block.concat()).await.unwrap();
    let names: Vec<_> = answered.response.headers().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["set-cookie", "set-cookie"]);
}

#[tokio::test]
async fn answers_before_the_answer_are_passed_over_and_are_bounded() {
    for (times, passes) in [(2, true), (33, false)] {
        let (forward, mut origin, tls) = forward_tls();
        let sending = send(&forward, secure(&tls));
        let mut raw = Raw::accept(&mut origin, &[]).await;
        raw.until(HEADERS).await;
        for code in [100, 103].into_iter().cycle().take(times) {
            raw.send(HEADERS, END_HEADERS, 1, &[status(code), field("link", "</a>")].concat()).await;
        }
        if passes {
            raw.ok(1).await;
            let answered = sending.await.unwrap().unwrap();
            assert_eq!((answered.response.status().as_u16(), answered.response.headers().len()), (200, 0));
        } else {
            let fault = sending.await.unwrap().unwrap_err();
            assert_eq!(fault.refusal, Refusal::ResponseRefused, "{fault}");
            raw.until(RST_STREAM).await;
        }
    }
    // HTTP/2 does not switch.
    let fault = of_block(ForwardSettings::default(), &status(101)).await.unwrap_err();
    assert_eq!(fault.refusal, Refusal::ResponseRefused, "{fault}");
}
