//! Answers that have one reading, and those that have two.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Body;
use outbound::ErrorType;

use crate::forward::ForwardSettings;
use crate::forward::testing::*;
use crate::{Refusal, SendState};

#[tokio::test]
async fn answers_with_two_readings_are_refused() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n Content-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX-A: b\rContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX-A: b\0\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "ICY 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "220 mail.example.com ESMTP\r\n",
    ] {
        let (forward, mut origin) = forward();
        let (_, answered, mut peer) = exchange(&forward, &mut origin, hop(), answer).await;
        let fault = answered.expect_err(answer);
        assert_eq!(fault.refusal, Refusal::ResponseRefused, "{answer:?}: {fault}");
        assert_ne!(fault.state, SendState::NotSent);
        assert!(peer.is_closed().await, "{answer:?}");
        assert_eq!(forward.idle_connections(), 0);
    }
}

#[tokio::test]
async fn answers_with_one_reading_pass() {
    for (answer, body) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "ok"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", "ok"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-T: 1\r\n\r\n", "ok"),
        ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", "ok"),
        ("HTTP/1.1 999 Request denied\r\nContent-Length: 2\r\n\r\nok", "ok"),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\
             Content-Length: 2\r\n\r\nok",
            "ok",
        ),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 20\r\n\r\n", ""),
    ] {
        let (forward, mut origin) = forward();
        let (_, answered, _peer) = exchange(&forward, &mut origin, hop(), answer).await;
        let answered = answered.unwrap_or_else(|fault| panic!("{answer:?}: {fault}"));
        assert!(answered.response.headers().get_all("content-length").iter().count() <= 1);
        assert!(!answered.response.headers().contains_key("transfer-encoding"));
        assert_eq!(read(answered).await.unwrap(), body, "{answer:?}");
        assert_eq!(forward.idle_connections(), 1, "{answer:?}");
    }
    // An answer that ends with its connection.
    let (forward, mut origin) = forward();
    let (_, answered, peer) = exchange(&forward, &mut origin, hop(), "HTTP/1.1 200 OK\r\n\r\nok").await;
    drop(peer);
    assert_eq!(read(answered.unwrap()).await.unwrap(), "ok");
    assert_eq!(forward.idle_connections(), 0);
}

#[tokio::test]
async fn an_answer_to_head_keeps_the_length_of_what_it_does_not_carry() {
    let (forward, mut origin) = forward();
    let mut head = hop();
    head.asked.method = Method::HEAD;
    head.bounds.response_bytes_max = 10;
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    let (_, answered, _peer) = exchange(&forward, &mut origin, head, answer).await;
    let answered = answered.unwrap();
    assert_eq!(answered.response.headers()["content-length"], "1000");
    assert_eq!(forward.idle_connections(), 1);
}

#[tokio::test]
async fn an_answer_that_is_cut_says_so() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
    ] {
        let (forward, mut origin) = forward();
        let (_, answered, peer) = exchange(&forward, &mut origin, hop(), answer).await;
        drop(peer);
        let fault = read(answered.unwrap()).await.unwrap_err();
        assert_eq!(fault.refusal, Refusal::ResponseIncomplete, "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_ends_with_a_name() {
    // It says so: nothing of it is given on.
    let (forward, mut origin) = forward();
    let mut small = hop();
    small.bounds.response_bytes_max = 4;
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let (_, answered, mut peer) = exchange(&forward, &mut origin, small, answer).await;
    let fault = answered.unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ResponseRefused, SendState::Response));
    assert_eq!(fault.error_type, ErrorType::HttpResponseBodySize);
    assert!(peer.is_closed().await);
    // It does not: what is too much is not given on.
    let mut small = hop();
    small.bounds.response_bytes_max = 4;
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n";
    let (_, answered, mut peer) = exchange(&forward, &mut origin, small, answer).await;
    let reading = tokio::spawn(read(answered.unwrap()));
    peer.write("1\r\no\r\n0\r\n\r\n").await;
    let fault = reading.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.error_type), (Refusal::ResponseRefused, ErrorType::HttpResponseBodySize));
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn heads_are_bounded_in_bytes_and_fields() {
    let settings = ForwardSettings { head_bytes_max: 8192, head_fields_max: 20, ..ForwardSettings::default() };
    let long = format!("HTTP/1.1 200 OK\r\nX-A: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(8200));
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X-A: b\r\n".repeat(20));
    let fits = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X-A: b\r\n".repeat(19));
    for (answer, passes) in [(long, false), (many, false), (fits, true)] {
        let (forward, mut origin) = forward_with(settings.clone(), 1 << 20);
        let (_, answered, _peer) = exchange(&forward, &mut origin, hop(), &answer).await;
        match answered {
            Ok(_) => assert!(passes),
            Err(fault) => assert!(!passes && fault.refusal == Refusal::ResponseRefused, "{fault}"),
        }
    }
}

/// Whoever looks ahead may come to the end of an answer that was cut off: it is not told as a whole one that is shorter.
#[tokio::test]
async fn an_answer_that_ends_too_early_has_no_length_after_a_look_ahead() {
    for (says, length) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhello", Some(20)),
    ] {
        let (forward, mut origin) = forward();
        let (_, answered, peer) = exchange(&forward, &mut origin, hop(), says).await;
        drop(peer);
        let mut body = answered.unwrap().response.into_body();
        assert_eq!(body.peek(1_000, Duration::from_secs(5)).await, b"hello");
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (length, false), "{says}");
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
        body.frame().await.unwrap().unwrap_err();
        assert!(body.frame().await.is_none());
    }
}
