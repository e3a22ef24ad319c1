//! Streams over TLS: with a client that keeps to the protocol, and with frames made by hand.

mod frames;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use config::Listener;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response, StatusCode};
use pingora_core::protocols::Stream as Socket;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;

use crate::observer::{Observer, Phase};
use crate::service::testing::Served;
use crate::streams::{BoxFuture, PROXY, with};
use crate::tls::tests::{Authority, parts};
use crate::tls::{HTTP2, Tls, TlsBounds, TlsParts, TlsServer, VersionMin};
use crate::{Answer, Exchange, Interrupted, Raw, Reply, Takeover};

const STREAMS_MAX: u32 = 8;

#[derive(Debug, Default)]
struct Counts {
    flooded: AtomicUsize,
    headers: AtomicUsize,
    panicked: AtomicUsize,
}

impl Observer for Counts {
    fn flooded(&self) {
        self.flooded.fetch_add(1, Ordering::SeqCst);
    }

    fn timed_out(&self, phase: Phase) {
        if phase == Phase::Header {
            self.headers.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn panicked(&self) {
        self.panicked.fetch_add(1, Ordering::SeqCst);
    }
}

/// A service that speaks HTTP/2 as `edge.test`.
struct Rig {
    authority: Authority,
    served: Served,
    counts: Arc<Counts>,
}

impl Rig {
    fn new<F>(handler: F) -> Self
    where
        F: for<'a> Fn(&'a mut Exchange) -> BoxFuture<'a, Reply> + Send + Sync + 'static,
    {
        Self::with(Listener::default(), handler)
    }

    fn with<F>(settings: Listener, handler: F) -> Self
    where
        F: for<'a> Fn(&'a mut Exchange) -> BoxFuture<'a, Reply> + Send + Sync + 'static,
    {
        let (authority, counts) = (Authority::new(), Arc::<Counts>::default());
        let identity = authority.server("edge.test");
        let server = TlsServer::new(TlsParts { http2: true, ..parts(&identity, None) }).unwrap();
        let bounds = TlsBounds { handshake_timeout: Duration::from_secs(10), http2_streams_max: STREAMS_MAX };
        let served = Served::new(settings, PROXY, with(handler), Arc::clone(&counts) as _, Tls::new(server, bounds));
        Self { authority, served, counts }
    }

    /// TLS, and nothing said within it yet.
    async fn open(&self) -> TlsStream<DuplexStream> {
        let (client, server) = duplex(1 << 16);
        self.served.take(Box::new(server) as Socket);
        let connector = self.authority.believer(None, VersionMin::Tls12, &[HTTP2]);
        let stream = connector.connect(ServerName::try_from("edge.test").unwrap(), client).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(HTTP2));
        stream
    }

    /// A client that keeps to the protocol, and its connection, which ends with what it ends with.
    async fn client(&self) -> (SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
        let (client, connection) = h2::client::handshake(self.open().await).await.unwrap();
        (client, tokio::spawn(connection))
    }
}

/// Waits in a tunnel, or for an answer that never comes, and says when that begins and how it ends.
fn end_seen<'a>(exchange: &'a mut Exchange, says: mpsc::UnboundedSender<&'static str>) -> BoxFuture<'a, Reply> {
    Box::pin(async move {
        if exchange.head().form() == crate::Form::Authority {
            let run = move |mut raw: Raw| async move {
                says.send("begun").unwrap();
                let read = raw.read_to_end(&mut Vec::new()).await;
                says.send(if read.is_err() { "tunnel reset" } else { "tunnel ended" }).unwrap();
            };
            return Takeover::new(StatusCode::OK, HeaderMap::new(), run).into();
        }
        says.send("begun").unwrap();
        let driven = exchange.drive(std::future::pending::<()>()).await;
        says.send(if driven == Err(Interrupted::Gone) { "request gone" } else { "request ended" }).unwrap();
        Answer::new(400).into()
    })
}

fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

/// Status and body of an answer; the reason where it is not whole.
async fn whole(answer: Response<h2::RecvStream>) -> Result<(u16, Vec<u8>), Option<h2::Reason>> {
    let (head, mut body) = answer.into_parts();
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| error.reason())?;
        drop(body.flow_control().release_capacity(data.len()));
        all.extend_from_slice(&data);
    }
    Ok((head.status.as_u16(), all))
}

/// Sends all of a body, as fast as the windows let it.
async fn send(stream: &mut h2::SendStream<Bytes>, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| match stream.capacity() {
            0 => stream.poll_capacity(cx).map(|room| room.transpose().map(|room| room.unwrap_or(0))),
            room => std::task::Poll::Ready(Ok(room)),
        });
        let room = room.await?;
        let last = end && room >= bytes.len();
        stream.send_data(bytes.split_to(room.min(bytes.len())), last)?;
    }
    Ok(())
}
