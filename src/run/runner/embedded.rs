//! The stores of one machine: a ledger, payloads and automations in files, and the events of this node's log.

use std::sync::Arc;

use runner::automation::{EmbeddedDefinitions, embedded as definitions};
use runner::engine::Events;
use runner::ledger::embedded::{self, Ages, EmbeddedLedger};
use runner::ledger::payloads::PayloadDirectory;
use serde_json::{Value, json};

use super::super::with_causes;
use super::beginnings::Beginnings;
use super::live::Opening;
use super::ports::{EventsOfLog, NoEvents};
use super::stores::{Keeper, Look, Stores};

/// Looked after by this process alone.
#[derive(Debug)]
pub(super) struct Embedded {
    ledger: Arc<EmbeddedLedger>,
    payloads: Arc<PayloadDirectory>,
    /// Watches that no part of what is kept goes unnoticed.
    beginnings: Arc<Beginnings>,
}

pub(super) async fn open(opening: &Opening) -> Result<Stores, String> {
    let (ledger, payloads) = ledger(opening).await?;
    let (ledger, payloads) = (Arc::new(ledger), Arc::new(payloads));
    let definitions = definitions(opening).await?;
    let directory = &opening.appliance.runner.directory;
    let beginnings = Beginnings::new(directory, Arc::clone(&ledger), Arc::clone(&definitions))?;
    let beginnings = Arc::new(beginnings);
    let events: Arc<dyn Events> = match &opening.log {
        Some(log) => Arc::new(EventsOfLog(Arc::clone(log))),
        None => Arc::new(NoEvents),
    };
    Ok(Stores {
        ledger: Arc::<EmbeddedLedger>::clone(&ledger),
        definitions,
        payloads: Arc::<PayloadDirectory>::clone(&payloads),
        events,
        index: directory.join("index"),
        keeper: Keeper::Embedded(Arc::new(Embedded { ledger, payloads, beginnings })),
    })
}

async fn ledger(opening: &Opening) -> Result<(EmbeddedLedger, PayloadDirectory), String> {
    let file = &opening.appliance.runner;
    let mut settings = embedded::Settings::new(file.directory.join("ledger"));
    settings.segment_bytes = file.payloads.segment_bytes;
    settings.reserve_bytes = file.payloads.reserve_bytes;
    let (clock, payloads) = (Arc::clone(&opening.clock), file.directory.join("payloads"));
    let opened = tokio::task::spawn_blocking(move || {
        let store = PayloadDirectory::open(payloads, Arc::clone(&clock));
        let store = store.map_err(|fault| format!("the store of payloads: {fault}"))?;
        let (ledger, opened) = EmbeddedLedger::open(&settings, clock).map_err(|fault| with_causes(&fault))?;
        for damage in &opened.damage {
            tracing::error!(?damage, "the ledger is damaged: a run that has records there cannot be read");
        }
        tracing::info!(open_runs = opened.open_runs, read = opened.read, "the ledger is open");
        Ok((ledger, store))
    });
    opened.await.map_err(|_| "opening the ledger ended in a fault of ours".to_owned())?
}

async fn definitions(opening: &Opening) -> Result<Arc<EmbeddedDefinitions>, String> {
    let file = &opening.appliance.runner;
    let mut settings = definitions::Settings::new(file.directory.join("definitions"));
    settings.reserve_bytes = file.payloads.reserve_bytes;
    let clock = Arc::clone(&opening.clock);
    let opened = tokio::task::spawn_blocking(move || EmbeddedDefinitions::open(&settings, clock)).await;
    let opened = opened.map_err(|_| "opening the automations ended in a fault of ours".to_owned())?;
    let (store, opened) = opened.map_err(|fault| format!("the automations: {}", with_causes(&fault)))?;
    if opened.is_rebuilt {
        tracing::info!(records = opened.read, "the index of automations was made anew from their journal");
    }
    Ok(Arc::new(store))
}

impl Embedded {
    pub(super) fn alarms(&self) -> &[String] {
        self.beginnings.alarms()
    }

    pub(super) async fn look(&self) -> Option<Look> {
        let (ledger, beginnings) = (Arc::clone(&self.ledger), Arc::clone(&self.beginnings));
        let looked = tokio::task::spawn_blocking(move || {
            beginnings.keep();
            ledger.stat()
        });
        let stat = looked.await.ok()?;
        let mut faults = Vec::new();
        for (name, journal) in [("ledger", &stat.journal), ("history", &stat.history)] {
            faults
                .extend(journal.unavailable.as_ref().map(|why| format!("runner: the {name} cannot be written: {why}")));
            if journal.full {
                faults.push(format!("runner: the {name} has no room: nothing is admitted, and steps wait"));
            }
            if journal.damaged > 0 {
                let places =
                    if journal.damaged == 1 { "1 place".into() } else { format!("{} places", journal.damaged) };
                faults.push(format!("runner: the {name} is damaged in {places}"));
            }
        }
        let is_lost = stat.index_failed.is_some();
        faults.extend(stat.index_failed.map(|why| format!("runner: the ledger's index has failed: {why}")));
        let ledger_bytes = stat.journal.bytes_used + stat.history.bytes_used + stat.index_bytes;
        Some(Look { open_runs: stat.open_runs as u64, ledger_bytes, faults, is_lost })
    }

    pub(super) async fn stat(&self) -> Value {
        let ledger = Arc::clone(&self.ledger);
        let stat = tokio::task::spawn_blocking(move || {
            let stat = ledger.stat();
            json!({
                "store": "embedded",
                "openRuns": stat.open_runs,
                // The index counts what it has written, and what it wrote twice counts twice until it is put together.
                "runsEverApproximately": stat.tombstones,
                "unindexed": stat.unindexed,
                "indexBytes": stat.index_bytes,
                "indexFailed": stat.index_failed.map(|why| why.to_string()),
                "journal": segments(&stat.journal),
                "history": segments(&stat.history),
            })
        });
        stat.await.unwrap_or_default()
    }

    pub(super) async fn retain(&self, ages: Ages) {
        let (ledger, payloads) = (Arc::clone(&self.ledger), Arc::clone(&self.payloads));
        match tokio::task::spawn_blocking(move || ledger.retain(&ages, &payloads)).await {
            Ok(Ok(retained)) if retained.moved_segments + retained.dropped_segments + retained.payloads > 0 => {
                tracing::info!(
                    moved = retained.moved_segments,
                    dropped = retained.dropped_segments,
                    payloads = retained.payloads,
                    "the ledger's old segments were seen to"
                );
            }
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => {
                tracing::error!(%fault, "what is over age in the ledger was not seen to; it is tried again");
            }
            Err(_) => tracing::error!("retention of the ledger ended in a fault of ours; it is tried again"),
        }
    }

    pub(super) async fn close(&self) {
        let (ledger, beginnings) = (Arc::clone(&self.ledger), Arc::clone(&self.beginnings));
        let closed = tokio::task::spawn_blocking(move || {
            beginnings.keep();
            ledger.close();
        });
        if closed.await.is_err() {
            tracing::error!("the ledger was not closed: the next start is as after a crash");
        }
    }
}

fn segments(stat: &eventlog::segment::Stat) -> Value {
    json!({
        "bytes": stat.bytes_used,
        "records": stat.records,
        "segments": stat.segments,
        "damaged": stat.damaged,
        "unavailable": stat.unavailable.as_deref(),
    })
}
