use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use config::Listener;
use domain::Refusal;
use http::{HeaderMap, StatusCode};
use pingora_core::protocols::Stream;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::http::Forms;
use crate::observer::Observer;
use crate::service::testing::Served;
use crate::{Answer, Behaviour, Exchange, Form, Handler, Raw, Reply, Takeover};

/// An authority, and what it has signed.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server for this name.
    pub(crate) fn server(&self, name: &str) -> Identity {
        self.signed(SanType::DnsName(name.try_into().unwrap()), ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self, uri: &str) -> Identity {
        self.signed(SanType::URI(uri.try_into().unwrap()), ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn signed(&self, name: SanType, purpose: ExtendedKeyUsagePurpose) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    /// A client that believes this authority.
    pub(crate) fn believer(&self, identity: Option<&Identity>, versions: VersionMin, alpn: &[&[u8]]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions.versions())
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                let chain = certificates(identity.certificate.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = alpn.iter().map(|id| id.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

pub(crate) fn parts<'p>(identity: &'p Identity, client_roots: Option<&'p str>) -> TlsParts<'p> {
    TlsParts {
        certificate: identity.certificate.as_bytes(),
        key: identity.key.as_bytes(),
        client_roots: client_roots.map(str::as_bytes),
        version_min: VersionMin::Tls12,
        http2: false,
    }
}

pub(crate) fn server() -> TlsServer {
    TlsServer::new(parts(&Authority::new().server("edge.test"), None)).unwrap()
}

/// Says who came, and reads what was sent; a CONNECT gets its own bytes back.
struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        if exchange.head().form() == Form::Authority {
            let echo = |raw: Raw| async move {
                let (mut reading, mut writing) = tokio::io::split(raw);
                let copied = tokio::io::copy(&mut reading, &mut writing).await;
                let told = if copied.is_ok() { "whole" } else { "cut" };
                writing.write_all(told.as_bytes()).await.unwrap();
                writing.shutdown().await.unwrap();
            };
            return Takeover::new(StatusCode::OK, HeaderMap::new(), echo).into();
        }
        let body = match exchange.body(100, &mut |_| true).await {
            Ok(body) => String::from_utf8(body.to_vec()).unwrap(),
            Err(refusal) => refusal.code().to_owned(),
        };
        let tls = exchange.tls().cloned();
        let names = tls.as_ref().and_then(|tls| tls.client.as_ref()).map(|client| client.sans.join(","));
        let asked = tls.and_then(|tls| tls.server_name).unwrap_or_default();
        Answer::new(200).with_body("text/plain", format!("{asked} {} {body}", names.unwrap_or_default())).into()
    }

    fn refused(&self, _: SocketAddr, refusal: Refusal) -> Answer {
        Answer::new(503).with_body("text/plain", refusal.code())
    }
}

#[derive(Debug, Default)]
struct Faults(Mutex<Vec<HandshakeFault>>);

impl Observer for Faults {
    fn handshake_failed(&self, fault: HandshakeFault) {
        self.0.lock().unwrap().push(fault);
    }
}

/// A service with TLS for `edge.test`, and what it counts.
struct Rig {
    authority: Authority,
    tls: Tls,
    served: Served,
    faults: Arc<Faults>,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Rig {
    fn new() -> Self {
        Self::with(Listener::default(), None, VersionMin::Tls12)
    }

    fn with(settings: Listener, client_roots: Option<&str>, version_min: VersionMin) -> Self {
        let (authority, faults) = (Authority::new(), Arc::<Faults>::default());
        let identity = authority.server("edge.test");
        let server = TlsServer::new(TlsParts { version_min, ..parts(&identity, client_roots) }).unwrap();
        let tls = Tls::new(server, TlsBounds { handshake_timeout: PATIENCE, http2_streams_max: 100 });
        let behaviour = Behaviour { forms: Forms::Proxy, ..Behaviour::default() };
        let served = Served::new(settings, behaviour, Arc::new(Echo), Arc::clone(&faults) as _, tls.clone());
        Self { authority, tls, served, faults }
    }

    fn open(&self) -> DuplexStream {
        let (client, server) = duplex(1 << 16);
        self.served.take(Box::new(server) as Stream);
        client
    }

    async fn secure(&self, client: &TlsConnector) -> std::io::Result<TlsStream<DuplexStream>> {
        client.connect(ServerName::try_from("edge.test").unwrap(), self.open()).await
    }

    fn believer(&self) -> TlsConnector {
        self.authority.believer(None, VersionMin::Tls12, &[])
    }

    fn faults(&self) -> Vec<HandshakeFault> {
        self.faults.0.lock().unwrap().clone()
    }
}

const GET: &[u8] = b"GET /c/x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

/// What comes until the end; none where that was no clean one.
async fn read_clean(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut all = Vec::new();
    let ended = stream.read_to_end(&mut all).await;
    ended.ok().map(|_| String::from_utf8_lossy(&all).into_owned())
}

#[test]
fn what_makes_no_server_is_said_by_its_part() {
    let authority = Authority::new();
    let (one, other) = (authority.server("a.test"), authority.server("b.test"));
    let fault = |parts| TlsServer::new(parts).unwrap_err();
    let empty = Identity { certificate: String::new(), key: String::new() };
    assert!(matches!(fault(parts(&empty, None)), TlsServerFault::Certificate(_)));
    let swapped = Identity { certificate: one.key.clone(), key: one.certificate.clone() };
    assert!(matches!(fault(parts(&swapped, None)), TlsServerFault::Certificate(_)));
    let keyless = Identity { key: one.certificate.clone(), certificate: one.certificate.clone() };
    assert_eq!(fault(parts(&keyless, None)), TlsServerFault::Key);
    let mixed = Identity { certificate: one.certificate.clone(), key: other.key };
    assert_eq!(fault(parts(&mixed, None)), TlsServerFault::Mismatch);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bad = Identity { certificate: broken.to_owned(), key: one.key.clone() };
    assert!(matches!(fault(parts(&bad, None)), TlsServerFault::Certificate(_)), "{:?}", fault(parts(&bad, None)));
    for roots in ["", "no PEM", broken, &one.key] {
        assert!(matches!(fault(parts(&one, Some(roots))), TlsServerFault::ClientRoots(_)), "{roots}");
    }
    let shown = format!("{:?}", parts(&one, None));
    assert!(!shown.contains("PRIVATE") && shown.contains("Tls12"), "{shown}");
    assert!(TlsServer::new(parts(&one, Some(&authority.pem()))).unwrap().validity().is_some());
}

#[tokio::test]
async fn a_request_is_answered_over_tls_and_the_end_is_said() {
    let rig = Rig::new();
    for version in [VersionMin::Tls12, VersionMin::Tls13] {
        let mut client = rig.secure(&rig.authority.believer(None, version, &[])).await.unwrap();
        client.write_all(GET).await.unwrap();
        let answer = read_clean(&mut client).await.expect("close_notify");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("edge.test  "), "{answer}");
    }
    assert_eq!(rig.faults(), []);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_told_that_it_ends() {
    let rig = Rig::new();
    let mut client = rig.secure(&rig.believer()).await.unwrap();
    assert_eq!(read_clean(&mut client).await.as_deref(), Some(""));
}

#[tokio::test]
async fn a_plain_request_where_tls_is_spoken_gets_a_closed_connection() {
    let rig = Rig::new();
    for bytes in [GET, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0; 64]] {
        let mut client = rig.open();
        client.write_all(bytes).await.unwrap();
        let mut all = Vec::new();
        let _ended = client.read_to_end(&mut all).await;
        // An alert at most: nothing that a client of HTTP could take for an answer.
        assert!(all.len() < 16 && !all.starts_with(b"HTTP"), "{}", all.escape_ascii());
    }
    assert_eq!(rig.faults(), [HandshakeFault::NotTls; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_one_deadline_whatever_drips() {
    let rig = Rig::new();
    let began = Instant::now();
    let mut client = rig.open();
    // The beginning of a record, a byte a second.
    for byte in [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0] {
        let _closed = client.write_all(&[byte]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    let _ended = read_clean(&mut client).await;
    assert!(began.elapsed() < PATIENCE + Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(rig.faults(), [HandshakeFault::Timeout]);
    assert_eq!(rig.served.opened(), 0);
}

#[tokio::test]
async fn who_hangs_up_in_a_handshake_is_counted_as_gone() {
    let rig = Rig::new();
    drop(rig.open());
    rig.served.gone().await;
    assert_eq!(rig.faults(), [HandshakeFault::Gone]);
}

#[tokio::test]
async fn handshakes_count_among_the_connections_and_above_the_cap_nobody_is_told() {
    let rig = Rig::with(Listener { connections_max: 1, ..Listener::default() }, None, VersionMin::Tls12);
    let silent = rig.open();
    while rig.served.opened() == 0 {
        tokio::task::yield_now().await;
    }
    let mut second = rig.open();
    assert_eq!(read_clean(&mut second).await.as_deref(), Some(""));
    drop(silent);
    rig.served.gone().await;
    assert!(rig.secure(&rig.believer()).await.is_ok());
}

#[tokio::test]
async fn a_line_that_is_cut_makes_nothing_whole() {
    let rig = Rig::new();
    for cut in [false, true] {
        let mut tunnel = rig.secure(&rig.believer()).await.unwrap();
        tunnel.write_all(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\nbytes").await.unwrap();
        tunnel.flush().await.unwrap();
        let mut head = [0; 44];
        tunnel.read_exact(&mut head).await.unwrap();
        assert!(head.ends_with(b"\r\n\r\nbytes"), "{}", head.escape_ascii());
        if cut {
            // As where somebody in between ends the connection: a FIN, and no word of TLS before it.
            tunnel.get_mut().0.shutdown().await.unwrap();
        } else {
            tunnel.shutdown().await.unwrap();
        }
        let told = read_clean(&mut tunnel).await.unwrap();
        assert_eq!(told, if cut { "cut" } else { "whole" });
    }
    let mut client = rig.secure(&rig.believer()).await.unwrap();
    client.write_all(b"POST /c/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
    client.flush().await.unwrap();
    client.get_mut().0.shutdown().await.unwrap();
    let answer = read_clean(&mut client).await.unwrap();
    assert!(answer.ends_with("malformed-request"), "{answer}");
}

#[tokio::test]
async fn a_client_s_certificate_is_verified_and_its_names_are_told() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let rig = Rig::with(Listener::default(), Some(&ours.pem()), VersionMin::Tls12);
    let ask = async |identity: Option<Identity>| {
        let connector = rig.authority.believer(identity.as_ref(), VersionMin::Tls12, &[]);
        let mut client = rig.secure(&connector).await.ok()?;
        client.write_all(GET).await.ok()?;
        read_clean(&mut client).await
    };
    let answer = ask(Some(ours.client("spiffe://example.com/runner"))).await.unwrap();
    assert!(answer.ends_with("edge.test uri:spiffe://example.com/runner "), "{answer}");
    assert!(ask(None).await.unwrap().ends_with("edge.test  "), "a certificate is not needed here");
    assert_eq!(ask(Some(theirs.client("spiffe://example.com/runner"))).await, None);
    // One of a server is none of a client.
    assert_eq!(ask(Some(ours.server("runner.test"))).await, None);
    rig.served.gone().await;
    assert_eq!(rig.faults(), [HandshakeFault::ClientCertificate; 2]);
}

#[tokio::test]
async fn another_certificate_is_for_the_next_handshake_and_what_is_open_goes_on() {
    let rig = Rig::new();
    let mut before = rig.secure(&rig.believer()).await.unwrap();
    let other = Authority::new();
    let identity = other.server("edge.test");
    let anew = || TlsServer::new(parts(&identity, None)).unwrap();
    assert!(rig.tls.replace(anew()));
    assert!(!rig.tls.replace(anew()), "it is the same one");
    assert!(rig.secure(&rig.believer()).await.is_err());
    let anew = other.believer(None, VersionMin::Tls12, &[]);
    let mut after = rig.secure(&anew).await.unwrap();
    after.write_all(GET).await.unwrap();
    assert!(read_clean(&mut after).await.unwrap().starts_with("HTTP/1.1 200 "));
    before.write_all(GET).await.unwrap();
    assert!(read_clean(&mut before).await.unwrap().starts_with("HTTP/1.1 200 "));
    rig.served.gone().await;
    assert_eq!(rig.faults(), [HandshakeFault::ServerCertificate]);
}

#[test]
fn a_server_knows_the_hosts_of_its_certificate() {
    let authority = Authority::new();
    let names = |name: &str| TlsServer::new(parts(&authority.server(name), None)).unwrap().names;
    assert_eq!(*names("tidegate"), ["tidegate".into()]);
    assert!(names("*.edge.test").is_empty(), "others are called that, too");
}

#[test]
fn a_client_is_believed_for_as_long_as_its_authority_is() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let made = |name: &str, roots: &str| TlsServer::new(parts(&ours.server(name), Some(roots))).unwrap();
    let bounds = TlsBounds { handshake_timeout: PATIENCE, http2_streams_max: 1 };
    let tls = Tls::new(made("a.test", &ours.pem()), bounds);
    let before = tls.server().vouching.clone();
    assert!(tls.replace(made("b.test", &ours.pem())));
    assert!(tls.validity().is_some());
    assert!(before.holds() && tls.server().vouching.holds(), "another certificate of ours is no matter of theirs");
    let both = ours.pem() + &theirs.pem();
    assert!(tls.replace(made("b.test", &both)));
    assert!(!before.holds() && tls.server().vouching.holds());
}

#[test]
fn a_client_s_certificate_ends_after_its_last_second() {
    let der = certificates(Authority::new().client("spiffe://example.com/runner").certificate.as_bytes()).unwrap();
    let ends = Validity::of(&der[0]).unwrap().not_after_unix_s;
    let certificate = PeerCertificate::of(&der[0], Vouching::default());
    assert_eq!(certificate.until_unix_ms, u64::try_from(ends + 1).unwrap() * 1_000);
    assert!(certificate.is_good(certificate.until_unix_ms - 1) && !certificate.is_good(certificate.until_unix_ms));
    assert!(!PeerCertificate::of(b"no certificate", Vouching::default()).is_good(0));
}

#[tokio::test]
async fn versions_below_the_lowest_are_refused() {
    let rig = Rig::with(Listener::default(), None, VersionMin::Tls13);
    let only_12 = {
        let mut roots = RootCertStore::empty();
        roots.add(rig.authority.0.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    };
    assert!(rig.secure(&only_12).await.is_err());
    let mut newer = rig.secure(&rig.believer()).await.unwrap();
    newer.write_all(GET).await.unwrap();
    assert!(read_clean(&mut newer).await.unwrap().starts_with("HTTP/1.1 200 "));
    rig.served.gone().await;
    assert_eq!(rig.faults(), [HandshakeFault::NothingInCommon]);
}
