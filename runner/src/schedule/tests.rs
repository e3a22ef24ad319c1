//! The scheduler with workers, in a runtime whose time stands still until all wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{Clock, TenantId};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::core::Limits;
use super::*;
use crate::ids::{AutomationId, Version};
use crate::ledger::memory::{MemoryLedger, MemoryLedgerStore};
use crate::ledger::{Admitted, Body, Cause, Commit, Lease, LedgerStore, RunStatus, Writer};

/// Both clocks go with the runtime's time.
#[derive(Debug)]
pub(crate) struct RuntimeClock(Instant);

pub(crate) const BEGAN_UNIX_MS: u64 = 1_800_000_000_000;

impl RuntimeClock {
    pub(crate) fn shared() -> Arc<dyn Clock> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for RuntimeClock {
    fn unix_ms(&self) -> u64 {
        BEGAN_UNIX_MS + u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn run(number: u8) -> RunId {
    RunId::from_bytes([number; 16])
}

/// What a worker does with a run, one for each turn; the last one again and again.
#[derive(Debug, Clone)]
enum Act {
    End(Ended),
    Takes(Duration, Ended),
    Panics,
    /// Ends when it is told that something was appended.
    WaitsForNudge(Ended),
    /// Ends when it is told that the process stops.
    WaitsForStop(Ended),
}

#[derive(Debug, Default)]
struct Seen {
    turns: Vec<(RunId, QueueClass)>,
    now: usize,
    most: usize,
    dropped: usize,
}

#[derive(Debug, Default)]
struct Workers {
    acts: Mutex<HashMap<RunId, Vec<Act>>>,
    seen: Arc<Mutex<Seen>>,
}

impl Workers {
    fn will(&self, run: RunId, acts: &[Act]) {
        self.acts.lock().unwrap().insert(run, acts.iter().rev().cloned().collect());
    }

    fn turns_of(&self, run: RunId) -> usize {
        self.seen.lock().unwrap().turns.iter().filter(|(of, _)| *of == run).count()
    }
}

/// Counts a turn while it lasts.
struct Counted(Arc<Mutex<Seen>>, bool);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut seen = self.0.lock().unwrap();
        seen.now -= 1;
        seen.dropped += usize::from(!self.1);
    }
}

impl Drive for Workers {
    fn drive(&self, mut turn: Turn) -> BoxFuture<'_, Ended> {
        let act = {
            let mut acts = self.acts.lock().unwrap();
            let acts = acts.get_mut(&turn.run).expect("a run that the test knows");
            if acts.len() > 1 { acts.pop().unwrap() } else { acts[0].clone() }
        };
        Box::pin(async move {
            {
                let mut seen = self.seen.lock().unwrap();
                seen.turns.push((turn.run, turn.class));
                seen.now += 1;
                seen.most = seen.most.max(seen.now);
            }
            let mut counted = Counted(Arc::clone(&self.seen), false);
            let ended = match act {
                Act::End(ended) => ended,
                Act::Takes(time, ended) => {
                    tokio::time::sleep(time).await;
                    ended
                }
                Act::Panics => panic!("as a test has asked"),
                Act::WaitsForStop(ended) => {
                    turn.stopping.wait_for(|stopping| *stopping).await.unwrap();
                    ended
                }
                Act::WaitsForNudge(ended) => {
                    turn.nudged.changed().await.unwrap();
                    ended
                }
            };
            counted.1 = true;
            ended
        })
    }
}

struct Running {
    workers: Arc<Workers>,
    handle: Handle,
    stop: watch::Sender<bool>,
    ended: JoinHandle<Drained>,
    clock: Arc<dyn Clock>,
}

fn start(limits: Limits, sources: Sources) -> Running {
    let clock = RuntimeClock::shared();
    let settings = Settings { limits, drain: Duration::from_secs(10), ..Settings::default() };
    let (scheduler, handle) = Scheduler::new(settings, Arc::clone(&clock)).unwrap();
    let workers = Arc::<Workers>::default();
    let (stop, stopped) = watch::channel(false);
    let drive: Arc<dyn Drive> = Arc::<Workers>::clone(&workers);
    let ended = tokio::spawn(scheduler.run(drive, sources, stopped));
    Running { workers, handle, stop, ended, clock }
}

impl Running {
    fn enqueue(&self, number: u8, class: QueueClass) {
        self.handle.enqueue(tenant("acme"), run(number), class);
    }
}

const NO_SOURCES: Sources = Sources { open: None, ledger: None };

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn runs_are_driven_once_and_no_more_at_a_time_than_there_are_slots() {
    let running = start(Limits::of_slots(3), NO_SOURCES);
    for number in 0..20 {
        running.workers.will(run(number), &[Act::Takes(Duration::from_millis(100), Ended::Terminal)]);
        running.enqueue(number, QueueClass::Interactive);
        running.enqueue(number, QueueClass::Interactive);
    }
    pass(2).await;
    let seen = running.workers.seen.lock().unwrap();
    assert_eq!((seen.turns.len(), seen.most, seen.now), (20, 3, 0));
    let snapshot = running.handle.snapshot();
    assert_eq!((snapshot.turns.terminal, snapshot.counts.running, snapshot.counts.queued), (20, 0, [0; 4]));
    assert_eq!(snapshot.waits[0].count(), 20);
    assert_eq!(snapshot.top[0].0, tenant("acme"));
    assert!((1900..2100).contains(&snapshot.top[0].1), "{:?}", snapshot.top);
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_goes_on_at_its_time_in_its_class() {
    let running = start(Limits::of_slots(2), NO_SOURCES);
    let until = running.clock.unix_ms() + 5000;
    let parked = Ended::Parked { until_unix_ms: Some(until), class: QueueClass::ParkedRelease };
    running.workers.will(run(1), &[Act::End(parked), Act::End(Ended::Terminal)]);
    running.workers.will(run(2), &[Act::End(Ended::Parked { until_unix_ms: None, class: QueueClass::Retry })]);
    let acts = [Act::End(Ended::Unavailable { retry_ms: 1 }), Act::End(Ended::Terminal)];
    running.workers.will(run(3), &acts);
    (1..4).for_each(|number| running.enqueue(number, QueueClass::Bulk));
    pass(4).await;
    assert_eq!(running.workers.turns_of(run(1)), 1);
    assert_eq!(running.workers.turns_of(run(3)), 2, "tried again");
    assert_eq!(running.handle.snapshot().counts.parked, 1, "who waits for somebody is not kept");
    pass(2).await;
    let turns = running.workers.seen.lock().unwrap().turns.clone();
    assert_eq!(turns.last(), Some(&(run(1), QueueClass::ParkedRelease)));
    // Somebody has acted.
    running.handle.nudge(&tenant("acme"), run(2));
    pass(1).await;
    assert_eq!(running.workers.turns_of(run(2)), 2);
}

#[tokio::test(start_paused = true)]
async fn a_nudge_reaches_the_worker_and_gives_another_turn() {
    let running = start(Limits::of_slots(2), NO_SOURCES);
    let parked = Ended::Parked { until_unix_ms: Some(u64::MAX), class: QueueClass::Retry };
    running.workers.will(run(1), &[Act::WaitsForNudge(parked), Act::End(Ended::Terminal)]);
    running.enqueue(1, QueueClass::Interactive);
    pass(1).await;
    assert_eq!(running.workers.seen.lock().unwrap().now, 1);
    running.handle.nudge(&tenant("other"), run(1));
    pass(1).await;
    assert_eq!(running.workers.seen.lock().unwrap().now, 1, "another tenant's nudge is nobody's");
    assert_eq!(running.handle.snapshot().mismatches, 1);
    running.handle.nudge(&tenant("acme"), run(1));
    pass(1).await;
    assert_eq!(running.workers.turns_of(run(1)), 2, "it may have parked before it saw what was appended");
    assert_eq!(running.handle.snapshot().counts.parked, 0);
}

#[tokio::test(start_paused = true)]
async fn a_crash_harms_its_run_alone_and_is_tried_again_ever_later() {
    let running = start(Limits::of_slots(2), NO_SOURCES);
    running.workers.will(run(1), &[Act::Panics]);
    running.workers.will(run(2), &[Act::End(Ended::Terminal)]);
    running.enqueue(1, QueueClass::Interactive);
    running.enqueue(2, QueueClass::Interactive);
    pass(16).await;
    // At 0, 1, 3, 7 and 15 s.
    assert_eq!(running.workers.turns_of(run(1)), 5);
    assert_eq!(running.workers.turns_of(run(2)), 1);
    let snapshot = running.handle.snapshot();
    assert_eq!((snapshot.turns.crashed, snapshot.counts.running), (5, 0), "no slot is lost");
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_turns_end_and_drops_what_takes_too_long() {
    let running = start(Limits::of_slots(4), NO_SOURCES);
    running.workers.will(run(1), &[Act::Takes(Duration::from_secs(5), Ended::Terminal)]);
    running.workers.will(run(2), &[Act::Takes(Duration::from_secs(500), Ended::Terminal)]);
    running.workers.will(run(3), &[Act::End(Ended::Terminal)]);
    running.enqueue(1, QueueClass::Interactive);
    running.enqueue(2, QueueClass::Interactive);
    pass(1).await;
    running.stop.send(true).unwrap();
    pass(1).await;
    running.enqueue(3, QueueClass::Interactive);
    assert_eq!(running.ended.await.unwrap(), Drained { finished: 1, dropped: 1 });
    let seen = running.workers.seen.lock().unwrap();
    assert_eq!((seen.now, seen.dropped, seen.turns.len()), (0, 1, 2), "nothing begins any more");
}

#[tokio::test(start_paused = true)]
async fn turns_are_told_of_a_stop_and_nothing_is_dropped_that_heeds_it() {
    let running = start(Limits::of_slots(4), NO_SOURCES);
    let left = Ended::Parked { until_unix_ms: Some(running.clock.unix_ms()), class: QueueClass::Interactive };
    running.workers.will(run(1), &[Act::WaitsForStop(left)]);
    running.enqueue(1, QueueClass::Interactive);
    pass(60).await;
    assert_eq!(running.workers.seen.lock().unwrap().now, 1);
    running.stop.send(true).unwrap();
    let began = Instant::now();
    assert_eq!(running.ended.await.unwrap(), Drained { finished: 1, dropped: 0 });
    assert_eq!(began.elapsed().as_secs(), 0);
    assert_eq!(running.workers.turns_of(run(1)), 1, "it is left for the next process");
}

/// Another worker has it: claimed when it lapses where that is told, and looked at again where it is not.
#[tokio::test(start_paused = true)]
async fn a_run_that_another_has_is_not_forgotten() {
    let alone = start(Limits::of_slots(1), NO_SOURCES);
    let ledger = Arc::new(MemoryLedger::shared(&MemoryLedgerStore::default(), RuntimeClock::shared()));
    let claiming = start(Limits::of_slots(1), Sources { open: None, ledger: Some(ledger) });
    for running in [&alone, &claiming] {
        running.workers.will(run(1), &[Act::End(Ended::Fenced), Act::End(Ended::Terminal)]);
        running.enqueue(1, QueueClass::Interactive);
    }
    pass(29).await;
    assert_eq!([&alone, &claiming].map(|running| running.workers.turns_of(run(1))), [1, 1]);
    pass(5).await;
    assert_eq!([&alone, &claiming].map(|running| running.workers.turns_of(run(1))), [2, 1]);
    assert_eq!(claiming.handle.snapshot().counts.parked, 0);
}

/// A projection that a test fills.
#[derive(Debug, Default)]
struct Projection {
    runs: Mutex<BTreeMap<(TenantId, RunId), ActiveRun>>,
    fails: Mutex<usize>,
}

impl Projection {
    fn with(runs: impl IntoIterator<Item = ActiveRun>) -> Arc<Self> {
        let runs = runs.into_iter().map(|run| ((run.tenant.clone(), run.run), run)).collect();
        Arc::new(Self { runs: Mutex::new(runs), fails: Mutex::default() })
    }
}

impl OpenRuns for Projection {
    fn open_runs(
        &self,
        after: Option<(TenantId, RunId)>,
        max: usize,
    ) -> BoxFuture<'static, Result<OpenPage, OpenRunsError>> {
        let mut fails = self.fails.lock().unwrap();
        if *fails > 0 {
            *fails -= 1;
            return Box::pin(async { Err(OpenRunsError("as a test has asked".into())) });
        }
        let runs = self.runs.lock().unwrap();
        let behind = runs.iter().filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
        // Small pages, so that there are some.
        let page: Vec<ActiveRun> = behind.map(|(_, run)| run.clone()).take(max.min(3)).collect();
        let next = (page.len() == max.min(3)).then(|| page.last().map(|run| (run.tenant.clone(), run.run))).flatten();
        Box::pin(async { Ok((page, next)) })
    }
}

fn open(number: u8, status: RunStatus, until_unix_ms: Option<u64>) -> ActiveRun {
    ActiveRun {
        tenant: tenant("acme"),
        run: run(number),
        class: QueueClass::Bulk,
        until_unix_ms,
        deadline_unix_ms: BEGAN_UNIX_MS + 60_000,
        status,
    }
}

#[tokio::test(start_paused = true)]
async fn open_runs_are_found_at_the_start() {
    let projection = Projection::with([
        open(1, RunStatus::Queued, None),
        open(2, RunStatus::Running, None),
        open(3, RunStatus::Parked, Some(BEGAN_UNIX_MS + 30_000)),
        open(4, RunStatus::NeedsAttention, None),
        open(5, RunStatus::Quarantined, None),
        open(6, RunStatus::Parked, Some(BEGAN_UNIX_MS - 5)),
        open(7, RunStatus::Queued, None),
        // Somebody has cancelled these.
        open(8, RunStatus::Quarantined, Some(0)),
        open(9, RunStatus::NeedsAttention, Some(0)),
    ]);
    *projection.fails.lock().unwrap() = 2;
    let sources = Sources { open: Some(projection), ledger: None };
    let running = start(Limits::of_slots(4), sources);
    (1..10).for_each(|number| running.workers.will(run(number), &[Act::End(Ended::Terminal)]));
    let turns = |number| running.workers.turns_of(run(number));
    pass(10).await;
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 9].map(turns), [1, 1, 0, 0, 0, 1, 1, 1, 1]);
    pass(25).await;
    assert_eq!(turns(3), 1, "at its time");
    pass(30).await;
    assert_eq!(turns(4), 1, "its deadline ends it");
    assert_eq!(turns(5), 0, "only an operator lets it go on");
    let snapshot = running.handle.snapshot();
    assert_eq!((snapshot.scans, snapshot.scan_failures), (1, 2));
}

#[derive(Debug, Default)]
struct Told(Mutex<(Vec<StillWaiting>, u64)>);

impl Reminders for Told {
    fn remind(&self, waiting: StillWaiting) {
        self.0.lock().unwrap().0.push(waiting);
    }

    fn remind_of_more(&self, tenants: u64) {
        self.0.lock().unwrap().1 += tenants;
    }
}

/// A notice that went with its process is told by the next one: whoever waits is in the ledger.
#[tokio::test(start_paused = true)]
async fn a_start_tells_again_of_what_waits_for_somebody() {
    let of = |tenant_number: u16, number: u8, status| {
        let name = format!("tenant-{tenant_number:04}");
        ActiveRun { tenant: tenant(&name), ..open(number, status, None) }
    };
    let mut runs = vec![
        of(1, 1, RunStatus::NeedsAttention),
        of(1, 2, RunStatus::Quarantined),
        of(1, 3, RunStatus::NeedsAttention),
        of(2, 4, RunStatus::Queued),
        of(3, 5, RunStatus::Quarantined),
    ];
    runs.extend((10..1_020).map(|tenant| of(tenant, 6, RunStatus::Quarantined)));
    let projection = Projection::with(runs);
    let told = Arc::<Told>::default();
    let reminders: Option<Arc<dyn Reminders>> = Some(Arc::<Told>::clone(&told));
    let settings = Settings { limits: Limits::of_slots(1), reminders, ..Settings::default() };
    let (scheduler, handle) = Scheduler::new(settings, RuntimeClock::shared()).unwrap();
    let workers = Arc::<Workers>::default();
    (1..7).for_each(|number| workers.will(run(number), &[Act::End(Ended::Terminal)]));
    let (_stop, stopped) = watch::channel(false);
    let drive: Arc<dyn Drive> = workers;
    let _ended = tokio::spawn(scheduler.run(drive, Sources { open: Some(projection), ledger: None }, stopped));
    pass(5).await;
    // One more look at all of them tells nobody again.
    handle.0.lock().core.want_scan(0);
    pass(30).await;
    assert!(handle.snapshot().scans > 1);
    let told = told.0.lock().unwrap();
    let waiting = |tenant_number: u16, attention, quarantined, first| StillWaiting {
        tenant: tenant(&format!("tenant-{tenant_number:04}")),
        attention,
        quarantined,
        first: run(first),
    };
    assert_eq!(told.0[..2], [waiting(1, 2, 1, 1), waiting(3, 0, 1, 5)]);
    assert_eq!((told.0.len(), told.1), (1_000, 12));
}

#[tokio::test(start_paused = true)]
async fn what_was_left_out_for_want_of_room_is_found_again() {
    let limits = Limits { queued_max: 8, parked_max: 4, ..Limits::of_slots(1) };
    let projection = Projection::with((0..40).map(|number| open(number, RunStatus::Queued, None)));
    let sources = Sources { open: Some(Arc::<Projection>::clone(&projection)), ledger: None };
    let running = start(limits, sources);
    for number in 0..40 {
        running.workers.will(run(number), &[Act::Takes(Duration::from_millis(50), Ended::Terminal)]);
    }
    for _ in 0..60 {
        pass(1).await;
        // As the index does: a run that is over is not open any more.
        let done: Vec<RunId> = running.workers.seen.lock().unwrap().turns.iter().map(|(run, _)| *run).collect();
        projection.runs.lock().unwrap().retain(|(_, run), _| !done.contains(run));
    }
    assert!(projection.runs.lock().unwrap().is_empty());
    let snapshot = running.handle.snapshot();
    assert!(snapshot.counts.left_out > 0 && snapshot.scans > 1, "{snapshot:?}");
}

/// A run whose worker has gone with its process.
async fn abandoned(ledger: &dyn LedgerStore, run: RunId, lease_until_unix_ms: u64) {
    let commit = |expected, writer, body| Commit {
        tenant: tenant("acme"),
        run,
        expected,
        writer,
        at_unix_ms: BEGAN_UNIX_MS,
        bodies: vec![body],
    };
    let admitted = Body::Admitted(Admitted {
        automation: AutomationId::from_bytes([1; 16]),
        version: Version::MIN,
        cause: Cause::Manual { by: "somebody".into() },
        class: QueueClass::Interactive,
        deadline_unix_ms: u64::MAX,
        input: None,
    });
    ledger.append(commit(0, Writer::Anyone, admitted)).await.unwrap();
    let lease = Lease { lease: 1, owner: "another".into(), until_unix_ms: lease_until_unix_ms };
    ledger.append(commit(1, Writer::Lease(1), Body::Lease(lease))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn runs_that_another_process_let_go_of_are_taken() {
    let ledger = Arc::new(MemoryLedger::shared(&MemoryLedgerStore::default(), RuntimeClock::shared()));
    abandoned(&*ledger, run(1), BEGAN_UNIX_MS + 5000).await;
    let running = start(Limits::of_slots(1), Sources { open: None, ledger: Some(ledger) });
    running.workers.will(run(1), &[Act::Takes(Duration::from_secs(500), Ended::Terminal)]);
    pass(4).await;
    assert_eq!(running.workers.turns_of(run(1)), 0, "its lease holds");
    pass(4).await;
    assert_eq!(running.workers.turns_of(run(1)), 1);
    pass(20).await;
    assert_eq!(running.workers.turns_of(run(1)), 1, "it is under way, however often it is found");
}

/// A run that is parked here and of which somebody has said something elsewhere is claimable, and is looked at.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_parked_here_goes_on_when_the_ledger_says_so() {
    let ledger = Arc::new(MemoryLedger::shared(&MemoryLedgerStore::default(), RuntimeClock::shared()));
    abandoned(&*ledger, run(1), BEGAN_UNIX_MS + 3000).await;
    let running = start(Limits::of_slots(1), Sources { open: None, ledger: Some(ledger) });
    let until_unix_ms = Some(running.clock.unix_ms() + 600_000);
    let parks = Ended::Parked { until_unix_ms, class: QueueClass::ParkedRelease };
    running.workers.will(run(1), &[Act::End(parks), Act::Takes(Duration::from_secs(500), Ended::Terminal)]);
    running.enqueue(1, QueueClass::Interactive);
    pass(2).await;
    assert_eq!((running.workers.turns_of(run(1)), running.handle.snapshot().counts.parked), (1, 1));
    pass(4).await;
    assert_eq!(running.workers.turns_of(run(1)), 2);
    assert_eq!(running.handle.snapshot().claimed, 1);
}

/// One that its worker fails over is not asked all the time, however often it is found.
#[tokio::test(start_paused = true)]
async fn a_run_that_fails_is_not_claimed_all_the_time() {
    let ledger = Arc::new(MemoryLedger::shared(&MemoryLedgerStore::default(), RuntimeClock::shared()));
    abandoned(&*ledger, run(1), BEGAN_UNIX_MS).await;
    let running = start(Limits::of_slots(1), Sources { open: None, ledger: Some(ledger) });
    let fails = Act::End(Ended::Unavailable { retry_ms: 60_000 });
    running.workers.will(run(1), &[fails.clone(), fails.clone(), fails]);
    pass(50).await;
    assert_eq!(running.workers.turns_of(run(1)), 1);
    pass(20).await;
    assert_eq!(running.workers.turns_of(run(1)), 2);
}
