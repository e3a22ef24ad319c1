//! The governed way out: who asks, where it may go, from which address it leaves, and the proof of it.
//!
//! ```text
//! caller ─▶ identify ─▶ parse ─▶ switches ─▶ policy ─▶ resolve, vet ─▶ credential ─▶ dial ─▶ relay ─▶ record
//!           caller/     asked.rs  switches.rs policy/   outbound        governed/     pool.rs  forward/  record.rs
//!                                                                                              tunnel/
//! ```
//!
//! `serve.rs` is that line as code. Every arrow can say no, and each no is one of [`Refusal`]; a refusal dials nothing.

mod answer;
mod asked;
pub mod caller;
mod calls;
pub mod compile;
mod connections;
mod correlation;
mod door;
mod egress;
mod exits;
pub mod forward;
pub mod governed;
mod looking;
pub mod metrics;
mod no;
pub mod policy;
pub mod pool;
pub mod ports;
pub mod quota;
pub mod ranges;
mod record;
mod refusal;
mod rights;
mod running;
mod serve;
pub mod settings;
mod snapshot;
mod state_file;
pub mod switches;
mod trace;
pub mod tunnel;
mod way;

pub use asked::{Asked, Way};
pub use caller::{Caller, Callers, Identified, Identity};
pub use calls::{Call, Calls, CallsFull, CallsMax};
pub use connections::{Connections, Entry, OwnTls};
pub use correlation::{CorrelationId, NoCorrelationId};
pub use egress::{Egress, Parts};
pub use exits::{DEFAULT_POOL, Exits, NoExit};
pub use looking::LOOK_EVERY;
pub use policy::Policy;
pub use record::{HttpVersion, Record, Recorder, SendState, Times};
pub use refusal::{Cause, Refusal};
pub use rights::Stop;
pub use running::{GRACE, Running, Stage};
pub use settings::Settings;
pub use snapshot::Snapshot;
pub use trace::Ends;
