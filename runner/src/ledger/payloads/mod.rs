//! Inputs and outputs: inline when they are small, in a store of their own when they are not, cut when they are too large.
//!
//! A payload that is stored is there before any record names it, durably, under its tenant and its digest. What is stored
//! and never named, since a process ended in between, is swept with what is over age.

mod directory;
#[cfg(feature = "postgres")]
mod postgres;

use std::fmt;

use bytes::Bytes;
use domain::TenantId;

use super::record::{Kept, Payload};
use super::store::BoxFuture;

pub use directory::{PayloadDirectory, Swept};
#[cfg(feature = "postgres")]
pub use postgres::PostgresPayloads;

/// How large a payload may be to be kept in which way, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Up to this it is in the record itself.
    pub inline_bytes_max: usize,
    /// Up to this it is stored whole.
    pub stored_bytes_max: usize,
    /// So much is kept of what is larger.
    pub truncated_bytes: usize,
}

/// Kept of a payload that is cut: as much as would have been inline.
pub const BEGINNING_BYTES: usize = 4 << 10;

impl Default for Bounds {
    fn default() -> Self {
        // A block of the disk inline: what most steps send and get. 8 MiB whole: above that it is a file, which belongs
        // in a store of files.
        Self { inline_bytes_max: 4 << 10, stored_bytes_max: 8 << 20, truncated_bytes: BEGINNING_BYTES }
    }
}

/// What is left of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// All of it, as its digest says.
    Whole(Bytes),
    /// Its first bytes.
    Truncated(Bytes),
    /// Nothing: its time was up.
    Expired,
}

/// Why a payload is not known to be kept, or cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("the store of payloads has no room")]
    Full,
    /// What is there under the digest has another one.
    #[error("the stored payload {0} is damaged")]
    Damaged(Box<str>),
    #[error("the store of payloads does not work: {0}")]
    Unavailable(Box<str>),
}

/// Keeps payloads, each for its tenant alone.
///
/// How long is counted from when it was kept last: whoever writes a payload that is stored into another record keeps it
/// again first, by [`keep`](Self::keep) or [`keep_longer`](Self::keep_longer).
pub trait PayloadStore: Send + Sync + fmt::Debug {
    /// Durable when the future says so, as far as the bounds let it be kept at all.
    fn keep(&self, tenant: TenantId, bytes: Bytes, bounds: Bounds)
    -> BoxFuture<'static, Result<Payload, PayloadError>>;

    /// Counts its age from now on. False if nothing of it is stored any more.
    fn keep_longer(&self, tenant: TenantId, payload: &Payload) -> BoxFuture<'static, Result<bool, PayloadError>>;

    /// What is left of it. What is inline needs no store, and is given out at once.
    fn fetch(&self, tenant: TenantId, payload: &Payload) -> BoxFuture<'static, Result<Fetched, PayloadError>>;
}

/// The payload as far as it needs no store; none where it has to be stored.
pub fn without_store(bytes: &Bytes, bounds: Bounds) -> Option<Payload> {
    let kept = if bytes.len() <= bounds.inline_bytes_max {
        Kept::Inline(bytes.clone())
    } else if bytes.len() > bounds.stored_bytes_max {
        Kept::Truncated(Bytes::copy_from_slice(&bytes[..bounds.truncated_bytes.min(bytes.len())]))
    } else {
        return None;
    };
    Some(Payload { bytes: bytes.len() as u64, digest: *blake3::hash(bytes).as_bytes(), kept })
}

#[cfg(test)]
mod tests;
