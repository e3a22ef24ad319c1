use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use http::{HeaderMap, HeaderValue, StatusCode};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;
use crate::{BodyError, Ended, Ending, Halt, Streamed};

const ASKED: &str = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// A request, and how its answer ended.
struct Asked {
    client: DuplexStream,
    ended: oneshot::Receiver<Ended>,
}

/// Asks for what `body` is, answered with these fields.
async fn ask(behaviour: Behaviour, ask: &str, status: u16, fields: &'static [(&str, &str)], body: Channel) -> Asked {
    let (tell, ended) = oneshot::channel();
    let given = Mutex::new(Some((body, tell)));
    let (mut client, _serving) = serve(PIPE_BYTES, behaviour, move |_| {
        let Some((body, tell)) = given.lock().unwrap().take() else {
            return Box::pin(async { Answer::new(404).into() });
        };
        let mut response = http::Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let streamed = Streamed::new(response.body(body).unwrap());
        Box::pin(async {
            streamed
                .on_end(|ended| {
                    let _told = tell.send(ended);
                })
                .into()
        })
    });
    client.write_all(ask.as_bytes()).await.unwrap();
    Asked { client, ended }
}

const PIPE_BYTES: usize = 1 << 20;

/// A body of these parts, all of them ready.
async fn ready(length: Option<u64>, parts: &[&'static str]) -> Channel {
    let (frames, body) = channel(length);
    for part in parts {
        frames.send(Ok(data(*part))).await.unwrap();
    }
    body
}

/// The head without its date, and what follows.
fn split(answer: &str) -> (String, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.split("\r\n").filter(|line| !line.starts_with("Date: ")).collect::<Vec<_>>().join("|"), body)
}

/// Asks twice, so that one sees where the first answer ends, and reads to the end.
async fn answered(first: &str, status: u16, fields: &'static [(&str, &str)], body: Channel) -> (String, Ended) {
    let mut asked = ask(PROXY, &format!("{first}{ASKED}"), status, fields, body).await;
    asked.client.shutdown().await.unwrap();
    let answer = read_all(&mut asked.client).await;
    (answer, asked.ended.await.unwrap())
}

const SECOND: &str = "HTTP/1.1 404 Not Found";

#[tokio::test(start_paused = true)]
async fn a_body_without_a_length_is_chunked_and_fields_go_out_as_they_came() {
    let fields = &[
        ("Set-Cookie", "a=1"),
        ("Connection", "x-b"),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "gzip"),
        ("X-B", "2"),
        ("Set-Cookie", "c=\u{e9}"),
    ];
    let (answer, ended) = answered(ASKED, 207, fields, ready(None, &["hello", "", " world"]).await).await;
    let (head, rest) = split(&answer);
    let fields = "set-cookie: a=1|set-cookie: c=\u{e9}|x-b: 2";
    assert_eq!(head, format!("HTTP/1.1 207 Multi-Status|Connection: keep-alive|Transfer-Encoding: chunked|{fields}"));
    assert!(rest.starts_with(&format!("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n{SECOND}")), "{rest}");
    assert_eq!(ended, Ended { bytes: 11, how: Ending::Whole });
}

#[tokio::test(start_paused = true)]
async fn behind_the_answer_to_whoever_is_distrusted_the_connection_ends() {
    let (mut client, _serving) = serve(PIPE_BYTES, PROXY, |exchange| {
        exchange.distrust();
        Box::pin(async { Streamed::new(http::Response::new(ready(Some(2), &["ok"]).await)).into() })
    });
    client.write_all(format!("{ASKED}{ASKED}").as_bytes()).await.unwrap();
    let answer = read_all(&mut client).await;
    assert_eq!(split(&answer), ("HTTP/1.1 200 OK|Connection: close|Content-Length: 2".to_owned(), "ok"));
}

#[tokio::test(start_paused = true)]
async fn a_length_is_the_bodys_or_the_one_that_was_told() {
    let told: &[(&str, &str)] = &[("Content-Length", "5"), ("Date", "yesterday")];
    for (fields, size) in [(&[][..], Some(5)), (told, None), (told, Some(5))] {
        let (answer, ended) = answered(ASKED, 200, fields, ready(size, &["hel", "lo"]).await).await;
        let (head, rest) = split(&answer);
        assert!(head.starts_with("HTTP/1.1 200 OK|Connection: keep-alive|Content-Length: 5"), "{head}");
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().0.to_lowercase().matches("date: ").count(), 1);
        assert!(rest.starts_with(&format!("hello{SECOND}")), "{rest}");
        assert_eq!(ended, Ended { bytes: 5, how: Ending::Whole });
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_body_may_be_there_is_none() {
    let head = ASKED.replace("GET", "HEAD");
    let length: &[(&str, &str)] = &[("Content-Length", "5")];
    for (ask, status, fields, told) in [
        (&head[..], 200, length, true),
        (&head, 200, &[], false),
        (ASKED, 304, length, true),
        (ASKED, 304, &[], false),
        (ASKED, 204, length, false),
    ] {
        // It never ends, and does not have to.
        let (_frames, body) = channel(None);
        let (answer, ended) = answered(ask, status, fields, body).await;
        let (head, rest) = split(&answer);
        assert_eq!(head.contains("Content-Length: 5"), told, "{head}");
        assert!(!head.contains("Transfer-Encoding") && rest.starts_with(SECOND), "{answer}");
        assert_eq!(ended, Ended { bytes: 0, how: Ending::Whole });
    }
}

#[tokio::test(start_paused = true)]
async fn to_http_1_0_a_body_without_a_length_ends_with_the_connection() {
    let (answer, ended) =
        answered(&ASKED.replace("/1.1", "/1.0"), 200, &[], ready(None, &["hello ", "world"]).await).await;
    let (head, rest) = split(&answer);
    assert_eq!((&head[..], rest), ("HTTP/1.1 200 OK|Connection: close", "hello world"));
    assert_eq!(ended.how, Ending::Whole);
}

#[tokio::test(start_paused = true)]
async fn trailers_go_to_those_who_ask_for_them() {
    for (te, passed) in [("TE: deflate, Trailers\r\n", true), ("", false)] {
        let (frames, body) = channel(None);
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "content-length", "set-cookie", "transfer-encoding"] {
            trailers.insert(name, HeaderValue::from_static("1"));
        }
        frames.send(Ok(data("x"))).await.unwrap();
        frames.send(Ok(Frame::trailers(trailers))).await.unwrap();
        drop(frames);
        let ask = ASKED.replace("Host", &format!("{te}Host"));
        let (answer, _) = answered(&ask, 200, &[], body).await;
        let end = if passed { "0\r\nx-sum: 1\r\n\r\n" } else { "0\r\n\r\n" };
        assert!(split(&answer).1.starts_with(&format!("1\r\nx\r\n{end}{SECOND}")), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_is_never_whole() {
    let failing = async |length, parts: &[&'static str], fails: bool| {
        let (frames, body) = channel(length);
        for part in parts {
            frames.send(Ok(data(*part))).await.unwrap();
        }
        if fails {
            frames.send(Err("upstream".into())).await.unwrap();
        }
        body
    };
    for (body, sent) in [
        (failing(None, &["hello"], true).await, "5\r\nhello\r\n"),
        (failing(Some(9), &["hello"], true).await, "hello"),
        (failing(Some(9), &["hello"], false).await, "hello"),
        (failing(Some(9), &["hello", "world"], false).await, "hello"),
    ] {
        let (answer, ended) = answered(ASKED, 200, &[], body).await;
        assert_eq!(split(&answer).1, sent, "and nothing behind it");
        assert_eq!(ended, Ended { bytes: 5, how: Ending::BodyFailed });
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_together_leaves_together_and_nothing_waits_for_more() {
    let (frames, body) = channel(None);
    frames.send(Ok(data("data: 1\n\n"))).await.unwrap();
    let mut asked = ask(PROXY, ASKED, 200, &[("content-type", "text/event-stream")], body).await;
    let mut space = [0; 4096];
    // Head and first event in one read: they were written together.
    let read = asked.client.read(&mut space).await.unwrap();
    assert!(std::str::from_utf8(&space[..read]).unwrap().ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n"));
    let began = Instant::now();
    for events in [1, 2, 3].repeat(40) {
        tokio::time::sleep(Duration::from_secs(30)).await;
        for _ in 0..events {
            frames.send(Ok(data("data: 2\n\n"))).await.unwrap();
        }
        let read = asked.client.read(&mut space).await.unwrap();
        assert_eq!(read, 14 * events);
    }
    assert_eq!(began.elapsed(), Duration::from_hours(1), "each came at once");
    drop(frames);
    assert_eq!(asked.client.read(&mut space).await.unwrap(), 5);
    assert_eq!(asked.ended.await.unwrap(), Ended { bytes: 9 * 241, how: Ending::Whole });
}

#[tokio::test(start_paused = true)]
async fn a_head_does_not_wait_for_its_body() {
    let (frames, body) = channel(Some(5));
    let mut asked = ask(PROXY, ASKED, 200, &[], body).await;
    assert!(read_to(&mut asked.client, b"\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    frames.send(Ok(data("hello"))).await.unwrap();
    assert_eq!(read_to(&mut asked.client, b"o").await, "hello");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_gives_nothing_for_too_long_is_given_up() {
    let (frames, body) = channel(None);
    let mut asked = ask(PROXY, ASKED, 200, &[], body).await;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(50)).await;
    frames.send(Ok(data("x"))).await.unwrap();
    assert!(!read_all(&mut asked.client).await.contains("0\r\n\r\n"));
    assert_eq!(began.elapsed().as_secs(), 110, "a minute since it last gave something");
    assert_eq!(asked.ended.await.unwrap(), Ended { bytes: 1, how: Ending::BodyIdle });
    assert!(frames.is_closed(), "and nobody asks it for more");
}

#[tokio::test(start_paused = true)]
async fn a_client_may_be_slow_but_not_stand_still() {
    let large = Bytes::from(vec![b'x'; 3 * PIPE_BYTES]);
    let size = large.len() as u64;
    let (frames, body) = channel(Some(size));
    frames.send(Ok(Frame::data(large.clone()))).await.unwrap();
    let mut asked = ask(PROXY, ASKED, 200, &[], body).await;
    read_to(&mut asked.client, b"\r\n\r\n").await;
    let limit = Listener::default().write_timeout;
    let mut read = 0;
    let mut space = vec![0; PIPE_BYTES / 4];
    while read < large.len() {
        tokio::time::sleep(limit * 9 / 10).await;
        read += asked.client.read(&mut space).await.unwrap();
    }
    drop(frames);
    assert_eq!(asked.ended.await.unwrap(), Ended { bytes: size, how: Ending::Whole });

    let (frames, body) = channel(Some(size));
    frames.send(Ok(Frame::data(large))).await.unwrap();
    let asked = ask(PROXY, ASKED, 200, &[], body).await;
    let began = Instant::now();
    let ended = asked.ended.await.unwrap();
    assert!(ended.how == Ending::ClientStalled && ended.bytes < size, "{ended:?}");
    assert!(began.elapsed() >= limit && began.elapsed() < 2 * limit);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_ends_the_stream() {
    let gone = Behaviour { half_close: HalfClose::Gone, ..PROXY };
    let (frames, body) = channel(None);
    let mut asked = ask(gone, ASKED, 200, &[], body).await;
    read_to(&mut asked.client, b"\r\n\r\n").await;
    drop(asked.client);
    assert_eq!(asked.ended.await.unwrap(), Ended { bytes: 0, how: Ending::ClientGone });
    assert!(frames.is_closed());

    // Where half-closing is none, it is found out when something is written.
    let (frames, body) = channel(None);
    let mut asked = ask(PROXY, ASKED, 200, &[], body).await;
    read_to(&mut asked.client, b"\r\n\r\n").await;
    drop(asked.client);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!frames.is_closed());
    frames.send(Ok(data("x"))).await.unwrap();
    assert_eq!(asked.ended.await.unwrap().how, Ending::ClientGone);
}

/// Ends an answer when it is told to.
#[derive(Default)]
struct Switch {
    is_thrown: AtomicBool,
    waker: AtomicWaker,
    wakers: AtomicUsize,
}

impl Switch {
    fn throw(&self) {
        self.is_thrown.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

impl Halt for Switch {
    fn wakes(&self, waker: &Waker) {
        self.wakers.fetch_add(1, Ordering::SeqCst);
        self.waker.register(waker);
    }

    fn has_come(&self) -> bool {
        self.is_thrown.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_when_that_is_said_from_outside() {
    // While its body says nothing; while its client takes nothing of what waits for it.
    for (given, reads) in [(5, true), (3 * PIPE_BYTES, false)] {
        let (switch, (tell, ended)) = (Arc::new(Switch::default()), oneshot::channel());
        let (frames, body) = channel(None);
        let (halt, given_out) = (Arc::clone(&switch), Mutex::new(Some((body, tell))));
        let (mut client, _serving) = serve(PIPE_BYTES, PROXY, move |_| {
            let (body, tell) = given_out.lock().unwrap().take().unwrap();
            let streamed = Streamed::new(http::Response::new(body)).halted_by(Arc::clone(&halt) as _);
            Box::pin(async { streamed.on_end(|ended| tell.send(ended).unwrap()).into() })
        });
        client.write_all(ASKED.as_bytes()).await.unwrap();
        frames.send(Ok(Frame::data(Bytes::from(vec![b'x'; given])))).await.unwrap();
        if reads {
            read_to(&mut client, b"xxxxx\r\n").await;
            frames.send(Ok(data("more"))).await.unwrap();
            read_to(&mut client, b"more\r\n").await;
        } else {
            read_to(&mut client, b"\r\n\r\n").await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        switch.throw();
        assert_eq!(ended.await.unwrap().how, Ending::Halted);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(frames.is_closed(), "and nobody asks it for more");
        assert!(!read_all(&mut client).await.ends_with("0\r\n\r\n"), "it is not whole");
        assert_eq!(switch.wakers.load(Ordering::SeqCst), 1, "the task is told of once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_body_costs_one_connection() {
    struct Panics;
    impl Body for Panics {
        type Data = Bytes;
        type Error = BoxError;
        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            panic!("asked to")
        }
    }
    let (mut client, serving) =
        serve(PIPE_BYTES, PROXY, |_| Box::pin(async { Streamed::new(http::Response::new(Panics)).into() }));
    client.write_all(ASKED.as_bytes()).await.unwrap();
    assert!(read_all(&mut client).await.ends_with("\r\n\r\n"), "a head, and no end of a body");
    serving.await.unwrap();
}

/// Answers with what it is sent, as it comes.
fn echo(exchange: &mut Exchange) -> BoxFuture<'_, Reply> {
    let body = exchange.body_stream(100_000_000).unwrap();
    Box::pin(async { Streamed::new(http::Response::new(body)).into() })
}

async fn echoed(pipe_bytes: usize, ask: Vec<u8>) -> String {
    let (client, serving) = serve(pipe_bytes, PROXY, echo);
    let (mut reading, mut writing) = tokio::io::split(client);
    let sending = async move {
        writing.write_all(&ask).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    let mut all = Vec::new();
    let ((), read) = tokio::join!(sending, reading.read_to_end(&mut all));
    read.unwrap();
    serving.await.unwrap();
    String::from_utf8(all).unwrap()
}

fn post(length: usize, fields: &str) -> String {
    format!("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}Content-Length: {length}\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn an_echo_works_with_any_number_of_bytes() {
    let body = "0123456789".repeat(2_000_000);
    let answer = echoed(10_000, format!("{}{body}{ASKED}", post(body.len(), "")).into_bytes()).await;
    let (head, rest) = split(&answer);
    assert!(head.ends_with("Content-Length: 20000000"), "{head}");
    assert!(rest.starts_with(&body) && rest[body.len()..].starts_with("HTTP/1.1 200 "));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn an_echo_is_what_was_sent(length in 0..20_000_usize, chunk in 1..3000_usize, pipe in 1..9000_usize) {
        let body: String = (0..length).map(|at| char::from(b'a' + u8::try_from(at % 23).unwrap())).collect();
        let mut bytes = b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in body.as_bytes().chunks(chunk) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let answer = runtime.block_on(echoed(pipe.max(length / 500), bytes));
        let (head, mut rest) = split(&answer);
        prop_assert!(head.ends_with("Transfer-Encoding: chunked"), "{}", head);
        let mut all = String::new();
        while let Some((size, behind)) = rest.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).unwrap();
            all.push_str(&behind[..size]);
            rest = behind[size..].strip_prefix("\r\n").unwrap();
            if size == 0 {
                break;
            }
        }
        prop_assert!(rest.is_empty() && all == body);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_ends_before_its_request_ends_the_connection() {
    let read = Arc::new(Mutex::new(None));
    let reading = Arc::clone(&read);
    let (mut client, serving) = serve(PIPE_BYTES, PROXY, move |exchange| {
        let body = exchange.body_stream(1000).unwrap();
        let reading = Arc::clone(&reading);
        tokio::spawn(async move {
            let read = collect(body).await;
            *reading.lock().unwrap() = Some(read);
        });
        Box::pin(async {
            exchange.drive(tokio::time::sleep(Duration::from_secs(1))).await.unwrap();
            let response = http::Response::builder().status(StatusCode::FORBIDDEN).body(ready(None, &["no"]).await);
            Streamed::new(response.unwrap()).into()
        })
    });
    client.write_all(format!("{}half", post(9, "")).as_bytes()).await.unwrap();
    let answer = read_to(&mut client, b"0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 "));
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it is over");
    client.write_all(format!("ofitx{ASKED}").as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    serving.await.unwrap();
    assert_eq!(*read.lock().unwrap(), Some((b"half".to_vec(), Err(BodyError::GivenUp))));
}

#[tokio::test(start_paused = true)]
async fn no_invitation_comes_behind_the_answer() {
    // The body is wanted only when the answer has begun.
    let (mut client, _serving) = serve(PIPE_BYTES, PROXY, echo);
    client.write_all(post(5, "Expect: 100-continue\r\n").as_bytes()).await.unwrap();
    let head = read_to(&mut client, b"\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    client.write_all(b"hello").await.unwrap();
    assert_eq!(read_to(&mut client, b"o").await, "hello");
}

/// Some servers answer by numbers that are no status (RFC 9110, 15): whoever asked them is to know. An interim one is a fault
/// of the handler, which has its own answer to that.
#[tokio::test]
async fn a_status_that_is_none_is_passed_on_and_an_interim_one_is_not() {
    for (status, line) in [(600, "HTTP/1.1 600 "), (999, "HTTP/1.1 999 "), (102, "HTTP/1.1 400 ")] {
        let mut asked = ask(PROXY, ASKED, status, &[], ready(Some(2), &["ok"]).await).await;
        let answer = read_to(&mut asked.client, b"\r\n\r\n").await;
        assert!(answer.starts_with(line), "{status}: {answer}");
    }
}
