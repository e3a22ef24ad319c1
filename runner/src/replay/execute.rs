//! Beginning the runs of a plan, as fast as there is room for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, TenantId};
use eventlog::EventLog;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Semaphore, TryAcquireError};
use tokio::task::{AbortHandle, JoinSet};

use super::plan::{Made, Plan, Planner, Refused, ReplayError, run_of};
use super::select::{Item, Selection};
use super::{History, Pace};
use crate::admission::{Append, NewRun, Trigger, Triggers, append};
use crate::automation::DefinitionStore;
use crate::ledger::{AppendError, Cause, LedgerStore, QueueClass};
use crate::schedule::Queue;

/// Appends that are under way at a time, of one replay.
const UNDER_WAY: usize = 32;

/// Replays whose progress is remembered when they are over.
const REMEMBERED: usize = 256;

/// Longest id, in bytes.
const ID_BYTES_MAX: usize = 64;

/// Bounds of replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Events that one plan goes through, and runs that it may come to.
    pub events_max: u64,
    /// Plans that are made at a time, of all tenants.
    pub plans_max: usize,
    /// Replays under way at a time, of all tenants; of one tenant there is one.
    pub replays_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { events_max: 100_000, plans_max: 2, replays_max: 16 }
    }
}

/// What replays stand on.
#[derive(Debug, Clone)]
pub struct Parts {
    pub log: Arc<dyn EventLog>,
    pub ledger: Arc<dyn LedgerStore>,
    pub definitions: Arc<dyn DefinitionStore>,
    pub triggers: Arc<Triggers>,
    pub history: Arc<dyn History>,
    pub queue: Arc<dyn Queue>,
    pub pace: Arc<dyn Pace>,
    pub clock: Arc<dyn Clock>,
}

/// What to execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// As it was given by [`Replays::plan`].
    pub plan: Plan,
    /// Names the replay: 1 to 64 letters, digits, `-` and `_`. The same one again adds nothing that is there.
    pub id: Box<str>,
    /// So many runs may do again what was done already. The plan says of how many that is true.
    pub accepted_duplicates: u64,
}

/// How far a replay is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub tenant: TenantId,
    pub id: Box<str>,
    pub runs: u64,
    pub begun: u64,
    /// They were there: it is executed again.
    pub already: u64,
    pub refused: u64,
    pub state: ReplayState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayState {
    UnderWay,
    Done,
    /// Somebody has stopped it. Executing it again goes on.
    Stopped,
}

/// Plans and executes replays.
#[derive(Debug)]
pub struct Replays {
    planner: Planner,
    queue: Arc<dyn Queue>,
    pace: Arc<dyn Pace>,
    clock: Arc<dyn Clock>,
    plans: Semaphore,
    under_way_max: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    progress: BTreeMap<(TenantId, Box<str>), Progress>,
    /// Those that are over, the oldest first.
    over: VecDeque<(TenantId, Box<str>)>,
    under_way: BTreeMap<TenantId, (Box<str>, AbortHandle)>,
    /// Ends them with this.
    tasks: JoinSet<()>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replays {
    pub fn new(parts: Parts, settings: Settings) -> Self {
        let Parts { log, ledger, definitions, triggers, history, queue, pace, clock } = parts;
        Self {
            planner: Planner { log, ledger, definitions, triggers, history, max: settings.events_max },
            queue,
            pace,
            clock,
            plans: Semaphore::new(settings.plans_max.max(1)),
            under_way_max: settings.replays_max.max(1),
            state: Arc::default(),
        }
    }

    /// Counts what a replay of this would do, and does nothing. Its end is at most now.
    pub async fn plan(&self, selection: Selection) -> Result<Plan, ReplayError> {
        let _one_of_few = self.plans.try_acquire().map_err(busy)?;
        let until_unix_ms = selection.until_unix_ms.min(self.clock.unix_ms());
        let selection = Selection { until_unix_ms, ..selection };
        let targets = self.planner.targets(&selection).await?;
        Ok(self.planner.make(selection, targets, None).await?.plan)
    }

    /// Begins the plan's runs, in the background. What may be refused is known when it returns.
    pub async fn execute(&self, order: Order) -> Result<Progress, ReplayError> {
        let Order { plan, id, accepted_duplicates } = order;
        if !is_id(&id) {
            return Err(Refused::Id.into());
        }
        let made = {
            let _one_of_few = self.plans.try_acquire().map_err(busy)?;
            self.planner.make(plan.selection, plan.targets, Some(&id)).await?
        };
        if made.plan.digest != plan.digest {
            return Err(Refused::Changed.into());
        }
        let may_duplicate = made.plan.may_duplicate;
        if may_duplicate > accepted_duplicates {
            return Err(Refused::Duplicates { may_duplicate, accepted: accepted_duplicates }.into());
        }
        self.begin(made, id)
    }

    /// How far it is, if it was executed in this process and is not forgotten.
    pub fn progress(&self, tenant: &TenantId, id: &str) -> Option<Progress> {
        locked(&self.state).progress.get(&(tenant.clone(), id.into())).cloned()
    }

    /// Those of a tenant that are remembered, by id.
    pub fn list(&self, tenant: &TenantId) -> Vec<Progress> {
        locked(&self.state).progress.values().filter(|progress| progress.tenant == *tenant).cloned().collect()
    }

    /// Begins no more of its runs; says whether it was under way. What is begun goes on.
    pub fn stop(&self, tenant: &TenantId, id: &str) -> bool {
        let mut state = locked(&self.state);
        let is_it = state.under_way.get(tenant).is_some_and(|(of, _)| **of == *id);
        if is_it && let Some((id, task)) = state.under_way.remove(tenant) {
            task.abort();
            state.end(tenant.clone(), id, ReplayState::Stopped);
        }
        is_it
    }

    /// Stops all of them: the process ends. Executing them again goes on.
    pub async fn shutdown(&self) {
        let mut tasks = {
            let mut state = locked(&self.state);
            for (tenant, (id, _)) in std::mem::take(&mut state.under_way) {
                state.end(tenant, id, ReplayState::Stopped);
            }
            std::mem::take(&mut state.tasks)
        };
        tasks.shutdown().await;
    }

    fn begin(&self, made: Made, id: Box<str>) -> Result<Progress, ReplayError> {
        let tenant = made.plan.selection.tenant.clone();
        let mut state = locked(&self.state);
        while state.tasks.try_join_next().is_some() {}
        if state.under_way.len() >= self.under_way_max || state.under_way.contains_key(&tenant) {
            return Err(Refused::Busy.into());
        }
        let key = (tenant.clone(), id.clone());
        let progress = Progress {
            tenant: tenant.clone(),
            id: id.clone(),
            runs: made.plan.runs,
            begun: 0,
            already: 0,
            refused: 0,
            state: ReplayState::UnderWay,
        };
        state.over.retain(|over| *over != key);
        state.progress.insert(key, progress.clone());
        let execution = Execution {
            made,
            id: id.clone(),
            ledger: Arc::clone(&self.planner.ledger),
            queue: Arc::clone(&self.queue),
            pace: Arc::clone(&self.pace),
            clock: Arc::clone(&self.clock),
            state: Arc::clone(&self.state),
        };
        tracing::info!(%tenant, %id, runs = progress.runs, "a replay begins");
        let task = state.tasks.spawn(execution.run());
        state.under_way.insert(tenant, (id, task));
        Ok(progress)
    }
}

/// Whoever forgets to shut down stops them all the same.
impl Drop for Replays {
    fn drop(&mut self) {
        locked(&self.state).tasks.abort_all();
    }
}

impl State {
    fn end(&mut self, tenant: TenantId, id: Box<str>, how: ReplayState) {
        let key = (tenant, id);
        if let Some(progress) = self.progress.get_mut(&key) {
            progress.state = how;
            self.over.push_back(key);
        }
        while self.over.len() > REMEMBERED {
            if let Some(oldest) = self.over.pop_front() {
                self.progress.remove(&oldest);
            }
        }
    }
}

/// One replay under way.
struct Execution {
    made: Made,
    id: Box<str>,
    ledger: Arc<dyn LedgerStore>,
    queue: Arc<dyn Queue>,
    pace: Arc<dyn Pace>,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

impl Execution {
    async fn run(self) {
        let tenant = &self.made.plan.selection.tenant;
        for some in self.made.items.chunks(UNDER_WAY) {
            self.wait_for_room(tenant).await;
            let mut under_way = FuturesUnordered::new();
            for item in some {
                under_way.push(self.append(item));
            }
            while let Some(append) = under_way.next().await {
                self.count(append);
            }
        }
        let mut state = locked(&self.state);
        state.under_way.remove(tenant);
        state.end(tenant.clone(), self.id.clone(), ReplayState::Done);
        drop(state);
        tracing::info!(%tenant, id = %self.id, "a replay has begun all of its runs");
    }

    async fn wait_for_room(&self, tenant: &TenantId) {
        const PERIOD: Duration = Duration::from_millis(50);
        while !self.pace.has_room(tenant) {
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn count(&self, append: Append) {
        let key = (self.made.plan.selection.tenant.clone(), self.id.clone());
        if let Some(progress) = locked(&self.state).progress.get_mut(&key) {
            match append {
                Append::New => progress.begun += 1,
                Append::Already => progress.already += 1,
                Append::Refused => progress.refused += 1,
            }
        }
    }

    /// Until the ledger has said one thing or the other.
    async fn append(&self, item: &Item) -> Append {
        const FIRST: Duration = Duration::from_millis(100);
        const LONGEST: Duration = Duration::from_secs(5);
        let mut delay = FIRST;
        loop {
            match self.try_append(item).await {
                Ok(append) => return append,
                Err(fault) => {
                    tracing::warn!(id = %self.id, %fault, "a run of a replay cannot be admitted for the moment");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(LONGEST);
                }
            }
        }
    }

    async fn try_append(&self, item: &Item) -> Result<Append, AppendError> {
        let tenant = &self.made.plan.selection.tenant;
        let target = self.made.plan.targets[item.target as usize];
        let trigger: &Trigger = &self.made.triggers[item.target as usize];
        let cause = Cause::Replay { event: item.event, endpoint: item.endpoint.clone(), replay: self.id.clone() };
        let run = run_of(tenant, target, &self.id, item.event);
        let new = NewRun { tenant, run, trigger, cause, class: QueueClass::Bulk };
        append(&*self.ledger, &*self.queue, &*self.clock, new).await
    }
}

fn is_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_plain)
}

fn busy(_: TryAcquireError) -> ReplayError {
    Refused::Busy.into()
}
