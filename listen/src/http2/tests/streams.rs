use http::{HeaderValue, Method};
use http_body::Frame;
use tokio::io::{AsyncWriteExt, copy, split};

use super::*;
use crate::streams::{channel, collect, data};
use crate::{BodyError, Streamed};

/// Says what was asked, and the body behind it.
fn tell(exchange: &mut Exchange) -> BoxFuture<'_, Reply> {
    Box::pin(async {
        let body = match exchange.body(100, &mut |_| true).await {
            Ok(body) => String::from_utf8(body.to_vec()).unwrap(),
            Err(refusal) => refusal.code().to_owned(),
        };
        let head = exchange.head();
        let target = String::from_utf8_lossy(head.target());
        let text = format!("{} {:?} {target} {} {body}", head.method(), head.form(), head.host());
        Answer::new(200).with_header("Connection", "x").with_body("text/plain", text).into()
    })
}

/// Sends back what is sent, as it comes.
fn echo(exchange: &mut Exchange) -> BoxFuture<'_, Reply> {
    Box::pin(async {
        let Ok(body) = exchange.body_stream(1 << 30) else { return Answer::new(413).into() };
        Streamed::new(Response::new(body)).into()
    })
}

async fn echo_raw(raw: Raw) {
    let (mut reading, mut writing) = split(raw);
    if copy(&mut reading, &mut writing).await.is_ok() {
        writing.write_all(b"bye").await.unwrap();
        writing.shutdown().await.unwrap();
    }
}

async fn ask(client: &mut SendRequest<Bytes>, request: Request<()>) -> Result<(u16, Vec<u8>), Option<h2::Reason>> {
    let (answer, _) = client.send_request(request, true).map_err(|error| error.reason())?;
    whole(answer.await.map_err(|error| error.reason())?).await
}

fn told(answer: Result<(u16, Vec<u8>), Option<h2::Reason>>) -> (u16, String) {
    let (status, body) = answer.unwrap();
    (status, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn each_form_reaches_the_handler_as_in_http_1() {
    let rig = Rig::new(tell);
    let (mut client, _connection) = rig.client().await;
    for (uri, expected) in [
        ("http://a.test/x?y", "GET Http http://a.test/x?y a.test "),
        ("https://a.test:8443/", "GET Https https://a.test:8443/ a.test "),
        ("https://edge.test/c/conn_x/v1", "GET Origin /c/conn_x/v1 edge.test "),
    ] {
        assert_eq!(told(ask(&mut client, get(uri)).await), (200, expected.to_owned()));
    }
    let (answer, mut body) = client.send_request(Request::post("http://a.test/").body(()).unwrap(), false).unwrap();
    send(&mut body, Bytes::from_static(b"hello"), true).await.unwrap();
    let answer = answer.await.unwrap();
    let headers = answer.headers();
    assert!(headers.contains_key("date") && !headers.contains_key("connection"), "{headers:?}");
    assert_eq!(headers["content-length"], "37");
    assert_eq!(told(whole(answer).await), (200, "POST Http http://a.test/ a.test hello".to_owned()));
    let head = Request::head("http://a.test/").body(()).unwrap();
    assert_eq!(told(ask(&mut client, head).await), (200, String::new()));
}

#[tokio::test]
async fn what_is_no_request_is_answered_and_the_others_go_on() {
    let rig = Rig::new(tell);
    let (mut client, _connection) = rig.client().await;
    let differs = Request::get("http://a.test/").header("host", "b.test").body(()).unwrap();
    assert_eq!(told(ask(&mut client, differs).await), (400, "host-mismatch".to_owned()));
    let userinfo = get("http://u@a.test/");
    assert_eq!(told(ask(&mut client, userinfo).await), (400, "malformed-request".to_owned()));
    let many = (0..200).fold(Request::get("http://a.test/"), |request, _| request.header("x-a", "b"));
    assert_eq!(told(ask(&mut client, many.body(()).unwrap()).await), (400, "headers-too-large".to_owned()));
    let large = Request::get("http://a.test/").header("x-a", "b".repeat(34_000)).body(()).unwrap();
    assert_eq!(told(ask(&mut client, large).await), (400, "headers-too-large".to_owned()));
    assert_eq!(ask(&mut client, get("http://a.test/")).await.unwrap().0, 200);
    // Beyond what is read the codec says so itself.
    let huge = Request::get("http://a.test/").header("x-a", "b".repeat(70_000)).body(()).unwrap();
    assert_eq!(ask(&mut client, huge).await.map_or(431, |(status, _)| status), 431);
    assert_eq!(ask(&mut client, get("http://a.test/")).await.unwrap().0, 200);
}

#[tokio::test]
async fn over_a_connection_that_is_distrusted_nothing_more_is_taken() {
    let rig = Rig::new(|exchange| {
        Box::pin(async {
            let was_distrusted = exchange.is_distrusted();
            if exchange.head().path() == "/lie" {
                exchange.distrust();
            }
            let body = exchange.body_stream(1 << 20).unwrap();
            let _whole = exchange.drive(collect(body)).await;
            Answer::new(if was_distrusted { 503 } else { 200 }).into()
        })
    });
    let (mut client, _connection) = rig.client().await;
    assert_eq!(ask(&mut client, get("http://a.test/")).await.unwrap().0, 200);
    let (slow, mut body) = client.send_request(Request::post("http://a.test/").body(()).unwrap(), false).unwrap();
    assert_eq!(ask(&mut client, get("http://a.test/lie")).await.unwrap().0, 200);
    for _ in 0..3 {
        assert!(ask(&mut client, get("http://a.test/")).await.is_err());
    }
    // What was open goes on.
    body.send_data(Bytes::from_static(b"x"), true).unwrap();
    assert_eq!(slow.await.unwrap().status(), 200);
    let (mut other, _connection) = rig.client().await;
    assert_eq!(ask(&mut other, get("http://a.test/")).await.unwrap().0, 200);
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once_and_come_whole() {
    let rig = Rig::new(echo);
    let (mut client, _connection) = rig.client().await;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    for length in [0, 1, 16_384, 65_535, 65_536, sent.len()] {
        let post = Request::post("http://a.test/").body(()).unwrap();
        let (answer, mut body) = client.send_request(post, false).unwrap();
        let part = Bytes::copy_from_slice(&sent[..length]);
        let sending = tokio::spawn(async move {
            if part.is_empty() {
                body.send_data(part, true).unwrap();
            } else {
                send(&mut body, part, true).await.unwrap();
            }
        });
        let (status, came) = whole(answer.await.unwrap()).await.unwrap();
        sending.await.unwrap();
        assert!(status == 200 && came == sent[..length], "{length}");
    }
}

#[tokio::test]
async fn a_body_of_another_length_than_was_said_is_never_whole() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let rig = Rig::new(move |exchange| {
        let ends = ends.clone();
        Box::pin(async move {
            let body = exchange.body_stream(1 << 20).unwrap();
            let read = exchange.drive(collect(body)).await;
            ends.send(read.map(|(_, end)| end)).unwrap();
            Answer::new(200).into()
        })
    });
    let (mut client, _connection) = rig.client().await;
    for (sent, end) in [(&b"four"[..], true), (b"far too many", true), (b"four", false)] {
        let post = Request::post("http://a.test/").header("content-length", "9").body(()).unwrap();
        let (answer, mut body) = client.send_request(post, false).unwrap();
        body.send_data(Bytes::copy_from_slice(sent), end).unwrap();
        if !end {
            // It changes its mind.
            tokio::task::yield_now().await;
            body.send_reset(h2::Reason::CANCEL);
        }
        assert!(answer.await.is_err());
        let how = ended.recv().await.unwrap();
        assert!(matches!(how, Err(Interrupted::Gone) | Ok(Err(BodyError::Gone))), "{how:?}");
    }
    let post = Request::post("http://a.test/").header("content-length", "9").body(()).unwrap();
    let (answer, mut body) = client.send_request(post, false).unwrap();
    body.send_data(Bytes::from_static(b"just nine"), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    assert_eq!(ended.recv().await.unwrap(), Ok(Ok(())));
}

#[tokio::test]
async fn a_client_is_asked_for_its_body() {
    let rig = Rig::new(tell);
    let (mut client, _connection) = rig.client().await;
    let post = Request::post("http://a.test/").header("expect", "100-continue").body(()).unwrap();
    let (mut answer, mut body) = client.send_request(post, false).unwrap();
    let asked = std::future::poll_fn(|cx| answer.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(asked.status(), StatusCode::CONTINUE);
    send(&mut body, Bytes::from_static(b"hello"), true).await.unwrap();
    assert!(told(whole(answer.await.unwrap()).await).1.ends_with("hello"));
}

#[tokio::test]
async fn an_answer_that_fails_is_reset_and_one_that_ends_has_its_trailers() {
    let rig = Rig::new(|exchange| {
        let (sender, body) = channel(None);
        let fails = exchange.head().path() == "/fails";
        Box::pin(async move {
            sender.send(Ok(data("part"))).await.unwrap();
            if fails {
                sender.send(Err("broken".into())).await.unwrap();
            } else {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", HeaderValue::from_static("1"));
                trailers.insert("content-length", HeaderValue::from_static("9"));
                sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
            }
            Streamed::new(Response::new(body)).into()
        })
    });
    let (mut client, _connection) = rig.client().await;
    let failed = ask(&mut client, get("http://a.test/fails")).await;
    assert_eq!(failed, Err(Some(h2::Reason::INTERNAL_ERROR)));
    let wanted = Request::get("http://a.test/").header("te", "trailers").body(()).unwrap();
    let (answer, _) = client.send_request(wanted, true).unwrap();
    let mut body = answer.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "part");
    assert!(body.data().await.is_none());
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["x-sum"]);
}

fn connect(authority: &str) -> Request<()> {
    Request::builder().method(Method::CONNECT).uri(authority).body(()).unwrap()
}

fn tunnel(exchange: &mut Exchange) -> BoxFuture<'_, Reply> {
    Box::pin(async {
        match exchange.head().authority() {
            Some("a.test:443") => Takeover::new(StatusCode::OK, HeaderMap::new(), echo_raw).into(),
            Some("reset.test:443") => Takeover::new(StatusCode::OK, HeaderMap::new(), |mut raw: Raw| async move {
                raw.write_all(b"part").await.unwrap();
                raw.abort();
            })
            .into(),
            Some("none.test:443") => Answer::new(200).into(),
            _ => Answer::new(403).with_body("text/plain", "no").into(),
        }
    })
}

#[tokio::test]
async fn a_tunnel_is_a_stream_and_its_ends_are_the_stream_s() {
    let rig = Rig::new(tunnel);
    let (mut client, _connection) = rig.client().await;
    let (answer, mut out) = client.send_request(connect("a.test:443"), false).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().len()), (200, 0));
    let sent = Bytes::from(vec![b'x'; 300_000]);
    let more = sent.clone();
    let sending = tokio::spawn(async move { send(&mut out, more, true).await });
    let (_, came) = whole(answer).await.unwrap();
    sending.await.unwrap().unwrap();
    assert!(came.len() == sent.len() + 3 && came.ends_with(b"xbye"));

    // What broke behind it is seen as broken, what was cut before it is too.
    let (answer, _out) = client.send_request(connect("reset.test:443"), false).unwrap();
    assert_eq!(whole(answer.await.unwrap()).await, Err(Some(h2::Reason::CONNECT_ERROR)));

    // Refusals, and success without a tunnel, are answers; the connection goes on behind them.
    assert_eq!(told(ask(&mut client, connect("b.test:443")).await), (403, "no".to_owned()));
    assert_eq!(ask(&mut client, connect("none.test:443")).await.unwrap().0, 400);
    assert_eq!(ask(&mut client, connect("a.test")).await.unwrap().0, 400);
}

#[tokio::test]
async fn a_client_that_resets_its_tunnel_has_not_ended_it() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let rig = Rig::new(move |_| {
        let ends = ends.clone();
        let run = move |mut raw: Raw| async move {
            let read = raw.read_to_end(&mut Vec::new()).await;
            ends.send(read.map_err(|error| error.kind())).unwrap();
        };
        Box::pin(async move { Takeover::new(StatusCode::OK, HeaderMap::new(), run).into() })
    });
    let (mut client, _connection) = rig.client().await;
    for reset in [false, true] {
        let (answer, mut out) = client.send_request(connect("a.test:443"), false).unwrap();
        answer.await.unwrap();
        out.send_data(Bytes::from_static(b"bytes"), !reset).unwrap();
        if reset {
            out.send_reset(h2::Reason::CANCEL);
        }
        let expected = if reset { Err(std::io::ErrorKind::ConnectionReset) } else { Ok(5) };
        assert_eq!(ended.recv().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn whoever_works_on_a_stream_sees_its_connection_end() {
    let (says, mut said) = mpsc::unbounded_channel();
    let rig = Rig::new(move |exchange| end_seen(exchange, says.clone()));
    let (mut client, connection) = rig.client().await;
    let (answer, mut out) = client.send_request(connect("a.test:443"), false).unwrap();
    answer.await.unwrap();
    out.send_data(Bytes::from_static(b"bytes"), false).unwrap();
    let post = Request::post("http://a.test/").body(()).unwrap();
    let (_answer, _body) = client.send_request(post, false).unwrap();
    assert_eq!((said.recv().await.unwrap(), said.recv().await.unwrap()), ("begun", "begun"));
    connection.abort();
    rig.served.gone().await;
    let mut ends = [said.try_recv().unwrap(), said.try_recv().unwrap()];
    ends.sort_unstable();
    assert_eq!(ends, ["request gone", "tunnel reset"]);
}

#[tokio::test]
async fn who_is_not_read_is_held_up_and_nobody_else() {
    let rig = Rig::new(|exchange| {
        Box::pin(async {
            if exchange.head().path() == "/stuck" {
                let _body = exchange.body_stream(1 << 30).unwrap();
                std::future::pending::<()>().await;
            }
            echo(exchange).await
        })
    });
    let (mut client, _connection) = rig.client().await;
    let mut stuck = Vec::new();
    for _ in 1..STREAMS_MAX {
        let post = Request::post("http://a.test/stuck").body(()).unwrap();
        let (answer, mut body) = client.send_request(post, false).unwrap();
        let sending = tokio::spawn(async move {
            let _never = send(&mut body, Bytes::from(vec![0; 1 << 20]), true).await;
        });
        stuck.push((answer, sending));
    }
    let post = Request::post("http://a.test/").body(()).unwrap();
    let (answer, mut body) = client.send_request(post, false).unwrap();
    let sending = tokio::spawn(async move { send(&mut body, Bytes::from(vec![1; 1 << 20]), true).await });
    assert_eq!(whole(answer.await.unwrap()).await.unwrap().1.len(), 1 << 20);
    sending.await.unwrap().unwrap();
    assert!(stuck.iter().all(|(_, sending)| !sending.is_finished()));
    for (_, sending) in stuck {
        sending.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_its_answer_loses_the_stream_and_no_more() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let rig = Rig::new(move |exchange| {
        let ends = ends.clone();
        let large = exchange.head().path() == "/large";
        Box::pin(async move {
            if !large {
                return Answer::new(204).into();
            }
            let (sender, body) = channel(None);
            for _ in 0..10 {
                sender.send(Ok(data(vec![0; 50_000]))).await.unwrap();
            }
            Streamed::new(Response::new(body)).on_end(move |how| ends.send(how.how).unwrap()).into()
        })
    });
    let (mut client, _connection) = rig.client().await;
    let (answer, _) = client.send_request(get("http://a.test/large"), true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(ended.recv().await, Some(crate::Ending::ClientStalled));
    assert_eq!(ask(&mut client, get("http://a.test/")).await.unwrap().0, 204);
    assert_eq!(whole(answer).await, Err(Some(h2::Reason::INTERNAL_ERROR)));
}

#[tokio::test]
async fn a_handler_that_panics_costs_one_stream() {
    let rig = Rig::new(|exchange| {
        let panics = exchange.head().path() == "/panic";
        Box::pin(async move {
            assert!(!panics, "asked to");
            Answer::new(204).into()
        })
    });
    let (mut client, _connection) = rig.client().await;
    assert_eq!(told(ask(&mut client, get("http://a.test/panic")).await), (400, "internal".to_owned()));
    assert_eq!(ask(&mut client, get("http://a.test/")).await.unwrap().0, 204);
    assert_eq!(rig.counts.panicked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn in_a_drain_no_more_streams_are_opened_and_those_there_are_go_on() {
    let rig = Rig::new(echo);
    let (mut client, connection) = rig.client().await;
    let (answer, mut body) = client.send_request(Request::post("http://a.test/").body(()).unwrap(), false).unwrap();
    send(&mut body, Bytes::from_static(b"before"), false).await.unwrap();
    let mut came = answer.await.unwrap().into_body();
    assert_eq!(came.data().await.unwrap().unwrap(), "before");
    rig.served.drain();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(client.clone().ready().await.is_err(), "a stream was opened in a drain");
    send(&mut body, Bytes::from_static(b"after"), true).await.unwrap();
    assert_eq!(came.data().await.unwrap().unwrap(), "after");
    // The end is a frame of its own.
    assert!(came.data().await.is_none_or(|end| end.unwrap().is_empty()));
    drop((came, body));
    // It is told, and may have something to say to a connection that is gone by then.
    let ended = connection.await.unwrap();
    assert!(ended.map_or_else(|error| error.is_io(), |()| true));
    rig.served.gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_idles_ends_with_a_word() {
    let rig = Rig::new(tell);
    let (mut client, connection) = rig.client().await;
    let began = tokio::time::Instant::now();
    assert_eq!(ask(&mut client, get("http://a.test/")).await.unwrap().0, 200);
    assert!(connection.await.unwrap().is_ok());
    let idle = Listener::default().idle_timeout;
    assert!((idle..idle + Duration::from_secs(3)).contains(&began.elapsed()), "{:?}", began.elapsed());
    rig.served.gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_has_so_many_requests_and_no_more() {
    let settings = Listener { requests_per_connection_max: 3, ..Listener::default() };
    let rig = Rig::with(settings, tell);
    let (mut client, connection) = rig.client().await;
    for _ in 0..3 {
        assert_eq!(ask(&mut client, get("http://a.test/")).await.unwrap().0, 200);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(client.ready().await.is_err());
    assert!(connection.await.unwrap().is_ok());
}

#[tokio::test]
async fn without_agreement_on_http_2_it_is_http_1() {
    let rig = Rig::new(tell);
    let (client, server) = duplex(1 << 16);
    rig.served.take(Box::new(server) as Socket);
    let connector = rig.authority.believer(None, VersionMin::Tls12, &[]);
    let mut stream = connector.connect(ServerName::try_from("edge.test").unwrap(), client).await.unwrap();
    stream.write_all(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
