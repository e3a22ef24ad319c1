//! What one node holds of other companies' limits, and how it spends that.
//!
//! A call needs units of every level that its provider counts: up to eight buckets, some of them of another application
//! (a source address that several share). It gets them all from the node's own leases, or none. That is the common
//! case: one lock, no allocation, nobody asked. What is missing is asked for by one acquire, which everybody who waits
//! for the same bucket shares; the wait is bounded, and where it ends without units the call is **parked**: told when to
//! come again, at which level, and because of whom.
//!
//! ```text
//! Route ──hold──▶ Held ──check──▶ (request is written) ──sent──▶ settle / drop
//!            │      └─ dropped before sent: the units are there again
//!            └──▶ Parked { release, level, source }
//! ```
//!
//! - **Never more.** A unit is spent under three conditions, looked at right before the request is written: its lease's
//!   time is not over, by a clock that runs while the machine sleeps and counts from before the lease was asked for; no
//!   park has voided it; its window is the last that was heard of. Whatever is not known to be unspent counts as spent.
//! - **Pure.** All decisions are in [`Leases`]: no I/O, no clock, no task; the time is an argument, and what is to be
//!   sent comes back as [`Effects`]. [`Holder`] is the thin face with a runtime: one task, one timer.
//! - **One ask.** A lessee's bucket has one operation under way. Its answer replaces the lease; what was spent since it
//!   was sent is taken off. An ask without an answer is sent again as it was, a few times, and then counts as spent.
//! - **Fair.** A tenant waits in its own queue, interactive calls before bulk ones, in the order in which they came.
//!   Tenants do not wait for each other here: the centre shares out an application between them.
//! - **When the centre is gone** what is held is spent, then calls are parked until it is asked again (strict), or a share
//!   that was set aside for that is spent ([`Degraded`]).

mod answer;
mod ask;
mod attend;
mod bucket;
mod cell;
mod clock;
mod counters;
mod explain;
mod health;
mod held;
mod leases;
mod look;
mod pace;
mod parked;
mod queue;
mod reserve;
mod route;
mod service;
mod settings;
mod shard;
mod tell;
#[cfg(test)]
mod tests;

pub use clock::BootClock;
pub use counters::{Counters, LATENCY_BOUNDS_MS, Snapshot};
pub use explain::{Holding, LegView};
pub use held::{Held, Spoilt};
pub use leases::{Effects, Hold, Leases, Sending, Taken, Ticket, Verdict};
pub use parked::{Parked, Reason, Source};
pub use queue::Token;
pub use route::{InvalidRoute, Need, Per, Route};
pub use service::Holder;
pub use settings::{Degraded, InvalidSettings, Settings};
pub use tell::Seen;
