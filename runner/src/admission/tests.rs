//! Admission over a log and a ledger in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use domain::{Clock, ConnectionId, EndpointId, EventId, ManualClock, NodeId, TenantId};
use eventlog::conformance::event;
use eventlog::position::Lane;
use eventlog::{
    Append, ConsumerGroups, Cursor, EventLog, EventReader, Filter, MemoryLog, NewEvent, ReadError, Scope as LogScope,
    Start, Stat, StoredEvent, Trimmed,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::automation::{
    Automation, ConnectionState, DefinitionStore, EventFacts, Expression, Listed, Names, StoreError, Stored,
    Trigger as Begins,
};
use crate::engine::{Automations, Events, PortError};
use crate::ids::{AutomationId, RunId, Version};
use crate::ledger::memory::{Fault, MemoryLedger, MemoryLedgerStore};
use crate::ledger::{Body, BoxFuture, Cause, QueueClass, Record};
use crate::schedule::Queue;

pub(crate) const NOW_UNIX_MS: u64 = 1_800_000_000_000;

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

pub(crate) fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

pub(crate) fn automation_id(number: u8) -> AutomationId {
    AutomationId::from_bytes([number; 16])
}

type Versions = BTreeMap<(TenantId, AutomationId, u32), (Stored, Arc<Automation>)>;

/// Definitions in memory, by what a test puts on it.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    versions: Mutex<Versions>,
    broken: Mutex<HashMap<TenantId, StoreError>>,
    asked: AtomicUsize,
    /// Whoever asks for this endpoint's automations panics.
    panics: Mutex<Option<EndpointId>>,
}

/// One version, as a test says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) id: u8,
    pub(crate) version: u32,
    pub(crate) endpoint: &'a str,
    pub(crate) when: Option<&'a str>,
    pub(crate) at_unix_ms: u64,
    pub(crate) class: QueueClass,
}

pub(crate) const MADE: Made<'static> = Made {
    tenant: "acme",
    id: 1,
    version: 1,
    endpoint: "wh_1",
    when: None,
    at_unix_ms: NOW_UNIX_MS - 3_600_000,
    class: QueueClass::Interactive,
};

impl Shelf {
    pub(crate) fn put(&self, made: Made<'_>) {
        let version = Version::new(made.version).unwrap();
        let automation = Automation {
            tenant: tenant(made.tenant),
            id: automation_id(made.id),
            version,
            digest: [0; 32],
            name: "a".into(),
            trigger: Begins {
                endpoints: [endpoint(made.endpoint)].into(),
                when: made.when.map(|when| Expression::compile(when, &Names::of_event()).unwrap()),
            },
            nodes: Box::default(),
            deadline: Duration::from_mins(1),
            class: made.class,
        };
        let stored = Stored {
            tenant: tenant(made.tenant),
            id: automation_id(made.id),
            version,
            name: "a".into(),
            json: "{}".into(),
            digest: [0; 32],
            endpoints: automation.trigger.endpoints.clone(),
            is_enabled: true,
            is_deleted: false,
            at_unix_ms: made.at_unix_ms,
            by: "somebody".into(),
        };
        let key = (tenant(made.tenant), automation_id(made.id), made.version);
        self.versions.lock().unwrap().insert(key, (stored, Arc::new(automation)));
    }

    pub(crate) fn delete(&self, of: &str, id: u8) {
        for ((tenant, automation, _), (stored, _)) in &mut *self.versions.lock().unwrap() {
            stored.is_deleted |= tenant.as_str() == of && *automation == automation_id(id);
        }
    }

    pub(crate) fn break_for(&self, of: &str, fault: Option<StoreError>) {
        let mut broken = self.broken.lock().unwrap();
        match fault {
            Some(fault) => broken.insert(tenant(of), fault),
            None => broken.remove(&tenant(of)),
        };
    }

    fn find(&self, tenant: &TenantId, id: AutomationId, version: Option<Version>) -> Option<(Stored, Arc<Automation>)> {
        let versions = self.versions.lock().unwrap();
        let of = |version: u32| versions.get(&(tenant.clone(), id, version)).cloned();
        match version {
            Some(version) => of(version.get()),
            None => (1..20).rev().find_map(of),
        }
    }
}

impl DefinitionStore for Shelf {
    fn put(&self, _: Stored) -> BoxFuture<'static, Result<(), StoreError>> {
        panic!("no test needs it")
    }

    fn delete(&self, _: &TenantId, _: AutomationId, _: &str) -> BoxFuture<'static, Result<bool, StoreError>> {
        panic!("no test needs it")
    }

    fn get(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        let found = self.find(tenant, id, version).map(|(stored, _)| stored);
        Box::pin(async { Ok(found) })
    }

    fn by_name(&self, _: &TenantId, _: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>> {
        panic!("no test needs it")
    }

    fn list(
        &self,
        tenant: &TenantId,
        after: Option<AutomationId>,
        max: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>> {
        let mut last = BTreeMap::new();
        for ((of, id, version), (stored, _)) in &*self.versions.lock().unwrap() {
            if of == tenant && after.is_none_or(|after| *id > after) {
                let listed = Listed {
                    id: *id,
                    name: stored.name.clone(),
                    version: Version::new(*version).unwrap(),
                    is_enabled: stored.is_enabled,
                    is_deleted: stored.is_deleted,
                    at_unix_ms: stored.at_unix_ms,
                };
                last.insert(*id, listed);
            }
        }
        Box::pin(async move { Ok(last.into_values().take(max).collect()) })
    }

    fn triggered_by(
        &self,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let panics = self.panics.lock().unwrap().as_ref() == Some(endpoint);
        assert!(!panics, "as a test has asked");
        if let Some(fault) = self.broken.lock().unwrap().get(tenant) {
            let fault = fault.clone();
            return Box::pin(async { Err(fault) });
        }
        let versions = self.versions.lock().unwrap();
        let mut last = BTreeMap::new();
        for ((of, id, version), (stored, _)) in &*versions {
            if of == tenant && stored.endpoints.contains(endpoint) && !stored.is_deleted {
                last.insert(*id, Version::new(*version).unwrap());
            }
        }
        Box::pin(async { Ok(last.into_iter().collect()) })
    }

    fn connection_state(
        &self,
        _: &TenantId,
        _: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>> {
        panic!("no test needs it")
    }

    fn set_connection_state(
        &self,
        _: &TenantId,
        _: &ConnectionId,
        _: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        panic!("no test needs it")
    }

    fn needing_reconnect(
        &self,
        _: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>> {
        panic!("no test needs it")
    }
}

impl Automations for Shelf {
    fn load(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> BoxFuture<'_, Result<Arc<Automation>, PortError>> {
        let found = self.find(tenant, id, Some(version)).map(|(_, automation)| automation);
        Box::pin(async { found.ok_or_else(|| PortError::Gone("it is not there".into())) })
    }
}

/// Events of a log, as the composition root reads them.
#[derive(Debug)]
pub(crate) struct FromLog(pub(crate) Arc<dyn EventLog>);

impl Events for FromLog {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        let found = self.0.by_id(&LogScope::Tenant(tenant.clone()), event);
        Box::pin(async move {
            let found = found.map_err(|fault| PortError::Unavailable(fault.to_string().into()))?;
            found.as_ref().map(EventFacts::from).ok_or_else(|| PortError::Gone("it was trimmed".into()))
        })
    }
}

/// What was handed in.
#[derive(Debug, Default)]
pub(crate) struct Handed(pub(crate) Mutex<Vec<(TenantId, RunId, QueueClass)>>);

impl Queue for Handed {
    fn enqueue(&self, tenant: TenantId, run: RunId, class: QueueClass) {
        self.0.lock().unwrap().push((tenant, run, class));
    }

    fn enqueue_at(&self, _: TenantId, _: RunId, _: QueueClass, _: u64) {
        panic!("no test needs it")
    }

    fn nudge(&self, _: &TenantId, _: RunId) {
        panic!("no test needs it")
    }
}

/// A log whose readers meet damage once they have read so much.
#[derive(Debug)]
struct DamagedLog {
    log: Arc<MemoryLog>,
    behind: usize,
}

#[derive(Debug)]
struct DamagedReader {
    reader: Box<dyn EventReader>,
    left: usize,
    is_passed: bool,
}

impl EventReader for DamagedReader {
    fn next(&mut self) -> Result<Option<StoredEvent>, ReadError> {
        if self.left == 0 && !self.is_passed {
            let lane = Lane { class: "default".into(), generation: 1, shard: 0 };
            let (segment, reason) = ("1-1".to_owned(), "checksum".to_owned());
            return Err(ReadError::Damaged { lane, segment, offset: 4096, reason });
        }
        let next = self.reader.next()?;
        self.left -= usize::from(next.is_some() && self.left > 0);
        Ok(next)
    }

    fn skip_damage(&mut self) -> bool {
        !std::mem::replace(&mut self.is_passed, true)
    }

    fn cursor(&self) -> Cursor {
        self.reader.cursor()
    }
}

impl EventLog for DamagedLog {
    fn append(&self, event: NewEvent) -> Append {
        self.log.append(event)
    }

    fn refuses(&self, retention: &str, endpoint: &EndpointId) -> Option<eventlog::AppendError> {
        self.log.refuses(retention, endpoint)
    }

    fn durable(&self) -> Cursor {
        self.log.durable()
    }

    fn reader(&self, scope: LogScope, start: Start, filter: Filter) -> Result<Box<dyn EventReader>, ReadError> {
        let reader = self.log.reader(scope, start, filter)?;
        Ok(Box::new(DamagedReader { reader, left: self.behind, is_passed: false }))
    }

    fn by_id(&self, scope: &LogScope, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        self.log.by_id(scope, id)
    }

    fn groups(&self) -> &dyn ConsumerGroups {
        self.log.groups()
    }

    fn trim(&self) -> Result<Trimmed, eventlog::TrimError> {
        self.log.trim()
    }

    fn stored_bytes(&self, tenant: &TenantId) -> u64 {
        self.log.stored_bytes(tenant)
    }

    fn stat(&self) -> Stat {
        self.log.stat()
    }

    fn close(&self) -> Result<(), eventlog::CloseError> {
        self.log.close()
    }
}

/// Everything that admission stands on.
struct World {
    clock: Arc<ManualClock>,
    memory: Arc<MemoryLog>,
    log: Arc<dyn EventLog>,
    ledger: Arc<MemoryLedger>,
    shelf: Arc<Shelf>,
    handed: Arc<Handed>,
    triggers: Arc<Triggers>,
    letters: Letters,
}

struct Running {
    handle: Handle,
    stop: watch::Sender<bool>,
    ended: JoinHandle<()>,
}

impl World {
    fn new() -> Self {
        Self::over(|log| log)
    }

    fn over(wrap: impl FnOnce(Arc<MemoryLog>) -> Arc<dyn EventLog>) -> Self {
        let clock = ManualClock::at_unix_ms(NOW_UNIX_MS);
        let memory = Arc::new(MemoryLog::new(NodeId(7), Arc::<ManualClock>::clone(&clock)));
        let log = wrap(Arc::clone(&memory));
        let shelf = Arc::<Shelf>::default();
        let ledger = Arc::new(MemoryLedger::of_one_process(&MemoryLedgerStore::default()));
        let triggers = Triggers::new(
            Arc::<Shelf>::clone(&shelf),
            Arc::<Shelf>::clone(&shelf),
            Arc::new(FromLog(Arc::clone(&log))),
            Arc::<ManualClock>::clone(&clock),
        );
        Self { clock, memory, log, ledger, shelf, handed: Arc::default(), triggers, letters: Letters::in_memory() }
    }

    fn start(&self) -> Running {
        self.start_with(Settings { commit_every: Duration::from_millis(20), ..Settings::default() })
    }

    fn start_with(&self, settings: Settings) -> Running {
        let parts = Parts {
            log: Arc::clone(&self.log),
            ledger: Arc::<MemoryLedger>::clone(&self.ledger),
            triggers: Arc::clone(&self.triggers),
            queue: Arc::<Handed>::clone(&self.handed),
            clock: Arc::<ManualClock>::clone(&self.clock),
            letters: self.letters.clone(),
        };
        let (admission, handle) = Admission::new(parts, settings);
        let (stop, stopped) = watch::channel(false);
        Running { handle, stop, ended: tokio::spawn(admission.run(stopped)) }
    }

    fn append(&self, of: &str, at: &str, number: u32, received_unix_ms: u64) -> EventId {
        let new = NewEvent {
            body: Bytes::from(format!("{{\"number\":{number}}}")),
            ..event(of, at, received_unix_ms, number)
        };
        self.memory.append(new).wait().unwrap().id
    }

    fn records(&self) -> Vec<Record> {
        self.ledger.records()
    }

    /// Waits for it, with both kinds of time going on.
    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..2000 {
            if holds() {
                return;
            }
            self.clock.advance(Duration::from_millis(5));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{what} never came to be");
    }

    async fn until_through(&self, running: &Running, events: u64) {
        self.until("everything admitted", || {
            let status = running.handle.status();
            status.events >= events && status.waiting == 0
        })
        .await;
    }
}

impl Running {
    async fn stop(self) -> Status {
        self.stop.send(true).unwrap();
        self.ended.await.unwrap();
        self.handle.status()
    }
}

#[tokio::test]
async fn an_event_begins_a_run_of_each_automation_of_its_endpoint() {
    let world = World::new();
    world.shelf.put(MADE);
    world.shelf.put(Made { id: 2, version: 1, ..MADE });
    world.shelf.put(Made { id: 2, version: 2, class: QueueClass::Bulk, ..MADE });
    world.shelf.put(Made { id: 3, endpoint: "wh_2", ..MADE });
    world.shelf.put(Made { id: 4, tenant: "other", ..MADE });
    let running = world.start();
    // The fifth is over its limit: bulk.
    let (normal, bulk) = (world.append("acme", "wh_1", 1, NOW_UNIX_MS), world.append("acme", "wh_1", 5, NOW_UNIX_MS));
    world.append("acme", "wh_nobody", 2, NOW_UNIX_MS);
    world.until_through(&running, 3).await;

    let run =
        |id, version, event| RunId::of_event(&tenant("acme"), automation_id(id), Version::new(version).unwrap(), event);
    let mut handed = world.handed.0.lock().unwrap().clone();
    let mut expected = vec![
        (tenant("acme"), run(1, 1, normal), QueueClass::Interactive),
        (tenant("acme"), run(2, 2, normal), QueueClass::Bulk),
        (tenant("acme"), run(1, 1, bulk), QueueClass::Bulk),
        (tenant("acme"), run(2, 2, bulk), QueueClass::Bulk),
    ];
    handed.sort();
    expected.sort();
    assert_eq!(handed, expected);
    let records = world.records();
    assert_eq!(records.len(), 4);
    let first = records.iter().find(|record| record.run == run(1, 1, normal)).unwrap();
    let Body::Admitted(admitted) = &first.body else { panic!("{first:?}") };
    assert_eq!(admitted.cause, Cause::Event { event: normal, endpoint: endpoint("wh_1") });
    assert_eq!(admitted.deadline_unix_ms, first.at_unix_ms + 60_000);
    let status = running.stop().await;
    assert_eq!((status.begun.runs, status.begun.events_without, status.events), (4, 1, 3));
    assert_eq!(status.committed, world.log.durable());
}

#[tokio::test]
async fn a_webhook_wakes_admission_at_once() {
    let world = World::new();
    world.shelf.put(MADE);
    let running = world.start();
    tokio::time::sleep(Duration::from_millis(100)).await;
    for number in 1..20 {
        world.append("acme", "wh_1", number, world.clock.unix_ms());
        let began = tokio::time::Instant::now();
        while world.records().len() < number as usize {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(began.elapsed() < Duration::from_millis(200), "not by the next look: {:?}", began.elapsed());
    }
    running.stop().await;
}

#[tokio::test]
async fn a_restart_admits_nothing_twice_and_misses_nothing() {
    let world = World::new();
    world.shelf.put(MADE);
    for number in 0..300 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
        if number % 100 == 99 {
            let running = world.start();
            // Not to the end, each time: it is taken away in the middle, without a last commit.
            world.until("some", || world.records().len() > number as usize / 2).await;
            running.ended.abort();
            assert!(running.ended.await.unwrap_err().is_cancelled());
            // A commit that was on its way to a thread of its own is through by then; a process takes it with it.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    // And once more from the beginning of it all.
    world.log.groups().commit("runner", &Cursor::default()).unwrap();
    let running = world.start();
    world.until_through(&running, 300).await;
    let status = running.stop().await;
    assert_eq!(world.records().len(), 300);
    assert!(status.begun.already > 0 && status.begun.refused == 0, "{status:?}");
    let handed = world.handed.0.lock().unwrap();
    let runs: std::collections::BTreeSet<_> = handed.iter().map(|(_, run, _)| *run).collect();
    assert_eq!(runs.len(), 300, "every run was handed in");
}

#[tokio::test]
async fn a_ledger_that_fails_or_forgets_to_answer_right_delays_and_loses_nothing() {
    let world = World::new();
    world.shelf.put(MADE);
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Refuse(crate::ledger::AppendError::Full)] {
        world.ledger.next(fault);
    }
    for number in 0..10 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start();
    world.until_through(&running, 10).await;
    let status = running.stop().await;
    assert_eq!((world.records().len(), status.begun.runs + status.begun.already), (10, 10));
    assert_eq!(status.failures, 3);
    assert_eq!(world.handed.0.lock().unwrap().len(), 10, "also the one whose answer was wrong");
}

#[tokio::test]
async fn a_condition_decides_and_one_that_fails_begins_nothing() {
    let world = World::new();
    world.shelf.put(Made { when: Some("event.body.number > 2"), ..MADE });
    world.shelf.put(Made { id: 2, when: Some("event.body.missing == 1"), ..MADE });
    for number in 1..5 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start();
    world.until_through(&running, 4).await;
    let begun = running.stop().await.begun;
    assert_eq!((begun.runs, begun.not, begun.when_failed), (2, 2, 4));
}

#[tokio::test]
async fn a_tenant_whose_definitions_are_damaged_stops_itself_alone() {
    let world = World::new();
    world.shelf.put(MADE);
    world.shelf.put(Made { tenant: "other", ..MADE });
    world.shelf.break_for("acme", Some(StoreError::Damaged("as a test has asked".into())));
    for number in 0..50 {
        world.append(if number % 2 == 0 { "acme" } else { "other" }, "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start();
    world.until("the other's", || world.records().len() == 25).await;
    let status = running.handle.status();
    assert_eq!((status.waiting, status.delayed_tenants), (25, 1));
    assert!(status.committed.is_empty(), "before the oldest that is not admitted");
    world.shelf.break_for("acme", None);
    world.triggers.changed(&tenant("acme"));
    world.until_through(&running, 50).await;
    assert_eq!(world.records().len(), 50);
    assert_eq!(running.stop().await.committed, world.log.durable());
}

#[tokio::test]
async fn an_event_that_crashes_admission_is_set_aside_and_its_tenant_goes_on() {
    let world = World::new();
    world.shelf.put(MADE);
    world.shelf.put(Made { id: 2, endpoint: "wh_bad", ..MADE });
    *world.shelf.panics.lock().unwrap() = Some(endpoint("wh_bad"));
    let bad = world.append("acme", "wh_bad", 0, NOW_UNIX_MS);
    for number in 1..20 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start();
    world.until("the others", || world.records().len() == 19).await;
    world.until("a dead letter", || running.handle.status().letters == 1).await;
    world.until_through(&running, 20).await;
    let status = running.handle.status();
    assert_eq!((status.failures, status.letters_made, status.aside, status.delayed_tenants), (5, 1, 0, 0));
    let letter = &running.handle.letters(9)[0];
    assert_eq!((letter.event, letter.tries, &letter.endpoint), (bad, 5, &endpoint("wh_bad")));
    assert_eq!(running.stop().await.committed, world.log.durable(), "it holds nothing up any more");

    // Read once more, it is known; and when the cause is gone it is tried again.
    world.log.groups().commit("runner", &Cursor::default()).unwrap();
    let running = world.start();
    world.until_through(&running, 20).await;
    assert_eq!(running.handle.status().failures, 0);
    assert_eq!(running.handle.try_letters(), 1);
    world.until("one more try", || world.letters.list(1).first().is_some_and(|letter| letter.tries == 6)).await;
    *world.shelf.panics.lock().unwrap() = None;
    world.triggers.changed(&tenant("acme"));
    running.handle.try_letters();
    world.until("its run", || world.records().len() == 20).await;
    world.until("no letter", || running.handle.status().letters == 0).await;
    running.stop().await;
}

/// The clock was put back by an hour after the automation was made: what comes now is not older than it.
#[tokio::test]
async fn a_clock_that_was_put_back_keeps_no_event_from_its_run() {
    let world = World::new();
    world.shelf.put(Made { at_unix_ms: NOW_UNIX_MS, ..MADE });
    world.clock.step_to_unix_ms(NOW_UNIX_MS - 3_600_000);
    world.append("acme", "wh_1", 1, NOW_UNIX_MS - 3_600_000);
    let history = NOW_UNIX_MS - 3_600_000 - 86_400_000;
    world.append("acme", "wh_1", 2, history);
    let running = world.start();
    world.until_through(&running, 2).await;
    let begun = running.stop().await.begun;
    assert_eq!((begun.runs, begun.older), (1, 1));
}

#[tokio::test]
async fn damage_halts_until_an_operator_lets_it_be_passed() {
    let world = World::over(|log| Arc::new(DamagedLog { log, behind: 3 }));
    world.shelf.put(MADE);
    for number in 0..6 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start();
    world.until("a halt", || running.handle.status().halt.is_some()).await;
    let halt = running.handle.status().halt.unwrap();
    assert!(halt.needs_operator && halt.reason.contains("offset 4096"), "{halt:?}");
    world.until("what lies before", || world.records().len() == 3).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(world.records().len(), 3, "nothing is passed by itself");
    assert!(running.handle.skip_damage());
    world.until("the rest", || world.records().len() == 6).await;
    world.until("an end of the halt", || running.handle.status().halt.is_none()).await;
    assert!(!running.handle.skip_damage(), "there is none");
    assert_eq!(running.stop().await.damage_skipped, 1);
}

/// A tenant that was skipped is read once more, and what an operator has let be passed is passed again.
#[tokio::test]
async fn damage_that_was_let_pass_stops_no_tenant_that_was_skipped() {
    let world = World::over(|log| Arc::new(DamagedLog { log, behind: 3 }));
    world.shelf.put(MADE);
    for number in 0..30 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start_with(Settings { entries_max: 16, under_way_max: 2, ..Settings::default() });
    world.until("a halt", || running.handle.status().halt.is_some()).await;
    assert!(running.handle.skip_damage());
    world.until("the rest", || world.records().len() == 30).await;
    world.until("an end of it", || running.handle.status().skipped_tenants == 0).await;
    let status = running.stop().await;
    assert_eq!((status.halt, status.committed), (None, world.log.durable()));
    assert!(status.damage_skipped > 1);
}

#[tokio::test]
async fn what_was_trimmed_before_it_was_read_is_told_and_counted() {
    let world = World::new();
    world.shelf.put(MADE);
    world.append("acme", "wh_1", 0, NOW_UNIX_MS);
    let running = world.start();
    world.until_through(&running, 1).await;
    running.stop().await;
    // The runner is away for longer than events are kept.
    for number in 1..4 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
    }
    world.clock.advance(Duration::from_hours(31 * 24));
    assert_eq!(world.log.trim().unwrap().records, 4);
    let late = world.clock.unix_ms();
    world.append("acme", "wh_1", 9, late);
    let running = world.start();
    world.until("what is left", || world.records().len() == 2).await;
    let status = running.stop().await;
    assert_eq!((status.trimmed, status.halt), (1, None));
}

/// The run's id has the version in it: an edit between an event's admission and a second reading must not begin another.
#[tokio::test]
async fn an_edit_does_not_run_an_event_again() {
    let world = World::new();
    world.shelf.put(MADE);
    let first = world.append("acme", "wh_1", 1, NOW_UNIX_MS);
    let running = world.start();
    world.until_through(&running, 1).await;
    running.stop().await;
    world.shelf.put(Made { version: 2, at_unix_ms: NOW_UNIX_MS + 1000, ..MADE });
    world.shelf.put(Made { version: 3, at_unix_ms: NOW_UNIX_MS + 2000, ..MADE });
    world.triggers.changed(&tenant("acme"));
    world.log.groups().commit("runner", &Cursor::default()).unwrap();
    let second = world.append("acme", "wh_1", 2, NOW_UNIX_MS + 500);
    let running = world.start();
    world.until_through(&running, 2).await;
    let status = running.stop().await;
    assert_eq!((status.begun.runs, status.begun.already), (1, 1));
    let version = |number| Version::new(number).unwrap();
    let run = |event, number| RunId::of_event(&tenant("acme"), automation_id(1), version(number), event);
    let runs: Vec<RunId> = world.records().iter().map(|record| record.run).collect();
    assert_eq!(runs, [run(first, 1), run(second, 3)], "under the last version, if under none before");
}

/// A runner that is new on an old log does not run its history.
#[tokio::test]
async fn an_automation_begins_with_the_events_that_come_after_it() {
    let world = World::new();
    world.append("acme", "wh_1", 1, NOW_UNIX_MS - 86_400_000);
    world.append("acme", "wh_1", 2, NOW_UNIX_MS + 10);
    world.shelf.put(Made { at_unix_ms: NOW_UNIX_MS, ..MADE });
    // An edit does not make it younger.
    world.shelf.put(Made { version: 2, at_unix_ms: NOW_UNIX_MS + 1_000_000, ..MADE });
    let running = world.start();
    world.until_through(&running, 2).await;
    let begun = running.stop().await.begun;
    assert_eq!((begun.runs, begun.older), (1, 1));
}

#[tokio::test]
async fn a_burst_asks_for_definitions_once() {
    let world = World::new();
    world.shelf.put(MADE);
    for number in 0..2000 {
        world.append("acme", "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start();
    // The clock stands still.
    while running.handle.status().begun.runs < 2000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.shelf.asked.load(Ordering::SeqCst), 1);
    world.shelf.put(Made { id: 2, ..MADE });
    world.append("acme", "wh_1", 5001, NOW_UNIX_MS);
    while running.handle.status().begun.runs < 2001 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(running.handle.status().begun.runs, 2001, "what holds for a second holds");
    world.triggers.changed(&tenant("acme"));
    world.append("acme", "wh_1", 5002, NOW_UNIX_MS);
    while running.handle.status().begun.runs < 2003 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.stop().await;
}

/// More than the memory holds, of two hogs: a newcomer is admitted long before them, and everything is in the end.
#[tokio::test]
async fn a_burst_that_is_larger_than_the_memory_delays_nobody_and_loses_nothing() {
    let world = World::new();
    for of in ["hog", "sow", "small"] {
        world.shelf.put(Made { tenant: of, ..MADE });
    }
    for number in 0..3000 {
        world.append(if number % 3 == 0 { "sow" } else { "hog" }, "wh_1", number, NOW_UNIX_MS);
    }
    let small = world.append("small", "wh_1", 9000, NOW_UNIX_MS);
    let running = world.start_with(Settings { entries_max: 200, under_way_max: 8, ..Settings::default() });
    world.until("all of them", || world.records().len() == 3001).await;
    let run = RunId::of_event(&tenant("small"), automation_id(1), Version::MIN, small);
    let place = world.records().iter().position(|record| record.run == run).unwrap();
    println!("of 3,001 events in 200 places, the newcomer's, which came last, was admitted as number {place}");
    assert!(place < 1500, "{place}");
    world.until("a commit", || running.handle.status().skipped_tenants == 0).await;
    assert_eq!(running.stop().await.committed, world.log.durable());
}

/// Figures: how many are admitted a second, and what a burst of 100,000 events does to somebody else's one. The log and the
/// ledger are in memory, so that this is what admission itself takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure, and only without anybody else on the machine; it takes seconds"]
async fn figures_of_a_burst() {
    let world = World::new();
    for of in ["hog", "small"] {
        world.shelf.put(Made { tenant: of, ..MADE });
    }
    for number in 0..100_000 {
        world.append("hog", "wh_1", number, NOW_UNIX_MS);
    }
    let running = world.start();
    let began = tokio::time::Instant::now();
    let small = world.append("small", "wh_1", 200_000, NOW_UNIX_MS);
    let run = RunId::of_event(&tenant("small"), automation_id(1), Version::MIN, small);
    let is_there = || world.handed.0.lock().unwrap().iter().any(|(_, handed, _)| *handed == run);
    while !is_there() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (delay, before) = (began.elapsed(), world.handed.0.lock().unwrap().len());
    while running.handle.status().begun.runs < 100_001 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rate = 100_001.0 / began.elapsed().as_secs_f64();
    println!("behind 100,000 events: admitted after {delay:?}, {before} were before it; {rate:.0} runs/s");
    running.stop().await;
}
