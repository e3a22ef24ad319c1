//! What the engines in PostgreSQL share: how it is reached, its tables, and what its errors mean.
//!
//! Nothing but plain SQL over the wire protocol, version 3: no extension, no advisory lock, no notification, so that what
//! speaks it serves too (PostgreSQL 13 or later, behind Patroni or Aurora; CockroachDB; YugabyteDB). Statements are
//! prepared, so a pooler between must keep sessions.

pub(crate) mod blobs;
mod database;
mod dial;
mod events;
mod fault;
mod flight;
mod pool;
mod schema;
mod settings;

pub use blobs::BLOB_BYTES_MAX;
pub use database::{Database, LedgerId};
pub use dial::{Dial, Stream, ask_for_tls};
pub use events::{KeepError, PostgresEvents};
pub use fault::Fault;
pub use schema::{MigrateError, migrate};
pub use settings::PostgresSettings;

pub(crate) use blobs::{Blob, Kind, Missing};
pub(crate) use flight::{Statement, fly};
pub(crate) use pool::{Pool, Tries};
pub(crate) use schema::SHARDS;
