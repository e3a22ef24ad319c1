//! Where a run's records are, in an embedded key-value store; and which runs there ever were.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `positions` | run, first sequence | journal, position, records, lease: one per commit |
//! | `open` | run | tenant's tag; runs that are not over |
//! | `tombstones` | run | tenant's tag; every run that ever was, also past all retention |
//! | `marks` | a word | how far each journal is in it |
//!
//! All of it but the tombstones of runs that no journal has any more is made again from the journals if it is lost. A mark is
//! moved only behind what was made durable, so that after a crash at most a few seconds of the journal are read again; what
//! is put in twice is the same as put in once.

use std::path::Path;

use eventlog::segment::Position;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::table::{Known, Pointer, TenantTag};
use crate::ids::RunId;
use crate::ledger::codec::Turn;

/// Which of the two journals a record is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// What was dropped from the journal, without its payloads.
    History,
    Journal,
}

/// One commit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) first: u64,
    pub(super) count: u16,
    pub(super) lease: u64,
    pub(super) tier: Tier,
    pub(super) position: Position,
}

/// What the index has of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recalled {
    /// It never was.
    Never,
    Known(Known),
    /// It was, and no record of it is left.
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the ledger's index: {0}. It is made anew from the journals if its directory is moved away")]
    Store(#[from] fjall::Error),
    /// Its own files are whole, and it has something that this version does not write.
    #[error(
        "the ledger's index has an entry of {0} that does not read. It is made anew if its directory is moved away"
    )]
    Entry(&'static str),
}

pub(super) struct Index {
    database: Database,
    positions: Keyspace,
    open: Keyspace,
    tombstones: Keyspace,
    marks: Keyspace,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").finish_non_exhaustive()
    }
}

const KEY_BYTES: usize = 16 + 8;
const VALUE_BYTES: usize = 1 + 16 + 2 + 8;

fn key(run: RunId, first: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..16].copy_from_slice(run.as_bytes());
    key[16..].copy_from_slice(&first.to_be_bytes());
    key
}

fn value(tier: Tier, pointer: &Pointer) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[0] = match tier {
        Tier::Journal => 0,
        Tier::History => 1,
    };
    value[1..17].copy_from_slice(&pointer.position.to_bytes());
    value[17..19].copy_from_slice(&pointer.count.to_be_bytes());
    value[19..].copy_from_slice(&pointer.lease.to_be_bytes());
    value
}

fn place(key: &[u8], value: &[u8]) -> Result<Place, IndexError> {
    let bad = || IndexError::Entry("positions");
    let key: &[u8; KEY_BYTES] = key.try_into().map_err(|_| bad())?;
    let value: &[u8; VALUE_BYTES] = value.try_into().map_err(|_| bad())?;
    let (mut first, mut position, mut count, mut lease) = ([0; 8], [0; 16], [0; 2], [0; 8]);
    first.copy_from_slice(&key[16..]);
    position.copy_from_slice(&value[1..17]);
    count.copy_from_slice(&value[17..19]);
    lease.copy_from_slice(&value[19..]);
    Ok(Place {
        first: u64::from_be_bytes(first),
        count: u16::from_be_bytes(count),
        lease: u64::from_be_bytes(lease),
        tier: match value[0] {
            0 => Tier::Journal,
            1 => Tier::History,
            _ => return Err(bad()),
        },
        position: Position::from_bytes(position),
    })
}

fn tag(value: &[u8]) -> Result<TenantTag, IndexError> {
    let bytes = value.try_into().map_err(|_| IndexError::Entry("open or tombstones"))?;
    Ok(TenantTag(u32::from_be_bytes(bytes)))
}

impl Index {
    /// Opens it, and makes it if need be.
    pub(super) fn open(directory: &Path, cache_bytes: u64) -> Result<Self, IndexError> {
        let database = Database::builder(directory).cache_size(cache_bytes).worker_threads(1).open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(16 << 20);
        Ok(Self {
            positions: database.keyspace("positions", options)?,
            open: database.keyspace("open", options)?,
            tombstones: database.keyspace("tombstones", options)?,
            marks: database.keyspace("marks", options)?,
            database,
        })
    }

    /// Enters commits of one journal, in their order.
    pub(super) fn enter(&self, tier: Tier, pointers: &[Pointer]) -> Result<(), IndexError> {
        let mut batch = self.database.batch();
        for pointer in pointers {
            batch.insert(&self.positions, key(pointer.run, pointer.first), value(tier, pointer));
            let tag = pointer.tenant.0.to_be_bytes();
            if pointer.first == 1 {
                batch.insert(&self.tombstones, *pointer.run.as_bytes(), tag);
            }
            match pointer.turn {
                Turn::None => {}
                Turn::Open => batch.insert(&self.open, *pointer.run.as_bytes(), tag),
                Turn::Over => batch.remove(&self.open, *pointer.run.as_bytes()),
            }
        }
        Ok(batch.commit()?)
    }

    /// The commits are in the history now. Whether their runs are over they do not say.
    pub(super) fn moved(&self, pointers: &[Pointer]) -> Result<(), IndexError> {
        let mut batch = self.database.batch();
        for pointer in pointers {
            batch.insert(&self.positions, key(pointer.run, pointer.first), value(Tier::History, pointer));
        }
        Ok(batch.commit()?)
    }

    /// Forgets commits that are about to be dropped from the history, if they are where the index says.
    pub(super) fn forget(&self, pointers: &[Pointer]) -> Result<(), IndexError> {
        let mut batch = self.database.batch();
        for pointer in pointers {
            let key = key(pointer.run, pointer.first);
            if self.positions.get(key)?.is_some_and(|found| *found == value(Tier::History, pointer)) {
                batch.remove(&self.positions, key);
            }
        }
        Ok(batch.commit()?)
    }

    /// All commits of a run that are left, in order.
    pub(super) fn places(&self, run: RunId) -> Result<Vec<Place>, IndexError> {
        let mut places = Vec::new();
        for entry in self.positions.prefix(run.as_bytes()) {
            let (key, value) = entry.into_inner()?;
            places.push(place(&key, &value)?);
        }
        Ok(places)
    }

    fn last_place(&self, run: RunId) -> Result<Option<Place>, IndexError> {
        let Some(entry) = self.positions.prefix(run.as_bytes()).next_back() else { return Ok(None) };
        let (key, value) = entry.into_inner()?;
        place(&key, &value).map(Some)
    }

    pub(super) fn recall(&self, run: RunId) -> Result<Recalled, IndexError> {
        let Some(tenant) = self.tombstones.get(run.as_bytes())? else { return Ok(Recalled::Never) };
        let Some(last) = self.last_place(run)? else { return Ok(Recalled::Gone) };
        // What it begins with was dropped already: nobody can go on with the rest.
        if !self.positions.contains_key(key(run, 1))? {
            return Ok(Recalled::Gone);
        }
        Ok(Recalled::Known(Known {
            tenant: tag(&tenant)?,
            seq: last.first + u64::from(last.count) - 1,
            lease: last.lease,
            is_over: !self.open.contains_key(run.as_bytes())?,
            is_pending: false,
        }))
    }

    /// Every run that is not over.
    pub(super) fn open_runs(&self, mut each: impl FnMut(RunId, Known)) -> Result<(), IndexError> {
        for entry in self.open.iter() {
            let (key, value) = entry.into_inner()?;
            let run = RunId::from_bytes((*key).try_into().map_err(|_| IndexError::Entry("open"))?);
            let Some(last) = self.last_place(run)? else { continue };
            let seq = last.first + u64::from(last.count) - 1;
            each(run, Known { tenant: tag(&value)?, seq, lease: last.lease, is_over: false, is_pending: false });
        }
        Ok(())
    }

    /// How far a journal is in it, durably. None: from the beginning.
    pub(super) fn mark(&self, tier: Tier) -> Result<Option<Position>, IndexError> {
        let Some(value) = self.marks.get(word(tier))? else { return Ok(None) };
        let bytes = (*value).try_into().map_err(|_| IndexError::Entry("marks"))?;
        Ok(Some(Position::from_bytes(bytes)))
    }

    /// Makes durable what was entered, and then that it is.
    pub(super) fn set_mark(&self, tier: Tier, to: Position) -> Result<(), IndexError> {
        self.database.persist(PersistMode::SyncAll)?;
        self.marks.insert(word(tier), to.to_bytes())?;
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    /// Forgets all that can be made again from the journals.
    pub(super) fn clear(&self) -> Result<(), IndexError> {
        for tier in [Tier::Journal, Tier::History] {
            self.marks.remove(word(tier))?;
        }
        // First that nothing is known to be in it.
        self.database.persist(PersistMode::SyncAll)?;
        self.positions.clear()?;
        self.open.clear()?;
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    /// About how many runs there ever were.
    pub(super) fn tombstones(&self) -> usize {
        self.tombstones.approximate_len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or(0)
    }
}

fn word(tier: Tier) -> &'static str {
    match tier {
        Tier::Journal => "journal",
        Tier::History => "history",
    }
}

#[cfg(test)]
mod tests;
