//! How large a commit is, by a measure that all engines share: no encoding is larger by much.

use crate::ledger::record::{Admitted, Body, Cause, Kept, Outcome, Payload, Provider, Result};
use crate::ledger::store::Commit;

/// For what a body has whatever it says: numbers, ids, the place in its run.
const BODY_BYTES: u64 = 128;

/// Bytes of a commit: what it carries of others' texts and payloads, and a fixed part per body.
pub fn commit_bytes(commit: &Commit) -> u64 {
    commit.bodies.iter().map(|body| BODY_BYTES + variable_bytes(body)).sum()
}

fn variable_bytes(body: &Body) -> u64 {
    let bytes = match body {
        Body::Admitted(Admitted { cause, input, .. }) => cause_bytes(cause) + input.as_ref().map_or(0, kept_bytes),
        Body::Lease(lease) => lease.owner.len(),
        Body::Intent(intent) => {
            let connection = intent.connection.as_ref().map_or(0, |connection| connection.as_str().len());
            intent.step.as_str().len() + connection + kept_bytes(&intent.input)
        }
        Body::Outcome(outcome) | Body::LateOutcome(outcome) => outcome_bytes(outcome),
        Body::Parked(parked) => parked.step.as_ref().map_or(0, |step| step.as_str().len()),
        Body::Released(released) => released.by.len(),
        Body::Resolved(resolved) => resolved.step.as_str().len() + resolved.by.len(),
        Body::Rerun(rerun) => rerun.step.as_str().len() + rerun.by.len() + rerun.input.as_ref().map_or(0, kept_bytes),
        Body::CancelRequested(cancel) => cancel.by.len(),
        Body::Quarantined(quarantined) => quarantined.reason.len(),
        Body::Terminal(terminal) => terminal.failed_at.as_ref().map_or(0, |step| step.as_str().len()),
        Body::Dismissed(dismissed) => dismissed.by.len() + dismissed.reason.len(),
    };
    bytes as u64
}

fn cause_bytes(cause: &Cause) -> usize {
    match cause {
        Cause::Event { endpoint, .. } => endpoint.as_str().len(),
        Cause::Replay { endpoint, replay, .. } => endpoint.as_str().len() + replay.len(),
        Cause::Manual { by } => by.len(),
        Cause::Again { replay, by, .. } => replay.len() + by.len(),
    }
}

fn outcome_bytes(outcome: &Outcome) -> usize {
    let result = match &outcome.result {
        Result::Done { output } => kept_bytes(output),
        Result::Failed { detail, .. } => detail.len(),
        Result::Skipped | Result::Deferred { .. } | Result::Ambiguous(_) => 0,
    };
    outcome.step.as_str().len() + result + outcome.provider.as_ref().map_or(0, provider_bytes)
}

fn provider_bytes(provider: &Provider) -> usize {
    [&provider.message, &provider.request_id, &provider.correlation].into_iter().flatten().map(|text| text.len()).sum()
}

fn kept_bytes(payload: &Payload) -> usize {
    match &payload.kept {
        Kept::Inline(bytes) | Kept::Truncated(bytes) | Kept::Beginning(bytes) => bytes.len(),
        Kept::Stored | Kept::Expired => 0,
    }
}
