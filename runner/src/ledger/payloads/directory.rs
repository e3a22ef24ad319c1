//! Payloads as files of a local directory: `TENANT/xx/DIGEST`, where xx are the digest's first two characters.
//!
//! The path is made of a checked name and of hexadecimal, never of text from outside. A file is written whole under a
//! temporary name, made durable, and renamed; so what has its name is whole, and its digest says so again on every read.
//! Its time of modification is when it was kept last, by the injected clock: age counts from there.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use domain::{Clock, TenantId};

use super::{Bounds, Fetched, PayloadError, PayloadStore, without_store};
use crate::ledger::record::{Kept, Payload};
use crate::ledger::store::BoxFuture;

/// Files that are not finished begin with this; no tenant's name does.
const TEMPORARY: &str = ".tmp-";

/// A store of payloads in a directory that one process at a time writes to.
#[derive(Debug, Clone)]
pub struct PayloadDirectory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    clock: Arc<dyn Clock>,
    /// Tells temporary files of this process apart.
    next: AtomicU64,
    /// Held while a file becomes younger or is dropped for its age: what is being kept again must not go.
    ages: Mutex<()>,
}

/// What a sweep dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    pub files: u64,
    pub bytes: u64,
}

impl PayloadDirectory {
    /// Makes the directory if need be, and drops what earlier processes did not finish: whoever opens it is the only one.
    ///
    /// # Errors
    /// Of the file system.
    pub fn open(root: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let root = root.into();
        fs::create_dir_all(&root)?;
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                fs::remove_file(entry.path())?;
            }
        }
        let inner = Inner { root, clock, next: AtomicU64::new(0), ages: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The same as [`PayloadStore::keep`], on a thread that may block.
    ///
    /// # Errors
    /// As there.
    pub fn keep_here(&self, tenant: &TenantId, bytes: &Bytes, bounds: Bounds) -> Result<Payload, PayloadError> {
        if let Some(payload) = without_store(bytes, bounds) {
            return Ok(payload);
        }
        let digest = *blake3::hash(bytes).as_bytes();
        self.inner.store(tenant, &digest, bytes).map_err(|error| failed(&error))?;
        Ok(Payload { bytes: bytes.len() as u64, digest, kept: Kept::Stored })
    }

    /// Makes a payload that is inline a stored one, and one that is stored young again. One whose bytes are not all there is
    /// left as it is.
    ///
    /// # Errors
    /// As of keeping it.
    pub fn move_out(&self, tenant: &TenantId, payload: &mut Payload) -> Result<(), PayloadError> {
        match &payload.kept {
            // What is not what it says is a fault of whoever made it, and could not be found again.
            Kept::Inline(bytes) if *blake3::hash(bytes).as_bytes() != payload.digest => {}
            Kept::Inline(bytes) => {
                self.inner.store(tenant, &payload.digest, bytes).map_err(|error| failed(&error))?;
                payload.kept = Kept::Stored;
            }
            Kept::Stored => {
                let path = self.inner.path(tenant, &payload.digest);
                self.inner.make_young(&path).map_err(|error| failed(&error))?;
            }
            Kept::Truncated(_) | Kept::Beginning(_) | Kept::Expired => {}
        }
        Ok(())
    }

    /// The same as [`PayloadStore::fetch`], on a thread that may block.
    ///
    /// # Errors
    /// As there.
    pub fn fetch_here(&self, tenant: &TenantId, payload: &Payload) -> Result<Fetched, PayloadError> {
        match &payload.kept {
            Kept::Inline(bytes) => Ok(Fetched::Whole(bytes.clone())),
            Kept::Truncated(bytes) | Kept::Beginning(bytes) => Ok(Fetched::Truncated(bytes.clone())),
            Kept::Expired => Ok(Fetched::Expired),
            Kept::Stored => self.inner.load(tenant, payload),
        }
    }

    /// Drops the files that were kept last before this time, but not those that `is_needed` says of. An error ends it; what
    /// was dropped before stays dropped, and the next sweep goes on.
    ///
    /// # Errors
    /// Of the file system.
    pub fn sweep(&self, before_unix_ms: u64, is_needed: impl Fn(&TenantId, &[u8; 32]) -> bool) -> io::Result<Swept> {
        let mut swept = Swept::default();
        for tenant in directories(&self.inner.root)? {
            let Some(name) = tenant.file_name().and_then(|name| name.to_str()) else { continue };
            // What is not ours is left alone.
            let Ok(id) = TenantId::parse(name) else { continue };
            for shelf in directories(&tenant)? {
                self.sweep_shelf(&shelf, before_unix_ms, |digest| is_needed(&id, digest), &mut swept)?;
            }
        }
        Ok(swept)
    }

    fn sweep_shelf(
        &self,
        shelf: &Path,
        before_unix_ms: u64,
        is_needed: impl Fn(&[u8; 32]) -> bool,
        swept: &mut Swept,
    ) -> io::Result<()> {
        let mut dropped = false;
        for entry in fs::read_dir(shelf)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let digest = HEXLOWER.decode(name.as_bytes()).ok().and_then(|digest| <[u8; 32]>::try_from(digest).ok());
            let Some(digest) = digest else { continue };
            if is_needed(&digest) {
                continue;
            }
            let _ages = self.inner.ages();
            let metadata = fs::metadata(&path)?;
            if unix_ms(&metadata)? < before_unix_ms {
                fs::remove_file(&path)?;
                dropped = true;
                swept.files += 1;
                swept.bytes += metadata.len();
            }
        }
        if dropped { sync_directory(shelf) } else { Ok(()) }
    }

    /// Files and bytes that are stored.
    ///
    /// # Errors
    /// Of the file system.
    pub fn stat(&self) -> io::Result<Swept> {
        let mut stat = Swept::default();
        for tenant in directories(&self.inner.root)? {
            for shelf in directories(&tenant)? {
                for entry in fs::read_dir(&shelf)? {
                    stat.bytes += entry?.metadata()?.len();
                    stat.files += 1;
                }
            }
        }
        Ok(stat)
    }
}

impl PayloadStore for PayloadDirectory {
    fn keep(
        &self,
        tenant: TenantId,
        bytes: Bytes,
        bounds: Bounds,
    ) -> BoxFuture<'static, Result<Payload, PayloadError>> {
        let store = self.clone();
        Box::pin(async move {
            // Hashing 4 KiB takes a microsecond or two; a thread of its own would take longer.
            if bytes.len() <= bounds.inline_bytes_max
                && let Some(payload) = without_store(&bytes, bounds)
            {
                return Ok(payload);
            }
            let kept = tokio::task::spawn_blocking(move || store.keep_here(&tenant, &bytes, bounds)).await;
            kept.unwrap_or_else(|_| Err(PayloadError::Unavailable("its thread ended".into())))
        })
    }

    fn keep_longer(&self, tenant: TenantId, payload: &Payload) -> BoxFuture<'static, Result<bool, PayloadError>> {
        if !matches!(payload.kept, Kept::Stored) {
            let is_there = !matches!(payload.kept, Kept::Expired);
            return Box::pin(std::future::ready(Ok(is_there)));
        }
        let (store, digest) = (self.clone(), payload.digest);
        Box::pin(async move {
            let longer =
                move || store.inner.make_young(&store.inner.path(&tenant, &digest)).map_err(|error| failed(&error));
            let kept = tokio::task::spawn_blocking(longer).await;
            kept.unwrap_or_else(|_| Err(PayloadError::Unavailable("its thread ended".into())))
        })
    }

    fn fetch(&self, tenant: TenantId, payload: &Payload) -> BoxFuture<'static, Result<Fetched, PayloadError>> {
        let (store, payload) = (self.clone(), payload.clone());
        Box::pin(async move {
            if !matches!(payload.kept, Kept::Stored) {
                return store.fetch_here(&tenant, &payload);
            }
            let fetched = tokio::task::spawn_blocking(move || store.fetch_here(&tenant, &payload)).await;
            fetched.unwrap_or_else(|_| Err(PayloadError::Unavailable("its thread ended".into())))
        })
    }
}

impl Inner {
    fn ages(&self) -> MutexGuard<'_, ()> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self, tenant: &TenantId, digest: &[u8; 32]) -> PathBuf {
        self.root.join(tenant.as_str()).join(HEXLOWER.encode(&digest[..1]))
    }

    fn path(&self, tenant: &TenantId, digest: &[u8; 32]) -> PathBuf {
        self.shelf(tenant, digest).join(HEXLOWER.encode(digest))
    }

    /// Stores it, or makes it young where it is there already.
    fn store(&self, tenant: &TenantId, digest: &[u8; 32], bytes: &[u8]) -> io::Result<()> {
        let path = self.path(tenant, digest);
        if self.make_young(&path)? {
            return Ok(());
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let temporary = self.root.join(format!("{TEMPORARY}{number}"));
        let written = self.write(&temporary, bytes).and_then(|()| {
            self.make_shelf(tenant, digest)?;
            fs::rename(&temporary, &path)
        });
        if let Err(error) = written {
            // What is left of it goes with the next open at the latest.
            fs::remove_file(&temporary).ok();
            return Err(error);
        }
        sync_directory(&self.shelf(tenant, digest))
    }

    fn write(&self, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(temporary)?;
        file.write_all(bytes)?;
        file.set_modified(UNIX_EPOCH + Duration::from_millis(self.clock.unix_ms()))?;
        file.sync_all()
    }

    /// Each directory is durable before anything in it is relied on.
    fn make_shelf(&self, tenant: &TenantId, digest: &[u8; 32]) -> io::Result<()> {
        let of_tenant = self.root.join(tenant.as_str());
        for (directory, above) in [(&of_tenant, &self.root), (&self.shelf(tenant, digest), &of_tenant)] {
            match fs::create_dir(directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            // Also if it was there: whoever made it may not have come to this.
            sync_directory(above)?;
        }
        Ok(())
    }

    /// It was kept now. False if it is not there.
    fn make_young(&self, path: &Path) -> io::Result<bool> {
        let _ages = self.ages();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.unix_ms());
        // A clock that fell back makes nothing older than it is.
        if file.metadata()?.modified()? < now {
            file.set_modified(now)?;
        }
        // The name too: whoever gave it may not have come to that.
        file.sync_all()?;
        if let Some(shelf) = path.parent() {
            sync_directory(shelf)?;
        }
        Ok(true)
    }

    fn load(&self, tenant: &TenantId, payload: &Payload) -> Result<Fetched, PayloadError> {
        let path = self.path(tenant, &payload.digest);
        let damaged = || PayloadError::Damaged(HEXLOWER.encode(&payload.digest).into());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Fetched::Expired),
            Err(error) => return Err(failed(&error)),
        };
        // The file's own length chooses nothing: one more byte than the record says is enough to know.
        if file.metadata().map_err(|error| failed(&error))?.len() != payload.bytes {
            return Err(damaged());
        }
        let mut bytes = Vec::new();
        file.take(payload.bytes).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if *blake3::hash(&bytes).as_bytes() != payload.digest {
            return Err(damaged());
        }
        Ok(Fetched::Whole(bytes.into()))
    }
}

fn failed(error: &io::Error) -> PayloadError {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return PayloadError::Full;
    }
    PayloadError::Unavailable(error.to_string().into())
}

fn unix_ms(metadata: &fs::Metadata) -> io::Result<u64> {
    let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn directories(of: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(of)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}
