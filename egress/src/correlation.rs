//! Correlation ids: what a provider quotes and an operator looks up.
//!
//! One per call, the same on every hop of it, 16 bytes: milliseconds since the Unix epoch (6, big-endian), node (2),
//! random (8). The text form is `call_` and 26 characters of Crockford's base32 in lower case; it sorts by time, so that
//! a lookup is a seek and not a search.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use domain::NodeId;
use ring::rand::{SecureRandom, SystemRandom};

/// The id of one call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CorrelationId([u8; 16]);

/// A text that is no correlation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a correlation id: call_ and 26 characters of 0-9 a-z without i, l, o, u")]
pub struct NoCorrelationId;

const PREFIX: &str = "call_";

/// What makes ids hard to guess, fetched for many at a time: asking the system for each is one system call in five that a
/// request makes.
#[derive(Default)]
pub(crate) struct Randomness {
    ahead: Mutex<Vec<[u8; 8]>>,
}

/// Ids that are fetched at a time: what one call of the system gives in one piece (getrandom(2) says 256 bytes).
const AHEAD: usize = 32;

impl Randomness {
    /// Bytes that nobody has had. Without randomness, which a system that has started never lacks, zeros: ids can still be
    /// told apart by their time.
    pub(crate) fn take(&self) -> [u8; 8] {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead.is_empty() {
            let mut bytes = [0; AHEAD * 8];
            if SystemRandom::new().fill(&mut bytes).is_err() {
                tracing::error!("the operating system gives no randomness");
                return [0; 8];
            }
            ahead.extend(bytes.as_chunks().0);
        }
        ahead.pop().unwrap_or_default()
    }
}

impl fmt::Debug for Randomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Randomness").finish_non_exhaustive()
    }
}

impl CorrelationId {
    /// Length of the text form, in bytes.
    pub const TEXT_BYTES: usize = PREFIX.len() + 26;

    /// Of a call that began at this time on this node. `random` keeps the ids of one millisecond apart, and nobody from
    /// guessing another's.
    pub fn new(began_unix_ms: u64, node: NodeId, random: [u8; 8]) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&began_unix_ms.to_be_bytes()[2..]);
        bytes[6..8].copy_from_slice(&node.0.to_be_bytes());
        bytes[8..].copy_from_slice(&random);
        Self(bytes)
    }

    /// The bytes, in the order in which they sort.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// When the call began, in milliseconds since the Unix epoch, by the node's clock.
    pub fn began_unix_ms(&self) -> u64 {
        let mut wide = [0; 8];
        wide[2..].copy_from_slice(&self.0[..6]);
        u64::from_be_bytes(wide)
    }

    /// The node that the call went through.
    pub fn node(&self) -> NodeId {
        NodeId(u16::from_be_bytes([self.0[6], self.0[7]]))
    }
}

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        domain::event_id::write_base32(&self.0, f)
    }
}

impl fmt::Debug for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for CorrelationId {
    type Err = NoCorrelationId;

    fn from_str(text: &str) -> Result<Self, NoCorrelationId> {
        let rest = text.strip_prefix(PREFIX).ok_or(NoCorrelationId)?;
        domain::event_id::read_base32(rest).map(Self).ok_or(NoCorrelationId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_the_same_randomness() {
        let randomness = Randomness::default();
        let taken: std::collections::HashSet<_> = (0..AHEAD * 4).map(|_| randomness.take()).collect();
        assert_eq!(taken.len(), AHEAD * 4);
        assert!(!taken.contains(&[0; 8]));
    }

    #[test]
    fn it_says_when_and_where_and_reads_back() {
        let id = CorrelationId::new(1_764_424_000_123, NodeId(7), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((id.began_unix_ms(), id.node()), (1_764_424_000_123, NodeId(7)));
        let text = id.to_string();
        assert_eq!((text.len(), text.parse()), (CorrelationId::TEXT_BYTES, Ok(id)));
        let later = CorrelationId::new(1_764_424_000_124, NodeId(0), [0; 8]);
        assert!(later > id && later.to_string() > text);
        for wrong in
            ["", "call_", "evt_00000000000000000000000000", &text[..30], &text.to_uppercase(), &format!("{text}0")]
        {
            assert_eq!(wrong.parse::<CorrelationId>(), Err(NoCorrelationId), "{wrong}");
        }
    }
}
