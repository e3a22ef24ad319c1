//! Dead letters beyond retention, and which ones somebody has put away: small, durable, and in no ledger any more, so that
//! a rebuild leaves it alone.

use std::path::Path;

use domain::TenantId;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::error::IndexError;
use super::key::{self, List};
use super::row::RunRow;
use super::row_codec;
use crate::ids::RunId;

pub(super) struct DeadLetters {
    database: Database,
    /// As those of a period.
    pub(super) rows: Keyspace,
    pub(super) lists: Keyspace,
    /// tenant run -> when, by whom.
    dismissed: Keyspace,
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").finish_non_exhaustive()
    }
}

impl DeadLetters {
    /// Opens or makes it. It is also what keeps a second process out.
    pub(super) fn open(directory: &Path) -> Result<Self, IndexError> {
        let path = directory.join("kept");
        let opened = std::panic::catch_unwind(|| Self::open_unguarded(&path));
        let opened = opened.unwrap_or_else(|_| Err(IndexError::Damaged("its files are not as they were left".into())));
        // No rebuild makes these anew, and whoever is to do something has to know which files they are.
        if let Err(IndexError::Damaged(why)) = opened {
            return Err(IndexError::Kept { at: path.display().to_string().into(), why });
        }
        opened
    }

    fn open_unguarded(path: &Path) -> Result<Self, IndexError> {
        let database =
            Database::builder(path).cache_size(4 << 20).max_journaling_size(64 << 20).worker_threads(1).open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(1 << 20);
        let (rows, lists) = (database.keyspace("rows", options)?, database.keyspace("lists", options)?);
        let dismissed = database.keyspace("dismissed", options)?;
        Ok(Self { database, rows, lists, dismissed })
    }

    /// Takes rows over from a period that is about to be dropped; those that were put away are forgotten instead. Durable
    /// when it comes back; doing it twice is doing it once.
    pub(super) fn take(&self, rows: &[RunRow]) -> Result<(), IndexError> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        for row in rows {
            let at = key::row(&row.tenant, row.run);
            if self.dismissed.contains_key(&at)? {
                batch.remove(&self.dismissed, at);
                continue;
            }
            batch.insert(&self.lists, List::DeadLetters.key(&row.tenant, row.admitted_unix_ms, row.run), []);
            batch.insert(&self.rows, at, row_codec::encode(row));
        }
        Ok(batch.commit()?)
    }

    /// Puts a dead letter away: it goes with its period, or at once where that is gone.
    pub(super) fn dismiss(&self, row: &RunRow, at_unix_ms: u64, by: &str) -> Result<(), IndexError> {
        let at = key::row(&row.tenant, row.run);
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        if self.rows.contains_key(&at)? {
            self.remove(&mut batch, row);
        } else {
            let mut who = at_unix_ms.to_be_bytes().to_vec();
            who.extend_from_slice(by.as_bytes());
            batch.insert(&self.dismissed, at, who);
        }
        Ok(batch.commit()?)
    }

    fn remove(&self, batch: &mut fjall::OwnedWriteBatch, row: &RunRow) {
        batch.remove(&self.rows, key::row(&row.tenant, row.run));
        batch.remove(&self.lists, List::DeadLetters.key(&row.tenant, row.admitted_unix_ms, row.run));
    }

    pub(super) fn is_dismissed(&self, tenant: &TenantId, run: RunId) -> Result<bool, IndexError> {
        Ok(self.dismissed.contains_key(key::row(tenant, run))?)
    }

    /// Lets the oldest of a tenant go, down to a number. Says how many went.
    pub(super) fn shed(&self, tenant: &TenantId, max: usize) -> Result<u64, IndexError> {
        let prefix = List::DeadLetters.prefix(tenant);
        let keys: Vec<_> =
            self.lists.prefix(&prefix).rev().skip(max).map(fjall::Guard::key).collect::<Result<_, _>>()?;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        let mut count = 0;
        for at in keys {
            let Some((_, run)) = key::read_tail(&at) else { continue };
            batch.remove(&self.rows, key::row(tenant, run));
            batch.remove(&self.lists, at);
            count += 1;
        }
        batch.commit()?;
        Ok(count)
    }
}
