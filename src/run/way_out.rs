//! The role that lets calls out: who may come, what is off, where names are looked up, and its service.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use config::{Appliance, Environment, Fault, Tenant};
use domain::{Clock, TenantId};
use egress::caller::{CallerSettings, Revocations};
use egress::compile::{self, Compiled, TenantOut};
use egress::forward::Forward;
use egress::forward::headers::Names;
use egress::metrics::Metrics;
use egress::ports::{PortCounting, PortMetrics, PortRange, Ports, Pressure};
use egress::quota::{Guards, Quota, QuotaRules};
use egress::ranges::{self, At, BookFound, PublicSite, RangesMetrics, Shelf};
use egress::switches::Switches;
use egress::{Callers, Calls, Connections, Egress, Ends, Exits, Parts, Policy, Recorder, Settings, Snapshot, settings};
use listen::{Behaviour, Forms, HalfClose, ServerHandle, TlsBounds, TlsServer};
use outbound::dial::TcpConnector;
use outbound::resolve::{CachedResolver, DnsResolver};
use outbound::{AddressTable, Dialer, Own, Resolve, Roots, TlsClient};
use prometheus_client::registry::Registry;
use ratelimit::retry_budget::RetryBudgets;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::egress_log::{self, EgressLog};
use super::health::Alarm;
use super::metrics::ListenerMetrics;
use super::own_tls::{OwnTlsOf, SPOKEN};
use super::quota::{self, InForce, Opened};
use super::sink::Sink;
use super::{RunError, listener_tls};
use crate::control::quota::Desk;

/// What the role stands on: open, and not yet serving.
#[derive(Debug)]
pub(super) struct WayOut {
    bound: Bound,
    connections_max: u32,
    pub(super) log: Arc<EgressLog>,
    pub(super) loader: Arc<Loader>,
    switches: Arc<Switches>,
    revocations: Arc<Revocations>,
    resolver: ResolverOf,
    ports: Arc<Ports>,
    quota: Opened,
    listener_metrics: Arc<ListenerMetrics>,
    public_metrics: Arc<ListenerMetrics>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

/// The role over real sockets, whose ports are counted.
type Outward = Egress<PortCounting>;

/// What an operator looks at and acts on while it serves.
#[derive(Debug)]
pub(crate) struct Open {
    pub(super) egress: Arc<Outward>,
    pub(super) ports: Arc<Ports>,
    pub(super) desk: Desk,
}

/// Debug for what has none.
struct ResolverOf(Arc<dyn Resolve>);

impl std::fmt::Debug for ResolverOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

const LISTEN: &str = "listen for calls (egress.listen)";
const LISTEN_TLS: &str = "listen for calls with TLS (egress.tls.listen)";

/// Idle connections to destinations are looked through this often; they live for a minute.
const REAP_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// Exit addresses that readyz tells of where their ports run out.
const EXITS_ALARMED_MAX: usize = 5;

const LISTEN_PUBLIC: &str = "listen for those who read exit ranges (egress.ranges.listen)";

/// The addresses of the role.
#[derive(Debug)]
pub(super) struct Bound {
    calls: listen::Bound,
    /// Mostly none.
    with_tls: listen::Bound,
    /// What everybody may read; mostly nowhere.
    public: Option<listen::Bound>,
}

/// Takes the addresses, and does not listen on them yet.
pub(super) fn bind(appliance: &Appliance) -> Result<Bound, RunError> {
    let calls = listen::Bound::new(&appliance.egress.listen).map_err(RunError::io(LISTEN))?;
    let with_tls = listen::Bound::new(&appliance.egress.tls.listen).map_err(RunError::io(LISTEN_TLS))?;
    let public = &appliance.egress.ranges.listen;
    let public = (!public.is_empty()).then(|| listen::Bound::new(public)).transpose();
    Ok(Bound { calls, with_tls, public: public.map_err(RunError::io(LISTEN_PUBLIC))? })
}

impl WayOut {
    pub(super) fn open(
        (bound, connections_max): (Bound, u32),
        (path, environment): (&Path, &Arc<dyn Environment>),
        appliance: &Appliance,
        clock: &Arc<dyn Clock>,
        sink: &Sink,
        quota: &Opened,
        registry: &mut Registry,
    ) -> Result<Self, RunError> {
        let file = &appliance.egress;
        let state = &appliance.tenants.state_directory;
        let fault = |what: &str, fault: &dyn std::fmt::Display| RunError::WayOut(format!("{what}: {fault}"));
        let switches = Switches::open(state).map_err(|error| fault("kill switches cannot be read", &error))?;
        let revocations = Revocations::open(state, Arc::clone(clock))
            .map_err(|error| fault("revocations of grants cannot be read", &error))?;
        let revocations = Arc::new(revocations);
        let system = file.dns.servers_or_system().map_err(|error| fault("there is no DNS", &error))?;
        let (dns, cache) = settings::dns(&file.dns, &system);
        let resolver = DnsResolver::new(&dns).map_err(|error| fault("there is no DNS", &error))?;
        let resolver = Arc::new(CachedResolver::new(resolver, cache, Arc::clone(clock)));
        let roots = Roots::of_the_system().map_err(|error| fault("there is nobody to trust", &error))?;
        let tls = TlsClient::new(&roots, None, SPOKEN).map_err(|error| fault("there is no TLS", &error))?;

        let log = EgressLog::open(&egress_log::settings(appliance), &appliance.logging, sink.clone(), clock)
            .map_err(|error| RunError::WayOut(error.to_string()))?;
        let log = Arc::new(log);
        log.register(registry);
        let metrics = Arc::new(Metrics::register(registry));
        let ports = Ports::new(port_range().0, file.limits.ports_percent_max, sockets_max());
        registry.register_collector(Box::new(PortMetrics(Arc::clone(&ports))));
        let listener_metrics = ListenerMetrics::register_with_tls(registry.sub_registry_with_prefix("egress"));

        let shelf = Arc::new(Shelf::open(&file.ranges.book));
        registry.register_collector(Box::new(RangesMetrics { shelf: Arc::clone(&shelf), clock: Arc::clone(clock) }));
        let public_metrics = ListenerMetrics::register(registry.sub_registry_with_prefix("egress_ranges"));

        let (callers, _) = Callers::new(CallerSettings::default(), Arc::clone(&revocations), Arc::clone(clock));
        let snapshot = Snapshot {
            settings: Settings::of(file),
            names: names(appliance)?,
            policy: Policy::default(),
            // Until the first load nobody is known, so that nothing is asked of these.
            rules: Arc::new(outbound::Rules {
                table: Arc::new(AddressTable::shipped()),
                own: Own::default(),
                nat64: Vec::new(),
            }),
            exits: Exits::nowhere(),
            connections: Connections::default(),
            tls: tls.clone(),
            quota: quota.rules.now(),
        };
        let expiry = listener_tls::Expiry { listener: Arc::default(), clock: Arc::clone(clock) };
        registry.register_collector(Box::new(expiry.clone()));
        let loader = Loader {
            path: path.to_owned(),
            environment: Arc::clone(environment),
            clock: Arc::clone(clock),
            listener: Arc::clone(&expiry.listener),
            snapshot: Arc::new(ArcSwap::from_pointee(snapshot)),
            callers: Arc::new(callers),
            ports: Arc::clone(&ports),
            shelf,
            roots,
            tls,
            rules: Arc::clone(&quota.rules),
        };
        Ok(Self {
            bound,
            connections_max,
            log,
            loader: Arc::new(loader),
            switches: Arc::new(switches),
            revocations,
            resolver: ResolverOf(resolver),
            ports,
            quota: quota.clone(),
            listener_metrics,
            public_metrics,
            clock: Arc::clone(clock),
            metrics,
        })
    }

    /// What can be wrong with records, switches, revocations and exit ranges.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        let (log, switches) = (Arc::clone(&self.log), Arc::clone(&self.switches));
        let (revocations, ports) = (Arc::clone(&self.revocations), Arc::clone(&self.ports));
        let (shelf, clock) = (Arc::clone(&self.loader.shelf), Arc::clone(&self.clock));
        let expiry =
            listener_tls::Expiry { listener: Arc::clone(&self.loader.listener), clock: Arc::clone(&self.clock) };
        let told =
            |what: &str, fault: Option<String>| fault.map(|fault| format!("{what}: {fault}")).into_iter().collect();
        vec![
            Box::new(move || log.alarms()),
            Box::new(move || {
                let worst = ports.worst(EXITS_ALARMED_MAX).into_iter().filter(Pressure::is_near);
                worst.map(|worst| format!("{worst} are in use; add exit addresses to the pool")).collect()
            }),
            Box::new(move || told("kill switches cannot be read, and those in force stay", switches.fault())),
            Box::new(move || told("revocations cannot be read, and those in force stay", revocations.fault())),
            Box::new(move || expiry.alarms()),
            Box::new(move || shelf.alarms(At::of_unix_ms(clock.unix_ms()))),
        ]
    }

    /// Everything is loaded: the services, to be added to the server, and the role behind them.
    pub(super) fn serve(
        self,
        appliance: &Appliance,
        clock: &Arc<dyn Clock>,
        runtime: &Runtime,
        server: &ServerHandle,
    ) -> Result<(Open, Vec<listen::Service>), RunError> {
        let file = &appliance.egress;
        let recorder: Arc<dyn Recorder> = Arc::<EgressLog>::clone(&self.log);
        let guards = self.quota.guards;
        let budgets = RetryBudgets::new(quota::RETRIES);
        let guards = Guards { breakers: guards.breakers, fleet: self.quota.fleet, budgets, runaways: guards.runaways };
        let quota = Arc::new(Quota::new(self.quota.clock, self.quota.holder, guards, self.quota.watcher));
        let centre = self.quota.centre;
        let desk = Desk { centre, quota: Arc::clone(&quota), snapshot: Arc::clone(&self.loader.snapshot) };
        // One count below both, so that tunnels and pooled connections to one place are counted together.
        let connector = PortCounting::new(TcpConnector, Arc::clone(&self.ports));
        let egress = Arc::new(Egress::new(Parts {
            node: appliance.node.id,
            snapshot: Arc::clone(&self.loader.snapshot),
            callers: Arc::clone(&self.loader.callers),
            switches: Arc::clone(&self.switches),
            resolver: self.resolver.0,
            forward: Forward::with_connector(connector.clone(), settings::forward(file)),
            dialer: Dialer::with_connector(connector, settings::dial(file)),
            calls: Arc::new(Calls::default()),
            tunnels: Arc::default(),
            quota,
            ends: Arc::new(Ends { clock: Arc::clone(clock), recorder, metrics: self.metrics, cut_at: OnceLock::new() }),
        }));
        runtime.spawn(Arc::clone(&self.switches).keep_looking());
        runtime.spawn(self.revocations.keep_looking());
        runtime.spawn(Arc::clone(&self.loader.shelf).keep_looking());
        runtime.spawn(upkeep(Arc::clone(&egress)));
        runtime.spawn(Arc::clone(&egress).keep_right());
        runtime.spawn(drain(Arc::clone(&egress), server.clone(), file.listener.drain_timeout));

        let bounds = config::Listener { connections_max: self.connections_max, ..file.listener.clone() };
        let opened = self.bound.calls.listen().map_err(RunError::io(LISTEN))?;
        let behaviour = Behaviour {
            forms: Forms::Proxy,
            // Who waits for units, or for a provider, and is gone must not keep a place that others wait for.
            half_close: HalfClose::Gone,
            stream_idle_timeout: file.limits.idle_timeout,
        };
        let open = Open { egress: Arc::clone(&egress), ports: self.ports, desk };
        let service = listen::Service::new("egress", bounds, opened, egress, self.listener_metrics);
        let mut service = service.with_threads(file.threads).with_behaviour(behaviour);
        if !file.tls.listen.is_empty() {
            let tls = self.loader.listener.get();
            let tls = tls.ok_or_else(|| RunError::WayOut("no certificate was read".to_owned()))?;
            let opened = self.bound.with_tls.listen().map_err(RunError::io(LISTEN_TLS))?;
            service = service.with_tls(tls.clone(), opened);
        }
        let mut services = vec![service];
        if let Some(public) = self.bound.public {
            let opened = public.listen().map_err(RunError::io(LISTEN_PUBLIC))?;
            let site = Arc::new(PublicSite::new(Arc::clone(&self.loader.shelf)));
            services.push(listen::Service::new("egress-ranges", ranges::bounds(), opened, site, self.public_metrics));
        }
        Ok((open, services))
    }
}

/// Forgets what has ended.
async fn upkeep(egress: Arc<Outward>) {
    loop {
        tokio::time::sleep(REAP_EVERY).await;
        egress.parts().forward.reap();
        egress.parts().callers.sweep();
        egress.parts().quota.sweep();
    }
}

/// Idle tunnels end first, all others by the drain's end.
async fn drain(egress: Arc<Outward>, server: ServerHandle, timeout: std::time::Duration) {
    server.draining().await;
    egress.parts().forward.close_idle();
    egress.parts().ends.drain(timeout);
    egress.parts().tunnels.drain(tokio::time::Instant::now() + timeout);
}

/// Puts files in force, the first and every later time.
#[derive(Debug)]
pub(crate) struct Loader {
    path: PathBuf,
    environment: Arc<dyn Environment>,
    clock: Arc<dyn Clock>,
    /// TLS towards callers, from the first load on where there is any.
    listener: Arc<OnceLock<listen::Tls>>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    callers: Arc<Callers>,
    ports: Arc<Ports>,
    shelf: Arc<Shelf>,
    roots: Roots,
    tls: TlsClient,
    rules: Arc<InForce>,
}

/// How many sockets this process may have.
fn sockets_max() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// The kernel's, or what it usually is and why that has to do.
fn port_range() -> (PortRange, Option<std::io::Error>) {
    match PortRange::of_the_system() {
        Ok(range) => (range, None),
        Err(error) => (PortRange::USUAL, Some(error)),
    }
}

/// Whose addresses calls are to leave from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// This one's.
    This,
    /// Another one's: whether it has them cannot be found out here.
    Another,
}

/// What of the appliance's file is a matter of calls, judged.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) compiled: Compiled,
    /// None where no address has TLS.
    listener: Option<TlsServer>,
}

/// By what it is judged beside itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgedBy<'j> {
    pub(crate) environment: &'j dyn Environment,
    pub(crate) now_unix_ms: u64,
    pub(crate) book: &'j BookFound,
    pub(crate) on: Machine,
}

/// Judges it: destinations, exits, and what callers are shown. With an error among the faults the file is faulty.
pub(crate) fn judge(appliance: &Appliance, path: &Path, by: JudgedBy<'_>) -> (Option<Judged>, Vec<Fault>) {
    let JudgedBy { environment, now_unix_ms, book, on } = by;
    let (catalogue, mut faults) = compile::catalogue(appliance);
    let Some(catalogue) = catalogue else { return (None, faults) };
    let (compiled, more) = Compiled::new(appliance, path, &catalogue);
    faults.extend(more);
    let (_, keys) = CallerSettings::of(&appliance.egress, []);
    faults.extend(keys.into_iter().map(|key| Fault::error(path, key.key, key.fault.to_string()).at(key.line)));
    faults.extend(ranges::check(&appliance.egress, path, book, &AddressTable::shipped()));
    if on == Machine::This {
        faults.extend(ranges::check_machine(&appliance.egress, path, outbound::is_on_machine));
    }
    let listener = listener_tls::judge(
        &listener_tls::Wanted::of_egress(&appliance.egress.tls),
        path,
        environment,
        now_unix_ms,
        &mut faults,
    );
    quota::judge(appliance, path, environment, &mut faults);
    let sound = !config::has_errors(&faults);
    (sound.then_some(Judged { compiled, listener }), faults)
}

impl Loader {
    /// The same, of the file that this process was started with.
    pub(super) fn judge(&self, appliance: &Appliance) -> (Option<Judged>, Vec<Fault>) {
        self.shelf.look();
        let by = JudgedBy {
            environment: &*self.environment,
            now_unix_ms: self.clock.unix_ms(),
            book: &self.shelf.found(),
            on: Machine::This,
        };
        judge(appliance, &self.path, by)
    }

    /// A number that changes with the book of exit ranges: what is configured is judged anew.
    pub(super) fn book_changes(&self) -> watch::Receiver<u64> {
        self.shelf.watch()
    }

    /// Puts in force what was judged and needs no tenant's file: the certificate of the listener. What is left waits for
    /// [`Self::put_in_force`].
    pub(super) fn accept(&self, appliance: &Appliance, judged: Judged) -> Compiled {
        let Judged { compiled, listener } = judged;
        match (listener, self.listener.get()) {
            (Some(server), Some(tls)) => {
                if tls.replace(server) {
                    tracing::info!("callers are shown another certificate from now on");
                }
            }
            (Some(server), None) => {
                let file = &appliance.egress.tls;
                let bounds =
                    TlsBounds { handshake_timeout: file.handshake_timeout, http2_streams_max: file.http2_streams_max };
                let tls = listen::Tls::new(server, bounds);
                // Loads come one after the other: nobody else was first.
                drop(self.listener.set(tls));
            }
            (None, _) => {}
        }
        compiled
    }

    /// Swaps the snapshot. The addresses of the machine are read anew: one that was added is the appliance's own.
    pub(super) fn put_in_force<'t>(
        &self,
        appliance: &Appliance,
        compiled: &Compiled,
        tenants: impl Iterator<Item = (&'t Tenant, Option<&'t Arc<TenantOut>>)> + Clone,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        let own = match outbound::interface_addresses() {
            Ok(addresses) => compile::own(appliance, addresses),
            Err(error) => {
                let message = format!("the addresses of this machine cannot be read, and the last ones stay: {error}");
                faults.push(Fault::error(&self.path, "egress", message));
                self.snapshot.load().rules.own.clone()
            }
        };
        let (range, unread) = port_range();
        self.ports.bound(range, appliance.egress.limits.ports_percent_max);
        faults.extend(unread.map(|error| {
            let message = format!("the range of local ports cannot be read, and the usual one is taken: {error}");
            Fault::warning(&self.path, "egress.limits.ports_percent_max", message)
        }));
        let ids = tenants.clone().map(|(tenant, out)| (&tenant.id, out)).collect::<Vec<(&TenantId, _)>>();
        let exits = self.exits(appliance);
        let before = self.snapshot.load();
        let making = OwnTlsOf { roots: &self.roots, tls: &self.tls, http2: appliance.egress.http2 };
        let connections = making.connections((&before.connections, &before.tls), tenants.clone(), &mut faults);
        let names = match Names::new(&appliance.egress.name, None) {
            Ok(names) => names,
            Err(fault) => {
                faults.push(Fault::error(&self.path, "egress.name", fault.to_string()));
                self.snapshot.load().names.clone()
            }
        };
        self.snapshot.store(Arc::new(Snapshot {
            settings: Settings::of(&appliance.egress),
            names,
            policy: compiled.policy(ids),
            rules: Arc::new(compiled.vetting(own)),
            exits,
            connections: Connections::new(connections),
            tls: making.usual(),
            quota: self.quota_rules(appliance, compiled, tenants.clone()),
        }));
        let (settings, _) = CallerSettings::of(&appliance.egress, tenants.map(|(tenant, _)| tenant));
        let left_out = self.callers.replace(settings);
        faults.extend(left_out.into_iter().map(|left| Fault::warning(&self.path, "egress", left.to_string())));
        faults
    }
}

impl Loader {
    /// By what calls are counted from now on. Their version grows where limits are others than before.
    fn quota_rules<'t>(
        &self,
        appliance: &Appliance,
        compiled: &Compiled,
        tenants: impl Iterator<Item = (&'t Tenant, Option<&'t Arc<TenantOut>>)>,
    ) -> Arc<QuotaRules> {
        let connections = tenants.filter_map(|(tenant, _)| Some((&tenant.id, &tenant.egress()?.connections)));
        let own: Vec<_> = connections
            .flat_map(|(tenant, all)| all.iter().map(move |one| (tenant, &one.id, &one.quota)))
            .filter(|(_, _, quota)| quota.is_some())
            .collect();
        let limits = (compiled.basis(), own);
        self.rules.put(&appliance.quota, limits, self.clock.unix_ms())
    }

    /// Where calls leave from. What of the file's pools nobody may leave from is told.
    fn exits(&self, appliance: &Appliance) -> Exits {
        let (exits, left_out) = Exits::of(&appliance.egress, &self.shelf.found());
        if !left_out.is_empty() {
            tracing::error!(addresses = left_out.len(), first = ?left_out.first(), "exit addresses are not published");
        }
        self.shelf.tell_unpublished(left_out);
        exits
    }
}

fn names(appliance: &Appliance) -> Result<Names, RunError> {
    Names::new(&appliance.egress.name, None).map_err(|fault| RunError::WayOut(format!("egress.name: {fault}")))
}
