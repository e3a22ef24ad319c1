//! From the event log to the ledger: which runs an event begins.
//!
//! A consumer group of its own reads the log under the operator's scope, and whatever is read is its tenant's from then on:
//! definitions are asked for as that tenant and their owner is asserted. Ingress knows nothing of it: no lock is shared
//! with it, and the log is read on threads that may block.
//!
//! **At most one run** per version and event is the ledger's doing: the run's id is a hash of both, and a second admission
//! is a conflict, which counts as done. So a restart may read events again. What an id cannot say is said by time: an
//! automation that was edited after an event came may have had its run of it under the version before, so that this is
//! looked for first; and an automation begins with the events that come after it was made, not with the log's history.
//!
//! **Time** is the wall clock's, which may be stepped. Where an automation was made later than it is now, the clock was put
//! back since, or is another node's: then it counts as made now, so that what comes from here on begins a run of it. What is
//! older than its automation is counted and told of, and no run is missed in silence.
//!
//! **What cannot be admitted at all**, while its neighbours can, is set aside as a dead letter ([`Letters`]): named, counted,
//! listed, and tried again when an operator says so.
//!
//! **Fairness**: tenants are admitted in turn ([`backlog`]).
//!
//! **What cannot be read**: a damaged place halts admission, loudly, until an operator says [`Handle::skip_damage`]; that is
//! the log's contract. What was trimmed before it was read is lost whatever anybody does: it is told, counted and passed.

mod admit;
pub mod backlog;
mod letters;
mod scan;
mod service;
mod status;
mod triggers;

pub use admit::Begun;
pub(crate) use admit::{Append, NewRun, append};
pub use letters::{LETTERS_MAX, Letter, Letters, LettersFault};
pub use service::{Admission, Handle, Parts, Settings};
pub use status::{Halt, Status};
pub use triggers::{Trigger, Triggers, TriggersFault, Verdict};

#[cfg(test)]
pub(crate) mod tests;
