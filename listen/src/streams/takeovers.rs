use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::io::{AsyncWriteExt, copy, split};

use super::*;
use crate::drain::Connections;
use crate::testing::converse;
use crate::{Raw, Takeover};

/// Sends back what it is sent, and says when that was all.
async fn echo(raw: Raw) {
    let (mut reading, mut writing) = split(raw);
    copy(&mut reading, &mut writing).await.unwrap();
    writing.write_all(b"bye").await.unwrap();
    writing.shutdown().await.unwrap();
}

fn tunnel(exchange: &mut Exchange) -> BoxFuture<'_, Reply> {
    Box::pin(async {
        match exchange.head().authority() {
            Some("a.test:443") => Takeover::new(StatusCode::OK, HeaderMap::new(), echo).into(),
            _ => Answer::new(403).with_body("text/plain", "no").into(),
        }
    })
}

const CONNECT: &str = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n";

#[tokio::test]
async fn what_is_sent_right_behind_a_connect_is_the_tunnels() {
    for pipe_bytes in [1, 50, 1 << 20] {
        let (client, serving) = serve(pipe_bytes, PROXY, tunnel);
        let (mut reading, mut writing) = split(client);
        let sending = async move {
            writing.write_all(format!("{CONNECT}\x16\x03\x01hello").as_bytes()).await.unwrap();
            writing.write_all(&[b'x'; 9000]).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        let mut all = Vec::new();
        let ((), read) = tokio::join!(sending, reading.read_to_end(&mut all));
        read.unwrap();
        serving.await.unwrap();
        let text = String::from_utf8(all).unwrap();
        let sent = format!("\x16\x03\x01hello{}", "x".repeat(9000));
        assert_eq!(text, format!("HTTP/1.1 200 Connection Established\r\n\r\n{sent}bye"));
    }
}

#[tokio::test]
async fn behind_a_refused_connect_nothing_is_run() {
    let (mut client, _serving) = serve(1 << 20, PROXY, tunnel);
    let ask = CONNECT.replace("a.test", "b.test");
    client
        .write_all(format!("{ask}{CONNECT}GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes())
        .await
        .unwrap();
    client.shutdown().await.unwrap();
    let answer = read_all(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("Connection: close") && answer.ends_with("no"));
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test]
async fn a_switch_of_protocols_is_given_its_fields() {
    let (mut client, _serving) = serve(1 << 20, PROXY, |exchange| {
        Box::pin(async {
            assert_eq!(exchange.head().get_one("upgrade"), Some(&b"websocket"[..]));
            let mut headers = HeaderMap::new();
            headers.append("connection", HeaderValue::from_static("upgrade"));
            headers.append("upgrade", HeaderValue::from_static("websocket"));
            Takeover::new(StatusCode::SWITCHING_PROTOCOLS, headers, echo).into()
        })
    });
    let ask = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nframe";
    client.write_all(ask.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(
        read_all(&mut client).await,
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nframebye"
    );
}

#[tokio::test]
async fn a_connection_is_not_taken_where_nobody_offers_it() {
    let take = |status: StatusCode| {
        with(move |_| Box::pin(async move { Takeover::new(status, HeaderMap::new(), echo).into() }))
    };
    let get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\nmore";
    let upgrade = "Connection: upgrade\r\nUpgrade: x\r\n";
    for (status, ask) in [
        (StatusCode::OK, get.to_owned()),
        (StatusCode::SWITCHING_PROTOCOLS, get.to_owned()),
        (StatusCode::OK, get.replace("\r\n\r\n", &format!("\r\n{upgrade}\r\n"))),
        // What follows is the rest of a message, and no tunnel's.
        (
            StatusCode::SWITCHING_PROTOCOLS,
            format!("POST / HTTP/1.1\r\nHost: a\r\n{upgrade}Content-Length: 9\r\n\r\nmore"),
        ),
    ] {
        let answer = converse(ask.as_bytes(), Listener::default(), take(status)).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("internal"), "{ask}: {answer}");
    }
}

#[tokio::test]
async fn success_without_a_tunnel_is_no_answer_to_connect() {
    let (mut client, _serving) = serve(1 << 20, PROXY, |_| Box::pin(async { Answer::new(200).into() }));
    client.write_all(CONNECT.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    assert!(read_all(&mut client).await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_counts_as_a_connection_and_learns_of_the_drain() {
    let connections = Connections::new();
    let handler = with(|_| {
        Box::pin(async {
            Takeover::new(StatusCode::OK, HeaderMap::new(), |mut raw| async move {
                let mut draining = raw.draining();
                assert!(!draining.has_begun());
                draining.begins().await;
                assert!(draining.has_begun());
                raw.write_all(b"drained").await.unwrap();
                raw.flush().await.unwrap();
            })
            .into()
        })
    });
    let (mut client, serving) =
        crate::testing::connect_among(Arc::clone(&connections), 1 << 20, Listener::default(), PROXY, handler);
    let serving = tokio::spawn(serving);
    client.write_all(CONNECT.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((connections.opened(), connections.busy()), (1, 0));
    connections.drain();
    assert!(read_all(&mut client).await.ends_with("\r\n\r\ndrained"));
    serving.await.unwrap();
    assert_eq!(connections.opened(), 0);
}
