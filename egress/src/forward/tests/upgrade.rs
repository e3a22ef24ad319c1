//! Upgrades: the connection itself is handed over.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Refusal;
use crate::forward::testing::*;

#[tokio::test]
async fn a_switch_that_was_asked_for_hands_the_connection_over() {
    let (forward, mut origin) = forward();
    let mut upgrade = hop();
    upgrade.upgrade = true;
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\nfirst";
    let (request, answered, mut peer) = exchange(&forward, &mut origin, upgrade, answer).await;
    assert!(request.contains("connection: upgrade\r\nupgrade: websocket\r\n"), "{request}");
    let answered = answered.unwrap();
    assert_eq!(answered.response.status(), 101);
    let mut upgraded = answered.upgraded.unwrap();
    let mut read = [0; 5];
    upgraded.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"first", "what came right behind the head is not lost");
    upgraded.write_all(b"hello").await.unwrap();
    peer.0.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"hello");
    drop(upgraded);
    assert!(peer.is_closed().await);
    assert_eq!(forward.idle_connections(), 0);
}

#[tokio::test]
async fn another_protocol_than_was_asked_for_is_refused() {
    for upgrade_field in ["", "Upgrade: h2c\r\n", "Upgrade: websocket\r\nUpgrade: h2c\r\n"] {
        let (forward, mut origin) = forward();
        let mut upgrade = hop();
        upgrade.upgrade = true;
        let answer = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{upgrade_field}\r\n");
        let (_, answered, _peer) = exchange(&forward, &mut origin, upgrade, &answer).await;
        assert_eq!(answered.unwrap_err().refusal, Refusal::ResponseRefused, "{upgrade_field}");
    }
}

#[tokio::test]
async fn a_switch_that_is_declined_is_an_answer() {
    let (forward, mut origin) = forward();
    let mut upgrade = hop();
    upgrade.upgrade = true;
    let answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    let (_, answered, _peer) = exchange(&forward, &mut origin, upgrade, answer).await;
    let answered = answered.unwrap();
    assert!(answered.upgraded.is_none());
    assert_eq!(read(answered).await.unwrap(), "no");
    assert_eq!(forward.idle_connections(), 1);
}
