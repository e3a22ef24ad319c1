//! A fleet in virtual time: holders, one pure centre, a network that loses, delays and repeats, and a provider that
//! counts strictly. Beside it the same provider and the same demand under what is done without leases ([`peers`]).
//!
//! Nothing sleeps and nothing reads a clock; whatever is drawn is drawn by one seed. Only the order in which a holder
//! looks at its tenants at one moment is not: it hashes their names with keys of its own, so that two runs with one seed
//! differ a little. Tests look at what must never happen, the benchmark of quota at how often and how much.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures of a simulation, far below what a double holds"
)]

mod demand;
mod dice;
mod fleet;
pub mod peers;
mod provider;
mod scene;
mod tally;

pub use demand::Demand;
pub use dice::Dice;
pub use fleet::{Caller, Fleet, Node};
pub use provider::Provider;
pub use scene::{Load, Scene};
pub use tally::{Tally, percentile};

/// When a simulation begins, as Unix ms.
pub const START_MS: u64 = 1_700_000_000_000;
