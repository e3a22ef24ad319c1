//! Local limits, budgets and bounds that survive a reload.
//!
//! Four parts of the accept path live here, and none of them ever leaves the process:
//!
//! - [`LocalLimits`]: a tenant's and an endpoint's events and bytes, admitted all together or not at all.
//! - [`Unauthenticated`]: how many failed verifications a source may cost us before we stop looking at it.
//! - [`InFlight`]: bytes of bodies that are being read, on the node and per endpoint.
//! - [`fields`]: what a refusal tells the sender: `Retry-After`, `RateLimit`, `RateLimit-Policy`.
//!
//! They are abuse control, not backpressure: a limit that is generous by a body or by the requests in flight is
//! right, one that refuses an honest sender because somebody else misbehaved is wrong.

mod debt;
pub mod fields;
mod in_flight;
mod key;
mod local;
mod rate;
mod shards;
mod source;
pub mod unauthenticated;

pub use in_flight::{Full, InFlight, Reservation};
pub use key::{LimitKey, Measure, Scope, Subject};
pub use local::{Ask, LocalLimits, Over, Standing};
pub use rate::Rate;
pub use source::Source;
pub use unauthenticated::{Throttled, Unauthenticated};
