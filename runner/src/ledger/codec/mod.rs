//! A commit as bytes: what an engine with files keeps.
//!
//! One version byte, then two items of CBOR (RFC 8949) with integer keys: a heading, which says whose it is and where it
//! belongs, and an array of bodies. The heading alone is enough for an index, which so never walks a payload. What many
//! records have in common (run, tenant, lease, time) is there once, the time as a distance; what follows from the rest is not there at all: the
//! effect key of an intent, length and digest of a payload that is there whole.
//!
//! A later version is refused. Fields that this version does not know are passed over. Lengths are those of the bytes at
//! hand, so that nothing in them chooses an allocation.

mod items;
mod numbers;
mod wire;

use domain::TenantId;
use minicbor::Decoder;

use super::record::{Body, Record};
use super::rules;
use crate::ids::RunId;

/// The version that is written.
const VERSION: u8 = 1;
/// Most bytes of one commit: what the rules let pass, and as much again for what is around it.
const ENCODED_BYTES_MAX: u64 = 2 * rules::COMMIT_BYTES_MAX;

/// Why bytes are no commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("a commit of version {0}, which a later version of Tidegate wrote")]
    Version(u8),
    #[error("no commit: {0}")]
    Malformed(Box<str>),
}

impl CodecError {
    fn malformed(what: impl Into<Box<str>>) -> Self {
        Self::Malformed(what.into())
    }
}

/// Whose records, and where they belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    pub tenant: TenantId,
    pub run: RunId,
    /// Sequence of the first of them.
    pub first: u64,
    pub count: u16,
    /// The lease in force behind them.
    pub lease: u64,
    pub at_unix_ms: u64,
    /// What they do to the run's being over.
    pub turn: Turn,
}

impl Heading {
    /// Sequence of the last record.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }
}

/// What a commit does to its run's being over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    None,
    /// It is over.
    Over,
    /// It goes on: it is admitted, or was over and is asked for again.
    Open,
}

impl Turn {
    pub fn of(bodies: &[Body]) -> Self {
        bodies.iter().fold(Self::None, |turn, body| match body {
            Body::Terminal(_) => Self::Over,
            Body::Admitted(_) | Body::Rerun(_) => Self::Open,
            Body::Lease(_)
            | Body::Intent(_)
            | Body::Outcome(_)
            | Body::LateOutcome(_)
            | Body::Parked(_)
            | Body::Released(_)
            | Body::Resolved(_)
            | Body::CancelRequested(_)
            | Body::Quarantined(_)
            | Body::Dismissed(_) => turn,
        })
    }
}

/// A commit's bytes. There are as many bodies as the heading says. `time_unix_ms` is the time that is kept beside them, and
/// has to be given again to read them.
pub fn encode(heading: &Heading, bodies: &[Body], time_unix_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256 + bodies.iter().map(wire::inline_bytes).sum::<usize>());
    bytes.push(VERSION);
    wire::encode(heading, bodies, time_unix_ms, &mut bytes);
    bytes
}

/// The heading alone.
pub fn heading(bytes: &[u8], time_unix_ms: u64) -> Result<Heading, CodecError> {
    items(bytes, time_unix_ms).map(|(heading, _)| heading)
}

/// The records of a commit, each with its place.
pub fn decode(bytes: &[u8], time_unix_ms: u64) -> Result<Vec<Record>, CodecError> {
    let (heading, bodies) = items(bytes, time_unix_ms)?;
    let bodies = wire::bodies(&heading, bodies)?;
    let records = bodies.into_iter().zip(heading.first..).map(|(body, seq)| Record {
        run: heading.run,
        tenant: heading.tenant.clone(),
        seq,
        lease: heading.lease,
        at_unix_ms: heading.at_unix_ms,
        body,
    });
    Ok(records.collect())
}

/// The heading and the bytes behind it.
fn items(bytes: &[u8], time_unix_ms: u64) -> Result<(Heading, &[u8]), CodecError> {
    if bytes.len() as u64 > ENCODED_BYTES_MAX {
        return Err(CodecError::malformed("it is longer than any commit"));
    }
    let (version, items) = bytes.split_first().ok_or_else(|| CodecError::malformed("it is empty"))?;
    if *version != VERSION {
        return Err(CodecError::Version(*version));
    }
    let mut decoder = Decoder::new(items);
    let heading = wire::heading(&mut decoder, time_unix_ms)?;
    Ok((heading, items.get(decoder.position()..).unwrap_or_default()))
}

#[cfg(test)]
pub(super) mod tests;
