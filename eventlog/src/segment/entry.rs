//! What is appended, and what comes of it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::position::Position;

/// A record's bytes in up to three parts, so that a body which is already in memory is copied once only: into the
/// batch. On disk they are one run of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    pub head: Vec<u8>,
    pub middle: Bytes,
    pub tail: Bytes,
}

impl Payload {
    pub fn len(&self) -> usize {
        self.head.len() + self.middle.len() + self.tail.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Payload {
    fn from(head: Vec<u8>) -> Self {
        Self { head, ..Self::default() }
    }
}

/// What a check sees: the state right before its own record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckContext {
    /// The stream's last sequence under this writer's epoch; 0 if it has none yet. Records of the same batch and
    /// before this one count.
    pub last_sequence: u64,
    pub epoch: u64,
}

/// A check's no, in words for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected(pub Box<str>);

/// Runs on the writer's thread, right before its record and in the order of appends. It must be quick and must not
/// block: every other append waits for it. If its batch then fails, nothing was appended although it said yes.
pub type Check = Box<dyn FnOnce(&CheckContext) -> Result<(), Rejected> + Send>;

/// One record to append.
pub struct Entry {
    /// Key of the dense sequence that the record gets a number of; 0 = none, its sequence is 0.
    pub stream: u64,
    /// When it came, by the journal's clock. One that says minutes less than the clock counts as younger than it says.
    pub time_unix_ms: u64,
    /// What the payload is, for the layer above.
    pub kind: u8,
    pub payload: Payload,
    pub check: Option<Check>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("stream", &self.stream)
            .field("time_unix_ms", &self.time_unix_ms)
            .field("kind", &self.kind)
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// A record that survives power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub position: Position,
    /// Dense from 1 in its stream and epoch; 0 without a stream.
    pub sequence: u64,
    pub epoch: u64,
}

/// Why a record was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// As many records or bytes wait as may.
    #[error("too many records wait for the disk")]
    QueueFull,
    /// The file system has no more than its reserve left.
    #[error("the disk is full")]
    Full,
    /// The disk failed, and no fresh segment has proved it yet. The record may be on disk all the same.
    #[error("the disk cannot be written: {reason}")]
    Unavailable { reason: Arc<str> },
    /// The entry's own check said no.
    #[error("rejected: {}", .0.0)]
    Rejected(Rejected),
    /// No segment can hold it.
    #[error("a record of {bytes} bytes is larger than {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    /// The journal is closed.
    #[error("the log is closed")]
    Closed,
}

pub(crate) type Waiter = oneshot::Sender<Result<Appended, AppendError>>;

/// Resolves once the record is durable, or is known not to be acknowledged. Dropping it withdraws nothing.
#[derive(Debug)]
#[must_use = "nothing may be acknowledged before this resolves"]
pub struct Append(Inner);

#[derive(Debug)]
enum Inner {
    Waiting(oneshot::Receiver<Result<Appended, AppendError>>),
    Refused(Option<AppendError>),
}

impl Append {
    pub(crate) fn waiting() -> (Waiter, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Inner::Waiting(receiver)))
    }

    pub(crate) fn refused(error: AppendError) -> Self {
        Self(Inner::Refused(Some(error)))
    }

    /// Waits on a thread that runs no async code.
    pub fn wait(self) -> Result<Appended, AppendError> {
        match self.0 {
            Inner::Waiting(receiver) => receiver.blocking_recv().unwrap_or(Err(AppendError::Closed)),
            Inner::Refused(error) => Err(error.unwrap_or(AppendError::Closed)),
        }
    }
}

impl Future for Append {
    type Output = Result<Appended, AppendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Waiting(receiver) => {
                // The writer answers every waiter that it takes; it is gone without an answer only when it died.
                Pin::new(receiver).poll(cx).map(|answer| answer.unwrap_or(Err(AppendError::Closed)))
            }
            Inner::Refused(error) => Poll::Ready(Err(error.take().unwrap_or(AppendError::Closed))),
        }
    }
}
