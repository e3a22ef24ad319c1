//! Governed calls: `/c/{connection}/…`, where an SDK that takes a base URL works unmodified.
//!
//! The caller says which of its tenant's connections, a method, a path, some fields and a body. Everything else is the
//! connection's: where it goes ([`Connection::ask`] puts the path behind a fixed authority and base path, and takes none
//! that two servers could read differently), which fields travel each way, and the credential.
//!
//! **The credential** is attached for one hop, after everything that the caller wrote was cleaned, filtered, and taken out
//! of the credential's place; so no caller can set it, see it, or have it taken out. It is attached only where the
//! connection vouches for the hop: `https`, one of the connector's hosts, the port of `base_url`. Behind a trait, since
//! those that are exchanged and refreshed come from custody.
//!
//! **Redirects** are followed where that is asked for (`follow.rs`): each hop is planned, judged by whoever judged the
//! first one, given what it may have, and told of.

mod connection;
mod credential;
mod follow;
mod path;

pub use connection::{Connection, ConnectionFault, Connector, ConnectorFault, LimitOf};
pub use credential::{Attached, CredentialFault, Credentials, Head, StaticCredentials};
pub use follow::{Called, Follow, GovernedCall, Judge, NotJudged, call};
pub use path::PathRefused;

#[cfg(test)]
mod tests;
