//! Local limits, budgets and bounds that survive a reload, and leases of other companies' quotas ([`quota`]).
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
//!
//! Three guards of the way out are pure cores, which take the time as an argument ([`Now`]) and give out records that
//! their caller keeps. Breakers and budgets cost nothing for what works; in all three a tenant that needs more than its
//! part of the room makes it at its own expense ([`Bounds`]):
//!
//! - [`breaker`]: who stops calling what does not work, per tenant and provider, and for the fleet.
//! - [`retry_budget`]: how many calls may be made again.
//! - [`runaway`]: a connection or an automation that wants ten times what it ever wanted.
//!
//! [`quota`] has the leases of other companies' limits, [`signals`] reads what providers' answers say of them, by the
//! profiles of connectors.

pub mod breaker;
mod debt;
pub mod fields;
mod in_flight;
mod key;
mod local;
mod moment;
mod pair;
mod pair_table;
pub mod quota;
mod rate;
pub mod retry_budget;
pub mod runaway;
mod shards;
pub mod signals;
mod source;
pub mod unauthenticated;

pub use in_flight::{Full, InFlight, Reservation};
pub use key::{LimitKey, Measure, Scope, Subject};
pub use local::{Ask, LocalLimits, Over, Standing};
pub use moment::Now;
pub use pair::{PAIR_KEY_BYTES, PairKey, ProviderKey};
pub use pair_table::Bounds;
pub use rate::Rate;
pub use source::Source;
pub use unauthenticated::{Throttled, Unauthenticated};
