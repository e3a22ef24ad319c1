//! What is asked, and what comes back, with real servers.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use outbound::Alpn;
use tokio::sync::mpsc;

use super::{forward_tls, forward_tls_with, secure, secure_to};
use crate::HttpVersion;
use crate::forward::testing::*;
use crate::forward::{Forward, ForwardSettings};

/// What a server saw of a request.
#[derive(Debug)]
struct Saw {
    method: Method,
    uri: String,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
}

/// Serves whoever dials, and answers with the request's path.
fn serve(mut origin: Origin) -> mpsc::UnboundedReceiver<Saw> {
    let (saw, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(peer) = origin.try_accept().await {
            let saw = saw.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let saw = saw.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let path = head.uri.path().to_owned();
                    let uri = head.uri.to_string();
                    drop(saw.send(Saw {
                        method: head.method,
                        uri,
                        version: head.version,
                        headers: head.headers,
                        body,
                    }));
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(path))))
                }
            });
            let serving = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(peer.0), service);
            tokio::spawn(serving);
        }
    });
    seen
}

#[tokio::test]
async fn a_request_says_its_authority_once_and_nothing_of_a_connection() {
    let (forward, origin, tls) = forward_tls();
    let mut seen = serve(origin);
    let mut post = secure_to(&tls, "api.example.com:8443");
    post.asked.method = Method::POST;
    post.asked.path_and_query = "/v1/things?a=b".into();
    post.body = whole("hello");
    post.headers.insert("x-a", "b".parse().unwrap());
    for name in ["connection", "te", "upgrade", "content-length", "transfer-encoding", "host"] {
        post.headers.insert(name, "5".parse().unwrap());
    }
    let answered = forward.send(post).await.unwrap();
    assert_eq!((answered.response.version(), answered.went.version), (Version::HTTP_2, HttpVersion::Http2));
    assert!(!answered.went.pooled);
    assert_eq!(read(answered).await.unwrap(), "/v1/things");
    let saw = seen.recv().await.unwrap();
    assert_eq!((saw.method, saw.version), (Method::POST, Version::HTTP_2));
    assert_eq!(saw.uri, "https://api.example.com:8443/v1/things?a=b");
    let mut names: Vec<_> = saw.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!((names, &saw.headers["content-length"]), (vec!["content-length", "x-a"], &"5".parse().unwrap()));
    assert_eq!(saw.body, "hello");
}

#[tokio::test]
async fn every_form_of_a_target_arrives_as_it_was_judged() {
    let (forward, origin, tls) = forward_tls();
    let mut seen = serve(origin);
    for (method, written, uri) in [
        (Method::GET, "", "https://api.example.com/"),
        (Method::GET, "?a", "https://api.example.com/?a"),
        (Method::GET, "/a%2Fb//c/../d", "https://api.example.com/a%2Fb//c/../d"),
        (Method::OPTIONS, "/", "https://api.example.com/"),
        (Method::from_bytes(b"QUERY").unwrap(), "/", "https://api.example.com/"),
    ] {
        let mut hop = secure(&tls);
        (hop.asked.method, hop.asked.path_and_query) = (method.clone(), written.into());
        read(forward.send(hop).await.unwrap()).await.unwrap();
        let saw = seen.recv().await.unwrap();
        assert_eq!((saw.method, &*saw.uri), (method, uri));
    }
}

#[tokio::test]
async fn bodies_go_whole_with_and_without_a_length() {
    let (forward, origin, tls) = forward_tls();
    let mut seen = serve(origin);
    for (method, length) in [(Method::POST, Some(300_000)), (Method::PUT, None), (Method::GET, None)] {
        let mut hop = secure(&tls);
        hop.asked.method = method;
        let (pieces, body) = streamed(length);
        hop.body = body;
        let sending = send(&forward, hop);
        for _ in 0..30 {
            pieces.send(Ok(Bytes::from(vec![7; 10_000]))).await.unwrap();
        }
        drop(pieces);
        let answered = sending.await.unwrap().unwrap();
        assert_eq!(answered.tally.sent_bytes(), 300_000);
        let saw = seen.recv().await.unwrap();
        assert_eq!(saw.body.len(), 300_000);
        assert_eq!(saw.headers.get("content-length").map(|value| value.to_str().unwrap()), length.map(|_| "300000"));
        assert!(!saw.headers.contains_key("transfer-encoding"));
    }
    // For these, nothing and no body are not the same.
    for (method, says) in [(Method::POST, true), (Method::GET, false)] {
        let mut hop = secure(&tls);
        hop.asked.method = method;
        forward.send(hop).await.unwrap();
        assert_eq!(seen.recv().await.unwrap().headers.get("content-length").is_some_and(|length| length == "0"), says);
    }
}

#[tokio::test]
async fn a_destination_that_chooses_http_1_1_or_nothing_gets_it() {
    for theirs in [&[Alpn::Http11][..], &[]] {
        let (forward, mut origin, tls) = forward_tls_with(ForwardSettings::default(), theirs);
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let (request, answered, _peer) = exchange(&forward, &mut origin, secure(&tls), answer).await;
        assert_eq!(request, "GET / HTTP/1.1\r\nhost: api.example.com\r\n\r\n");
        let answered = answered.unwrap();
        assert_eq!(answered.went.version, HttpVersion::Http11);
        assert_eq!(read(answered).await.unwrap(), "ok");
        assert_eq!(forward.idle_connections(), 1);
    }
}

#[tokio::test]
async fn http_1_1_is_spoken_where_http_2_is_off_and_without_tls() {
    let (forward, mut origin, tls) = forward_tls();
    for hop in [secure(&tls.without_http2()), hop()] {
        let (request, answered, _peer) = exchange(&forward, &mut origin, hop, "HTTP/1.1 204 No Content\r\n\r\n").await;
        assert!(request.starts_with("GET / HTTP/1.1\r\n"));
        assert_eq!(answered.unwrap().went.version, HttpVersion::Http11);
    }
}

/// A connection of HTTP/2 is there, and is of no use to a WebSocket.
#[tokio::test]
async fn a_websocket_is_asked_for_in_http_1_1_alone() {
    let (forward, mut origin, tls) = forward_tls();
    let sending = send(&forward, secure(&tls));
    let peer = origin.accept().await;
    let mut serving = h2::server::handshake(peer.0).await.unwrap();
    let (_, mut respond) = serving.accept().await.unwrap().unwrap();
    respond.send_response(Response::new(()), true).unwrap();
    tokio::spawn(async move { while serving.accept().await.is_some() {} });
    sending.await.unwrap().unwrap();

    let mut upgrade = secure(&tls);
    upgrade.upgrade = true;
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (request, answered, _peer) = exchange(&forward, &mut origin, upgrade, answer).await;
    assert!(request.starts_with("GET / HTTP/1.1\r\n") && request.contains("upgrade: websocket\r\n"), "{request}");
    assert!(answered.unwrap().upgraded.is_some());
    assert_eq!(origin.dialled(), 2);
}

#[tokio::test]
async fn a_cold_key_is_dialled_once_for_many() {
    let (forward, origin, tls) = forward_tls();
    let dialled = origin.counter();
    let mut seen = serve(origin);
    let calls: Vec<_> = (0..60)
        .map(|number| {
            let (forward, mut hop) = (Arc::clone(&forward), secure(&tls));
            hop.asked.path_and_query = format!("/{number}").into();
            tokio::spawn(async move { read(forward.send(hop).await.unwrap()).await.unwrap() })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), format!("/{number}"));
    }
    assert_eq!(dialled.load(std::sync::atomic::Ordering::Relaxed), 1);
    for _ in 0..60 {
        seen.recv().await.unwrap();
    }
    assert_eq!(forward.idle_connections(), 1);
}

#[tokio::test]
async fn each_answer_is_its_own_requests_under_load() {
    let (forward, origin, tls) = forward_tls();
    let dialled = origin.counter();
    let _seen = serve(origin);
    let caller = |caller: usize| {
        let (forward, tls): (Arc<Forward<Memory>>, _) = (Arc::clone(&forward), tls.clone());
        tokio::spawn(async move {
            for number in 0..20 {
                let mut hop = secure(&tls);
                let path = format!("/{caller}/{number}");
                hop.asked.path_and_query = path.as_str().into();
                assert_eq!(read(forward.send(hop).await.unwrap()).await.unwrap(), path);
            }
        })
    };
    let callers: Vec<_> = (0..128).map(caller).collect();
    for caller in callers {
        caller.await.unwrap();
    }
    // 64 calls are on one at a time; a few more are dialled while somebody rises.
    let dialled = dialled.load(std::sync::atomic::Ordering::Relaxed);
    assert!((2..=8).contains(&dialled), "{dialled}");
}

#[tokio::test]
async fn nobody_waits_where_http_1_1_was_chosen() {
    let (forward, mut origin, tls) = forward_tls_with(ForwardSettings::default(), &[Alpn::Http11]);
    let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let (_, answered, _) = exchange(&forward, &mut origin, secure(&tls), answer).await;
    read(answered.unwrap()).await.unwrap();
    // The first of them gets no further than its handshake; the second one does not care.
    let _stuck = send(&forward, secure(&tls));
    let (_, _silent) = origin.raw().await;
    let (_, answered, _) = exchange(&forward, &mut origin, secure(&tls), answer).await;
    assert_eq!(read(answered.unwrap()).await.unwrap(), "ok");
}
