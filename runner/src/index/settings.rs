//! How the index is kept.

use std::time::Duration;

/// # Defaults
/// 64 MiB of blocks in memory, periods of seven days, rows for 180 days, 4,096 records a batch, settled every two seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSettings {
    /// Blocks of tables that are kept in memory.
    pub cache_bytes: u64,
    /// The engine's own log, at least 64 MiB: what is read again when the index is opened.
    pub journal_bytes: u64,
    /// Length of a period; an index keeps the one that it was made with.
    pub period_ms: u64,
    /// How long rows of runs that are over stay; the ledger's metadata tier.
    pub metadata: Duration,
    /// Records of one batch.
    pub batch_records: usize,
    /// How long records may wait for others before they are taken in: a batch costs less than its records one by one.
    pub linger: Duration,
    /// Between two times that the place is put on the disk: what is read again after a crash.
    pub settle_every: Duration,
    /// Dead letters of one tenant that are kept beyond `metadata`; the oldest go first.
    pub dead_letters_max: usize,
}

const DAY_MS: u64 = 86_400_000;

impl Default for IndexSettings {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            journal_bytes: 64 << 20,
            period_ms: 7 * DAY_MS,
            metadata: Duration::from_millis(180 * DAY_MS),
            batch_records: 4_096,
            linger: Duration::from_millis(10),
            settle_every: Duration::from_secs(2),
            dead_letters_max: 10_000,
        }
    }
}
