//! The accept path, whole, over a connection without a socket and a log without a disk.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail by panicking, as the test does")]
#![allow(clippy::clone_on_ref_ptr, reason = "the types say enough here")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use config::{Appliance, Listener, MapEnvironment, TenantFiles, TenantsLoad};
use domain::{Clock, ManualClock, NodeId};
use eventlog::holding::{Held, HoldingFilter, HoldingSettings};
use eventlog::{AppendError, EventLog, Filter, HoldingStore, MemoryLog, Scope, Start, StoredEvent};
use prometheus_client::registry::Registry;
use ratelimit::unauthenticated::Settings;
use ratelimit::{InFlight, LocalLimits, Unauthenticated};
use tidegate_gateway::endpoint::TenantEndpoints;
use tidegate_gateway::holding::Judgement;
use tidegate_gateway::metrics::Metrics;
use tidegate_gateway::record::{Accepted, Promoted, Recorder, RefusedLine, Repeated, Shaken};
use tidegate_gateway::scheme::{Presets, SeenUrl, Unsigned};
use tidegate_gateway::snapshot::Snapshot;
use tidegate_gateway::{Gateway, Parts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[path = "accept/repeats.rs"]
mod repeats;

const NOW_MS: u64 = 1_764_424_000_000;
const SECRET: &str = "0123456789abcdef0123456789abcdef";
const TENANT: &str = r#"
tenant = "acme"

[[endpoint]]
id = "wh_github"
scheme = "github"
secrets = [{ value = "secret:shared" }]

[[endpoint]]
id = "wh_stripe"
scheme = "stripe"
secrets = [{ value = "secret:shared" }]
limits = { events = "1/s burst 2" }

[[endpoint]]
id = "wh_bulk"
scheme = "github"
secrets = [{ value = "secret:shared" }]
limits = { events = "1/s burst 1" }

[[endpoint]]
id = "wh_narrow"
scheme = "github"
secrets = [{ value = "secret:shared" }]
limits = { bytes = "1KiB/s burst 1KiB" }

[[endpoint]]
id = "wh_off"
scheme = "github"
secrets = [{ value = "secret:shared" }]
enabled = false

[[endpoint]]
id = "wh_near"
scheme = "github"
secrets = [{ value = "secret:shared" }]
sources = ["198.51.100.0/24"]

[[endpoint]]
id = "wh_small"
scheme = "github"
secrets = [{ value = "secret:shared" }]
body_bytes_max = "16B"

[[endpoint]]
id = "wh_alias"
scheme = "github"
secrets = [{ value = "secret:shared" }]
aliases = ["old.example.com/in/github", "/everywhere"]

[[endpoint]]
id = "wh_square"
scheme = "square"
secrets = [{ value = "secret:shared" }]

[[endpoint]]
id = "wh_gitlab"
scheme = "gitlab"
secrets = [{ value = "secret:shared" }]

[[endpoint]]
id = "wh_mailgun"
scheme = "mailgun"
secrets = [{ value = "secret:shared" }]

[[endpoint]]
id = "wh_wise"
scheme = "wise-sandbox"
secrets = []
"#;

#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl Recorder for Lines {
    fn accepted(&self, line: &Accepted<'_>) {
        self.0.lock().unwrap().push(format!("accepted {} {}", line.endpoint, line.source));
    }

    fn promoted(&self, line: &Promoted<'_>) {
        let Promoted { event, tenant, endpoint, scheme, secret, source, body_bytes, received_unix_ms } = line;
        let text =
            format!("promoted {event} {tenant} {endpoint} {scheme} {secret} {source} {body_bytes} {received_unix_ms}");
        self.0.lock().unwrap().push(text);
    }

    fn repeated(&self, line: &Repeated<'_>) {
        let Repeated { event, tenant, endpoint, source } = line;
        self.0.lock().unwrap().push(format!("repeated {event} {tenant} {endpoint} {source}"));
    }

    fn shaken(&self, line: &Shaken<'_>) {
        let Shaken { tenant, endpoint, scheme, kind, source, status } = line;
        self.0.lock().unwrap().push(format!("handshake {tenant} {endpoint} {scheme} {kind} {source} {status}"));
    }

    fn refused(&self, line: &RefusedLine<'_>) {
        self.0.lock().unwrap().push(format!("{}: {}", line.refusal, line.detail));
    }
}

struct Bench {
    gateway: Arc<Gateway>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    holding: Arc<HoldingStore>,
    appliance: Appliance,
    directory: tempfile::TempDir,
    log: Arc<MemoryLog>,
    lines: Arc<Lines>,
    clock: Arc<ManualClock>,
    presets: Presets,
    registry: Registry,
    in_flight: Arc<InFlight>,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Appliance)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tenants = directory.path().join("tenants");
        std::fs::create_dir_all(tenants.join("acme.secrets")).unwrap();
        std::fs::write(tenants.join("acme.toml"), TENANT).unwrap();
        std::fs::write(tenants.join("acme.secrets/shared"), SECRET).unwrap();
        std::fs::write(tenants.join("acme.secrets/mistaken"), "not-the-providers-secret").unwrap();
        let mut appliance = Appliance::default();
        appliance.tenants.directory = tenants;
        appliance.gateway.public_url = "https://hooks.example.com".parse().unwrap();
        change(&mut appliance);
        let presets = Presets::load().unwrap();
        let snapshot = Arc::new(ArcSwap::from_pointee(read(&appliance, &presets)));
        let clock = ManualClock::at_unix_ms(NOW_MS);
        let shared: Arc<dyn Clock> = clock.clone();
        let log = Arc::new(MemoryLog::new(NodeId(1), Arc::clone(&shared)));
        let log_settings = eventlog::embedded::Settings::new(&appliance.log, NodeId(1));
        let mut held = HoldingSettings::new(&appliance.holding, &log_settings, 1 << 20);
        held.directory = directory.path().join("holding");
        held.reserve_bytes = 0;
        let holding = Arc::new(HoldingStore::open(&held, Arc::clone(&shared)).unwrap().0);
        let lines = Arc::new(Lines::default());
        let mut registry = Registry::default();
        let in_flight = Arc::new(InFlight::new(appliance.gateway.bytes_in_flight_max));
        let gateway =
            Gateway::new(parts(&appliance, &snapshot, &log, &holding, &in_flight, &clock, &lines, &mut registry));
        let gateway = Arc::new(gateway.unwrap());
        Self { gateway, snapshot, holding, appliance, directory, log, lines, clock, presets, registry, in_flight }
    }

    /// A gateway over the same log that knows nothing of what this one took.
    fn another_process(&self) -> Arc<Gateway> {
        let mut registry = Registry::default();
        let Self { appliance, snapshot, log, holding, in_flight, clock, lines, .. } = self;
        let parts = parts(appliance, snapshot, log, holding, in_flight, clock, lines, &mut registry);
        Arc::new(Gateway::new(parts).unwrap())
    }

    /// Puts another tenant's file in force, as a reload does.
    fn reload(&self, tenant: &str) {
        std::fs::write(self.directory.path().join("tenants/acme.toml"), tenant).unwrap();
        self.snapshot.store(Arc::new(read(&self.appliance, &self.presets)));
    }

    /// Puts a file with a fault in force, and no good version of it.
    fn break_file(&self) {
        std::fs::write(self.directory.path().join("tenants/acme.toml"), format!("nonsense = 1\n{TENANT}")).unwrap();
        let load: TenantsLoad<Arc<TenantEndpoints>> =
            TenantFiles::without_state().load(&self.appliance, &MapEnvironment::default(), &mut |tenant| {
                TenantEndpoints::new(tenant, &self.presets)
            });
        let (settings, limits) = (self.appliance.gateway.clone(), self.appliance.limits.clone());
        self.snapshot.store(Arc::new(Snapshot::new(settings, limits, load.tenants, &load.unavailable)));
    }

    /// What is held, once so many deliveries of it are on disk: holding is not waited for by the path.
    fn held(&self, count: usize) -> Vec<Held> {
        loop {
            let held: Vec<_> = self.holding.iter(&Scope::Operator, &HoldingFilter::default()).collect();
            if held.len() >= count {
                return held.into_iter().map(Result::unwrap).collect();
            }
            std::thread::yield_now();
        }
    }

    /// A delivery as its provider would send it.
    fn signed(&self, scheme: &str, target: &str, body: &str) -> String {
        let scheme = self.presets.get(scheme).unwrap();
        let key = scheme.key(&domain::Secret::new(SECRET.as_bytes())).unwrap();
        let url = SeenUrl { scheme: "https", host: "hooks.example.com", port: None, base_path: "" };
        let unsigned = Unsigned { method: "POST", target, url, headers: &[], body: body.as_bytes() };
        let signed = scheme.sign(&unsigned, &key, self.clock.unix_ms()).unwrap();
        let lines = signed.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let headers = lines.collect::<Vec<_>>().concat();
        format!(
            "POST {target} HTTP/1.1\r\nHost: hooks.example.com\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    async fn ask(&self, request: impl AsRef<[u8]>) -> String {
        let answer = listen::testing::converse(request.as_ref(), Listener::default(), self.gateway.clone()).await;
        String::from_utf8(answer).unwrap()
    }

    fn stored(&self) -> Vec<StoredEvent> {
        let mut reader = self.log.reader(Scope::Operator, Start::Earliest, Filter::default()).unwrap();
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    /// The lines of a metric, without its help.
    fn metric(&self, name: &str) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    fn last_line(&self) -> String {
        self.lines.0.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

#[expect(clippy::too_many_arguments, reason = "what a process is made of")]
fn parts(
    appliance: &Appliance,
    snapshot: &Arc<ArcSwap<Snapshot>>,
    log: &Arc<MemoryLog>,
    holding: &Arc<HoldingStore>,
    in_flight: &Arc<InFlight>,
    clock: &Arc<ManualClock>,
    lines: &Arc<Lines>,
    registry: &mut Registry,
) -> Parts {
    let shared: Arc<dyn Clock> = clock.clone();
    Parts {
        node: NodeId(1),
        snapshot: snapshot.clone(),
        log: log.clone(),
        holding: appliance.holding.enabled.then(|| holding.clone()),
        limits: Arc::new(LocalLimits::new(Arc::clone(&shared))),
        unauthenticated: Arc::new(Unauthenticated::new(&Settings::default(), Arc::clone(&shared))),
        in_flight: in_flight.clone(),
        clock: shared,
        keeper: None,
        repeats: Arc::new(tidegate_gateway::repeats::Repeats::new(appliance.gateway.repeats_max)),
        metrics: Arc::new(Metrics::new(registry)),
        recorder: lines.clone(),
    }
}

fn read(appliance: &Appliance, presets: &Presets) -> Snapshot {
    let load: TenantsLoad<Arc<TenantEndpoints>> =
        TenantFiles::without_state()
            .load(appliance, &MapEnvironment::default(), &mut |tenant| TenantEndpoints::new(tenant, presets));
    assert!(load.faults.iter().all(|f| !f.is_error()), "{:?}", load.faults);
    Snapshot::new(appliance.gateway.clone(), appliance.limits.clone(), load.tenants, &load.unavailable)
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or("none")
}

fn without_date(answer: &str) -> String {
    answer.lines().filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
}

#[tokio::test]
async fn a_signed_delivery_is_stored_as_it_came_and_answered_202() {
    let bench = Bench::new();
    let request = bench
        .signed("github", "/hooks/wh_github?b=2&tags[]={a|b}", "{\"zen\":\"\u{2603}\"}")
        .replace("Host:", "X-First: 1\r\nx-dup: a\r\nX-Dup: b\r\nAuthorization: Basic c2VjcmV0\r\nHost:");
    let answer = bench.ask(&request).await;
    assert_eq!(status(&answer), "202", "{answer}");
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let stored = bench.stored();
    let event = &stored[0];
    assert_eq!((stored.len(), body["eventId"].as_str().unwrap()), (1, &*event.id.to_string()));
    assert_eq!(body["executionId"], event.id.execution().to_string());
    assert_eq!(event.body, Bytes::from("{\"zen\":\"\u{2603}\"}"));
    assert_eq!(event.target, Bytes::from("/hooks/wh_github?b=2&tags[]={a|b}"));
    assert_eq!((event.received_unix_ms, &*event.scheme, &*event.secret), (NOW_MS, "github", "primary"));
    let names: Vec<_> = event.headers.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(names[..4], ["X-First", "x-dup", "X-Dup", "Host"]);
    assert!(!names.iter().any(|name| name == "Authorization"), "{names:?}");
    assert_eq!(bench.last_line(), "accepted wh_github 192.0.2.7");
}

#[tokio::test]
async fn what_does_not_prove_its_sender_is_401_and_not_in_the_log() {
    let bench = Bench::new();
    let good = bench.signed("github", "/hooks/wh_github", "{}");
    let line = good.lines().find(|l| l.to_ascii_lowercase().starts_with("x-hub-signature-256")).unwrap().to_owned();
    let missing = good.replace(&format!("{line}\r\n"), "");
    let twice = good.replace(&line, &format!("{line}\r\n{line}"));
    let wrong = good.replace("\r\n\r\n{}", "\r\n\r\n[]");
    let mut answers = Vec::new();
    for bad in [missing, twice, wrong] {
        let answer = bench.ask(bad).await;
        assert_eq!(status(&answer), "401", "{answer}");
        answers.push(without_date(&answer));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "the answers tell which check failed: {answers:?}");
    assert!(bench.stored().is_empty());
}

#[tokio::test]
async fn unknown_disabled_and_another_hosts_endpoint_answer_the_same_bytes() {
    let bench = Bench::new();
    let good = bench.signed("github", "/hooks/wh_github", "{}");
    let mut answers = Vec::new();
    for (request, told) in [
        (good.replace("wh_github", "wh_nobody"), "this id"),
        (good.replace("wh_github", "wh_off"), "this id"),
        (good.replace("Host: hooks.example.com", "Host: other.example.com"), "gateway.hosts"),
        (good.replace("/hooks/wh_github", "/in/github"), "this path"),
        (good.replace("/hooks/wh_github", "/hooks/"), "this id"),
        (good.replace("/hooks/wh_github", "/"), "this path"),
    ] {
        let answer = bench.ask(request).await;
        assert_eq!(status(&answer), "404", "{answer}");
        assert!(bench.last_line().contains(told), "the operator is told: {}", bench.last_line());
        answers.push(without_date(&answer));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(status(&bench.ask(good.replace("Host: hooks.example.com", "Host: 127.0.0.1:8080")).await), "202");
}

#[tokio::test]
async fn aliases_answer_by_host_and_path() {
    let bench = Bench::new();
    let at = |target: &str, host: &str| {
        bench.signed("github", target, "{}").replace("Host: hooks.example.com", &format!("Host: {host}"))
    };
    assert_eq!(status(&bench.ask(at("/in/github", "old.example.com")).await), "202");
    assert_eq!(status(&bench.ask(at("/in/github", "OLD.example.com:443")).await), "202");
    assert_eq!(status(&bench.ask(at("/in/github", "hooks.example.com")).await), "404");
    assert_eq!(status(&bench.ask(at("/everywhere", "hooks.example.com")).await), "202");
    assert_eq!(bench.stored().len(), 3);
    // A name that is not served finds nothing, as it finds no endpoint by its id.
    let unknown = bench.ask(at("/hooks/wh_nobody", "hooks.example.com")).await;
    for (target, host) in [("/everywhere", "any.example.net"), ("/everywhere", "old.example.com")] {
        let answer = bench.ask(at(target, host)).await;
        assert_eq!(status(&answer), "404", "{host}: {answer}");
        assert_eq!(without_date(&answer), without_date(&unknown));
    }
    assert_eq!(bench.stored().len(), 3);

    // Nor does it where the tenant's file is faulty: 503 says that there was something.
    bench.break_file();
    assert_eq!(status(&bench.ask(at("/everywhere", "hooks.example.com")).await), "503");
    assert_eq!(status(&bench.ask(at("/in/github", "old.example.com")).await), "503");
    assert_eq!(status(&bench.ask(at("/everywhere", "any.example.net")).await), "404");
}

#[tokio::test]
async fn methods_sources_and_sizes_are_refused_by_name() {
    let bench = Bench::new();
    let good = bench.signed("github", "/hooks/wh_github", "{}");
    let answer = bench.ask(good.replace("POST /", "PUT /")).await;
    assert_eq!(status(&answer), "405");
    assert!(answer.contains("allow: POST\r\n"), "{answer}");
    assert_eq!(status(&bench.ask(good.replace("wh_github", "wh_near")).await), "403");
    let large = "x".repeat(17);
    assert_eq!(status(&bench.ask(bench.signed("github", "/hooks/wh_small", &large)).await), "413");
    let chunked = bench
        .signed("github", "/hooks/wh_small", &large)
        .replace("Content-Length: 17", "Transfer-Encoding: chunked")
        .replace(&large, &format!("8\r\n{}\r\n9\r\n{}\r\n0\r\n\r\n", &large[..8], &large[8..]));
    assert_eq!(status(&bench.ask(chunked).await), "413");
    assert_eq!(status(&bench.ask(bench.signed("github", "/hooks/wh_small", &large[..16])).await), "202");
}

#[tokio::test]
async fn over_the_limit_is_429_where_the_provider_sends_again_and_bulk_where_not() {
    let bench = Bench::new();
    let send = async |scheme: &str, id: &str| bench.ask(bench.signed(scheme, &format!("/hooks/{id}"), "{}")).await;
    assert_eq!(status(&send("stripe", "wh_stripe").await), "202");
    assert_eq!(status(&send("stripe", "wh_stripe").await), "202");
    let over = send("stripe", "wh_stripe").await;
    assert_eq!(status(&over), "429", "{over}");
    assert!(over.contains("retry-after: 1\r\n") && over.contains("ratelimit: \"endpoint-events\";r=0;t=1"), "{over}");
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(status(&send("stripe", "wh_stripe").await), "202");
    for _ in 0..3 {
        assert_eq!(status(&send("github", "wh_bulk").await), "202");
    }
    let classes: Vec<_> = bench.stored().iter().filter(|e| e.endpoint.as_str() == "wh_bulk").map(|e| e.class).collect();
    assert_eq!(classes, [eventlog::Class::Normal, eventlog::Class::Bulk, eventlog::Class::Bulk]);
}

#[tokio::test]
async fn a_log_that_cannot_commit_is_503_and_never_202() {
    let bench = Bench::with(|appliance| appliance.gateway.commit_timeout = Duration::from_millis(50));
    let good = bench.signed("github", "/hooks/wh_github", "{}");
    for fault in [AppendError::Full, AppendError::QueueFull, AppendError::Unavailable { reason: "sync failed".into() }]
    {
        bench.log.refuse_with(Some(fault));
        let answer = bench.ask(&good).await;
        assert_eq!(status(&answer), "503", "{answer}");
        assert!(answer.contains("retry-after: "), "{answer}");
    }
    assert_eq!(bench.last_line(), "log-unavailable: the log cannot commit: sync failed");
    bench.log.refuse_with(None);
    bench.log.hold_acks();
    assert_eq!(status(&bench.ask(&good).await), "503", "the disk hangs");
    bench.log.release_acks();
    assert_eq!(status(&bench.ask(&good).await), "202");
}

#[tokio::test]
async fn what_the_log_does_not_take_spends_no_limit() {
    let bench = Bench::new();
    let send = async || bench.ask(bench.signed("stripe", "/hooks/wh_stripe", "{}")).await;
    for fault in [AppendError::Full, AppendError::QueueFull, AppendError::Unavailable { reason: "sync failed".into() }]
    {
        bench.log.refuse_with(Some(fault.clone()));
        assert_eq!(status(&send().await), "503");
        assert_eq!(bench.last_line(), format!("log-unavailable: {fault}"));
    }
    bench.log.refuse_with(None);
    // The endpoint's burst, whole: providers that send again are not told that they are too fast.
    let said = [send().await, send().await, send().await];
    assert_eq!(said.each_ref().map(|answer| status(answer)), ["202", "202", "429"]);
}

#[tokio::test]
async fn continue_is_said_only_after_endpoint_and_source_are_known() {
    let bench = Bench::new();
    // Only the head: a body that has arrived already needs no invitation.
    let good = bench.signed("github", "/hooks/wh_github", "{}").replace("Host:", "Expect: 100-continue\r\nHost:");
    let good = good.replace("\r\n\r\n{}", "\r\n\r\n");
    assert!(bench.ask(&good).await.starts_with("HTTP/1.1 100 "));
    for bad in
        [good.replace("wh_github", "wh_nobody"), good.replace("wh_github", "wh_near"), good.replace("POST", "PUT")]
    {
        assert!(!bench.ask(bad).await.contains("100 Continue"));
    }
}

#[tokio::test]
async fn a_forger_is_throttled_and_an_honest_source_is_not() {
    let bench = Bench::with(|appliance| appliance.gateway.trusted_proxies = vec!["192.0.2.0/24".parse().unwrap()]);
    let good = bench.signed("github", "/hooks/wh_github", "{}");
    let from = |request: &str, source: &str| request.replace("Host:", &format!("X-Forwarded-For: {source}\r\nHost:"));
    let forged = from(&good.replace("\r\n\r\n{}", "\r\n\r\n[]"), "203.0.113.66");
    let mut refused_at = None;
    for n in 0..1_000 {
        if status(&bench.ask(&forged).await) == "429" {
            refused_at = Some(n);
            break;
        }
    }
    assert_eq!(refused_at, Some(120), "the burst of a stranger's failures");
    assert_eq!(status(&bench.ask(from(&good, "203.0.113.66")).await), "429", "it is not even heard");
    assert_eq!(status(&bench.ask(from(&good, "203.0.113.5")).await), "202");
    assert_eq!(bench.stored().len(), 1);
}

#[tokio::test]
async fn the_log_says_what_is_malformed_and_the_answer_does_not() {
    let bench = Bench::new();
    let head = "POST /hooks/wh_github HTTP/1.1\r\nHost: hooks.example.com\r\n";
    let mut answers = Vec::new();
    for (bytes, why) in [
        (format!("{head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"), "both Content-Length and"),
        (head.replace("\r\n", "\n") + "\n", "LF without CR"),
        ("\u{16}\u{3}\u{1}".to_owned(), "TLS was spoken to an address without TLS"),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\nx\r\n"), "chunks are not framed"),
        (format!("{head}Content-Length: 20\r\n\r\nshort"), "ended before the body did"),
    ] {
        answers.push(without_date(&bench.ask(&bytes).await));
        let line = bench.last_line();
        assert!(line.starts_with("malformed-request: ") && line.contains(why), "{line}");
    }
    assert!(answers.iter().all(|answer| *answer == answers[0] && status(answer) == "400"), "{answers:?}");
}

#[tokio::test]
async fn the_host_of_an_endpoint_s_own_url_is_served_for_it_and_for_no_other() {
    let bench = Bench::new();
    let own = "[[endpoint]]\nid = \"wh_own\"\nscheme = \"github\"\nsecrets = [{ value = \"secret:shared\" }]\n\
               public_url = \"https://own.example.net/base\"\n";
    bench.reload(&format!("{TENANT}{own}"));
    let on = |host: &str, id: &str| {
        let target = format!("/hooks/{id}");
        bench.signed("github", &target, "{}").replace("hooks.example.com", host)
    };
    assert_eq!(status(&bench.ask(on("own.example.net", "wh_own")).await), "202");
    assert_eq!(status(&bench.ask(on("hooks.example.com", "wh_own")).await), "202", "as before");
    let other = bench.ask(on("own.example.net", "wh_github")).await;
    let nothing = bench.ask(on("own.example.net", "wh_nothing")).await;
    assert_eq!((status(&other), without_date(&other)), ("404", without_date(&nothing)));
}

#[tokio::test]
async fn what_a_wrong_secret_refused_becomes_an_event_once_the_secret_is_right() {
    let bench = Bench::new();
    let mistaken = TENANT.replace("secret:shared", "secret:mistaken");
    bench.reload(&mistaken);
    let good = bench.signed("github", "/hooks/wh_github", "{\"n\":1}");
    assert_eq!(status(&bench.ask(&good).await), "401");
    let held = bench.held(1);
    assert_eq!((held.len(), &*held[0].reason), (1, "mismatch"));
    assert!(bench.stored().is_empty());

    // Still wrong: still refused, and still held.
    let judged = bench.gateway.reverify(held[0].clone(), false).await;
    assert!(matches!(judged, Judgement::Refused(_)), "{judged:?}");

    // A month later the secret is put right. The receive time's clock judges, and names the event.
    bench.reload(TENANT);
    bench.clock.advance(Duration::from_hours(30 * 24));
    assert_eq!(bench.gateway.reverify(held[0].clone(), true).await, Judgement::WouldPromote);
    assert!(bench.stored().is_empty(), "a dry run promotes nothing");
    assert_eq!(bench.gateway.reverify(held[0].clone(), false).await, Judgement::Promoted);
    let id = held[0].delivery.id;
    assert_eq!(bench.last_line(), format!("promoted {id} acme wh_github github primary 192.0.2.7 7 {NOW_MS}"));
    let stored = bench.stored();
    assert_eq!((stored.len(), stored[0].id, stored[0].received_unix_ms), (1, held[0].delivery.id, NOW_MS));
    assert_eq!((&stored[0].body, &*stored[0].secret), (&Bytes::from("{\"n\":1}"), "primary"));
    assert_eq!(bench.holding.stat().quarantined, 0);

    // Asked again, as after a crash between the two: it is there already.
    assert_eq!(bench.gateway.reverify(held[0].clone(), false).await, Judgement::AlreadyPromoted);
    assert_eq!(bench.stored().len(), 1);
}

#[tokio::test]
async fn a_secret_that_was_held_under_the_wrong_preset_does_not_reach_the_log() {
    let bench = Bench::new();
    let request = format!(
        "POST /hooks/wh_github HTTP/1.1\r\nHost: hooks.example.com\r\nX-Gitlab-Token: {SECRET}\r\n\
         X-Kept: 1\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    assert_eq!(status(&bench.ask(request).await), "401");
    let held = bench.held(1);
    bench.reload(&TENANT.replace("id = \"wh_github\"\nscheme = \"github\"", "id = \"wh_github\"\nscheme = \"gitlab\""));
    assert_eq!(bench.gateway.reverify(held[0].clone(), false).await, Judgement::Promoted);
    let stored = bench.stored();
    let names: Vec<_> = stored[0].headers.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(names, ["Host", "X-Kept", "Content-Length"], "the token lies in the log");
}

#[tokio::test]
async fn what_could_never_be_judged_again_is_not_held() {
    let bench = Bench::new();
    let request = "POST /hooks/wh_gitlab HTTP/1.1\r\nHost: hooks.example.com\r\nX-Gitlab-Token: another\r\n\
                   Content-Length: 2\r\n\r\n{}";
    assert_eq!(status(&bench.ask(request).await), "401");
    assert!(bench.last_line().contains("not held: this scheme's proof is a secret"), "{}", bench.last_line());
    let stat = bench.holding.stat();
    assert_eq!((stat.quarantined, stat.bytes), (0, 0));
}

#[tokio::test]
async fn asked_twice_at_the_same_time_it_promotes_once() {
    let bench = Bench::new();
    bench.reload(&TENANT.replace("secret:shared", "secret:mistaken"));
    assert_eq!(status(&bench.ask(bench.signed("github", "/hooks/wh_github", "{}")).await), "401");
    let held = bench.held(1).remove(0);
    bench.reload(TENANT);
    let again = || bench.gateway.reverify(held.clone(), false);
    let (one, two, three) = tokio::join!(again(), again(), again());
    let all = [one, two, three];
    let count = |wanted: &Judgement| all.iter().filter(|judgement| *judgement == wanted).count();
    assert_eq!((count(&Judgement::Promoted), count(&Judgement::AlreadyPromoted)), (1, 2), "{all:?}");
    assert_eq!(bench.stored().len(), 1);
    assert_eq!(bench.metric("gateway_promoted_total"), ["gateway_promoted_total 1"]);
}

#[tokio::test]
async fn what_is_not_held_is_counted_by_its_reason_and_not_at_all_where_nothing_is_held() {
    let bench = Bench::with(|appliance| appliance.holding.records_per_endpoint_max = 1);
    let forged = bench.signed("github", "/hooks/wh_github", "{}").replace("\r\n\r\n{}", "\r\n\r\n[]");
    for _ in 0..3 {
        assert_eq!(status(&bench.ask(&forged).await), "401");
    }
    assert_eq!(bench.metric("gateway_held_total"), ["gateway_held_total 1"]);
    let dropped = |bench: &Bench| -> Vec<String> {
        let lines = bench.metric("gateway_held_dropped_total").into_iter();
        lines.filter(|line| !line.ends_with(" 0")).collect()
    };
    assert_eq!(dropped(&bench), ["gateway_held_dropped_total{reason=\"endpoint-full\"} 2"]);

    let off = Bench::with(|appliance| appliance.holding.enabled = false);
    assert_eq!(status(&off.ask(&forged).await), "401");
    assert_eq!(dropped(&off), [""; 0]);
}

#[tokio::test]
async fn an_absolute_target_is_judged_and_stored_in_origin_form() {
    let bench = Bench::new();
    let origin = "POST /hooks/wh_square?a=1 ";
    let good = bench.signed("square", "/hooks/wh_square?a=1", "{}");
    assert!(good.starts_with(origin), "{good}");
    let absolute = good.replace(origin, "POST https://hooks.example.com/hooks/wh_square?a=1 ");
    let answer = bench.ask(&absolute).await;
    assert_eq!(status(&answer), "202", "{}", bench.last_line());
    assert_eq!(bench.stored()[0].target, Bytes::from("/hooks/wh_square?a=1"));

    // Held and judged again, it is the same.
    bench.reload(&TENANT.replace("secret:shared", "secret:mistaken"));
    assert_eq!(status(&bench.ask(&absolute).await), "401");
    let held = bench.held(1).remove(0);
    bench.reload(TENANT);
    assert_eq!(bench.gateway.reverify(held, false).await, Judgement::Promoted);
}

#[tokio::test]
async fn a_tenants_bulk_share_does_not_depend_on_which_endpoint_asks() {
    let bench = Bench::new();
    // Fifteen times the endpoint's own burst, which is no measure for the tenant.
    let large = "x".repeat(15 << 10);
    for _ in 0..3 {
        assert_eq!(status(&bench.ask(bench.signed("github", "/hooks/wh_narrow", &large)).await), "202");
    }
}

#[tokio::test]
async fn a_full_storage_says_to_come_back_in_an_hour() {
    let bench = Bench::new();
    bench.reload(&format!("limits = {{ stored_bytes_max = \"1MiB\" }}\n{TENANT}"));
    let large = "x".repeat(1 << 20);
    assert_eq!(status(&bench.ask(bench.signed("github", "/hooks/wh_github", &large)).await), "202");
    let answer = bench.ask(bench.signed("github", "/hooks/wh_github", "{}")).await;
    assert_eq!(status(&answer), "429");
    assert!(answer.contains("retry-after: 3600\r\n"), "{answer}");
}

#[tokio::test]
async fn bodies_that_never_come_whole_spend_the_budget_of_their_source() {
    let bench = Bench::new();
    let broken = bench.signed("github", "/hooks/wh_github", "{}").replace("\r\n\r\n{}", "\r\n\r\n{");
    let mut refused_at = None;
    for n in 0..1_000 {
        let answer = bench.ask(&broken).await;
        if status(&answer) == "429" {
            refused_at = Some(n);
            break;
        }
        assert_eq!(status(&answer), "400", "{answer}");
    }
    assert_eq!(refused_at, Some(120), "the burst of a stranger's failures");
}

#[tokio::test]
async fn heads_alone_do_not_take_an_endpoints_bytes() {
    // An endpoint's share is 128 KiB.
    let bench = Bench::with(|appliance| appliance.gateway.bytes_in_flight_max = 1 << 20);
    let mut clients = Vec::new();
    for _ in 0..10 {
        let head = "POST /hooks/wh_github HTTP/1.1\r\nHost: hooks.example.com\r\nContent-Length: 65536\r\n\r\n";
        let (mut client, serving) =
            listen::testing::connect(1 << 20, Listener::default(), listen::Behaviour::default(), bench.gateway.clone());
        tokio::spawn(serving);
        client.write_all(head.as_bytes()).await.unwrap();
        clients.push(client);
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.in_flight.bytes(), 10 * (8 << 10), "each waits for its body");
    assert_eq!(status(&bench.ask(bench.signed("github", "/hooks/wh_github", "{}")).await), "202");

    // Where there is no room, nobody waits for some: those who send on are refused.
    for client in &mut clients {
        client.write_all(&vec![b'x'; 32 << 10]).await.unwrap();
    }
    let mut refused = 0;
    for client in &mut clients {
        let mut answer = [0; 12];
        let heard = tokio::time::timeout(Duration::from_millis(200), client.read_exact(&mut answer)).await;
        refused += usize::from(heard.is_ok_and(|read| read.is_ok()) && answer.ends_with(b" 503"));
    }
    assert!((1..10).contains(&refused), "{refused} of ten were refused");
    assert!(bench.in_flight.bytes() <= 128 << 10);
    drop(clients);
}

/// As Mailgun sends it: the signature covers timestamp and token, and not the event.
fn mailgun(token: &str, event: &str) -> String {
    let seconds = NOW_MS / 1_000;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = ring::hmac::sign(&key, format!("{seconds}{token}").as_bytes());
    let signature = data_encoding::HEXLOWER.encode(tag.as_ref());
    let body = format!(
        r#"{{"signature":{{"timestamp":"{seconds}","token":"{token}","signature":"{signature}"}},"event-data":"{event}"}}"#
    );
    let length = body.len();
    format!("POST /hooks/wh_mailgun HTTP/1.1\r\nHost: hooks.example.com\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[tokio::test]
async fn a_token_without_the_body_is_taken_once() {
    let bench = Bench::new();
    let first = bench.ask(mailgun("token-1", "delivered")).await;
    assert_eq!(status(&first), "200", "{first}");
    // Sent again: answered as it was, with the same event, and not stored again.
    assert_eq!(without_date(&bench.ask(mailgun("token-1", "delivered")).await), without_date(&first));
    // Another body under the token that everybody has seen who saw the first delivery.
    let forged = bench.ask(mailgun("token-1", "unsubscribed")).await;
    assert_eq!(status(&forged), "401", "{forged}");
    assert!(bench.last_line().contains("another body"), "{}", bench.last_line());
    let counted = bench.metric("gateway_unverified_total");
    assert!(counted.iter().any(|line| line.contains("replayed") && line.ends_with(" 1")), "{counted:?}");
    assert_eq!(status(&bench.ask(mailgun("token-2", "unsubscribed")).await), "200");
    assert_eq!(bench.stored().len(), 2);
    assert!(bench.holding.iter(&Scope::Operator, &HoldingFilter::default()).next().is_none(), "a replay is not held");
}

#[tokio::test]
async fn a_token_is_not_spent_on_what_was_not_committed() {
    let bench = Bench::new();
    bench.log.refuse_with(Some(AppendError::Full));
    assert_eq!(status(&bench.ask(mailgun("token-1", "delivered")).await), "503");
    bench.log.refuse_with(None);
    assert_eq!(status(&bench.ask(mailgun("token-1", "delivered")).await), "200");
    assert_eq!(bench.stored().len(), 1);
}

#[tokio::test]
async fn held_deliveries_of_one_token_are_promoted_once() {
    let bench = Bench::new();
    bench.reload(&TENANT.replace("secret:shared", "secret:mistaken"));
    for event in ["delivered", "unsubscribed"] {
        assert_eq!(status(&bench.ask(mailgun("token-1", event)).await), "401");
    }
    bench.reload(TENANT);
    let mut judgements = Vec::new();
    for held in bench.held(2) {
        judgements.push(bench.gateway.reverify(held, false).await);
    }
    assert_eq!(judgements.iter().filter(|judgement| **judgement == Judgement::Promoted).count(), 1, "{judgements:?}");
    assert_eq!(bench.stored().len(), 1);
}

#[tokio::test]
async fn an_endpoint_of_a_published_key_needs_no_secret() {
    let bench = Bench::new();
    let answer = bench.presets.get("wise-sandbox").unwrap().declaration().known_answers[0].clone();
    let lines = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let lines = lines.collect::<Vec<_>>().concat();
    let request = |body: &str| {
        let length = body.len();
        format!(
            "POST /hooks/wh_wise HTTP/1.1\r\nHost: hooks.example.com\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
        )
    };
    assert_eq!(status(&bench.ask(request(&answer.body)).await), "200");
    assert_eq!(status(&bench.ask(request(&answer.body.replace("transfer", "transfew"))).await), "401");
    assert_eq!(&*bench.stored()[0].secret, "published");
    // Any other scheme needs one.
    let tenant = TENANT.replace("scheme = \"wise-sandbox\"", "scheme = \"github\"");
    std::fs::write(bench.directory.path().join("tenants/acme.toml"), tenant).unwrap();
    let load: TenantsLoad<Arc<TenantEndpoints>> =
        TenantFiles::without_state().load(&bench.appliance, &MapEnvironment::default(), &mut |tenant| {
            TenantEndpoints::new(tenant, &bench.presets)
        });
    assert!(load.faults.iter().any(|fault| fault.is_error() && fault.message.contains("has no secret")));
}
