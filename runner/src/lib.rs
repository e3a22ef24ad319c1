//! The runner: events become runs; a run survives anything and repeats nothing.
//!
//! ```text
//! event log ──▶ admission ──▶ ledger ◀── engine ──call grant──▶ egress
//!                   │           │ tail       ▲
//!                   ▼           ▼            │ turns, by tenant in turn
//!               schedule ◀── index (projections, rebuildable)
//! ```
//!
//! - [`ledger`]: the only truth about runs. Records are appended with (run, expected sequence, lease), and status is a
//!   fold of them.
//! - [`automation`]: what a tenant wants done: a graph of nodes, hashed and versioned; expressions.
//! - [`connector`]: what is known of a provider's actions: how safe it is to do one again, what its errors mean.
//! - [`engine`]: takes a run from where it is to where it parks or ends.
//! - [`schedule`]: whose run is next; timers.
//! - [`admission`]: which runs an event of the log begins.
//! - [`replay`]: events of the log once more, counted first.
//! - [`index`]: what people look at: runs by tenant, automation, status, time and cause.
//! - [`view`]: one run as they see it, made of its records.
//!
//! Nothing here knows a provider's credential: a call is a request to egress with a grant for this run.

pub mod admission;
pub mod api;
pub mod automation;
pub mod call;
pub mod connector;
pub mod engine;
pub mod failure;
pub mod ids;
pub mod index;
pub mod ledger;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod replay;
pub mod schedule;
pub mod view;
