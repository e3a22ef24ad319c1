//! What happened and what to do next, in words.

use super::form::{NextAct, NodeView};
use super::steps::{in_doubt, put_off};
use super::text_of::{time, workers_were_lost};
use crate::engine::state::{RunState, StepState};
use crate::failure::FailureClass;
use crate::ids::StepId;
use crate::index::{RunRow, Word as _};
use crate::ledger::{Choice, ParkReason, RunStatus};

/// Bytes of somebody's own words in a sentence.
const WORDS_BYTES_MAX: usize = 200;

/// What to do about an effect that is in doubt when its run is over, and nothing is left to choose about.
pub(super) const IN_DOUBT_AT_THE_END: &str = "Look at the provider; if it has not happened, re-run the node.";

/// The sentence of a run, and what can be done about it.
pub(super) fn of(state: &RunState, nodes: &[NodeView]) -> (String, Vec<NextAct>) {
    match state.status() {
        RunStatus::Queued | RunStatus::Running if state.cancel.is_some() => {
            ("It is being cancelled.".into(), Vec::new())
        }
        RunStatus::Queued => ("It waits for a worker.".into(), vec![act("wait")]),
        RunStatus::Running => (running(nodes), vec![act("wait")]),
        RunStatus::Parked => (parked(state, nodes), vec![act("wait")]),
        RunStatus::NeedsAttention => attention(state, nodes),
        RunStatus::Quarantined => quarantined(state),
        RunStatus::Succeeded => (succeeded(nodes), Vec::new()),
        RunStatus::Failed => failed(state, nodes),
        RunStatus::Cancelled => cancelled(state, nodes),
        RunStatus::TimedOut => timed_out(state, nodes),
        RunStatus::EndedAmbiguous => ended_ambiguous(state),
    }
}

fn act(act: &str) -> NextAct {
    NextAct { act: act.to_owned(), node: None, connection: None, choices: Vec::new() }
}

fn at_step(name: &str, step: &str) -> NextAct {
    NextAct { node: Some(step.to_owned()), ..act(name) }
}

/// Names of nodes that stand so, at most a few of them.
fn named(nodes: &[NodeView], status: &str) -> Option<String> {
    const NAMED_MAX: usize = 3;
    let names: Vec<_> = nodes.iter().filter(|node| node.status == status).map(|node| &*node.id).collect();
    let (shown, more) = names.split_at(names.len().min(NAMED_MAX));
    let shown = shown.join(", ");
    match more.len() {
        0 if shown.is_empty() => None,
        0 => Some(shown),
        more => Some(format!("{shown} and {more} more")),
    }
}

fn running(nodes: &[NodeView]) -> String {
    match (named(nodes, "running"), named(nodes, "needs-attention")) {
        (Some(names), Some(waits)) => format!("Under way: {names}. Waiting for somebody: {waits}."),
        (Some(names), None) => format!("Under way: {names}."),
        (None, _) => "A worker has it.".into(),
    }
}

fn parked(state: &RunState, nodes: &[NodeView]) -> String {
    let Some(parked) = &state.parked else { return "It waits.".into() };
    let names = named(nodes, "parked").or_else(|| named(nodes, "retrying"));
    let at = names.map_or_else(String::new, |names| format!(" ({names})"));
    let until =
        parked.until_unix_ms.map_or_else(|| "until somebody acts".into(), |until| format!("until {}", time(until)));
    format!("It waits {until}{at}: {}. Nothing has to be done.", put_off(parked.reason))
}

fn attention(state: &RunState, nodes: &[NodeView]) -> (String, Vec<NextAct>) {
    let end = time(state.deadline_unix_ms);
    if let Some((id, step)) = state.in_doubt() {
        let why = said_of(nodes, id).or_else(|| Some(in_doubt(step.doubt.as_ref()?.why))).unwrap_or_default();
        let text = format!(
            "Nobody knows whether {id} has had its effect: {why}. Look at the provider, then choose: continue and accept a \
             gap, or retry and accept a duplicate. Unless somebody chooses, the run ends at {end}."
        );
        return (text, doubts(state));
    }
    let dead =
        nodes.iter().find(|node| node.error_class.as_deref() == Some(FailureClass::AuthenticationExpired.code()));
    // A run that found the connection dead before it called has no node that says so.
    let connection = dead.and_then(|node| node.connection.clone()).or_else(|| next_connection(nodes));
    let name = connection.as_deref().map_or_else(|| "a connection".into(), |name| format!("connection {name}"));
    let said = dead.and_then(|node| node.provider_message.as_deref()).map(quoted).unwrap_or_default();
    let text = format!(
        "The authentication of {name} is no longer good.{said} Connect the account anew: the run goes on by itself then. \
         Otherwise it ends at {end}."
    );
    (text, vec![NextAct { connection, ..act("reconnect") }])
}

/// What the last try of a node that is in doubt says of it.
fn said_of<'n>(nodes: &'n [NodeView], id: &StepId) -> Option<&'n str> {
    let node = nodes.iter().find(|node| node.id == id.as_str())?;
    node.attempts.iter().rev().find(|attempt| attempt.result == "ambiguous")?.detail.as_deref()
}

/// The connection that all nodes which are next would call through, if it is one.
fn next_connection(nodes: &[NodeView]) -> Option<String> {
    let is_settled = |edge: &String| {
        let before = edge.split('.').next().unwrap_or_default();
        let settled = ["succeeded", "gap-accepted", "skipped", "failed"];
        nodes.iter().any(|node| node.id == before && settled.contains(&&*node.status))
    };
    let next = nodes.iter().filter(|node| node.status == "waiting" && node.after.iter().all(is_settled));
    let mut connections = next.filter_map(|node| node.connection.as_ref());
    let first = connections.next()?;
    connections.all(|other| other == first).then(|| first.clone())
}

/// All that is in doubt, each to be chosen about.
fn doubts(state: &RunState) -> Vec<NextAct> {
    let in_doubt = |step: &StepState| step.doubt.is_some() && !step.is_settled();
    let steps = state.steps.iter().filter(|(_, step)| in_doubt(step));
    let choices = || Choice::ALL.iter().map(|choice| choice.word().to_owned()).collect();
    steps.map(|(id, _)| NextAct { choices: choices(), ..at_step("resolve", id.as_str()) }).collect()
}

fn quarantined(state: &RunState) -> (String, Vec<NextAct>) {
    let crashes = state.quarantined.as_ref().map_or(0, |quarantined| quarantined.crashes);
    let text = format!(
        "It was set aside: {} over it{}. An operator should find out why before letting it go on.",
        workers_were_lost(crashes),
        if crashes > 1 { ", one after the other" } else { "" }
    );
    (text, vec![act("release"), act("cancel")])
}

fn succeeded(nodes: &[NodeView]) -> String {
    match (named(nodes, "gap-accepted"), named(nodes, "failed")) {
        (Some(gaps), _) => format!("It is done; somebody accepted that {gaps} may not have had its effect."),
        (None, Some(failed)) => format!("It is done; {failed} failed, and the automation goes on without."),
        (None, None) => "It is done.".into(),
    }
}

/// Somebody's own words, on one line and cut. They are escaped where they are drawn, as all text is.
fn words(text: &str) -> String {
    let shown = &text[..text.floor_char_boundary(WORDS_BYTES_MAX)];
    let line: String = shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() < text.len() { format!("{line}…") } else { line }
}

fn quoted(message: &str) -> String {
    format!(" The provider said: “{}”.", words(message))
}

fn failed(state: &RunState, nodes: &[NodeView]) -> (String, Vec<NextAct>) {
    let terminal = state.terminal.as_ref();
    let class = terminal.and_then(|terminal| terminal.class);
    let at = terminal.and_then(|terminal| terminal.failed_at.as_ref()).map(StepId::as_str);
    let what = class.map_or("It failed.", FailureClass::title);
    let action = class.map_or("Look at the attempts below.", FailureClass::action);
    let node = at.and_then(|at| nodes.iter().find(|node| node.id == at));
    let said = node.and_then(|node| node.provider_message.as_deref()).map(quoted).unwrap_or_default();
    let place = at.map_or_else(String::new, |at| format!("{at} failed: "));
    let next = at.map(|at| at_step("rerun", at)).into_iter().chain([act("replay")]).collect();
    (format!("{place}{what}{said} {action}"), next)
}

fn cancelled(state: &RunState, nodes: &[NodeView]) -> (String, Vec<NextAct>) {
    let by = state.cancel.as_ref().map_or_else(String::new, |cancel| format!(" by {}", words(&cancel.by)));
    let text = match named(nodes, "ambiguous") {
        Some(names) => format!("It was cancelled{by} while {names} was under way. {IN_DOUBT_AT_THE_END}"),
        None => format!("It was cancelled{by}. What was done stays done."),
    };
    let reruns = nodes.iter().filter(|node| node.status == "ambiguous").map(|node| at_step("rerun", &node.id));
    (text, reruns.chain([act("replay")]).collect())
}

fn timed_out(state: &RunState, nodes: &[NodeView]) -> (String, Vec<NextAct>) {
    let names = ["retrying", "parked", "running", "abandoned"].iter().find_map(|status| named(nodes, status));
    let during = names.map_or_else(String::new, |names| format!(" before {names} was done"));
    let end = time(state.deadline_unix_ms);
    let text = format!("Its deadline, {end}, came{during}. {}", FailureClass::DeadlineExceeded.action());
    (text, vec![act("replay")])
}

fn ended_ambiguous(state: &RunState) -> (String, Vec<NextAct>) {
    let name = state.in_doubt().map_or_else(|| "a step".into(), |(id, _)| id.to_string());
    let text = format!("It ended, and nobody knows whether {name} has had its effect. {IN_DOUBT_AT_THE_END}");
    let rerun = state.in_doubt().map(|(id, _)| at_step("rerun", id.as_str()));
    (text, rerun.into_iter().collect())
}

/// Of a run of which only a row is left.
pub(super) fn of_row(row: &RunRow) -> String {
    let what = row.failure.map_or("", FailureClass::title);
    let at = row.failed_at.as_ref().map_or_else(String::new, |at| format!("{at} failed: "));
    format!("{at}{what} What was sent and answered is past its retention.").trim_start().to_owned()
}

/// What to do about a group of the repair inbox.
pub(super) fn of_group(reason: Option<ParkReason>) -> &'static str {
    match reason {
        None => "Find out why these runs crash their workers, then release or cancel them.",
        Some(ParkReason::Ambiguous) => FailureClass::Ambiguous.action(),
        Some(ParkReason::NeedsReconnect) => FailureClass::AuthenticationExpired.action(),
        Some(ParkReason::Provider | ParkReason::Quota | ParkReason::Breaker) => {
            "Nothing: they go on when their time has come. Fewer runs at once, or a larger quota, make the wait shorter."
        }
        Some(ParkReason::Unavailable) => "Look at the way out: egress does not answer, or the ledger has no room.",
        Some(ParkReason::Delay | ParkReason::Backoff | ParkReason::Restart) => "Nothing: they go on by themselves.",
    }
}
