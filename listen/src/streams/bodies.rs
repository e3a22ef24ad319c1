use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::*;
use crate::testing::{exchange_of, peer};
use crate::{BodyError, Interrupted};

/// Answers with the body, which a task of its own reads.
fn read_elsewhere(exchange: &mut Exchange) -> BoxFuture<'_, Reply> {
    Box::pin(async {
        let body = match exchange.body_stream(1_000_000) {
            Ok(body) => body,
            Err(refusal) => return Answer::new(413).with_body("text/plain", refusal.code()).into(),
        };
        let reading = tokio::spawn(collect(body));
        match exchange.drive(reading).await.unwrap().unwrap() {
            (all, Ok(())) => Answer::new(200).with_body("text/plain", all).into(),
            (all, Err(error)) => {
                assert_eq!(exchange.body_failure(), Some(error));
                Answer::new(400).with_body("text/plain", format!("{} {error}", all.len())).into()
            }
        }
    })
}

fn chunked(body: &[u8], pieces: usize) -> Vec<u8> {
    let mut bytes = b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in body.chunks(pieces) {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\nX-Trailer: dropped\r\n\r\n");
    bytes
}

fn counted(body: &[u8], fields: &str) -> Vec<u8> {
    let mut bytes =
        format!("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}Content-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

const NEXT: &[u8] = b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

/// What a client is answered that sends `bytes` in `pieces`, each as soon as there is room.
async fn converse(bytes: Vec<u8>, pipe_bytes: usize, pieces: usize) -> String {
    let (client, serving) = serve(pipe_bytes, PROXY, read_elsewhere);
    let (mut reading, mut writing) = tokio::io::split(client);
    let sending = async move {
        for piece in bytes.chunks(pieces.max(1)) {
            // Who is refused may not get to send it all.
            let _sent = writing.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _closed = writing.shutdown().await;
    };
    let mut answers = Vec::new();
    let ((), read) = tokio::join!(sending, reading.read_to_end(&mut answers));
    read.unwrap();
    serving.await.unwrap();
    String::from_utf8_lossy(&answers).into_owned()
}

fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn however_it_is_cut_a_streamed_body_arrives_as_it_was_sent(
        length in prop_oneof![0..300_usize, 0..200_000_usize],
        chunks in prop_oneof![1..50_usize, 1000..100_000_usize],
        pipe in prop_oneof![1..100_usize, 5000..100_000_usize],
        pieces in prop_oneof![1..50_usize, 1000..100_000_usize],
        is_chunked: bool,
    ) {
        // Small steps are for small bodies.
        let length = if chunks.min(pipe).min(pieces) < 1000 { length % 3000 } else { length };
        let body: Vec<u8> = (0..length).map(|at| b'a' + u8::try_from(at % 23).unwrap()).collect();
        let mut bytes = if is_chunked { chunked(&body, chunks) } else { counted(&body, "") };
        bytes.extend_from_slice(NEXT);
        let answers = in_runtime(converse(bytes, pipe, pieces));
        let (first, rest) = answers.split_once("\r\n\r\n").unwrap();
        prop_assert!(first.starts_with("HTTP/1.1 200 "), "{}", first);
        prop_assert_eq!(rest.as_bytes().get(..length), Some(&body[..]));
        prop_assert!(rest[length..].starts_with("HTTP/1.1 200 "), "{}", rest);
    }

    #[test]
    fn a_body_that_is_cut_short_or_broken_never_ends_well(
        length in 1..2000_usize,
        place in any::<prop::sample::Index>(),
        is_chunked: bool,
        pipe in 1..3000_usize,
    ) {
        let body = vec![b'x'; length];
        let bytes = if is_chunked { chunked(&body, 300) } else { counted(&body, "") };
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let cut = head + place.index(bytes.len() - head);
        let answers = in_runtime(converse(bytes[..cut].to_vec(), pipe, 1 << 20));
        prop_assert!(answers.starts_with("HTTP/1.1 400 "), "{}", answers);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_is_refused_before_or_while_it_comes() {
    let told = converse(counted(&vec![b'x'; 1_000_001], ""), 1000, 5000).await;
    assert!(told.starts_with("HTTP/1.1 413 ") && told.ends_with("body-too-large"), "{told}");
    let found = converse([chunked(&vec![b'x'; 1_000_001], 70_000), NEXT.to_vec()].concat(), 1000, 5000).await;
    assert!(found.starts_with("HTTP/1.1 400 ") && found.contains("body-too-large"), "{found}");
    assert_eq!(found.matches("HTTP/1.1").count(), 1, "nothing is run behind it");
}

#[tokio::test(start_paused = true)]
async fn continue_is_sent_when_the_body_is_first_wanted() {
    let (mut client, _serving) = serve(4096, PROXY, |exchange| {
        Box::pin(async {
            let body = exchange.body_stream(1000).unwrap();
            assert_eq!(body.size_hint().exact(), Some(2));
            let began = Instant::now();
            // Not yet.
            exchange.drive(tokio::time::sleep(Duration::from_secs(30))).await.unwrap();
            let (all, end) = exchange.drive(collect(body)).await.unwrap();
            end.unwrap();
            Answer::new(200).with_body("text/plain", format!("{all:?} {:?}", began.elapsed())).into()
        })
    });
    let whole = counted(b"hi", "Expect: 100-continue\r\n");
    client.write_all(&whole[..whole.len() - 2]).await.unwrap();
    let began = Instant::now();
    assert_eq!(read_to(&mut client, b"\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(began.elapsed().as_secs(), 30);
    client.write_all(b"hi").await.unwrap();
    assert!(read_to(&mut client, b"s").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test(start_paused = true)]
async fn continue_is_not_sent_to_a_body_that_nobody_wants() {
    let (mut client, _serving) = serve(4096, PROXY, |exchange| {
        Box::pin(async {
            let _body = exchange.body_stream(1000).unwrap();
            Answer::new(403).into()
        })
    });
    let whole = counted(b"hi", "Expect: 100-continue\r\n");
    client.write_all(&whole[..whole.len() - 2]).await.unwrap();
    let answer = read_all(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("Connection: close"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_slow_holds_the_client_up_and_memory_is_bounded() {
    let pipe_bytes = 10_000;
    let (client, _serving) = serve(pipe_bytes, PROXY, |exchange| {
        Box::pin(async {
            let mut body = Box::pin(exchange.body_stream(10_000_000).unwrap());
            let first = exchange.drive(poll_fn(|cx| body.as_mut().poll_frame(cx))).await.unwrap().unwrap().unwrap();
            // Far longer than the listener's bounds for a client that is slow: this one is not.
            exchange.drive(tokio::time::sleep(Duration::from_hours(1))).await.unwrap();
            let (rest, end) = exchange.drive(collect(body)).await.unwrap();
            end.unwrap();
            let all = first.into_data().unwrap().len() + rest.len();
            Answer::new(200).with_body("text/plain", all.to_string()).into()
        })
    });
    let (mut reading, mut writing) = tokio::io::split(client);
    let sent = Arc::new(Mutex::new(0));
    let counting = Arc::clone(&sent);
    let sending = tokio::spawn(async move {
        let bytes = chunked(&vec![b'x'; 5_000_000], 100_000);
        for piece in bytes.chunks(1000) {
            writing.write_all(piece).await.unwrap();
            *counting.lock().unwrap() += piece.len();
        }
        writing
    });
    tokio::time::sleep(Duration::from_mins(30)).await;
    let held = *sent.lock().unwrap();
    assert!(held < 3 * 64 * 1024 + pipe_bytes, "{held}");
    let _writing = sending.await.unwrap();
    let mut answer = [0; 1000];
    let read = reading.read(&mut answer).await.unwrap();
    assert!(answer[..read].ends_with(b"5000000"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_slow_is_refused() {
    let (mut client, _serving) = serve(4096, PROXY, read_elsewhere);
    let began = Instant::now();
    client.write_all(b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nhi").await.unwrap();
    let answer = read_all(&mut client).await;
    assert!(answer.contains("body-timeout"), "{answer}");
    let grace = Listener::default().body_rate_grace;
    assert!(began.elapsed() >= grace && began.elapsed() < 2 * grace, "{:?}", began.elapsed());
}

const ASKED: &[u8] = b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";

async fn asked(behaviour: Behaviour, bytes: &[u8]) -> (Exchange, DuplexStream) {
    exchange_of(behaviour, bytes, peer(), with(read_elsewhere)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_is_noticed_and_one_that_only_stops_sending_is_answered() {
    let wait = tokio::time::sleep(Duration::from_mins(1));
    let (mut exchange, client) = asked(Behaviour { half_close: HalfClose::Gone, ..PROXY }, ASKED).await;
    drop(client);
    assert_eq!(exchange.drive(wait).await, Err(Interrupted::Gone));
    assert_eq!(exchange.drive(std::future::pending::<()>()).await, Err(Interrupted::Gone), "and stays so");

    let wait = tokio::time::sleep(Duration::from_mins(1));
    let (mut exchange, mut client) = asked(PROXY, ASKED).await;
    client.shutdown().await.unwrap();
    assert_eq!(exchange.drive(wait).await, Ok(()));
    let late = exchange.drive_within(Duration::from_secs(7), std::future::pending::<()>()).await;
    assert_eq!(late, Err(Interrupted::Elapsed));
}

#[tokio::test(start_paused = true)]
async fn what_is_pipelined_meanwhile_is_not_lost() {
    let (mut client, _serving) = serve(1 << 20, PROXY, |exchange| {
        Box::pin(async {
            let path = exchange.head().path().to_owned();
            exchange.drive(tokio::time::sleep(Duration::from_secs(1))).await.unwrap();
            Answer::new(200).with_header("X-Path", path).into()
        })
    });
    let mut wanted = Vec::new();
    for at in 0..300 {
        let ask = format!("GET http://a.test/{at} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        client.write_all(ask.as_bytes()).await.unwrap();
        wanted.push(format!("/{at}"));
    }
    client.shutdown().await.unwrap();
    let answers = read_all(&mut client).await;
    let got: Vec<_> = answers.lines().filter_map(|line| line.strip_prefix("X-Path: ")).collect();
    assert_eq!(got, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_given_out_once_and_ends_with_its_exchange() {
    let (mut exchange, _client) = asked(PROXY, &counted(b"hi", "")).await;
    let body = exchange.body_stream(10).unwrap();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(2), false));
    assert_eq!(collect(body).await, (b"hi".to_vec(), Ok(())));
    assert_eq!(exchange.body_stream(10).err(), Some(Refusal::Internal));
    assert_eq!(exchange.body(10, &mut |_| true).await, Err(Refusal::Internal));

    let (mut exchange, _client) = asked(PROXY, ASKED).await;
    assert!(exchange.body_stream(10).unwrap().is_end_stream(), "there is none");

    let (mut exchange, _client) = asked(PROXY, &counted(b"hello", "")[..68]).await;
    let body = exchange.body_stream(10).unwrap();
    drop(exchange);
    assert_eq!(collect(body).await.1, Err(BodyError::GivenUp));
}

#[tokio::test(start_paused = true)]
async fn driving_may_be_given_up_at_any_moment() {
    let body: Vec<u8> = (0..30_000_u32).map(|at| (at % 251) as u8).collect();
    let (mut exchange, client) = asked(PROXY, &chunked(&body, 7000)[..74]).await;
    let (_reading, mut writing) = tokio::io::split(client);
    let rest = chunked(&body, 7000).split_off(74);
    let sending = tokio::spawn(async move {
        for piece in rest.chunks(613) {
            writing.write_all(piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let mut reading = tokio::spawn(collect(exchange.body_stream(100_000).unwrap()));
    let (all, end) = loop {
        if let Ok(read) = exchange.drive_within(Duration::from_millis(3), &mut reading).await {
            break read.unwrap();
        }
    };
    assert!(all == body && end == Ok(()));
    sending.await.unwrap();
}
