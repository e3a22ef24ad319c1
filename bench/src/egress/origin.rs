//! The origin: what all proxies call, and what is called directly beside them. A process of its own, so that its CPU is
//! told apart. It does as little as possible, and looks at every request: one that carries somebody's grant, or a
//! governed one without the credential, is answered 403 and spoils the run.

use std::fs;
use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use memchr::memmem;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ServerSessionMemoryCache;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::TlsAcceptor;

use super::dns;
use super::hello::{self, BLOCK_BYTES, GREETING};
use super::names::{API, CREDENTIAL, Places, TUNNEL_HOSTS, address_of};
use crate::Result;

/// Where it says where it is.
pub const PLACES: &str = "origin.json";
/// Paths of governed calls begin so.
pub const GOVERNED: &str = "/governed/";

const BODY_BYTES: usize = 1_024;
const HEAD_BYTES_MAX: usize = 64 << 10;
const BULK_WRITE: usize = 4 * BLOCK_BYTES;

/// The body of every answer.
pub fn body() -> Vec<u8> {
    (0..BODY_BYTES).map(|at| b'a' + (at % 26) as u8).collect()
}

/// Serves until the process is told to end. Everything it needs and says lies in `directory`.
pub fn run(directory: &Path, threads: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(serve(directory))
}

async fn serve(directory: &Path) -> Result<()> {
    let any = |host: u64| (address_of(host), 0);
    let (plain, tls, dns) = (
        TcpListener::bind(any(0)).await?,
        TcpListener::bind(any(0)).await?,
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?,
    );
    let (greeting, bulk) = (on_every_host().await?, on_every_host().await?);
    let roots = directory.join("roots.pem");
    let acceptor = TlsAcceptor::from(Arc::new(certificate(&roots)?));
    let places = Places {
        plain: plain.local_addr()?.port(),
        tls: tls.local_addr()?.port(),
        greeting: greeting[0].local_addr()?.port(),
        bulk: bulk[0].local_addr()?.port(),
        dns: dns.local_addr()?,
        roots,
    };
    // Whoever sees the file sees all of it.
    let written = directory.join("origin.json.new");
    fs::write(&written, serde_json::to_vec(&places)?)?;
    fs::rename(&written, directory.join(PLACES))?;

    let answers: &'static Answers = Box::leak(Box::new(Answers::new()));
    for listener in greeting {
        tokio::spawn(accept(listener, greet));
    }
    for listener in bulk {
        tokio::spawn(accept(listener, pour));
    }
    tokio::spawn(accept(plain, |stream| answers.give(stream)));
    tokio::spawn(accept(tls, move |stream| {
        let acceptor = acceptor.clone();
        async move { answers.give(acceptor.accept(stream).await?).await }
    }));
    Ok(dns::serve(dns).await?)
}

/// Listens on one port of every host of tunnels.
async fn on_every_host() -> Result<Vec<TcpListener>> {
    let mut last = None;
    for _ in 0..20 {
        let first = TcpListener::bind((address_of(0), 0)).await?;
        let port = first.local_addr()?.port();
        let mut all = vec![first];
        for host in 1..TUNNEL_HOSTS {
            match TcpListener::bind((address_of(host), port)).await {
                Ok(listener) => all.push(listener),
                Err(error) => last = Some(error),
            }
        }
        if all.len() as u64 == TUNNEL_HOSTS {
            return Ok(all);
        }
    }
    Err(format!("no port is free on all hosts: {last:?}").into())
}

/// A certificate for [`API`], from an authority made for this run, which is written down as PEM.
fn certificate(roots: &Path) -> Result<ServerConfig> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Names of their own: one that is its issuer's namesake is taken for self-signed by some.
    authority.distinguished_name.push(DnType::CommonName, "bench authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    fs::write(roots, authority.pem())?;
    let key = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(vec![API.to_owned()])?;
    leaf.distinguished_name.push(DnType::CommonName, API);
    let leaf = leaf.signed_by(&key, &authority)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
    config.session_storage = ServerSessionMemoryCache::new(1_024);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Serves each connection by `each`, for as long as it is polled.
async fn accept<F, S>(listener: TcpListener, each: F)
where
    F: Fn(TcpStream) -> S,
    S: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        // Out of files, or a peer that left at once: the next one may do better.
        let Ok((stream, _)) = listener.accept().await else { continue };
        if stream.set_nodelay(true).is_ok() {
            // How a connection ends is its client's business.
            tokio::spawn(each(stream));
        }
    }
}

/// Reads a whole TLS record.
async fn record(stream: &mut TcpStream) -> io::Result<()> {
    let mut space = [0; 1_024];
    let mut received = Vec::new();
    while hello::record_bytes(&received).is_none_or(|length| received.len() < length) {
        let count = stream.read(&mut space).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&space[..count]);
    }
    Ok(())
}

/// Greets who has sent one, and waits for the end.
async fn greet(mut stream: TcpStream) -> io::Result<()> {
    record(&mut stream).await?;
    stream.write_all(&GREETING).await?;
    let mut rest = [0; 64];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Sends numbered blocks without end.
async fn pour(mut stream: TcpStream) -> io::Result<()> {
    record(&mut stream).await?;
    let mut blocks = vec![0x5a; BULK_WRITE];
    let mut next = 0;
    loop {
        hello::number(&mut blocks, next);
        stream.write_all(&blocks).await?;
        next += (BULK_WRITE / BLOCK_BYTES) as u64;
    }
}

/// What requests are answered with.
struct Answers {
    right: Vec<u8>,
    wrong: Vec<u8>,
    /// How every grant and static token looks to whoever must not see one.
    grant: memmem::Finder<'static>,
    credential: memmem::Finder<'static>,
}

impl Answers {
    fn new() -> Self {
        let body = body();
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Self {
            right: [head.into_bytes(), body].concat(),
            wrong: b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec(),
            grant: memmem::Finder::new("eyJ"),
            credential: memmem::Finder::new(CREDENTIAL),
        }
    }

    /// Answers one request after the other. None has a body.
    async fn give<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> io::Result<()> {
        let mut received = Vec::with_capacity(4_096);
        let mut out = Vec::new();
        loop {
            let mut begin = 0;
            while let Some(length) = memmem::find(&received[begin..], b"\r\n\r\n") {
                out.extend_from_slice(self.to(&received[begin..begin + length]));
                begin += length + 4;
            }
            received.drain(..begin);
            if !out.is_empty() {
                stream.write_all(&out).await?;
                stream.flush().await?;
                out.clear();
            }
            if stream.read_buf(&mut received).await? == 0 || received.len() > HEAD_BYTES_MAX {
                return Ok(());
            }
        }
    }

    fn to(&self, head: &[u8]) -> &[u8] {
        let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let is_governed = path.starts_with(GOVERNED.as_bytes());
        let has_credential = self.credential.find(head).is_some();
        let is_right = self.grant.find(head).is_none() && is_governed == has_credential;
        if is_right { &self.right } else { &self.wrong }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_or_a_missing_credential_is_answered_403() {
        let answers = Answers::new();
        let status = |head: &str| answers.to(head.as_bytes())[9..12].to_owned();
        let credential = format!("GET /governed/1 HTTP/1.1\r\nAuthorization: Bearer {CREDENTIAL}");
        assert_eq!(status("GET /1 HTTP/1.1\r\nHost: a"), b"200");
        assert_eq!(status(&credential), b"200");
        assert_eq!(status("GET /governed/1 HTTP/1.1\r\nHost: a"), b"403");
        assert_eq!(status(&format!("{credential}\r\nTidegate-Grant: eyJhbGciOiJFZERTQSJ9.x.y")), b"403");
        assert_eq!(status(&credential.replace("/governed", "")), b"403");
    }
}
