//! Dialling over real sockets on loopback, which the tests open for themselves.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "this is a test, on real sockets")]

mod support;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbound::dial::{ClientIdentity, DialFault, Sent, TlsFault, TlsSettingsFault};
use outbound::{
    Alpn, Authority, DialError, DialSettings, Dialer, Dialled, Exit, ExitAddress, Roots, TlsClient, Vetted,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use support::{opening, rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

fn vetted(host: &str, addresses: &[&str], port: u16) -> Vetted {
    let openings = [opening(host, "127.0.0.0/8", port), opening(host, "::1/128", port)];
    let answer: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    rules().vet(&Authority::with_port(format!("{host}:{port}")).unwrap(), &answer, &openings).unwrap()
}

fn exit(v4: &str) -> Exit {
    Exit::From(ExitAddress { v4: Some(v4.parse().unwrap()), v6: None, freebind: false })
}

fn dialer() -> Dialer {
    Dialer::new(DialSettings { tls_timeout: Duration::from_secs(2), ..DialSettings::default() })
}

#[tokio::test]
async fn the_peer_sees_the_exit_address_and_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = vetted("peer.internal", &["127.0.0.1"], listener.local_addr().unwrap().port());
    for source in ["127.0.0.2", "127.0.0.3"] {
        let mut dialled = dialer().dial(&to, &exit(source)).await.unwrap();
        let (mut accepted, seen) = listener.accept().await.unwrap();
        assert_eq!((seen.ip().to_string().as_str(), seen), (source, dialled.local));
        dialled.stream.write_all(b"ping").await.unwrap();
        let mut four = [0; 4];
        accepted.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"ping");
    }
}

#[tokio::test]
async fn an_exit_that_is_not_on_the_machine_is_not_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = vetted("peer.internal", &["127.0.0.1"], listener.local_addr().unwrap().port());
    let error = dialer().dial(&to, &exit("203.0.113.77")).await.unwrap_err();
    assert_eq!((error.reason(), error.error_type().token()), ("exit-unavailable", "proxy_configuration_error"));
    assert_eq!(error.sent(), Sent::Nothing);
    let silence = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(silence.is_err(), "somebody connected");
}

#[tokio::test]
async fn ports_are_bound_per_destination() {
    // One exit, one port on each of two destinations: with the port chosen at bind both could not be the same one. That
    // cannot be forced from here; that many connections from one exit have distinct ends and work can.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = vetted("peer.internal", &["127.0.0.1"], listener.local_addr().unwrap().port());
    let mut held = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..50 {
        let dialled = dialer().dial(&to, &exit("127.0.0.9")).await.unwrap();
        ports.push(dialled.local.port());
        held.push((dialled, listener.accept().await.unwrap()));
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 50);
}

#[tokio::test]
async fn a_closed_port_is_a_refusal_and_the_next_address_is_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Nobody listens on ::1 and 127.0.0.5.
    let to = vetted("peer.internal", &["::1", "127.0.0.5", "127.0.0.1"], port);
    let dialled = dialer().dial(&to, &Exit::Unbound).await.unwrap();
    assert_eq!(dialled.address.socket(), SocketAddr::from(([127, 0, 0, 1], port)));
    assert!(dialled.failed.len() <= 2 && !dialled.failed.is_empty());

    let nobody = vetted("peer.internal", &["127.0.0.5"], port);
    let error = dialer().dial(&nobody, &Exit::Unbound).await.unwrap_err();
    assert_eq!((error.reason(), error.error_type().token()), ("refused", "connection_refused"));
}

/// A certificate authority, and what it signs.
struct Authorities {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authorities {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    fn roots(&self) -> Roots {
        Roots::from_pem(self.issuer.pem().as_bytes()).unwrap()
    }

    /// Chain and key, as PEM.
    fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn server_config(&self, params: &CertificateParams, alpn: &[&str], asks_client: bool) -> ServerConfig {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        let (chain, key) = self.sign(params);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
        let builder = if asks_client {
            let mut roots = RootCertStore::empty();
            roots.add(self.issuer.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
        let mut config =
            builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap();
        config.alpn_protocols = alpn.iter().map(|id| id.as_bytes().to_vec()).collect();
        config
    }
}

fn named(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// Serves TLS and echoes; the port it listens on.
async fn tls_server(config: ServerConfig) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let mut bytes = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                        stream.write_all(&bytes[..length]).await.unwrap();
                    }
                }
            });
        }
    });
    port
}

type Outcome = Result<Dialled<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>, DialError>;

async fn dial_tls(host: &str, port: u16, tls: &TlsClient) -> Outcome {
    dialer().dial_tls(&vetted(host, &["127.0.0.1"], port), &Exit::Unbound, tls).await
}

fn tls_fault(outcome: Outcome) -> (TlsFault, &'static str) {
    let error = outcome.map(|dialled| dialled.alpn).expect_err("it should have failed");
    assert_eq!(error.sent(), Sent::Handshake);
    let token = error.error_type().token();
    match error.fault {
        DialFault::Tls { fault, .. } => (fault, token),
        other @ (DialFault::NoExit | DialFault::Connect(_)) => panic!("{other}"),
    }
}

const BOTH: &[Alpn] = &[Alpn::Http2, Alpn::Http11];

#[tokio::test]
async fn tls_is_verified_against_the_authority() {
    let authorities = Authorities::new();
    let trusting = TlsClient::new(&authorities.roots(), None, BOTH).unwrap();
    let port = tls_server(authorities.server_config(
        &named(&["api.internal", "under_score.internal"]),
        &["h2", "http/1.1"],
        false,
    ))
    .await;
    for host in ["api.internal", "under_score.internal"] {
        let mut dialled = dial_tls(host, port, &trusting).await.unwrap();
        assert_eq!(dialled.alpn, Some(Alpn::Http2));
        dialled.stream.write_all(b"ping").await.unwrap();
        let mut four = [0; 4];
        dialled.stream.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"ping");
    }
    // Another name, an address, somebody else's authority, the system's.
    for host in ["other.internal", "127.0.0.1", "a.api.internal"] {
        let (fault, token) = tls_fault(dial_tls(host, port, &trusting).await);
        assert!(matches!(fault, TlsFault::Certificate(_)) && token == "tls_certificate_error", "{host}: {fault}");
    }
    let strange = TlsClient::new(&Authorities::new().roots(), None, BOTH).unwrap();
    assert!(matches!(tls_fault(dial_tls("api.internal", port, &strange).await).0, TlsFault::Certificate(_)));
}

#[tokio::test]
async fn addresses_are_verified_by_their_own_kind_of_name() {
    let authorities = Authorities::new();
    let client = TlsClient::new(&authorities.roots(), None, &[]).unwrap();
    let mut params = named(&[]);
    params.subject_alt_names.push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
    let port = tls_server(authorities.server_config(&params, &[], false)).await;
    assert_eq!(dial_tls("127.0.0.1", port, &client).await.unwrap().alpn, None);
    assert!(dial_tls("api.internal", port, &client).await.is_err());
    // A DNS name that reads like the address is none.
    let mut params = named(&[]);
    params.subject_alt_names.push(SanType::DnsName("127.0.0.1".try_into().unwrap()));
    let port = tls_server(authorities.server_config(&params, &[], false)).await;
    assert!(dial_tls("127.0.0.1", port, &client).await.is_err());
}

#[tokio::test]
async fn a_certificate_that_has_run_out_is_none() {
    let authorities = Authorities::new();
    let mut params = named(&["api.internal"]);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let port = tls_server(authorities.server_config(&params, &[], false)).await;
    let client = TlsClient::new(&authorities.roots(), None, &[]).unwrap();
    assert!(matches!(tls_fault(dial_tls("api.internal", port, &client).await).0, TlsFault::Certificate(_)));
}

#[tokio::test]
async fn what_to_speak_is_agreed_or_refused() {
    let authorities = Authorities::new();
    let old = tls_server(authorities.server_config(&named(&["api.internal"]), &["http/1.1"], false)).await;
    let client = |alpn: &[Alpn]| TlsClient::new(&authorities.roots(), None, alpn).unwrap();
    assert_eq!(dial_tls("api.internal", old, &client(BOTH)).await.unwrap().alpn, Some(Alpn::Http11));
    let (fault, token) = tls_fault(dial_tls("api.internal", old, &client(&[Alpn::Http2])).await);
    assert!(matches!(&fault, TlsFault::Alert(alert) if alert == "NoApplicationProtocol"), "{fault}");
    assert_eq!(token, "tls_alert_received");
}

/// For what only HTTP/1.1 can do. Connections are pooled by it, so it is another one.
#[tokio::test]
async fn http_2_can_be_left_out() {
    let authorities = Authorities::new();
    let port = tls_server(authorities.server_config(&named(&["api.internal"]), &["h2", "http/1.1"], false)).await;
    let client = TlsClient::new(&authorities.roots(), None, BOTH).unwrap();
    let without = client.without_http2();
    assert!(client.offers_http2() && !without.offers_http2() && client != without);
    assert_eq!((&without, &without), (&client.without_http2(), &without.without_http2()));
    for (client, agreed) in [(&client, Alpn::Http2), (&without, Alpn::Http11), (&client, Alpn::Http2)] {
        assert_eq!(dial_tls("api.internal", port, client).await.unwrap().alpn, Some(agreed));
    }
    let none = TlsClient::new(&authorities.roots(), None, &[]).unwrap();
    assert!(!none.offers_http2() && none == none.without_http2());
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_asked_for() {
    let authorities = Authorities::new();
    let port = tls_server(authorities.server_config(&named(&["api.internal"]), &[], true)).await;
    let (chain, key) = authorities.sign(&named(&["us.example"]));
    let identity = ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    assert!(!format!("{identity:?}").contains("PRIVATE"));
    let known = TlsClient::new(&authorities.roots(), Some(identity), &[]).unwrap();
    let echo = async |client: &TlsClient| {
        let mut dialled = dial_tls("api.internal", port, client).await.ok()?;
        dialled.stream.write_all(b"ping").await.ok()?;
        let mut four = [0; 4];
        dialled.stream.read_exact(&mut four).await.ok()
    };
    assert_eq!(echo(&known).await, Some(4));
    let nobody = TlsClient::new(&authorities.roots(), None, &[]).unwrap();
    assert_eq!(echo(&nobody).await, None);
    assert!(known == known.clone() && known != nobody);
    assert_ne!(nobody, TlsClient::new(&authorities.roots(), None, &[]).unwrap());
}

/// One tenant's session is no other's, and nothing here says whose a handshake is.
#[tokio::test]
async fn no_session_is_resumed() {
    let authorities = Authorities::new();
    let port = tls_server(authorities.server_config(&named(&["api.internal"]), &[], false)).await;
    let client = TlsClient::new(&authorities.roots(), None, &[]).unwrap();
    for _ in 0..3 {
        let mut dialled = dial_tls("api.internal", port, &client).await.unwrap();
        let kind = dialled.stream.get_ref().1.handshake_kind();
        assert!(kind.is_some_and(|kind| kind != rustls::HandshakeKind::Resumed), "{kind:?}");
        // The ticket comes behind the handshake.
        dialled.stream.write_all(b"ping").await.unwrap();
        dialled.stream.read_exact(&mut [0; 4]).await.unwrap();
    }
}

#[tokio::test]
async fn peers_that_do_not_speak_tls_have_their_names() {
    let client = TlsClient::new(&Authorities::new().roots(), None, &[]).unwrap();
    for (behaviour, expected) in [
        ("hangs up", "connection_terminated"),
        ("says nothing", "connection_read_timeout"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "tls_protocol_error"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            match behaviour {
                "hangs up" => drop(stream),
                "says nothing" => tokio::time::sleep(Duration::from_secs(10)).await,
                plain => {
                    stream.write_all(plain.as_bytes()).await.unwrap();
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
            }
        });
        let began = Instant::now();
        let (fault, token) = tls_fault(dial_tls("api.internal", port, &client).await);
        assert_eq!(token, expected, "{behaviour}: {fault}");
        assert!(began.elapsed() < Duration::from_secs(8));
    }
}

#[test]
fn settings_that_make_no_client() {
    assert!(matches!(Roots::from_pem(b""), Err(TlsSettingsFault::Certificates(_))));
    assert!(matches!(
        Roots::from_pem(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        Err(TlsSettingsFault::Certificates(_))
    ));
    let authorities = Authorities::new();
    let ((chain, key), (_, other)) =
        (authorities.sign(&named(&["a.example"])), authorities.sign(&named(&["b.example"])));
    assert!(matches!(ClientIdentity::from_pem(chain.as_bytes(), b"none"), Err(TlsSettingsFault::Key)));
    assert!(ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes()).is_ok());
    let crossed = ClientIdentity::from_pem(chain.as_bytes(), other.as_bytes()).unwrap();
    assert!(matches!(TlsClient::new(&authorities.roots(), Some(crossed), &[]), Err(TlsSettingsFault::Identity(_))));
}

#[test]
fn the_system_trusts_somebody() {
    // Every machine that runs these tests has certificates (`ca-certificates`); an appliance without is told so.
    if std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        assert!(Roots::of_the_system().is_ok());
    } else {
        assert!(matches!(Roots::of_the_system(), Err(TlsSettingsFault::NoSystemRoots(_))));
    }
}
