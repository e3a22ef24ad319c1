//! What runs beside the accept path: sweeping, trimming, reloading, and telling others that the end has begun.

use std::sync::Arc;
use std::time::Duration;

use config::{Appliance, Watcher};
use eventlog::{EventLog, HoldingStore};
use gateway::Gateway;
use listen::ServerHandle;
use prometheus_client::registry::Registry;
use ratelimit::{InFlight, LocalLimits, Unauthenticated};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::health::Health;
use super::reload::Reloader;
use super::sink::Sink;

/// Buckets settle within seconds to minutes; sweeping them costs a few ms per hundred thousand.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Segments are dropped whole: a minute late is nothing beside days of retention.
const TRIM_EVERY: Duration = Duration::from_mins(1);

pub(super) async fn sweep(limits: Arc<LocalLimits>, unauthenticated: Arc<Unauthenticated>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        limits.sweep();
        unauthenticated.sweep();
    }
}

/// Reads in the background what was committed before this start, to know what providers send again.
pub(super) fn recall(runtime: &Runtime, gateway: &Arc<Gateway>) {
    let gateway = Arc::clone(gateway);
    let _reading = runtime.spawn_blocking(move || match gateway.recall_repeats() {
        Ok(recalled) => tracing::info!(recalled, "remembered ids of deliveries that were committed before"),
        Err(error) => {
            tracing::warn!(%error, "not all ids of deliveries that were committed before could be read; what is sent again may be stored twice");
        }
    });
}

pub(super) async fn trim(log: Arc<dyn EventLog>, holding: Option<Arc<HoldingStore>>) {
    loop {
        tokio::time::sleep(TRIM_EVERY).await;
        let (log, holding) = (Arc::clone(&log), holding.clone());
        let trimmed = tokio::task::spawn_blocking(move || {
            if let Some(Err(error)) = holding.map(|holding| holding.trim()) {
                tracing::error!(%error, "the holding stream could not be trimmed");
            }
            log.trim()
        });
        match trimmed.await {
            Ok(Ok(trimmed)) if trimmed.segments > 0 => {
                tracing::info!(
                    segments = trimmed.segments,
                    records = trimmed.records,
                    bytes = trimmed.bytes,
                    "trimmed"
                );
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "the event log could not be trimmed"),
            Err(error) => tracing::error!(%error, "trimming the event log ended in a fault of ours"),
        }
    }
}

/// Files that are not connections: segments, configuration, listeners, the control socket, connections that are being
/// turned away, and some air.
const OTHER_FILES: u64 = 512;

/// Connections that there is room for, by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) deliveries: u32,
    pub(super) calls: u32,
}

/// Opens as many files as the system lets this process, and says how many connections of each role that is room for: a
/// delivery is one file, a call is two. Whoever opens connections and says nothing must not take the files that the log
/// needs.
pub(super) fn room(appliance: &Appliance) -> Room {
    let wanted = |enabled: bool, listener: &config::Listener| if enabled { listener.connections_max } else { 0 };
    let deliveries = wanted(appliance.gateway.enabled, &appliance.gateway.listener);
    let calls = wanted(appliance.egress.enabled, &appliance.egress.listener);
    let runner = &appliance.runner;
    // A user of the API is one; a run that calls has a connection to the way out.
    let runs = if runner.enabled { runner.api.connections_max + runner.slots } else { 0 };
    let files = room_for_connections(u64::from(deliveries) + 2 * u64::from(calls) + u64::from(runs));
    let files = files.saturating_sub(u64::from(runs));
    shares(deliveries, calls, files)
}

/// Where there is not room for all, both have the same part of what they want.
fn shares(deliveries: u32, calls: u32, files: u64) -> Room {
    let wanted = (u64::from(deliveries) + 2 * u64::from(calls)).max(1);
    let share = |of: u32| u32::try_from(u64::from(of) * files.min(wanted) / wanted).unwrap_or(of).max(1);
    Room { deliveries: share(deliveries), calls: share(calls) }
}

fn room_for_connections(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let files = wanted + OTHER_FILES;
    let Some(have) = current.filter(|have| *have < files) else { return wanted };
    let raised = maximum.map_or(files, |maximum| files.min(maximum));
    let set = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum });
    let open_files = if set.is_ok() { raised } else { have };
    let connections = connections_among(open_files).min(wanted);
    if connections < wanted {
        tracing::warn!(
            open_files,
            connections,
            "so few files may be open that connections_max of the listeners is lowered; raise the limit (LimitNOFILE of the \
             unit, `ulimit -n` of a shell), or lower connections_max"
        );
    }
    connections
}

fn connections_among(files: u64) -> u64 {
    files.saturating_sub(OTHER_FILES).max(files / 4).max(1)
}

/// What the process itself counts.
pub(super) fn register_process(registry: &mut Registry, sink: &Sink) {
    let sink = sink.clone();
    let help = "Log lines lost because nobody read them fast enough";
    let gauges: Vec<super::metrics::Reading> = vec![("log_lines_dropped", help, Box::new(move || sink.dropped()))];
    registry.register_collector(Box::new(super::metrics::Readings(gauges)));
}

/// Gauges of the gateway's parts, read at each scrape.
pub(super) fn register(
    registry: &mut Registry,
    limits: &Arc<LocalLimits>,
    in_flight: &Arc<InFlight>,
    holding: Option<&Arc<HoldingStore>>,
) {
    let (limits, in_flight) = (Arc::clone(limits), Arc::clone(in_flight));
    let holding = holding.cloned();
    let mut gauges: Vec<super::metrics::Reading> = vec![
        (
            "limit_buckets",
            "Buckets of tenants and endpoints that owe something",
            Box::new(move || limits.tracked() as u64),
        ),
        ("gateway_in_flight_bytes", "Bytes of bodies in memory", Box::new(move || in_flight.bytes())),
    ];
    if let Some(holding) = holding {
        let again = Arc::clone(&holding);
        gauges.push((
            "holding_records",
            "Deliveries that are held",
            Box::new(move || {
                let stat = holding.stat();
                stat.pending + stat.quarantined
            }),
        ));
        gauges.push(("holding_bytes", "Bytes of deliveries that are held", Box::new(move || again.stat().bytes)));
    }
    registry.register_collector(Box::new(super::metrics::Readings(gauges)));
}

/// Reloads on SIGHUP and whenever a file changes.
pub(super) fn watch(runtime: &Runtime, mut watcher: Watcher, reloader: &Arc<Reloader>, health: &Arc<Health>) {
    let (reloader, health) = (Arc::clone(reloader), Arc::clone(health));
    // From now on, and not from the task's first turn: a SIGHUP that nobody watches ends the process.
    let hangup = {
        let _runtime = runtime.enter();
        signal(SignalKind::hangup())
    };
    runtime.spawn(async move {
        // What is left is watched on: one that fails must not silence the other.
        let mut hangup = hangup.inspect_err(|error| tracing::error!(%error, "SIGHUP cannot be watched")).ok();
        let mut files = true;
        let mut book = reloader.way_out.as_ref().map(|way_out| way_out.book_changes());
        loop {
            tokio::select! {
                () = hung_up(&mut hangup) => tracing::info!("SIGHUP: reloading"),
                more = watcher.changed(), if files => {
                    files = more;
                    if !more {
                        tracing::error!("changed files are not noticed any more; reload with SIGHUP");
                        continue;
                    }
                }
                () = book_changed(&mut book) => tracing::info!("exit ranges have changed: reloading"),
                () = reloader.look_again() => {}
            }
            if reloader.reload_beside(&health).await.is_none() {
                tracing::error!("the reload ended in a fault of ours; what was served before still is");
                reloader.again.failed();
            }
        }
    });
}

/// Drains on the first SIGTERM or SIGINT and stops at once on the second; tells the load balancer that the drain began.
/// Watched from here on, before anybody is told that the node is ready: a signal that nobody watches ends the process
/// on the spot.
pub(super) fn drain_with(runtime: &Runtime, server: ServerHandle, health: Arc<Health>) -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = {
        let _runtime = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let signalled = server.clone();
    runtime.spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if signalled.is_draining() {
                signalled.stop_now();
            } else {
                signalled.drain();
            }
        }
    });
    runtime.spawn(async move {
        server.draining().await;
        health.set_draining();
    });
    Ok(())
}

/// Returns when the book of exit ranges has changed; never, where no call goes out.
async fn book_changed(book: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = book
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Returns at the next SIGHUP; never, where it cannot be watched.
async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            // A stream of signals does not end.
            let _more = hangup.recv().await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit that is shipped is sized by what the appliance does with its defaults.
    #[test]
    fn the_unit_has_room_for_the_defaults() {
        let unit = include_str!("../../deploy/systemd/tidegate.service");
        let value = |key: &str| {
            let mut values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            values.next().unwrap_or_else(|| panic!("the unit has no {key}"))
        };
        let (gateway, egress) = (config::Gateway::default().listener, config::Egress::default().listener);
        let files = u64::from(gateway.connections_max) + 2 * u64::from(egress.connections_max) + OTHER_FILES;
        assert!(value("LimitNOFILE").parse::<u64>().unwrap() >= files, "{files} files");
        let stop = value("TimeoutStopSec").trim_end_matches('s').parse().map(Duration::from_secs).unwrap();
        let drain = gateway.drain_timeout.max(egress.drain_timeout);
        assert!(stop >= drain + Duration::from_secs(10), "{stop:?} for a drain of {drain:?}");
        assert!(value("ExecReload").contains("-HUP") && value("ExecStart").contains("/tidegate run --config "));
    }

    #[test]
    fn the_log_keeps_files_however_few_there_are() {
        for (files, connections) in [(100_000, 99_488), (1024, 512), (600, 150), (300, 75), (4, 1), (0, 1)] {
            assert_eq!(connections_among(files), connections, "{files}");
        }
    }
}
