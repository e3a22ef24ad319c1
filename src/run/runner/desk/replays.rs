//! Runs once more, as new ones.

use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use runner::api::{Asker, Confirmed, No, PlannedReplay, Replayed, Replays, StartReplays, Which};
use runner::engine::PortError;
use runner::ids::RunId;
use runner::ledger::{Admitted, Body, Cause, QueueClass};
use runner::replay::{Order, Plan, Refused, ReplayError, Selection, Why};

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
    let (cause, input) = again(live, asker, &before, &replay).await?;
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
    Ok(Replayed { replay, runs: 1, run_ids: vec![again] })
}

/// What it is begun with, as far as that is still kept.
async fn again(
    live: &Live,
    asker: &Asker,
    before: &Admitted,
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
        Cause::Manual { .. } => {
            let input = match &before.input {
                Some(input) => {
                    let bytes = live.payloads.fetch(&asker.tenant, input).await.map_err(gone)?;
                    // Its age counts from now on.
                    Some(live.payloads.keep(&asker.tenant, bytes).await.map_err(gone)?)
                }
                None => None,
            };
            Ok((Cause::Manual { by: asker.by.clone() }, input))
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
    let id = match start.replay {
        Some(id) => id,
        None => new_replay()?,
    };
    let accepted_duplicates = if start.confirmed.0 { plan.may_duplicate } else { 0 };
    let progress = replays.execute(Order { plan, id, accepted_duplicates }).await.map_err(failed)?;
    tracing::info!(tenant = %asker.tenant, replay = %progress.id, runs = progress.runs, by = %asker.by, "a replay began");
    Ok(Replayed { replay: progress.id, runs: progress.runs, run_ids: Vec::new() })
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
