//! The database below the index: one file tree, a pair of keyspaces for each period of admission times.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use domain::TenantId;
use fjall::config::FilterPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::error::IndexError;
use super::row::RunRow;
use super::settings::IndexSettings;
use super::{key, row_codec};
use crate::ids::RunId;
use crate::ledger::TailPosition;

/// Periods that can be there. A clock that leaps about makes no more of them: its runs go to the nearest that there is.
const PERIODS_MAX: usize = 400;

/// The index's own facts.
const PLACE: &[u8] = b"place";
const FORM: &[u8] = b"form";
const PERIOD_MS: &[u8] = b"period-ms";

/// How often something was found under a tenant that it is not of, for as long as the process lives.
pub(super) type Faults = Arc<AtomicU64>;

/// Which span of admission times. Counts from the Unix epoch in the length that the index was made with.
pub(super) type Period = u32;

/// One period's keyspaces.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) rows: Keyspace,
    pub(super) lists: Keyspace,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pair").field(self.rows.name()).finish()
    }
}

pub(super) struct Store {
    pub(super) database: Database,
    meta: Keyspace,
    pub(super) open: Keyspace,
    periods: RwLock<BTreeMap<Period, Pair>>,
    period_ms: u64,
    faults: Faults,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("period_ms", &self.period_ms).finish_non_exhaustive()
    }
}

/// Sizes of tables in memory: a few megabytes each, since many are open and only the newest are written to.
fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(8 << 20)
}

/// Lists are walked and never asked for one key: a filter would be memory for nothing.
fn list_options() -> KeyspaceCreateOptions {
    options().filter_policy(FilterPolicy::disabled())
}

impl Store {
    /// Opens or makes it.
    ///
    /// # Errors
    /// `Damaged` where what is there is of another form, or unreadable; `Locked` where another process has it.
    pub(super) fn open(directory: &Path, settings: &IndexSettings, faults: &Faults) -> Result<Self, IndexError> {
        // The engine underneath asserts where it finds files that it did not expect: for us that is damage, as other damage.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| Self::open_unguarded(directory, settings, faults)));
        opened.unwrap_or_else(|_| Err(IndexError::Damaged("its files are not as they were left".into())))
    }

    fn open_unguarded(directory: &Path, settings: &IndexSettings, faults: &Faults) -> Result<Self, IndexError> {
        let database = Database::builder(directory)
            .cache_size(settings.cache_bytes)
            .max_journaling_size(settings.journal_bytes.max(64 << 20))
            .worker_threads(1)
            .open()?;
        let small = || KeyspaceCreateOptions::default().max_memtable_size(1 << 20);
        let meta = database.keyspace("meta", small)?;
        let open = database.keyspace("open", options)?;
        let is_new = meta.get(FORM)?.is_none();
        if is_new {
            let mut batch = database.batch();
            batch.insert(&meta, FORM, [row_codec::FORM]);
            batch.insert(&meta, PERIOD_MS, settings.period_ms.max(1).to_be_bytes());
            batch.commit()?;
        }
        if meta.get(FORM)?.as_deref() != Some(&[row_codec::FORM]) {
            return Err(IndexError::Damaged("it was written in another form".into()));
        }
        let period_ms =
            meta.get(PERIOD_MS)?.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
        if period_ms == 0 {
            return Err(IndexError::Damaged("it does not say how long its periods are".into()));
        }
        let periods = RwLock::new(Self::find_periods(&database)?);
        Ok(Self { database, meta, open, periods, period_ms, faults: Arc::clone(faults) })
    }

    /// A pair of which one is missing was being dropped: it goes now.
    fn find_periods(database: &Database) -> Result<BTreeMap<Period, Pair>, IndexError> {
        let mut periods = BTreeMap::new();
        for name in database.list_keyspace_names() {
            let Some(period) = name.strip_prefix("lists-").and_then(|number| number.parse().ok()) else { continue };
            let rows = rows_name(period);
            let lists = database.keyspace(&name, list_options)?;
            if database.keyspace_exists(&rows) {
                periods.insert(period, Pair { rows: database.keyspace(&rows, options)?, lists });
            } else {
                database.delete_keyspace(lists)?;
            }
        }
        for name in database.list_keyspace_names() {
            let period = name.strip_prefix("rows-").and_then(|number| number.parse().ok());
            if period.is_some_and(|period: Period| !periods.contains_key(&period)) {
                database.delete_keyspace(database.keyspace(&name, options)?)?;
            }
        }
        Ok(periods)
    }

    /// Newest first.
    pub(super) fn periods(&self) -> Vec<(Period, Pair)> {
        let periods = self.periods.read().unwrap_or_else(PoisonError::into_inner);
        periods.iter().rev().map(|(period, pair)| (*period, pair.clone())).collect()
    }

    pub(super) fn pair(&self, period: Period) -> Option<Pair> {
        self.periods.read().unwrap_or_else(PoisonError::into_inner).get(&period).cloned()
    }

    /// The period of an admission, whether it is there or not.
    pub(super) fn period_of(&self, admitted_unix_ms: u64) -> Period {
        Period::try_from(admitted_unix_ms / self.period_ms).unwrap_or(Period::MAX)
    }

    /// Whether runs can be in a period that is not of their time.
    pub(super) fn has_strays(&self) -> bool {
        self.periods.read().unwrap_or_else(PoisonError::into_inner).len() >= PERIODS_MAX
    }

    /// First millisecond behind a period.
    pub(super) fn end_of(&self, period: Period) -> u64 {
        (u64::from(period) + 1).saturating_mul(self.period_ms)
    }

    /// Where a run that was admitted then is to be, made if need be.
    pub(super) fn period_for(&self, admitted_unix_ms: u64) -> Result<Period, IndexError> {
        let period = self.period_of(admitted_unix_ms);
        let mut periods = self.periods.write().unwrap_or_else(PoisonError::into_inner);
        if periods.contains_key(&period) {
            return Ok(period);
        }
        if periods.len() >= PERIODS_MAX {
            let nearest = periods.keys().min_by_key(|there| there.abs_diff(period)).copied();
            return Ok(nearest.expect("there are hundreds"));
        }
        // Rows last: a pair without them is one that was being made or dropped, and nothing is in it.
        let lists = self.database.keyspace(&lists_name(period), list_options)?;
        let rows = self.database.keyspace(&rows_name(period), options)?;
        periods.insert(period, Pair { rows, lists });
        Ok(period)
    }

    /// Drops a period, whatever is in it.
    pub(super) fn drop_period(&self, period: Period) -> Result<(), IndexError> {
        let removed = self.periods.write().unwrap_or_else(PoisonError::into_inner).remove(&period);
        if let Some(Pair { rows, lists }) = removed {
            self.database.delete_keyspace(rows)?;
            self.database.delete_keyspace(lists)?;
        }
        Ok(())
    }

    /// A row of a period.
    ///
    /// # Errors
    /// `Tenant`: the row there says that it is another's, or another run's.
    pub(super) fn row_in(&self, pair: &Pair, tenant: &TenantId, run: RunId) -> Result<Option<RunRow>, IndexError> {
        let Some(bytes) = pair.rows.get(key::row(tenant, run))? else { return Ok(None) };
        self.checked(&bytes, tenant, run).map(Some)
    }

    /// Reads a row and asserts whose it is.
    pub(super) fn checked(&self, bytes: &[u8], tenant: &TenantId, run: RunId) -> Result<RunRow, IndexError> {
        let row = row_codec::decode(bytes)?;
        if row.tenant != *tenant || row.run != run {
            return Err(self.tenant_fault(run, tenant, &row.tenant));
        }
        Ok(row)
    }

    /// A run's row, wherever it is: at once where it is open, else by a filter for each period.
    pub(super) fn row(&self, tenant: &TenantId, run: RunId) -> Result<Option<(Period, RunRow)>, IndexError> {
        let at = self.open.get(key::row(tenant, run))?.map(|bytes| read_period(&bytes)).transpose()?;
        if let Some((period, pair)) = at.and_then(|period| Some((period, self.pair(period)?)))
            && let Some(row) = self.row_in(&pair, tenant, run)?
        {
            return Ok(Some((period, row)));
        }
        for (period, pair) in self.periods() {
            if let Some(row) = self.row_in(&pair, tenant, run)? {
                return Ok(Some((period, row)));
            }
        }
        Ok(None)
    }

    /// Up to where it has followed the ledger, as is certain to be on the disk.
    pub(super) fn place(&self) -> Result<TailPosition, IndexError> {
        Ok(self.meta.get(PLACE)?.map_or_else(TailPosition::start, |bytes| TailPosition(bytes.as_ref().into())))
    }

    /// Puts what was written so far on the disk, and then says so.
    ///
    /// The place is written behind what it is a place behind, never with it: tables reach the disk on their own, and one
    /// with a newer place could be there after a power loss while rows of its batch are not. Re-reading is harmless.
    pub(super) fn settle(&self, place: &TailPosition) -> Result<(), IndexError> {
        self.database.persist(PersistMode::SyncData)?;
        self.meta.insert(PLACE, &*place.0)?;
        Ok(())
    }

    /// Counts it and tells it. The fault names no tenant: it may be shown to one.
    pub(super) fn tenant_fault(&self, run: RunId, asked: &TenantId, found: &TenantId) -> IndexError {
        self.faults.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%run, %asked, %found, "a record or row of a run is another tenant's");
        IndexError::Tenant { run }
    }
}

pub(super) fn read_period(bytes: &[u8]) -> Result<Period, IndexError> {
    let bytes = bytes.try_into().map_err(|_| IndexError::Damaged("an open run without a period".into()))?;
    Ok(Period::from_be_bytes(bytes))
}

fn rows_name(period: Period) -> String {
    format!("rows-{period}")
}

fn lists_name(period: Period) -> String {
    format!("lists-{period}")
}

pub(super) type Shared = Arc<Store>;
