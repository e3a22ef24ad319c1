//! Definitions of one machine: a journal of what was said of them, and an index of how they are.
//!
//! ```text
//! put, delete, … ─▶ queue ─▶ judge against the index ─▶ journal ─▶ durable ─▶ index ─▶ answer
//!                                                                                │
//! get, list, triggered_by ◀──────────────────────────────────────────────────────┘
//! ```
//!
//! The journal is the truth and is never trimmed: runs finish under the version that they began with. The index is made again
//! from it where it is missing, damaged, or of another journal; where it is current, opening reads one record of the
//! journal. Nothing is kept in memory for an automation that nothing happens to.
//!
//! **One process** has the directory open; a second one is told so. **One thread** writes: it takes what waits, of each tenant
//! one thing at a time, and makes it durable with one write.

mod keys;
mod looking;
mod projection;
mod record;
mod request;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use domain::{Clock, ConnectionId, EndpointId, TenantId};
use eventlog::segment::{self, Backoff, Journal, RealStorage, Storage, SyncMode};
use tokio::sync::{mpsc, oneshot};

use self::projection::Projection;
use self::request::{Change, Request};
use super::store::{ConnectionState, DefinitionStore, Listed, StoreError, Stored};
use crate::ids::{AutomationId, Version};
use crate::ledger::BoxFuture;

/// Requests that wait for the writer; whoever comes then waits to be taken in.
const QUEUE_MAX: usize = 256;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Everything is in it: `journal/`, `index/`, and the lock of the process that has it open.
    pub directory: PathBuf,
    /// Size of a segment of the journal. Default 16 MiB: a process begins one each time that it opens.
    pub segment_bytes: u64,
    pub sync: SyncMode,
    /// Free bytes of the file system that are never used: below it nothing is stored. Default 1 GiB.
    pub reserve_bytes: u64,
    /// Memory for what was read of the index, in bytes. Default 16 MiB.
    pub index_cache_bytes: u64,
    /// Pauses between attempts to go on after an error of the disk.
    pub heal: Backoff,
    /// Where the journal is; the index is always of the machine's own files.
    pub storage: Arc<dyn Storage>,
}

impl Settings {
    /// The defaults on the machine's own files.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            segment_bytes: 16 << 20,
            sync: SyncMode::Auto,
            reserve_bytes: 1 << 30,
            index_cache_bytes: 16 << 20,
            heal: Backoff::default(),
            storage: Arc::new(RealStorage),
        }
    }
}

/// Why definitions do not open. Nothing was changed but what an earlier process left half done.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process has the definitions in {0} open")]
    Locked(Box<str>),
    #[error("the directory of definitions: {0}")]
    Directory(#[source] io::Error),
    #[error("the journal of definitions: {0}")]
    Journal(#[from] segment::OpenError),
    /// What cannot be read is named; nothing is skipped.
    #[error("reading the journal of definitions: {0}")]
    Read(#[from] segment::ReadError),
    #[error("the index of definitions: {0}")]
    Index(Box<str>),
    /// A whole record that this version cannot read.
    #[error("the journal of definitions has a record at {position} that does not read: {why}")]
    Record { position: segment::Position, why: Box<str> },
}

/// What opening has found and done.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The index was made anew.
    pub is_rebuilt: bool,
    /// Records that had to be read, since the index did not have them.
    pub read: u64,
}

/// What there is, for an operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of the journal's segments.
    pub journal_bytes: u64,
    pub index_bytes: u64,
}

/// The definitions in a directory, open for one process. Dropping it is closing it: what was taken in is finished.
#[derive(Debug)]
pub struct EmbeddedDefinitions {
    index: Arc<Projection>,
    journal: Arc<Journal>,
    /// Taken when it is dropped, which ends the thread.
    requests: Option<mpsc::Sender<Request>>,
    writing: Mutex<Option<JoinHandle<()>>>,
    /// Whoever has it has the directory. Last, so that it goes last.
    _lock: File,
}

impl EmbeddedDefinitions {
    /// Opens the directory, and makes it if need be. Blocks for as long as it takes to read what the index does not have.
    pub fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<(Self, Opened), OpenError> {
        std::fs::create_dir_all(&settings.directory).map_err(OpenError::Directory)?;
        let lock = lock(&settings.directory)?;
        let options = segment::Options {
            segment_bytes: settings.segment_bytes,
            sync: settings.sync,
            reserve_bytes: settings.reserve_bytes,
            heal: settings.heal,
            storage: Arc::clone(&settings.storage),
            ..segment::Options::new(settings.directory.join("journal"), Arc::clone(&clock))
        };
        let (journal, _) = Journal::open(options)?;
        let journal = Arc::new(journal);
        let (index, opened) =
            projection::open(&settings.directory.join("index"), settings.index_cache_bytes, &journal)?;
        let index = Arc::new(index);
        let (requests, waiting) = mpsc::channel(QUEUE_MAX);
        let writer = writer::Writer::new(Arc::clone(&journal), Arc::clone(&index), clock, waiting);
        let writing = std::thread::Builder::new()
            .name("definitions".into())
            .spawn(move || writer.run())
            .map_err(OpenError::Directory)?;
        let store = Self { index, journal, requests: Some(requests), writing: Mutex::new(Some(writing)), _lock: lock };
        Ok((store, opened))
    }

    pub fn stat(&self) -> Stat {
        let journal_bytes = self.journal.segments().iter().map(|segment| segment.file_bytes).sum();
        Stat { journal_bytes, index_bytes: self.index.bytes() }
    }

    /// The truth of it: for whoever watches that it is still the one that was.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Hands a change to the writer.
    fn ask<T: Send + 'static>(
        &self,
        change: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Change,
        tenant: &TenantId,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let (answer, answered) = oneshot::channel();
        let request = Request { tenant: tenant.clone(), change: change(answer) };
        let requests = self.requests.clone();
        Box::pin(async move {
            let closed = || StoreError::Unavailable("the definitions are closed".into());
            requests.ok_or_else(closed)?.send(request).await.map_err(|_| closed())?;
            answered.await.unwrap_or_else(|_| Err(closed()))
        })
    }

    /// Reads the index on a thread that may wait for the disk.
    fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Projection) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let index = Arc::clone(&self.index);
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || read(&index)).await;
            read.unwrap_or_else(|_| Err(StoreError::Unavailable("reading was given up".into())))
        })
    }
}

impl Drop for EmbeddedDefinitions {
    fn drop(&mut self) {
        self.requests = None;
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writing.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer of definitions panicked");
        }
        self.index.settle();
    }
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    use rustix::fs::{FlockOperation, flock};
    let path = directory.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(OpenError::Directory)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::Locked(directory.display().to_string().into())),
        Err(error) => Err(OpenError::Directory(error.into())),
    }
}

impl DefinitionStore for EmbeddedDefinitions {
    fn put(&self, stored: Stored) -> BoxFuture<'static, Result<(), StoreError>> {
        let tenant = stored.tenant.clone();
        self.ask(|answer| Change::Put(Box::new(stored), answer), &tenant)
    }

    fn delete(&self, tenant: &TenantId, id: AutomationId, by: &str) -> BoxFuture<'static, Result<bool, StoreError>> {
        self.ask(|answer| Change::Delete(id, by.into(), answer), tenant)
    }

    fn get(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        let tenant = tenant.clone();
        self.look(move |index| index.version(&tenant, id, version))
    }

    fn by_name(&self, tenant: &TenantId, name: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.look(move |index| index.by_name(&tenant, &name))
    }

    fn list(
        &self,
        tenant: &TenantId,
        after: Option<AutomationId>,
        max: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>> {
        let tenant = tenant.clone();
        self.look(move |index| index.list(&tenant, after, max))
    }

    fn triggered_by(
        &self,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>> {
        let (tenant, endpoint) = (tenant.clone(), endpoint.clone());
        self.look(move |index| index.triggered_by(&tenant, &endpoint))
    }

    fn connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>> {
        let (tenant, connection) = (tenant.clone(), connection.clone());
        self.look(move |index| index.connection(&tenant, &connection))
    }

    fn set_connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
        state: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        self.ask(|answer| Change::Connection(connection.clone(), state, answer), tenant)
    }

    fn needing_reconnect(
        &self,
        tenant: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>> {
        let tenant = tenant.clone();
        self.look(move |index| index.needing_reconnect(&tenant))
    }
}

#[cfg(test)]
mod tests;
