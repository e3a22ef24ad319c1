//! Takes a run from where it is to where it parks or ends.
//!
//! - [`state`]: what a run's records say, folded.
//! - [`plan`]: what is next, of that, the graph and the time; pure.
//! - [`verdict`]: what an answer means, and whether an effect can have happened; pure.
//! - [`backoff`]: how long to wait before a try.
//! - [`worker`]: does it, under a lease.
//! - [`acts`]: what people do to runs; putting dead letters away is a file of its own.

pub mod acts;
pub mod backoff;
mod dismiss;
pub mod plan;
pub mod ports;
mod refusals;
pub mod state;
pub mod verdict;
pub mod worker;

#[cfg(test)]
mod rules;
#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod testing;

pub use acts::{ActError, Acts, Duplicate};
pub use dismiss::REASON_BYTES_MAX;
pub use ports::{Asked, Authority, Automations, Events, Notice, Notices, Payloads, Permission, PortError};
pub(crate) use refusals::is_failure as refusals_is_failure;
pub use state::{Doubt, Open, RunState, Settled, Standing, StepState};
pub use worker::{Engine, Ports, Settings};
