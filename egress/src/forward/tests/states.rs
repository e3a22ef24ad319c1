//! How far a request got, when there is no answer; and what ended it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use outbound::dial::{Connect, ConnectFault, Connected};
use outbound::{ErrorType, Source, VettedAddr};
use tokio::io::DuplexStream;
use tokio::time::Instant;

use crate::forward::testing::*;
use crate::forward::{BodyFault, Forward, ForwardSettings, Waits};
use crate::{Refusal, SendState};

/// Fails the test if anything is dialled.
#[derive(Debug)]
struct Nobody;

impl Connect for Nobody {
    type Stream = DuplexStream;

    async fn connect(&self, to: VettedAddr, _: Option<Source>) -> Result<Connected<DuplexStream>, ConnectFault> {
        panic!("{to} was dialled")
    }
}

#[tokio::test]
async fn what_is_wrong_already_dials_nothing() {
    let forward = Forward::with_connector(Nobody, ForwardSettings::default());
    let mut too_large = hop();
    too_large.bounds.request_bytes_max = 4;
    too_large.body = whole("hello");
    let mut path = hop();
    path.asked.path_and_query = "/a b".into();
    let mut fragment = hop();
    fragment.asked.path_and_query = "/a#b".into();
    let mut relative = hop();
    relative.asked.path_and_query = "a".into();
    let mut other = hop();
    other.asked.authority = outbound::Authority::with_port("other.example.com:80").unwrap();
    let mut without_tls = hop();
    without_tls.asked.scheme = outbound::Scheme::Https;
    for (hop, refusal) in [
        (too_large, Refusal::BodyTooLarge),
        (path, Refusal::TargetMalformed),
        (fragment, Refusal::TargetMalformed),
        (relative, Refusal::TargetMalformed),
        (other, Refusal::Internal),
        (without_tls, Refusal::Internal),
    ] {
        let fault = forward.send(hop).await.unwrap_err();
        assert_eq!((fault.refusal, fault.state), (refusal, SendState::NotSent));
    }
}

/// Refuses to connect.
#[derive(Debug)]
struct Fails(ConnectFault);

impl Connect for Fails {
    type Stream = DuplexStream;

    async fn connect(&self, _: VettedAddr, _: Option<Source>) -> Result<Connected<DuplexStream>, ConnectFault> {
        Err(self.0.clone())
    }
}

#[tokio::test]
async fn no_connection_is_not_sent() {
    for (fault, refusal) in [
        (ConnectFault::ExitUnavailable([192, 0, 2, 1].into()), Refusal::ExitUnavailable),
        (ConnectFault::PortsExhausted, Refusal::PortsExhausted),
        (ConnectFault::Timeout, Refusal::ConnectTimedOut),
        (ConnectFault::Refused, Refusal::ConnectFailed),
        (ConnectFault::Unroutable, Refusal::ConnectFailed),
    ] {
        let forward = Forward::with_connector(Fails(fault), ForwardSettings::default());
        let fault = forward.send(hop()).await.unwrap_err();
        assert_eq!((fault.refusal, fault.state), (refusal, SendState::NotSent));
        assert!(fault.tried.is_some());
    }
}

#[tokio::test]
async fn a_peer_that_hangs_up_has_had_what_it_read() {
    let (forward, mut origin) = forward();
    let whole_request = send(&forward, hop());
    let mut peer = origin.accept().await;
    peer.request().await;
    drop(peer);
    let fault = whole_request.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::SentNoResponse));

    let mut post = hop();
    post.asked.method = Method::POST;
    let (pieces, body) = streamed(Some(10));
    post.body = body;
    let half = send(&forward, post);
    pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
    let mut peer = origin.accept().await;
    assert!(peer.request().await.contains("content-length: 10\r\n"));
    drop(peer);
    let fault = half.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ResponseIncomplete, SendState::PartiallySent));

    // With the last byte that was declared the peer has the whole, although nobody said that it was the last.
    let mut post = hop();
    post.asked.method = Method::POST;
    let (pieces, body) = streamed(Some(5));
    post.body = body;
    let all = send(&forward, post);
    pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
    let mut peer = origin.accept().await;
    while !peer.request().await.ends_with("hello") {}
    drop(peer);
    let fault = all.await.unwrap().unwrap_err();
    assert_eq!(fault.state, SendState::SentNoResponse);
}

#[tokio::test]
async fn a_caller_that_fails_is_called_by_its_fault() {
    for (sends, refusal) in [
        (vec![Err(BodyFault::new(Refusal::RequestTimeout, "gone"))], Refusal::RequestTimeout),
        (vec![Ok(Bytes::from_static(b"0123456789a"))], Refusal::RequestMalformed),
        (vec![Ok(Bytes::from_static(b"012"))], Refusal::RequestMalformed),
    ] {
        let (forward, mut origin) = forward();
        let mut post = hop();
        post.asked.method = Method::POST;
        let (pieces, body) = streamed(Some(10));
        post.body = body;
        let sending = send(&forward, post);
        let _peer = origin.accept().await;
        for piece in sends {
            pieces.send(piece).await.unwrap();
        }
        drop(pieces);
        let fault = sending.await.unwrap().unwrap_err();
        assert_eq!(fault.refusal, refusal, "{fault}");
        assert_ne!(fault.state, SendState::SentNoResponse);
    }
}

#[tokio::test]
async fn a_body_that_grows_too_large_is_cut() {
    let (forward, mut origin) = forward();
    let mut post = hop();
    post.asked.method = Method::POST;
    post.bounds.request_bytes_max = 8;
    let (pieces, body) = streamed(None);
    post.body = body;
    let sending = send(&forward, post);
    let mut peer = origin.accept().await;
    pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
    let request = peer.request().await;
    assert!(request.contains("transfer-encoding: chunked\r\n"), "{request}");
    pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::BodyTooLarge, SendState::PartiallySent));
    assert_eq!(peer.try_request().await, None, "the last chunk was sent");
}

/// hyper would drop the body of a GET that does not say its length.
#[tokio::test]
async fn every_methods_body_is_sent() {
    for method in [Method::GET, Method::DELETE, Method::POST, Method::from_bytes(b"QUERY").unwrap()] {
        let (forward, mut origin) = forward();
        let mut hop = hop();
        hop.asked.method = method;
        let (pieces, body) = streamed(None);
        hop.body = body;
        let _sending = send(&forward, hop);
        pieces.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
        drop(pieces);
        let mut peer = origin.accept().await;
        let mut request = peer.request().await;
        while !request.ends_with("5\r\nhello\r\n0\r\n\r\n") {
            request.push_str(&peer.request().await);
        }
    }
    for (method, length) in [(Method::POST, true), (Method::PUT, true), (Method::GET, false), (Method::DELETE, false)] {
        let (forward, mut origin) = forward();
        let mut hop = hop();
        hop.asked.method = method.clone();
        // Whatever the caller said: the length is that of the body.
        hop.headers.insert("content-length", "5".parse().unwrap());
        let _sending = send(&forward, hop);
        let request = origin.accept().await.request().await;
        assert_eq!(request.contains("content-length: 0\r\n"), length, "{method}: {request}");
        assert!(!request.contains("content-length: 5"), "{method}: {request}");
    }
}

fn waits(first_byte_s: u64, idle_s: u64, total_s: Option<u64>) -> Waits {
    let seconds = Duration::from_secs;
    Waits { first_byte: seconds(first_byte_s), idle: seconds(idle_s), total: total_s.map(seconds) }
}

#[tokio::test(start_paused = true)]
async fn waiting_has_an_end_and_the_end_has_a_name() {
    let began = Instant::now();
    let after = |seconds: u64| {
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(seconds) && took < Duration::from_secs(seconds + 1), "{took:?}");
    };
    // No answer.
    let (forward, mut origin) = forward();
    let mut slow = hop();
    slow.waits = waits(7, 3, None);
    let sending = send(&forward, slow);
    let _peer = origin.accept().await;
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ResponseTimedOut, SendState::SentNoResponse));
    after(7);
    // A caller that stops.
    let mut post = hop();
    post.asked.method = Method::POST;
    post.waits = waits(7, 3, None);
    let (_pieces, body) = streamed(None);
    post.body = body;
    let sending = send(&forward, post);
    let _peer = origin.accept().await;
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::RequestTimeout, SendState::PartiallySent));
    after(10);
    // All of it.
    let mut slow = hop();
    slow.waits = waits(7, 3, Some(2));
    let sending = send(&forward, slow);
    let _peer = origin.accept().await;
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!(fault.refusal, Refusal::ResponseTimedOut);
    after(12);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_reading_is_given_up() {
    let (forward, mut origin) = forward_with(ForwardSettings::default(), 64);
    let mut post = hop();
    post.asked.method = Method::POST;
    post.waits = waits(7, 3, None);
    let (pieces, body) = streamed(None);
    post.body = body;
    let sending = send(&forward, post);
    let _peer = origin.accept().await;
    tokio::spawn(async move { while pieces.send(Ok(Bytes::from(vec![0; 4096]))).await.is_ok() {} });
    let fault = sending.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::IdleTimeout, SendState::PartiallySent));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stops_is_given_up_and_one_that_goes_on_is_not() {
    let (forward, mut origin) = forward();
    let mut slow = hop();
    slow.waits = waits(7, 3, None);
    let (_, answered, mut peer) =
        exchange(&forward, &mut origin, slow, "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n").await;
    let answered = answered.unwrap();
    let tally = Arc::clone(&answered.tally);
    let reading = tokio::spawn(read(answered));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        peer.write("hello").await;
    }
    let fault = reading.await.unwrap().unwrap_err();
    assert_eq!((fault.refusal, tally.received_bytes()), (Refusal::IdleTimeout, 25));
    assert_eq!(tally.end(), Some(&Err(fault)));
    assert!(peer.is_closed().await);
}

#[tokio::test(start_paused = true)]
async fn dialling_is_part_of_the_whole() {
    #[derive(Debug)]
    struct Silent;
    impl Connect for Silent {
        type Stream = DuplexStream;
        async fn connect(&self, _: VettedAddr, _: Option<Source>) -> Result<Connected<DuplexStream>, ConnectFault> {
            std::future::pending().await
        }
    }
    let forward = Forward::with_connector(Silent, ForwardSettings::default());
    let mut short = hop();
    short.waits = waits(7, 3, Some(1));
    let fault = forward.send(short).await.unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::ConnectTimedOut, SendState::NotSent));
    assert_eq!(fault.error_type, ErrorType::ConnectionTimeout);
}
