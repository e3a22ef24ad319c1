//! What a tenant wants done: a graph of nodes, hashed and versioned.
//!
//! The stored form is JSON in one canonical spelling, and its BLAKE3 is the version's digest; authors may write YAML.
//! [`Automation`] is a version compiled: what the engine walks.

pub mod cache;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
pub mod document;
pub mod embedded;
pub mod expression;
pub mod graph;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod scope;
pub mod store;
pub mod template;
pub(crate) mod time;

pub use cache::{CompiledAutomations, LoadError};
pub use document::{Draft, Fault, Faults, Format, published_schema};
pub use embedded::EmbeddedDefinitions;
pub use expression::{Expression, ExpressionFailed, Names, Needs, Refused};
pub use graph::{Automation, Delay, Edge, Kind, Node, RetryPolicy, Trigger};
pub use scope::{EventFacts, Scope};
pub use store::{ConnectionState, DefinitionStore, Listed, StoreError, Stored};
pub use template::{Template, TemplateFault};
pub use time::{format_rfc3339, parse_rfc3339};
