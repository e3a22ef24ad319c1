//! The step ledger: append-only, the only truth about runs.
//!
//! [`LedgerStore`] is the contract of every engine, and [`conformance`] says it in tests. A [`Record`] is one fact of one
//! run; status is a fold of them and is stored nowhere else.

pub mod codec;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
pub mod embedded;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;
pub mod payloads;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod record;
pub mod rules;
pub mod store;

pub use record::{
    Admitted, Ambiguity, Attempt, Body, CancelRequested, Cause, Choice, Dismissed, Intent, Kept, Lease, Outcome,
    ParkReason, Parked, Payload, Provider, Quarantined, QueueClass, Record, Released, Rerun, Resolved,
    Result as StepResult, RunStatus, SendState, Terminal,
};
pub use rules::{Change, Head, Lapse, Standing, Wake};
pub use store::{
    AppendError, BoxFuture, Claimable, Commit, Committed, LedgerStore, ReadError, Tail, TailPosition, Writer,
};
