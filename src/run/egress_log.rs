//! Decision records, twice: a line in the log at once, and a place in a store where they are found for weeks.
//!
//! The path that a call takes formats its line and puts its record into a bounded queue. One thread takes them from there
//! and appends them, in chunks; it drops what is over age, too. Where it cannot keep up or the disk does not take them,
//! records are dropped from the store and counted: no call waits for its record. What is missing is told as a reason in
//! `readyz`, in metrics and in the log, and so is a store that had to drop records before their time. Records of calls of
//! which nobody knows whose they are have a budget of their own.

mod bounds;
mod lines;
mod metrics;
mod nobody;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
mod waiting;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use config::{Appliance, Logging};
use domain::Clock;
use egress::{Record, Recorder};
use eventlog::records::{RecordStore, Settings, Stat};
use eventlog::segment::OpenError;
use prometheus_client::registry::Registry;

use self::bounds::bounded;
use self::lines::Lines;
use self::nobody::Nobody;
use self::waiting::{Turn, Waited, Waiting};
use super::sink::Sink;
use crate::control::egress::{kept, kept_as};

/// Segments are dropped whole: a minute late is nothing beside days of retention.
const TRIM_EVERY: Duration = Duration::from_mins(1);
/// How long a question waits for the newest records. A disk that is slower than that is told of.
const SETTLE: Duration = Duration::from_secs(2);
/// How long `readyz` tells that records were dropped: until a person has had a look.
const TOLD_FOR_MS: u64 = 60 * 60 * 1_000;

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EgressLogError {
    #[error("cannot open the store of egress records in {directory}: {source}")]
    Open { directory: PathBuf, source: OpenError },
    #[error("cannot start the writer of egress records: {0}")]
    Thread(#[from] io::Error),
}

/// The store of an appliance: on the terms of its log, but for what `[egress.records]` says.
pub(crate) fn settings(appliance: &Appliance) -> Settings {
    let records = &appliance.egress.records;
    let log = eventlog::embedded::Settings::new(&appliance.log, appliance.node.id);
    Settings {
        sync: log.sync,
        reserve_bytes: log.reserve_bytes,
        ..Settings::new(&records.directory, records.age, records.bytes_max)
    }
}

/// Takes decision records.
#[derive(Debug)]
pub(crate) struct EgressLog {
    lines: Lines,
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    waiting: Waiting,
    store: RecordStore,
    clock: Arc<dyn Clock>,
    written: AtomicU64,
    nobody: Nobody,
    /// Not stored: there was no room in the queue, or the disk did not take them.
    dropped_queue: AtomicU64,
    dropped_disk: AtomicU64,
    /// When a record was dropped last; 0 for never.
    dropped_unix_ms: AtomicU64,
}

impl EgressLog {
    /// Opens the store and starts its writer.
    pub(crate) fn open(
        settings: &Settings,
        logging: &Logging,
        sink: Sink,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, EgressLogError> {
        let (store, recovery) = RecordStore::open(settings, Arc::clone(clock))
            .map_err(|source| EgressLogError::Open { directory: settings.directory.clone(), source })?;
        super::ingress::tell_recovery("egress", &recovery);
        let shared = Arc::new(Shared {
            waiting: Waiting::default(),
            store,
            clock: Arc::clone(clock),
            written: AtomicU64::new(0),
            nobody: Nobody::default(),
            dropped_queue: AtomicU64::new(0),
            dropped_disk: AtomicU64::new(0),
            dropped_unix_ms: AtomicU64::new(0),
        });
        let writer = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("egress-records".into()).spawn(move || writer.write())?;
        let lines = Lines::new(sink, logging, Arc::clone(clock));
        Ok(Self { lines, shared, writer: Mutex::new(Some(thread)) })
    }

    /// Registers what the store says about itself, read at each scrape.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(metrics::Collector(Arc::clone(&self.shared))));
    }

    /// The store, with everything in it that was recorded before this was asked; or else false beside it. Blocks for as
    /// long as that takes the disk, a second or two at most.
    pub(crate) fn settled(&self) -> (&RecordStore, bool) {
        let whole = self.shared.waiting.settle(SETTLE);
        (&self.shared.store, whole)
    }

    /// What is wrong with the records, one sentence each: for `readyz`.
    pub(crate) fn alarms(&self) -> Vec<String> {
        self.shared.alarms()
    }

    /// Stores what waits, then takes nothing more. Blocks until that is done.
    pub(crate) fn close(&self) {
        self.shared.waiting.close();
        let thread = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer of egress records ended in a fault of ours");
        }
        self.shared.store.close();
    }
}

impl Drop for EgressLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Recorder for EgressLog {
    fn record(&self, record: Record) {
        let record = bounded(record);
        let json = self.lines.write(&record);
        if record.tenant.is_none() && !self.shared.nobody.admits(self.shared.clock.monotonic()) {
            return;
        }
        if !self.shared.waiting.push(Waited { record, json }) {
            self.shared.drop_records(&self.shared.dropped_queue, 1, "more of them came than the disk takes");
        }
    }
}

impl Shared {
    /// What the writer's thread does, until the end.
    fn write(&self) {
        let (mut done, mut trimmed, mut is_short) = (0, self.clock.monotonic(), false);
        self.trim(&mut is_short);
        loop {
            let records = match self.waiting.take(done, TRIM_EVERY) {
                Turn::End => return,
                Turn::Idle => Vec::new(),
                Turn::Write(records) => records,
            };
            done = records.len() as u64;
            self.store(records);
            if self.clock.monotonic().saturating_sub(trimmed) >= TRIM_EVERY {
                trimmed = self.clock.monotonic();
                self.trim(&mut is_short);
            }
        }
    }

    fn store(&self, records: Vec<Waited>) {
        if records.is_empty() {
            return;
        }
        let count = records.len();
        // Only a broken `Serialize` fails into memory.
        let written = |Waited { record, json }| match json {
            Some(json) => Some(kept_as(&record, json.into_bytes())),
            None => kept(&record).ok(),
        };
        let kept: Vec<_> = records.into_iter().filter_map(written).collect();
        let unwritten = (count - kept.len()) as u64;
        let stored = self.store.append(kept).wait();
        self.written.fetch_add(stored.records, Ordering::Relaxed);
        let lost = stored.lost + unwritten;
        if lost > 0 {
            let why = stored.fault.map_or_else(|| "they could not be written".to_owned(), |fault| fault.to_string());
            self.drop_records(&self.dropped_disk, lost, &why);
        }
    }

    fn drop_records(&self, count: &AtomicU64, records: u64, why: &str) {
        count.fetch_add(records, Ordering::Relaxed);
        let now = self.clock.unix_ms();
        let before = self.dropped_unix_ms.swap(now, Ordering::Relaxed);
        // A line a minute, while it goes on.
        if before / 60_000 != now / 60_000 {
            tracing::error!(
                why,
                "records of calls are dropped from their store; the lines in this log are all there is"
            );
        }
    }

    fn trim(&self, is_short: &mut bool) {
        match self.store.trim() {
            Ok(trimmed) if trimmed.for_bytes > 0 => {
                tracing::warn!(
                    segments = trimmed.for_bytes,
                    bytes = trimmed.bytes,
                    "records of calls went before their time: their store is as large as it may be"
                );
            }
            Ok(trimmed) if trimmed.segments > 0 => {
                tracing::info!(segments = trimmed.segments, bytes = trimmed.bytes, "trimmed records of calls");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the store of egress records could not be trimmed"),
        }
        let stat = self.store.stat();
        if stat.short != *is_short {
            *is_short = stat.short;
            if let Some(sentence) = short(&stat) {
                tracing::error!("{sentence}");
            } else {
                tracing::info!("records of calls reach back as far as they should again");
            }
        }
    }

    fn alarms(&self) -> Vec<String> {
        let stat = self.store.stat();
        let mut alarms: Vec<String> = short(&stat).into_iter().collect();
        if let Some(why) = &stat.unavailable {
            alarms.push(format!("egress records cannot be stored: {why}"));
        }
        let at = self.dropped_unix_ms.load(Ordering::Relaxed);
        if at > 0 && self.clock.unix_ms().saturating_sub(at) < TOLD_FOR_MS {
            let dropped = self.dropped_queue.load(Ordering::Relaxed) + self.dropped_disk.load(Ordering::Relaxed);
            alarms.push(format!(
                "egress records are missing: {dropped} were dropped since the start, the last within an hour"
            ));
        }
        alarms.extend(stat.damage.iter().map(|damage| format!("damage: egress records: {damage}")));
        alarms
    }
}

/// Says that records do not reach back as far as they should, if so.
fn short(stat: &Stat) -> Option<String> {
    let hours = stat.kept.as_secs() / 3_600;
    let (days, hours) = (hours / 24, hours % 24);
    let mib = stat.bytes_max >> 20;
    stat.short.then(|| {
        format!(
            "egress records reach back {days} days and {hours} hours only: older ones went early, for want of room \
             (egress.records.bytes_max is {mib} MiB; is the disk full?)"
        )
    })
}
