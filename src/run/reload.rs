//! From files to a new snapshot, while everything runs.
//!
//! The appliance's file is one unit: it is good, or the old one stays. Each tenant's file is a unit of its own: a
//! faulty one keeps that tenant's last good version and touches nobody else. A reload drops no request and resets no
//! bucket, and it never makes the node unready.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Appliance, Both, Environment, Fault, TenantFiles, has_errors};
use domain::Clock;
use egress::compile::{Compiled, TenantOut};
use gateway::endpoint::TenantEndpoints;
use gateway::scheme::Presets;
use gateway::snapshot::Snapshot;

use tokio::sync::oneshot;

use super::health::Health;
use super::metrics::ConfigMetrics;
use super::runner::{self, Accepted};
use super::way_out::{Judged, Loader};

/// What a reload did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reloaded {
    /// Everything that is wrong, warnings among it. With errors, something is served in its last good version.
    pub(crate) faults: Vec<Fault>,
    pub(crate) tenants: usize,
    pub(crate) endpoints: usize,
    /// Tenants whose file changed and was taken.
    pub(crate) changed: usize,
    /// Keys of the appliance's file that wait for a restart.
    pub(crate) restart_needed: Vec<String>,
    pub(crate) took: Duration,
}

#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) path: PathBuf,
    pub(crate) environment: Arc<dyn Environment>,
    /// What the process was started with: listeners, the log and whatever else a reload cannot change.
    pub(crate) started: Appliance,
    pub(crate) presets: Presets,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: ConfigMetrics,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    /// The other role's; none where this node does not have it.
    pub(crate) way_out: Option<Arc<Loader>>,
    pub(crate) runner: Option<Arc<runner::Loader>>,
    /// One reload at a time.
    pub(crate) state: Mutex<State>,
    pub(crate) again: Again,
    pub(crate) retiring: Retiring,
}

/// When to look again though nobody says that anything changed.
#[derive(Debug, Default)]
pub(crate) struct Again {
    told: tokio::sync::Notify,
    when: Mutex<When>,
}

#[derive(Debug, Default)]
struct When {
    pause: Duration,
    /// Loads in a row that could not read something.
    failed: u32,
}

/// Until what could not be read is read again, the first time; then twice as long each time.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// And no longer: a change waits a minute at most once it can be read, and a look a minute costs little.
const PAUSE_MAX: Duration = Duration::from_mins(1);

impl Again {
    /// `missing`: a tenant's file is; it is removed by the next look, if it still is. `unread`: something could not be
    /// read for a reason that passes.
    fn needed(&self, missing: bool, unread: bool) {
        let mut when = self.when.lock().unwrap_or_else(PoisonError::into_inner);
        when.failed = if unread { when.failed.saturating_add(1) } else { 0 };
        let retry = unread.then(|| PAUSE_MIN.saturating_mul(1 << (when.failed - 1).min(16)).min(PAUSE_MAX));
        if let Some(pause) = missing.then_some(config::ABSENCE).into_iter().chain(retry).min() {
            when.pause = pause;
            self.told.notify_one();
        }
    }

    /// A reload did not come to an end: as where nothing could be read.
    pub(crate) fn failed(&self) {
        self.needed(false, true);
    }

    fn pause(&self) -> Duration {
        self.when.lock().unwrap_or_else(PoisonError::into_inner).pause
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) files: TenantFiles<Both<TenantEndpoints, TenantOut>>,
    /// What of `appliance` is judged for calls; none where no call goes out here.
    pub(crate) compiled: Option<Compiled>,
    /// The same for runs.
    pub(crate) accepted: Option<Accepted>,
    /// What is in force: what the process was started with, and the live keys of the file since.
    pub(crate) appliance: Appliance,
}

/// How much a reload gives way to deliveries: where both want every CPU, it gets about a tenth of one.
const NICENESS: i32 = 10;

/// The allocator gives back what has been free for a second, and looks when a thread ends.
const LINGER: Duration = Duration::from_millis(1_100);

impl Reloader {
    /// The first load, for which everybody waits; none where it ended in a fault of ours.
    pub(crate) fn load(self: &Arc<Self>, health: &Arc<Health>) -> Option<Reloaded> {
        self.on_its_own_thread(health, 0).blocking_recv().ok()
    }

    /// Reloads beside the accept path, below its priority; none where it ended in a fault of ours.
    pub(crate) async fn reload_beside(self: &Arc<Self>, health: &Arc<Health>) -> Option<Reloaded> {
        self.on_its_own_thread(health, NICENESS).await.ok()
    }

    /// A thread that ends gives back what it needed for its work: for a hundred thousand files more than what stays.
    fn on_its_own_thread(self: &Arc<Self>, health: &Arc<Health>, niceness: i32) -> oneshot::Receiver<Reloaded> {
        let (done, reloaded) = oneshot::channel();
        let (reloader, health) = (Arc::clone(self), Arc::clone(health));
        let body = move || {
            // Everybody may lower a priority: only a sandbox can refuse it, and then the reload is felt.
            if let Err(error) = rustix::process::nice(niceness) {
                tracing::debug!(%error, "the reload keeps its priority");
            }
            let (reloaded, old) = reloader.reload(&health);
            // Whoever asked may be gone; what was loaded is in force. Nobody waits for what was: the next change least.
            drop(done.send(reloaded));
            reloader.retiring.retire(&old);
            drop((old, reloader, health));
            std::thread::park_timeout(LINGER);
        };
        if let Err(error) = std::thread::Builder::new().name("reload".into()).spawn(body) {
            tracing::error!(%error, "no thread to load the configuration");
        }
        reloaded
    }

    /// Reads what changed, swaps the snapshot, and gives out the old one. Blocks on the disk.
    fn reload(&self, health: &Health) -> (Reloaded, Arc<Snapshot>) {
        let began = self.clock.monotonic();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (appliance, mut faults, unread) = config::reload_appliance(&self.path);
        let mut restart_needed = Vec::new();
        if let Some(appliance) = appliance.filter(|_| !has_errors(&faults)) {
            let waiting = self.started.restart_needed(&appliance);
            let live = self.started.with_live(appliance);
            // The file is one unit: a destination that is none in it is a fault of the whole.
            let (judged, more) = self.judge(&live);
            let (runs, of_runs) = self.judge_runs(&live);
            let sound = !has_errors(&more) && !has_errors(&of_runs);
            faults.extend(more.into_iter().chain(of_runs));
            if sound {
                restart_needed = waiting;
                let runs = self.runner.as_ref().zip(runs);
                state.accepted = runs.map(|(runner, judged)| runner.accept(&live, judged));
                let judged = self.way_out.as_ref().zip(judged);
                state.compiled = judged.map(|(way_out, judged)| way_out.accept(&live, judged));
                state.appliance = live;
            }
        }
        let (snapshot, mut reloaded) = self.build(&mut state, unread);
        faults.append(&mut reloaded.faults);
        health.set_degraded(faults.iter().filter(|f| f.is_error()).map(ToString::to_string).collect());
        let old = self.snapshot.swap(Arc::new(snapshot));
        let took = self.clock.monotonic().saturating_sub(began);
        let reloaded = Reloaded { faults, restart_needed, took, ..reloaded };
        // Under the lock: the last reload's figures are the last that are set.
        let errors = reloaded.faults.iter().filter(|fault| fault.is_error()).count();
        self.metrics.loaded(reloaded.tenants, reloaded.endpoints, errors, self.clock.unix_ms());
        drop(state);
        tell(&reloaded);
        (reloaded, old)
    }

    /// Waits until it is time to look again whether what is missing still is, and what could not be read can be. A wait
    /// that is given up is taken up by the reload that it was given up for.
    pub(crate) async fn look_again(&self) {
        self.again.told.notified().await;
        tokio::time::sleep(self.again.pause()).await;
    }

    fn judge(&self, appliance: &Appliance) -> (Option<Judged>, Vec<Fault>) {
        self.way_out.as_ref().map_or_else(|| (None, Vec::new()), |way_out| way_out.judge(appliance))
    }

    fn judge_runs(&self, appliance: &Appliance) -> (Option<runner::Judged>, Vec<Fault>) {
        self.runner.as_ref().map_or_else(|| (None, Vec::new()), |runner| runner.judge(appliance))
    }

    /// The snapshot of the files as they are now; of what is faulty, its last good version.
    fn build(&self, state: &mut State, unread: bool) -> (Snapshot, Reloaded) {
        let State { files, appliance, compiled, accepted } = state;
        // Connectors, openings and modes are part of what a tenant's file means.
        files.judged_by(&(&appliance.egress.mode, &appliance.egress.opening, compiled.as_ref().map(Compiled::basis)));
        let endpoints = &mut |tenant| TenantEndpoints::new(tenant, &self.presets);
        let calls = &mut |tenant: &config::Tenant| match &*compiled {
            Some(compiled) => compiled.tenant(tenant),
            None => (None, Vec::new()),
        };
        let load = files.load(appliance, &*self.environment, &mut config::both(endpoints, calls));
        let mut faults = load.faults;
        if let (Some(way_out), Some(compiled)) = (&self.way_out, &*compiled) {
            let tenants = load.tenants.iter().map(|both| (&both.made.tenant, both.beside.as_ref()));
            faults.extend(way_out.put_in_force(appliance, compiled, tenants));
        }
        if let (Some(runner), Some(accepted)) = (&self.runner, &*accepted) {
            let tenants = load.tenants.iter().map(|both| &both.made.tenant);
            faults.extend(runner.put_in_force(appliance, accepted, tenants));
        }
        let tenants = load.tenants.into_iter().map(|both| both.made).collect();
        self.again.needed(load.missing > 0, unread || load.again);
        let (gateway, limits) = (state.appliance.gateway.clone(), state.appliance.limits.clone());
        let snapshot = Snapshot::new(gateway, limits, tenants, &load.unavailable);
        let reloaded = Reloaded {
            faults,
            tenants: snapshot.tenants().len(),
            endpoints: snapshot.len(),
            changed: load.changed,
            ..Reloaded::default()
        };
        (snapshot, reloaded)
    }
}

/// Old snapshots that wait to be freed.
#[derive(Debug, Default)]
pub(crate) struct Retiring(AtomicUsize);

impl Retiring {
    /// Each is a thread. More of them come only of many reloads under slow requests; their snapshots are freed by the
    /// requests that hold them.
    const MAX: usize = 8;

    /// Waits until no request uses an old snapshot, so that it is freed here: freeing a hundred thousand endpoints in the
    /// middle of somebody's request would be felt.
    fn retire(&self, old: &Arc<Snapshot>) {
        /// Longer than requests take; whoever holds it then frees it.
        const PATIENCE: u32 = 200;
        let waiting = self.0.fetch_add(1, Ordering::Relaxed);
        for _ in 0..PATIENCE {
            if Arc::strong_count(old) == 1 || waiting >= Self::MAX {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Faults written one by one; the rest is a number and `tidegate check`.
const FAULTS_SHOWN: usize = 50;

fn tell(reloaded: &Reloaded) {
    for fault in reloaded.faults.iter().take(FAULTS_SHOWN) {
        if fault.is_error() {
            tracing::error!("configuration: {fault}");
        } else {
            tracing::warn!("configuration: {fault}");
        }
    }
    if reloaded.faults.len() > FAULTS_SHOWN {
        tracing::error!(
            "configuration: {} more faults; `tidegate check` says them all",
            reloaded.faults.len() - FAULTS_SHOWN
        );
    }
    if !reloaded.restart_needed.is_empty() {
        tracing::warn!("these keys take effect at the next start: {}", reloaded.restart_needed.join(", "));
    }
    tracing::info!(
        tenants = reloaded.tenants,
        endpoints = reloaded.endpoints,
        changed = reloaded.changed,
        ms = u64::try_from(reloaded.took.as_millis()).unwrap_or(u64::MAX),
        "configuration loaded"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    use eventlog::memory::MemoryLog;
    use prometheus_client::registry::Registry;

    const APPLIANCE: &str = "[gateway]\npublic_url = \"https://hooks.example.com\"\n";

    struct Running {
        root: tempfile::TempDir,
        reloader: Arc<Reloader>,
        health: Arc<Health>,
    }

    impl Running {
        /// A node with one tenant, `acme`, that has the endpoint `wh_1`.
        fn start() -> Self {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("tidegate.toml");
            std::fs::write(&path, text(APPLIANCE, root.path())).unwrap();
            std::fs::create_dir_all(root.path().join("tenants/acme.secrets")).unwrap();
            std::fs::write(root.path().join("tenants/acme.secrets/k"), "a secret of acme").unwrap();
            let started = config::load_appliance(&path).0.unwrap();
            let clock = domain::SystemClock::shared();
            let mut registry = Registry::default();
            let reloader = Reloader {
                path,
                environment: Arc::new(config::MapEnvironment::default()),
                presets: Presets::load().unwrap(),
                metrics: ConfigMetrics::register(&mut registry),
                snapshot: Arc::default(),
                way_out: None,
                runner: None,
                state: Mutex::new(State {
                    files: TenantFiles::new(&started),
                    appliance: started.clone(),
                    compiled: None,
                    accepted: None,
                }),
                clock: Arc::clone(&clock),
                started,
                again: Again::default(),
                retiring: Retiring::default(),
            };
            let health = Health::new(registry, Some(Arc::new(MemoryLog::new(domain::NodeId(1), clock))));
            let running = Self { root, reloader: Arc::new(reloader), health: Arc::new(health) };
            running.endpoints(&["wh_1"]);
            running.reload();
            running
        }

        fn endpoints(&self, ids: &[&str]) {
            let endpoint = |id: &&str| {
                format!("[[endpoint]]\nid = \"{id}\"\nscheme = \"github\"\nsecrets = [{{ value = \"secret:k\" }}]\n")
            };
            let text = format!("tenant = \"acme\"\n{}", ids.iter().map(endpoint).collect::<String>());
            std::fs::write(self.root.path().join("tenants/acme.toml"), text).unwrap();
        }

        fn reload(&self) -> Reloaded {
            self.reloader.reload(&self.health).0
        }
    }

    fn text(appliance: &str, root: &std::path::Path) -> String {
        format!("{appliance}[log]\ndirectory = \"{}/log\"\n", root.display())
    }

    #[test]
    fn what_waits_for_a_restart_judges_no_tenant_before_it() {
        let running = Running::start();
        let before = Arc::clone(&running.reloader.snapshot.load().tenants()[0]);
        let class = |name: &str| format!("[[log.retention]]\nname = \"{name}\"\nage = \"7d\"\n");
        let changed = format!(
            "{}\n{}{}[tenants]\ndirectory = \"elsewhere\"\n",
            text(&APPLIANCE.replace("hooks.", "new."), running.root.path()),
            class("fast"),
            class("default"),
        );
        std::fs::write(&running.reloader.path, changed).unwrap();
        let reloaded = running.reload();
        assert_eq!(reloaded.restart_needed, ["log.retention", "tenants.directory"], "{:?}", reloaded.faults);
        let after = running.reloader.snapshot.load_full();
        assert_eq!(after.settings.public_url.host(), "new.example.com", "a live key");
        assert!(Arc::ptr_eq(&before, &after.tenants()[0]), "the tenant is there and as it was");
    }

    #[tokio::test]
    async fn a_tenant_is_removed_by_the_second_look() {
        let running = Running::start();
        let root = running.root.path();
        std::fs::write(root.join("tenants/beta.toml"), "tenant = \"beta\"\n").unwrap();
        std::fs::remove_file(root.join("tenants/acme.toml")).unwrap();
        assert_eq!(running.reload().tenants, 2);
        running.reloader.look_again().await;
        assert_eq!(running.reload().tenants, 1);
    }

    #[test]
    fn what_cannot_be_read_is_read_again_ever_less_often() {
        let again = Again::default();
        let pauses = (0..9).map(|_| {
            again.needed(false, true);
            again.pause().as_secs()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        again.needed(true, true);
        assert_eq!(again.pause(), config::ABSENCE, "a missing file does not wait that long");
        again.needed(false, false);
        again.needed(false, true);
        assert_eq!(again.pause(), PAUSE_MIN, "and the next fault begins anew");
    }

    #[tokio::test]
    async fn nobody_waits_for_requests_that_hold_an_old_snapshot() {
        let running = Running::start();
        // Longer than a reload, however busy the machine is; half of what old snapshots are waited for.
        let reload = async || {
            let reloaded = running.reloader.reload_beside(&running.health);
            tokio::time::timeout(Duration::from_secs(5), reloaded).await.expect("it waited").unwrap()
        };
        let slow = running.reloader.snapshot.load_full();
        running.endpoints(&["wh_1", "wh_2"]);
        assert_eq!(reload().await.endpoints, 2);
        assert!(running.health.metrics().contains("config_endpoints 2"), "{}", running.health.metrics());
        // Nor does the next change.
        running.endpoints(&[]);
        assert_eq!(reload().await.endpoints, 0);
        assert_eq!(running.reloader.snapshot.load().len(), 0);
        assert_eq!(slow.len(), 1, "a request keeps what it began with");
    }

    #[tokio::test]
    async fn few_wait_for_old_snapshots() {
        let in_use = Arc::<Snapshot>::default();
        let (retiring, old) = (Retiring(AtomicUsize::new(Retiring::MAX)), Arc::clone(&in_use));
        let retired = tokio::task::spawn_blocking(move || {
            retiring.retire(&old);
            retiring.0.into_inner()
        });
        let waiting = tokio::time::timeout(Duration::from_secs(5), retired).await.expect("it waited").unwrap();
        assert_eq!((waiting, Arc::strong_count(&in_use)), (Retiring::MAX, 1));
    }
}
