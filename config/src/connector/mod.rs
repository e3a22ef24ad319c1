//! Connectors: what all connections to one provider share, as data.
//!
//! A manifest says which hosts are the provider's, where its SDKs put their key, which headers travel, and what becomes
//! of redirects. It is one TOML file, `NAME.toml`: those that come with Tidegate are in `config/connectors/` and inside
//! the binary; an operator's directory adds others, and takes the place of one by its name. `docs/connectors.md` lists
//! the former with where each fact was read.
//!
//! What a connection may do is never more than its manifest says, so a mistake in one fails closed: a header that is
//! not listed does not travel, a host that is not listed never sees a credential.

pub mod action;
mod catalogue;
pub mod errors;
mod headers;
mod manifest;
pub mod quota;
mod reference;
mod repeat;

pub use catalogue::Catalogue;
pub use headers::HeaderList;
pub use manifest::{AuthSlot, BreakerFault, GENERIC, Manifest, Redirects};
pub use reference::connectors_markdown;

/// Name of a header that a call may set, in lower case: not one that belongs to the connection, to HTTP's framing or to us.
///
/// # Errors
/// Why it may not, in words.
pub fn settable_header(name: &str) -> Result<String, String> {
    crate::egress::header_name(name)
}
