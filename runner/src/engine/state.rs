//! What a run's records say, folded: the one place that knows what a record means.
//!
//! It needs no automation: a step's standing follows from its records alone. Two things are kept apart for each step: how
//! it *stands* (what can be done with it next), and whether there is a *doubt* (an attempt of which nobody knows if it had
//! its effect). A doubt outlives failures of later tries: only an answer, a read-back or a person takes it away.

use std::collections::BTreeMap;

use domain::{ConnectionId, TenantId};

use crate::failure::{FailureClass, Remedy};
use crate::ids::{EffectKey, LogicalAttempt, RunId, StepId};
use crate::ledger::{
    Admitted, Ambiguity, Attempt, Body, CancelRequested, Choice, Dismissed, Intent, Outcome, ParkReason, Parked,
    Payload, Quarantined, Record, Rerun, Resolved, RunStatus, StepResult, Terminal,
};

/// How many late outcomes of one step are kept for a decision. More are evidence in the ledger all the same.
const LATE_MAX: usize = 16;

/// A run, as its records say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunState {
    pub run: RunId,
    pub tenant: TenantId,
    pub admitted: Admitted,
    pub admitted_unix_ms: u64,
    /// Sequence of the last record.
    pub seq: u64,
    /// When the last record was written.
    pub last_unix_ms: u64,
    /// The lease in force; 0 before the first.
    pub lease: u64,
    /// Who took it.
    pub owner: Option<Box<str>>,
    /// A worker has taken it and has neither parked nor ended it: it works, or it was lost.
    pub is_worked_on: bool,
    pub parked: Option<Parked>,
    /// Sequence of the record that last parked it.
    pub parked_seq: u64,
    pub cancel: Option<CancelRequested>,
    pub quarantined: Option<Quarantined>,
    pub terminal: Option<Terminal>,
    pub ended_unix_ms: Option<u64>,
    /// Of a run that is over: nobody needs to look at it any more.
    pub dismissed: Option<Dismissed>,
    /// In milliseconds since the Unix epoch. As admitted; a re-run, and whoever lets go on what was quarantined, begins the
    /// same span anew.
    pub deadline_unix_ms: u64,
    /// Workers that were lost over it, one after the other, without an outcome of any step between them.
    pub workers_lost: u32,
    /// Steps of which there is a record.
    pub steps: BTreeMap<StepId, StepState>,
}

/// A step, as its records say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepState {
    /// How often the author asked.
    pub logical: LogicalAttempt,
    /// The last try of this asking, read-backs too; 0 before the first.
    pub physical: u32,
    /// Tries of this asking that count against the policy: no parks, no lost workers, no read-backs.
    pub tries: u32,
    /// Read-backs since the doubt, that failed for the time being.
    pub read_backs: u32,
    /// Times in a row that it was put off.
    pub deferrals: u32,
    /// Workers in a row that were lost while it was under way.
    pub workers_lost: u32,
    pub standing: Standing,
    pub doubt: Option<Doubt>,
    /// What the author gave instead of what the graph would.
    pub input: Option<Payload>,
    /// What this asking has sent: under one effect key nothing else is ever sent.
    pub sent: Option<Payload>,
    /// When this asking was sent first: from then on the provider may remember its key.
    pub first_sent_unix_ms: Option<u64>,
    /// Why it waits for somebody, where that has been said.
    pub said: Option<ParkReason>,
    /// What came of attempts after their worker had lost the run.
    pub late: Vec<Outcome>,
    /// Of the last record that changed it.
    pub seq: u64,
    pub at_unix_ms: u64,
    /// Physical attempts of all askings.
    pub attempts: u32,
}

/// What can be done with a step next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It can be begun, or begun again.
    Fresh,
    /// A call is under way, or was when its worker was lost.
    Open(Open),
    /// The last try failed for the time being, then.
    Retry { class: FailureClass, at_unix_ms: u64 },
    /// A read-back said that the effect has not happened.
    NotHappened { at_unix_ms: u64 },
    /// Not before.
    Deferred { until_unix_ms: u64, reason: ParkReason },
    /// The connection's authentication was dead.
    NeedsReconnect,
    /// The last try, or the read-back of it, left a doubt; what follows is for the action's class to say.
    Ambiguous,
    /// It is over.
    Settled(Settled),
}

/// A call whose intent has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub attempt: Attempt,
    pub effect: EffectKey,
    pub is_read_back: bool,
    pub connection: Option<ConnectionId>,
    /// Under which it was written: another one than the worker's own says that its worker was lost.
    pub lease: u64,
    pub at_unix_ms: u64,
    pub input: Payload,
}

/// An effect that may have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// By which any of it may have; the last one last.
    pub attempts: Vec<Attempt>,
    /// Of the last one.
    pub why: Ambiguity,
    pub since_unix_ms: u64,
    /// Somebody has accepted that it may happen twice.
    pub is_accepted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    Done {
        output: Payload,
    },
    /// Somebody has accepted that it may not have happened.
    Gap,
    Skipped,
    Failed {
        class: FailureClass,
        detail: Box<str>,
    },
}

impl RunState {
    /// Folds a run's records, in order. None where the first one is no admission: there is no run then.
    pub fn fold(records: &[Record]) -> Option<Self> {
        let (first, rest) = records.split_first()?;
        let mut state = Self::begin(first)?;
        for record in rest {
            state.apply(record);
        }
        Some(state)
    }

    /// A run at its admission.
    pub fn begin(record: &Record) -> Option<Self> {
        let Body::Admitted(admitted) = &record.body else { return None };
        Some(Self {
            run: record.run,
            tenant: record.tenant.clone(),
            admitted: admitted.clone(),
            admitted_unix_ms: record.at_unix_ms,
            seq: record.seq,
            last_unix_ms: record.at_unix_ms,
            lease: 0,
            owner: None,
            is_worked_on: false,
            parked: None,
            parked_seq: 0,
            cancel: None,
            quarantined: None,
            terminal: None,
            ended_unix_ms: None,
            dismissed: None,
            deadline_unix_ms: admitted.deadline_unix_ms,
            workers_lost: 0,
            steps: BTreeMap::new(),
        })
    }

    /// Takes in the next record.
    pub fn apply(&mut self, record: &Record) {
        self.seq = record.seq;
        self.last_unix_ms = record.at_unix_ms;
        match &record.body {
            // There is one, and it is the first.
            Body::Admitted(_) => {}
            Body::Lease(lease) => {
                self.workers_lost += u32::from(self.is_worked_on);
                self.lease = lease.lease;
                self.owner = Some(lease.owner.clone());
                self.is_worked_on = true;
                self.parked = None;
            }
            Body::Intent(intent) => self.step(&intent.step, record).intend(intent, record),
            Body::Outcome(outcome) => {
                if !matches!(outcome.result, StepResult::Ambiguous(Ambiguity::WorkerLost)) {
                    self.workers_lost = 0;
                }
                self.step(&outcome.step, record).settle(outcome, record);
            }
            // Evidence: the step stands as it did.
            Body::LateOutcome(outcome) => self.steps.entry(outcome.step.clone()).or_default().learn(outcome),
            // A step waits, and others may go on: the run is parked by a record that names none.
            Body::Parked(Parked { step: Some(id), reason, .. }) => self.step(id, record).said = Some(*reason),
            Body::Parked(parked) => {
                self.parked = Some(parked.clone());
                self.parked_seq = record.seq;
                self.is_worked_on = false;
            }
            Body::Released(_) => self.release(record.at_unix_ms),
            Body::Resolved(resolved) => self.resolve(resolved, record),
            Body::Rerun(rerun) => self.rerun(rerun, record),
            Body::CancelRequested(cancel) => self.cancel = Some(cancel.clone()),
            Body::Quarantined(quarantined) => {
                self.quarantined = Some(quarantined.clone());
                self.parked = None;
                self.is_worked_on = false;
            }
            Body::Terminal(terminal) => {
                self.terminal = Some(terminal.clone());
                self.ended_unix_ms = Some(record.at_unix_ms);
                self.parked = None;
                self.is_worked_on = false;
            }
            Body::Dismissed(dismissed) => self.dismissed = self.terminal.as_ref().map(|_| dismissed.clone()),
        }
    }

    /// How it is. Nothing stores this.
    pub fn status(&self) -> RunStatus {
        if let Some(terminal) = &self.terminal {
            return terminal.status;
        }
        if self.quarantined.is_some() {
            return RunStatus::Quarantined;
        }
        match &self.parked {
            Some(Parked { reason: ParkReason::Ambiguous | ParkReason::NeedsReconnect, .. }) => {
                RunStatus::NeedsAttention
            }
            Some(_) => RunStatus::Parked,
            None if self.is_worked_on => RunStatus::Running,
            None => RunStatus::Queued,
        }
    }

    /// The first step, by name, of which nobody knows whether it had its effect.
    pub fn in_doubt(&self) -> Option<(&StepId, &StepState)> {
        self.steps.iter().find(|(_, step)| step.doubt.is_some() && !step.is_settled())
    }

    fn step(&mut self, id: &StepId, record: &Record) -> &mut StepState {
        let step = self.steps.entry(id.clone()).or_default();
        step.seq = record.seq;
        step.at_unix_ms = record.at_unix_ms;
        step
    }

    fn release(&mut self, at_unix_ms: u64) {
        self.parked = None;
        if self.quarantined.take().is_some() {
            self.begin_deadline_anew(at_unix_ms);
        }
        self.workers_lost = 0;
        for step in self.steps.values_mut() {
            step.release();
        }
    }

    fn resolve(&mut self, resolved: &Resolved, record: &Record) {
        if self.parked.as_ref().is_some_and(|parked| parked.reason == ParkReason::Ambiguous) {
            self.parked = None;
        }
        let step = self.step(&resolved.step, record);
        if step.is_settled() {
            return;
        }
        step.said = None;
        match resolved.choice {
            Choice::ContinueAcceptGap => step.standing = Standing::Settled(Settled::Gap),
            Choice::RetryAcceptDuplicate => {
                step.standing = Standing::Fresh;
                if let Some(doubt) = &mut step.doubt {
                    doubt.is_accepted = true;
                }
            }
        }
    }

    fn rerun(&mut self, rerun: &Rerun, record: &Record) {
        self.parked = None;
        self.dismissed = None;
        if self.terminal.take().is_some() {
            self.ended_unix_ms = None;
            self.cancel = None;
            // It was set aside and then ended: whoever opens it again lets it go on.
            self.quarantined = None;
            self.workers_lost = 0;
            self.steps.values_mut().for_each(|step| step.workers_lost = 0);
            self.begin_deadline_anew(record.at_unix_ms);
        }
        let step = self.step(&rerun.step, record);
        *step = StepState {
            logical: rerun.logical,
            input: rerun.input.clone(),
            seq: step.seq,
            at_unix_ms: step.at_unix_ms,
            attempts: step.attempts,
            ..StepState::default()
        };
    }

    fn begin_deadline_anew(&mut self, at_unix_ms: u64) {
        let span = self.admitted.deadline_unix_ms.saturating_sub(self.admitted_unix_ms);
        self.deadline_unix_ms = self.deadline_unix_ms.max(at_unix_ms.saturating_add(span));
    }
}

impl Default for StepState {
    fn default() -> Self {
        Self {
            logical: LogicalAttempt::MIN,
            physical: 0,
            tries: 0,
            read_backs: 0,
            deferrals: 0,
            workers_lost: 0,
            standing: Standing::Fresh,
            doubt: None,
            input: None,
            sent: None,
            first_sent_unix_ms: None,
            said: None,
            late: Vec::new(),
            seq: 0,
            at_unix_ms: 0,
            attempts: 0,
        }
    }
}

impl StepState {
    pub fn is_settled(&self) -> bool {
        matches!(self.standing, Standing::Settled(_))
    }

    pub fn settled(&self) -> Option<&Settled> {
        if let Standing::Settled(settled) = &self.standing { Some(settled) } else { None }
    }

    /// Its author asked for it again, and that asking is not over.
    pub fn is_asked_again(&self) -> bool {
        self.logical > LogicalAttempt::MIN && !self.is_settled()
    }

    fn intend(&mut self, intent: &Intent, record: &Record) {
        if let Standing::Open(Open { attempt, is_read_back, .. }) = self.standing {
            // No worker of ours leaves one behind; whoever does has made a doubt of it.
            self.doubt_about(Ambiguity::WorkerLost, is_read_back, attempt, record.at_unix_ms);
        }
        self.logical = intent.attempt.logical;
        self.physical = intent.attempt.physical;
        self.attempts += 1;
        self.said = None;
        if !intent.is_read_back {
            self.sent = Some(intent.input.clone());
            self.first_sent_unix_ms = self.first_sent_unix_ms.or(Some(record.at_unix_ms));
        }
        self.standing = Standing::Open(Open {
            attempt: intent.attempt,
            effect: intent.effect,
            is_read_back: intent.is_read_back,
            connection: intent.connection.clone(),
            lease: record.lease,
            at_unix_ms: record.at_unix_ms,
            input: intent.input.clone(),
        });
    }

    fn settle(&mut self, outcome: &Outcome, record: &Record) {
        if outcome.attempt.logical != self.logical || self.is_settled() {
            return;
        }
        let is_read_back = matches!(&self.standing, Standing::Open(open)
            if open.attempt == outcome.attempt && open.is_read_back);
        // Of a try before the last one it was learnt late.
        let is_late = outcome.attempt.physical < self.physical;
        self.physical = self.physical.max(outcome.attempt.physical);
        if !is_read_back && let Some(doubt) = &mut self.doubt {
            doubt.attempts.retain(|attempt| *attempt != outcome.attempt);
            if doubt.attempts.is_empty() {
                self.doubt = None;
            }
        }
        if !matches!(outcome.result, StepResult::Ambiguous(Ambiguity::WorkerLost)) {
            self.workers_lost = 0;
        }
        if !matches!(outcome.result, StepResult::Deferred { .. }) {
            self.deferrals = 0;
        }
        self.said = None;
        let at_unix_ms = record.at_unix_ms;
        match &outcome.result {
            StepResult::Done { output } => {
                self.doubt = None;
                self.standing = Standing::Settled(Settled::Done { output: output.clone() });
            }
            StepResult::Skipped => self.standing = Standing::Settled(Settled::Skipped),
            StepResult::Deferred { until_unix_ms, reason } => {
                self.deferrals += 1;
                self.standing = Standing::Deferred { until_unix_ms: *until_unix_ms, reason: *reason };
            }
            StepResult::Ambiguous(why) => self.doubt_about(*why, is_read_back, outcome.attempt, at_unix_ms),
            StepResult::Failed { class, .. } if is_read_back && *class == NOT_HAPPENED => {
                self.doubt = None;
                self.read_backs = 0;
                self.standing = Standing::NotHappened { at_unix_ms };
            }
            StepResult::Failed { class, detail } => match class.remedy() {
                Remedy::Retry => {
                    if is_read_back {
                        self.read_backs += 1;
                    } else {
                        self.tries += 1;
                    }
                    self.standing = Standing::Retry { class: *class, at_unix_ms };
                }
                Remedy::Reconnect => self.standing = Standing::NeedsReconnect,
                // What became of one try says nothing about another that may have had its effect.
                Remedy::Stop if is_late && self.doubt.as_ref().is_some_and(|doubt| !doubt.is_accepted) => {
                    self.standing = Standing::Ambiguous;
                }
                Remedy::Stop => {
                    self.standing = Standing::Settled(Settled::Failed { class: *class, detail: detail.clone() });
                }
            },
        }
    }

    fn doubt_about(&mut self, why: Ambiguity, is_read_back: bool, attempt: Attempt, at_unix_ms: u64) {
        self.standing = Standing::Ambiguous;
        self.workers_lost += u32::from(why == Ambiguity::WorkerLost);
        if is_read_back {
            // What is in doubt is the attempt before it. A read-back whose worker was lost has told nothing and is made again.
            if let Some(doubt) = &mut self.doubt
                && why == Ambiguity::ReadBack
            {
                doubt.why = why;
            }
            return;
        }
        self.tries += u32::from(why == Ambiguity::NoAnswer);
        self.read_backs = 0;
        let mut attempts = self.doubt.take().map_or_else(Vec::new, |doubt| doubt.attempts);
        attempts.push(attempt);
        self.doubt = Some(Doubt { attempts, why, since_unix_ms: at_unix_ms, is_accepted: false });
    }

    fn learn(&mut self, outcome: &Outcome) {
        if self.late.len() == LATE_MAX {
            self.late.remove(0);
        }
        self.late.push(outcome.clone());
    }

    fn release(&mut self) {
        self.workers_lost = 0;
        self.said = None;
        match self.standing {
            Standing::Deferred { reason, .. } if reason != ParkReason::Delay => self.standing = self.waiting(),
            Standing::Retry { .. } | Standing::NotHappened { .. } | Standing::NeedsReconnect => {
                self.standing = self.waiting();
            }
            Standing::Deferred { .. }
            | Standing::Fresh
            | Standing::Open(_)
            | Standing::Ambiguous
            | Standing::Settled(_) => {}
        }
    }

    /// Nothing to wait for any more; a doubt that nobody has accepted stays what has to be looked at first.
    fn waiting(&self) -> Standing {
        match &self.doubt {
            Some(doubt) if !doubt.is_accepted => Standing::Ambiguous,
            _ => Standing::Fresh,
        }
    }
}

/// How the outcome of a read-back says that the effect has not happened.
pub const NOT_HAPPENED: FailureClass = FailureClass::NotFound;

#[cfg(test)]
mod tests;
