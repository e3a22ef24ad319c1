//! Dropping what is past the metadata tier: whole periods, and of those that still have open runs, row by row.

use std::collections::BTreeSet;

use super::error::IndexError;
use super::kept::DeadLetters;
use super::key;
use super::row::{RunRow, is_over};
use super::row_codec;
use super::settings::IndexSettings;
use super::store::{Pair, Period, Store};

/// Rows between two writes.
const CHUNK: usize = 4_096;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Periods that were dropped whole.
    pub periods: u64,
    /// Rows that were dropped.
    pub rows: u64,
    /// Dead letters that were kept beyond their period.
    pub kept: u64,
    /// Dead letters beyond the bound of their tenant: the oldest went.
    pub shed: u64,
}

/// Sweeping twice is sweeping once, and a sweep that was broken off is ended by the next.
pub(super) fn sweep(
    store: &Store,
    kept: &DeadLetters,
    settings: &IndexSettings,
    now_unix_ms: u64,
) -> Result<Swept, IndexError> {
    let age = u64::try_from(settings.metadata.as_millis()).unwrap_or(u64::MAX);
    let horizon = now_unix_ms.saturating_sub(age);
    let mut swept = Swept::default();
    let mut tenants = BTreeSet::new();
    for (period, pair) in store.periods() {
        if store.end_of(period) > horizon {
            continue;
        }
        let mut has_open = false;
        let mut past = Vec::new();
        for guard in pair.rows.iter() {
            let row = row_codec::decode(&guard.value()?)?;
            if is_over(row.status) {
                past.push(row);
            } else {
                has_open = true;
            }
            if past.len() >= CHUNK {
                keep(kept, &past, &mut swept, &mut tenants)?;
                past.clear();
            }
        }
        keep(kept, &past, &mut swept, &mut tenants)?;
        if has_open {
            thin(store, period, &pair)?;
        } else {
            store.drop_period(period)?;
            swept.periods += 1;
        }
    }
    for tenant in tenants {
        swept.shed += kept.shed(&tenant, settings.dead_letters_max)?;
    }
    Ok(swept)
}

fn keep(
    kept: &DeadLetters,
    past: &[RunRow],
    swept: &mut Swept,
    tenants: &mut BTreeSet<domain::TenantId>,
) -> Result<(), IndexError> {
    let letters: Vec<RunRow> = past.iter().filter(|row| row.is_dead_letter()).cloned().collect();
    tenants.extend(letters.iter().map(|row| row.tenant.clone()));
    swept.rows += past.len() as u64;
    swept.kept += letters.len() as u64;
    if letters.is_empty() { Ok(()) } else { kept.take(&letters) }
}

/// Drops the rows of runs that are over and leaves the period to those that are not.
fn thin(store: &Store, period: Period, pair: &Pair) -> Result<(), IndexError> {
    let mut batch = store.database.batch();
    for guard in pair.rows.iter() {
        let (at, bytes) = guard.into_inner()?;
        let row = row_codec::decode(&bytes)?;
        if !is_over(row.status) {
            continue;
        }
        for list in key::lists(&row) {
            batch.remove(&pair.lists, list);
        }
        batch.remove(&pair.rows, at);
        if batch.len() >= CHUNK {
            batch.commit()?;
            batch = store.database.batch();
        }
    }
    tracing::debug!(period, "a period past its time stays for the runs in it that are open");
    Ok(batch.commit()?)
}
