//! The governed way out: who asks, where it may go, from which address it leaves, and the proof of it.
//!
//! ```text
//! caller ─▶ identify ─▶ parse ─▶ switches ─▶ policy ─▶ resolve, vet ─▶ credential ─▶ dial ─▶ relay ─▶ record
//!           caller/     asked.rs  switches.rs policy/   outbound        governed/     pool.rs  forward/  record.rs
//!                                                                                              tunnel/
//! ```
//!
//! `serve.rs` is that line as code. Every arrow can say no, and each no is one of [`Refusal`]; a refusal dials nothing.

mod asked;
pub mod caller;
mod calls;
mod correlation;
pub mod policy;
mod record;
mod refusal;
pub mod switches;

pub use asked::{Asked, Way};
pub use caller::{Caller, Callers, Identified, Identity};
pub use calls::{Call, Calls, CallsFull, CallsMax};
pub use correlation::{CorrelationId, NoCorrelationId};
pub use policy::Policy;
pub use record::{Record, Recorder, SendState, Times};
pub use refusal::{Cause, Refusal};
