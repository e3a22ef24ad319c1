//! What a tenant wants done: a graph of nodes, hashed and versioned.
//!
//! The stored form is JSON in one canonical spelling, and its BLAKE3 is the version's digest; authors may write YAML.
//! [`Automation`] is a version compiled: what the engine walks.

pub mod expression;
pub mod graph;
pub mod store;
pub mod template;

pub use graph::{Automation, Delay, Edge, Kind, Node, RetryPolicy, Trigger};
pub use store::{ConnectionState, DefinitionStore, Listed, StoreError, Stored};
