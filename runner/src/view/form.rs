//! The form of an execution, as the API gives it and the command line reads it. Keys and words are for ever; more may come.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::payload::PayloadView;

/// One run, from its records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionView {
    /// The run's own, `run_…`.
    pub id: String,
    /// What the 202 of its event said; none of a run by hand.
    pub execution_id: Option<String>,
    pub automation: String,
    /// The automation's name in the run's version; none where that is gone.
    pub automation_name: Option<String>,
    pub version: u32,
    pub status: String,
    /// What happened, and what to do next.
    pub summary: String,
    /// What can be done about it, the first one first.
    pub next: Vec<NextAct>,
    pub cause: CauseView,
    /// The queue that it began in.
    pub class: String,
    pub admitted_at: String,
    pub ended_at: Option<String>,
    /// Up to its end, or up to now.
    pub duration_ms: u64,
    /// When it ends unfinished.
    pub deadline: String,
    pub failed_at: Option<String>,
    pub error_class: Option<String>,
    /// What all of it waits for.
    pub parked: Option<ParkView>,
    pub cancel_requested: Option<By>,
    pub quarantined: Option<QuarantineView>,
    /// Who said that nobody needs to look at it any more.
    pub dismissed: Option<DismissedView>,
    /// Somebody should look at it, however old it is.
    pub is_dead_letter: bool,
    /// Workers that were lost over it.
    pub crashes: u32,
    /// What it was started with, where that is no event.
    pub input: Option<PayloadView>,
    /// In the order of the automation; those of which there is no record too, where the version is known.
    pub nodes: Vec<NodeView>,
    /// Nodes that are left out.
    pub nodes_omitted: usize,
    /// Records of the run.
    pub records: u64,
    /// Its records begin with no admission that is left: details are past their retention.
    pub is_expired: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseView {
    /// `event`, `replay` or `manual`.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replay: Option<String>,
    /// Of a replay of a run that somebody had started: that run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct By {
    pub by: String,
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantineView {
    pub reason: String,
    pub crashes: u32,
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DismissedView {
    pub by: String,
    /// In their words.
    pub reason: String,
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParkView {
    pub reason: String,
    pub since: String,
    /// When it goes on by itself.
    pub until: Option<String>,
}

/// Something that somebody can do, in the words of the API and the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextAct {
    /// `resolve`, `reconnect`, `rerun`, `replay`, `release`, `cancel`, `dismiss` or `wait`.
    pub act: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connection: Option<String>,
    /// Of `resolve`: what can be chosen.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub choices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    pub id: String,
    /// `call`, `branch`, `delay` or `transform`; none where the version is gone.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Of a call.
    pub action: Option<String>,
    pub status: String,
    /// What it waits for in the graph: nodes, and of a branch the case.
    pub after: Vec<String>,
    /// Of a branch: the case that was chosen.
    pub chosen: Option<String>,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    /// From its first attempt to its outcome, waits in between and all; up to now where there is none yet.
    pub duration_ms: Option<u64>,
    /// What was sent last.
    pub input: Option<PayloadView>,
    pub output: Option<PayloadView>,
    pub error_class: Option<String>,
    /// What happened, in a sentence.
    pub error: Option<String>,
    /// The particulars, where there are any.
    pub error_detail: Option<String>,
    pub connection: Option<String>,
    /// Whose API was called: the connector, where it is known.
    pub provider: Option<String>,
    /// The provider's own words, redacted.
    pub provider_message: Option<String>,
    /// What to do about it, in a sentence.
    pub user_action: Option<String>,
    /// What it waits for.
    pub parked: Option<ParkView>,
    /// Oldest first.
    pub attempts: Vec<AttemptView>,
    /// Attempts that are left out, from the oldest that are not shown on.
    pub attempts_omitted: usize,
    /// What came of attempts after their worker had lost the run.
    pub late_outcomes: Vec<AttemptView>,
    /// Who decided what about it.
    pub choices: Vec<ChoiceView>,
}

/// One try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// `logical.physical`: how often its author asked, and tries of that asking.
    pub attempt: String,
    /// `first`, `retry`, `after-park`, `worker-lost`, `no-answer`, `not-happened`, `read-back`, `rerun` or `choice`.
    pub why: String,
    /// `done`, `skipped`, `failed`, `deferred`, `ambiguous`, or `open` where there is no outcome.
    pub result: String,
    pub at: Option<String>,
    pub ended_at: Option<String>,
    pub duration_ms: Option<u64>,
    pub effect_key: Option<String>,
    pub error_class: Option<String>,
    pub detail: Option<String>,
    /// How much of the request can have reached the provider.
    pub send_state: Option<String>,
    pub provider_status: Option<u16>,
    pub provider_message: Option<String>,
    /// By what name the provider's own logs know the request.
    pub provider_request_id: Option<String>,
    /// By what name `tidegate egress log` knows the call.
    pub correlation_id: Option<String>,
    /// When the next one is made, where that is known.
    pub next_attempt_at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChoiceView {
    /// `continue-accept-gap`, `retry-accept-duplicate` or `rerun`.
    pub choice: String,
    pub attempt: String,
    pub by: String,
    pub at: String,
}

/// One node of a run, with all that there is of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOfRun {
    pub run_id: String,
    /// Of the run.
    pub run_status: String,
    pub node: NodeView,
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineView {
    pub id: String,
    pub execution_id: Option<String>,
    pub automation: String,
    #[serde(default)]
    pub automation_name: Option<String>,
    pub version: u32,
    pub status: String,
    pub cause: CauseView,
    pub class: String,
    pub admitted_at: String,
    pub ended_at: Option<String>,
    pub duration_ms: Option<u64>,
    pub failed_at: Option<String>,
    pub error_class: Option<String>,
    pub parked: Option<ParkView>,
    /// Nodes that wait for somebody.
    pub waiting_nodes: Vec<String>,
    pub attempts: u32,
    pub crashes: u32,
    pub is_dead_letter: bool,
}

/// A group of the repair inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// `ambiguous`, `needs-reconnect`, `quarantined`, or what else runs are parked for.
    pub why: String,
    pub automation: String,
    /// By what name its last version goes; none where that is gone.
    #[serde(default)]
    pub automation_name: Option<String>,
    pub connection: Option<String>,
    pub node: Option<String>,
    pub count: u64,
    pub oldest_since: String,
    pub newest_since: String,
    /// Those that have waited longest.
    pub runs: Vec<String>,
    /// What to do about all of them, in a sentence.
    pub user_action: String,
}

/// A value of JSON in an answer, for whoever needs no type.
pub fn json<T: Serialize>(view: &T) -> Value {
    serde_json::to_value(view).unwrap_or(Value::Null)
}
