//! The socket end to end: a server over a log in memory, and the client that the commands use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::{Clock, EndpointId, EventId, ManualClock, NodeId, Slot, TenantId};
use eventlog::holding::{HoldingSettings, NewHeld, Status};
use eventlog::records::{RecordStore, Settings};
use eventlog::segment::storage::MemoryStorage;
use eventlog::{Class, EventLog, HeaderBlock, HoldingStore, MemoryLog, NewEvent};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::client::{Client, ClientError, Lines};
use super::egress::{EgressQuery, kept};
use super::node::Node;
use super::server::{serve, serve_patiently};
use super::socket::Socket;
use super::wire::{EventLine, Find, Judged, JudgedOutcome, Query, Reloaded, Reverify, Which, Whose};

use crate::run::egress_log::sample::record;

const NOW: u64 = 1_764_424_000_000;

/// Longer than anything here takes; a test that reaches it has found a hang.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct TestNode {
    log: Arc<dyn EventLog>,
    holding: Arc<HoldingStore>,
    egress: Option<RecordStore>,
}

#[async_trait]
impl Node for TestNode {
    fn log(&self) -> Option<&Arc<dyn EventLog>> {
        Some(&self.log)
    }

    fn holding(&self) -> Option<&Arc<HoldingStore>> {
        Some(&self.holding)
    }

    fn egress_records(&self) -> Option<(&RecordStore, bool)> {
        self.egress.as_ref().map(|store| (store, true))
    }

    async fn reverify(&self, ask: Reverify, report: mpsc::Sender<Judged>) -> Result<(), String> {
        for id in ask.ids {
            let judged = Judged {
                id,
                tenant: tenant("acme"),
                endpoint: endpoint("wh_1"),
                received_at: String::new(),
                outcome: if ask.dry_run { JudgedOutcome::WouldPromote } else { JudgedOutcome::Promoted },
                reason: None,
            };
            if report.send(judged).await.is_err() {
                return Ok(());
            }
        }
        Err("the rest is damaged".to_owned())
    }

    async fn reload(&self) -> Reloaded {
        Reloaded { changed: 2, restart_needed: vec!["node.id".to_owned()], faults: Vec::new() }
    }

    fn stat(&self) -> serde_json::Value {
        json!({ "version": "test" })
    }
}

struct Running {
    socket: PathBuf,
    log: Arc<dyn EventLog>,
    holding: Arc<HoldingStore>,
    stop: Option<oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        Self::start_with(None, None)
    }

    /// With decision records, and peers' time to take something of their answers.
    fn start_with(egress: Option<RecordStore>, patience: Option<Duration>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(NOW);
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new(NodeId(1), Arc::clone(&clock)));
        let mut log_settings = eventlog::embedded::Settings::new(&config::Log::default(), NodeId(1));
        log_settings.directory = directory.path().to_owned();
        log_settings.reserve_bytes = 0;
        let holding = HoldingSettings::new(&config::Holding::default(), &log_settings, 1 << 20);
        let holding = Arc::new(HoldingStore::open(&holding, clock).unwrap().0);
        let node = Arc::new(TestNode { log: Arc::clone(&log), holding: Arc::clone(&holding), egress });
        let (stop, stopped) = oneshot::channel::<()>();
        let socket = Socket::bind(&path).unwrap();
        let stopped = async move { drop(stopped.await) };
        let server = match patience {
            None => tokio::spawn(serve(socket, node, stopped)),
            Some(patience) => tokio::spawn(serve_patiently(socket, node, stopped, patience)),
        };
        Self { socket: path, log, holding, stop: Some(stop), server, _directory: directory }
    }

    async fn client(&self) -> Client {
        Client::connect(&self.socket).await.unwrap()
    }

    async fn commit(&self, tenant_name: &str, endpoint_name: &str, nth: u8, body: Bytes) -> EventId {
        self.log.append(delivery(tenant_name, endpoint_name, nth, body)).await.unwrap().id
    }
}

fn delivery(tenant_name: &str, endpoint_name: &str, nth: u8, body: Bytes) -> NewEvent {
    let id = EventId::new(NOW + u64::from(nth), Slot::of(endpoint_name), NodeId(1), [nth; 6]);
    let mut headers = HeaderBlock::with_capacity(64);
    headers.push(b"X-Odd", b"\xff\x1b").unwrap();
    NewEvent {
        id,
        tenant: tenant(tenant_name),
        endpoint: endpoint(endpoint_name),
        retention: "default".into(),
        received_unix_ms: NOW + u64::from(nth),
        peer: "127.0.0.1:5555".parse().unwrap(),
        method: "POST".into(),
        target: Bytes::from_static(b"/hooks/wh_1"),
        headers: headers.finish(),
        body,
        scheme: "github".into(),
        secret: "primary".into(),
        delivery_id: None,
        class: Class::Normal,
        signed_at_unix_ms: None,
        public_url: "https://hooks.example.com".into(),
    }
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

fn query(whose: Whose, which: Which) -> Query {
    Query { whose, endpoint: None, since: None, until: None, which, held: false, whole: false, skip_damage: false }
}

async fn next(lines: &mut Lines) -> Option<EventLine> {
    tokio::time::timeout(PATIENCE, lines.next()).await.expect("a line comes in time").unwrap()
}

async fn all(running: &Running, query: &Query) -> Vec<EventLine> {
    let mut lines = running.client().await.stream("/v1/events", query).await.unwrap();
    let mut found = Vec::new();
    while let Some(line) = next(&mut lines).await {
        found.push(line);
    }
    found
}

#[tokio::test]
async fn a_tenant_sees_its_own_and_the_operator_sees_all() {
    let running = Running::start();
    let ours = running.commit("acme", "wh_1", 1, Bytes::from_static(b"ours")).await;
    let theirs = running.commit("other", "wh_2", 2, Bytes::from_static(b"theirs")).await;

    let found = all(&running, &query(Whose::Tenant(tenant("acme")), Which::All)).await;
    assert_eq!(found.iter().map(|line| line.id).collect::<Vec<_>>(), [ours]);
    assert_eq!(all(&running, &query(Whose::AllTenants, Which::All)).await.len(), 2);

    let mut client = running.client().await;
    let find = Find { whose: Whose::Tenant(tenant("acme")), id: ours, held: false };
    let whole: Option<EventLine> = client.ask("/v1/event", &find).await.unwrap();
    let whole = whole.unwrap();
    assert_eq!(whole.body().unwrap(), b"ours");
    assert_eq!(whole.headers.unwrap()[0].1.bytes(), b"\xff\x1b");
    let find = Find { id: theirs, ..find };
    let nothing: Result<Option<EventLine>, _> = client.ask("/v1/event", &find).await;
    assert!(!matches!(nothing, Ok(Some(_))), "another tenant's event is never shown");
}

#[tokio::test]
async fn held_deliveries_are_apart_and_say_why() {
    let running = Running::start();
    running.commit("acme", "wh_1", 1, Bytes::new()).await;
    for (nth, whose) in [(2, "acme"), (3, "other"), (4, "acme")] {
        let delivery = delivery(whose, "wh_1", nth, Bytes::from_static(b"held"));
        running.holding.hold(NewHeld { delivery, status: Status::Quarantined, reason: "mismatch" }).unwrap();
    }
    let held = Query { held: true, ..query(Whose::Tenant(tenant("acme")), Which::All) };
    // Holding is not waited for: it is there once it is durable.
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            let found = all(&running, &held).await;
            if found.len() == 2 {
                break found;
            }
        }
    });
    let found = found.await.expect("what is held becomes durable");
    let why = found[0].held.as_ref().unwrap();
    assert_eq!((why.status.as_str(), why.reason.as_str()), ("quarantined", "mismatch"));
    assert!(found[0].place.is_none() && found[0].secret.is_none());
    let newest = Query { which: Which::Newest(1), ..held.clone() };
    assert_eq!(all(&running, &newest).await[0].id, found[1].id);

    let find = Find { whose: Whose::Tenant(tenant("acme")), id: found[0].id, held: true };
    let whole: Option<EventLine> = running.client().await.ask("/v1/event", &find).await.unwrap();
    assert_eq!(whole.unwrap().body().unwrap(), b"held");
    let find = Find { held: false, ..find };
    let event: Option<EventLine> = running.client().await.ask("/v1/event", &find).await.unwrap();
    assert!(event.is_none(), "what is held is no event");
}

#[tokio::test]
async fn newest_first_and_all_select() {
    let running = Running::start();
    let mut ids = Vec::new();
    for nth in 0..5 {
        ids.push(running.commit("acme", "wh_1", nth, Bytes::new()).await);
    }
    let picked = async |which| {
        let found = all(&running, &query(Whose::AllTenants, which)).await;
        found.into_iter().map(|line| line.id).collect::<Vec<_>>()
    };
    assert_eq!(picked(Which::Newest(2)).await, ids[3..]);
    assert_eq!(picked(Which::First(2)).await, ids[..2]);
    assert_eq!(picked(Which::All).await, ids);
    let ranged = Query { since: Some(NOW + 1), until: Some(NOW + 3), ..query(Whose::AllTenants, Which::All) };
    assert_eq!(all(&running, &ranged).await.len(), 2);
}

#[tokio::test]
async fn an_endpoint_that_was_moved_is_refused_with_the_way_to_its_events() {
    let running = Running::start();
    running.commit("acme", "wh_1", 1, Bytes::new()).await;
    let moved = [
        running.commit("acme_eu", "wh_1", 2, Bytes::new()).await,
        running.commit("acme_eu", "wh_1", 3, Bytes::new()).await,
    ];
    let whole = |whose| Query { endpoint: Some(endpoint("wh_1")), ..query(whose, Which::All) };
    let theirs = whole(Whose::Tenant(tenant("acme_eu")));
    let mut lines = running.client().await.stream("/v1/events", &theirs).await.unwrap();
    let refused = lines.next::<EventLine>().await;
    let says = |why: &str| ["--since", "--until", "--all-tenants --endpoint"].iter().all(|hint| why.contains(hint));
    assert!(matches!(&refused, Err(ClientError::Refused(why)) if says(why)), "{refused:?}");
    let ids = |lines: Vec<EventLine>| lines.into_iter().map(|line| line.id).collect::<Vec<_>>();
    assert_eq!(ids(all(&running, &Query { since: Some(NOW + 2), ..theirs.clone() }).await), moved);
    assert_eq!(all(&running, &whole(Whose::AllTenants)).await.len(), 3);
    assert_eq!(
        ids(all(&running, &Query { which: Which::Newest(2), ..theirs }).await),
        moved,
        "what is older is not met"
    );
}

#[tokio::test]
async fn a_follower_sees_what_comes_and_never_holds_up_a_stop() {
    let mut running = Running::start();
    let before = running.commit("acme", "wh_1", 1, Bytes::new()).await;
    let mut client = running.client().await;
    let mut lines = client.stream("/v1/events", &query(Whose::AllTenants, Which::Follow)).await.unwrap();
    assert_eq!(next(&mut lines).await.unwrap().id, before);
    let after = running.commit("acme", "wh_1", 2, Bytes::new()).await;
    assert_eq!(next(&mut lines).await.unwrap().id, after);

    drop(running.stop.take());
    tokio::time::timeout(PATIENCE, &mut running.server).await.expect("the server stops").unwrap();
    assert!(!running.socket.exists());
    let cut = tokio::time::timeout(PATIENCE, lines.next::<EventLine>()).await.unwrap();
    assert!(matches!(cut, Err(ClientError::Broken(_))), "a stream that was cut off does not look complete: {cut:?}");
}

#[tokio::test]
async fn large_bodies_stream_whole() {
    let running = Running::start();
    let body = Bytes::from(vec![0xa5; 3 << 20]);
    for nth in 0..4 {
        running.commit("acme", "wh_1", nth, body.clone()).await;
    }
    let whole = Query { whole: true, ..query(Whose::AllTenants, Which::All) };
    let found = all(&running, &whole).await;
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|line| line.body().unwrap() == body));
}

#[tokio::test]
async fn reverify_reports_one_by_one_and_says_why_it_stopped() {
    let running = Running::start();
    let id = EventId::from_bytes([7; 16]);
    let ask = Reverify { whose: Whose::AllTenants, endpoint: None, ids: vec![id], dry_run: true };
    let mut lines = running.client().await.stream("/v1/reverify", &ask).await.unwrap();
    let judged: Judged = lines.next().await.unwrap().unwrap();
    assert_eq!((judged.id, judged.outcome), (id, JudgedOutcome::WouldPromote));
    let end = lines.next::<Judged>().await;
    assert!(matches!(&end, Err(ClientError::Refused(why)) if why.contains("damaged")), "{end:?}");
}

#[tokio::test]
async fn judging_again_is_one_of_the_bounded_reads() {
    let running = Running::start();
    // Its reports are not taken, so that each goes on for ever: more of them than all buffers on the way hold.
    let ids: Vec<_> = (0..7_000_u16)
        .map(|n| EventId::new(NOW, Slot(0), NodeId(1), [n.to_be_bytes()[0], n.to_be_bytes()[1], 0, 0, 0, 0]))
        .collect();
    let ask = Reverify { whose: Whose::AllTenants, endpoint: None, ids, dry_run: true };
    let mut going = Vec::new();
    loop {
        let mut client = running.client().await;
        let lines = client.stream("/v1/reverify", &ask).await;
        if matches!(&lines, Err(ClientError::Refused(why)) if why.contains("too many")) {
            break;
        }
        going.push((client, lines.unwrap()));
        assert!(going.len() <= 16, "there is no bound");
    }
    assert_eq!(going.len(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let running = Running::start();
    let mut stream = tokio::net::UnixStream::connect(&running.socket).await.unwrap();
    stream.write_all(b"POST /v1/event HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("it is answered").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn what_is_not_understood_is_refused_with_a_sentence() {
    let running = Running::start();
    let mut client = running.client().await;
    let no_scope: Result<serde_json::Value, _> = client.ask("/v1/events", &json!({})).await;
    assert!(matches!(&no_scope, Err(ClientError::Refused(why)) if why.contains("whose")), "{no_scope:?}");
    let unknown: Result<serde_json::Value, _> = client.get("/v1/nothing").await;
    assert!(matches!(&unknown, Err(ClientError::Refused(why)) if why.contains("/v1/")), "{unknown:?}");
    let method: Result<serde_json::Value, _> = client.get("/v1/reload").await;
    assert!(matches!(method, Err(ClientError::Refused(_))));
    let huge: Result<serde_json::Value, _> = client.ask("/v1/events", &"x".repeat(1 << 20)).await;
    assert!(huge.is_err());
    let reloaded: Reloaded = running.client().await.ask("/v1/reload", &()).await.unwrap();
    assert_eq!(reloaded.changed, 2);
    let stat: serde_json::Value = running.client().await.get("/v1/stat").await.unwrap();
    assert_eq!(stat["node"]["version"], "test");
    assert_eq!(stat["log"]["engine"], "memory");
}

#[tokio::test]
async fn nobody_there_is_told_apart_from_no() {
    let absent = Client::connect(Path::new("/nonexistent/control.sock")).await;
    assert!(matches!(absent, Err(ClientError::Absent { .. })));
}

#[tokio::test]
async fn who_follows_keeps_nobody_from_reading() {
    let running = Running::start();
    let id = running.commit("acme", "wh_1", 1, Bytes::new()).await;
    let mut following = Vec::new();
    loop {
        let mut client = running.client().await;
        let lines = client.stream("/v1/events", &query(Whose::AllTenants, Which::FollowFromNow)).await;
        if matches!(&lines, Err(ClientError::Refused(why)) if why.contains("too many follow")) {
            break;
        }
        following.push((client, lines.unwrap()));
        assert!(following.len() <= 16, "there is no bound");
    }
    assert_eq!(following.len(), 16);
    assert_eq!(all(&running, &query(Whose::AllTenants, Which::All)).await[0].id, id);
}

#[tokio::test]
async fn who_does_not_read_is_ended() {
    let running = Running::start_with(None, Some(Duration::from_millis(200)));
    for nth in 0..4 {
        running.commit("acme", "wh_1", nth, Bytes::from(vec![0xa5; 3 << 20])).await;
    }
    let mut unread = Vec::new();
    for _ in 0..16 {
        let mut client = running.client().await;
        let whole = Query { whole: true, ..query(Whose::AllTenants, Which::All) };
        unread.push((client.stream("/v1/events", &whole).await.unwrap(), client));
    }
    let few = query(Whose::AllTenants, Which::First(1));
    let read = tokio::time::timeout(PATIENCE, async {
        while running.client().await.stream("/v1/events", &few).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    read.await.expect("whoever does not read keeps everybody else out");
}

#[tokio::test]
async fn a_socket_that_nobody_empties_is_said_to_be_busy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let stuck = tokio::net::UnixSocket::new_stream().unwrap();
    stuck.bind(&path).unwrap();
    let _listener = stuck.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(one) = tokio::net::UnixStream::connect(&path).await {
        waiting.push(one);
    }
    let told = Client::connect(&path).await.unwrap_err();
    assert!(matches!(told, ClientError::Busy { .. }), "{told}");
    // One whose path is longer than an address holds.
    let told = Client::connect(&directory.path().join("x".repeat(200))).await.unwrap_err();
    assert!(matches!(told, ClientError::Unreachable { .. }), "{told}");
}

#[tokio::test]
async fn decision_records_come_over_the_socket() {
    let query = EgressQuery {
        whose: Whose::Tenant(tenant("acme")),
        correlation: None,
        since: None,
        until: None,
        outcome: None,
        destination: None,
        limit: 2,
    };
    let settings = Settings {
        reserve_bytes: 0,
        segment_bytes: 32 << 10,
        storage: Arc::new(MemoryStorage::new()),
        ..Settings::new("/egress", Duration::from_hours(24), 1 << 30)
    };
    let store = tokio::task::spawn_blocking(move || {
        let (store, _) = RecordStore::open(&settings, ManualClock::at_unix_ms(NOW)).unwrap();
        let others = egress::Record { tenant: Some(tenant("other")), ..record(9) };
        let all = [record(1), record(2), record(3), others];
        assert_eq!(store.append(all.iter().map(|record| kept(record).unwrap()).collect()).wait().lost, 0);
        store
    });
    let store = store.await.unwrap();

    let running = Running::start_with(Some(store), None);
    let mut lines = running.client().await.stream("/v1/egress/log", &query).await.unwrap();
    let mut found = Vec::new();
    while let Some(record) = lines.next::<egress::Record>().await.unwrap() {
        found.push(record);
    }
    assert_eq!(found, [record(3), record(2)]);
    let answer =
        running.client().await.stream("/v1/egress/log", &json!({"whose": "allTenants", "limit": 10_001})).await;
    assert!(matches!(answer, Err(ClientError::Refused(why)) if why.contains("more than 10000")));

    let without = Running::start();
    let mut lines = without.client().await.stream("/v1/egress/log", &query).await.unwrap();
    let answer = lines.next::<egress::Record>().await;
    assert!(matches!(answer, Err(ClientError::Refused(why)) if why.contains("egress is not enabled")));
}
