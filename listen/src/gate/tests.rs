//! Where messages end, and what lies behind them.

use std::time::Duration;

use pingora_core::protocols::Stream;
use tokio::io::duplex;

use super::*;
use crate::http::{HeadLimits, HeadParser, Progress};

const LIMITS: HeadLimits = HeadLimits { target_bytes: 100, header_bytes: 1000, header_count: 10 };
const TRAILER: TrailerLimits = TrailerLimits { bytes: 100, count: 10 };

/// A gate that has read `bytes` and begun the message at their front, the head that it gave out, and the client.
async fn begun(bytes: &[u8]) -> (Gate, Bytes, tokio::io::DuplexStream) {
    let (mut client, server) = duplex(1000);
    client.write_all(bytes).await.unwrap();
    let mut gate = Gate::new(Box::new(server) as Stream);
    poll_fn(|cx| gate.poll_fill(cx)).await.unwrap();
    let mut parser = HeadParser::default();
    let Ok(Progress::Complete { skipped, head }) = parser.advance(gate.inbox(), &LIMITS) else { panic!("no head") };
    let given = gate.begin(skipped, head, &parser.take_parts(), TRAILER);
    (gate, given, client)
}

/// The whole body; it has to end without another byte from the client.
async fn read_out(gate: &mut Gate) -> Result<Vec<u8>, Refusal> {
    let mut body = BytesMut::new();
    let reading = async {
        while gate.read_into(&mut body, 100).await? > 0 {}
        Ok(())
    };
    tokio::time::timeout(Duration::from_secs(5), reading).await.expect("nothing is waited for behind the message")?;
    Ok(body.to_vec())
}

#[tokio::test]
async fn behind_a_counted_message_there_is_nothing() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    let (mut gate, given, _client) = begun(format!("\r\n{head}hiGET / HTTP").as_bytes()).await;
    assert_eq!(given, head.as_bytes());
    assert!(!gate.is_done());
    assert_eq!(gate.take_arrived().unwrap(), "hi");
    assert!(gate.is_done());
    assert_eq!(read_out(&mut gate).await.unwrap(), b"");
    assert_eq!(gate.inbox(), b"GET / HTTP");

    let (mut gate, _, mut client) = begun(format!("{head}h").as_bytes()).await;
    assert_eq!(gate.take_arrived(), None, "half a body is none");
    client.write_all(b"iGET / HTTP").await.unwrap();
    assert_eq!(read_out(&mut gate).await.unwrap(), b"hi");
    assert!(gate.is_done() && gate.inbox().is_empty(), "what is behind the body stays in the socket");
}

#[tokio::test]
async fn behind_a_chunked_message_there_is_nothing() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut gate, given, _client) = begun(format!("{head}2\r\nhi\r\n0\r\n\r\nGET / HTTP").as_bytes()).await;
    assert_eq!(given, head.as_bytes());
    assert!(!gate.is_done());
    assert_eq!(gate.take_arrived(), None);
    assert_eq!(read_out(&mut gate).await.unwrap(), b"hi");
    assert!(gate.is_done());
    assert_eq!(gate.inbox(), b"GET / HTTP");
    assert_eq!(read_out(&mut gate).await.unwrap(), b"", "and stays nothing");

    let (mut gate, _, mut client) = begun(format!("{head}0\r\n\r\n").as_bytes()).await;
    assert_eq!(read_out(&mut gate).await.unwrap(), b"");
    client.write_all(b"GET / HTTP").await.unwrap();
    assert_eq!(read_out(&mut gate).await.unwrap(), b"", "what comes later is not the message's either");
}

#[tokio::test]
async fn a_message_is_skipped_only_where_all_of_it_has_come() {
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let counted = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    for (message, whole) in [
        (format!("{chunked}2\r\nhi\r\n0\r\n\r\n"), true),
        (format!("{chunked}2\r\nhi\r\n0\r\n\r"), false),
        (format!("{chunked}2\r\nhiX\r\n0\r\n\r\n"), false),
        (format!("{counted}abc"), true),
        (format!("{counted}ab"), false),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), true),
    ] {
        let (mut gate, _, _client) = begun(message.as_bytes()).await;
        assert_eq!(gate.skip_arrived(), whole, "{message:?}");
        assert!(gate.inbox().is_empty() || !whole, "{message:?}");
    }
}

#[tokio::test]
async fn what_breaks_the_framing_never_ends_well() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut gate, _, _client) = begun(format!("{head}2\r\nhi\r\n\r\n").as_bytes()).await;
    for _ in 0..2 {
        assert_eq!(read_out(&mut gate).await, Err(Refusal::MalformedRequest));
        assert!(!gate.is_done());
    }
    let (mut gate, _, client) = begun(format!("{head}2\r\nhi\r\n").as_bytes()).await;
    drop(client);
    assert_eq!(read_out(&mut gate).await, Err(Refusal::MalformedRequest), "an end that is none");
}

#[tokio::test]
async fn memory_is_set_aside_in_step_with_what_comes() {
    const LENGTH: usize = 300_000;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
    let (mut gate, _, mut client) = begun(head.as_bytes()).await;
    let sending = async {
        client.write_all(&vec![b'x'; LENGTH]).await.unwrap();
        client
    };
    let reading = async {
        let (mut body, mut parts) = (BytesMut::new(), Vec::new());
        loop {
            let come = body.len();
            let part = gate.next_part_max(come);
            assert!(part <= (come as u64).max(8 * 1024) && part <= 64 * 1024, "{part} bytes for {come} that have come");
            let read = gate.read_into(&mut body, u64::MAX).await.unwrap();
            assert!(read as u64 <= part, "more than was said");
            if read == 0 {
                return (body.len(), parts);
            }
            parts.push(part);
        }
    };
    let (_client, (length, parts)) = tokio::join!(sending, reading);
    assert_eq!((length, parts[0]), (LENGTH, 8 * 1024));
    assert!(parts.contains(&(64 * 1024)), "a large body takes its time: {parts:?}");

    // What is shorter than the first step is set aside as it is.
    let (gate, ..) = begun(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n").await;
    assert_eq!(gate.next_part_max(0), 100);
}
