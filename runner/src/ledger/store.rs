//! What every engine of the ledger keeps to.

use std::fmt;
use std::pin::Pin;

use domain::TenantId;
use tokio::sync::watch;

use super::record::{Body, QueueClass, Record};
use crate::ids::RunId;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The durable, append-only ledger.
///
/// - A commit whose append came back `Ok` survives power loss, whole; one that did not may be there all the same, as a
///   whole or not at all: whoever does not know reads.
/// - Of two commits with the same (run, expected) one is refused. So a run is admitted once, two workers never both go on,
///   and whoever acts on what it has read acts on what is.
/// - A commit under a lease is refused once a higher one was taken.
pub trait LedgerStore: Send + Sync + fmt::Debug {
    /// Durable when the future says so. Dropping the future withdraws nothing.
    fn append(&self, commit: Commit) -> BoxFuture<'static, Result<Committed, AppendError>>;

    /// All records of a run, in order; empty where there is none. Every record's tenant is compared with this one, and a
    /// record of another tenant is [`ReadError::Tenant`], whatever else was read.
    fn read(&self, tenant: &TenantId, run: RunId) -> BoxFuture<'static, Result<Vec<Record>, ReadError>>;

    /// Records of all runs in an order in which each run's own are in sequence, from a place on; at most `max` of them, and
    /// none at the durable end. Fewer than `max` only at that end, or where their payloads are more than 1 MiB: that is how
    /// a follower tells that it has caught up. What projections are made of. `TailPosition::START` is the oldest that is left.
    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, Result<Tail, ReadError>>;

    /// Changes when something more is durable.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Holds on to a lease for longer: no record. `Fenced` if another has taken the run.
    fn renew(&self, run: RunId, lease: u64, until_unix_ms: u64) -> BoxFuture<'static, Result<(), AppendError>>;

    /// Runs that nobody works on although they could go on: their lease has lapsed and they are not parked beyond now.
    /// An engine may give them in portions of at most `max`: the next call goes on behind this one, and behind the last it
    /// begins anew. Engines of one process, which know that all leases before them are void, say nothing here.
    fn claimable(&self, now_unix_ms: u64, max: usize) -> BoxFuture<'static, Result<Vec<Claimable>, ReadError>>;
}

/// Records of one run that become durable together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub tenant: TenantId,
    pub run: RunId,
    /// Sequence of the last record that the writer knows; 0 for an admission.
    pub expected: u64,
    pub writer: Writer,
    pub at_unix_ms: u64,
    /// 1 to 256. They get the sequences from `expected + 1` on.
    pub bodies: Vec<Body>,
}

/// By what right something is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Whoever holds this lease. A commit whose first body is [`Body::Lease`] takes it, if it is higher than the one in
    /// force.
    Lease(u64),
    /// Anybody: for an admission, late outcomes, releases, choices, re-runs, cancellations, and no other body.
    Anyone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Sequence of the last record.
    pub seq: u64,
    /// The lease in force.
    pub lease: u64,
}

/// Why nothing is known to be appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The run has gone on: read it, and decide anew.
    #[error("the run has gone on to record {seq}")]
    Conflict { seq: u64 },
    /// Another worker has it.
    #[error("the lease was taken by another, {lease}")]
    Fenced { lease: u64 },
    /// The commit breaks a rule of the ledger: a fault of ours.
    #[error("no commit: {0}")]
    Invalid(&'static str),
    #[error("the run is another tenant's")]
    Tenant,
    #[error("the ledger has no room")]
    Full,
    /// It may have been appended.
    #[error("the ledger cannot be written: {0}")]
    Unavailable(Box<str>),
    #[error("a commit of {bytes} bytes is larger than {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error("the ledger is closed")]
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Never answered to anybody: it halts the reader and is told loudly.
    #[error("a record of run {run} is tenant {found}'s, and was read for tenant {asked}")]
    Tenant { run: RunId, found: TenantId, asked: TenantId },
    #[error("the ledger is damaged: {0}")]
    Damaged(Box<str>),
    #[error("the ledger cannot be read: {0}")]
    Unavailable(Box<str>),
    /// What comes next was dropped: its age was up. Begin at `TailPosition::START`.
    #[error("the records before this place are gone")]
    Trimmed,
}

/// A place between two commits; opaque, and an engine's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TailPosition(pub Box<[u8]>);

impl TailPosition {
    /// Before the oldest record that is left.
    pub fn start() -> Self {
        Self::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    pub records: Vec<Record>,
    /// Behind the last of them.
    pub next: TailPosition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimable {
    pub tenant: TenantId,
    pub run: RunId,
    pub seq: u64,
    pub lease: u64,
    /// The queue that it began in.
    pub class: QueueClass,
}
