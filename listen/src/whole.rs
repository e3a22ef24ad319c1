//! Properties of the whole stack, over a pipe that holds as little as one byte. Pingora's own HTTP session, which this
//! crate does without, is the second opinion.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use config::Listener;
use domain::Refusal;
use pingora_core::protocols::http::v1::server::HttpSession;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use crate::testing::{converse_through, exchange, peer};
use crate::{Answer, Exchange, Handler, Reply};

/// Reads every body and keeps those that were whole.
#[derive(Debug, Default)]
struct Keeper {
    bodies: Mutex<Vec<Vec<u8>>>,
}

#[async_trait]
impl Handler for Keeper {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        let answer = match exchange.body(100_000, &mut |_| true).await {
            Ok(body) => {
                self.bodies.lock().unwrap().push(body.to_vec());
                Answer::new(202).with_body("text/plain", body)
            }
            Err(refusal) => self.refused(exchange.peer(), refusal),
        };
        answer.into()
    }

    fn refused(&self, _: SocketAddr, refusal: Refusal) -> Answer {
        Answer::new(400).with_body("text/plain", refusal.code())
    }
}

/// Bodies that were taken for whole, and everything that was answered, without dates.
fn conversation(bytes: &[u8], pipe_bytes: usize) -> (Vec<Vec<u8>>, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let keeper = Arc::new(Keeper::default());
    let settings = Listener::default();
    let answers = runtime.block_on(converse_through(pipe_bytes, bytes, settings, Arc::clone(&keeper) as _));
    let answers = String::from_utf8_lossy(&answers).into_owned();
    let dateless = answers.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: ")).collect();
    let bodies = std::mem::take(&mut *keeper.bodies.lock().unwrap());
    (bodies, dateless)
}

const CHUNKED: &str = "POST /h HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunked(body: &[u8], pieces: usize) -> Vec<u8> {
    let mut bytes = CHUNKED.as_bytes().to_vec();
    for (count, piece) in body.chunks(pieces).enumerate() {
        // Extensions are bounded, all of a message's together.
        let extension = if count < 20 { ";a=b" } else { "" };
        bytes.extend_from_slice(format!("{:X}{extension}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\nX: y\r\n\r\n");
    bytes
}

fn counted(body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("POST /h HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_truncated_body_is_never_whole() {
    let body: Vec<u8> = (0..90).collect();
    for whole in [chunked(&body, 7), chunked(&body, 90), counted(&body)] {
        let (bodies, _) = conversation(&whole, 1 << 20);
        assert_eq!(bodies, std::slice::from_ref(&body));
        for cut in 0..whole.len() {
            for pipe in [1, 1 << 20] {
                let (bodies, answers) = conversation(&whole[..cut], pipe);
                assert!(bodies.is_empty(), "cut at {cut}");
                assert_eq!(answers.is_empty(), cut == 0, "cut at {cut}: {answers}");
                assert!(
                    answers.is_empty() || answers.contains("HTTP/1.1 400 ") && answers.contains("onnection: close")
                );
            }
        }
    }
}

#[test]
fn broken_framing_is_never_whole() {
    for broken in [
        "5\r\nhello\r\n\r\n",
        "\r\n\r\n",
        "5\r\nhello\r\n0\r\nXX",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5;a=\0\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
    ] {
        for pipe in [1, 3, 1 << 20] {
            let (bodies, answers) = conversation(format!("{CHUNKED}{broken}").as_bytes(), pipe);
            assert!(bodies.is_empty(), "{broken:?}");
            assert_eq!(answers.matches("HTTP/1.1 400").count(), 1, "{broken:?}: {answers}");
        }
    }
}

#[test]
fn large_bodies_come_whole() {
    let body: Vec<u8> = (0..99_999_u32).map(|at| (at % 251) as u8).collect();
    for whole in [chunked(&body, 10), chunked(&body, 70_000), counted(&body)] {
        for pipe in [1000, 9_000, 1 << 20] {
            assert!(conversation(&whole, pipe).0 == [body.clone()]);
        }
    }
    let too_large = vec![0; 100_001];
    for whole in [chunked(&too_large, 1000), counted(&too_large)] {
        let (bodies, answers) = conversation(&whole, 1 << 20);
        assert!(bodies.is_empty() && answers.ends_with("body-too-large"), "{answers}");
    }
}

#[tokio::test]
async fn memory_is_reserved_before_it_is_used() {
    let body = vec![7; 300_000];
    let body_bytes = body.len() as u64;
    for bytes in [chunked(&body, 1000), counted(&body)] {
        // Nothing of the body has come when it is asked for the first time.
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let ask = async |budget: u64| {
            let (mut exchange, mut client) =
                exchange(&bytes[..head], peer(), Arc::new(Keeper::default())).await.unwrap();
            client.write_all(&bytes[head..]).await.unwrap();
            let mut asked = Vec::new();
            let read = exchange
                .body(1_000_000, &mut |bytes| {
                    asked.push(bytes);
                    asked.iter().sum::<u64>() <= budget
                })
                .await;
            let again = exchange.body(1_000_000, &mut |_| true).await;
            assert_eq!(again, Err(read.as_ref().map_or_else(|refusal| *refusal, |_| Refusal::Internal)));
            (read, asked)
        };
        let (read, asked) = ask(1_000_000).await;
        assert_eq!(read.unwrap().len() as u64, body_bytes);
        let (most, all) = (asked.iter().max().unwrap(), asked.iter().sum::<u64>());
        assert!(*most <= 64 * 1024 && (body_bytes..body_bytes + 16 * 1024).contains(&all), "{most} {all}");
        assert_eq!(ask(100_000).await.0, Err(Refusal::Overloaded));
        let (read, asked) = ask(0).await;
        assert_eq!((read, asked.len()), (Err(Refusal::Overloaded), 1), "asked before anything was read");
    }
}

#[tokio::test]
async fn there_is_one_body_to_give_away() {
    let (mut exchange, client) = exchange(&counted(b"once"), peer(), Arc::new(Keeper::default())).await.unwrap();
    assert_eq!(exchange.peer(), peer());
    assert_eq!(&exchange.body(10, &mut |_| true).await.unwrap()[..], b"once");
    assert_eq!(exchange.body(10, &mut |_| true).await, Err(Refusal::Internal));
    drop(client);
}

#[tokio::test]
async fn a_body_that_was_given_up_is_not_begun_again() {
    let bytes = counted(b"all of it");
    let (part, rest) = bytes.split_at(bytes.len() - 4);
    let (mut exchange, mut client) = exchange(part, peer(), Arc::new(Keeper::default())).await.unwrap();
    let giving_up = tokio::time::timeout(std::time::Duration::from_millis(20), exchange.body(100, &mut |_| true)).await;
    assert!(giving_up.is_err());
    client.write_all(rest).await.unwrap();
    assert_eq!(exchange.body(100, &mut |_| true).await, Err(Refusal::Internal));
}

#[tokio::test]
async fn a_refused_head_is_no_exchange() {
    let refused = exchange(b"GET / HTTP/1.1\r\n\r\n", peer(), Arc::new(Keeper::default())).await;
    assert_eq!(refused.err(), Some(Refusal::MalformedRequest));
}

/// A few messages in a row, and where they end.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(any::<u8>(), 0..200);
    let one = (body, 1..50_usize, 0..3_u8).prop_map(|(body, pieces, kind)| match kind {
        0 => counted(&body),
        1 => chunked(&body, pieces),
        _ => b"GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
    });
    prop::collection::vec(one, 1..4).prop_map(|messages| messages.concat())
}

/// The body of the first message as Pingora's session reads it; None where it finds none that is whole.
async fn as_pingora_reads(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    client.write_all(bytes).await.unwrap();
    drop(client);
    let mut session = HttpSession::new(Box::new(server));
    session.read_request().await.ok()??;
    let mut body = Vec::new();
    while let Some(part) = session.read_body_bytes().await.ok()? {
        body.extend_from_slice(&part);
    }
    Some(body)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_body_that_is_whole_here_is_the_same_body_there(
        mut bytes in messages(),
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![prop::sample::select(b"\r\n\0 ;:,0".to_vec()), any::<u8>()],
        broken: bool,
    ) {
        if broken {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        if let Some(first) = conversation(&bytes, 1 << 20).0.first() {
            let theirs = runtime.block_on(as_pingora_reads(&bytes));
            prop_assert_eq!(theirs.as_ref(), Some(first), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn how_messages_are_cut_changes_no_answer(bytes in messages(), pipe in 1..300_usize) {
        let at_once = conversation(&bytes, 1 << 20);
        prop_assert_eq!(&conversation(&bytes, 1), &at_once);
        prop_assert_eq!(&conversation(&bytes, pipe), &at_once);
    }

    #[test]
    fn how_broken_messages_are_cut_changes_no_answer(
        mut bytes in messages(),
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![prop::sample::select(b"\r\n\0 ;:,0".to_vec()), any::<u8>()],
        pipe in 1..300_usize,
    ) {
        let at = place.index(bytes.len());
        bytes[at] = byte;
        let at_once = conversation(&bytes, 1 << 20);
        prop_assert_eq!(&conversation(&bytes, 1), &at_once);
        prop_assert_eq!(&conversation(&bytes, pipe), &at_once);
    }
}
