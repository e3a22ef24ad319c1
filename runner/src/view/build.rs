//! A run's records, put together as people look at a run.

use domain::{ConnectionId, TenantId};
use serde_json::Value;

use super::form::{By, CauseView, DismissedView, ExecutionView, NextAct, NodeView, ParkView, QuarantineView};
use super::payload::{Budget, show};
use super::plan::{Plan, PlanNode};
use super::sentence;
use super::status::{NodeStatus, of_step};
use super::steps::{Story, stories};
use super::text_of::{cut, time};
use crate::engine::state::{RunState, Settled, Standing, StepState};
use crate::failure::FailureClass;
use crate::ids::StepId;
use crate::index::{RunRow, Word as _};
use crate::ledger::payloads::PayloadStore;
use crate::ledger::{Body, Cause, ParkReason, Parked, Payload, Record};

/// How much a view shows.
///
/// # Defaults
/// 256 nodes, the last 20 attempts of each, 16 KiB of each payload and 1 MiB of all together: what fits a screenful of a
/// browser, and an answer that no client chokes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub nodes_max: usize,
    pub attempts_max: usize,
    pub payload_bytes_max: usize,
    pub payloads_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { nodes_max: 256, attempts_max: 20, payload_bytes_max: 16 << 10, payloads_bytes_max: 1 << 20 }
    }
}

impl Limits {
    /// For one node alone: all that there is of it, within what one answer may have.
    pub fn of_one_node() -> Self {
        Self { nodes_max: 1, attempts_max: 1_000, payload_bytes_max: 8 << 20, payloads_bytes_max: 16 << 20 }
    }
}

/// What a view is made of, beside the records.
#[derive(Debug, Default)]
pub struct Known<'a> {
    /// The version's graph; none where it is gone.
    pub plan: Option<&'a Plan>,
    /// Fetches what is not in the records; none: that is not shown.
    pub payloads: Option<&'a dyn PayloadStore>,
    /// Connectors of connections, by the configuration in force now.
    pub connectors: Option<&'a dyn Connectors>,
    pub now_unix_ms: u64,
    pub limits: Limits,
    /// Only this node.
    pub only: Option<&'a StepId>,
}

/// One of a node's two payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Input,
    Output,
}

/// Says which connector a connection is of.
pub trait Connectors: Send + Sync + std::fmt::Debug {
    fn connector(&self, tenant: &TenantId, connection: &ConnectionId) -> Option<Box<str>>;
}

/// Makes the view of a run. None where its records do not begin with its admission: there is no such run, or it is gone.
pub async fn execution(records: &[Record], known: &Known<'_>) -> Option<ExecutionView> {
    let state = RunState::fold(records)?;
    let limits = known.limits;
    let (order, mut stories) = stories(records, limits.attempts_max);
    let mut budget = Budget { each_max: limits.payload_bytes_max, left: limits.payloads_bytes_max };
    let mut ids = planned(known.plan, order);
    ids.retain(|(id, _)| known.only.is_none_or(|only| only == id));
    let nodes_omitted = ids.len().saturating_sub(limits.nodes_max);
    ids.truncate(limits.nodes_max);
    let input = match &state.admitted.input {
        Some(input) => Some(show(input, &state.tenant, known.payloads, &mut budget).await),
        None => None,
    };
    let mut nodes = Vec::with_capacity(ids.len());
    for (id, plan) in ids {
        let story = stories.remove(&id).unwrap_or_default();
        nodes.push(node(&id, plan, story, &state, known, &mut budget).await);
    }
    let (summary, mut next) = sentence::of(&state, &nodes);
    let row = RunRow::fold(records)?;
    if row.is_dead_letter() && state.terminal.is_some() {
        next.push(NextAct { act: "dismiss".into(), node: None, connection: None, choices: Vec::new() });
    }
    let ended = state.ended_unix_ms;
    Some(ExecutionView {
        id: state.run.to_string(),
        execution_id: event(&state.admitted.cause),
        automation: state.admitted.automation.to_string(),
        automation_name: known.plan.map(|plan| plan.name.to_string()),
        version: state.admitted.version.get(),
        status: state.status().word().to_owned(),
        summary,
        next,
        cause: cause(&state.admitted.cause),
        class: state.admitted.class.word().to_owned(),
        admitted_at: time(state.admitted_unix_ms),
        ended_at: ended.map(time),
        duration_ms: ended.unwrap_or(known.now_unix_ms).saturating_sub(state.admitted_unix_ms),
        deadline: time(state.deadline_unix_ms),
        failed_at: state.terminal.as_ref().and_then(|terminal| terminal.failed_at.as_ref()).map(StepId::to_string),
        error_class: state.terminal.as_ref().and_then(|terminal| terminal.class).map(|class| class.code().to_owned()),
        parked: parked(records, &state),
        cancel_requested: cancel(records, &state),
        quarantined: quarantined(records, &state),
        dismissed: dismissed(records, &state),
        is_dead_letter: row.is_dead_letter(),
        crashes: row.crashes,
        input,
        nodes,
        nodes_omitted,
        records: state.seq,
        is_expired: false,
    })
}

/// Those of the automation in its order, and behind them such as are in no plan.
fn planned(plan: Option<&Plan>, order: Vec<StepId>) -> Vec<(StepId, Option<&PlanNode>)> {
    let mut ids: Vec<_> =
        plan.into_iter().flat_map(|plan| &plan.nodes).map(|node| (node.id.clone(), Some(node))).collect();
    let is_planned = |id: &StepId, ids: &[(StepId, Option<&PlanNode>)]| ids.iter().any(|(planned, _)| planned == id);
    for id in order {
        if !is_planned(&id, &ids) {
            ids.push((id, None));
        }
    }
    ids
}

async fn node(
    id: &StepId,
    plan: Option<&PlanNode>,
    story: Story,
    state: &RunState,
    known: &Known<'_>,
    budget: &mut Budget,
) -> NodeView {
    let step = state.steps.get(id);
    let status = of_step(step, state);
    let planned = || plan.and_then(|plan| ConnectionId::parse(plan.connection.as_deref()?).ok());
    let connection = story.connection.clone().or_else(planned);
    let class = failure(step, status);
    let provider = connection.as_ref().and_then(|it| known.connectors?.connector(&state.tenant, it));
    let mut shown = [None, None];
    for (view, payload) in shown.iter_mut().zip([&story.input, &story.output]) {
        if let Some(payload) = payload {
            *view = Some(show(payload, &state.tenant, known.payloads, budget).await);
        }
    }
    let [input, output] = shown;
    let kind = plan.map(|plan| plan.kind);
    let chosen = output.as_ref().filter(|_| kind == Some("branch")).and_then(|output| output.value.as_ref());
    let began = story.began_unix_ms;
    let so_far = || (!status.is_settled()).then(|| state.ended_unix_ms.unwrap_or(known.now_unix_ms));
    let until = story.last_unix_ms.or_else(so_far);
    NodeView {
        id: id.to_string(),
        kind: kind.map(str::to_owned),
        action: plan.and_then(|plan| plan.action.as_deref()).map(str::to_owned),
        status: status.word().to_owned(),
        after: plan.map(|plan| plan.after.iter().map(ToString::to_string).collect()).unwrap_or_default(),
        chosen: chosen.and_then(Value::as_str).map(cut),
        started_at: began.map(time),
        ended_at: story.last_unix_ms.filter(|_| status.is_settled()).map(time),
        duration_ms: began.and_then(|began| Some(until?.saturating_sub(began))),
        input,
        output,
        error_class: class.map(|class| class.code().to_owned()),
        error: class.map(|class| class.title().to_owned()),
        error_detail: story.detail.filter(|_| class.is_some()),
        connection: connection.map(|connection| connection.as_str().to_owned()),
        provider: provider.map(Into::into),
        provider_message: story.provider_message,
        user_action: class.map(|class| action(class, status).to_owned()),
        parked: step.and_then(|step| waits(step, status)),
        attempts: story.attempts,
        attempts_omitted: story.omitted,
        late_outcomes: story.late,
        choices: story.choices,
    }
}

/// What a node's failure is, also while something is still done about it.
fn failure(step: Option<&StepState>, status: NodeStatus) -> Option<FailureClass> {
    match (&step?.standing, status) {
        (Standing::Settled(Settled::Failed { class, .. }) | Standing::Retry { class, .. }, _) => Some(*class),
        (Standing::NeedsReconnect, _) => Some(FailureClass::AuthenticationExpired),
        (_, NodeStatus::Ambiguous | NodeStatus::NeedsAttention) => Some(FailureClass::Ambiguous),
        (
            Standing::Fresh
            | Standing::Open(_)
            | Standing::NotHappened { .. }
            | Standing::Deferred { .. }
            | Standing::Ambiguous
            | Standing::Settled(_),
            _,
        ) => None,
    }
}

/// What to do about it. Of a run that is over there is nothing to choose any more.
fn action(class: FailureClass, status: NodeStatus) -> &'static str {
    if status == NodeStatus::Ambiguous { sentence::IN_DOUBT_AT_THE_END } else { class.action() }
}

fn waits(step: &StepState, status: NodeStatus) -> Option<ParkView> {
    let (reason, until) = match &step.standing {
        Standing::Deferred { until_unix_ms, reason } => (*reason, Some(*until_unix_ms)),
        Standing::Retry { .. } | Standing::NotHappened { .. } => (ParkReason::Backoff, None),
        Standing::NeedsReconnect => (ParkReason::NeedsReconnect, None),
        Standing::Ambiguous => (ParkReason::Ambiguous, None),
        Standing::Fresh | Standing::Open(_) | Standing::Settled(_) => return None,
    };
    (!status.is_settled()).then(|| ParkView {
        reason: reason.word().to_owned(),
        since: time(step.at_unix_ms),
        until: until.map(time),
    })
}

fn event(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Event { event, .. } | Cause::Replay { event, .. } => Some(event.execution().to_string()),
        Cause::Manual { .. } | Cause::Again { .. } => None,
    }
}

pub(super) fn cause(cause: &Cause) -> CauseView {
    let view =
        |kind: &str| CauseView { kind: kind.to_owned(), event: None, endpoint: None, replay: None, of: None, by: None };
    match cause {
        Cause::Event { event, endpoint } => {
            CauseView { event: Some(event.to_string()), endpoint: Some(endpoint.to_string()), ..view("event") }
        }
        Cause::Replay { event, endpoint, replay } => CauseView {
            event: Some(event.to_string()),
            endpoint: Some(endpoint.to_string()),
            replay: Some(cut(replay)),
            ..view("replay")
        },
        Cause::Manual { by } => CauseView { by: Some(cut(by)), ..view("manual") },
        Cause::Again { of, replay, by } => {
            CauseView { replay: Some(cut(replay)), of: Some(of.to_string()), by: Some(cut(by)), ..view("replay") }
        }
    }
}

/// When the last record of a kind was written.
fn last(records: &[Record], is_it: impl Fn(&Body) -> bool) -> Option<u64> {
    records.iter().rev().find(|record| is_it(&record.body)).map(|record| record.at_unix_ms)
}

fn parked(records: &[Record], state: &RunState) -> Option<ParkView> {
    let parked = state.parked.as_ref()?;
    let since = last(records, |body| matches!(body, Body::Parked(Parked { step: None, .. })))?;
    let (reason, until) = (parked.reason.word().to_owned(), parked.until_unix_ms.map(time));
    Some(ParkView { reason, since: time(since), until })
}

fn cancel(records: &[Record], state: &RunState) -> Option<By> {
    let by = cut(&state.cancel.as_ref()?.by);
    Some(By { by, at: time(last(records, |body| matches!(body, Body::CancelRequested(_)))?) })
}

fn quarantined(records: &[Record], state: &RunState) -> Option<QuarantineView> {
    let quarantined = state.quarantined.as_ref()?;
    let at = time(last(records, |body| matches!(body, Body::Quarantined(_)))?);
    Some(QuarantineView { reason: cut(&quarantined.reason), crashes: quarantined.crashes, at })
}

fn dismissed(records: &[Record], state: &RunState) -> Option<DismissedView> {
    let dismissed = state.dismissed.as_ref()?;
    let at = time(last(records, |body| matches!(body, Body::Dismissed(_)))?);
    Some(DismissedView { by: cut(&dismissed.by), reason: cut(&dismissed.reason), at })
}

/// What a node was given last, or what came of it, as it is kept. None where the run has no such node, or no such payload.
pub fn payload(records: &[Record], node: &StepId, part: Part) -> Option<Payload> {
    let (_, mut stories) = stories(records, 1);
    let story = stories.remove(node)?;
    match part {
        Part::Input => story.input,
        Part::Output => story.output,
    }
}
