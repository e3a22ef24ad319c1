//! What is done without leases, in the same scene: limits that nodes keep for themselves, and sending until one is
//! refused.

mod limiter;
mod run;

pub use limiter::Way;
pub use run::Peers;
