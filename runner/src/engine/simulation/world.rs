//! One run from its admission to its end, through whatever was drawn.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use domain::{Clock, EndpointId};
use tokio::sync::watch;

use super::super::acts::{ActError, Acts, Duplicate};
use super::super::state::RunState;
use super::super::testing::{
    Graph, Tables, TestConnectors, VirtualClock, automation_id, connection, event, lock, tenant,
};
use super::super::worker::{Engine, Ports, Settings};
use super::choices::Choices;
use super::invariants::{Watch, told, witnessed};
use super::ledger::{Chaotic, Deafness};
use super::ports::Flaky;
use super::provider::Provider;
use crate::automation::Automation;
use crate::ids::{RunId, StepId, Version};
use crate::ledger::memory::{MemoryLedger, MemoryLedgerStore};
use crate::ledger::{
    Admitted, AppendError, Body, Cause, Choice, Commit, LedgerStore, ParkReason, QueueClass, Record, RunStatus,
    StepResult, Writer,
};
use crate::schedule::{Drive, Ended, Turn};

/// Turns after which a run that has not ended is taken for stuck.
const TURNS_MAX: usize = 400;

#[derive(Debug, Default)]
pub(super) struct Scenario {
    pub(super) bytes: Vec<u8>,
    /// What the automation looks like; none: it is drawn.
    pub(super) shape: Option<usize>,
    /// How the first call goes; none: it is drawn.
    pub(super) first_call: Option<usize>,
    /// The first worker is dropped at this poll, and nothing else is drawn of crashes.
    pub(super) crash_first_at: Option<u32>,
    /// The first worker is told at this poll that its process stops.
    pub(super) stop_first_at: Option<u32>,
    /// From this append on the ledger answers nobody, for a while: the first is durable all the same.
    pub(super) deaf_from: Option<u32>,
}

struct World {
    choices: Arc<Choices>,
    clock: Arc<VirtualClock>,
    /// The same ledger without faults.
    plain: Arc<MemoryLedger>,
    deaf: Arc<Chaotic>,
    engine: Engine,
    acts: Acts,
    watch: Arc<Watch>,
    provider: Arc<Provider>,
    nudges: watch::Sender<u64>,
    stopping: watch::Sender<bool>,
    run: RunId,
    is_shared: bool,
    /// There is one process, which works on a run with one worker at a time.
    is_alone: bool,
    /// The first worker was dropped, or told to stop, where it was to be.
    has_happened: bool,
    /// So many workers more are lost soon after they have begun: something about the run kills them.
    cursed: u32,
}

pub(super) const SHAPES: usize = 6;

fn shape(at: usize) -> Automation {
    let graph = Graph::default();
    match at {
        0 => graph.call("a", &[], "unsafe").call("b", &["a"], "idempotent").call("c", &["b"], "checkable"),
        1 => graph.call("a", &[], "unsafe").call("b", &[], "checkable").call("c", &[], "idempotent").call(
            "d",
            &["a", "b", "c"],
            "unsafe",
        ),
        2 => graph
            .call("a", &[], "checkable")
            .branch("which", &["a"], &[("yes", "steps.a.output == 'done'")])
            .call("b", &["which.yes"], "unsafe")
            .call("c", &["which.otherwise"], "idempotent")
            .call("d", &["b", "c"], "unsafe"),
        3 => graph
            .delay("wait", &[], Duration::from_secs(40))
            .call("a", &["wait"], "unsafe")
            .delay("more", &["a"], Duration::from_millis(20))
            .call("b", &["more"], "checkable"),
        4 => graph
            .call("a", &[], "unsafe")
            .with(|node| node.continues_on_failure = true)
            .transform("t", &["a"], &serde_json::json!({ "was": "${steps.a.status}" }))
            .call("b", &["t"], "idempotent")
            .with(|node| node.retry.attempts_max = 2),
        _ => graph
            .call("a", &[], "idempotent")
            .call("b", &["a"], "unsafe")
            .call("c", &["a"], "unsafe")
            .with(|node| node.continues_on_failure = true),
    }
    .build()
}

/// Plays it. Says whether the first worker was dropped where it was to be.
pub(super) async fn play(scenario: &Scenario) -> Result<bool, String> {
    let mut world = World::new(scenario);
    world.play(scenario).await?;
    Ok(world.has_happened)
}

/// Plays it, and tells how it ended and whether what was to happen did. There is no doubt of anything: nothing of it is a
/// provider's doing, and no process was lost.
pub(super) async fn play_without_doubt(scenario: &Scenario) -> Result<bool, String> {
    let mut world = World::new(scenario);
    world.play(scenario).await?;
    let records = world.plain.records();
    let has_doubt = |record: &Record| {
        matches!(&record.body, Body::Outcome(outcome) | Body::LateOutcome(outcome)
            if matches!(outcome.result, StepResult::Ambiguous(_)))
    };
    if let Some(record) = records.iter().find(|record| has_doubt(record)) {
        return Err(format!("record {} is a doubt{}", record.seq, told(&records)));
    }
    let status = world.state().status();
    if status != RunStatus::Succeeded {
        return Err(format!("it ended {status:?}{}", told(&records)));
    }
    Ok(world.has_happened || world.ledger_was_deaf())
}

pub(super) async fn witness(scenario: &Scenario) -> Result<BTreeSet<&'static str>, String> {
    let mut world = World::new(scenario);
    world.play(scenario).await?;
    Ok(witnessed(&world.plain.records()))
}

impl World {
    fn new(scenario: &Scenario) -> Self {
        let choices = Arc::new(Choices::new(scenario.bytes.clone()));
        let clock = VirtualClock::new();
        let drawn = choices.one_of(SHAPES, 42);
        let automation = Arc::new(shape(scenario.shape.unwrap_or(drawn)));
        let store = MemoryLedgerStore::default();
        let is_shared = choices.one_of(2, 127) == 1;
        let is_alone = !is_shared && choices.one_of(2, 127) == 1;
        let plain = Arc::new(if is_shared {
            MemoryLedger::shared(&store, Arc::<VirtualClock>::clone(&clock))
        } else {
            MemoryLedger::of_one_process(&store)
        });
        let deafness = std::sync::Mutex::new(Deafness { left: scenario.deaf_from, until: None });
        let ledger = Chaotic { inner: Arc::clone(&plain), choices: Arc::clone(&choices), deafness };
        let ledger = Arc::new(ledger);
        let tables = Arc::new(Tables::default());
        *lock(&tables.automation) = Some(Arc::clone(&automation));
        let watch = Arc::new(Watch { ledger: Arc::clone(&plain), automation, violations: std::sync::Mutex::default() });
        let provider = Arc::new(Provider {
            clock: Arc::clone(&clock),
            choices: Arc::clone(&choices),
            effects: Arc::default(),
            watch: Arc::clone(&watch),
            forced: std::sync::Mutex::new(scenario.first_call),
        });
        let run = RunId::of_event(&tenant(), automation_id(), Version::MIN, event());
        let flaky = Arc::new(Flaky { inner: Arc::clone(&tables), choices: Arc::clone(&choices) });
        let ports = Ports {
            clock: Arc::<VirtualClock>::clone(&clock),
            ledger: Arc::<Chaotic>::clone(&ledger),
            definitions: Arc::<Flaky>::clone(&flaky),
            automations: Arc::<Flaky>::clone(&flaky),
            events: Arc::<Flaky>::clone(&flaky),
            payloads: Arc::<Flaky>::clone(&flaky),
            connectors: Arc::new(TestConnectors),
            caller: Arc::<Provider>::clone(&provider),
            authority: flaky,
            notices: Arc::<Tables>::clone(&tables),
        };
        let acts = Acts {
            clock: Arc::<VirtualClock>::clone(&clock),
            ledger: Arc::<MemoryLedger>::clone(&plain),
            definitions: Arc::<Tables>::clone(&tables),
            automations: Arc::<Tables>::clone(&tables),
            payloads: Arc::<Tables>::clone(&tables),
            queue: tables,
        };
        let engine = Engine::new(ports, Settings { workers_lost_max: 3, is_alone, ..Settings::new("node") });
        let (nudges, stopping) = (watch::Sender::new(0), watch::Sender::new(false));
        Self {
            choices,
            clock,
            plain,
            deaf: ledger,
            engine,
            acts,
            watch,
            provider,
            nudges,
            stopping,
            run,
            is_shared,
            is_alone,
            has_happened: false,
            cursed: 0,
        }
    }

    async fn play(&mut self, scenario: &Scenario) -> Result<(), String> {
        self.admit().await?;
        let (mut crash_at, mut stop_at) = (scenario.crash_first_at, scenario.stop_first_at);
        for _ in 0..TURNS_MAX {
            let state = self.state();
            if state.terminal.is_some() {
                if self.choices.one_of(2, 220) == 0 {
                    break;
                }
                self.rerun(&state).await;
            }
            self.people(&state).await?;
            let was_to_crash = crash_at.is_some();
            self.curse();
            // Soon after it has taken its lease: what it asks of others before takes a poll each.
            let cursed = || (self.cursed > 0).then(|| 8 + u32::from(self.choices.byte()) % 8);
            crash_at = crash_at.or_else(cursed);
            let stops = stop_at.is_some();
            let ended = self.turn(crash_at.take(), stop_at.take()).await;
            self.has_happened |= stops && *self.stopping.borrow();
            self.has_happened |= was_to_crash && ended.is_none();
            self.after(ended.as_ref())?;
            self.sleep_until_due().await;
        }
        // What is late comes now.
        tokio::time::sleep(Duration::from_secs(200)).await;
        let effects = lock(&self.provider.effects).clone();
        self.watch.at_the_end(&effects).map(drop).map_err(|why| format!("{why}{}", told(&self.plain.records())))
    }

    fn ledger_was_deaf(&self) -> bool {
        self.deaf.was_deaf()
    }

    fn state(&self) -> RunState {
        RunState::fold(&self.plain.records()).unwrap()
    }

    /// The event is read once, or several times.
    async fn admit(&self) -> Result<(), String> {
        let now = self.clock.unix_ms();
        for time in 0..=self.choices.one_of(3, 127) {
            let admitted = Admitted {
                automation: automation_id(),
                version: Version::MIN,
                cause: Cause::Event { event: event(), endpoint: EndpointId::parse("wh_1").unwrap() },
                class: QueueClass::Interactive,
                deadline_unix_ms: now + 7_200_000,
                input: None,
            };
            let commit = Commit {
                tenant: tenant(),
                run: self.run,
                expected: 0,
                writer: Writer::Anyone,
                at_unix_ms: now,
                bodies: vec![Body::Admitted(admitted)],
            };
            match self.plain.append(commit).await {
                Ok(_) if time == 0 => {}
                Err(AppendError::Conflict { .. }) if time > 0 => {}
                other => return Err(format!("admission {time} came to {other:?}")),
            }
        }
        Ok(())
    }

    async fn rerun(&self, state: &RunState) {
        let calls: Vec<&StepId> = state.steps.keys().collect();
        let Some(call) = calls.get(self.choices.one_of(calls.len(), 60)) else { return };
        // Steps that make no call, and those that were skipped, refuse.
        let _refused = self.acts.rerun(&tenant(), self.run, call, None, Duplicate::Accepted, "a").await;
    }

    /// What somebody has to do is done, and what somebody may do is drawn.
    async fn people(&self, state: &RunState) -> Result<(), String> {
        let waits = state.parked.as_ref().map(|parked| parked.reason);
        match (waits, state.status()) {
            (_, RunStatus::Quarantined) => {
                self.acts.release(&tenant(), self.run, "operator").await.map_err(|error| unexpected(&error))?;
            }
            (Some(ParkReason::Ambiguous), _) => self.choose(state).await?,
            (Some(ParkReason::NeedsReconnect), _) => {
                let released = self.acts.reconnected(&tenant(), &connection(), &[self.run], "owner").await;
                released.map_err(|error| unexpected(&error))?;
            }
            _ => {}
        }
        let drawn = match self.choices.one_of(4, 215) {
            1 => self.acts.cancel(&tenant(), self.run, "somebody").await,
            2 => self.acts.release(&tenant(), self.run, "somebody").await,
            3 => {
                // Leases lapse by the wall clock; what a step does to a shared ledger is its own matter.
                let back = if self.is_shared { 0 } else { 30_000 };
                self.clock.step(i64::try_from(self.choices.millis()).unwrap() - back);
                Ok(())
            }
            _ => Ok(()),
        };
        match drawn {
            Err(ActError::Unavailable(why)) => Err(why.into()),
            _ => Ok(()),
        }
    }

    async fn choose(&self, state: &RunState) -> Result<(), String> {
        let choice = match self.choices.one_of(3, 100) {
            0 => Choice::ContinueAcceptGap,
            1 => Choice::RetryAcceptDuplicate,
            // Nobody comes before the deadline.
            _ => return Ok(()),
        };
        for (id, step) in &state.steps {
            if step.said != Some(ParkReason::Ambiguous) {
                continue;
            }
            match self.acts.resolve(&tenant(), self.run, id, choice, "author").await {
                Ok(()) | Err(ActError::NothingToChoose) => {}
                Err(error) => return Err(format!("{id} waits for a choice, and it is refused: {error}")),
            }
        }
        Ok(())
    }

    fn curse(&mut self) {
        if self.cursed > 0 {
            self.cursed -= 1;
        } else if self.choices.one_of(2, 240) == 1 {
            self.cursed = 5;
        }
    }

    /// One turn, which may be lost, and meanwhile another worker or a cancellation.
    async fn turn(&self, crash_at: Option<u32>, stop_at: Option<u32>) -> Option<Ended> {
        let drawn =
            (crash_at.is_none() && self.choices.one_of(2, 150) == 1).then(|| 1 + u32::from(self.choices.byte()) / 4);
        self.stopping.send_replace(false);
        let drive = self.engine.drive(self.a_turn());
        let first = Lost { drive, polls_left: crash_at.or(drawn), stop_in: stop_at, stopping: &self.stopping };
        let meanwhile = self.choices.one_of(4, 205);
        let after = Duration::from_millis(self.choices.millis());
        let beside = async {
            match meanwhile {
                1 => {
                    tokio::time::sleep(after).await;
                    let _over = self.acts.cancel(&tenant(), self.run, "somebody").await;
                    self.nudges.send_modify(|nudge| *nudge += 1);
                    None
                }
                2 if !self.is_alone => {
                    tokio::time::sleep(after).await;
                    Some(self.engine.drive(self.a_turn()).await)
                }
                3 => {
                    tokio::time::sleep(after).await;
                    self.stopping.send_replace(true);
                    None
                }
                _ => None,
            }
        };
        let mut beside = pin!(beside);
        let (ended, _) = tokio::join!(first, &mut beside);
        ended
    }

    fn a_turn(&self) -> Turn {
        let (nudged, stopping) = (self.nudges.subscribe(), self.stopping.subscribe());
        Turn { tenant: tenant(), run: self.run, class: QueueClass::Interactive, nudged, stopping }
    }

    fn after(&self, ended: Option<&Ended>) -> Result<(), String> {
        let state = self.state();
        match ended {
            Some(Ended::Terminal) if state.terminal.is_none() => Err(format!("it says it is over: {state:?}")),
            Some(Ended::Parked { .. }) if state.parked.is_none() && state.quarantined.is_none() => {
                // Another worker may have taken it in the meantime, or somebody may have acted.
                let is_another = state.is_worked_on || state.terminal.is_some() || state.status() == RunStatus::Queued;
                if is_another { Ok(()) } else { Err(format!("it says it is parked: {state:?}")) }
            }
            _ => Ok(()),
        }
    }

    /// Until the run can go on, or a lost worker's lease lapses; sometimes a little sooner.
    async fn sleep_until_due(&self) {
        let state = self.state();
        let wait = match &state.parked {
            Some(parked) => parked.until_unix_ms.unwrap_or(0).saturating_sub(self.clock.unix_ms()),
            None if state.terminal.is_some() || state.quarantined.is_some() => 0,
            None if self.is_shared && state.is_worked_on => 31_000,
            None => 10,
        };
        let needs_somebody = state.status() == RunStatus::NeedsAttention && !self.nobody_comes(&state);
        let wait = if needs_somebody { wait.min(1_000) } else { wait };
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    /// Whoever has to choose is not always there: then the deadline comes.
    fn nobody_comes(&self, state: &RunState) -> bool {
        let is_ambiguous = state.parked.as_ref().is_some_and(|parked| parked.reason == ParkReason::Ambiguous);
        is_ambiguous && self.choices.one_of(4, 200) == 3
    }
}

fn unexpected(error: &ActError) -> String {
    format!("what has to be possible is refused: {error}")
}

/// A worker that is lost at a poll.
struct Lost<'a, F> {
    drive: F,
    polls_left: Option<u32>,
    /// Its process stops at this one.
    stop_in: Option<u32>,
    stopping: &'a watch::Sender<bool>,
}

impl<F: Future + Unpin> Future for Lost<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(left) = &mut self.polls_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Poll::Ready(None);
            }
        }
        if let Some(left) = &mut self.stop_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.stopping.send_replace(true);
            }
        }
        Pin::new(&mut self.drive).poll(context).map(Some)
    }
}
