//! What is next of a run: of its records, its graph and the time, and of nothing else.
//!
//! [`plan`] never acts and never waits. The worker does what it says, lets the state take in what it has written, and asks
//! again; so every rule about what may be done is in this file and in [`super::verdict`], and can be tested without a worker.
//!
//! - A step whose effect is in **doubt** goes on by its action's class: idempotent ones are tried again under the same
//!   key, checkable ones are read back, unsafe ones wait for somebody to choose.
//! - Where a step has **failed** and the run does not go on without it, nothing new is begun. What is under way is waited for,
//!   and doubts are cleared up: a run does not end over a doubt, unless its deadline comes or it is cancelled, and then says so.
//! - What was **skipped** is looked at again when what it is behind was settled once more, after a re-run. What was done stays.

use std::collections::{BTreeMap, BTreeSet};

use crate::automation::{Automation, Kind, Node};
use crate::connector::ReplaySafety;
use crate::failure::FailureClass;
use crate::ids::StepId;
use crate::ledger::{Ambiguity, Kept, Outcome, ParkReason, Parked, Quarantined, RunStatus, StepResult, Terminal};

use super::backoff;
use super::state::{Doubt, RunState, Settled, Standing, StepState};

/// Calls of one run that are under way at once.
pub const FAN_OUT_MAX: usize = 16;

/// What the worker knows beside the records.
#[derive(Debug, Default)]
pub struct Known {
    /// Under which it works, or will: an intent of another one was a lost worker's.
    pub lease: u64,
    /// By place in the graph: how safe it is to do the action again. Asked for where there is a doubt.
    pub safety: BTreeMap<usize, ReplaySafety>,
    /// Places of nodes whose connection has to be made anew.
    pub dead: BTreeSet<usize>,
    /// Workers that may be lost over a run, or over one step, before it is quarantined.
    pub workers_lost_max: u32,
    /// The process stops: nothing new is begun.
    pub is_stopping: bool,
    /// A worker that was lost was this process', or one before it, and its calls have ended with it.
    pub is_alone: bool,
}

/// What is to be done now. What is first is done first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Facts to be written before anything else is decided.
    Facts(Vec<Outcome>),
    /// Calls under way are given up, and it is asked again.
    GiveUp,
    /// The run is over already.
    Over,
    End(Terminal),
    Quarantine(Quarantined),
    /// Nothing, until an operator lets it go on.
    Held,
    /// How safe is the action of this node?
    Classify(usize),
    /// Node by node.
    Do(Vec<Step>),
    /// Calls are under way, and nothing else can be done before one ends, or this time comes.
    Await {
        until_unix_ms: u64,
    },
    /// Nothing is under way: which steps wait for somebody, where that has not been said yet, and that the run waits.
    Park(Vec<Parked>),
    /// Nothing is under way and something could be done, which is left to another worker: this process stops.
    Leave,
}

/// What is to be done about one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing before it was taken.
    Skip(usize),
    /// Its `when`, and then its kind's own: a branch, a value, a delay's begin, or a call's first intent.
    Begin(usize),
    /// A delay is over.
    Wake(usize),
    /// A call, again or after a wait: its `when` was true.
    Call(usize),
    ReadBack(usize),
}

/// What is next.
pub fn plan(state: &RunState, automation: &Automation, now_unix_ms: u64, known: &Known) -> Plan {
    if state.terminal.is_some() {
        return Plan::Over;
    }
    let facts = facts(state, known.lease);
    if !facts.is_empty() {
        return Plan::Facts(facts);
    }
    let graph = Graph::new(state, &automation.nodes);
    let open = state.steps.values().filter(|step| matches!(step.standing, Standing::Open(_))).count();
    if let Some(terminal) = graph.finished(open) {
        return Plan::End(terminal);
    }
    let is_late = now_unix_ms >= state.deadline_unix_ms && state.quarantined.is_none();
    if state.cancel.is_some() || is_late {
        return if open > 0 { Plan::GiveUp } else { Plan::End(graph.cut_short()) };
    }
    if state.quarantined.is_some() {
        return Plan::Held;
    }
    if let Some(quarantined) = poison(state, known.workers_lost_max) {
        return Plan::Quarantine(quarantined);
    }
    graph.go_on(automation, now_unix_ms, known, open)
}

/// What is known of attempts and not yet said of their steps: workers were lost, or their answers came late.
pub(super) fn facts(state: &RunState, lease: u64) -> Vec<Outcome> {
    let known = |(id, step): (&StepId, &StepState)| match &step.standing {
        Standing::Open(open) if open.lease < lease => {
            let late = step.late.iter().rev().find(|late| late.attempt == open.attempt && tells(late));
            Some(late.cloned().unwrap_or_else(|| Outcome {
                step: id.clone(),
                attempt: open.attempt,
                result: StepResult::Ambiguous(Ambiguity::WorkerLost),
                provider: None,
            }))
        }
        Standing::Open(_) | Standing::Settled(_) => None,
        Standing::Fresh
        | Standing::Retry { .. }
        | Standing::NotHappened { .. }
        | Standing::Deferred { .. }
        | Standing::NeedsReconnect
        | Standing::Ambiguous => late_of(step).cloned(),
    };
    state.steps.iter().filter_map(known).collect()
}

/// A late outcome that says more than is known: that the effect of this asking has happened, or what became of the
/// attempt in doubt.
fn late_of(step: &StepState) -> Option<&Outcome> {
    let mine = || step.late.iter().rev().filter(|late| late.attempt.logical == step.logical && tells(late));
    let done = mine().find(|late| matches!(late.result, StepResult::Done { .. }));
    done.or_else(|| mine().find(|late| step.doubt.as_ref().is_some_and(|doubt| doubt.attempts.contains(&late.attempt))))
}

fn tells(outcome: &Outcome) -> bool {
    !matches!(outcome.result, StepResult::Ambiguous(_) | StepResult::Skipped)
}

fn poison(state: &RunState, max: u32) -> Option<Quarantined> {
    let (id, lost) = state
        .steps
        .iter()
        .map(|(id, step)| (Some(id), step.workers_lost))
        .chain([(None, state.workers_lost)])
        .max_by_key(|&(_, lost)| lost)?;
    let of = id.map_or_else(String::new, |id| format!(" at step {id}"));
    let workers = if lost == 1 { "1 worker was".to_owned() } else { format!("{lost} workers in a row were") };
    (lost >= max)
        .then(|| Quarantined { crashes: lost, reason: format!("{workers} lost{of}, and nothing came of it").into() })
}

struct Graph<'a> {
    state: &'a RunState,
    nodes: &'a [Node],
    /// By place: what settled it, if it is. Looked at once for each node, since a node has many ways back to the first.
    settled: Vec<Option<&'a Settled>>,
}

/// How an edge, or a node, stands to what is behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Led {
    /// Not yet known.
    Open,
    Here,
    Elsewhere,
}

impl<'a> Graph<'a> {
    fn new(state: &'a RunState, nodes: &'a [Node]) -> Self {
        let mut graph = Self { state, nodes, settled: Vec::with_capacity(nodes.len()) };
        // A node stands behind all that it waits for.
        for node in nodes {
            graph.settled.push(graph.settle(node));
        }
        graph
    }

    fn step(&self, at: usize) -> Option<&'a StepState> {
        self.state.steps.get(&self.nodes.get(at)?.id)
    }

    fn settle(&self, node: &Node) -> Option<&'a Settled> {
        let step = self.state.steps.get(&node.id)?;
        let settled = step.settled()?;
        if *settled == Settled::Skipped && node.after.iter().any(|edge| self.is_newer(edge.from, step)) {
            return None;
        }
        Some(settled)
    }

    /// Settled, and what it is behind has not been settled anew since.
    fn settled(&self, at: usize) -> Option<&'a Settled> {
        self.settled.get(at).copied().flatten()
    }

    fn is_newer(&self, from: usize, than: &StepState) -> bool {
        self.settled(from).is_none() || self.step(from).is_some_and(|step| step.seq > than.seq)
    }

    /// It failed, and the run does not go on without it.
    fn stops(&self, at: usize) -> Option<FailureClass> {
        match self.settled(at) {
            Some(Settled::Failed { class, .. }) if !self.nodes.get(at)?.continues_on_failure => Some(*class),
            _ => None,
        }
    }

    fn failed_at(&self) -> Option<(&StepId, FailureClass)> {
        self.nodes.iter().enumerate().find_map(|(at, node)| Some((&node.id, self.stops(at)?)))
    }

    /// Whether a node may be begun: all that it is after is settled, and something led here.
    fn led(&self, node: &Node) -> Led {
        let mut led = if node.after.is_empty() { Led::Here } else { Led::Elsewhere };
        for edge in &node.after {
            match self.settled(edge.from) {
                None => return Led::Open,
                Some(Settled::Skipped) => {}
                Some(settled) => {
                    let is_taken = edge.case.as_ref().is_none_or(|case| chose(settled).is_some_and(|it| it == **case));
                    if is_taken {
                        led = Led::Here;
                    }
                }
            }
        }
        led
    }

    fn finished(&self, open: usize) -> Option<Terminal> {
        if open > 0 {
            return None;
        }
        let is_whole = (0..self.nodes.len()).all(|at| self.settled(at).is_some());
        match self.failed_at() {
            None if is_whole => Some(Terminal { status: RunStatus::Succeeded, failed_at: None, class: None }),
            None => None,
            Some((id, class)) => {
                let waits = |step: &StepState| !step.is_settled() && (step.doubt.is_some() || step.is_asked_again());
                let is_over = !self.state.steps.values().any(waits);
                is_over.then(|| Terminal { status: RunStatus::Failed, failed_at: Some(id.clone()), class: Some(class) })
            }
        }
    }

    /// It ends unfinished: cancelled, or its time is up. A doubt is said.
    fn cut_short(&self) -> Terminal {
        let doubt = self.state.in_doubt().map(|(id, _)| id.clone());
        if self.state.cancel.is_some() {
            let class = doubt.is_some().then_some(FailureClass::Ambiguous);
            return Terminal { status: RunStatus::Cancelled, failed_at: doubt, class };
        }
        if doubt.is_some() {
            return Terminal {
                status: RunStatus::EndedAmbiguous,
                failed_at: doubt,
                class: Some(FailureClass::Ambiguous),
            };
        }
        let begun = (0..self.nodes.len()).find(|&at| self.settled(at).is_none() && self.step(at).is_some());
        Terminal {
            status: RunStatus::TimedOut,
            failed_at: begun.and_then(|at| self.nodes.get(at)).map(|node| node.id.clone()),
            class: Some(FailureClass::DeadlineExceeded),
        }
    }

    fn go_on(&self, automation: &Automation, now: u64, known: &Known, open: usize) -> Plan {
        let has_failed = self.failed_at().is_some();
        let mut steps = Vec::new();
        let mut waits = Waits::new(self.state.deadline_unix_ms);
        let mut calls = open;
        let mut is_left = false;
        for (at, node) in automation.nodes.iter().enumerate() {
            if self.settled(at).is_some() {
                continue;
            }
            let step = self.step(at).filter(|step| !step.is_settled());
            let is_in_doubt = step.is_some_and(|step| step.doubt.is_some());
            if has_failed && !is_in_doubt && !step.is_some_and(StepState::is_asked_again) {
                continue;
            }
            match self.next(at, node, step, now, known) {
                Next::Nothing => {}
                Next::Classify | Next::Do(_) if known.is_stopping => is_left = true,
                Next::Classify => return Plan::Classify(at),
                Next::Do(step) => {
                    let is_call = matches!(step, Step::Call(_) | Step::ReadBack(_))
                        || matches!(step, Step::Begin(_)) && matches!(node.kind, Kind::Call { .. });
                    if !is_call || calls < FAN_OUT_MAX {
                        calls += usize::from(is_call);
                        steps.push(step);
                    }
                }
                Next::Wait { until, reason } => waits.add(node, step, until, reason),
            }
        }
        if !steps.is_empty() {
            return Plan::Do(steps);
        }
        match open {
            0 if is_left => Plan::Leave,
            0 => Plan::Park(waits.park()),
            _ => Plan::Await { until_unix_ms: waits.until },
        }
    }

    fn next(&self, at: usize, node: &Node, step: Option<&StepState>, now: u64, known: &Known) -> Next {
        let Some(step) = step else { return self.begin(at, node, known) };
        let doubt = step.doubt.as_ref().filter(|doubt| !doubt.is_accepted);
        let after = |at_unix_ms: u64, wait_ms: u64, reason| {
            let until = at_unix_ms.saturating_add(wait_ms);
            if until > now { Some(Next::Wait { until: Some(until), reason }) } else { None }
        };
        let backoff = |at_unix_ms, tries| {
            after(at_unix_ms, backoff::wait_ms(self.state.run, &node.id, step, node.retry, tries), ParkReason::Backoff)
        };
        let waits = match &step.standing {
            Standing::Open(_) | Standing::Settled(_) => return Next::Nothing,
            Standing::Fresh if step.logical.get() == 1 && step.physical == 0 => return self.begin(at, node, known),
            Standing::Fresh | Standing::Ambiguous | Standing::NeedsReconnect => None,
            Standing::Deferred { until_unix_ms, reason } => after(*until_unix_ms, 0, *reason),
            Standing::Retry { at_unix_ms, .. } => backoff(*at_unix_ms, step.tries.max(step.read_backs)),
            Standing::NotHappened { at_unix_ms } => backoff(*at_unix_ms, step.tries.max(1)),
        };
        if let Some(wait) = waits {
            return wait;
        }
        if !matches!(node.kind, Kind::Call { .. }) {
            return Next::Do(Step::Wake(at));
        }
        if let Some(doubt) = doubt {
            return self.in_doubt(at, node, step, doubt, now, known);
        }
        call(at, Step::Call(at), known)
    }

    fn begin(&self, at: usize, node: &Node, known: &Known) -> Next {
        match self.led(node) {
            Led::Open => Next::Nothing,
            Led::Elsewhere => Next::Do(Step::Skip(at)),
            Led::Here => call(at, Step::Begin(at), known),
        }
    }

    fn in_doubt(&self, at: usize, node: &Node, step: &StepState, doubt: &Doubt, now: u64, known: &Known) -> Next {
        let Some(safety) = known.safety.get(&at) else { return Next::Classify };
        let ask = Next::Wait { until: None, reason: ParkReason::Ambiguous };
        let wait_until = |until: u64, then: Step| {
            if until > now {
                Next::Wait { until: Some(until), reason: ParkReason::Backoff }
            } else {
                call(at, then, known)
            }
        };
        match safety {
            ReplaySafety::Unsafe => ask,
            ReplaySafety::Checkable if doubt.why == Ambiguity::ReadBack => ask,
            ReplaySafety::Checkable if step.read_backs >= backoff::READ_BACKS_MAX => ask,
            ReplaySafety::Checkable => {
                // Another process that has lost the run may live, and its call goes on for as long as a call may. A call of
                // this process, or of one before it, has ended with its worker: egress stops what its caller hangs up on.
                let call_ms = u64::try_from(node.timeout.as_millis()).unwrap_or(u64::MAX);
                let may_go_on = doubt.why == Ambiguity::WorkerLost && !known.is_alone;
                let after_ms = backoff::READ_BACK_AFTER_MS.max(if may_go_on { call_ms } else { 0 });
                wait_until(doubt.since_unix_ms.saturating_add(after_ms), Step::ReadBack(at))
            }
            // A lost worker is our own fault and no reason to spare the provider.
            ReplaySafety::Idempotent
                if doubt.why == Ambiguity::WorkerLost || !matches!(step.standing, Standing::Ambiguous) =>
            {
                call(at, Step::Call(at), known)
            }
            ReplaySafety::Idempotent => {
                let wait = backoff::wait_ms(self.state.run, &node.id, step, node.retry, step.tries);
                wait_until(doubt.since_unix_ms.saturating_add(wait), Step::Call(at))
            }
        }
    }
}

/// No call goes through a connection that is known to be dead.
fn call(at: usize, step: Step, known: &Known) -> Next {
    if known.dead.contains(&at) {
        return Next::Wait { until: None, reason: ParkReason::NeedsReconnect };
    }
    Next::Do(step)
}

/// The case that a branch has chosen.
fn chose(settled: &Settled) -> Option<String> {
    let Settled::Done { output } = settled else { return None };
    let Kept::Inline(bytes) = &output.kept else { return None };
    serde_json::from_slice(bytes).ok()
}

enum Next {
    Nothing,
    Do(Step),
    Classify,
    /// None: until somebody acts.
    Wait {
        until: Option<u64>,
        reason: ParkReason,
    },
}

/// What a run waits for, when it can do nothing else: of several things one that needs somebody, else the first.
struct Waits {
    deadline: u64,
    until: u64,
    first: Option<(u8, u64, ParkReason)>,
    unsaid: Vec<Parked>,
}

impl Waits {
    fn new(deadline_unix_ms: u64) -> Self {
        Self { deadline: deadline_unix_ms, until: deadline_unix_ms, first: None, unsaid: Vec::new() }
    }

    fn add(&mut self, node: &Node, step: Option<&StepState>, until: Option<u64>, reason: ParkReason) {
        // It ends by itself at the deadline, so that nothing waits for ever.
        let until = until.unwrap_or(u64::MAX).min(self.deadline);
        self.until = self.until.min(until);
        let rank = match reason {
            ParkReason::Ambiguous => 0,
            ParkReason::NeedsReconnect => 1,
            ParkReason::Delay
            | ParkReason::Backoff
            | ParkReason::Provider
            | ParkReason::Quota
            | ParkReason::Breaker
            | ParkReason::Unavailable
            | ParkReason::Restart => 2,
        };
        if rank < 2 && step.is_none_or(|step| step.said != Some(reason)) {
            let step = Some(node.id.clone());
            self.unsaid.push(Parked { reason, step, until_unix_ms: Some(until) });
        }
        if self.first.is_none_or(|first| (rank, until) < (first.0, first.1)) {
            self.first = Some((rank, until, reason));
        }
    }

    fn park(mut self) -> Vec<Parked> {
        let reason = self.first.map_or(ParkReason::Unavailable, |first| first.2);
        self.unsaid.push(Parked { reason, step: None, until_unix_ms: Some(self.until) });
        self.unsaid
    }
}
