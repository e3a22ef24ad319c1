//! Connections that are used again, and those that are not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use domain::{ConnectionId, TenantId};
use http::Method;
use outbound::dial::{Connect, ConnectFault, Connected};
use outbound::{Source, VettedAddr};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::SendState;
use crate::forward::testing::*;
use crate::forward::{Forward, ForwardSettings};
use crate::quota::testing::{one_call, permit_with_retries, permit_with_units, quota};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_whose_answer_was_read_is_used_again() {
    let (forward, mut origin) = forward();
    let (request, answered, mut peer) = exchange(&forward, &mut origin, hop(), OK).await;
    assert_eq!(request, "GET / HTTP/1.1\r\nhost: api.example.com\r\n\r\n");
    let answered = answered.unwrap();
    assert!(!answered.went.pooled);
    assert_eq!(forward.idle_connections(), 0, "its answer is not read yet");
    assert_eq!(read(answered).await.unwrap(), "ok");
    assert_eq!(forward.idle_connections(), 1);
    for chunked in [true, false] {
        let again = send(&forward, hop());
        peer.request().await;
        let answer =
            if chunked { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" } else { OK };
        peer.write(answer).await;
        let answered = again.await.unwrap().unwrap();
        assert!(answered.went.pooled && answered.went.connect.is_zero());
        assert_eq!(read(answered).await.unwrap(), "ok");
    }
    assert_eq!((origin.dialled(), forward.idle_connections()), (1, 1));
    forward.close_idle();
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn answers_without_a_body_give_it_back_at_once() {
    let (forward, mut origin) = forward();
    let answer = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
    let (_, answered, _peer) = exchange(&forward, &mut origin, hop(), answer).await;
    let answered = answered.unwrap();
    assert!(!answered.response.headers().contains_key("content-length"));
    assert_eq!(forward.idle_connections(), 1);
    assert_eq!(answered.tally.end(), Some(&Ok(())));
}

#[tokio::test]
async fn one_that_cannot_be_trusted_is_not_used_again() {
    for (answer, why) in [
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "it says so"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.0"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", "there is more behind it"),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n", "a body where there is none"),
        ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", "a body where there is none"),
    ] {
        let (forward, mut origin) = forward();
        let (_, answered, _peer) = exchange(&forward, &mut origin, hop(), answer).await;
        read(answered.unwrap()).await.unwrap();
        assert_eq!(forward.idle_connections(), 0, "{why}");
    }
}

#[tokio::test]
async fn a_body_that_nobody_wants_closes_it() {
    let (forward, mut origin) = forward();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok";
    let (_, answered, mut peer) = exchange(&forward, &mut origin, hop(), answer).await;
    let answered = answered.unwrap();
    let tally = Arc::clone(&answered.tally);
    drop(answered);
    assert!(peer.is_closed().await);
    assert_eq!((tally.end(), forward.idle_connections()), (None, 0));
}

#[tokio::test]
async fn one_that_died_meanwhile_is_replaced_by_a_fresh_one() {
    for says in ["", "HTTP/1.1 408 Request Timeout\r\n\r\n"] {
        let (forward, mut origin) = forward();
        let (_, answered, mut peer) = exchange(&forward, &mut origin, hop(), OK).await;
        read(answered.unwrap()).await.unwrap();
        peer.write(says).await;
        peer.0.shutdown().await.unwrap();
        let mut post = hop();
        post.asked.method = Method::POST;
        post.body = whole("hello");
        let (request, answered, _) = exchange(&forward, &mut origin, post, OK).await;
        assert!(request.starts_with("POST / ") && request.ends_with("\r\n\r\nhello"), "{request}");
        let answered = answered.unwrap();
        assert!(!answered.went.pooled);
        assert_eq!(origin.dialled(), 2);
    }
}

/// It ends at the first read from here on, or the second, or a later one: at the look, between the look and the request,
/// or behind it. Whenever that is, the request goes out once, and where the dead one was given nothing, a fresh one takes
/// it, unless it was begun already.
#[tokio::test]
async fn one_that_dies_at_any_moment_never_makes_a_request_go_out_twice() {
    let mut replaced = 0;
    for reads_left in 0..6 {
        let (memory, mut origin) = memory(1 << 20);
        let countdown = Arc::new(AtomicUsize::new(usize::MAX));
        let connector = DiesLate { memory, reads_left: Arc::clone(&countdown), is_first: AtomicBool::new(true) };
        let forward = Arc::new(Forward::with_connector(connector, ForwardSettings::default()));
        let send = |hop| {
            let forward = Arc::clone(&forward);
            tokio::spawn(async move { forward.send(hop).await })
        };
        let sending = send(hop());
        let mut first = origin.accept().await;
        first.request().await;
        first.write(OK).await;
        read(sending.await.unwrap().unwrap()).await.unwrap();
        assert_eq!(forward.idle_connections(), 1);

        countdown.store(reads_left, Ordering::Relaxed);
        let mut post = hop();
        post.asked.method = Method::POST;
        post.body = whole("hello");
        let first = tokio::spawn(async move {
            let (mut had, mut buffer) = (Vec::new(), [0; 4096]);
            loop {
                let bytes = first.0.read(&mut buffer).await.unwrap();
                if bytes == 0 {
                    return had;
                }
                had.extend_from_slice(&buffer[..bytes]);
                first.write(OK).await;
            }
        });
        let mut sending = send(post);
        let outcome = tokio::select! {
            outcome = &mut sending => outcome.unwrap(),
            mut second = origin.accept() => {
                assert!(second.request().await.ends_with("hello"));
                second.write(OK).await;
                sending.await.unwrap()
            }
        };
        let outcome = match outcome {
            Ok(answered) if answered.went.pooled => {
                drop(answered);
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(fault) => Err(fault.state),
        };
        let had = first.await.unwrap();
        match outcome {
            Ok(false) => replaced += 1,
            Ok(true) | Err(_) => assert_eq!(origin.dialled(), 1, "{reads_left}"),
        }
        // The dead one was given all of it, or nothing.
        let was_sent = !matches!(outcome, Ok(false) | Err(SendState::NotSent));
        assert_eq!(had.ends_with(b"hello"), was_sent, "{reads_left}: {outcome:?}");
        assert_eq!(had.is_empty(), !was_sent, "{reads_left}: {outcome:?}");
    }
    assert!(replaced > 0);
}

/// As above, where the tenant may retry nothing any more: what the dead one gave back is told, and goes out nowhere.
#[tokio::test]
async fn what_a_dead_one_gave_back_goes_out_again_only_while_retries_are_left() {
    let mut kept_back = 0;
    for (reads_left, retries) in (0..6).flat_map(|reads_left| [(reads_left, 0), (reads_left, 1)]) {
        let (memory, mut origin) = memory(1 << 20);
        let countdown = Arc::new(AtomicUsize::new(usize::MAX));
        let connector = DiesLate { memory, reads_left: Arc::clone(&countdown), is_first: AtomicBool::new(true) };
        let forward = Arc::new(Forward::with_connector(connector, ForwardSettings::default()));
        let first = {
            let forward = Arc::clone(&forward);
            tokio::spawn(async move { forward.send(hop()).await })
        };
        let mut peer = origin.accept().await;
        peer.request().await;
        peer.write(OK).await;
        read(first.await.unwrap().unwrap()).await.unwrap();
        countdown.store(reads_left, Ordering::Relaxed);
        let mut next = hop();
        next.passage.permit = Arc::new(permit_with_retries(retries));
        let answers = tokio::spawn(async move {
            loop {
                let mut fresh = origin.accept().await;
                fresh.request().await;
                fresh.write(OK).await;
            }
        });
        let outcome = tokio::time::timeout(Duration::from_millis(300), forward.send(next)).await;
        answers.abort();
        match outcome {
            Ok(Err(fault)) if fault.state == SendState::NotSent && retries == 0 => kept_back += 1,
            Ok(Err(fault)) => assert_ne!(fault.state, SendState::NotSent, "{reads_left}, {retries}: {fault}"),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    assert!(kept_back > 0);
}

/// Nor is it spent what a dead one gave back, if its caller goes while another connection is being made.
#[tokio::test]
async fn what_a_dead_one_gave_back_is_not_spent_while_another_one_is_made() {
    for reads_left in 0..6 {
        let (memory, mut origin) = memory(1 << 20);
        let countdown = Arc::new(AtomicUsize::new(usize::MAX));
        let dies = DiesLate { memory, reads_left: Arc::clone(&countdown), is_first: AtomicBool::new(true) };
        let connector = Once { dies, is_made: AtomicBool::new(false) };
        let forward = Arc::new(Forward::with_connector(connector, ForwardSettings::default()));
        let first = {
            let forward = Arc::clone(&forward);
            tokio::spawn(async move { forward.send(hop()).await })
        };
        let mut peer = origin.accept().await;
        peer.request().await;
        peer.write(OK).await;
        read(first.await.unwrap().unwrap()).await.unwrap();
        countdown.store(reads_left, Ordering::Relaxed);
        let quota = quota();
        let route = one_call(&quota);
        let mut next = hop();
        next.passage.permit = Arc::new(permit_with_units(&quota, &route).await);
        let outcome = tokio::time::timeout(Duration::from_millis(200), forward.send(next)).await;
        let was_given = tokio::time::timeout(Duration::from_millis(20), peer.try_request()).await;
        if outcome.is_err() && !matches!(was_given, Ok(Some(_))) {
            drop(permit_with_units(&quota, &route).await);
        }
    }
}

/// Another connection than the first is never made.
#[derive(Debug)]
struct Once {
    dies: DiesLate,
    is_made: AtomicBool,
}

impl Connect for Once {
    type Stream = Dying;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<Dying>, ConnectFault> {
        if self.is_made.swap(true, Ordering::Relaxed) {
            return std::future::pending().await;
        }
        self.dies.connect(to, from).await
    }
}

/// The first connection ends after some more reads.
#[derive(Debug)]
struct DiesLate {
    memory: Memory,
    reads_left: Arc<AtomicUsize>,
    is_first: AtomicBool,
}

#[derive(Debug)]
struct Dying {
    stream: DuplexStream,
    reads_left: Arc<AtomicUsize>,
}

impl Connect for DiesLate {
    type Stream = Dying;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<Dying>, ConnectFault> {
        let Connected { stream, local } = self.memory.connect(to, from).await?;
        let is_first = self.is_first.swap(false, Ordering::Relaxed);
        let reads_left = if is_first { Arc::clone(&self.reads_left) } else { Arc::new(AtomicUsize::new(usize::MAX)) };
        Ok(Connected { stream: Dying { stream, reads_left }, local })
    }
}

impl AsyncRead for Dying {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.reads_left.load(Ordering::Relaxed) {
            usize::MAX => {}
            0 => return Poll::Ready(Ok(())),
            left => self.reads_left.store(left - 1, Ordering::Relaxed),
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dying {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The peer hangs up when it has seen the request: it may have acted on it, so nobody sends it again.
#[tokio::test]
async fn what_was_sent_is_never_sent_again() {
    let (forward, mut origin) = forward();
    let (_, answered, mut peer) = exchange(&forward, &mut origin, hop(), OK).await;
    read(answered.unwrap()).await.unwrap();
    let again = send(&forward, hop());
    peer.request().await;
    drop(peer);
    let fault = again.await.unwrap().unwrap_err();
    assert_eq!((fault.state, origin.dialled()), (SendState::SentNoResponse, 1));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_how_long_it_waits_is_believed() {
    let (forward, mut origin) = forward();
    let answer = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Length: 2\r\n\r\nok";
    let (_, answered, _peer) = exchange(&forward, &mut origin, hop(), answer).await;
    read(answered.unwrap()).await.unwrap();
    tokio::time::advance(Duration::from_millis(3_999)).await;
    forward.reap();
    assert_eq!(forward.idle_connections(), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    forward.reap();
    assert_eq!(forward.idle_connections(), 0);
}

#[tokio::test]
async fn nobody_else_gets_it() {
    let (forward, mut origin) = forward();
    let (_, answered, _first) = exchange(&forward, &mut origin, hop(), OK).await;
    read(answered.unwrap()).await.unwrap();
    let mut other_tenant = hop();
    other_tenant.tenant = TenantId::parse("other").unwrap();
    let mut with_credential = hop();
    with_credential.connection = Some(ConnectionId::parse("conn_1").unwrap());
    for other in [other_tenant, with_credential] {
        let (_, answered, _) = exchange(&forward, &mut origin, other, OK).await;
        assert!(!answered.unwrap().went.pooled);
    }
    assert_eq!(origin.dialled(), 3);
}

/// The rules have changed since it was dialled: its address is the appliance's own now.
#[tokio::test]
async fn an_address_that_would_not_be_vetted_now_is_not_used() {
    let (forward, mut origin) = forward();
    let (_, answered, mut peer) = exchange(&forward, &mut origin, hop(), OK).await;
    read(answered.unwrap()).await.unwrap();
    let mut changed = hop();
    changed.passage.rules = rules(&["93.184.216.34"]);
    let (_, answered, _) = exchange(&forward, &mut origin, changed, OK).await;
    assert!(!answered.unwrap().went.pooled);
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn each_answer_is_its_own_requests_under_load() {
    let (forward, mut origin) = forward();
    tokio::spawn(async move {
        loop {
            let mut peer = origin.accept().await;
            tokio::spawn(async move {
                // One request at a time: the answer is its path.
                let mut buffer = vec![0; 4096];
                loop {
                    let bytes = peer.0.read(&mut buffer).await.unwrap();
                    if bytes == 0 {
                        return;
                    }
                    let text = std::str::from_utf8(&buffer[..bytes]).unwrap();
                    let path = text.split(' ').nth(1).unwrap();
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
                    peer.write(answer).await;
                }
            });
        }
    });
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let forward = Arc::clone(&forward);
            tokio::spawn(async move {
                for number in 0..50 {
                    let mut hop = hop();
                    let path = format!("/{caller}/{number}");
                    hop.asked.path_and_query = path.as_str().into();
                    let answered = forward.send(hop).await.unwrap();
                    assert_eq!(read(answered).await.unwrap(), path);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert!((1..=64).contains(&forward.idle_connections()));
}
