//! How large a document may be, and its parts.

/// A document's text.
pub const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Nodes in all, with those of sub-graphs: a run's status has to be looked at as a whole.
pub const NODES_MAX: usize = 200;
/// Sub-graphs inside one another.
pub const GRAPHS_DEEP_MAX: usize = 8;
/// Lists and objects inside one another.
pub const VALUES_DEEP_MAX: usize = 64;
/// Values in a document, once YAML's aliases are written out.
pub const VALUES_MAX: usize = 50_000;
/// Expressions in a document: each takes about a third of a millisecond to compile.
pub const EXPRESSIONS_MAX: usize = 1000;
/// Faults that are told at once.
pub const FAULTS_MAX: usize = 100;

pub(super) const CASES_MAX: usize = 32;
pub(super) const ENDPOINTS_MAX: usize = 32;
pub(super) const DEADLINE_MS_MIN: u64 = 1_000;
/// 90 days: half of what a run's history is kept.
pub(super) const DEADLINE_MS_MAX: u64 = 90 * 86_400_000;
pub(super) const DEADLINE_MS: u64 = 7 * 86_400_000;
pub(super) const TIMEOUT_MS_MAX: u64 = 600_000;
pub(super) const TIMEOUT_MS: u64 = 30_000;
pub(super) const TRIES_MAX: u64 = 100;
pub(super) const TRIES: u64 = 5;
pub(super) const BACKOFF_MS_MIN: u64 = 100;
pub(super) const BACKOFF_MS_MAX: u64 = 86_400_000;
pub(super) const BACKOFF_MS: u64 = 1_000;
pub(super) const BACKOFF_LONGEST_MS: u64 = 60_000;
