//! Runs once more, as new ones.

use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use runner::api::{
    Asker, Confirmed, LIMIT_MAX, No, PlannedReplay, ReplayProgress, ReplayRuns, Replayed, Replays, StartReplays, Which,
};
use runner::engine::PortError;
use runner::ids::RunId;
use runner::index::{RunFilter, Tally, is_over};
use runner::ledger::{Admitted, Body, Cause, QueueClass, RunStatus};
use runner::replay::{Order, Plan, Progress, Refused, ReplayError, ReplayState, Selection, Why};

use super::super::live::Live;
use super::{automations, errors, executions};

const NO_LOG: &str = "this node has no event log: there is nothing to replay from";

/// One run again: of the same event, or with the same input, under the version that is the last one now.
pub(super) async fn one(
    live: &Arc<Live>,
    asker: &Asker,
    run: RunId,
    confirmed: Confirmed,
    now_unix_ms: u64,
) -> Result<Replayed, No> {
    let records = live.ledger.read(&asker.tenant, run).await.map_err(errors::read)?;
    let Some(Body::Admitted(before)) = records.into_iter().next().map(|record| record.body) else {
        return Err(No::NotFound);
    };
    if !confirmed.0 {
        let why = "effects of the run may happen a second time: say that you accept it (confirmDuplicates)";
        return Err(No::Unconfirmed(why.into()));
    }
    let stored = automations::get(live, asker, before.automation, None).await?;
    if stored.is_deleted {
        return Err(No::State("the automation is deleted".into()));
    }
    let loaded = live.automations.load(&asker.tenant, stored.id, stored.version).await;
    let automation = loaded.map_err(|error| match error {
        PortError::Gone(_) | PortError::Tenant => No::Internal,
        PortError::Unavailable(why) => No::Unavailable(why),
    })?;
    let replay = new_replay()?;
    let (cause, input) = again(live, asker, (run, &before), &replay).await?;
    let again = RunId::of_request(&asker.tenant, stored.id, stored.version, replay.as_bytes());
    let deadline = u64::try_from(automation.deadline.as_millis()).unwrap_or(u64::MAX);
    let admitted = Admitted {
        automation: stored.id,
        version: stored.version,
        cause,
        // Somebody waits for this one.
        class: QueueClass::Interactive,
        deadline_unix_ms: now_unix_ms.saturating_add(deadline),
        input,
    };
    executions::admit(live, asker, again, admitted, now_unix_ms).await?;
    Ok(Replayed { replay, runs: 1, run_ids: vec![again], is_new: true })
}

/// What it is begun with, as far as that is still kept.
async fn again(
    live: &Live,
    asker: &Asker,
    (run, before): (RunId, &Admitted),
    replay: &str,
) -> Result<(Cause, Option<runner::ledger::Payload>), No> {
    let gone = |error| match error {
        PortError::Gone(why) => No::Expired(why),
        PortError::Unavailable(why) => No::Unavailable(why),
        PortError::Tenant => No::NotFound,
    };
    match &before.cause {
        Cause::Event { event, endpoint } | Cause::Replay { event, endpoint, .. } => {
            live.events.read(&asker.tenant, *event).await.map_err(gone)?;
            Ok((Cause::Replay { event: *event, endpoint: endpoint.clone(), replay: replay.into() }, None))
        }
        Cause::Manual { .. } | Cause::Again { .. } => {
            let input = match &before.input {
                Some(input) => {
                    let bytes = live.payloads.fetch(&asker.tenant, input).await.map_err(gone)?;
                    // Its age counts from now on.
                    Some(live.payloads.keep(&asker.tenant, bytes).await.map_err(gone)?)
                }
                None => None,
            };
            Ok((Cause::Again { of: run, replay: replay.into(), by: asker.by.clone() }, input))
        }
    }
}

fn new_replay() -> Result<Box<str>, No> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| No::Internal)?;
    Ok(format!("rep_{}", BASE32_NOPAD.encode(&random).to_ascii_lowercase()).into())
}

pub(super) async fn plan(live: &Live, asker: &Asker, replays: Replays) -> Result<PlannedReplay, No> {
    let selection = Selection {
        tenant: asker.tenant.clone(),
        automation: replays.automation,
        endpoint: replays.endpoint,
        from_unix_ms: replays.from_unix_ms.unwrap_or(0),
        until_unix_ms: replays.to_unix_ms.unwrap_or(u64::MAX),
        why: match replays.which {
            Which::All => Why::All,
            Which::NeverBegan => Why::NeverBegan,
            Which::NotSucceeded => Why::NotSucceeded,
            Which::FailedWith(class) => Why::FailedWith(class),
        },
    };
    let planner = live.replays.as_ref().ok_or_else(|| No::State(NO_LOG.into()))?;
    let plan = planner.plan(selection).await.map_err(failed)?;
    Ok(PlannedReplay {
        replay: plan.digest.replay(),
        events: plan.events,
        runs: plan.runs,
        may_duplicate: plan.may_duplicate,
        conditions_failed: plan.conditions_failed,
        plan: serde_json::to_value(plan).map_err(|_| No::Internal)?,
    })
}

pub(super) async fn start(live: &Live, asker: &Asker, start: StartReplays) -> Result<Replayed, No> {
    let plan: Plan = serde_json::from_value(start.plan)
        .map_err(|_| No::PlanChanged("that is no plan, as an answer had it".into()))?;
    if plan.selection.tenant != asker.tenant {
        return Err(No::NotFound);
    }
    let replays = live.replays.as_ref().ok_or_else(|| No::State(NO_LOG.into()))?;
    let own = plan.digest.replay();
    let id = start.name.unwrap_or_else(|| own.clone());
    let progress = replays.progress(&asker.tenant, &id);
    if let Some(progress) = progress.as_ref().filter(|it| it.state == ReplayState::UnderWay && id == own) {
        // It is what was asked for: the name is the plan's.
        return Ok(begun(progress, false));
    }
    let is_new = progress.is_none() && !has_runs(live, asker, &id).await?;
    let accepted_duplicates = if start.confirmed.0 { plan.may_duplicate } else { 0 };
    let progress = replays.execute(Order { plan, id, accepted_duplicates }).await.map_err(failed)?;
    tracing::info!(tenant = %asker.tenant, replay = %progress.id, runs = progress.runs, is_new, by = %asker.by, "a replay began");
    Ok(begun(&progress, is_new))
}

fn begun(progress: &Progress, is_new: bool) -> Replayed {
    Replayed { replay: progress.id.clone(), runs: progress.runs, run_ids: Vec::new(), is_new }
}

fn of_replay(name: &str) -> RunFilter {
    RunFilter { replay: Some(name.into()), ..RunFilter::default() }
}

async fn has_runs(live: &Live, asker: &Asker, name: &str) -> Result<bool, No> {
    live.index.caught_up(executions::CATCH_UP).await;
    let page = live.index.list(&asker.tenant, &of_replay(name), None, 1).await.map_err(errors::index)?;
    Ok(!page.runs.is_empty())
}

/// Those that this process has begun and remembers, and others that the index has runs of.
pub(super) async fn list(live: &Live, asker: &Asker) -> Result<Vec<ReplayProgress>, No> {
    let known = live.replays.as_ref().map(|replays| replays.list(&asker.tenant));
    let mut all: Vec<_> = known.unwrap_or_default().iter().map(progress_of).collect();
    live.index.caught_up(executions::CATCH_UP).await;
    for name in live.index.replays(&asker.tenant, LIMIT_MAX).await.map_err(errors::index)? {
        if all.iter().all(|known| known.replay != name) {
            all.push(unknown(name, None));
        }
    }
    Ok(all)
}

/// One that this process did not begin.
fn unknown(name: Box<str>, admitted: Option<u64>) -> ReplayProgress {
    ReplayProgress { replay: name, state: None, planned: None, admitted, refused: 0 }
}

fn progress_of(progress: &Progress) -> ReplayProgress {
    ReplayProgress {
        replay: progress.id.clone(),
        state: Some(progress.state),
        planned: Some(progress.runs),
        admitted: Some(progress.begun + progress.already),
        refused: progress.refused,
    }
}

pub(super) async fn show(live: &Live, asker: &Asker, name: &str) -> Result<(ReplayProgress, ReplayRuns, bool), No> {
    let known = live.replays.as_ref().and_then(|replays| replays.progress(&asker.tenant, name));
    let freshness = live.index.caught_up(executions::CATCH_UP).await;
    let tally = live.index.tally(&asker.tenant, &of_replay(name)).await.map_err(errors::index)?;
    let there: u64 = tally.by_status.values().sum();
    let progress = match known.as_ref().map(progress_of) {
        // What it had under way when it was stopped may be there, too.
        Some(progress) => ReplayProgress { admitted: progress.admitted.max(Some(there)), ..progress },
        None if there == 0 => return Err(No::NotFound),
        None => unknown(name.into(), Some(there)),
    };
    Ok((progress, counted(&tally), freshness.is_stale))
}

fn counted(tally: &Tally) -> ReplayRuns {
    let mut runs = ReplayRuns { is_partial: tally.is_partial, ..ReplayRuns::default() };
    for (status, count) in &tally.by_status {
        runs.begun += if *status == RunStatus::Queued { 0 } else { *count };
        runs.over += if is_over(*status) { *count } else { 0 };
        match status {
            RunStatus::Succeeded => runs.succeeded += count,
            RunStatus::Failed | RunStatus::TimedOut | RunStatus::EndedAmbiguous => runs.failed += count,
            RunStatus::NeedsAttention | RunStatus::Quarantined => runs.needs_attention += count,
            RunStatus::Queued | RunStatus::Running | RunStatus::Parked | RunStatus::Cancelled => {}
        }
    }
    runs
}

pub(super) async fn stop(live: &Live, asker: &Asker, name: &str) -> Result<ReplayProgress, No> {
    let is_stopped = live.replays.as_ref().is_some_and(|replays| replays.stop(&asker.tenant, name));
    let (progress, ..) = show(live, asker, name).await?;
    if !is_stopped {
        return Err(No::State(
            "it is not under way: it is over, was stopped, or was begun before this process was".into(),
        ));
    }
    tracing::info!(tenant = %asker.tenant, replay = %name, by = %asker.by, "a replay was stopped");
    Ok(progress)
}

fn failed(error: ReplayError) -> No {
    match error {
        ReplayError::Refused(refused) => match &refused {
            Refused::NoAutomation => No::NotFound,
            Refused::Changed => No::PlanChanged(refused.to_string().into()),
            Refused::Duplicates { .. } => No::Unconfirmed(refused.to_string().into()),
            Refused::Busy => No::Unavailable(refused.to_string().into()),
            Refused::EmptyRange | Refused::TooMany { .. } | Refused::Id => No::State(refused.to_string().into()),
        },
        ReplayError::Ledger(error) => errors::read(error),
        ReplayError::Crashed => No::Internal,
        ReplayError::Log(_) | ReplayError::Definitions(_) | ReplayError::History(_) => {
            No::Unavailable(error.to_string().into())
        }
    }
}
