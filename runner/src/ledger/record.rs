//! What is written about a run, one record per fact.
//!
//! A run's records have dense sequences from 1, the first is its admission, and nothing follows a terminal one but late
//! outcomes, a dismissal, and a re-run, which opens it again.

use bytes::Bytes;
use domain::{ConnectionId, EndpointId, EventId, TenantId};

use crate::failure::FailureClass;
use crate::ids::{AutomationId, EffectKey, LogicalAttempt, RunId, StepId, Version};

/// A record with its place in its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub run: RunId,
    /// Asserted on every read against the reader's own.
    pub tenant: TenantId,
    /// Dense from 1 within the run.
    pub seq: u64,
    /// The lease in force when it was written; 0 before the first.
    pub lease: u64,
    /// Wall clock of the writer, in milliseconds since the Unix epoch. It may step.
    pub at_unix_ms: u64,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The run exists. Always the first.
    Admitted(Admitted),
    /// A worker has it from here on, under a lease that is higher than any before.
    Lease(Lease),
    /// A call is about to be made. Without an outcome behind it, it may have been.
    Intent(Intent),
    /// What came of an attempt, or of a step that makes no call.
    Outcome(Outcome),
    /// What came of an attempt, learnt after its worker had lost the lease: evidence, and no step forward by that worker.
    LateOutcome(Outcome),
    /// Nobody works on it until it is released.
    Parked(Parked),
    Released(Released),
    /// Somebody decided about an ambiguous effect.
    Resolved(Resolved),
    /// Somebody asked for a step again: a new logical attempt, with another effect key.
    Rerun(Rerun),
    CancelRequested(CancelRequested),
    /// It crashed its workers too often; only an operator lets it go on.
    Quarantined(Quarantined),
    /// It is over.
    Terminal(Terminal),
    /// Somebody has looked at a run that is over and needs no more looking at: it is no dead letter any longer.
    Dismissed(Dismissed),
}

impl Body {
    /// What went in or came out, where the body has it.
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Admitted(admitted) => admitted.input.as_ref(),
            Self::Intent(intent) => Some(&intent.input),
            Self::Outcome(outcome) | Self::LateOutcome(outcome) => match &outcome.result {
                Result::Done { output } => Some(output),
                Result::Skipped | Result::Failed { .. } | Result::Deferred { .. } | Result::Ambiguous(_) => None,
            },
            Self::Rerun(rerun) => rerun.input.as_ref(),
            Self::Lease(_)
            | Self::Parked(_)
            | Self::Released(_)
            | Self::Resolved(_)
            | Self::CancelRequested(_)
            | Self::Quarantined(_)
            | Self::Terminal(_)
            | Self::Dismissed(_) => None,
        }
    }

    /// The same, to be changed: retention takes it away.
    pub fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::Admitted(admitted) => admitted.input.as_mut(),
            Self::Intent(intent) => Some(&mut intent.input),
            Self::Outcome(outcome) | Self::LateOutcome(outcome) => match &mut outcome.result {
                Result::Done { output } => Some(output),
                Result::Skipped | Result::Failed { .. } | Result::Deferred { .. } | Result::Ambiguous(_) => None,
            },
            Self::Rerun(rerun) => rerun.input.as_mut(),
            Self::Lease(_)
            | Self::Parked(_)
            | Self::Released(_)
            | Self::Resolved(_)
            | Self::CancelRequested(_)
            | Self::Quarantined(_)
            | Self::Terminal(_)
            | Self::Dismissed(_) => None,
        }
    }
}

/// Why a run exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// An event came.
    Event { event: EventId, endpoint: EndpointId },
    /// An event was replayed; `replay` names the replay, and is part of the run's id.
    Replay { event: EventId, endpoint: EndpointId, replay: Box<str> },
    /// Somebody started it with an input of their own.
    Manual { by: Box<str> },
    /// A run that somebody had started was replayed, with the input that it had; `replay` is part of the run's id.
    Again { of: RunId, replay: Box<str>, by: Box<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub automation: AutomationId,
    pub version: Version,
    pub cause: Cause,
    /// In which queue it begins.
    pub class: QueueClass,
    /// When it ends unfinished, in milliseconds since the Unix epoch.
    pub deadline_unix_ms: u64,
    /// What it was started with, where that is no event of the log.
    pub input: Option<Payload>,
}

/// The queue that a run waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueClass {
    Interactive,
    Retry,
    ParkedRelease,
    Bulk,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Higher than any before of this run.
    pub lease: u64,
    /// Who: a node and its process.
    pub owner: Box<str>,
    /// Until when nobody else may take it, unless it is renewed; by the store's clock where it has one.
    pub until_unix_ms: u64,
}

/// Which try of which asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// How often the author asked: part of the effect key.
    pub logical: LogicalAttempt,
    /// Tries of this asking, from 1.
    pub physical: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    pub step: StepId,
    pub attempt: Attempt,
    pub effect: EffectKey,
    /// It asks a provider whether an effect has happened, and makes none.
    pub is_read_back: bool,
    pub connection: Option<ConnectionId>,
    /// What is sent, as far as it is kept.
    pub input: Payload,
}

/// How much of a request can have reached the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendState {
    /// Nothing of it: no effect can have happened.
    NotSent,
    PartiallySent,
    SentNoResponse,
    Response,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub step: StepId,
    pub attempt: Attempt,
    pub result: Result,
    /// None of a step that makes no call.
    pub provider: Option<Provider>,
}

/// What is known of the exchange with a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    pub send_state: SendState,
    /// The answer's status, if there was one.
    pub status: Option<u16>,
    /// The provider's own words, redacted and cut: at most 1 KiB.
    pub message: Option<Box<str>>,
    /// By what name the provider's own logs know the request.
    pub request_id: Option<Box<str>>,
    /// By what name egress knows the call.
    pub correlation: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Result {
    Done {
        output: Payload,
    },
    /// Not taken: a branch that was not chosen, or nothing before it was done.
    Skipped,
    Failed {
        class: FailureClass,
        detail: Box<str>,
    },
    /// It was no try: the provider, its quota or a breaker says not now. Spends no retry.
    Deferred {
        until_unix_ms: u64,
        reason: ParkReason,
    },
    /// Nobody knows whether the effect has happened.
    Ambiguous(Ambiguity),
}

/// Why nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguity {
    /// The worker was gone between intent and outcome.
    WorkerLost,
    /// Sent, and no whole answer came.
    NoAnswer,
    /// The read-back did not tell.
    ReadBack,
}

/// Why nobody works on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParkReason {
    /// A `delay` node.
    Delay,
    /// Before the next try.
    Backoff,
    /// The provider said when.
    Provider,
    Quota,
    Breaker,
    /// The connection's authentication is dead: `needs_reconnect`.
    NeedsReconnect,
    /// An effect is ambiguous, and somebody has to choose.
    Ambiguous,
    /// What it calls through is not there: egress, or the ledger's room.
    Unavailable,
    /// The node that worked on it stops. It goes on at once, here when the node is back, or elsewhere.
    Restart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub reason: ParkReason,
    /// Of which step; none where all of the run waits.
    pub step: Option<StepId>,
    /// When it goes on by itself; none: somebody has to act.
    pub until_unix_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// Whoever or whatever did it.
    pub by: Box<str>,
}

/// The two choices about an ambiguous effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Go on as if it had happened, and accept that it may not have.
    ContinueAcceptGap,
    /// Do it again, and accept that it may happen twice.
    RetryAcceptDuplicate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub step: StepId,
    pub attempt: Attempt,
    pub choice: Choice,
    pub by: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rerun {
    pub step: StepId,
    pub logical: LogicalAttempt,
    /// In place of what the graph would give it.
    pub input: Option<Payload>,
    pub by: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequested {
    pub by: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Workers that were lost over it, one after the other.
    pub crashes: u32,
    pub reason: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    pub status: RunStatus,
    /// Where it failed, if it did.
    pub failed_at: Option<StepId>,
    pub class: Option<FailureClass>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dismissed {
    pub by: Box<str>,
    /// In the words of whoever did it.
    pub reason: Box<str>,
}

/// How a run is, as a fold of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunStatus {
    /// Admitted, and no worker has begun.
    Queued,
    Running,
    /// It waits for a time.
    Parked,
    /// It waits for somebody: an ambiguous effect, a connection to be made anew.
    NeedsAttention,
    Quarantined,
    Succeeded,
    Failed,
    Cancelled,
    /// Its deadline came first.
    TimedOut,
    /// Its deadline came while an effect was ambiguous: it may have happened.
    EndedAmbiguous,
}

/// An input or an output, as it is kept. What is not whole says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Of the original; of [`Kept::Beginning`], of as much of it as was read.
    pub bytes: u64,
    /// BLAKE3 of the same.
    pub digest: [u8; 32],
    pub kept: Kept,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Here, whole.
    Inline(Bytes),
    /// Whole, in the store of payloads, by tenant and digest.
    Stored,
    /// The first bytes of it; the rest is nowhere.
    Truncated(Bytes),
    /// The first bytes of what nobody has read to its end: it is longer than its length says.
    Beginning(Bytes),
    /// Its time was up: length and digest are what is left.
    Expired,
}
