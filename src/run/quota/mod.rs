//! Quota, put together: who counts, who holds, what guards calls beside it, and what of all that outlives the process.
//!
//! ```text
//! calls ──hold──▶ Holder ──asks──▶ Store ──▶ InProcess (journal)      one node
//!   │                ▲               └─────▶ RedisCentre ──▶ Redis    a fleet
//!   │                └───── parks of other nodes ──────┘
//!   └─tell──▶ Keeper (breakers, baselines) ──notes──▶ journal
//! ```
//!
//! It has a runtime of its own, one thread: a call that waits for units waits for this, and neither for a scrape nor for
//! another call. **Nothing here needs Redis to start**: calls are parked until it answers, and `readyz` says why. The
//! journal is needed, as the event log is: without it a start would forget what was used of every daily quota.
//!
//! At the end, when no call is left, what is held is given back, everything that is to be known is written, and the journal
//! is let go of.

mod dial;
mod figures;
mod fleet;
mod journal;
mod keeper;
mod lines;
mod metrics;
mod note;
mod overshoot;
mod redis;
mod store;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{Appliance, Environment, Fault};
use domain::Clock;
use egress::quota::Watcher;
use egress::settings;
use outbound::OperatorDialer;
use outbound::dial::DialSettings;
use outbound::resolve::DnsResolver;
use prometheus_client::registry::Registry;
use ratelimit::breaker::fleet::FleetBreakers;
use ratelimit::quota::holder::{BootClock, Holder};
use ratelimit::quota::redis::{Push, Pushes, RedisCentre};
use ratelimit::quota::{Centre, HolderId, InProcess, Life, OpenError, Why};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use self::figures::{InForce, RETRIES};
use self::fleet::Fleet;
pub(crate) use self::keeper::Guards;
use self::keeper::Keeper;
use self::metrics::Metrics;
use self::overshoot::Overshoot;
use self::store::Store;
use super::health::Alarm;
use super::{RunError, with_causes};

/// For giving back what is held, at the end. What is not given back counts as spent until its window is over.
const CLOSING: Duration = Duration::from_secs(2);
/// For writing everything down, at the end.
const FINISHING: Duration = Duration::from_secs(5);

/// Why there is no quota.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuotaError {
    #[error("{source}; to begin anew, with every window as if nothing of it was used, move the file away")]
    Damaged { source: OpenError },
    #[error(transparent)]
    Journal(OpenError),
    #[error("there is no DNS to look up Redis in: {0}")]
    Dns(String),
    #[error("TLS with Redis: {0}")]
    Tls(String),
    #[error("quota cannot be held by these settings: {0}")]
    Settings(String),
    #[error("cannot start its runtime: {0}")]
    Runtime(std::io::Error),
}

/// What calls have to do with: open, and being seen to.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    /// By which leases are held and the guards are asked.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) holder: Holder,
    /// For who looks at buckets and decides about them: operators.
    pub(crate) centre: Arc<dyn Centre>,
    pub(crate) guards: Guards,
    pub(crate) fleet: Arc<FleetBreakers>,
    /// What is in force, for the next call.
    pub(crate) rules: Arc<InForce>,
    pub(crate) watcher: Arc<dyn Watcher>,
}

/// All of it, from the start to the end.
#[derive(Debug)]
pub(super) struct Quota {
    opened: Opened,
    store: Arc<Store>,
    journal: InProcess,
    keeper: Arc<Keeper>,
    overshoot: Arc<Overshoot>,
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    holding: JoinHandle<()>,
    fleet: Fleet,
}

/// What of `[quota]` takes a look outside of the file: secrets, certificates.
pub(super) fn judge(appliance: &Appliance, path: &Path, environment: &dyn Environment, faults: &mut Vec<Fault>) {
    drop(redis::judge(&appliance.quota, path, environment, faults));
}

impl Quota {
    /// Opens the journal, takes up what is in it, and begins to ask the store.
    pub(super) fn open(
        (path, environment): (&Path, &Arc<dyn Environment>),
        appliance: &Appliance,
        registry: &mut Registry,
    ) -> Result<Self, RunError> {
        let mut faults = Vec::new();
        let parts = redis::judge(&appliance.quota, path, &**environment, &mut faults);
        if config::has_errors(&faults) {
            return Err(RunError::Faults(faults));
        }
        // Leases, and the centre's own time, go on while the machine sleeps.
        let clock: Arc<dyn Clock> = Arc::new(BootClock::default());
        let journal = journal::open(&appliance.tenants.state_directory, &clock, journal::PATIENCE);
        let journal = journal.map_err(QuotaError::journal)?;
        let runtime = runtime().map_err(QuotaError::Runtime)?;
        let id = holder_id()?;
        let holder = Holder::new(figures::holder(&appliance.quota), id, Arc::clone(&clock))
            .map_err(|error| QuotaError::Settings(error.to_string()))?;
        let redis = parts.map(|parts| redis_centre(parts, appliance, &runtime)).transpose()?;
        let redis = redis.map(|(centre, pushes)| {
            runtime.spawn(hear(pushes, holder.clone()));
            centre
        });
        let gate = figures::breaker_rules(&appliance.quota.breaker);
        let fleet = Fleet::start(gate, redis.clone(), id, &clock, &runtime)?;
        let store = Arc::new(match redis {
            None => Store::here(journal.clone(), Arc::clone(&clock)),
            Some(centre) => Store::redis(centre, Arc::clone(&clock)),
        });
        let rules = Arc::new(InForce::new(&appliance.quota, clock.unix_ms()));
        let guards = Guards::new();
        let keeper = Keeper::new(journal.clone(), guards.clone(), Arc::clone(&rules), Arc::clone(&clock));
        let keeper = Arc::new(keeper);
        let centre: Arc<dyn Centre> = Arc::<Store>::clone(&store);
        let watcher: Arc<dyn Watcher> = Arc::<Keeper>::clone(&keeper);
        let breakers = Arc::clone(&fleet.breakers);
        let opened = Opened { clock, holder, centre, guards, fleet: breakers, rules, watcher };
        let quota = Self::begin(opened, (store, journal, keeper, fleet), runtime);
        registry.register_collector(Box::new(quota.metrics()));
        Ok(quota)
    }

    /// Begins to ask, to look and to sweep.
    fn begin(opened: Opened, kept: (Arc<Store>, InProcess, Arc<Keeper>, Fleet), runtime: Runtime) -> Self {
        let (store, journal, keeper, fleet) = kept;
        let (stop, stopped) = oneshot::channel::<()>();
        let (holder, centre) = (opened.holder.clone(), Arc::clone(&opened.centre));
        let holding = runtime.spawn(async move {
            // Whether it was sent or its sender is gone: the end has come.
            holder.run(centre, async { drop(stopped.await) }, CLOSING).await;
        });
        let overshoot = Arc::<Overshoot>::default();
        runtime.spawn(Arc::clone(&store).keep_looking());
        runtime.spawn(Arc::clone(&keeper).keep_sweeping());
        runtime.spawn(keep_sampling(opened.holder.clone(), Arc::clone(&overshoot)));
        Self { opened, store, journal, keeper, overshoot, runtime, stop, holding, fleet }
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            holder: self.opened.holder.clone(),
            store: Arc::clone(&self.store),
            journal: self.journal.clone(),
            keeper: Arc::clone(&self.keeper),
            fleet: Arc::clone(&self.opened.fleet),
        }
    }

    pub(super) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// What can be wrong with it, in words for `readyz`.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        let (store, journal, overshoot) = (Arc::clone(&self.store), self.journal.clone(), Arc::clone(&self.overshoot));
        vec![
            Box::new(move || store.alarm().into_iter().collect()),
            Box::new(move || (journal.life() == Life::Failed).then(journal_failed).into_iter().collect()),
            Box::new(move || overshoot.alarm().into_iter().collect()),
        ]
    }

    /// No call is left: gives back what is held, writes everything down, and lets go of the journal. Takes seconds at most.
    pub(super) fn close(self) {
        let Self { keeper, journal, runtime, stop, holding, fleet, .. } = self;
        drop(stop);
        let ended = runtime.block_on(async {
            fleet.close().await;
            let holding = holding.await;
            tokio::time::timeout(FINISHING, keeper.finish()).await.map(|()| holding)
        });
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!("the holder of quota ended in a fault of ours"),
            Err(_) => tracing::error!("baselines could not all be written in time: the last hour of some is lost"),
        }
        if let Err(error) = journal.hand_over() {
            tracing::error!(%error, "the journal of quota was not handed over: the next start is as after a crash");
        }
        runtime.shutdown_background();
    }
}

impl QuotaError {
    fn journal(error: OpenError) -> Self {
        match error {
            source @ OpenError::Damaged { .. } => Self::Damaged { source },
            error @ (OpenError::Io { .. } | OpenError::InUse { .. } | OpenError::TooLarge { .. }) => {
                Self::Journal(error)
            }
        }
    }
}

impl From<QuotaError> for RunError {
    fn from(error: QuotaError) -> Self {
        Self::Quota(with_causes(&error))
    }
}

fn journal_failed() -> String {
    "quota: its journal cannot be written any more (tenants.state_directory), so nothing is granted by this node's own \
     counting and no open breaker is remembered: see to the disk and restart"
        .to_owned()
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("quota").enable_all().build()
}

/// Drawn anew by every process.
fn holder_id() -> Result<HolderId, RunError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| RunError::Randomness(error.to_string()))?;
    Ok(HolderId(u128::from_le_bytes(random)))
}

fn redis_centre(
    parts: redis::Parts,
    appliance: &Appliance,
    runtime: &Runtime,
) -> Result<(RedisCentre, Pushes), QuotaError> {
    let file = &appliance.egress.dns;
    let system = file.servers_or_system().map_err(QuotaError::Dns)?;
    let (dns, _) = settings::dns(file, &system);
    // Its own: connections to DNS servers belong to the runtime that asks.
    let resolver = DnsResolver::new(&dns).map_err(|error| QuotaError::Dns(error.to_string()))?;
    let patience = DialSettings {
        attempt_timeout: redis::DIAL_LIMIT / 2,
        connect_timeout: redis::DIAL_LIMIT,
        ..DialSettings::default()
    };
    let dial = dial::Through(OperatorDialer::new(Arc::new(resolver), patience));
    let settings =
        redis::settings(parts, &appliance.quota, Arc::new(dial)).map_err(|error| QuotaError::Tls(error.to_string()))?;
    Ok(RedisCentre::new(settings, runtime.handle()))
}

/// Parks and generations of other nodes, as they are said. What is missed is learned with the next answer.
async fn hear(mut pushes: Pushes, holder: Holder) {
    while let Some(push) = pushes.next().await {
        match push {
            // By whom is not said. Nearly always it was a provider; the next answer tells.
            Push::Bucket { application, key, generation, park_ms } => {
                holder.pushed(&application, &key, generation, park_ms, Why::Provider);
            }
            Push::Epoch { application, .. } => holder.missed(Some(&application)),
            Push::Missed { application } => holder.missed(application.as_ref()),
        }
    }
}

async fn keep_sampling(holder: Holder, overshoot: Arc<Overshoot>) {
    loop {
        overshoot.sample(&holder.counters());
        tokio::time::sleep(keeper::SWEEP_EVERY).await;
    }
}
