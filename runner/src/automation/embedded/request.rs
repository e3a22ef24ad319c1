//! What the writer is asked for, and who waits for the answer.

use domain::{ConnectionId, TenantId};
use tokio::sync::oneshot;

use super::super::store::{ConnectionState, StoreError, Stored};
use crate::ids::AutomationId;

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) tenant: TenantId,
    pub(super) change: Change,
}

#[derive(Debug)]
pub(super) enum Change {
    Put(Box<Stored>, Answer<()>),
    Delete(AutomationId, Box<str>, Answer<bool>),
    Connection(ConnectionId, ConnectionState, Answer<bool>),
}

/// Who waits, once it is known what is to be written.
#[derive(Debug)]
pub(super) enum Waiting {
    Done(Answer<()>),
    Changed(Answer<bool>),
}

impl Waiting {
    pub(super) fn answer(self, result: Result<(), StoreError>) {
        // Whoever has gone does not want to know.
        match self {
            Self::Done(answer) => drop(answer.send(result)),
            Self::Changed(answer) => drop(answer.send(result.map(|()| true))),
        }
    }
}
