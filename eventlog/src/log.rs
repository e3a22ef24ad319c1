//! The contract that every engine keeps. `conformance` says it in tests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use domain::{EndpointId, EventId, NodeId, TenantId};
use tokio::sync::oneshot;

use crate::changes::Changes;
use crate::error::{AppendError, CloseError, GroupError, ReadError, TrimError};
use crate::event::{NewEvent, StoredEvent};
use crate::position::{Cursor, Position};
use crate::stat::{Stat, Trimmed};

/// The durable log of events.
///
/// - An event whose append came back `Ok` survives power loss, byte for byte, until it is trimmed.
/// - Events of one endpoint come out in the order in which they were appended, with dense sequences per journal
///   and writer epoch. Between endpoints there is no order.
/// - Reads stop at the durable place, and every record that a read returns was checked against its scope.
///
/// Reading blocks on the disk: on a runtime, read from a thread that may block.
pub trait EventLog: Send + Sync + fmt::Debug {
    /// Queues the event and returns at once. The future is ready when the event is durable, or when it is known
    /// that it will not be; dropping the future does not take the event back.
    fn append(&self, event: NewEvent) -> Append;

    /// Why an append for this endpoint would be refused at once if it came now: the log takes nothing for the moment. It
    /// costs a look and no more, and is no promise for the append that follows. For whoever spends something before it.
    fn refuses(&self, retention: &str, endpoint: &EndpointId) -> Option<AppendError>;

    /// The place behind the last durable event: where a reader that starts now with [`Start::Latest`] begins.
    fn durable(&self) -> Cursor;

    /// What a reader at the durable end waits for, on a runtime. An engine that cannot tell says nothing.
    fn changes(&self) -> Changes {
        Changes::none()
    }

    /// Reads forward from a place.
    fn reader(&self, scope: Scope, start: Start, filter: Filter) -> Result<Box<dyn EventReader>, ReadError>;

    /// Finds one event: a bounded seek, whatever the log holds.
    fn by_id(&self, scope: &Scope, id: EventId) -> Result<Option<StoredEvent>, ReadError>;

    /// Consumers' committed places.
    fn groups(&self) -> &dyn ConsumerGroups;

    /// Drops whole segments that are past the age of their retention class.
    fn trim(&self) -> Result<Trimmed, TrimError>;

    /// Bytes that a tenant's events take now, as the limit on stored bytes counts them: the records, without
    /// what the log puts around them.
    fn stored_bytes(&self, tenant: &TenantId) -> u64;

    fn stat(&self) -> Stat;

    /// Commits what is queued, then refuses appends. Reads go on working.
    fn close(&self) -> Result<(), CloseError>;
}

/// Walks over events in order. One that returned an error is halted and repeats the error.
pub trait EventReader: Send + fmt::Debug {
    /// The next event of this reader's scope and filter, or `None` at the durable end for the moment: ask again
    /// later.
    fn next(&mut self) -> Result<Option<StoredEvent>, ReadError>;

    /// Goes on behind the damage that the last error named, or behind the one record that this version cannot read as
    /// an event, and says whether there was some to pass. What is passed is
    /// lost to this reader: only an operator who has read the error may decide that.
    fn skip_damage(&mut self) -> bool {
        false
    }

    /// Goes on with the oldest event that is left, where the last error said that what was next has been trimmed, and
    /// says whether it had. For whoever copies what there is; a consumer that came too late has lost something, and must
    /// know.
    fn skip_trimmed(&mut self) -> bool {
        false
    }

    /// The place behind what `next` has returned or passed over: what a consumer commits, and what
    /// [`Start::At`] takes.
    fn cursor(&self) -> Cursor;
}

/// Durable places of consumers, by name.
pub trait ConsumerGroups: Send + Sync + fmt::Debug {
    /// Returns when the place survives power loss. The place may go back: that is how a group replays.
    fn commit(&self, group: &str, cursor: &Cursor) -> Result<(), GroupError>;

    fn cursor(&self, group: &str) -> Result<Option<Cursor>, GroupError>;

    fn list(&self) -> Result<Vec<String>, GroupError>;

    /// Forgets the group; says whether there was one.
    fn remove(&self, group: &str) -> Result<bool, GroupError>;
}

/// Whose events a read may return. Asserted on every record; a record of another tenant halts the read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Tenant(TenantId),
    /// Every tenant's, for the operator's own commands. Nothing that answers a tenant may use it.
    Operator,
}

/// Where a reader begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Start {
    /// With the oldest event that is left.
    #[default]
    Earliest,
    /// So near to the end that at least so many events of the scope and filter lie behind it, or all that there are: what
    /// a look at the newest reads. What lies before it is not met, damage and records of others among it.
    Newest(usize),
    /// With the first event that becomes durable from now on.
    Latest,
    /// At a consumer's place. What lies between it and the oldest event, if it was trimmed, is an error and
    /// never passed over.
    At(Cursor),
}

/// Which events of the scope a reader returns. Times are receive times; the range is half-open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub endpoint: Option<EndpointId>,
    pub from_unix_ms: Option<u64>,
    pub until_unix_ms: Option<u64>,
}

impl Filter {
    pub fn endpoint(endpoint: EndpointId) -> Self {
        Self { endpoint: Some(endpoint), ..Self::default() }
    }

    /// Does the receive time lie in the range?
    pub fn takes_time(&self, received_unix_ms: u64) -> bool {
        self.from_unix_ms.is_none_or(|from| received_unix_ms >= from)
            && self.until_unix_ms.is_none_or(|until| received_unix_ms < until)
    }

    /// Can something between these receive times, both included, lie in the range?
    pub fn meets_times(&self, first_unix_ms: u64, last_unix_ms: u64) -> bool {
        self.from_unix_ms.is_none_or(|from| last_unix_ms >= from)
            && self.until_unix_ms.is_none_or(|until| first_unix_ms < until)
    }
}

/// A durable event's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    pub id: EventId,
    pub position: Position,
    pub node: NodeId,
    pub epoch: u64,
    pub sequence: u64,
}

/// Waits until an event is durable.
#[must_use = "an event is acknowledged only when this future says that it is durable"]
pub struct Append(State);

enum State {
    /// Known at once: mostly a refusal.
    Ready(Option<Result<Appended, AppendError>>),
    Waiting(oneshot::Receiver<Result<Appended, AppendError>>),
    Journal(crate::embedded::Pending),
}

impl Append {
    pub fn ready(outcome: Result<Appended, AppendError>) -> Self {
        Self(State::Ready(Some(outcome)))
    }

    /// For engines that answer from somewhere else. A sender that goes away without an answer is a writer that
    /// died: the event is unacknowledged.
    pub fn waiting(receiver: oneshot::Receiver<Result<Appended, AppendError>>) -> Self {
        Self(State::Waiting(receiver))
    }

    pub(crate) fn journal(pending: crate::embedded::Pending) -> Self {
        Self(State::Journal(pending))
    }

    /// Waits on a thread that runs no async code.
    pub fn wait(self) -> Result<Appended, AppendError> {
        match self.0 {
            State::Ready(outcome) => outcome.unwrap_or(Err(AppendError::Closed)),
            State::Waiting(receiver) => receiver.blocking_recv().unwrap_or_else(|_| Err(writer_stopped())),
            State::Journal(pending) => pending.wait(),
        }
    }
}

fn writer_stopped() -> AppendError {
    AppendError::Unavailable { reason: "the writer stopped".to_owned() }
}

impl Future for Append {
    type Output = Result<Appended, AppendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(outcome) => Poll::Ready(outcome.take().unwrap_or(Err(AppendError::Closed))),
            State::Waiting(receiver) => {
                Pin::new(receiver).poll(context).map(|answer| answer.unwrap_or_else(|_| Err(writer_stopped())))
            }
            State::Journal(pending) => pending.poll(context),
        }
    }
}

impl fmt::Debug for Append {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Append").finish_non_exhaustive()
    }
}
