//! Against an egress of a few lines, over connections that never leave the process.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use domain::{ManualClock, Secret};
use http::{HeaderMap, Method, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::call::{Cut, ParkSource};
use crate::ids::{AutomationId, RunId};

const NOW: u64 = 1_800_000_000_000;

/// What the next connection, or call, comes to.
#[derive(Debug)]
enum Next {
    Answer(u16, Vec<(&'static str, &'static str)>, Bytes),
    /// Nobody listens.
    RefuseDial,
    /// The connection ends after the request was read.
    HangUp,
    /// Nothing comes, ever.
    Silence,
    /// An answer that ends before its length.
    Half,
}

#[derive(Debug, Default)]
struct Egress {
    next: Mutex<VecDeque<Next>>,
    heads: Mutex<Vec<(Method, String, HeaderMap)>>,
    dialled: AtomicUsize,
    minted: AtomicUsize,
}

impl Dial for Arc<Egress> {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        self.dialled.fetch_add(1, Ordering::SeqCst);
        let mut next = self.next.lock().unwrap();
        let raw = match next.front() {
            Some(Next::RefuseDial) => {
                next.pop_front();
                return Box::pin(std::future::ready(Err(io::ErrorKind::ConnectionRefused.into())));
            }
            Some(Next::HangUp | Next::Silence | Next::Half) => next.pop_front(),
            _ => None,
        };
        drop(next);
        let (client, mut server) = tokio::io::duplex(64 * 1024);
        let egress = Self::clone(self);
        tokio::spawn(async move {
            if let Some(raw) = raw {
                let mut read = [0; 4096];
                let _length = server.read(&mut read).await.unwrap();
                match raw {
                    Next::Silence => std::future::pending::<()>().await,
                    Next::Half => {
                        let head =
                            b"HTTP/1.1 200 OK\r\nTidegate-Send-State: response\r\nContent-Length: 100\r\n\r\nhalf";
                        server.write_all(head).await.unwrap();
                    }
                    Next::Answer(..) | Next::RefuseDial | Next::HangUp => {}
                }
                return;
            }
            let service = service_fn(|request: Request<Incoming>| {
                let answer = egress.answer(&request);
                async { Ok::<_, Infallible>(answer) }
            });
            let _ended = http1::Builder::new().serve_connection(TokioIo::new(server), service).await;
        });
        Box::pin(std::future::ready(Ok(Box::new(client) as Box<dyn Stream>)))
    }
}

impl Egress {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let head = (request.method().clone(), request.uri().to_string(), request.headers().clone());
        self.heads.lock().unwrap().push(head);
        let (status, fields, body) = match self.next.lock().unwrap().pop_front() {
            Some(Next::Answer(status, fields, body)) => (status, fields, body),
            _ => (200, vec![("tidegate-send-state", "response")], Bytes::from_static(b"ok")),
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status.try_into().unwrap();
        for (name, value) in fields {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl Grants for Arc<Egress> {
    fn mint(&self, grant: GrantFor) -> BoxFuture<'_, Result<Minted, NoGrant>> {
        let minted = self.minted.fetch_add(1, Ordering::SeqCst);
        let secret = format!("grant-{minted}-{}-{}", grant.connection, grant.is_bulk);
        let grant = Secret::new(secret.into_bytes());
        Box::pin(std::future::ready(Ok(Minted { grant, lives: Duration::from_mins(5) })))
    }
}

struct Bench {
    egress: Arc<Egress>,
    clock: Arc<ManualClock>,
    caller: EgressCaller,
}

fn bench(next: Vec<Next>) -> Bench {
    let egress = Arc::new(Egress { next: Mutex::new(next.into()), ..Egress::default() });
    let clock = ManualClock::at_unix_ms(NOW);
    let settings = EgressSettings { answer_bytes_max: 1_000, ..EgressSettings::new("127.0.0.1:3128") };
    let (dial, grants) = (Arc::new(Arc::clone(&egress)), Arc::new(Arc::clone(&egress)));
    let caller = EgressCaller::new(settings, Arc::<ManualClock>::clone(&clock), dial, grants).unwrap();
    Bench { egress, clock, caller }
}

fn call() -> Call {
    Call {
        tenant: TenantId::parse("acme").unwrap(),
        connection: ConnectionId::parse("conn_a").unwrap(),
        run: RunId::from_bytes([1; 16]),
        automation: AutomationId::from_bytes([2; 16]),
        is_bulk: false,
        method: Method::POST,
        target: "/v1/charges?expand=all".into(),
        headers: vec![
            (HeaderName::from_static("idempotency-key"), HeaderValue::from_static("eff_1")),
            (HeaderName::from_static("tidegate-grant"), HeaderValue::from_static("an action's own")),
            (HOST, HeaderValue::from_static("elsewhere.example")),
        ],
        body: Bytes::from_static(b"{}"),
        timeout: Duration::from_secs(10),
        attempt: 1,
        is_after_park: false,
    }
}

fn code(answer: &Answer) -> &str {
    match &answer.reply {
        Reply::Refused { code, .. } | Reply::Failed { code, .. } => code,
        Reply::Response { .. } => "response",
        Reply::Parked { .. } => "parked",
    }
}

#[tokio::test(start_paused = true)]
async fn it_asks_as_any_caller_does_and_keeps_connection_and_grant() {
    let bench = bench(vec![]);
    for attempt in 1..=2 {
        let answer = bench.caller.call(Call { attempt, ..call() }).await;
        assert_eq!((answer.send_state, code(&answer)), (SendState::Response, "response"));
    }
    bench.caller.call(Call { is_after_park: true, ..call() }).await;
    let heads = bench.egress.heads.lock().unwrap().clone();
    let (method, target, fields) = &heads[0];
    assert_eq!((method, target.as_str()), (&Method::POST, "/c/conn_a/v1/charges?expand=all"));
    assert_eq!(fields["host"], "127.0.0.1:3128");
    assert_eq!(fields.get_all("tidegate-grant").iter().collect::<Vec<_>>(), ["grant-0-conn_a-false"]);
    assert_eq!(
        (&fields["idempotency-key"], &fields["content-length"]),
        (&"eff_1".parse().unwrap(), &"2".parse().unwrap())
    );
    let attempts: Vec<_> = heads.iter().map(|head| head.2.get("tidegate-attempt")).collect();
    let word = |word| Some(HeaderValue::from_static(word));
    assert_eq!(attempts, [None, word("retry").as_ref(), word("after-park").as_ref()]);
    assert_eq!((bench.egress.dialled.load(Ordering::SeqCst), bench.egress.minted.load(Ordering::SeqCst)), (1, 1));
    // Half of its life is over.
    bench.clock.advance(Duration::from_secs(151));
    bench.caller.call(call()).await;
    assert_eq!(bench.egress.minted.load(Ordering::SeqCst), 2);
    // Another run has its own.
    bench.caller.call(Call { run: RunId::from_bytes([9; 16]), ..call() }).await;
    assert_eq!(bench.egress.minted.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn what_became_of_it_is_no_more_than_what_is_certain() {
    for (next, send_state, said) in [
        (Next::RefuseDial, SendState::NotSent, "egress-unreachable"),
        (Next::HangUp, SendState::SentNoResponse, "egress-broken"),
        (Next::Silence, SendState::SentNoResponse, "egress-timeout"),
        (Next::Half, SendState::Response, "response-incomplete"),
        (Next::Answer(502, vec![], Bytes::new()), SendState::SentNoResponse, "egress-answer"),
        (
            Next::Answer(200, vec![("tidegate-send-state", "sure")], Bytes::new()),
            SendState::SentNoResponse,
            "egress-answer",
        ),
    ] {
        let told = format!("{next:?}");
        let bench = bench(vec![next]);
        let answer = bench.caller.call(call()).await;
        assert_eq!((answer.send_state, code(&answer)), (send_state, said), "{told}");
        // And the next call has a connection of its own.
        assert_eq!(code(&bench.caller.call(call()).await), "response", "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_failures_and_parks_are_told_apart() {
    let answer = |status, fields: &[(&'static str, &'static str)]| {
        Next::Answer(status, fields.to_vec(), Bytes::from_static(b"{\"title\":\"no\"}"))
    };
    let not_sent = ("tidegate-send-state", "not-sent");
    let (response, late) = (("tidegate-send-state", "response"), ("tidegate-send-state", "sent-no-response"));
    for (next, send_state, said) in [
        (
            answer(403, &[not_sent, ("proxy-status", "tidegate; error=http_request_denied; details=\"switched-off\"")]),
            SendState::NotSent,
            "switched-off",
        ),
        (
            answer(
                504,
                &[late, ("proxy-status", "tidegate; error=http_response_timeout; details=\"response-timeout\"")],
            ),
            SendState::SentNoResponse,
            "response-timeout",
        ),
        (
            answer(429, &[not_sent, ("tidegate-outcome", "park; release=12.034; level=app; source=breaker")]),
            SendState::NotSent,
            "parked",
        ),
        (answer(403, &[response]), SendState::Response, "response"),
        // A provider's own words under that name never say what egress says.
        (answer(403, &[response, ("proxy-status", "cdn; details=\"switched-off\"")]), SendState::Response, "response"),
    ] {
        let told = format!("{next:?}");
        let answer = bench(vec![next]).caller.call(call()).await;
        assert_eq!((answer.send_state, code(&answer)), (send_state, said), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_park_says_when_and_because_of_whom() {
    let of = |outcome: &'static str| async move {
        let fields = vec![("tidegate-send-state", "response"), ("tidegate-outcome", outcome), ("retry-after", "7")];
        let bench = bench(vec![Next::Answer(429, fields, Bytes::from_static(b"slow down"))]);
        bench.caller.call(call()).await.reply
    };
    let parked = |release_ms, source| Reply::Parked { release_unix_ms: NOW + release_ms, source, status: Some(429) };
    assert_eq!(of("park; release=12.034; level=app; source=provider").await, parked(12_034, ParkSource::Provider));
    assert_eq!(of("park; release=0.5; source=quota").await, parked(500, ParkSource::Quota));
    // What cannot be read is what `Retry-After` says.
    assert_eq!(of("park; release=soon").await, parked(7_000, ParkSource::Quota));
    assert_eq!(of("park; release=99999999999.000").await, parked(93_600_000, ParkSource::Quota));
}

#[tokio::test(start_paused = true)]
async fn the_providers_own_status_and_ids_are_what_is_judged() {
    let fields = vec![
        ("tidegate-send-state", "response"),
        ("tidegate-provider-status", "503"),
        ("tidegate-correlation-id", "call_06dczqd2"),
    ];
    let bench = bench(vec![Next::Answer(429, fields, Bytes::from_static(b"body"))]);
    let answer = bench.caller.call(call()).await;
    assert_eq!(answer.correlation.as_deref(), Some("call_06dczqd2"));
    assert!(matches!(answer.reply, Reply::Response { status: 503, ref body, cut: None, .. } if body == "body"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_beyond_the_bound_is_cut_and_says_so() {
    for (length, is_cut) in [(999, false), (1_000, false), (1_001, true), (50_000, true)] {
        let fields = vec![("tidegate-send-state", "response")];
        let bench = bench(vec![Next::Answer(200, fields, Bytes::from(vec![b'x'; length]))]);
        let Reply::Response { body, cut, .. } = bench.caller.call(call()).await.reply else { panic!() };
        assert_eq!((body.len(), cut.is_some()), (length.min(1_000), is_cut));
        if let Some(cut) = cut {
            let whole = vec![b'x'; length];
            let digest = *blake3::hash(&whole).as_bytes();
            assert_eq!(cut, Cut { bytes: length as u64, digest, is_whole: true });
        }
        assert_eq!(code(&bench.caller.call(call()).await), "response");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_not_taken_is_made_anew_once() {
    let unknown = || {
        let fields = vec![
            ("tidegate-send-state", "not-sent"),
            ("proxy-status", "tidegate; error=http_request_denied; details=\"caller-unknown\""),
        ];
        Next::Answer(401, fields, Bytes::new())
    };
    let once = bench(vec![unknown()]);
    assert_eq!(code(&once.caller.call(call()).await), "response");
    let twice = bench(vec![unknown(), unknown(), unknown()]);
    let answer = twice.caller.call(call()).await;
    assert_eq!((answer.send_state, code(&answer)), (SendState::NotSent, "caller-unknown"));
    assert_eq!(twice.egress.minted.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn no_retry_is_made_while_none_is_left() {
    let spent = vec![("tidegate-send-state", "response"), ("tidegate-retry-budget", "0")];
    let bench = bench(vec![Next::Answer(500, spent, Bytes::new())]);
    bench.caller.call(call()).await;
    let put_off = bench.caller.call(Call { attempt: 2, ..call() }).await;
    assert_eq!(put_off.send_state, SendState::NotSent);
    assert_eq!(put_off.reply, Reply::Parked { release_unix_ms: NOW + 6_000, source: ParkSource::Quota, status: None });
    // First tries, and retries at other providers, are made.
    assert_eq!(code(&bench.caller.call(call()).await), "response");
    let other = ConnectionId::parse("conn_b").unwrap();
    assert_eq!(code(&bench.caller.call(Call { attempt: 2, connection: other, ..call() }).await), "response");
    bench.clock.advance(Duration::from_secs(6));
    assert_eq!(code(&bench.caller.call(Call { attempt: 2, ..call() }).await), "response");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_none_is_not_sent() {
    for target in ["v1", "/a b", "/a\n", "/\u{e9}", "/a#b"] {
        let bench = bench(vec![]);
        let answer = bench.caller.call(Call { target: target.into(), ..call() }).await;
        assert_eq!((answer.send_state, code(&answer)), (SendState::NotSent, "target-malformed"), "{target}");
        assert!(bench.egress.heads.lock().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_has_ended_is_not_used() {
    let bench = bench(vec![]);
    bench.caller.call(call()).await;
    tokio::time::sleep(Duration::from_secs(21)).await;
    bench.caller.call(call()).await;
    assert_eq!(bench.egress.dialled.load(Ordering::SeqCst), 2);
}
