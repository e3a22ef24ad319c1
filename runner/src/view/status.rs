//! How a node stands, in a word.

use crate::engine::state::{RunState, Settled, Standing, StepState};

/// Of a run that goes on: all but `not-reached`, `ambiguous` and `abandoned`. Of one that is over, only those that are
/// settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStatus {
    /// Something before it is not settled, or it is next.
    Waiting,
    /// A call is under way.
    Running,
    /// It failed for the time being, and is tried again.
    Retrying,
    /// It goes on at a time that somebody else has set.
    Parked,
    /// It goes on when somebody has acted.
    NeedsAttention,
    Succeeded,
    /// Somebody has accepted that its effect may not have happened.
    GapAccepted,
    /// Nothing before it was taken, or its condition was false.
    Skipped,
    Failed,
    /// The run ended before it.
    NotReached,
    /// The run ended, and nobody knows whether its effect has happened.
    Ambiguous,
    /// The run ended before it was tried again; it has had no effect that is known.
    Abandoned,
}

impl NodeStatus {
    pub const ALL: [Self; 12] = [
        Self::Waiting,
        Self::Running,
        Self::Retrying,
        Self::Parked,
        Self::NeedsAttention,
        Self::Succeeded,
        Self::GapAccepted,
        Self::Skipped,
        Self::Failed,
        Self::NotReached,
        Self::Ambiguous,
        Self::Abandoned,
    ];

    /// Kebab-case, for ever.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Parked => "parked",
            Self::NeedsAttention => "needs-attention",
            Self::Succeeded => "succeeded",
            Self::GapAccepted => "gap-accepted",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::NotReached => "not-reached",
            Self::Ambiguous => "ambiguous",
            Self::Abandoned => "abandoned",
        }
    }

    /// Nothing more happens to it, unless somebody asks for it again.
    pub fn is_settled(self) -> bool {
        self >= Self::Succeeded
    }
}

pub(super) fn of_step(step: Option<&StepState>, run: &RunState) -> NodeStatus {
    let is_over = run.terminal.is_some();
    let Some(step) = step else { return if is_over { NodeStatus::NotReached } else { NodeStatus::Waiting } };
    match &step.standing {
        Standing::Settled(Settled::Done { .. }) => NodeStatus::Succeeded,
        Standing::Settled(Settled::Gap) => NodeStatus::GapAccepted,
        Standing::Settled(Settled::Skipped) => NodeStatus::Skipped,
        Standing::Settled(Settled::Failed { .. }) => NodeStatus::Failed,
        // An open call of a run that is over is one that nobody waited for any more.
        Standing::Open(open) if is_over && !open.is_read_back => NodeStatus::Ambiguous,
        _ if is_over && step.doubt.is_some() => NodeStatus::Ambiguous,
        Standing::Fresh if is_over && step.attempts == 0 => NodeStatus::NotReached,
        _ if is_over => NodeStatus::Abandoned,
        Standing::Fresh => NodeStatus::Waiting,
        Standing::Open(_) => NodeStatus::Running,
        Standing::Retry { .. } | Standing::NotHappened { .. } => NodeStatus::Retrying,
        Standing::Deferred { .. } => NodeStatus::Parked,
        // One that the action's class clears up by itself is not said to wait for somebody, and is under way.
        Standing::Ambiguous if step.said.is_none() => NodeStatus::Retrying,
        Standing::NeedsReconnect | Standing::Ambiguous => NodeStatus::NeedsAttention,
    }
}
