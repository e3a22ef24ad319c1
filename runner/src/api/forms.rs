//! What answers are made of.

use serde_json::{Value, json};

use super::answer::ApiAnswer;
use super::desk::{Inbox, PlannedReplay, ReplayProgress, ReplayRuns, Replayed, Saved};
use super::no::{DocumentFault, No};
use crate::automation::time::format_rfc3339;
use crate::automation::{ConnectionState, Listed, Stored};
use crate::ids::RunId;
use crate::replay::ReplayState;

pub(super) fn place_unknown() -> No {
    No::Malformed(vec![DocumentFault::new("?after", "is no place that an answer named")])
}

pub(super) fn accepted(run: RunId) -> ApiAnswer {
    ApiAnswer::json(202, &json!({ "runId": run })).with("Location", format!("/executions/{run}"))
}

pub(super) fn paged(name: &str, items: &[Value], next: Option<&str>, is_stale: bool) -> ApiAnswer {
    ApiAnswer::json(200, &json!({ name: items, "next": next, "isStale": is_stale }))
}

pub(super) fn warning_line(warning: &DocumentFault) -> Value {
    json!({ "path": warning.path, "message": warning.message })
}

pub(super) fn etag(stored: &Stored) -> String {
    format!("\"{}\"", stored.version)
}

pub(super) fn stored_answer(status: u16, saved: &Saved) -> ApiAnswer {
    let mut shown = stored_json(&saved.stored);
    shown["isUnchanged"] = saved.is_unchanged.into();
    shown["warnings"] = saved.warnings.iter().map(warning_line).collect();
    ApiAnswer::json(status, &shown).with("ETag", etag(&saved.stored))
}

pub(super) fn stored_json(stored: &Stored) -> Value {
    json!({
        "id": stored.id,
        "name": stored.name,
        "version": stored.version,
        "digest": data_encoding::HEXLOWER.encode(&stored.digest),
        "endpoints": stored.endpoints.iter().map(domain::EndpointId::as_str).collect::<Vec<_>>(),
        "isEnabled": stored.is_enabled,
        "isDeleted": stored.is_deleted,
        "at": format_rfc3339(stored.at_unix_ms),
        "by": stored.by,
    })
}

pub(super) fn listed(listed: &Listed) -> Value {
    json!({
        "id": listed.id,
        "name": listed.name,
        "version": listed.version,
        "isEnabled": listed.is_enabled,
        "isDeleted": listed.is_deleted,
        "at": format_rfc3339(listed.at_unix_ms),
    })
}

pub(super) fn replayed_json(replayed: &Replayed) -> Value {
    json!({
        "replay": replayed.replay,
        "runs": replayed.runs,
        "runIds": replayed.run_ids,
        "isNew": replayed.is_new,
    })
}

pub(super) fn planned_json(plan: &PlannedReplay) -> Value {
    json!({
        "plan": plan.plan,
        "replay": plan.replay,
        "events": plan.events,
        "runs": plan.runs,
        "mayDuplicate": plan.may_duplicate,
        "conditionsFailed": plan.conditions_failed,
    })
}

pub(super) fn progress_json(progress: &ReplayProgress) -> Value {
    json!({
        "replay": progress.replay,
        "state": state_word(progress.state),
        "planned": progress.planned,
        "admitted": progress.admitted,
        "refused": progress.refused,
    })
}

pub(super) fn replay_json(progress: &ReplayProgress, runs: ReplayRuns, is_stale: bool) -> Value {
    let mut shown = progress_json(progress);
    for (key, count) in [
        ("begun", runs.begun),
        ("over", runs.over),
        ("succeeded", runs.succeeded),
        ("failed", runs.failed),
        ("needsAttention", runs.needs_attention),
    ] {
        shown[key] = count.into();
    }
    shown["isPartial"] = runs.is_partial.into();
    shown["isStale"] = is_stale.into();
    shown
}

fn state_word(state: Option<ReplayState>) -> &'static str {
    match state {
        Some(ReplayState::UnderWay) => "under-way",
        Some(ReplayState::Done) => "done",
        Some(ReplayState::Stopped) => "stopped",
        None => "unknown",
    }
}

pub(super) fn inbox_json(inbox: &Inbox) -> Value {
    let connections = inbox.connections.iter().map(|(id, state)| connection_json(id.as_str(), state));
    json!({
        "groups": inbox.groups,
        "isPartial": inbox.is_partial,
        "connections": connections.collect::<Vec<_>>(),
        "deadLetters": inbox.dead_letters.items,
        "next": inbox.dead_letters.next,
        "isStale": inbox.dead_letters.is_stale,
    })
}

pub(super) fn connection_json(id: &str, state: &ConnectionState) -> Value {
    match state {
        ConnectionState::Connected => json!({ "id": id, "state": "connected" }),
        ConnectionState::NeedsReconnect { since_unix_ms, reason } => json!({
            "id": id,
            "state": "needs_reconnect",
            "since": format_rfc3339(*since_unix_ms),
            "reason": reason,
        }),
    }
}
