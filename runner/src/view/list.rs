//! Lines of lists, and groups of the repair inbox.

use super::build::cause;
use super::form::{ExecutionView, GroupView, LineView, ParkView};
use super::sentence;
use super::text_of::time;
use crate::ids::{RunId, StepId};
use crate::index::{Park, RepairGroup, RepairWhy, RunRow, Word as _};

/// A run as a line of a list.
pub fn line(row: &RunRow) -> LineView {
    LineView {
        id: row.run.to_string(),
        execution_id: row.event().map(|event| event.execution().to_string()),
        automation: row.automation.to_string(),
        automation_name: None,
        version: row.version.get(),
        status: row.status.word().to_owned(),
        cause: cause(&row.cause),
        class: row.class.word().to_owned(),
        admitted_at: time(row.admitted_unix_ms),
        ended_at: row.ended_unix_ms.map(time),
        duration_ms: row.ended_unix_ms.map(|ended| ended.saturating_sub(row.admitted_unix_ms)),
        failed_at: row.failed_at.as_ref().map(StepId::to_string),
        error_class: row.failure.map(|class| class.code().to_owned()),
        parked: row.park.as_ref().map(park),
        waiting_nodes: row.waits.iter().filter_map(|wait| wait.step.as_ref()).map(StepId::to_string).collect(),
        attempts: row.attempts,
        crashes: row.crashes,
        is_dead_letter: row.is_dead_letter(),
    }
}

/// All that is left of a run whose records are gone: its row, as a view without nodes.
pub fn of_row(row: &RunRow, now_unix_ms: u64) -> ExecutionView {
    ExecutionView {
        id: row.run.to_string(),
        execution_id: row.event().map(|event| event.execution().to_string()),
        automation: row.automation.to_string(),
        automation_name: None,
        version: row.version.get(),
        status: row.status.word().to_owned(),
        summary: sentence::of_row(row),
        next: Vec::new(),
        cause: cause(&row.cause),
        class: row.class.word().to_owned(),
        admitted_at: time(row.admitted_unix_ms),
        ended_at: row.ended_unix_ms.map(time),
        duration_ms: row.ended_unix_ms.unwrap_or(now_unix_ms).saturating_sub(row.admitted_unix_ms),
        deadline: time(row.deadline_unix_ms),
        failed_at: row.failed_at.as_ref().map(StepId::to_string),
        error_class: row.failure.map(|class| class.code().to_owned()),
        parked: row.park.as_ref().map(park),
        cancel_requested: None,
        quarantined: None,
        // Who it was went with the records; that it was is what `isDeadLetter` says.
        dismissed: None,
        is_dead_letter: row.is_dead_letter(),
        crashes: row.crashes,
        input: None,
        nodes: Vec::new(),
        nodes_omitted: 0,
        records: row.seq,
        is_expired: true,
    }
}

fn park(park: &Park) -> ParkView {
    let until = park.until_unix_ms.map(time);
    ParkView { reason: park.reason.word().to_owned(), since: time(park.since_unix_ms), until }
}

/// A group of the repair inbox as people see it.
pub fn group(group: &RepairGroup) -> GroupView {
    let reason = match group.why {
        RepairWhy::Parked(reason) => Some(reason),
        RepairWhy::Quarantined => None,
    };
    GroupView {
        why: group.why.word().to_owned(),
        automation: group.automation.to_string(),
        automation_name: None,
        connection: group.connection.as_ref().map(|connection| connection.as_str().to_owned()),
        node: group.step.as_ref().map(StepId::to_string),
        count: group.count,
        oldest_since: time(group.oldest_unix_ms),
        newest_since: time(group.newest_unix_ms),
        runs: group.oldest.iter().map(RunId::to_string).collect(),
        user_action: sentence::of_group(reason).to_owned(),
    }
}
