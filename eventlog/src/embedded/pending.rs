//! An append that waits for its journal.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use domain::{EventId, NodeId};

use super::lane::Lane;
use crate::error::AppendError;
use crate::log::Appended;
use crate::segment;

#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) append: segment::Append,
    pub(super) id: EventId,
    pub(super) node: NodeId,
    pub(super) lane: Arc<Lane>,
}

impl Pending {
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Appended, AppendError>> {
        Pin::new(&mut self.append).poll(context).map(|outcome| finish(outcome, self.id, self.node, &self.lane))
    }

    pub(crate) fn wait(self) -> Result<Appended, AppendError> {
        let Self { append, id, node, lane } = self;
        finish(append.wait(), id, node, &lane)
    }
}

fn finish(
    outcome: Result<segment::Appended, segment::AppendError>,
    id: EventId,
    node: NodeId,
    lane: &Lane,
) -> Result<Appended, AppendError> {
    let segment::Appended { position, sequence, epoch } = outcome?;
    Ok(Appended { id, position: lane.position(position), node, epoch, sequence })
}

impl From<segment::AppendError> for AppendError {
    fn from(fault: segment::AppendError) -> Self {
        match fault {
            segment::AppendError::QueueFull => Self::QueueFull,
            segment::AppendError::Full => Self::Full,
            segment::AppendError::Unavailable { reason } => Self::Unavailable { reason: reason.to_string() },
            segment::AppendError::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            segment::AppendError::Closed => Self::Closed,
            // Events are appended without a check.
            segment::AppendError::Rejected(why) => Self::Unavailable { reason: why.0.into() },
        }
    }
}
