//! One node of a run, with all that there is of it.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use runner::api::{Asker, No, Payload};
use runner::ids::{RunId, StepId};
use runner::ledger::Record;
use runner::ledger::payloads::{Fetched, PayloadError};
use runner::view;
use serde_json::Value;

use super::super::live::Live;
use super::{errors, executions};

pub(super) async fn show(
    live: &Arc<Live>,
    asker: &Asker,
    run: RunId,
    node: &StepId,
    now_unix_ms: u64,
) -> Result<Value, No> {
    let records = records(live, asker, run).await?;
    let plan = executions::plan(live, asker, &records).await;
    let known = view::Known {
        plan: plan.as_ref(),
        payloads: Some(&*live.payload_store),
        connectors: Some(&*live.connector_names),
        now_unix_ms,
        limits: view::Limits::of_one_node(),
        only: Some(node),
    };
    let view = view::execution(&records, &known).await.ok_or(No::NotFound)?;
    let found = view.nodes.into_iter().next().ok_or(No::NotFound)?;
    let shown = view::NodeOfRun { run_id: view.id, run_status: view.status, node: found };
    serde_json::to_value(shown).map_err(|_| No::Internal)
}

pub(super) async fn payload(
    live: &Live,
    asker: &Asker,
    run: RunId,
    node: &StepId,
    part: view::Part,
) -> Result<Payload, No> {
    let records = records(live, asker, run).await?;
    let payload = view::payload_of(&records, node, part).ok_or(No::NotFound)?;
    let (shown, is_truncated) = match live.payload_store.fetch(asker.tenant.clone(), &payload).await {
        Ok(Fetched::Whole(bytes)) => (bytes, false),
        Ok(Fetched::Truncated(bytes)) => (bytes, true),
        Ok(Fetched::Expired) => {
            let digest = HEXLOWER.encode(&payload.digest);
            let why = format!("its time was up; it had {} bytes, and its digest is blake3:{digest}", payload.bytes);
            return Err(No::Expired(why.into()));
        }
        Err(fault @ PayloadError::Damaged(_)) => {
            tracing::error!(tenant = %asker.tenant, %run, %fault, "a payload cannot be given");
            return Err(No::Internal);
        }
        Err(fault @ (PayloadError::Full | PayloadError::Unavailable(_))) => {
            return Err(No::Unavailable(fault.to_string().into()));
        }
    };
    Ok(Payload { shown, bytes: payload.bytes, digest: payload.digest, is_truncated })
}

/// The records of a run that is there, and whose details are.
async fn records(live: &Live, asker: &Asker, run: RunId) -> Result<Vec<Record>, No> {
    let records = live.ledger.read(&asker.tenant, run).await.map_err(errors::read)?;
    if executions::is_of(asker, &records)? {
        return Ok(records);
    }
    // Its line may be left when its records are gone.
    live.index.get(&asker.tenant, run).await.map_err(errors::index)?.ok_or(No::NotFound)?;
    Err(No::Expired("the details of the run are past their retention; its line is what is left".into()))
}
