//! Runs: started by hand, listed, shown, asked for again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::{ConnectionId, EventId};
use runner::api::{Asker, CauseWord, ExecutionFilter, No, Page, Rerun, Start};
use runner::automation::Kind;
use runner::engine::{Duplicate, PortError};
use runner::ids::{AutomationId, RunId, StepId, Version};
use runner::index::{CauseKind, Cursor, Park, RunFilter, RunRow};
use runner::ledger::{Admitted, AppendError, Body, Cause, Commit, ParkReason, Record, RunStatus, Writer};
use runner::schedule::Queue as _;
use runner::view;
use serde_json::{Value, json};

use super::super::live::Live;
use super::{automations, errors};

/// How long a list waits for the index to have what is durable.
pub(super) const CATCH_UP: Duration = Duration::from_secs(2);

/// Pages of the index that are looked through for one answer, where a filter is looked at run by run.
const PAGES_MAX: usize = 64;

/// Runs of one event that are told; replays are among them.
const RUNS_MAX: usize = 200;

pub(super) async fn start(
    live: &Arc<Live>,
    asker: &Asker,
    id: AutomationId,
    start: Start,
    now_unix_ms: u64,
) -> Result<(RunId, bool), No> {
    let stored = automations::get(live, asker, id, None).await?;
    if stored.is_deleted {
        return Err(No::NotFound);
    }
    let loaded = live.automations.load(&asker.tenant, id, stored.version).await;
    let automation = loaded.map_err(|error| match error {
        PortError::Gone(_) | PortError::Tenant => No::Internal,
        PortError::Unavailable(why) => No::Unavailable(why),
    })?;
    let run = if let Some(key) = &start.idempotency_key {
        // Whatever version it is by then, it is the same asking.
        RunId::of_request(&asker.tenant, id, Version::MIN, format!("key {key}").as_bytes())
    } else {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|_| No::Internal)?;
        RunId::of_request(&asker.tenant, id, stored.version, &nonce)
    };
    let input = Bytes::from(start.input.to_string());
    let input = live.payloads.keep(&asker.tenant, input).await;
    let input = input.map_err(|error| No::Unavailable(error.to_string().into()))?;
    let meant = (input.bytes, input.digest);
    let deadline = u64::try_from(automation.deadline.as_millis()).unwrap_or(u64::MAX);
    let admitted = Admitted {
        automation: id,
        version: stored.version,
        cause: Cause::Manual { by: asker.by.clone() },
        class: automation.class,
        deadline_unix_ms: now_unix_ms.saturating_add(deadline),
        input: Some(input),
    };
    let is_new = admit(live, asker, run, admitted, now_unix_ms).await?;
    if !is_new && input_of(live, asker, run).await?.is_some_and(|before| before != meant) {
        return Err(No::KeyReused);
    }
    Ok((run, is_new))
}

/// Length and digest of what a run began with. None of one whose records are past their retention: whoever asks again by
/// then is told of that run, as of any other that there was.
async fn input_of(live: &Live, asker: &Asker, run: RunId) -> Result<Option<(u64, [u8; 32])>, No> {
    let records = live.ledger.read(&asker.tenant, run).await.map_err(errors::read)?;
    let Some(Body::Admitted(before)) = records.first().map(|record| &record.body) else { return Ok(None) };
    Ok(before.input.as_ref().map(|input| (input.bytes, input.digest)))
}

/// Says whether the run is a new one: one of the same id is the same run.
pub(super) async fn admit(
    live: &Live,
    asker: &Asker,
    run: RunId,
    admitted: Admitted,
    now_unix_ms: u64,
) -> Result<bool, No> {
    let class = admitted.class;
    let commit = Commit {
        tenant: asker.tenant.clone(),
        run,
        expected: 0,
        writer: Writer::Anyone,
        at_unix_ms: now_unix_ms,
        bodies: vec![Body::Admitted(admitted)],
    };
    match live.ledger.append(commit).await {
        Ok(_) => {
            live.scheduler.enqueue(asker.tenant.clone(), run, class);
            Ok(true)
        }
        Err(AppendError::Conflict { seq }) => {
            // Nobody has begun with it: whoever admitted it may not have come to hand it in.
            if seq == 1 {
                live.scheduler.enqueue(asker.tenant.clone(), run, class);
            }
            Ok(false)
        }
        Err(AppendError::Full) => Err(No::Full),
        Err(AppendError::Tenant) => {
            tracing::error!(%run, tenant = %asker.tenant, "a run that was asked for is another tenant's");
            Err(No::NotFound)
        }
        Err(error) => {
            if matches!(error, AppendError::Unavailable(_)) {
                // It may be there all the same.
                live.scheduler.enqueue(asker.tenant.clone(), run, class);
            }
            Err(No::Unavailable(error.to_string().into()))
        }
    }
}

pub(super) async fn list(live: &Live, asker: &Asker, filter: ExecutionFilter) -> Result<Page<Value>, No> {
    let freshness = live.index.caught_up(CATCH_UP).await;
    let wanted = RunFilter {
        automation: filter.automation,
        statuses: filter.statuses.clone(),
        failure: filter.class,
        event: filter.event,
        replay: filter.replay.clone(),
        cause: filter.cause.map(|cause| match cause {
            CauseWord::Event => CauseKind::Event,
            CauseWord::Replay => CauseKind::Replay,
            CauseWord::Manual => CauseKind::Manual,
        }),
        from_unix_ms: filter.from_unix_ms,
        before_unix_ms: filter.to_unix_ms,
        dead_letters: filter.dead_letters,
    };
    let mut after: Option<Cursor> = filter.after.as_deref().map(str::parse).transpose().map_err(errors::index)?;
    let mut items = Vec::new();
    let mut names = Names::default();
    for _ in 0..PAGES_MAX {
        let left = filter.limit - items.len();
        let page = live.index.list(&asker.tenant, &wanted, after, left).await.map_err(errors::index)?;
        for row in page.runs.iter().filter(|row| fits(row, &filter)) {
            if let Some(wanted) = &filter.connection
                && !waits_for(live, asker, row, wanted).await
            {
                continue;
            }
            items.push(line(row, names.of(live, asker, row).await));
        }
        after = page.next;
        if after.is_none() || items.len() >= filter.limit {
            break;
        }
    }
    let next = after.map(|after| after.to_string().into());
    Ok(Page { items, next, is_stale: freshness.is_stale })
}

/// What the index has no list for.
fn fits(row: &RunRow, filter: &ExecutionFilter) -> bool {
    filter.endpoint.as_ref().is_none_or(|wanted| match &row.cause {
        Cause::Event { endpoint, .. } | Cause::Replay { endpoint, .. } => endpoint == wanted,
        Cause::Manual { .. } | Cause::Again { .. } => false,
    })
}

/// A run that found its connection dead before it called does not say which one that was: its automation does.
async fn waits_for(live: &Live, asker: &Asker, row: &RunRow, connection: &ConnectionId) -> bool {
    if row.park.iter().chain(&row.waits).any(|park| park.connection.as_ref() == Some(connection)) {
        return true;
    }
    may_wait_for(row, connection) && calls_through(live, asker, row.automation, row.version).await.contains(connection)
}

/// The connections that a version's nodes call through.
pub(super) async fn calls_through(
    live: &Live,
    asker: &Asker,
    automation: AutomationId,
    version: Version,
) -> Vec<ConnectionId> {
    let Ok(automation) = live.automations.load(&asker.tenant, automation, version).await else { return Vec::new() };
    let through = automation.nodes.iter().filter_map(|node| match &node.kind {
        Kind::Call { connection, .. } => Some(connection.clone()),
        Kind::Branch { .. } | Kind::Delay(_) | Kind::Transform { .. } => None,
    });
    through.collect()
}

/// A run that found its connection dead before it called has parked without a call, and through which connection the index
/// does not know. Released, it looks again, and parks again if it is another one.
fn may_wait_for(row: &RunRow, connection: &ConnectionId) -> bool {
    let is_meant = |park: &Park| park.connection.as_ref().is_none_or(|own| own == connection);
    row.park.iter().chain(&row.waits).any(|park| park.reason == ParkReason::NeedsReconnect && is_meant(park))
}

fn line(row: &RunRow, automation_name: Option<String>) -> Value {
    serde_json::to_value(view::LineView { automation_name, ..view::line(row) }).unwrap_or_default()
}

/// Names of automations, each in the version that a run is of: those of one answer are few.
#[derive(Default)]
struct Names(HashMap<(AutomationId, Version), Option<String>>);

impl Names {
    async fn of(&mut self, live: &Live, asker: &Asker, row: &RunRow) -> Option<String> {
        let at = (row.automation, row.version);
        if let Some(known) = self.0.get(&at) {
            return known.clone();
        }
        let name = automations::get(live, asker, at.0, Some(at.1)).await.ok().map(|stored| stored.name.to_string());
        self.0.insert(at, name.clone());
        name
    }
}

pub(super) async fn show(live: &Arc<Live>, asker: &Asker, run: RunId, now_unix_ms: u64) -> Result<Value, No> {
    let records = live.ledger.read(&asker.tenant, run).await.map_err(errors::read)?;
    let shown = shown(live, asker, &records, now_unix_ms).await?;
    if let Some(shown) = shown {
        return Ok(shown);
    }
    // What is left of one whose details are past their time.
    let row = live.index.get(&asker.tenant, run).await.map_err(errors::index)?.ok_or(No::NotFound)?;
    serde_json::to_value(view::of_row(&row, now_unix_ms)).map_err(|_| No::Internal)
}

async fn shown(live: &Arc<Live>, asker: &Asker, records: &[Record], now_unix_ms: u64) -> Result<Option<Value>, No> {
    if !is_of(asker, records)? {
        return Ok(None);
    }
    let plan = plan(live, asker, records).await;
    let known = view::Known {
        plan: plan.as_ref(),
        payloads: Some(&*live.payload_store),
        connectors: Some(&*live.connector_names),
        now_unix_ms,
        ..view::Known::default()
    };
    let view = view::execution(records, &known).await;
    view.map(|view| serde_json::to_value(view).map_err(|_| No::Internal)).transpose()
}

/// Whether they are a run's, from its admission on; asserts whose.
pub(super) fn is_of(asker: &Asker, records: &[Record]) -> Result<bool, No> {
    if records.iter().any(|record| record.tenant != asker.tenant) {
        tracing::error!(tenant = %asker.tenant, "a record was read that is another tenant's");
        return Err(No::NotFound);
    }
    Ok(matches!(records.first().map(|record| &record.body), Some(Body::Admitted(_))))
}

/// The graph of a run's version; none where that is gone.
pub(super) async fn plan(live: &Live, asker: &Asker, records: &[Record]) -> Option<view::Plan> {
    let Body::Admitted(admitted) = &records.first()?.body else { return None };
    let loaded = live.automations.load(&asker.tenant, admitted.automation, admitted.version).await;
    loaded.ok().map(|automation| view::Plan::of(&automation))
}

pub(super) async fn runs_of(live: &Live, asker: &Asker, event: EventId) -> Result<Vec<RunId>, No> {
    live.index.caught_up(CATCH_UP).await;
    let page = live.index.runs_of(&asker.tenant, event, RUNS_MAX).await.map_err(errors::index)?;
    Ok(page.runs.iter().map(|row| row.run).collect())
}

/// What the `executionId` of a 202 names: nothing yet, one run, or several. One run is told as it is; of several, their
/// lines, and the state that most wants to be looked at.
pub(super) async fn of_event(live: &Arc<Live>, asker: &Asker, event: EventId, now_unix_ms: u64) -> Result<Value, No> {
    live.index.caught_up(CATCH_UP).await;
    let page = live.index.runs_of(&asker.tenant, event, RUNS_MAX).await.map_err(errors::index)?;
    let (mut names, mut lines) = (Names::default(), Vec::new());
    for row in &page.runs {
        lines.push(line(row, names.of(live, asker, row).await));
    }
    let mut answer = match page.runs.as_slice() {
        [] if !is_there(live, asker, event).await? => return Err(No::NotFound),
        [] => json!({ "status": "no-run", "failedAt": null, "nodes": [] }),
        [run] => show(live, asker, run.run, now_unix_ms).await?,
        [worst, others @ ..] => {
            let worst = others.iter().fold(worst, |worst, row| if weight(row) > weight(worst) { row } else { worst });
            show(live, asker, worst.run, now_unix_ms).await?
        }
    };
    answer["executionId"] = event.execution().to_string().into();
    answer["eventId"] = event.to_string().into();
    answer["runs"] = lines.into();
    Ok(answer)
}

/// How much a state wants to be looked at.
fn weight(row: &RunRow) -> u8 {
    match row.status {
        RunStatus::NeedsAttention => 9,
        RunStatus::Quarantined => 8,
        RunStatus::EndedAmbiguous => 7,
        RunStatus::Failed => 6,
        RunStatus::TimedOut => 5,
        RunStatus::Running => 4,
        RunStatus::Parked => 3,
        RunStatus::Queued => 2,
        RunStatus::Cancelled => 1,
        RunStatus::Succeeded => 0,
    }
}

/// Whether the tenant has such an event: another's is none.
async fn is_there(live: &Live, asker: &Asker, event: EventId) -> Result<bool, No> {
    match live.events.read(&asker.tenant, event).await {
        Ok(_) => Ok(true),
        Err(PortError::Gone(_) | PortError::Tenant) => Ok(false),
        Err(PortError::Unavailable(why)) => Err(No::Unavailable(why)),
    }
}

pub(super) async fn rerun(live: &Live, asker: &Asker, run: RunId, step: StepId, rerun: Rerun) -> Result<u32, No> {
    let duplicate = if rerun.confirmed.0 { Duplicate::Accepted } else { Duplicate::NotAccepted };
    let done = live.acts.rerun(&asker.tenant, run, &step, rerun.input.as_ref(), duplicate, &asker.by).await;
    done.map_err(|error| errors::act(&error))?;
    let records = live.ledger.read(&asker.tenant, run).await.map_err(errors::read)?;
    let asked = records.iter().rev().find_map(|record| {
        let Body::Rerun(rerun) = &record.body else { return None };
        (rerun.step == step).then(|| rerun.logical.get())
    });
    asked.ok_or(No::Internal)
}

/// Says that a connection works again, and lets go on what waits for it.
pub(super) async fn reconnected(live: &Live, asker: &Asker, connection: &ConnectionId) -> Result<u64, No> {
    // Said first: whoever parks for it from here on sees that it works, and all who have are in the index then.
    live.acts.reconnected(&asker.tenant, connection, &[], &asker.by).await.map_err(|error| errors::act(&error))?;
    live.index.caught_up(CATCH_UP).await;
    let wanted = RunFilter { statuses: vec![RunStatus::NeedsAttention, RunStatus::Parked], ..RunFilter::default() };
    let (mut after, mut released) = (None, 0);
    loop {
        let page = live.index.list(&asker.tenant, &wanted, after, runner::index::PAGE_MAX).await;
        let page = page.map_err(errors::index)?;
        let waiting: Vec<_> = page.runs.iter().filter(|row| may_wait_for(row, connection)).map(|row| row.run).collect();
        let done = live.acts.reconnected(&asker.tenant, connection, &waiting, &asker.by).await;
        released += done.map_err(|error| errors::act(&error))? as u64;
        after = page.next;
        if after.is_none() {
            tracing::info!(tenant = %asker.tenant, %connection, released, by = %asker.by, "a connection works again");
            return Ok(released);
        }
    }
}
