//! A destination in memory: the test is the peer, byte for byte, and counts who dials.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use domain::TenantId;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Full};
use outbound::dial::{Connect, ConnectFault, Connected};
use outbound::{AddressTable, Authority, Exit, Own, Rules, Scheme, Source, VettedAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

use crate::forward::{
    Answered, BodyFault, Bounds, Forward, ForwardSettings, Hop, HopFault, Passage, RequestBody, Waits,
};
use crate::{Asked, Way};

/// Connects to the test.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    accepted: mpsc::UnboundedSender<DuplexStream>,
    dialled: Arc<AtomicUsize>,
    buffer_bytes: usize,
}

impl Connect for Memory {
    type Stream = DuplexStream;

    async fn connect(&self, _to: VettedAddr, _from: Option<Source>) -> Result<Connected<DuplexStream>, ConnectFault> {
        self.dialled.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = tokio::io::duplex(self.buffer_bytes);
        self.accepted.send(theirs).map_err(|_| ConnectFault::Refused)?;
        Ok(Connected { stream: ours, local: SocketAddr::from(([192, 0, 2, 1], 40_000)) })
    }
}

/// The test's end.
pub(super) struct Origin {
    accepted: mpsc::UnboundedReceiver<DuplexStream>,
    dialled: Arc<AtomicUsize>,
}

impl Origin {
    /// The next connection.
    pub(super) async fn accept(&mut self) -> Peer {
        Peer(self.accepted.recv().await.expect("somebody dials"))
    }

    /// How often it was dialled.
    pub(super) fn dialled(&self) -> usize {
        self.dialled.load(Ordering::Relaxed)
    }
}

pub(super) struct Peer(pub(super) DuplexStream);

impl Peer {
    /// A request's head, with whatever of its body came along.
    pub(super) async fn request(&mut self) -> String {
        let mut read = Vec::new();
        while !read.windows(4).any(|four| four == b"\r\n\r\n") {
            let mut buffer = [0; 4096];
            let bytes = self.0.read(&mut buffer).await.unwrap();
            assert!(bytes > 0, "the request ended in its head: {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&buffer[..bytes]);
        }
        String::from_utf8(read).unwrap()
    }

    pub(super) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Whether the other side has closed.
    pub(super) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), self.0.read_to_end(&mut rest));
        read.await.is_ok()
    }
}

pub(super) fn forward() -> (Arc<Forward<Memory>>, Origin) {
    forward_with(ForwardSettings::default(), 1 << 20)
}

pub(super) fn forward_with(settings: ForwardSettings, buffer_bytes: usize) -> (Arc<Forward<Memory>>, Origin) {
    let (memory, origin) = memory(buffer_bytes);
    (Arc::new(Forward::with_connector(memory, settings)), origin)
}

pub(super) fn memory(buffer_bytes: usize) -> (Memory, Origin) {
    let (to, accepted) = mpsc::unbounded_channel();
    let dialled = Arc::new(AtomicUsize::new(0));
    (Memory { accepted: to, dialled: Arc::clone(&dialled), buffer_bytes }, Origin { accepted, dialled })
}

/// Reading it takes a while.
static TABLE: LazyLock<Arc<AddressTable>> = LazyLock::new(|| Arc::new(AddressTable::shipped()));

pub(super) fn rules(own: &[&str]) -> Arc<Rules> {
    let own = Own::new(own.iter().map(|address| address.parse::<IpAddr>().unwrap()), []);
    Arc::new(Rules { table: Arc::clone(&TABLE), own, nat64: Vec::new() })
}

/// `GET http://api.example.com/`, without anything.
pub(super) fn hop() -> Hop {
    let authority = Authority::with_port("api.example.com:80").unwrap();
    let vetted = rules(&[]).vet(&authority, &["93.184.216.34".parse().unwrap()], &[]).unwrap();
    Hop {
        asked: Asked {
            way: Way::Absolute,
            method: Method::GET,
            scheme: Scheme::Http,
            authority,
            path_and_query: "/".into(),
        },
        tenant: TenantId::parse("acme").unwrap(),
        connection: None,
        passage: Passage { vetted, exit: Exit::Unbound, tls: None, rules: rules(&[]), openings: Arc::new([]) },
        headers: HeaderMap::new(),
        body: empty(),
        upgrade: false,
        waits: Waits::default(),
        bounds: Bounds { request_bytes_max: 1 << 20, response_bytes_max: 1 << 20 },
    }
}

pub(super) fn empty() -> RequestBody {
    whole("")
}

pub(super) fn whole(text: &'static str) -> RequestBody {
    Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// A body that comes as the test sends it, with a declared length or without.
pub(super) fn streamed(length: Option<u64>) -> (mpsc::Sender<Result<Bytes, BodyFault>>, RequestBody) {
    let (to, pieces) = mpsc::channel(4);
    (to, Streamed { pieces, left: length }.boxed_unsync())
}

struct Streamed {
    pieces: mpsc::Receiver<Result<Bytes, BodyFault>>,
    left: Option<u64>,
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, BodyFault>>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(hyper::body::Frame::data)))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.left.map_or_else(hyper::body::SizeHint::default, hyper::body::SizeHint::with_exact)
    }
}

/// Sends in a task of its own, so that the test can be the peer meanwhile.
pub(super) fn send(forward: &Arc<Forward<Memory>>, hop: Hop) -> tokio::task::JoinHandle<Result<Answered, HopFault>> {
    let forward = Arc::clone(forward);
    tokio::spawn(async move { forward.send(hop).await })
}

/// The answer's whole body.
pub(super) async fn read(answered: Answered) -> Result<Bytes, BodyFault> {
    Ok(answered.response.into_body().collect().await?.to_bytes())
}

/// One exchange: what was asked, and what came of the answer.
pub(super) async fn exchange(
    forward: &Arc<Forward<Memory>>,
    origin: &mut Origin,
    hop: Hop,
    answer: &str,
) -> (String, Result<Answered, HopFault>, Peer) {
    let sending = send(forward, hop);
    let mut peer = origin.accept().await;
    let request = peer.request().await;
    peer.write(answer).await;
    (request, sending.await.unwrap(), peer)
}
