//! What an operation changed, for a store that has to write it down before it answers.

use crate::quota::key::{Application, BucketKey};
use crate::quota::op::Lessee;

/// A bucket that an operation changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    pub application: Application,
    pub key: BucketKey,
    /// Whose lease, if one's.
    pub lessee: Option<Lessee>,
    pub change: Change,
}

/// In what way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Units were counted or credited.
    Units,
    /// A park, or an operator's word about one: written down whatever the rule.
    Park,
}
