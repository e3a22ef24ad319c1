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
use outbound::{AddressTable, Alpn, Authority, Exit, Own, Roots, Rules, Scheme, Source, TlsClient, VettedAddr};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::forward::{
    Answered, BodyFault, Bounds, Forward, ForwardSettings, Hop, HopFault, Passage, RequestBody, Waits,
};
use crate::{Asked, Way};

/// Connects to the test.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    accepted: mpsc::UnboundedSender<(VettedAddr, DuplexStream)>,
    dialled: Arc<AtomicUsize>,
    buffer_bytes: usize,
}

impl Connect for Memory {
    type Stream = DuplexStream;

    async fn connect(&self, to: VettedAddr, _from: Option<Source>) -> Result<Connected<DuplexStream>, ConnectFault> {
        self.dialled.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = tokio::io::duplex(self.buffer_bytes);
        self.accepted.send((to, theirs)).map_err(|_| ConnectFault::Refused)?;
        Ok(Connected { stream: ours, local: SocketAddr::from(([192, 0, 2, 1], 40_000)) })
    }
}

/// The test's end.
pub(crate) struct Origin {
    accepted: mpsc::UnboundedReceiver<(VettedAddr, DuplexStream)>,
    dialled: Arc<AtomicUsize>,
    /// Spoken on every port but 80.
    pub(crate) tls: Option<TlsAcceptor>,
}

impl Origin {
    /// The next connection.
    pub(crate) async fn accept(&mut self) -> Peer {
        self.try_accept().await.expect("somebody dials")
    }

    /// The next connection; none if nobody dials any more.
    pub(crate) async fn try_accept(&mut self) -> Option<Peer> {
        let (to, stream) = self.accepted.recv().await?;
        match &self.tls {
            Some(tls) if to.socket().port() != 80 => Some(Peer(Box::new(tls.accept(stream).await.unwrap()))),
            Some(_) | None => Some(Peer(Box::new(stream))),
        }
    }

    /// The next connection before anything is said on it.
    pub(crate) async fn raw(&mut self) -> (VettedAddr, DuplexStream) {
        self.accepted.recv().await.expect("somebody dials")
    }

    /// How often it was dialled, for whoever gives it away.
    pub(crate) fn counter(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.dialled)
    }

    /// How often it was dialled.
    pub(crate) fn dialled(&self) -> usize {
        self.dialled.load(Ordering::Relaxed)
    }
}

pub(crate) struct Peer(pub(crate) Box<dyn Stream>);

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Peer {
    /// A request's head, with whatever of its body came along.
    pub(crate) async fn request(&mut self) -> String {
        let mut read = Vec::new();
        while !read.windows(4).any(|four| four == b"\r\n\r\n") {
            let mut buffer = [0; 4096];
            let bytes = self.0.read(&mut buffer).await.unwrap();
            assert!(bytes > 0, "the request ended in its head: {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&buffer[..bytes]);
        }
        String::from_utf8(read).unwrap()
    }

    /// The same; none if the other side closes.
    pub(crate) async fn try_request(&mut self) -> Option<String> {
        let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
        while !read.windows(4).any(|four| four == b"\r\n\r\n") {
            match self.0.read(&mut buffer).await {
                Ok(bytes) if bytes > 0 => read.extend_from_slice(&buffer[..bytes]),
                Ok(_) | Err(_) => return None,
            }
        }
        String::from_utf8(read).ok()
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Whether the other side has closed.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), self.0.read_to_end(&mut rest));
        read.await.is_ok()
    }
}

pub(crate) fn forward() -> (Arc<Forward<Memory>>, Origin) {
    forward_with(ForwardSettings::default(), 1 << 20)
}

pub(crate) fn forward_with(settings: ForwardSettings, buffer_bytes: usize) -> (Arc<Forward<Memory>>, Origin) {
    let (memory, origin) = memory(buffer_bytes);
    (Arc::new(Forward::with_connector(memory, settings)), origin)
}

pub(crate) fn memory(buffer_bytes: usize) -> (Memory, Origin) {
    let (to, accepted) = mpsc::unbounded_channel();
    let dialled = Arc::new(AtomicUsize::new(0));
    (Memory { accepted: to, dialled: Arc::clone(&dialled), buffer_bytes }, Origin { accepted, dialled, tls: None })
}

/// TLS for these names, from both sides.
pub(crate) fn tls(names: &[&str], alpn: &[Alpn]) -> (TlsClient, TlsAcceptor) {
    tls_offering(names, alpn, alpn)
}

/// The same, where the two sides do not speak the same.
pub(crate) fn tls_offering(names: &[&str], ours: &[Alpn], theirs: &[Alpn]) -> (TlsClient, TlsAcceptor) {
    let mut issuer = CertificateParams::new(Vec::new()).unwrap();
    issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(issuer, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let roots = Roots::from_pem(issuer.pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    let id = |alpn: &Alpn| match alpn {
        Alpn::Http2 => b"h2".to_vec(),
        Alpn::Http11 => b"http/1.1".to_vec(),
    };
    server.alpn_protocols = theirs.iter().map(id).collect();
    (TlsClient::new(&roots, None, ours).unwrap(), TlsAcceptor::from(Arc::new(server)))
}

/// Reading it takes a while.
static TABLE: LazyLock<Arc<AddressTable>> = LazyLock::new(|| Arc::new(AddressTable::shipped()));

pub(crate) fn rules(own: &[&str]) -> Arc<Rules> {
    let own = Own::new(own.iter().map(|address| address.parse::<IpAddr>().unwrap()), []);
    Arc::new(Rules { table: Arc::clone(&TABLE), own, nat64: Vec::new() })
}

/// `GET http://api.example.com/`, without anything.
pub(crate) fn hop() -> Hop {
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
        passage: Passage {
            vetted,
            exit: Exit::Unbound,
            tls: None,
            rules: rules(&[]),
            openings: Arc::new([]),
            permit: Arc::new(crate::quota::Permit::unmetered()),
        },
        headers: HeaderMap::new(),
        credential_query: None,
        body: empty(),
        upgrade: false,
        waits: Waits::default(),
        bounds: Bounds { request_bytes_max: 1 << 20, response_bytes_max: 1 << 20 },
        tally: Arc::default(),
    }
}

pub(crate) fn empty() -> RequestBody {
    whole("")
}

pub(crate) fn whole(text: &'static str) -> RequestBody {
    Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// A body that comes as the test sends it, with a declared length or without.
pub(crate) fn streamed(length: Option<u64>) -> (mpsc::Sender<Result<Bytes, BodyFault>>, RequestBody) {
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
pub(crate) fn send(forward: &Arc<Forward<Memory>>, hop: Hop) -> tokio::task::JoinHandle<Result<Answered, HopFault>> {
    let forward = Arc::clone(forward);
    tokio::spawn(async move { forward.send(hop).await })
}

/// The answer's whole body.
pub(crate) async fn read(answered: Answered) -> Result<Bytes, BodyFault> {
    Ok(answered.response.into_body().collect().await?.to_bytes())
}

/// One exchange: what was asked, and what came of the answer.
pub(crate) async fn exchange(
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
