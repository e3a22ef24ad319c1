//! Plans and replays over a log, a ledger and a history in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use domain::{Clock, ManualClock, NodeId};
use eventlog::conformance::event;
use eventlog::{EventLog, MemoryLog, NewEvent};

use super::*;
use crate::admission::Triggers;
use crate::admission::tests::{FromLog, Handed, MADE, Made, NOW_UNIX_MS, Shelf, automation_id, endpoint, tenant};
use crate::ids::{EffectKey, LogicalAttempt, StepId, Version};
use crate::ledger::memory::{Fault, MemoryLedger, MemoryLedgerStore};
use crate::ledger::{
    Admitted, Attempt, Body, Cause, Commit, Intent, Kept, Lease, LedgerStore, Outcome, Payload, Provider, SendState,
    StepResult, Terminal, Writer,
};

/// What the index would say, straight from the ledger's records.
#[derive(Debug)]
struct FromLedger {
    ledger: Arc<MemoryLedger>,
    lies: AtomicBool,
}

impl History for FromLedger {
    fn runs_of(&self, of: &TenantId, event: EventId) -> BoxFuture<'static, Result<Vec<PastRun>, HistoryError>> {
        let mut runs: Vec<PastRun> = Vec::new();
        for record in self.ledger.records() {
            match &record.body {
                Body::Admitted(admitted) => {
                    let (Cause::Event { event: found, .. } | Cause::Replay { event: found, .. }) = &admitted.cause
                    else {
                        continue;
                    };
                    if record.tenant == *of && *found == event {
                        runs.push(PastRun {
                            tenant: if self.lies.load(Ordering::SeqCst) { tenant("other") } else { of.clone() },
                            run: record.run,
                            automation: admitted.automation,
                            status: RunStatus::Queued,
                            failure: None,
                        });
                    }
                }
                Body::Terminal(terminal) => {
                    if let Some(run) = runs.iter_mut().find(|run| run.run == record.run) {
                        (run.status, run.failure) = (terminal.status, terminal.class);
                    }
                }
                Body::Lease(_)
                | Body::Intent(_)
                | Body::Outcome(_)
                | Body::LateOutcome(_)
                | Body::Parked(_)
                | Body::Released(_)
                | Body::Resolved(_)
                | Body::Dismissed(_)
                | Body::Rerun(_)
                | Body::CancelRequested(_)
                | Body::Quarantined(_) => {}
            }
        }
        Box::pin(async { Ok(runs) })
    }
}

#[derive(Debug)]
struct Room(AtomicBool);

impl Pace for Room {
    fn has_room(&self, _: &TenantId) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

struct World {
    clock: Arc<ManualClock>,
    log: Arc<MemoryLog>,
    ledger: Arc<MemoryLedger>,
    shelf: Arc<Shelf>,
    handed: Arc<Handed>,
    history: Arc<FromLedger>,
    room: Arc<Room>,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::at_unix_ms(NOW_UNIX_MS + 1_000_000);
        let log = Arc::new(MemoryLog::new(NodeId(7), Arc::<ManualClock>::clone(&clock)));
        let ledger = Arc::new(MemoryLedger::of_one_process(&MemoryLedgerStore::default()));
        Self {
            history: Arc::new(FromLedger { ledger: Arc::clone(&ledger), lies: AtomicBool::new(false) }),
            clock,
            log,
            ledger,
            shelf: Arc::default(),
            handed: Arc::default(),
            room: Arc::new(Room(AtomicBool::new(true))),
        }
    }

    /// As after a start.
    fn replays(&self, settings: Settings) -> Replays {
        let log: Arc<dyn EventLog> = Arc::<MemoryLog>::clone(&self.log);
        let triggers = Triggers::new(
            Arc::<Shelf>::clone(&self.shelf),
            Arc::<Shelf>::clone(&self.shelf),
            Arc::new(FromLog(Arc::clone(&log))),
            Arc::<ManualClock>::clone(&self.clock),
        );
        let parts = Parts {
            log,
            ledger: Arc::<MemoryLedger>::clone(&self.ledger),
            definitions: Arc::<Shelf>::clone(&self.shelf),
            triggers,
            history: Arc::<FromLedger>::clone(&self.history),
            queue: Arc::<Handed>::clone(&self.handed),
            pace: Arc::<Room>::clone(&self.room),
            clock: Arc::<ManualClock>::clone(&self.clock),
        };
        Replays::new(parts, settings)
    }

    fn append(&self, of: &str, at: &str, number: u32) -> EventId {
        let new = NewEvent {
            body: Bytes::from(format!("{{\"number\":{number}}}")),
            ..event(of, at, NOW_UNIX_MS + u64::from(number), number)
        };
        self.log.append(new).wait().unwrap().id
    }
}

fn everything() -> Selection {
    Selection {
        tenant: tenant("acme"),
        automation: None,
        endpoint: None,
        from_unix_ms: NOW_UNIX_MS,
        until_unix_ms: u64::MAX,
        why: Why::All,
    }
}

fn order(plan: &Plan, id: &str) -> Order {
    Order { plan: plan.clone(), id: id.into(), accepted_duplicates: plan.may_duplicate }
}

async fn to_the_end(replays: &Replays, id: &str) -> Progress {
    for _ in 0..2000 {
        let progress = replays.progress(&tenant("acme"), id).unwrap();
        if progress.state != ReplayState::UnderWay {
            return progress;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the replay {id} never ended");
}

/// An earlier run of the event: what it sent, and how it ended.
async fn ran(world: &World, id: u8, event: EventId, sent: Option<SendState>, end: Option<(RunStatus, FailureClass)>) {
    let of = tenant("acme");
    let run = RunId::of_event(&of, automation_id(id), Version::MIN, event);
    let step = StepId::parse("charge").unwrap();
    let attempt = Attempt { logical: LogicalAttempt::MIN, physical: 1 };
    let payload = Payload { bytes: 0, digest: [0; 32], kept: Kept::Inline(Bytes::new()) };
    let admitted = Admitted {
        automation: automation_id(id),
        version: Version::MIN,
        cause: Cause::Event { event, endpoint: endpoint("wh_1") },
        class: QueueClass::Interactive,
        deadline_unix_ms: u64::MAX,
        input: None,
    };
    let mut bodies = vec![Body::Lease(Lease { lease: 1, owner: "a".into(), until_unix_ms: 0 })];
    if let Some(send_state) = sent {
        bodies.push(Body::Intent(Intent {
            step: step.clone(),
            attempt,
            effect: EffectKey::new(run, &step, LogicalAttempt::MIN),
            is_read_back: false,
            connection: None,
            input: payload.clone(),
        }));
        let provider = Provider { send_state, status: None, message: None, request_id: None, correlation: None };
        let result = StepResult::Done { output: payload };
        bodies.push(Body::Outcome(Outcome { step, attempt, result, provider: Some(provider) }));
    }
    if let Some((status, class)) = end {
        bodies.push(Body::Terminal(Terminal { status, failed_at: None, class: Some(class) }));
    }
    let commit = |expected, writer, bodies| Commit { tenant: of.clone(), run, expected, writer, at_unix_ms: 0, bodies };
    world.ledger.append(commit(0, Writer::Anyone, vec![Body::Admitted(admitted)])).await.unwrap();
    world.ledger.append(commit(1, Writer::Lease(1), bodies)).await.unwrap();
}

#[tokio::test]
async fn a_plan_counts_and_does_nothing_and_an_execution_does_what_was_counted() {
    let world = World::new();
    world.shelf.put(MADE);
    world.shelf.put(Made { id: 2, when: Some("event.body.number < 3"), ..MADE });
    world.shelf.put(Made { id: 3, tenant: "other", ..MADE });
    for number in 0..10 {
        world.append("acme", "wh_1", number);
        world.append("other", "wh_1", 100 + number);
        world.append("acme", "wh_2", 200 + number);
    }
    let replays = world.replays(Settings::default());
    // As a handler of requests does.
    let replays = Arc::new(replays);
    let asked = Arc::clone(&replays);
    let plan = tokio::spawn(async move { asked.plan(everything()).await }).await.unwrap().unwrap();
    assert_eq!((plan.events, plan.runs, plan.may_duplicate), (10, 13, 0));
    assert_eq!(plan.selection.until_unix_ms, world.clock.unix_ms(), "not beyond now");
    assert_eq!(plan, replays.plan(plan.selection.clone()).await.unwrap(), "the same again");
    assert!(world.ledger.records().is_empty() && world.handed.0.lock().unwrap().is_empty());

    let (asked, first) = (Arc::clone(&replays), order(&plan, "first"));
    tokio::spawn(async move { asked.execute(first).await }).await.unwrap().unwrap();
    let progress = to_the_end(&replays, "first").await;
    assert_eq!((progress.begun, progress.already, progress.state), (13, 0, ReplayState::Done));
    let handed = world.handed.0.lock().unwrap().clone();
    assert!(handed.iter().all(|(of, _, class)| *of == tenant("acme") && *class == QueueClass::Bulk));
    assert_eq!(handed.len(), 13);
    for record in world.ledger.records() {
        let Body::Admitted(admitted) = &record.body else { panic!("{record:?}") };
        let Cause::Replay { event, replay, .. } = &admitted.cause else { panic!("{admitted:?}") };
        assert_eq!(&**replay, "first");
        let by_event = RunId::of_event(&tenant("acme"), admitted.automation, admitted.version, *event);
        assert_ne!(record.run, by_event, "a run of its own, with effect keys of its own");
    }
}

#[tokio::test]
async fn executing_twice_adds_nothing_and_another_id_is_another_replay() {
    let world = World::new();
    world.shelf.put(MADE);
    for number in 0..50 {
        world.append("acme", "wh_1", number);
    }
    let replays = world.replays(Settings::default());
    let plan = replays.plan(everything()).await.unwrap();
    for (id, begun, already) in [("a", 50, 0), ("a", 0, 50), ("b", 50, 0)] {
        replays.execute(order(&plan, id)).await.unwrap();
        let progress = to_the_end(&replays, id).await;
        assert_eq!((progress.begun, progress.already), (begun, already), "{id}");
    }
    assert_eq!(world.ledger.records().len(), 100);
    // An id that is the beginning of another one is another one.
    assert_eq!(replays.list(&tenant("acme")).len(), 2);
    assert!(replays.list(&tenant("other")).is_empty() && replays.progress(&tenant("other"), "a").is_none());
}

#[tokio::test]
async fn a_replay_gives_way_and_goes_on_after_a_restart() {
    let world = World::new();
    world.shelf.put(MADE);
    for number in 0..200 {
        world.append("acme", "wh_1", number);
    }
    let replays = world.replays(Settings::default());
    let plan = replays.plan(everything()).await.unwrap();
    world.room.0.store(false, Ordering::SeqCst);
    replays.execute(order(&plan, "slow")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(world.ledger.records().is_empty(), "there is no room");
    assert!(matches!(replays.execute(order(&plan, "more")).await, Err(ReplayError::Refused(Refused::Busy))));
    // One chunk, and then the process ends.
    world.room.0.store(true, Ordering::SeqCst);
    world.ledger.next(Fault::NoReply);
    while world.ledger.records().len() < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    replays.shutdown().await;
    let begun = world.ledger.records().len();
    assert!((20..200).contains(&begun), "{begun}");
    assert_eq!(replays.progress(&tenant("acme"), "slow").unwrap().state, ReplayState::Stopped);

    let replays = world.replays(Settings::default());
    replays.execute(order(&plan, "slow")).await.unwrap();
    let progress = to_the_end(&replays, "slow").await;
    assert_eq!((progress.begun, progress.already), (200 - begun as u64, begun as u64));
    assert_eq!(world.ledger.records().len(), 200);
}

#[tokio::test]
async fn what_may_happen_twice_is_counted_and_must_be_accepted() {
    let world = World::new();
    world.shelf.put(MADE);
    let events: Vec<EventId> = (0..5).map(|number| world.append("acme", "wh_1", number)).collect();
    let failed = |class| Some((RunStatus::Failed, class));
    ran(&world, 1, events[0], Some(SendState::Response), failed(FailureClass::Timeout)).await;
    ran(&world, 1, events[1], Some(SendState::SentNoResponse), None).await;
    ran(&world, 1, events[2], Some(SendState::NotSent), failed(FailureClass::Unreachable)).await;
    ran(&world, 1, events[3], None, failed(FailureClass::ExpressionFailed)).await;
    let replays = world.replays(Settings::default());
    let plan = replays.plan(everything()).await.unwrap();
    assert_eq!((plan.runs, plan.may_duplicate), (5, 2));
    let refused = replays.execute(Order { accepted_duplicates: 1, ..order(&plan, "x") }).await;
    assert!(matches!(refused, Err(ReplayError::Refused(Refused::Duplicates { may_duplicate: 2, accepted: 1 }))));
    assert!(replays.progress(&tenant("acme"), "x").is_none());
    replays.execute(order(&plan, "x")).await.unwrap();
    assert_eq!(to_the_end(&replays, "x").await.begun, 5);
    // Its own runs are no reason to be asked again.
    replays.execute(order(&plan, "x")).await.unwrap();
    assert_eq!(to_the_end(&replays, "x").await.already, 5);

    for (why, runs) in [(Why::NotSucceeded, 0), (Why::FailedWith(FailureClass::Unreachable), 0), (Why::NeverBegan, 0)] {
        let plan = replays.plan(Selection { why, ..everything() }).await.unwrap();
        assert_eq!(plan.runs, runs, "{why:?}: runs of the replay are not over");
    }
}

#[tokio::test]
async fn what_came_of_an_event_selects_it() {
    let world = World::new();
    world.shelf.put(MADE);
    let events: Vec<EventId> = (0..5).map(|number| world.append("acme", "wh_1", number)).collect();
    let end = |status, class| Some((status, class));
    ran(&world, 1, events[0], None, end(RunStatus::Failed, FailureClass::Timeout)).await;
    ran(&world, 1, events[1], None, end(RunStatus::Succeeded, FailureClass::Timeout)).await;
    ran(&world, 1, events[2], None, end(RunStatus::TimedOut, FailureClass::DeadlineExceeded)).await;
    ran(&world, 1, events[3], None, None).await;
    // Of another automation it is no run of this one.
    ran(&world, 2, events[4], None, end(RunStatus::Failed, FailureClass::Timeout)).await;
    let replays = world.replays(Settings::default());
    for (why, runs) in [
        (Why::All, 5),
        (Why::NeverBegan, 1),
        (Why::NotSucceeded, 2),
        (Why::FailedWith(FailureClass::Timeout), 1),
        (Why::FailedWith(FailureClass::Conflict), 0),
    ] {
        let plan = replays.plan(Selection { why, ..everything() }).await.unwrap();
        assert_eq!(plan.runs, runs, "{why:?}");
    }
    world.history.lies.store(true, Ordering::SeqCst);
    let fault = replays.plan(everything()).await.unwrap_err();
    assert!(matches!(fault, ReplayError::History(_)), "{fault}: another tenant's run is answered to nobody");
}

#[tokio::test]
async fn a_plan_that_is_not_true_any_more_is_refused() {
    let world = World::new();
    world.shelf.put(MADE);
    for number in 0..5 {
        world.append("acme", "wh_1", number);
    }
    let replays = world.replays(Settings::default());
    let plan = replays.plan(everything()).await.unwrap();
    let is_changed = |outcome| matches!(outcome, Err(ReplayError::Refused(Refused::Changed)));
    let mut other = plan.clone();
    other.selection.from_unix_ms += 2;
    assert!(is_changed(replays.execute(order(&other, "x")).await), "another range");
    // An edit changes nothing: the plan names its versions.
    world.shelf.put(Made { version: 2, ..MADE });
    assert!(replays.execute(order(&plan, "x")).await.is_ok());
    to_the_end(&replays, "x").await;
    let mut other = plan.clone();
    other.targets[0].version = Version::new(2).unwrap();
    assert!(is_changed(replays.execute(order(&other, "y")).await), "another version");
    // A delivery that was held and is promoted now came within the range.
    world.append("acme", "wh_1", 6);
    assert!(is_changed(replays.execute(order(&plan, "y")).await), "another event");
    assert!(replays.progress(&tenant("acme"), "y").is_none());
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused() {
    let world = World::new();
    world.shelf.put(MADE);
    for number in 0..20 {
        world.append("acme", "wh_1", number);
    }
    let replays = world.replays(Settings { events_max: 10, ..Settings::default() });
    let refused = async |selection| match replays.plan(selection).await {
        Err(ReplayError::Refused(refused)) => Some(refused),
        _ => None,
    };
    assert_eq!(refused(everything()).await, Some(Refused::TooMany { max: 10 }));
    let empty = Selection { from_unix_ms: 7, until_unix_ms: 7, ..everything() };
    assert_eq!(refused(empty).await, Some(Refused::EmptyRange));
    let of = |number| Selection { automation: Some(automation_id(number)), ..everything() };
    let few = |selection| Selection { until_unix_ms: NOW_UNIX_MS + 5, ..selection };
    assert_eq!(refused(few(of(1))).await, None);
    assert_eq!(refused(few(of(9))).await, Some(Refused::NoAutomation));
    assert_eq!(refused(few(Selection { tenant: tenant("other"), ..of(1) })).await, Some(Refused::NoAutomation));
    world.shelf.delete("acme", 1);
    assert_eq!(refused(few(of(1))).await, Some(Refused::NoAutomation));
    let plan = replays.plan(few(everything())).await.unwrap();
    assert_eq!(plan.runs, 0);
    let mut padded = order(&plan, "x");
    padded.plan.targets = vec![Target { automation: automation_id(2), version: Version::MIN }; 1_001];
    let outcome = replays.execute(padded).await;
    assert!(matches!(outcome, Err(ReplayError::Refused(Refused::TooMany { max: 1_000 }))));
    for id in ["", "a b", "a/b", "ä", &"a".repeat(65)] {
        let outcome = replays.execute(order(&plan, id)).await;
        assert!(matches!(outcome, Err(ReplayError::Refused(Refused::Id))), "{id}");
    }
}

#[tokio::test]
async fn a_ledger_that_is_away_delays_a_replay_and_a_stop_ends_it() {
    let world = World::new();
    world.shelf.put(MADE);
    for number in 0..40 {
        world.append("acme", "wh_1", number);
    }
    let replays = world.replays(Settings::default());
    let plan = replays.plan(everything()).await.unwrap();
    world.ledger.next(Fault::FailAfter);
    world.ledger.next(Fault::FailBefore);
    replays.execute(order(&plan, "x")).await.unwrap();
    let progress = to_the_end(&replays, "x").await;
    assert_eq!((progress.begun, progress.already), (39, 1));
    assert_eq!(world.handed.0.lock().unwrap().len(), 40);

    world.room.0.store(false, Ordering::SeqCst);
    replays.execute(order(&plan, "y")).await.unwrap();
    assert!(!replays.stop(&tenant("acme"), "x") && !replays.stop(&tenant("other"), "y"));
    assert!(replays.stop(&tenant("acme"), "y"));
    assert_eq!(to_the_end(&replays, "y").await.state, ReplayState::Stopped);
    assert!(!replays.stop(&tenant("acme"), "y"));
}

#[test]
fn a_plan_goes_there_and_back_as_json() {
    let plan = Plan {
        selection: Selection {
            endpoint: Some(endpoint("wh_1")),
            why: Why::FailedWith(FailureClass::Timeout),
            ..everything()
        },
        targets: vec![Target { automation: automation_id(1), version: Version::MIN }],
        events: 3,
        runs: 3,
        may_duplicate: 1,
        conditions_failed: 0,
        digest: "plan_00000000000000000000000000".parse().unwrap(),
    };
    let json = serde_json::to_string(&plan).unwrap();
    assert!(json.contains(r#""why":{"failed-with":"timeout"}"#), "{json}");
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    assert!(serde_json::from_str::<Plan>(&json.replace("\"runs\"", "\"walks\"")).is_err());
    assert!("plan_".parse::<PlanDigest>().is_err() && "00".parse::<PlanDigest>().is_err());
}

#[test]
fn a_plan_has_a_name_of_its_own_under_which_it_is_carried_out_once() {
    let digest: PlanDigest = "plan_00000000000000000000000000".parse().unwrap();
    assert_eq!(&*digest.replay(), "rep_00000000000000000000000000");
    let other: PlanDigest = "plan_10000000000000000000000000".parse().unwrap();
    assert_ne!(digest.replay(), other.replay());
}
