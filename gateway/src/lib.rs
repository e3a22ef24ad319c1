//! The ingress: a provider's signed webhook in, a durable event, 202 out.
//!
//! [`accept`](accept.rs) is the path, one screen, in the order of the checks. Each step has a file of its own:
//!
//! 1. `snapshot`, `endpoint`: which endpoint, in one snapshot of the configuration
//! 2. `source`: who is calling, and may they
//! 3. `body`: the exact bytes, bounded
//! 4. `handshake`: what is answered and never an event
//! 5. `verify` with `scheme`: who sent it; `holding` keeps what did not prove it; `once` where a proof covers no body
//! 6. `repeats`: what was committed already
//! 7. `limits`: the tenant's and the endpoint's
//! 8. `commit`, `mint`: the event, durable
//! 9. `answer`: the only place with status codes
//!
//! State is passed in and the clock is injected. Nothing here names Pingora: `listen` does.

mod accept;
pub mod answer;
mod body;
mod commit;
pub mod endpoint;
mod gateway;
pub mod handshake;
pub mod holding;
mod limits;
pub mod metrics;
mod mint;
mod once;
pub mod record;
pub mod repeats;
pub mod scheme;
pub mod snapshot;
pub mod source;
mod verify;

pub use gateway::{Gateway, Parts};
