//! Taking a batch of records in: fold each run's on its row, then write what has changed, as one write.
//!
//! Taking in what was taken in already changes nothing: a record is known by its sequence. The keys of every run that a
//! batch names are written all the same, for after a power loss a row can be there without them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use domain::TenantId;

use super::error::IndexError;
use super::key;
use super::row::{RunRow, is_over};
use super::row_codec;
use super::store::{Period, Store};
use crate::ids::RunId;
use crate::ledger::Record;

/// One run of a batch.
#[derive(Debug)]
struct Touched {
    tenant: TenantId,
    /// As it is on the disk, and where.
    before: Option<(Period, RunRow)>,
    now: Option<RunRow>,
    /// Its records here do not follow on what is known of it: it has to be read whole.
    has_gap: bool,
    /// Keys that it had once, and that may have outlived a power loss.
    stale: Vec<Vec<u8>>,
}

/// A batch, folded and not yet written.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Boxed: a table of hundreds of rows would be as large as a block of memory that is cleared each time.
    runs: HashMap<RunId, Box<Touched>>,
}

impl Batch {
    /// Folds records on the rows that are there.
    ///
    /// # Errors
    /// `Tenant`: two records of one run name two tenants, or its row another one.
    pub(super) fn fold(store: &Store, records: &[Record]) -> Result<Self, IndexError> {
        let mut batch = Self::default();
        for record in records {
            let touched = match batch.runs.entry(record.run) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(Box::new(Touched::find(store, record)?)),
            };
            if touched.tenant != record.tenant {
                return Err(store.tenant_fault(record.run, &touched.tenant, &record.tenant));
            }
            touched.take(record);
        }
        Ok(batch)
    }

    /// Runs that are to be read whole.
    pub(super) fn gaps(&self) -> Vec<(TenantId, RunId)> {
        let gaps = self.runs.iter().filter(|(_, touched)| touched.has_gap);
        gaps.map(|(run, touched)| (touched.tenant.clone(), *run)).collect()
    }

    /// All that the ledger has of such a run. Says whether that made a row of it.
    pub(super) fn heal(&mut self, run: RunId, records: &[Record]) -> bool {
        let Some(touched) = self.runs.get_mut(&run) else { return false };
        let Some(row) = RunRow::fold(records).filter(|row| row.tenant == touched.tenant && row.run == run) else {
            return false;
        };
        if touched.now.as_ref().is_none_or(|now| now.seq < row.seq) {
            touched.now = Some(row);
        }
        true
    }

    /// All runs of it.
    pub(super) fn runs(&self) -> Vec<(TenantId, RunId)> {
        self.runs.iter().map(|(run, touched)| (touched.tenant.clone(), *run)).collect()
    }

    /// All that the ledger has of a run: keys of what it was on the way go, if they are there.
    pub(super) fn clean(&mut self, run: RunId, records: &[Record]) {
        let Some(touched) = self.runs.get_mut(&run) else { return };
        let Some((mut row, rest)) = records.split_first().and_then(|(first, rest)| Some((RunRow::admit(first)?, rest)))
        else {
            return;
        };
        let mut stale = BTreeSet::from_iter(key::lists(&row));
        for record in rest {
            row.apply(record);
            stale.extend(key::lists(&row));
        }
        touched.stale = stale.into_iter().collect();
    }

    /// Writes rows, lists and open runs, all or none.
    pub(super) fn write(self, store: &Store) -> Result<(), IndexError> {
        let mut batch = store.database.batch();
        for (run, touched) in self.runs {
            let touched = *touched;
            let Some(now) = touched.now else { continue };
            let period = match &touched.before {
                Some((period, _)) => *period,
                None => store.period_for(now.admitted_unix_ms)?,
            };
            let Some(pair) = store.pair(period) else { continue };
            let row_key = key::row(&now.tenant, run);
            let keys = key::lists(&now);
            let before = touched.before.as_ref().map(|(_, before)| key::lists(before)).unwrap_or_default();
            for gone in before.into_iter().chain(touched.stale).filter(|before| !keys.contains(before)) {
                batch.remove(&pair.lists, gone);
            }
            for added in keys {
                batch.insert(&pair.lists, added, []);
            }
            if is_over(now.status) {
                // One that was never written needs no grave.
                if touched.before.is_some() {
                    batch.remove(&store.open, &*row_key);
                }
            } else {
                batch.insert(&store.open, &*row_key, period.to_be_bytes());
            }
            if touched.before.as_ref().is_none_or(|(_, before)| *before != now) {
                batch.insert(&pair.rows, row_key, row_codec::encode(&now));
            }
        }
        Ok(batch.commit()?)
    }
}

impl Touched {
    fn find(store: &Store, record: &Record) -> Result<Self, IndexError> {
        let before = store.row(&record.tenant, record.run)?;
        let now = before.as_ref().map(|(_, row)| row.clone());
        Ok(Self { tenant: record.tenant.clone(), before, now, has_gap: false, stale: Vec::new() })
    }

    fn take(&mut self, record: &Record) {
        match &mut self.now {
            // What is in it already.
            Some(row) if record.seq <= row.seq => {}
            Some(row) if record.seq == row.seq + 1 => row.apply(record),
            None if record.seq == 1 => self.now = RunRow::admit(record),
            Some(_) | None => self.has_gap = true,
        }
    }
}
