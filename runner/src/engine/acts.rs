//! What people do to runs: cancel, choose, re-run, release. Each reads the run, looks whether it makes sense now, and appends
//! one record on the condition that nothing has come between; if something has, it looks again. A worker then does the rest.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Clock, ConnectionId, TenantId};
use serde_json::Value;

use crate::automation::{ConnectionState, DefinitionStore, Kind};
use crate::ids::{LogicalAttempt, RunId, StepId};
use crate::ledger::{
    AppendError, Body, CancelRequested, Choice, Commit, LedgerStore, ParkReason, ReadError, Record, Released, Rerun,
    Resolved, Writer,
};
use crate::schedule::Queue;

use super::ports::{Automations, Payloads, PortError};
use super::state::{RunState, Settled, Standing};

/// How often it is looked again before somebody is told that too much happens at once.
pub(super) const TRIES: u32 = 10;

/// How often a step may be asked for.
pub const ASKINGS_MAX: u32 = 100;

/// Longest name of who does it, in bytes.
const BY_BYTES_MAX: usize = 256;

/// Acts on runs, for the API and the command line.
#[derive(Debug, Clone)]
pub struct Acts {
    pub clock: Arc<dyn Clock>,
    pub ledger: Arc<dyn LedgerStore>,
    pub definitions: Arc<dyn DefinitionStore>,
    pub automations: Arc<dyn Automations>,
    pub payloads: Arc<dyn Payloads>,
    pub queue: Arc<dyn Queue>,
}

/// Whether whoever asks for a step again knows that its effect may happen twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicate {
    Accepted,
    NotAccepted,
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// Another tenant's run answers the same.
    #[error("there is no such run")]
    NotFound,
    #[error("the run is over")]
    Over,
    #[error("the run is being cancelled")]
    Cancelling,
    #[error("the run has no such step, or has not come to it")]
    NoStep,
    #[error("nobody has to choose about this step")]
    NothingToChoose,
    #[error("the step is not over")]
    NotSettled,
    #[error("the step makes no call: there is nothing to do again")]
    NoCall,
    #[error("its effect may happen twice: say that you accept it")]
    DuplicateNotAccepted,
    #[error("the step has been asked for {ASKINGS_MAX} times")]
    TooOften,
    #[error("the run is quarantined: release it first")]
    Quarantined,
    #[error("nothing holds the run that could be released")]
    NothingToRelease,
    #[error("an effect of the run is ambiguous: choose what to do about it")]
    ChooseInstead,
    #[error("the run is no dead letter, or it is not over: release or cancel one that is quarantined")]
    NoDeadLetter,
    #[error("why it is put away is said in 1 to {} bytes", super::dismiss::REASON_BYTES_MAX)]
    Reason,
    #[error("whoever does it has a name of 1 to {BY_BYTES_MAX} bytes")]
    By,
    #[error("the run changes all the time: try again")]
    Busy,
    /// It may have been done.
    #[error("it cannot be done now: {0}")]
    Unavailable(Box<str>),
}

impl Acts {
    /// Ends the run as soon as its worker has heard of it.
    pub async fn cancel(&self, tenant: &TenantId, run: RunId, by: &str) -> Result<(), ActError> {
        let by = name(by)?;
        self.act(tenant, run, |state| {
            if state.cancel.is_some() {
                // Whoever asked for it may not have come to hand the run in.
                if state.terminal.is_none() {
                    self.queue.enqueue(tenant.clone(), run, state.admitted.class);
                }
                return Err(ActError::Cancelling);
            }
            Ok(Body::CancelRequested(CancelRequested { by: by.clone() }))
        })
        .await
    }

    /// One of the two choices about an effect of which nobody knows.
    pub async fn resolve(
        &self,
        tenant: &TenantId,
        run: RunId,
        step: &StepId,
        choice: Choice,
        by: &str,
    ) -> Result<(), ActError> {
        let by = name(by)?;
        self.act(tenant, run, |state| {
            if state.quarantined.is_some() && state.terminal.is_none() {
                return Err(ActError::Quarantined);
            }
            let found = state.steps.get(step).ok_or(ActError::NoStep)?;
            // What a worker looks after by itself, trying again or reading back, is nobody else's to decide.
            let waits = found.said == Some(ParkReason::Ambiguous) && found.standing != Standing::Fresh;
            let doubt = found.doubt.as_ref().filter(|doubt| waits && !doubt.is_accepted && !found.is_settled());
            let attempt = doubt.and_then(|doubt| doubt.attempts.last()).ok_or(ActError::NothingToChoose)?;
            Ok(Body::Resolved(Resolved { step: step.clone(), attempt: *attempt, choice, by: by.clone() }))
        })
        .await
    }

    /// Asks for a step again, as a new logical attempt with an effect key of its own. What is behind it and is done stays done.
    pub async fn rerun(
        &self,
        tenant: &TenantId,
        run: RunId,
        step: &StepId,
        input: Option<&Value>,
        duplicate: Duplicate,
        by: &str,
    ) -> Result<(), ActError> {
        let by = name(by)?;
        if duplicate == Duplicate::NotAccepted {
            return Err(ActError::DuplicateNotAccepted);
        }
        self.makes_a_call(tenant, run, step).await?;
        let input = match input {
            Some(input) => {
                let kept = self.payloads.keep(tenant, Bytes::from(input.to_string())).await;
                Some(kept.map_err(|error| ActError::Unavailable(error.to_string().into()))?)
            }
            None => None,
        };
        self.act(tenant, run, |state| {
            if state.quarantined.is_some() && state.terminal.is_none() {
                return Err(ActError::Quarantined);
            }
            if state.cancel.is_some() && state.terminal.is_none() {
                return Err(ActError::Cancelling);
            }
            let found = state.steps.get(step).ok_or(ActError::NoStep)?;
            match found.settled() {
                // It ended before its answer came: what it asked for is over, too.
                None if state.terminal.is_some() => {}
                None => return Err(ActError::NotSettled),
                Some(Settled::Skipped) => return Err(ActError::NoStep),
                Some(Settled::Done { .. } | Settled::Gap | Settled::Failed { .. }) => {}
            }
            let logical = found.logical.checked_add(1).filter(|logical| logical.get() <= ASKINGS_MAX);
            let logical: LogicalAttempt = logical.ok_or(ActError::TooOften)?;
            Ok(Body::Rerun(Rerun { step: step.clone(), logical, input: input.clone(), by: by.clone() }))
        })
        .await
    }

    /// Lets a run go on before its time: one that is parked, or quarantined.
    pub async fn release(&self, tenant: &TenantId, run: RunId, by: &str) -> Result<(), ActError> {
        let by = name(by)?;
        self.act(tenant, run, |state| {
            let held = state.parked.as_ref().filter(|_| state.quarantined.is_none());
            match held.map(|parked| parked.reason) {
                Some(ParkReason::Ambiguous) => return Err(ActError::ChooseInstead),
                Some(ParkReason::Delay) => return Err(ActError::NothingToRelease),
                None if state.quarantined.is_none() => return Err(ActError::NothingToRelease),
                _ => {}
            }
            Ok(Body::Released(Released { by: by.clone() }))
        })
        .await
    }

    /// The account was connected anew: says so of the connection, and lets go on the runs that wait for it (those that are
    /// named, by an index; others find out when they are next looked at). Gives how many went on.
    pub async fn reconnected(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
        waiting: &[RunId],
        by: &str,
    ) -> Result<usize, ActError> {
        name(by)?;
        let set = self.definitions.set_connection_state(tenant, connection, ConnectionState::Connected).await;
        set.map_err(|error| ActError::Unavailable(error.to_string().into()))?;
        let mut released = 0;
        for run in waiting {
            match self.release(tenant, *run, by).await {
                Ok(()) => released += 1,
                Err(error @ ActError::Unavailable(_)) => return Err(error),
                // It waits for something else, or for nothing, by now.
                Err(_) => {}
            }
        }
        Ok(released)
    }

    async fn act(
        &self,
        tenant: &TenantId,
        run: RunId,
        decide: impl Fn(&RunState) -> Result<Body, ActError>,
    ) -> Result<(), ActError> {
        for _ in 0..TRIES {
            let state = self.read(tenant, run).await?;
            let body = decide(&state)?;
            if state.terminal.is_some() && !matches!(body, Body::Rerun(_)) {
                return Err(ActError::Over);
            }
            let commit = Commit {
                tenant: tenant.clone(),
                run,
                expected: state.seq,
                writer: Writer::Anyone,
                at_unix_ms: self.clock.unix_ms(),
                bodies: vec![body],
            };
            match self.ledger.append(commit).await {
                Ok(_) => {
                    self.queue.enqueue(tenant.clone(), run, state.admitted.class);
                    return Ok(());
                }
                Err(AppendError::Conflict { .. } | AppendError::Fenced { .. }) => {}
                // It may be there all the same, and then somebody has to look at it.
                Err(error @ AppendError::Unavailable(_)) => {
                    self.queue.enqueue(tenant.clone(), run, state.admitted.class);
                    return Err(ActError::Unavailable(error.to_string().into()));
                }
                Err(error) => return Err(ActError::Unavailable(error.to_string().into())),
            }
        }
        Err(ActError::Busy)
    }

    async fn read(&self, tenant: &TenantId, run: RunId) -> Result<RunState, ActError> {
        RunState::fold(&self.records(tenant, run).await?).ok_or(ActError::NotFound)
    }

    pub(super) async fn records(&self, tenant: &TenantId, run: RunId) -> Result<Vec<Record>, ActError> {
        self.ledger.read(tenant, run).await.map_err(|error| match error {
            ReadError::Tenant { .. } => {
                tracing::error!(%run, %tenant, "somebody asked for another tenant's run");
                ActError::NotFound
            }
            error @ (ReadError::Damaged(_) | ReadError::Unavailable(_) | ReadError::Trimmed) => {
                ActError::Unavailable(error.to_string().into())
            }
        })
    }

    async fn makes_a_call(&self, tenant: &TenantId, run: RunId, step: &StepId) -> Result<(), ActError> {
        let state = self.read(tenant, run).await?;
        let loaded = self.automations.load(tenant, state.admitted.automation, state.admitted.version).await;
        let automation = loaded.map_err(|error| match error {
            PortError::Gone(_) | PortError::Tenant => ActError::NoStep,
            PortError::Unavailable(why) => ActError::Unavailable(why),
        })?;
        let node = automation.nodes.iter().find(|node| node.id == *step).ok_or(ActError::NoStep)?;
        if matches!(node.kind, Kind::Call { .. }) { Ok(()) } else { Err(ActError::NoCall) }
    }
}

pub(super) fn name(by: &str) -> Result<Box<str>, ActError> {
    if (1..=BY_BYTES_MAX).contains(&by.len()) { Ok(by.into()) } else { Err(ActError::By) }
}
