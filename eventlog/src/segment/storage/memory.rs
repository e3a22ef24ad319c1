//! Files in memory, with the one thing of a disk that matters here: what was not made durable is lost when the power
//! goes.
//!
//! Every file has what is seen (the page cache) and what is durable (the platter). Every directory change is seen at
//! once and durable after `sync_directory`; a power cut keeps the first few of those that were not, as a journalling
//! file system does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{FileInfo, Lock, Space, Storage, StorageFile, WriteMode};

/// The unit that a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;

#[derive(Debug, Default)]
struct Node {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that are seen and not durable, oldest first.
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Clone)]
enum Change {
    Link(PathBuf, usize),
    Unlink(PathBuf),
}

#[derive(Debug, Default)]
struct Disk {
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    changes: Vec<Change>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    /// Counts power cuts: what was opened before one is dead after it.
    lives: u64,
    capacity: Option<u64>,
    direct_refused: bool,
}

/// A disk, shared by its clones. The first one is the bench that the disk lies on: it always works. A clone is a
/// process's way to it, and is dead after the next power cut or kill, as the process is.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    disk: Arc<Mutex<Disk>>,
    life: Option<u64>,
}

impl Clone for MemoryStorage {
    fn clone(&self) -> Self {
        let life = lock(&self.disk).lives;
        Self { disk: Arc::clone(&self.disk), life: Some(life) }
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: Arc<Mutex<Disk>>,
    node: usize,
    life: u64,
    mode: WriteMode,
    /// Reads what the disk has, and not what the page cache shows.
    past_cache: bool,
}

#[derive(Debug)]
struct MemoryLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    life: u64,
}

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut disk = lock(&self.disk);
        if disk.lives == self.life {
            disk.locks.remove(&self.path);
        }
    }
}

fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

fn dead() -> io::Error {
    io::Error::other("the power is out")
}

/// A small generator: the same seed, the same faults.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(super) fn roll(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.roll().is_multiple_of(2)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.roll() % (n.max(1) as u64)).unwrap_or(0)
    }
}

fn write(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

impl Disk {
    fn node(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(not_found)
    }

    fn used(&self) -> u64 {
        self.names.values().map(|node| self.nodes[*node].seen.len() as u64).sum()
    }

    fn link(&mut self, path: &Path, node: usize) {
        self.names.insert(path.to_owned(), node);
        self.changes.push(Change::Link(path.to_owned(), node));
    }

    fn unlink(&mut self, path: &Path) {
        self.names.remove(path);
        self.changes.push(Change::Unlink(path.to_owned()));
    }

    fn apply(names: &mut BTreeMap<PathBuf, usize>, change: Change) {
        match change {
            Change::Link(path, node) => drop(names.insert(path, node)),
            Change::Unlink(path) => drop(names.remove(&path)),
        }
    }

    fn room_for(&self, bytes: u64) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if self.used() + bytes > capacity => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Some(_) | None => Ok(()),
        }
    }

    fn add(&mut self, bytes: Vec<u8>) -> usize {
        self.nodes.push(Node { durable: bytes.clone(), seen: bytes, pending: Vec::new() });
        self.nodes.len() - 1
    }
}

impl MemoryStorage {
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses `O_DIRECT`, as some file systems do.
    pub fn without_direct() -> Self {
        let storage = Self::new();
        lock(&storage.disk).direct_refused = true;
        storage
    }

    /// From now on files may have so many bytes together.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        lock(&self.disk).capacity = bytes;
    }

    /// The power goes and comes back. Of what was not made durable, the seed says which sectors and which changes of
    /// directories made it. Every open file and every lock of before is dead.
    pub fn power_cut(&self, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut disk = lock(&self.disk);
        disk.lives += 1;
        disk.locks.clear();
        for node in &mut disk.nodes {
            for (at, data) in std::mem::take(&mut node.pending) {
                for (n, sector) in data.chunks(SECTOR).enumerate() {
                    if dice.coin() {
                        write(&mut node.durable, at + n * SECTOR, sector);
                    }
                }
            }
            node.seen.clone_from(&node.durable);
        }
        let kept = dice.below(disk.changes.len() + 1);
        let changes = std::mem::take(&mut disk.changes);
        for change in changes.into_iter().take(kept) {
            Disk::apply(&mut disk.durable_names, change);
        }
        disk.names = disk.durable_names.clone();
    }

    /// All processes end at once (`kill -9`): what is seen stays, locks are free, open files are dead.
    pub fn kill(&self) {
        let mut disk = lock(&self.disk);
        disk.lives += 1;
        disk.locks.clear();
    }

    /// Another disk with the same bytes, which nobody has open.
    #[must_use]
    pub fn copy(&self) -> Self {
        let disk = lock(&self.disk);
        let mut copy =
            Disk { directories: disk.directories.clone(), direct_refused: disk.direct_refused, ..Disk::default() };
        for (path, node) in &disk.names {
            let node = copy.add(disk.nodes[*node].seen.clone());
            copy.names.insert(path.clone(), node);
        }
        copy.durable_names = copy.names.clone();
        Self { disk: Arc::new(Mutex::new(copy)), life: None }
    }

    /// The same with what is not durable yet.
    #[cfg(test)]
    pub(crate) fn copy_with_pending(&self) -> Self {
        let copy = self.copy();
        {
            let (disk, mut other) = (lock(&self.disk), lock(&copy.disk));
            for (path, node) in &disk.names {
                let at = other.names[path];
                other.nodes[at].durable.clone_from(&disk.nodes[*node].durable);
                other.nodes[at].pending.clone_from(&disk.nodes[*node].pending);
            }
        }
        copy
    }

    /// All files, for tests that look at bytes.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let disk = lock(&self.disk);
        disk.names.iter().map(|(path, node)| (path.clone(), disk.nodes[*node].seen.clone())).collect()
    }

    /// Changes a file's bytes behind everybody's back, durably.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut disk = lock(&self.disk);
        let Ok(node) = disk.node(path) else { return false };
        let node = &mut disk.nodes[node];
        change(&mut node.seen);
        node.durable.clone_from(&node.seen);
        true
    }

    fn live(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = lock(&self.disk);
        if self.life.is_some_and(|life| life != disk.lives) { Err(dead()) } else { Ok(disk) }
    }

    pub(super) fn pending_dropped(&self, file: usize) {
        lock(&self.disk).nodes[file].pending.clear();
    }

    pub(super) fn open_node(&self, path: &Path) -> io::Result<usize> {
        self.live()?.node(path)
    }
}

impl Storage for MemoryStorage {
    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        self.live()?.directories.insert(directory.to_owned());
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<FileInfo>> {
        let disk = self.live()?;
        if !disk.directories.contains(directory) {
            return Err(not_found());
        }
        let of = disk.names.iter().filter(|(path, _)| path.parent() == Some(directory));
        Ok(of
            .filter_map(|(path, node)| {
                let name = path.file_name()?.to_str()?.to_owned();
                Some(FileInfo { name, bytes: disk.nodes[*node].seen.len() as u64 })
            })
            .collect())
    }

    fn create_zeroed(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let mut disk = self.live()?;
        disk.room_for(bytes)?;
        let node = disk.add(vec![0; usize::try_from(bytes).map_err(io::Error::other)?]);
        disk.link(path, node);
        Ok(())
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
        let disk = self.live()?;
        if mode == WriteMode::Direct && disk.direct_refused {
            return Err(rustix::io::Errno::INVAL.into());
        }
        let node = disk.node(path)?;
        Ok(Arc::new(MemoryFile { disk: Arc::clone(&self.disk), node, life: disk.lives, mode, past_cache: false }))
    }

    fn open_read(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
        let disk = self.live()?;
        let node = disk.node(path)?;
        let past_cache = mode == WriteMode::Direct;
        let (disk, life) = (Arc::clone(&self.disk), disk.lives);
        Ok(Arc::new(MemoryFile { disk, node, life, mode: WriteMode::Buffered, past_cache }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.live()?;
        let node = disk.node(from)?;
        // One change: a rename is durable whole or not at all.
        disk.names.remove(from);
        disk.link(to, node);
        disk.changes.push(Change::Unlink(from.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.live()?;
        disk.node(path)?;
        disk.unlink(path);
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut disk = self.live()?;
        let changes = std::mem::take(&mut disk.changes);
        for change in changes {
            let (Change::Link(path, _) | Change::Unlink(path)) = &change;
            if path.parent() == Some(directory) {
                Disk::apply(&mut disk.durable_names, change);
            } else {
                disk.changes.push(change);
            }
        }
        Ok(())
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let disk = self.live()?;
        let Ok(node) = disk.node(path) else { return Ok(None) };
        let bytes = &disk.nodes[node].seen;
        if bytes.len() as u64 > bytes_max {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(Some(bytes.clone()))
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.live()?;
        disk.room_for(bytes.len() as u64)?;
        let node = disk.add(bytes.to_vec());
        disk.link(path, node);
        disk.durable_names.insert(path.to_owned(), node);
        Ok(())
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        if self.live()?.names.contains_key(path) {
            return Ok(false);
        }
        self.put(path, bytes).map(|()| true)
    }

    fn lock_new(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut disk = self.live()?;
        if disk.names.contains_key(path) {
            return Ok(None);
        }
        let node = disk.add(Vec::new());
        disk.link(path, node);
        disk.locks.insert(path.to_owned());
        let lock = MemoryLock { disk: Arc::clone(&self.disk), path: path.to_owned(), life: disk.lives };
        Ok(Some(Box::new(lock)))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.live()?.locks.contains(path))
    }

    fn space(&self, _directory: &Path) -> io::Result<Space> {
        let disk = self.live()?;
        let total = disk.capacity.unwrap_or(1 << 40);
        Ok(Space { free: total.saturating_sub(disk.used()), total })
    }
}

impl MemoryFile {
    fn with<T>(&self, run: impl FnOnce(&mut Node) -> T) -> io::Result<T> {
        let mut disk = lock(&self.disk);
        if disk.lives != self.life {
            return Err(dead());
        }
        Ok(run(&mut disk.nodes[self.node]))
    }
}

impl StorageFile for MemoryFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.with(|node| {
            let mut seen = &node.seen;
            let mut disk = Vec::new();
            if self.past_cache {
                // A direct read has what waits in the cache written first, and then asks the disk.
                disk.clone_from(&node.durable);
                node.pending.iter().for_each(|(at, data)| write(&mut disk, *at, data));
                disk.resize(node.seen.len(), 0);
                seen = &disk;
            }
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(seen.len());
            let bytes = &seen[from..];
            let read = bytes.len().min(into.len());
            into[..read].copy_from_slice(&bytes[..read]);
            read
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.mode == WriteMode::Direct {
            let aligned = offset.is_multiple_of(4096)
                && bytes.len().is_multiple_of(4096)
                && bytes.as_ptr().align_offset(4096) == 0;
            assert!(aligned, "direct I/O takes whole blocks at aligned addresses");
        }
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        self.with(|node| {
            write(&mut node.seen, at, bytes);
            match self.mode {
                WriteMode::Direct => write(&mut node.durable, at, bytes),
                WriteMode::Buffered => node.pending.push((at, bytes.to_vec())),
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|node| {
            for (at, data) in std::mem::take(&mut node.pending) {
                write(&mut node.durable, at, &data);
            }
            // The length goes with the data.
            let len = node.seen.len();
            node.durable.resize(len, 0);
        })
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let len = usize::try_from(bytes).map_err(io::Error::other)?;
        self.with(|node| node.seen.resize(len, 0))
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|node| node.seen.len() as u64)
    }
}
