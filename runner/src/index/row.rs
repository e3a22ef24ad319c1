//! What the index keeps of a run: enough to list it, to find it and to go on with it, and no payload.

use domain::{ConnectionId, EventId, TenantId};

use crate::failure::FailureClass;
use crate::ids::{AutomationId, RunId, StepId, Version};
use crate::ledger::{Admitted, Body, Cause, Intent, ParkReason, Parked, QueueClass, Record, RunStatus, Terminal};

/// Steps of which a row remembers something: more than an automation has nodes.
const STEPS_MAX: usize = 256;

/// A run in short, folded record by record: after each record it is what a fold of all of them would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// Asserted on every read.
    pub tenant: TenantId,
    pub run: RunId,
    pub automation: AutomationId,
    pub version: Version,
    pub cause: Cause,
    /// The queue that it began in.
    pub class: QueueClass,
    pub status: RunStatus,
    pub admitted_unix_ms: u64,
    /// When it ends unfinished.
    pub deadline_unix_ms: u64,
    /// When its last record was written.
    pub updated_unix_ms: u64,
    pub ended_unix_ms: Option<u64>,
    pub failed_at: Option<StepId>,
    pub failure: Option<FailureClass>,
    /// Sequence of the last record that is in here.
    pub seq: u64,
    /// Calls that were begun, read-backs not counted.
    pub attempts: u32,
    /// Times that somebody asked for a step again.
    pub reruns: u32,
    /// Workers that were lost over it: leases that were taken while another one's was not given back.
    pub crashes: u32,
    pub is_cancel_requested: bool,
    /// Since when it is set aside, until somebody lets it go on.
    pub quarantined_unix_ms: Option<u64>,
    /// It was set aside at some time; what became of it then is its status.
    pub was_quarantined: bool,
    /// Since when nobody needs to look at it any more, where somebody has said so.
    pub dismissed_unix_ms: Option<u64>,
    /// What all of it waits for.
    pub park: Option<Park>,
    /// Steps that wait for somebody, whether or not others go on meanwhile.
    pub waits: Vec<Park>,
    /// A worker has taken it and has neither parked nor ended it: it works, or it was lost.
    pub(super) is_worked_on: bool,
    /// From its admission to its first deadline: what it is given anew when it is opened again.
    pub(super) span_ms: u64,
    /// Through which connection each step last called. Empty once the run is over.
    pub(super) connections: Vec<(StepId, ConnectionId)>,
}

/// Something that a run or one of its steps waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    pub reason: ParkReason,
    /// None: all of the run waits.
    pub step: Option<StepId>,
    /// Where its step has called through one.
    pub connection: Option<ConnectionId>,
    pub since_unix_ms: u64,
    /// None: until somebody acts.
    pub until_unix_ms: Option<u64>,
}

impl Park {
    /// It ends when somebody has acted, whatever the clock says.
    pub fn needs_somebody(&self) -> bool {
        matches!(self.reason, ParkReason::NeedsReconnect | ParkReason::Ambiguous)
    }
}

/// Whether a run of this status is over.
pub fn is_over(status: RunStatus) -> bool {
    match status {
        RunStatus::Queued
        | RunStatus::Running
        | RunStatus::Parked
        | RunStatus::NeedsAttention
        | RunStatus::Quarantined => false,
        RunStatus::Succeeded
        | RunStatus::Failed
        | RunStatus::Cancelled
        | RunStatus::TimedOut
        | RunStatus::EndedAmbiguous => true,
    }
}

impl RunRow {
    /// The row of a run's first record; none if it is no admission.
    pub fn admit(record: &Record) -> Option<Self> {
        let Body::Admitted(admitted) = &record.body else { return None };
        let Admitted { automation, version, cause, class, deadline_unix_ms, input: _ } = admitted;
        Some(Self {
            tenant: record.tenant.clone(),
            run: record.run,
            automation: *automation,
            version: *version,
            cause: cause.clone(),
            class: *class,
            status: RunStatus::Queued,
            admitted_unix_ms: record.at_unix_ms,
            deadline_unix_ms: *deadline_unix_ms,
            updated_unix_ms: record.at_unix_ms,
            ended_unix_ms: None,
            failed_at: None,
            failure: None,
            seq: record.seq,
            attempts: 0,
            reruns: 0,
            crashes: 0,
            is_cancel_requested: false,
            quarantined_unix_ms: None,
            was_quarantined: false,
            dismissed_unix_ms: None,
            park: None,
            waits: Vec::new(),
            is_worked_on: false,
            span_ms: deadline_unix_ms.saturating_sub(record.at_unix_ms),
            connections: Vec::new(),
        })
    }

    /// The row of all records of a run; none if they do not begin with its admission.
    pub fn fold(records: &[Record]) -> Option<Self> {
        let (first, rest) = records.split_first()?;
        let mut row = Self::admit(first)?;
        for record in rest {
            row.apply(record);
        }
        Some(row)
    }

    /// Takes in the next record. Whoever calls has seen that it is the next one, and of this run and tenant.
    pub fn apply(&mut self, record: &Record) {
        self.seq = record.seq;
        self.updated_unix_ms = record.at_unix_ms;
        match &record.body {
            // Only ever the first, and that made the row; late ones are evidence.
            Body::Admitted(_) | Body::LateOutcome(_) => {}
            Body::Outcome(outcome) => self.waits_no_more(&outcome.step),
            Body::Lease(_) => {
                self.crashes = self.crashes.saturating_add(u32::from(self.is_worked_on));
                (self.is_worked_on, self.park) = (true, None);
            }
            Body::Intent(intent) => self.begin(intent),
            Body::Parked(parked) => self.park(parked, record.at_unix_ms),
            Body::Released(_) => {
                self.park = None;
                self.waits.clear();
                if self.quarantined_unix_ms.take().is_some() {
                    self.begin_deadline_anew(record.at_unix_ms);
                }
            }
            Body::Resolved(resolved) => {
                self.waits_no_more(&resolved.step);
                self.park.take_if(|park| park.reason == ParkReason::Ambiguous);
            }
            Body::Rerun(rerun) => {
                self.waits_no_more(&rerun.step);
                self.open_again(record.at_unix_ms);
            }
            Body::CancelRequested(_) => self.is_cancel_requested = true,
            Body::Quarantined(quarantined) => {
                self.quarantined_unix_ms = Some(record.at_unix_ms);
                self.was_quarantined = true;
                self.crashes = self.crashes.max(quarantined.crashes);
                (self.is_worked_on, self.park) = (false, None);
            }
            Body::Terminal(terminal) => return self.end(terminal, record.at_unix_ms),
            // What goes on may go wrong yet.
            Body::Dismissed(_) => self.dismissed_unix_ms = self.ended_unix_ms.map(|_| record.at_unix_ms),
        }
        if self.ended_unix_ms.is_none() {
            self.status = self.unfinished_status();
        }
    }

    /// Of a run that is not over. The fold of the engine says the same.
    fn unfinished_status(&self) -> RunStatus {
        match &self.park {
            _ if self.quarantined_unix_ms.is_some() => RunStatus::Quarantined,
            Some(park) if park.needs_somebody() => RunStatus::NeedsAttention,
            Some(_) => RunStatus::Parked,
            None if self.is_worked_on => RunStatus::Running,
            None => RunStatus::Queued,
        }
    }

    fn begin(&mut self, intent: &Intent) {
        self.waits_no_more(&intent.step);
        self.attempts = self.attempts.saturating_add(u32::from(!intent.is_read_back));
        if let Some(connection) = &intent.connection {
            let is_full = self.connections.len() >= STEPS_MAX;
            match self.connections.iter_mut().find(|(step, _)| *step == intent.step) {
                Some((_, last)) => last.clone_from(connection),
                None if is_full => {}
                None => self.connections.push((intent.step.clone(), connection.clone())),
            }
        }
    }

    fn park(&mut self, parked: &Parked, at_unix_ms: u64) {
        let of = |step: &StepId| self.connections.iter().find(|(with, _)| with == step).map(|(_, of)| of.clone());
        let park = Park {
            reason: parked.reason,
            step: parked.step.clone(),
            connection: parked.step.as_ref().and_then(of),
            since_unix_ms: at_unix_ms,
            until_unix_ms: parked.until_unix_ms,
        };
        let Some(step) = &parked.step else {
            self.park = Some(park);
            self.is_worked_on = false;
            return;
        };
        // A step waits, and others may go on.
        self.waits_no_more(step);
        if self.waits.len() < STEPS_MAX {
            self.waits.push(park);
        }
    }

    fn waits_no_more(&mut self, step: &StepId) {
        self.waits.retain(|wait| wait.step.as_ref() != Some(step));
    }

    fn open_again(&mut self, at_unix_ms: u64) {
        self.reruns = self.reruns.saturating_add(1);
        (self.park, self.dismissed_unix_ms) = (None, None);
        if self.ended_unix_ms.take().is_some() {
            (self.failed_at, self.failure, self.is_cancel_requested) = (None, None, false);
            self.quarantined_unix_ms = None;
            self.begin_deadline_anew(at_unix_ms);
        }
    }

    fn begin_deadline_anew(&mut self, at_unix_ms: u64) {
        self.deadline_unix_ms = self.deadline_unix_ms.max(at_unix_ms.saturating_add(self.span_ms));
    }

    fn end(&mut self, terminal: &Terminal, at_unix_ms: u64) {
        self.status = terminal.status;
        self.ended_unix_ms = Some(at_unix_ms);
        self.failed_at.clone_from(&terminal.failed_at);
        self.failure = terminal.class;
        (self.is_worked_on, self.park) = (false, None);
        // A run that is over is one of very many.
        (self.waits, self.connections) = (Vec::new(), Vec::new());
    }

    /// The event that it is a run of.
    pub fn event(&self) -> Option<EventId> {
        match &self.cause {
            Cause::Event { event, .. } | Cause::Replay { event, .. } => Some(*event),
            Cause::Manual { .. } | Cause::Again { .. } => None,
        }
    }

    /// The replay that it belongs to.
    pub fn replay(&self) -> Option<&str> {
        match &self.cause {
            Cause::Replay { replay, .. } | Cause::Again { replay, .. } => Some(replay),
            Cause::Event { .. } | Cause::Manual { .. } => None,
        }
    }

    /// Somebody should look at it, however old it is: it was set aside for what it did to its workers, it was tried as
    /// often as it may be, or it ended while nobody knew what it had done. Until somebody has put it away.
    pub fn is_dead_letter(&self) -> bool {
        self.dismissed_unix_ms.is_none() && self.has_gone_wrong()
    }

    fn has_gone_wrong(&self) -> bool {
        match self.status {
            RunStatus::Quarantined | RunStatus::EndedAmbiguous => true,
            RunStatus::Failed | RunStatus::TimedOut => {
                self.was_quarantined || self.failure == Some(FailureClass::AttemptsExhausted)
            }
            RunStatus::Queued
            | RunStatus::Running
            | RunStatus::Parked
            | RunStatus::NeedsAttention
            | RunStatus::Succeeded
            | RunStatus::Cancelled => false,
        }
    }
}
