//! What has to hold.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use super::super::state::{RunState, Settled, StepState};
use super::super::testing::lock;
use super::provider::Effects;
use crate::automation::{Automation, Kind};
use crate::failure::FailureClass;
use crate::ids::{EffectKey, StepId};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{Ambiguity, Body, Choice, ParkReason, Record, RunStatus, StepResult};

/// Looks at the ledger whenever a call arrives that may have an effect.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) ledger: Arc<MemoryLedger>,
    pub(super) automation: Arc<Automation>,
    pub(super) violations: Mutex<Vec<String>>,
}

impl Watch {
    pub(super) fn arrives(&self, key: &str) {
        let records = self.ledger.records();
        let state = RunState::fold(&records).unwrap();
        let Some((id, step)) = by_key(&state, key) else {
            self.violates(format!("a call came under {key}, of which there is no intent"));
            return;
        };
        if let Some(settled) = step.settled() {
            self.violates(format!("{id} was called although it is settled: {settled:?}"));
        }
        if self.class(id) == "unsafe" && !may_be_done_again(&records, id, step) {
            self.violates(format!("{id} is unsafe, and was done again although nobody knows if it was done"));
        }
    }

    fn violates(&self, what: String) {
        lock(&self.violations).push(what);
    }

    fn class(&self, id: &StepId) -> &str {
        let node = self.automation.nodes.iter().find(|node| node.id == *id).unwrap();
        if let Kind::Call { action, .. } = &node.kind { action } else { "" }
    }

    /// At the end of all, when what was late has come.
    pub(super) fn at_the_end(&self, effects: &Effects) -> Result<RunState, String> {
        if let Some(violation) = lock(&self.violations).first() {
            return Err(violation.clone());
        }
        let records = self.ledger.records();
        let state = RunState::fold(&records).ok_or("no run")?;
        dense(&records)?;
        let Some(terminal) = &state.terminal else { return Err(format!("it never ended: {state:?}")) };
        if state.status() != terminal.status {
            return Err("its status is not that of its end".into());
        }
        let is_said = terminal.class == Some(FailureClass::Ambiguous);
        for (id, step) in &state.steps {
            for logical in 1..=step.logical.get() {
                let key = EffectKey::new(state.run, id, logical.try_into().unwrap()).to_string();
                let count = effects.get(key.as_str()).copied().unwrap_or(0);
                let accepted = accepted(&records, id, logical);
                if count > 1 + accepted {
                    return Err(format!("{id} had {count} effects, and {accepted} more than one were accepted"));
                }
            }
            let key = EffectKey::new(state.run, id, step.logical).to_string();
            let count = effects.get(key.as_str()).copied().unwrap_or(0);
            self.truthful(id, step, count, is_said, terminal.status)?;
        }
        Ok(state)
    }

    /// What is said of a step is what has happened.
    fn truthful(
        &self,
        id: &StepId,
        step: &StepState,
        effects: u32,
        is_said: bool,
        at: RunStatus,
    ) -> Result<(), String> {
        let is_call = !self.class(id).is_empty();
        match step.settled() {
            Some(Settled::Done { .. }) if is_call && effects == 0 => Err(format!("{id} is done and had no effect")),
            Some(Settled::Skipped) if effects > 0 => Err(format!("{id} is skipped and had an effect")),
            Some(Settled::Failed { detail, .. }) if effects > 0 => {
                let is_told = step.doubt.is_some() || detail.contains("may have");
                if is_told {
                    Ok(())
                } else {
                    Err(format!("{id} failed, had an effect, and says nothing of it: {detail}"))
                }
            }
            None if effects > 0 && !is_said => {
                Err(format!("the run is {at:?}, and {id} had an effect that is not said"))
            }
            _ => Ok(()),
        }
    }
}

fn by_key<'s>(state: &'s RunState, key: &str) -> Option<(&'s StepId, &'s StepState)> {
    state.steps.iter().find(|(id, step)| EffectKey::new(state.run, id, step.logical).to_string() == key)
}

/// Each attempt before the last one is known to have had no effect, or somebody has accepted that it may have.
fn may_be_done_again(records: &[Record], id: &StepId, step: &StepState) -> bool {
    let mut open = BTreeSet::new();
    for record in records {
        match &record.body {
            Body::Intent(intent) if intent.step == *id && intent.attempt.logical == step.logical => {
                open.insert(intent.attempt.physical);
            }
            Body::Outcome(outcome) | Body::LateOutcome(outcome)
                if outcome.step == *id
                    && outcome.attempt.logical == step.logical
                    && !matches!(outcome.result, StepResult::Ambiguous(_)) =>
            {
                open.remove(&outcome.attempt.physical);
            }
            Body::Resolved(resolved) if resolved.step == *id && resolved.choice == Choice::RetryAcceptDuplicate => {
                open.clear();
            }
            _ => {}
        }
    }
    open.len() <= 1
}

fn accepted(records: &[Record], id: &StepId, logical: u32) -> u32 {
    let accepts = |record: &&Record| {
        matches!(&record.body, Body::Resolved(resolved)
            if resolved.step == *id && resolved.attempt.logical.get() == logical
                && resolved.choice == Choice::RetryAcceptDuplicate)
    };
    u32::try_from(records.iter().filter(accepts).count()).unwrap()
}

fn dense(records: &[Record]) -> Result<(), String> {
    let admissions = records.iter().filter(|record| matches!(record.body, Body::Admitted(_))).count();
    if admissions != 1 {
        return Err(format!("{admissions} admissions of one event"));
    }
    // Status is a fold: record by record is the same as all at once.
    let mut state = RunState::begin(&records[0]).ok_or("no admission")?;
    for (at, record) in records.iter().enumerate().skip(1) {
        if record.seq != at as u64 + 1 {
            return Err(format!("record {} at place {at}", record.seq));
        }
        state.apply(record);
    }
    if RunState::fold(records) == Some(state) { Ok(()) } else { Err("folding is not folding".into()) }
}

/// What has happened, in words, for the test that something does.
pub(super) fn witnessed(records: &[Record]) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let mut late = Vec::new();
    for record in records {
        let word = match &record.body {
            Body::Intent(intent) if intent.is_read_back => "read-back",
            Body::Intent(intent) if intent.attempt.physical > 1 => "retried",
            Body::Outcome(outcome) if late.contains(&outcome) => "adopted",
            Body::Outcome(outcome) => match &outcome.result {
                StepResult::Ambiguous(Ambiguity::WorkerLost) => "worker-lost",
                StepResult::Ambiguous(_) => "no-answer",
                StepResult::Deferred { .. } => "deferred",
                StepResult::Failed { class: FailureClass::AuthenticationExpired, .. } => "needs-reconnect",
                _ => continue,
            },
            Body::LateOutcome(outcome) => {
                late.push(outcome);
                "late-outcome"
            }
            Body::Parked(parked) if parked.reason == ParkReason::Restart => "left",
            Body::Released(_) => "released",
            Body::Resolved(_) => "resolved",
            Body::Rerun(_) => "rerun",
            Body::Quarantined(_) => "quarantined",
            Body::Terminal(terminal) => match terminal.status {
                RunStatus::Succeeded => "succeeded",
                RunStatus::Failed => "failed",
                RunStatus::Cancelled => "cancelled",
                RunStatus::EndedAmbiguous => "ended-ambiguous",
                _ => "timed-out",
            },
            _ => continue,
        };
        seen.insert(word);
    }
    seen
}

/// The run's history, for whoever has to find out.
pub(super) fn told(records: &[Record]) -> String {
    let mut text = "\n".to_owned();
    for record in records {
        let at = record.at_unix_ms.saturating_sub(records[0].at_unix_ms);
        let what = match &record.body {
            Body::Intent(intent) => format!(
                "intent {} {}.{}{}",
                intent.step,
                intent.attempt.logical,
                intent.attempt.physical,
                if intent.is_read_back { " read-back" } else { "" }
            ),
            Body::Outcome(outcome) => {
                format!("outcome {} {:?} {:?}", outcome.step, outcome.attempt.physical, outcome.result)
            }
            Body::LateOutcome(outcome) => {
                format!("late {} {:?} {:?}", outcome.step, outcome.attempt.physical, outcome.result)
            }
            other => format!("{other:?}"),
        };
        writeln!(text, "{:>3} {at:>8} ms, lease {}: {what}", record.seq, record.lease).unwrap();
    }
    text
}
