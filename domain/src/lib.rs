//! Words as types: the few that every part of Tidegate speaks.
//!
//! Ids and their text forms, the closed set of refusals, the clock, secrets, the escaping of text that came
//! from outside, and the strict reading of the forms that keys and tokens come in. No I/O and no runtime. Small on purpose: a type starts beside its first user and moves here
//! when the second one appears.

pub mod clock;
pub mod der;
pub mod event_id;
pub mod id;
pub mod json;
pub mod jwt;
pub mod key_text;
pub mod refusal;
pub mod secret;
pub mod text;

pub use clock::{Clock, ManualClock, SystemClock};
pub use event_id::{EventId, ExecutionId, NodeId, Slot};
pub use id::{ConnectionId, ConnectorId, EndpointId, InvalidId, TenantId};
pub use refusal::{Blame, Refusal, Retry};
pub use secret::Secret;
