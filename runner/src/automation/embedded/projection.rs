//! How definitions are, in an embedded key-value store: made from the journal, and made again from it if need be.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `versions` | tenant, automation, version | the journal's record |
//! | `heads` | tenant, automation | its last version, name, endpoints, whether it is enabled, deleted |
//! | `names` | tenant, name | automation; of those that are not deleted |
//! | `triggers` | tenant, endpoint, automation | version; of those that are enabled and not deleted |
//! | `connections` | tenant, connection | the journal's record, of those that need to be made anew |
//!
//! Each of them has a mark as well: which record of the journal is the last that is in all of these. What one record does is
//! one batch with the marks, so that after a crash it is there whole or not at all; and a keyspace that has lost its files,
//! which the store takes for one that is new, is known by its mark being another than those of the rest. Nothing is synced
//! here: what a power cut takes is read from the journal again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use domain::TenantId;
use eventlog::segment::{Cursor, Journal, Position, ReadError, Record};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use minicbor::{Decode, Encode};

use super::super::store::ConnectionState;
use super::record::{Fact, read, written};
use super::{OpenError, Opened, keys};
use crate::ids::AutomationId;

/// Layout of the keyspaces; another one is made anew.
const FORMAT: u32 = 1;
/// Records of the journal that go into the index at once when it is caught up.
const BATCH: usize = 1000;
/// What is written before it goes into files.
const MEMTABLE_BYTES: u64 = 8 << 20;

pub(super) struct Projection {
    database: Database,
    pub(super) versions: Keyspace,
    pub(super) heads: Keyspace,
    pub(super) names: Keyspace,
    pub(super) triggers: Keyspace,
    pub(super) connections: Keyspace,
}

impl std::fmt::Debug for Projection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Projection").finish_non_exhaustive()
    }
}

/// How an automation is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct Head {
    #[n(0)]
    pub(super) tenant: String,
    #[n(1)]
    pub(super) version: u32,
    #[n(2)]
    pub(super) name: String,
    #[n(3)]
    pub(super) is_enabled: bool,
    #[n(4)]
    pub(super) is_deleted: bool,
    #[n(5)]
    pub(super) at_unix_ms: u64,
    #[n(6)]
    endpoints: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(super) struct Mark {
    #[n(0)]
    format: u32,
    #[cbor(n(1), with = "minicbor::bytes")]
    position: [u8; 16],
    /// BLAKE3 of the record there: another journal may have one at the same place.
    #[cbor(n(2), with = "minicbor::bytes")]
    digest: [u8; 32],
}

impl Mark {
    pub(super) fn of(position: Position, payload: &[u8]) -> Self {
        Self { format: FORMAT, position: position.to_bytes(), digest: *blake3::hash(payload).as_bytes() }
    }
}

/// Opens the index and catches up with the journal; makes it anew where it cannot be used.
pub(super) fn open(directory: &Path, cache_bytes: u64, journal: &Journal) -> Result<(Projection, Opened), OpenError> {
    // The store has panicked on damage before; its files are nothing that could be lost.
    let found = catch_unwind(AssertUnwindSafe(|| Projection::open(directory, cache_bytes)))
        .unwrap_or_else(|_| Err("it cannot be opened".into()));
    let (index, is_new, cursor) = match found.and_then(|index| {
        let is_new = index.mark()?.is_none();
        let cursor = index.resume(journal)?;
        Ok((index, is_new, cursor))
    }) {
        Ok((index, is_new, Some(cursor))) => (index, is_new, cursor),
        other => {
            match other {
                Ok(_) => tracing::info!("the index of definitions is made anew from the journal"),
                Err(why) => tracing::warn!(%why, "the index of definitions is made anew from the journal"),
            }
            return rebuild(directory, cache_bytes, journal);
        }
    };
    match index.catch_up(cursor) {
        Ok((read, _)) => Ok((index, Opened { is_rebuilt: is_new && read > 0, read })),
        Err(CatchUp::Index(why)) => {
            tracing::warn!(%why, "the index of definitions is made anew from the journal");
            drop(index);
            rebuild(directory, cache_bytes, journal)
        }
        Err(other) => Err(other.into()),
    }
}

fn rebuild(directory: &Path, cache_bytes: u64, journal: &Journal) -> Result<(Projection, Opened), OpenError> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(OpenError::Directory(error)),
        Ok(()) | Err(_) => {}
    }
    let index = Projection::open(directory, cache_bytes).map_err(|why| OpenError::Index(why.into()))?;
    let (read, _) = index.catch_up(journal.read(Position::START)?)?;
    Ok((index, Opened { is_rebuilt: true, read }))
}

/// Why the index is not where the journal is.
#[derive(Debug)]
pub(super) enum CatchUp {
    Read(ReadError),
    Record { position: Position, why: String },
    Index(String),
}

impl From<CatchUp> for OpenError {
    fn from(why: CatchUp) -> Self {
        match why {
            CatchUp::Read(error) => Self::Read(error),
            CatchUp::Record { position, why } => Self::Record { position, why: why.into() },
            CatchUp::Index(why) => Self::Index(why.into()),
        }
    }
}

impl Projection {
    fn open(directory: &Path, cache_bytes: u64) -> Result<Self, String> {
        let said = |error: fjall::Error| error.to_string();
        let database = Database::builder(directory)
            .cache_size(cache_bytes)
            .max_journaling_size(64 << 20)
            .worker_threads(1)
            .open()
            .map_err(said)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let keyspace = |name: &str| database.keyspace(name, options).map_err(said);
        Ok(Self {
            versions: keyspace("versions")?,
            heads: keyspace("heads")?,
            names: keyspace("names")?,
            triggers: keyspace("triggers")?,
            connections: keyspace("connections")?,
            database,
        })
    }

    /// Puts what is in memory into files, so that the next process has nothing to read again.
    pub(super) fn settle(&self) {
        for keyspace in self.keyspaces() {
            if let Err(error) = keyspace.rotate_memtable_and_wait() {
                tracing::warn!(%error, "the index of definitions could not be put into files");
                return;
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or(0)
    }

    fn keyspaces(&self) -> [&Keyspace; 5] {
        [&self.versions, &self.heads, &self.names, &self.triggers, &self.connections]
    }

    /// How far the index is; `None` where it is new.
    fn mark(&self) -> Result<Option<Mark>, String> {
        let mut marks = Vec::new();
        for keyspace in self.keyspaces() {
            let mark = keyspace.get(MARK).map_err(|error| error.to_string())?;
            marks.push(mark.map(|mark| read::<Mark>(&mark)).transpose()?);
        }
        if marks.windows(2).any(|two| two[0] != two[1]) {
            return Err("its parts are not of one time".into());
        }
        Ok(marks.into_iter().next().flatten())
    }

    /// Where in the journal to go on; `None` where the index is of another journal, or of another layout.
    fn resume(&self, journal: &Journal) -> Result<Option<Cursor>, String> {
        let Some(mark) = self.mark()? else { return Ok(journal.read(Position::START).ok()) };
        if mark.format != FORMAT {
            return Ok(None);
        }
        // A journal that has no such place is another one; damage is told when it is read again.
        let Ok(mut cursor) = journal.read(Position::from_bytes(mark.position)) else { return Ok(None) };
        let is_it = |record: &Record| {
            record.position.to_bytes() == mark.position && *blake3::hash(&record.payload).as_bytes() == mark.digest
        };
        Ok(matches!(cursor.next_record(), Ok(Some(record)) if is_it(&record)).then_some(cursor))
    }

    /// Continues where the mark is; for a writer whose append has failed, and who does not know what of it is there.
    pub(super) fn catch_up_from_mark(&self, journal: &Journal) -> Result<(), CatchUp> {
        let cursor = self.resume(journal).map_err(CatchUp::Index)?;
        let cursor = cursor.ok_or_else(|| CatchUp::Index("it is of another journal".into()))?;
        self.catch_up(cursor).map(drop)
    }

    /// Enters all that is durable behind the cursor. Says how many records that were.
    fn catch_up(&self, mut cursor: Cursor) -> Result<(u64, Position), CatchUp> {
        let mut records = 0;
        loop {
            let mut facts = Vec::new();
            let mut mark = None;
            while facts.len() < BATCH {
                let Some(record) = cursor.next_record().map_err(CatchUp::Read)? else { break };
                let fact = Fact::decode(record.kind, &record.payload)
                    .map_err(|why| CatchUp::Record { position: record.position, why })?;
                mark = Some(Mark::of(record.position, &record.payload));
                facts.push((fact, record.payload.to_vec()));
            }
            let Some(mark) = mark else { return Ok((records, cursor.position())) };
            records += facts.len() as u64;
            self.enter(&facts, &mark).map_err(CatchUp::Index)?;
        }
    }

    /// Enters facts in their order, and the mark with them.
    pub(super) fn enter(&self, facts: &[(Fact, Vec<u8>)], mark: &Mark) -> Result<(), String> {
        let mut changes = Changes::default();
        for (fact, bytes) in facts {
            self.change(fact, bytes, &mut changes)?;
        }
        let mut batch = self.database.batch();
        for ((table, key), value) in changes.0 {
            let keyspace = self.table(table);
            match value {
                Some(value) => batch.insert(keyspace, key, value),
                None => batch.remove(keyspace, key),
            }
        }
        let mark = written(mark);
        for keyspace in self.keyspaces() {
            batch.insert(keyspace, MARK, mark.as_slice());
        }
        batch.commit().map_err(|error| error.to_string())
    }

    fn table(&self, table: Table) -> &Keyspace {
        match table {
            Table::Versions => &self.versions,
            Table::Heads => &self.heads,
            Table::Names => &self.names,
            Table::Triggers => &self.triggers,
            Table::Connections => &self.connections,
        }
    }

    fn change(&self, fact: &Fact, bytes: &[u8], changes: &mut Changes) -> Result<(), String> {
        match fact {
            Fact::Put(stored) => {
                let key = keys::automation(&stored.tenant, stored.id);
                let before = self.head_in(&key, changes)?;
                if let Some(before) = &before {
                    self.withdraw(&stored.tenant, stored.id, before, changes);
                }
                let head = Head {
                    tenant: stored.tenant.as_str().to_owned(),
                    version: stored.version.get(),
                    name: stored.name.to_string(),
                    is_enabled: stored.is_enabled,
                    is_deleted: before.is_some_and(|before| before.is_deleted),
                    at_unix_ms: stored.at_unix_ms,
                    endpoints: stored.endpoints.iter().map(|endpoint| endpoint.as_str().to_owned()).collect(),
                };
                changes.set(Table::Versions, keys::version(&stored.tenant, stored.id, stored.version), bytes.to_vec());
                if !head.is_deleted {
                    changes.set(Table::Names, keys::name(&stored.tenant, &stored.name), stored.id.as_bytes().to_vec());
                    for endpoint in stored.endpoints.iter().filter(|_| stored.is_enabled) {
                        let key = keys::trigger(&stored.tenant, endpoint.as_str(), stored.id);
                        changes.set(Table::Triggers, key, stored.version.get().to_be_bytes().to_vec());
                    }
                }
                changes.set(Table::Heads, key, written(&head));
            }
            Fact::Deleted { tenant, id, .. } => {
                let key = keys::automation(tenant, *id);
                if let Some(mut head) = self.head_in(&key, changes)? {
                    self.withdraw(tenant, *id, &head, changes);
                    head.is_deleted = true;
                    changes.set(Table::Heads, key, written(&head));
                }
            }
            Fact::Connection { tenant, connection, state, .. } => {
                let key = keys::connection(tenant, connection);
                match state {
                    ConnectionState::Connected => changes.remove(Table::Connections, key),
                    ConnectionState::NeedsReconnect { .. } => changes.set(Table::Connections, key, bytes.to_vec()),
                }
            }
        }
        Ok(())
    }

    /// Takes back what an automation's last version is found by.
    #[expect(clippy::unused_self, reason = "beside what makes the rows")]
    fn withdraw(&self, tenant: &TenantId, id: AutomationId, head: &Head, changes: &mut Changes) {
        if head.is_deleted {
            return;
        }
        changes.remove(Table::Names, keys::name(tenant, &head.name));
        for endpoint in &head.endpoints {
            changes.remove(Table::Triggers, keys::trigger(tenant, endpoint, id));
        }
    }

    fn head_in(&self, key: &[u8], changes: &Changes) -> Result<Option<Head>, String> {
        if let Some(changed) = changes.0.get(&(Table::Heads, key.to_vec())) {
            return changed.as_deref().map(read).transpose();
        }
        self.heads.get(key).map_err(|error| error.to_string())?.map(|bytes| read(&bytes)).transpose()
    }
}

/// A key that is no other one: those of tenants begin with two bytes of a length.
const MARK: [u8; 1] = [0];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Table {
    Versions,
    Heads,
    Names,
    Triggers,
    Connections,
}

/// Rows to write: a key once only, since a batch has no order within itself.
#[derive(Debug, Default)]
struct Changes(BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>);

impl Changes {
    fn set(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.0.insert((table, key), Some(value));
    }

    fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.0.insert((table, key), None);
    }
}
