//! One process of the appliance: admission, scheduler, engine and index, until it is stopped or killed.

use std::sync::Arc;
use std::time::Duration;

use domain::TenantId;
use tidegate_runner::admission::{self, Admission};
use tidegate_runner::engine::Acts;
use tidegate_runner::ids::RunId;
use tidegate_runner::index::{self, IndexSettings, RunIndex};
use tidegate_runner::ledger::{BoxFuture, LedgerStore, RunStatus};
use tidegate_runner::schedule::core::Limits;
use tidegate_runner::schedule::{self, ActiveRun, OpenPage, OpenRuns, OpenRunsError, Queue, Scheduler, Sources};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::world::World;

/// How many processes have the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fleet {
    /// This one alone: what is open is found in the index.
    Alone,
    /// Others too: what they let go of is claimed.
    Shared,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) scheduler: schedule::Handle,
    pub(crate) admission: admission::Handle,
    pub(crate) index: Arc<RunIndex>,
    pub(crate) acts: Acts,
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

/// As the appliance gives the index to the scheduler.
#[derive(Debug)]
struct OpenRunsOf(Arc<RunIndex>);

impl OpenRuns for OpenRunsOf {
    fn open_runs(
        &self,
        after: Option<(TenantId, RunId)>,
        max: usize,
    ) -> BoxFuture<'static, Result<OpenPage, OpenRunsError>> {
        let index = Arc::clone(&self.0);
        Box::pin(async move {
            let page = index.open_runs(after, max).await;
            let (runs, next) = page.map_err(|fault| OpenRunsError(fault.to_string().into()))?;
            Ok((runs.into_iter().map(active).collect(), next))
        })
    }
}

fn active(run: index::ActiveRun) -> ActiveRun {
    let index::ActiveRun { tenant, run, class, status, until_unix_ms, deadline_unix_ms } = run;
    ActiveRun { tenant, run, class, until_unix_ms, deadline_unix_ms, status }
}

impl Process {
    pub(crate) async fn start(world: &World, name: &str, fleet: Fleet) -> Self {
        Self::start_with(world, name, fleet, Limits::of_slots(64)).await
    }

    pub(crate) async fn start_with(world: &World, name: &str, fleet: Fleet, limits: Limits) -> Self {
        let clock = &world.clock;
        let (directory, ledger) = (world.index_directory(name), Arc::clone(&world.ledger));
        let index = RunIndex::open(&directory, IndexSettings::default(), ledger, Arc::clone(clock)).await.unwrap();
        let settings = schedule::Settings { limits, ..schedule::Settings::default() };
        let (scheduler, handle) = Scheduler::new(settings, Arc::clone(clock)).unwrap();
        let queue: Arc<dyn Queue> = Arc::new(handle.clone());
        let parts = admission::Parts {
            log: Arc::clone(&world.log) as Arc<dyn eventlog::EventLog>,
            ledger: Arc::clone(&world.ledger),
            triggers: Arc::clone(&world.triggers),
            queue: Arc::clone(&queue),
            clock: Arc::clone(clock),
            letters: admission::Letters::in_memory(),
        };
        let (admission, admission_handle) = Admission::new(parts, admission::Settings::default());
        let claimed: Option<Arc<dyn LedgerStore>> = (fleet == Fleet::Shared).then(|| Arc::clone(&world.ledger));
        let open = (fleet == Fleet::Alone).then(|| Arc::new(OpenRunsOf(Arc::clone(&index))) as Arc<dyn OpenRuns>);
        let engine = world.engine(name);
        let (stop, stopped) = watch::channel(false);
        let (until, seen) = (stopped.clone(), Arc::clone(&index));
        let tasks = [
            tokio::spawn(admission.run(stopped)),
            tokio::spawn(async move {
                seen.caught_up(Duration::from_secs(30)).await;
                scheduler.run(engine, Sources { open, ledger: claimed }, until).await;
            }),
        ];
        Self { scheduler: handle, admission: admission_handle, index, acts: world.acts_with(queue), stop, tasks }
    }

    /// As by `kill -9`: whatever was under way is gone.
    pub(crate) async fn kill(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            drop(task.await);
        }
        self.index.close().await;
    }

    pub(crate) async fn stop(self) {
        self.stop.send(true).unwrap();
        for task in self.tasks {
            task.await.unwrap();
        }
        self.index.close().await;
    }

    /// Waits for a run to stand so.
    pub(crate) async fn once(&self, world: &World, run: RunId, status: RunStatus) {
        for _ in 0..10_000 {
            let records = world.records(run).await;
            let state = tidegate_runner::engine::RunState::fold(&records);
            if state.is_some_and(|state| state.status() == status) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never is {status:?}: {:#?}", world.records(run).await);
    }
}

/// Waits for something to hold.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never comes to be: {what}");
}
