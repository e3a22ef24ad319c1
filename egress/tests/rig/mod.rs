//! A running role with one tenant, and origins that remember what they saw.
#![allow(dead_code, reason = "each test needs a part of it")]

pub(crate) mod metered;
pub(crate) mod secure;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use data_encoding::BASE64URL_NOPAD;
use domain::{Clock, NodeId, SystemClock, TenantId};
use listen::{Behaviour, Bound, Forms, Server, ServerHandle, Service, Silent};
use outbound::dial::DialSettings;
use outbound::{
    AddressTable, Alpn, Answer, Dialer, HostName, Opening, Own, Resolve, ResolveError, Roots, Rules, TlsClient,
};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use secure::Pki;
use tempfile::TempDir;
use tidegate_egress::caller::{
    CallerSettings, CertificateEntry, CertificateMatch, IssuerEntry, IssuerTenants, PlaintextGrants, PublicKey,
    REVOCATIONS_FILE, Revocation, Revocations, Revoked, TokenEntry, Until, new_token, revoke,
};
use tidegate_egress::forward::{Forward, ForwardSettings};
use tidegate_egress::metrics::Metrics;
use tidegate_egress::policy::{Everybody, Mode, RolePolicy, Rule, SniRule, TenantPolicy};
use tidegate_egress::switches::file::{self, throw};
use tidegate_egress::switches::{Scope, Switch, Switches};
use tidegate_egress::{Callers, Calls, Egress, Ends, Exits, Parts, Policy, Record, Recorder, Settings, Snapshot};

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Keeps(Mutex<Sender<Record>>);

impl Recorder for Keeps {
    fn record(&self, record: Record) {
        // A rig that is gone wants none.
        drop(self.0.lock().unwrap().send(record));
    }
}

/// Everything is on this machine but what says otherwise.
struct Names;

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &HostName) -> Result<Answer, ResolveError> {
        let addresses: Vec<IpAddr> = match name.as_str() {
            "silent.test" => std::future::pending().await,
            "nowhere.test" => return Err(ResolveError::NotFound { ttl: None }),
            "rebinds.test" => vec!["93.184.216.34".parse().unwrap(), "169.254.169.254".parse().unwrap()],
            _ => vec!["127.0.0.1".parse().unwrap()],
        };
        Ok(Answer { addresses: addresses.into(), ttl: Duration::from_mins(1) })
    }
}

/// A role that listens on loopback. `*.test` is open to its tenant, on every port; nobody calls port 9 of `origin.test`.
pub(crate) struct Rig {
    address: SocketAddr,
    /// Where it speaks TLS, and who vouches for it there.
    secure: Option<(SocketAddr, Pki)>,
    token: String,
    issuer: Ed25519KeyPair,
    egress: Arc<Egress>,
    /// Where switches and revocations are written.
    state: TempDir,
    records: Receiver<Record>,
    handle: ServerHandle,
    server: Option<JoinHandle<()>>,
}

fn settings() -> config::Egress {
    config::Egress { name: "edge".into(), ..config::Egress::default() }
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self::with(None, Vec::new(), None)
    }

    /// One that speaks TLS too, and takes no proof without it. The certificate for `spiffe://example.com/runner` is its
    /// tenant's, the one for `…/beta` another's.
    pub(crate) fn secure(provider: Option<&Origin>) -> Self {
        Self::with(provider, Vec::new(), Some(Pki::new()))
    }

    /// With the connection `conn_api` to this origin; its credential is `the-real-key`.
    pub(crate) fn with_connection_to(origin: &Origin) -> Self {
        Self::with(Some(origin), Vec::new(), None)
    }

    /// The same, with this switched off.
    pub(crate) fn with_connection_and_switch(origin: &Origin, scope: Scope) -> Self {
        Self::with(Some(origin), vec![Switch { scope, since_unix_ms: 1, reason: "a test".into() }], None)
    }

    /// One for which each grant's end is nearer by so much: what it is given beyond that, too.
    pub(crate) fn late_by(late: Duration) -> Self {
        Self::with_clock(None, Vec::new(), None, Arc::new(Ahead(SystemClock::shared(), late)), &settings())
    }

    /// One in which a call may take so long in all.
    pub(crate) fn within(total: Duration) -> Self {
        let mut file = settings();
        file.limits.total_timeout = total;
        Self::with_clock(None, Vec::new(), None, SystemClock::shared(), &file)
    }

    fn with(provider: Option<&Origin>, switches: Vec<Switch>, pki: Option<Pki>) -> Self {
        Self::with_clock(provider, switches, pki, SystemClock::shared(), &settings())
    }

    /// `clock` is by which calls go on.
    fn with_clock(
        provider: Option<&Origin>,
        switches: Vec<Switch>,
        pki: Option<Pki>,
        call_clock: Arc<dyn Clock>,
        file: &config::Egress,
    ) -> Self {
        let clock: Arc<dyn Clock> = SystemClock::shared();
        let state = tempfile::tempdir().unwrap();
        for switch in switches {
            throw(&state.path().join(file::FILE_NAME), switch).unwrap();
        }
        let revocations = Arc::new(Revocations::open(state.path(), Arc::clone(&clock)).unwrap());
        let switches = Arc::new(Switches::open(state.path()).unwrap());
        let tenant = TenantId::parse("acme").unwrap();
        let (token, hash) = new_token().unwrap();
        let token = String::from_utf8(token.expose().to_vec()).unwrap();
        let entry = TokenEntry { tenant: tenant.clone(), name: "ci".into(), hash, role: None, until_unix_ms: None };
        let issuer = new_issuer();
        let callers = callers_of(&issuer, entry, pki.is_some());
        let (callers, left_out) = Callers::new(callers, Arc::clone(&revocations), Arc::clone(&clock));
        assert!(left_out.is_empty());

        let (keep, records) = channel();
        let mut registry = prometheus_client::registry::Registry::default();
        let ends = Ends {
            clock: call_clock,
            recorder: Arc::new(Keeps(Mutex::new(keep))),
            metrics: Arc::new(Metrics::register(&mut registry)),
            cut_at: std::sync::OnceLock::new(),
        };
        let (policy, rules) = policy_of(tenant);
        let snapshot = Snapshot {
            settings: Settings::of(file),
            names: tidegate_egress::forward::headers::Names::new("edge", None).unwrap(),
            policy,
            rules: Arc::new(rules),
            exits: Exits::default(),
            connections: tidegate_egress::Connections::new(provider.map(metered::connection_to)),
            tls: TlsClient::new(&roots_of(provider), None, &[Alpn::Http2, Alpn::Http11]).unwrap(),
            quota: Arc::default(),
        };
        let egress = Egress::new(Parts {
            node: NodeId(1),
            snapshot: Arc::new(ArcSwap::from_pointee(snapshot)),
            callers: Arc::new(callers),
            switches: Arc::clone(&switches),
            resolver: Arc::new(Names),
            forward: Forward::new(ForwardSettings::default()),
            dialer: Dialer::new(DialSettings::default()),
            calls: Arc::new(Calls::default()),
            tunnels: Arc::default(),
            quota: Arc::new(metered::quota()),
            ends: Arc::new(ends),
        });
        let egress = Arc::new(egress);
        keep_right(Arc::clone(&egress), switches, revocations);
        let bound = Bound::new(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let behaviour = Behaviour { forms: Forms::Proxy, ..Behaviour::default() };
        let service = Service::new(
            "egress",
            config::Listener::default(),
            bound.listen().unwrap(),
            Arc::clone(&egress) as _,
            Arc::new(Silent),
        )
        .with_behaviour(behaviour);
        let service = match &pki {
            None => service,
            Some(pki) => {
                let bound = Bound::new(&["127.0.0.1:0".parse().unwrap()]).unwrap();
                service.with_tls(pki.listener(), bound.listen().unwrap())
            }
        };
        let addresses = service.addresses();
        let (address, secure) = (addresses[0], pki.map(|pki| (addresses[1], pki)));
        let mut server = Server::new();
        server.add(service);
        let handle = server.handle();
        let server = std::thread::spawn(move || {
            server.run();
        });
        Self { address, secure, token, issuer, egress, state, records, handle, server: Some(server) }
    }

    /// The role itself.
    pub(crate) fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Switches off what this names, as a command does.
    pub(crate) fn switch_off(&self, scope: Scope) {
        let switch = Switch { scope, since_unix_ms: 1, reason: "a test".into() };
        throw(&self.state.path().join(file::FILE_NAME), switch).unwrap();
    }

    /// Revokes everything that is its tenant's, as a command does.
    pub(crate) fn revoke(&self) {
        let now_ms = SystemClock::shared().unix_ms();
        let what = Revoked::Tenant(TenantId::parse("acme").unwrap());
        let revocation = Revocation { what, at_unix_ms: now_ms, until: Until::Lifted };
        revoke(&self.state.path().join(REVOCATIONS_FILE), &revocation, now_ms).unwrap();
    }

    /// Takes the tenants out of the configuration, and has calls looked at as a reload does.
    pub(crate) fn forget_tenants(&self) {
        let parts = self.egress.parts();
        let before = parts.snapshot.load_full();
        parts.snapshot.store(Arc::new(Snapshot {
            settings: before.settings.clone(),
            names: before.names.clone(),
            policy: Policy::new(Arc::new(Everybody::default()), HashMap::new()),
            rules: Arc::clone(&before.rules),
            exits: Exits::default(),
            connections: tidegate_egress::Connections::default(),
            tls: TlsClient::new(&roots_of(None), None, &[Alpn::Http11]).unwrap(),
            quota: Arc::clone(&before.quota),
        }));
        self.switch_off(Scope { tenant: Some(TenantId::parse("nobody").unwrap()), ..Scope::default() });
    }

    /// Waits until that many calls are under way.
    pub(crate) fn await_calls(&self, count: u32) {
        let began = std::time::Instant::now();
        while self.egress.parts().calls.under_way() != count {
            assert!(began.elapsed() < PATIENCE, "{} calls are under way", self.egress.parts().calls.under_way());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Who vouches for both sides of its TLS.
    pub(crate) fn pki(&self) -> &Pki {
        &self.secure.as_ref().expect("it speaks TLS").1
    }

    pub(crate) fn tls_port(&self) -> u16 {
        self.secure.as_ref().expect("it speaks TLS").0.port()
    }

    /// A connection where TLS is spoken, with nothing said on it.
    pub(crate) fn dial_tls(&self) -> TcpStream {
        let stream = TcpStream::connect(self.secure.as_ref().expect("it speaks TLS").0).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A grant of the platform's, with these claims beside those that every one has.
    pub(crate) fn grant(&self, more: &str) -> String {
        let now = SystemClock::shared().unix_ms() / 1000;
        let claims = format!(
            r#"{{"iss":"platform","aud":"tidegate","tenant":"acme","iat":{now},"nbf":{now},"exp":{},"jti":"1"{more}}}"#,
            now + 60
        );
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let signed = format!("{}.{}", encode(r#"{"alg":"EdDSA","typ":"JWT"}"#), encode(&claims));
        let signature = self.issuer.sign(signed.as_bytes());
        format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
    }

    /// The token itself.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The field that proves who asks.
    pub(crate) fn proof(&self) -> String {
        format!("Proxy-Authorization: Bearer {}\r\n", self.token)
    }

    pub(crate) fn open(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }

    /// Sends it on a connection of its own, and reads until that ends.
    pub(crate) fn exchange(&self, asked: &str) -> String {
        let mut client = self.open();
        client.send(asked.as_bytes());
        client.finish();
        String::from_utf8(client.read_to_end()).unwrap()
    }

    /// The next record of whatever came.
    pub(crate) fn any_record(&self) -> Record {
        self.records.recv_timeout(PATIENCE).expect("a record")
    }

    /// The next record of a call whose caller is known.
    pub(crate) fn record(&self) -> Record {
        loop {
            let record = self.records.recv_timeout(PATIENCE).expect("a record");
            if record.tenant.is_some() {
                return record;
            }
        }
    }

    pub(crate) fn records(&self, count: usize) -> Vec<Record> {
        (0..count).map(|_| self.record()).collect()
    }
}

/// `*.test` is open to the tenant, on every port of loopback.
fn policy_of(tenant: TenantId) -> (Policy, Rules) {
    let table = AddressTable::shipped();
    let ports: Vec<u16> = (1..=u16::MAX).collect();
    let opening = Opening::new("*.test", vec!["127.0.0.0/8".parse().unwrap()], ports.clone(), &table).unwrap();
    let rules = Rules { table: Arc::new(table), own: Own::default(), nat64: Vec::new() };
    let deny = [
        Arc::new(Rule::parse("denied.test").unwrap()),
        Arc::new(Rule { ports: Some([9].into()), ..Rule::parse("origin.test").unwrap() }),
    ];
    let everybody = Everybody {
        connect_ports: ports.clone().into(),
        ports: ports.into(),
        deny: tidegate_egress::policy::Rules::new(deny),
        ..Everybody::default()
    };
    let own = RolePolicy { mode: Mode::Open, openings: Arc::new([opening]), ..RolePolicy::default() };
    let trying = RolePolicy { sni: SniRule::Report, ..own.clone() };
    let policy = TenantPolicy { own, roles: HashMap::from([("trying".into(), trying)]), ..TenantPolicy::default() };
    let tenants = HashMap::from([(tenant, Arc::new(policy))]);
    (Policy::new(Arc::new(everybody), tenants), rules)
}

/// Looks after what is under way, until the rig is gone.
fn keep_right(egress: Arc<Egress>, switches: Arc<Switches>, revocations: Arc<Revocations>) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.spawn(switches.keep_looking());
        runtime.spawn(revocations.keep_looking());
        let keeping = egress.keep_right();
        runtime.block_on(async { tokio::time::timeout(Duration::from_mins(1), keeping).await.unwrap_err() });
    });
}

/// A clock that is ahead of another by so much.
#[derive(Debug)]
struct Ahead(Arc<dyn Clock>, Duration);

impl Clock for Ahead {
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms() + u64::try_from(self.1.as_millis()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

/// Whoever has a grant of this issuer's, this token, or one of two certificates.
fn new_issuer() -> Ed25519KeyPair {
    let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap()
}

fn callers_of(issuer: &Ed25519KeyPair, token: TokenEntry, only_tls: bool) -> CallerSettings {
    let key = format!("ed25519:{}", BASE64URL_NOPAD.encode(issuer.public_key().as_ref()));
    let certificate = |tenant: &str, name: &str| CertificateEntry {
        tenant: TenantId::parse(tenant).unwrap(),
        name: name.into(),
        by: CertificateMatch::San(format!("uri:spiffe://example.com/{name}").into()),
        role: None,
    };
    CallerSettings {
        audience: "tidegate".into(),
        plaintext: if only_tls { PlaintextGrants::Never } else { PlaintextGrants::Loopback },
        issuers: vec![IssuerEntry {
            name: "platform".into(),
            keys: vec![PublicKey::parse(key.as_bytes()).unwrap()],
            tenants: IssuerTenants::Every,
        }],
        tokens: vec![token],
        certificates: vec![certificate("acme", "runner"), certificate("beta", "beta")],
    }
}

fn roots_of(provider: Option<&Origin>) -> Roots {
    let own = provider.and_then(|origin| origin.certificate.as_ref());
    own.map_or_else(|| Roots::of_the_system().unwrap(), |pem| Roots::from_pem(pem.as_bytes()).unwrap())
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.stop_now();
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }
}

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The same, to somebody who may not take all of it.
    pub(crate) fn send_in_vain(&mut self, bytes: &[u8]) {
        drop(self.0.write_all(bytes));
    }

    /// Ends with a reset.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.0, Some(Duration::ZERO)).unwrap();
        drop(self.0);
    }

    pub(crate) fn finish(&self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.0.read_exact(&mut read).unwrap();
        read
    }

    /// Through the empty line, in lower case but for the first line.
    pub(crate) fn read_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.read(1));
        }
        head_of(&String::from_utf8(head).unwrap())
    }

    /// Whether the connection ends with a reset, and not cleanly, when nothing more comes.
    pub(crate) fn is_reset(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(read) => {
                assert_eq!(read, 0, "more came");
                false
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                true
            }
        }
    }

    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset is an end, too.
        drop(self.0.read_to_end(&mut rest));
        rest
    }
}

/// The head of a message, with its fields' names in lower case.
pub(crate) fn head_of(message: &str) -> String {
    let head = message.split("\r\n\r\n").next().unwrap_or_default();
    let lines = head.split("\r\n").map(|line| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\r\n")
}

/// A destination that remembers.
pub(crate) struct Origin {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<u8>>>,
    /// In PEM, of one that speaks TLS.
    certificate: Option<String>,
}

impl Origin {
    /// Answers each request over TLS: `/base/away` with a redirect to `/base/there`, `/base/denied` and `/base/dead` with one
    /// to where nobody calls or answers, everything else with `ok`.
    pub(crate) fn provider() -> Self {
        Self::provider_saying(|_| None)
    }

    /// The same, unless this has another answer to a head.
    pub(crate) fn provider_saying(say: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let made = rcgen::generate_simple_self_signed(["origin.test".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let tls = Arc::new(tls);
        let origin = Self::with(move |stream, seen| {
            let session = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream);
            while let Some((head, _)) = read_request(&mut stream) {
                seen.lock().unwrap().extend(head.as_bytes());
                if let Some(answer) = say(&head) {
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    continue;
                }
                let answer: &[u8] = if head.contains("/base/away") {
                    b"HTTP/1.1 302 Found\r\nLocation: /base/there\r\nContent-Length: 0\r\nX-Request-Id: one\r\n\r\n"
                } else if head.contains("/base/denied") {
                    b"HTTP/1.1 302 x\r\nLocation: https://origin.test:9/x\r\nContent-Length: 4\r\n\r\nhere"
                } else if head.contains("/base/dead") {
                    b"HTTP/1.1 302 x\r\nLocation: https://origin.test:1/x\r\nContent-Length: 4\r\n\r\nhere"
                } else {
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\nTidegate-Hops: forged\r\nX-Request-Id: two\r\n\r\nok"
                };
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
        Self { certificate: Some(made.cert.pem()), ..origin }
    }

    /// Answers each request over HTTP/2 as [`Self::provider`] does, and what it cannot choose that for with a 426.
    pub(crate) fn provider_http2() -> Self {
        let made = rcgen::generate_simple_self_signed(["origin.test".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let origin = Self::with(move |stream, seen| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            stream.set_nonblocking(true).unwrap();
            runtime.block_on(serve_http2(stream, &acceptor, &seen));
        });
        Self { certificate: Some(made.cert.pem()), ..origin }
    }

    /// Sends back whatever comes.
    pub(crate) fn echo() -> Self {
        Self::with(|mut stream, seen| {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                seen.lock().unwrap().extend(&bytes[..read]);
                if stream.write_all(&bytes[..read]).is_err() {
                    return;
                }
            }
        })
    }

    /// Reads, and never answers.
    pub(crate) fn silent() -> Self {
        Self::with(|mut stream, seen| {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                seen.lock().unwrap().extend(&bytes[..read]);
            }
            seen.lock().unwrap().extend(b"|ended");
        })
    }

    /// Reads so many bytes, and ends with a reset.
    pub(crate) fn resetting_after(bytes: usize) -> Self {
        Self::with(move |mut stream, _| {
            stream.read_exact(&mut vec![0; bytes]).unwrap();
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        })
    }

    /// Sends back what comes first, and ends with a reset when more comes.
    pub(crate) fn resetting() -> Self {
        Self::with(|mut stream, _| {
            let mut bytes = [0; 4096];
            let Ok(read) = stream.read(&mut bytes) else { return };
            stream.write_all(&bytes[..read]).unwrap();
            let _more = stream.read(&mut bytes);
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        })
    }

    /// Returns when something has come.
    pub(crate) fn await_bytes(&self) {
        let began = std::time::Instant::now();
        while self.bytes() == 0 {
            assert!(began.elapsed() < PATIENCE, "nothing came");
            std::thread::yield_now();
        }
    }

    /// Switches to `WebSocket`, then sends back whatever comes.
    pub(crate) fn websocket() -> Self {
        Self::with(|mut stream, seen| {
            let Some((head, _)) = read_request(&mut stream) else { return };
            seen.lock().unwrap().extend(head.as_bytes());
            let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
            stream.write_all(switched.as_bytes()).unwrap();
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                if stream.write_all(&bytes[..read]).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers each head with this.
    pub(crate) fn http(answer: &'static str) -> Self {
        Self::with(move |mut stream, seen| {
            while let Some((head, _)) = read_request(&mut stream) {
                seen.lock().unwrap().extend(head.as_bytes());
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers with the beginning of a stream of events, and no more; what it is sent meanwhile it reads.
    pub(crate) fn events() -> Self {
        Self::with(|mut stream, seen| {
            let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
            let mut bytes = [0; 4096];
            let mut is_first = true;
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                seen.lock().unwrap().extend(&bytes[..read]);
                if std::mem::take(&mut is_first) {
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
            seen.lock().unwrap().extend(b"|ended");
        })
    }

    /// Answers a head with bytes without end, as fast as they are taken.
    pub(crate) fn endless() -> Self {
        Self::with(|mut stream, seen| {
            let Some((head, _)) = read_request(&mut stream) else { return };
            seen.lock().unwrap().extend(head.as_bytes());
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let block = vec![b'x'; 65_536];
            while stream.write_all(&block).is_ok() {}
            seen.lock().unwrap().extend(b"|ended");
        })
    }

    /// Returns when its connection has ended.
    pub(crate) fn await_end(&self) {
        let began = std::time::Instant::now();
        while !self.seen().ends_with("|ended") {
            assert!(began.elapsed() < PATIENCE, "it goes on");
            std::thread::yield_now();
        }
    }

    /// Answers each request with its body.
    pub(crate) fn http_echo() -> Self {
        Self::with(|mut stream, seen| {
            while let Some((head, body)) = read_request(&mut stream) {
                seen.lock().unwrap().extend(head.as_bytes());
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
                    return;
                }
            }
        })
    }

    fn with(serve: impl Fn(TcpStream, Arc<Mutex<Vec<u8>>>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, seen) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (counted, kept, serve) = (Arc::clone(&connections), Arc::clone(&seen), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (serve, kept) = (Arc::clone(&serve), Arc::clone(&kept));
                std::thread::spawn(move || serve(stream, kept));
            }
        });
        Self { address, connections, seen, certificate: None }
    }

    /// Its authority.
    pub(crate) fn name(&self) -> String {
        format!("origin.test:{}", self.port())
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Everything that it was sent, heads only for HTTP.
    pub(crate) fn seen(&self) -> String {
        String::from_utf8(self.seen.lock().unwrap().clone()).unwrap()
    }
}

/// Serves until the other side closes.
async fn serve_http2(stream: TcpStream, acceptor: &tokio_rustls::TlsAcceptor, seen: &Mutex<Vec<u8>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        // What is closed with something unread loses its answer.
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        return;
    }
    let mut serving = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = serving.accept().await {
        let (head, mut body) = request.into_parts();
        let mut text = format!("{} {}\r\n", head.method, head.uri);
        for (name, value) in &head.headers {
            text.extend([name.as_str(), ": ", value.to_str().unwrap(), "\r\n"]);
        }
        seen.lock().unwrap().extend(text.as_bytes());
        let answer = http::Response::builder().header("tidegate-hops", "forged");
        if head.uri.path() == "/base/away" {
            let answer = answer.status(302).header("location", "/base/there").body(()).unwrap();
            respond.send_response(answer, true).unwrap();
            continue;
        }
        // Back goes what came; the connection goes on meanwhile.
        let mut back = respond.send_response(answer.body(()).unwrap(), false).unwrap();
        tokio::spawn(async move {
            while let Some(Ok(data)) = body.data().await {
                body.flow_control().release_capacity(data.len()).unwrap();
                back.send_data(data, false).unwrap();
            }
            back.send_data("ok".into(), true).unwrap();
        });
    }
}

/// A request's head, its fields' names in lower case, and its body; none at the end.
fn read_request(stream: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = head_of(&String::from_utf8(head).unwrap()) + "\r\n";
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// What a TLS client says first.
pub(crate) fn client_hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}
