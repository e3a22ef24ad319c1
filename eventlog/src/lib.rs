//! The durable append-only log: embedded segments and the events in them
//!
//! [`EventLog`] is the contract. Events are encoded by [`codec`], selected and checked against whoever reads
//! them by the scope, and found again by positions ([`position`]), ids and times.

mod changes;
pub mod codec;
pub mod embedded;
pub mod error;
pub mod event;
pub mod groups;
pub mod headers;
pub mod holding;
mod index;
pub mod log;
pub mod position;
pub mod records;
mod scope;
pub mod segment;
pub mod stat;

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
#[cfg(any(test, feature = "test-util"))]
pub mod fuzz;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;

pub use changes::Changes;
pub use codec::decode_event;
pub use embedded::EmbeddedLog;
pub use error::{AppendError, CloseError, GroupError, ReadError, TrimError};
pub use event::{Class, DeliveryId, NewEvent, StoredEvent};
pub use headers::HeaderBlock;
pub use holding::HoldingStore;
pub use log::{Append, Appended, ConsumerGroups, EventLog, EventReader, Filter, Scope, Start};
pub use position::{Cursor, Position};
pub use stat::{DiskFault, LaneStat, Stat, Trimmed};

#[cfg(any(test, feature = "test-util"))]
pub use memory::{MemoryLog, MemoryStore};
