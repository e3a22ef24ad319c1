//! What a proxy does with connections, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]
#![allow(clippy::disallowed_methods, reason = "real sockets take real time")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use config::Listener;
use domain::Refusal;
use http::{HeaderMap, StatusCode};
use support::Running;
use tidegate_listen::{
    Answer, Behaviour, Ended, Ending, Exchange, Form, Forms, HalfClose, Handler, Interrupted, Reply, Streamed, Takeover,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};

const LIMIT: Duration = Duration::from_secs(30);

/// Echoes: tunnels, and the bodies of requests.
#[derive(Debug, Default)]
struct Echo {
    gone: AtomicUsize,
    ended: Arc<Mutex<Vec<Ended>>>,
}

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        if exchange.head().form() == Form::Authority {
            return Takeover::new(StatusCode::OK, HeaderMap::new(), |raw| async {
                let mut draining = raw.draining();
                let (mut reading, mut writing) = split(raw);
                tokio::select! {
                    copied = copy(&mut reading, &mut writing) => {
                        let _told = writing.write_all(format!(" {:?}", copied.unwrap()).as_bytes()).await;
                    }
                    () = draining.begins() => drop(writing.write_all(b" drained").await),
                }
                let _closed = writing.shutdown().await;
            })
            .into();
        }
        if exchange.head().path() == "/never" {
            let never = exchange.drive(std::future::pending::<()>()).await;
            assert_eq!(never, Err(Interrupted::Gone));
            self.gone.fetch_add(1, Ordering::SeqCst);
            return Answer::new(502).into();
        }
        let ended = Arc::clone(&self.ended);
        let body = exchange.body_stream(1 << 30).unwrap();
        Streamed::new(http::Response::new(body)).on_end(move |how| ended.lock().unwrap().push(how)).into()
    }

    fn refused(&self, _: SocketAddr, refusal: Refusal) -> Answer {
        Answer::new(400).with_body("text/plain", refusal.code())
    }
}

fn start(half_close: HalfClose) -> (Running, Arc<Echo>) {
    let echo = Arc::new(Echo::default());
    let behaviour = Behaviour { forms: Forms::Proxy, half_close, ..Behaviour::default() };
    let handler = Arc::clone(&echo);
    (Running::start_handler(Listener::default(), behaviour, handler), echo)
}

fn connect(server: &Running) -> TcpStream {
    let client = TcpStream::connect(server.address).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read_all(client: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    all
}

const CONNECT: &[u8] = b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n";
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";

#[test]
fn a_tunnel_carries_every_byte_and_each_end_may_close_first() {
    let (server, _) = start(HalfClose::Gone);
    let mut client = connect(&server);
    let sent: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut writing = client.try_clone().unwrap();
    let bytes = [CONNECT, &sent].concat();
    let sending = std::thread::spawn(move || {
        writing.write_all(&bytes).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let got = read_all(&mut client);
    sending.join().unwrap();
    assert!(got == [ESTABLISHED, &sent, b" 20000000"].concat());
}

#[test]
fn an_idle_tunnel_is_told_of_the_drain_and_the_drain_waits_for_it() {
    let (server, _) = start(HalfClose::Gone);
    let mut client = connect(&server);
    client.write_all(CONNECT).unwrap();
    client.read_exact(&mut vec![0; ESTABLISHED.len()]).unwrap();
    server.handle.drain();
    assert_eq!(read_all(&mut client), b" drained");
    assert_eq!(server.join().cut, 0);
}

#[test]
fn a_body_comes_back_while_it_is_sent() {
    let (server, echo) = start(HalfClose::Gone);
    let mut client = connect(&server);
    let sent: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut writing = client.try_clone().unwrap();
    let head = format!("PUT http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", sent.len());
    let bytes = [head.as_bytes(), &sent].concat();
    let sending = std::thread::spawn(move || writing.write_all(&bytes).unwrap());
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let mut got = vec![0; sent.len()];
    client.read_exact(&mut got).unwrap();
    sending.join().unwrap();
    assert!(got == sent);
    assert_eq!(*echo.ended.lock().unwrap(), [Ended { bytes: 20_000_000, how: Ending::Whole }]);
}

#[test]
fn a_client_that_closes_or_resets_is_noticed_while_it_waits() {
    let (server, echo) = start(HalfClose::Gone);
    for at in 1..=3 {
        let mut client = connect(&server);
        client.write_all(b"GET http://a.test/never HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop(client);
        eventually("it is noticed", || echo.gone.load(Ordering::SeqCst) == at);
    }
    eventually("nothing is left", || server.counts.open() == 0);

    // Where a half-closed connection is one that waits, only a broken one is gone.
    let (server, echo) = start(HalfClose::Answer);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
        client.write_all(b"GET http://a.test/never HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(200), client.read_u8()).await;
        assert!(waited.is_err());
        client.set_zero_linger().unwrap();
    });
    eventually("a reset is noticed", || echo.gone.load(Ordering::SeqCst) == 1);
}
