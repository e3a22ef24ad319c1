//! Why the index does not answer.

use std::io;

use crate::ids::RunId;
use crate::ledger::ReadError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Answered to nobody, counted, and told loudly: a row was found under a tenant that it is not of.
    #[error("the row of run {run} is another tenant's")]
    Tenant { run: RunId },
    /// What is on the disk is no index of ours. It is made anew from the ledger by `rebuild`.
    #[error("the index is damaged: {0}")]
    Damaged(Box<str>),
    /// The dead letters beyond retention are, and they are in no ledger any more.
    #[error(
        "the dead letters that are kept beyond retention are damaged ({why}): move {at} away to go on without them"
    )]
    Kept { at: Box<str>, why: Box<str> },
    #[error("the index cannot be read or written: {0}")]
    Unavailable(Box<str>),
    /// It takes nothing more until it is opened anew, also where there is room again.
    #[error("the index cannot be written any more: an earlier write failed")]
    Poisoned,
    /// The text is no place in a list.
    #[error("the cursor is none of ours")]
    Cursor,
    #[error("the ledger cannot be followed: {0}")]
    Ledger(#[from] ReadError),
    /// Another process has it.
    #[error("the index is open in another process")]
    Locked,
    #[error("the index is closed")]
    Closed,
}

impl From<fjall::Error> for IndexError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the engine's errors are non-exhaustive, and all else is damage"
    )]
    fn from(fault: fjall::Error) -> Self {
        match fault {
            fjall::Error::Locked => Self::Locked,
            fjall::Error::Io(fault) | fjall::Error::Storage(fjall::LsmError::Io(fault)) => fault.into(),
            fjall::Error::Poisoned => Self::Poisoned,
            fjall::Error::KeyspaceDeleted => Self::Unavailable("its period was dropped meanwhile".into()),
            other => Self::Damaged(other.to_string().into()),
        }
    }
}

impl From<io::Error> for IndexError {
    fn from(fault: io::Error) -> Self {
        // A full disk or a failing one says nothing about what is on it; files that are gone or too short do.
        let is_damage =
            matches!(fault.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData);
        let fault = fault.to_string().into();
        if is_damage { Self::Damaged(fault) } else { Self::Unavailable(fault) }
    }
}
