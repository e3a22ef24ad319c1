//! Parts of a world for the engine's tests: automations by hand, a connector of three classes, and ports in memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::{Clock, ConnectionId, EndpointId, EventId, NodeId, Slot, TenantId};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use crate::automation::{
    Automation, ConnectionState, DefinitionStore, Delay, Edge, EventFacts, Expression, Kind, Listed, Names, Node,
    RetryPolicy, StoreError, Stored, Template, Trigger,
};
use crate::connector::{Action, Connectors, InputFault, NoAction, ReadBack, ReplaySafety, Request, Verdict};
use crate::failure::FailureClass;
use crate::ids::{AutomationId, EffectKey, StepId, Version};
use crate::ledger::{BoxFuture, Kept, Payload, QueueClass};
use crate::schedule::Queue;

use super::ports::{Asked, Authority, Automations, Events, Notice, Notices, Payloads, Permission, PortError};

pub(crate) const NOW: u64 = 1_800_000_000_000;

pub(crate) fn tenant() -> TenantId {
    TenantId::parse("acme").unwrap()
}

pub(crate) fn connection() -> ConnectionId {
    ConnectionId::parse("conn_a").unwrap()
}

pub(crate) fn step(name: &str) -> StepId {
    StepId::parse(name).unwrap()
}

pub(crate) fn automation_id() -> AutomationId {
    AutomationId::from_bytes([7; 16])
}

pub(crate) fn event() -> EventId {
    EventId::new(NOW, Slot(1), NodeId(1), [1; 6])
}

fn names() -> impl Fn(&str) -> Result<StepId, String> {
    |name: &str| StepId::parse(name).ok_or_else(|| name.to_owned())
}

pub(crate) fn template(value: &Value) -> Template {
    Template::compile(value, &Names::of_run(&names())).unwrap()
}

pub(crate) fn expression(source: &str) -> Expression {
    Expression::compile(source, &Names::of_run(&names())).unwrap()
}

/// A graph, node by node, each behind those that it names: `"a"`, or `"b.case"`.
#[derive(Debug, Default)]
pub(crate) struct Graph(Vec<Node>);

impl Graph {
    pub(crate) fn node(mut self, name: &str, after: &[&str], kind: Kind) -> Self {
        let after = after.iter().map(|from| {
            let (from, case) = from.split_once('.').map_or((*from, None), |(from, case)| (from, Some(case.into())));
            let from = self.0.iter().position(|node| node.id.as_str() == from).unwrap();
            Edge { from, case }
        });
        self.0.push(Node {
            id: step(name),
            after: after.collect(),
            when: None,
            kind,
            timeout: Duration::from_secs(10),
            retry: RetryPolicy {
                attempts_max: 4,
                backoff: Duration::from_millis(500),
                backoff_max: Duration::from_secs(20),
            },
            continues_on_failure: false,
            assertion: crate::connector::Assertion::default(),
        });
        self
    }

    /// A call of the class that it is named after.
    pub(crate) fn call(self, name: &str, after: &[&str], class: &str) -> Self {
        let input = template(&json!({ "for": name, "class": class, "event": "${event.id}" }));
        self.node(name, after, Kind::Call { connection: connection(), action: class.into(), input })
    }

    pub(crate) fn delay(self, name: &str, after: &[&str], span: Duration) -> Self {
        self.node(name, after, Kind::Delay(Delay::For(span)))
    }

    pub(crate) fn branch(self, name: &str, after: &[&str], cases: &[(&str, &str)]) -> Self {
        let cases = cases.iter().map(|(case, source)| (Box::from(*case), expression(source)));
        self.node(name, after, Kind::Branch { cases: cases.collect() })
    }

    pub(crate) fn transform(self, name: &str, after: &[&str], value: &Value) -> Self {
        self.node(name, after, Kind::Transform { value: template(value) })
    }

    /// Changes the last node.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(self.0.last_mut().unwrap());
        self
    }

    pub(crate) fn build(self) -> Automation {
        Automation {
            tenant: tenant(),
            id: automation_id(),
            version: Version::MIN,
            digest: [0; 32],
            name: "test".into(),
            trigger: Trigger { endpoints: Box::new([]), when: None },
            nodes: self.0.into(),
            deadline: Duration::from_hours(2),
            class: QueueClass::Interactive,
        }
    }
}

/// An action of each class, whose provider answers with a status that says what it means.
#[derive(Debug)]
pub(crate) struct TestAction(pub(crate) ReplaySafety);

pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

fn keyed(method: Method, target: &str, effect: EffectKey, body: Bytes) -> Request {
    let key = HeaderValue::from_str(&effect.to_string()).unwrap();
    Request { method, target: target.into(), headers: vec![(KEY, key)], body }
}

impl Action for TestAction {
    fn safety(&self, _: &Value) -> ReplaySafety {
        self.0
    }

    fn request(&self, input: &Value, effect: EffectKey) -> Result<Request, InputFault> {
        if input.get("bad").is_some() {
            return Err(InputFault("`bad` is no field".into()));
        }
        Ok(keyed(Method::POST, "/do", effect, Bytes::from(input.to_string())))
    }

    fn read_back(&self, _: &Value, effect: EffectKey) -> Option<Result<Request, InputFault>> {
        (self.0 == ReplaySafety::Checkable).then(|| Ok(keyed(Method::GET, "/done", effect, Bytes::new())))
    }

    fn judge_read_back(&self, _: &Value, _: EffectKey, status: u16, _: &HeaderMap, body: &Bytes) -> ReadBack {
        match (status, body.as_ref()) {
            (200, b"yes") => ReadBack::Happened(json!("read back")),
            (200, b"no") => ReadBack::NotHappened,
            _ => ReadBack::Unknown,
        }
    }

    fn judge(&self, status: u16, _: &HeaderMap, body: &Bytes) -> Verdict {
        let class = match status {
            200 => return Verdict::Done(json!(String::from_utf8_lossy(body))),
            400 => FailureClass::InvalidRequest,
            401 => FailureClass::AuthenticationExpired,
            404 => FailureClass::NotFound,
            409 => FailureClass::ContendedProvider,
            500 => FailureClass::ProviderUnavailable,
            _ => FailureClass::Unclassified,
        };
        Verdict::Failed { class, message: Some(format!("status {status}").into()) }
    }

    /// An answer that begins with a brace would have to be read whole.
    fn judge_cut(
        &self,
        status: u16,
        headers: &HeaderMap,
        beginning: &Bytes,
    ) -> Option<(FailureClass, Option<Box<str>>)> {
        if status == 200 && beginning.starts_with(b"{") {
            return Some((FailureClass::AnswerTooLarge, None));
        }
        match self.judge(status, headers, beginning) {
            Verdict::Done(_) => None,
            Verdict::Failed { class, message } => Some((class, message)),
        }
    }
}

/// It looks, and changes nothing.
#[derive(Debug)]
struct Harmless;

impl Action for Harmless {
    fn safety(&self, _: &Value) -> ReplaySafety {
        ReplaySafety::Idempotent
    }

    fn request(&self, _: &Value, effect: EffectKey) -> Result<Request, InputFault> {
        Ok(keyed(Method::GET, "/look", effect, Bytes::new()))
    }

    fn read_back(&self, _: &Value, _: EffectKey) -> Option<Result<Request, InputFault>> {
        None
    }

    fn judge_read_back(&self, _: &Value, _: EffectKey, _: u16, _: &HeaderMap, _: &Bytes) -> ReadBack {
        ReadBack::Unknown
    }

    fn judge(&self, status: u16, headers: &HeaderMap, body: &Bytes) -> Verdict {
        TestAction(ReplaySafety::Idempotent).judge(status, headers, body)
    }

    fn judge_cut(
        &self,
        status: u16,
        headers: &HeaderMap,
        beginning: &Bytes,
    ) -> Option<(FailureClass, Option<Box<str>>)> {
        TestAction(ReplaySafety::Idempotent).judge_cut(status, headers, beginning)
    }
}

#[derive(Debug)]
pub(crate) struct TestConnectors;

impl Connectors for TestConnectors {
    fn action(&self, _: &TenantId, _: &ConnectionId, action: &str) -> Result<Arc<dyn Action>, NoAction> {
        let safety = match action {
            "idempotent" => ReplaySafety::Idempotent,
            "checkable" => ReplaySafety::Checkable,
            "unsafe" => ReplaySafety::Unsafe,
            "harmless" => return Ok(Arc::new(Harmless)),
            other => return Err(NoAction::Action { connector: "test".into(), action: other.into() }),
        };
        Ok(Arc::new(TestAction(safety)))
    }
}

/// All ports that are a matter of looking something up.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) automation: Mutex<Option<Arc<Automation>>>,
    pub(crate) dead: Mutex<HashSet<ConnectionId>>,
    pub(crate) notices: Mutex<Vec<Notice>>,
    pub(crate) forbidden: Mutex<bool>,
    pub(crate) asked: Mutex<Vec<Asked>>,
    pub(crate) kept: Mutex<HashMap<[u8; 32], Bytes>>,
    pub(crate) queued: Mutex<Vec<(crate::ids::RunId, QueueClass)>>,
    pub(crate) has_no_event: Mutex<bool>,
    /// Nobody who asks for the event is answered.
    pub(crate) hangs: Mutex<bool>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Automations for Tables {
    fn load(&self, _: &TenantId, _: AutomationId, _: Version) -> BoxFuture<'_, Result<Arc<Automation>, PortError>> {
        ready(lock(&self.automation).clone().ok_or_else(|| PortError::Gone("it is not there".into())))
    }
}

impl Events for Tables {
    fn read(&self, _: &TenantId, id: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        if *lock(&self.hangs) {
            return Box::pin(std::future::pending());
        }
        if *lock(&self.has_no_event) {
            return ready(Err(PortError::Gone("the event is past its retention".into())));
        }
        ready(Ok(EventFacts {
            id,
            endpoint: EndpointId::parse("wh_1").unwrap(),
            received_unix_ms: NOW,
            headers: vec![],
            body: Bytes::from_static(b"{\"amount\":7}"),
        }))
    }
}

impl Payloads for Tables {
    fn keep(&self, _: &TenantId, bytes: Bytes) -> BoxFuture<'_, Result<Payload, PortError>> {
        let digest = *blake3::hash(&bytes).as_bytes();
        let length = bytes.len() as u64;
        if bytes.len() <= 64 {
            return ready(Ok(Payload { bytes: length, digest, kept: Kept::Inline(bytes) }));
        }
        lock(&self.kept).insert(digest, bytes);
        ready(Ok(Payload { bytes: length, digest, kept: Kept::Stored }))
    }

    fn fetch(&self, _: &TenantId, payload: &Payload) -> BoxFuture<'_, Result<Bytes, PortError>> {
        ready(match &payload.kept {
            Kept::Inline(bytes) => Ok(bytes.clone()),
            Kept::Stored => {
                lock(&self.kept).get(&payload.digest).cloned().ok_or_else(|| PortError::Gone("it is not kept".into()))
            }
            Kept::Truncated(_) | Kept::Beginning(_) | Kept::Expired => Err(PortError::Gone("it is not kept".into())),
        })
    }
}

impl Authority for Tables {
    fn may_call(&self, asked: Asked) -> BoxFuture<'_, Result<Permission, PortError>> {
        lock(&self.asked).push(asked);
        let no = *lock(&self.forbidden);
        ready(Ok(if no { Permission::No("the right was taken away".into()) } else { Permission::Yes }))
    }
}

impl Notices for Tables {
    fn tell(&self, notice: Notice) {
        lock(&self.notices).push(notice);
    }
}

impl Queue for Tables {
    fn enqueue(&self, _: TenantId, run: crate::ids::RunId, class: QueueClass) {
        lock(&self.queued).push((run, class));
    }

    fn enqueue_at(&self, _: TenantId, run: crate::ids::RunId, class: QueueClass, _: u64) {
        lock(&self.queued).push((run, class));
    }

    fn nudge(&self, _: &TenantId, run: crate::ids::RunId) {
        lock(&self.queued).push((run, QueueClass::Interactive));
    }
}

/// States of connections, and nothing else: the engine asks for nothing else.
impl DefinitionStore for Tables {
    fn put(&self, _: Stored) -> BoxFuture<'static, Result<(), StoreError>> {
        ready(Err(StoreError::Deleted))
    }

    fn delete(&self, _: &TenantId, _: AutomationId, _: &str) -> BoxFuture<'static, Result<bool, StoreError>> {
        ready(Ok(false))
    }

    fn get(
        &self,
        _: &TenantId,
        _: AutomationId,
        _: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        ready(Ok(None))
    }

    fn by_name(&self, _: &TenantId, _: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>> {
        ready(Ok(None))
    }

    fn list(
        &self,
        _: &TenantId,
        _: Option<AutomationId>,
        _: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>> {
        ready(Ok(vec![]))
    }

    fn triggered_by(
        &self,
        _: &TenantId,
        _: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>> {
        ready(Ok(vec![]))
    }

    fn connection_state(
        &self,
        _: &TenantId,
        connection: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>> {
        ready(Ok(if lock(&self.dead).contains(connection) {
            ConnectionState::NeedsReconnect { since_unix_ms: NOW, reason: "revoked".into() }
        } else {
            ConnectionState::Connected
        }))
    }

    fn set_connection_state(
        &self,
        _: &TenantId,
        connection: &ConnectionId,
        state: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        let mut dead = lock(&self.dead);
        ready(Ok(match state {
            ConnectionState::Connected => dead.remove(connection),
            ConnectionState::NeedsReconnect { .. } => dead.insert(connection.clone()),
        }))
    }

    fn needing_reconnect(
        &self,
        _: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>> {
        ready(Ok(vec![]))
    }
}

/// A clock by the runtime's own timers, whose wall time can be stepped.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    started: tokio::time::Instant,
    skew_ms: std::sync::atomic::AtomicI64,
}

impl VirtualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { started: tokio::time::Instant::now(), skew_ms: std::sync::atomic::AtomicI64::new(0) })
    }

    pub(crate) fn started(&self) -> tokio::time::Instant {
        self.started
    }

    /// As NTP or an operator would.
    pub(crate) fn step(&self, by_ms: i64) {
        self.skew_ms.fetch_add(by_ms, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn unix_ms(&self) -> u64 {
        let since = u64::try_from(self.started.elapsed().as_millis()).unwrap();
        (NOW + since).saturating_add_signed(self.skew_ms.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}
