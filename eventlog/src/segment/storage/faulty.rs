//! Storage that fails, by seed: writes that fail before, in the middle of, or after what they wrote; syncs that fail
//! and lose what they should have kept, while it can still be seen; and a power cut in the middle of anything.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::memory::{Dice, MemoryStorage, SECTOR};
use super::{FileInfo, Lock, Space, Storage, StorageFile, WriteMode};

/// What goes wrong, in one of so many operations; 0 = never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub write_fails: u64,
    pub sync_fails: u64,
    pub create_fails: u64,
    /// Creations that meet a full disk although it says that it has room, as with a quota.
    pub create_full: u64,
    /// Lock files that the directory has no room for.
    pub lock_full: u64,
    /// Directories that find no room when they are made durable.
    pub directory_full: u64,
    /// Small files that cannot be opened since the process has too many open.
    pub too_many_open: u64,
    pub read_fails: u64,
    /// After so many writes and syncs the power goes, in the middle of one of them.
    pub power_cut_after: Option<u64>,
}

#[derive(Debug)]
struct State {
    faults: Faults,
    dice: Dice,
    /// Writes and syncs so far.
    operations: u64,
    /// Those that failed by the dice.
    failed: u64,
    /// Files of zeros that were asked for.
    creations: u64,
    /// Small files that the disk does not give.
    unreadable: Vec<PathBuf>,
    out: bool,
}

/// A memory storage whose disk is going bad.
#[derive(Debug, Clone)]
pub struct FaultyStorage {
    memory: MemoryStorage,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct FaultyFile {
    storage: FaultyStorage,
    file: Arc<dyn StorageFile>,
    node: usize,
    mode: WriteMode,
}

/// What becomes of an operation.
enum Fate {
    Done,
    Fails,
    PowerCut,
}

fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

impl FaultyStorage {
    pub fn new(memory: MemoryStorage, seed: u64, faults: Faults) -> Self {
        let state = State {
            faults,
            dice: Dice::new(seed),
            operations: 0,
            failed: 0,
            creations: 0,
            unreadable: Vec::new(),
            out: false,
        };
        Self { memory, state: Arc::new(Mutex::new(state)) }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.with(|state| state.faults = faults);
    }

    /// From now on this small file does not read.
    pub fn set_unreadable(&self, path: &Path) {
        self.with(|state| state.unreadable.push(path.to_owned()));
    }

    /// How many operations failed by the dice.
    pub fn failed(&self) -> u64 {
        self.with(|state| state.failed)
    }

    /// How often a file of zeros was asked for.
    pub fn creations(&self) -> u64 {
        self.with(|state| state.creations)
    }

    /// Has the power gone?
    pub fn is_out(&self) -> bool {
        self.with(|state| state.out)
    }

    fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn fate(&self, one_in: impl Fn(&Faults) -> u64, counts: bool) -> Fate {
        self.with(|state| {
            if state.out {
                return Fate::Fails;
            }
            if counts {
                state.operations += 1;
                if state.faults.power_cut_after.is_some_and(|after| state.operations > after) {
                    state.out = true;
                    return Fate::PowerCut;
                }
            }
            let one_in = one_in(&state.faults);
            if one_in > 0 && state.dice.roll().is_multiple_of(one_in) {
                state.failed += 1;
                return Fate::Fails;
            }
            Fate::Done
        })
    }

    fn live(&self) -> io::Result<()> {
        if self.is_out() { Err(eio()) } else { Ok(()) }
    }
}

impl Storage for FaultyStorage {
    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        self.memory.create_directory(directory)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<FileInfo>> {
        self.live()?;
        self.memory.list(directory)
    }

    fn create_zeroed(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.with(|state| state.creations += 1);
        if matches!(self.fate(|faults| faults.create_full, false), Fate::Fails) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match self.fate(|faults| faults.create_fails, false) {
            Fate::Done => self.memory.create_zeroed(path, bytes),
            Fate::Fails | Fate::PowerCut => Err(eio()),
        }
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
        self.live()?;
        let node = self.memory.open_node(path)?;
        let file = self.memory.open_write(path, mode)?;
        Ok(Arc::new(FaultyFile { storage: self.clone(), file, node, mode }))
    }

    fn open_read(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
        self.live()?;
        let node = self.memory.open_node(path)?;
        let file = self.memory.open_read(path, mode)?;
        Ok(Arc::new(FaultyFile { storage: self.clone(), file, node, mode: WriteMode::Buffered }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.live()?;
        self.memory.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.live()?;
        self.memory.remove(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        if matches!(self.fate(|faults| faults.directory_full, false), Fate::Fails) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match self.fate(|faults| faults.sync_fails, true) {
            Fate::Done => self.memory.sync_directory(directory),
            Fate::Fails | Fate::PowerCut => Err(eio()),
        }
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        self.live()?;
        if self.with(|state| state.unreadable.iter().any(|bad| bad == path)) {
            return Err(eio());
        }
        if matches!(self.fate(|faults| faults.too_many_open, false), Fate::Fails) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        self.memory.read(path, bytes_max)
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.fate(|faults| faults.write_fails, true) {
            Fate::Done => self.memory.put(path, bytes),
            Fate::Fails | Fate::PowerCut => Err(eio()),
        }
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        self.live()?;
        self.memory.put_new(path, bytes)
    }

    fn lock_new(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.live()?;
        if matches!(self.fate(|faults| faults.lock_full, false), Fate::Fails) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.memory.lock_new(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.memory.is_locked(path)
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        self.memory.space(directory)
    }
}

impl FaultyFile {
    /// Writes some of it: a prefix, or every sector by the dice; what a disk may do before it fails.
    fn tear(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (prefix, keep) = self.storage.with(|state| {
            let prefix = if state.dice.coin() { state.dice.below(bytes.len() + 1) / SECTOR * SECTOR } else { 0 };
            let sectors = bytes.len().div_ceil(SECTOR);
            let keep = (0..sectors).map(|n| n * SECTOR < prefix || prefix == 0 && state.dice.coin());
            (prefix, keep.collect::<Vec<_>>())
        });
        debug_assert!(prefix.is_multiple_of(SECTOR), "a disk writes sectors");
        // Read, change, write: whole blocks in aligned memory, as direct I/O wants it.
        let mut whole = crate::segment::aligned::AlignedBuf::zeroed(bytes.len());
        self.file.read_at(offset, whole.as_mut_slice())?;
        for (n, sector) in bytes.chunks(SECTOR).enumerate() {
            if keep[n] {
                whole.as_mut_slice()[n * SECTOR..n * SECTOR + sector.len()].copy_from_slice(sector);
            }
        }
        self.file.write_at(offset, whole.as_slice())
    }
}

impl StorageFile for FaultyFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self.storage.fate(|faults| faults.read_fails, false) {
            Fate::Done => self.file.read_at(offset, into),
            Fate::Fails | Fate::PowerCut => Err(eio()),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.storage.fate(|faults| faults.write_fails, true) {
            Fate::Done => self.file.write_at(offset, bytes),
            Fate::PowerCut => self.tear(offset, bytes).and_then(|()| Err(eio())),
            Fate::Fails => {
                // Nothing, some of it, or all of it is there, and the answer is the same.
                match self.storage.with(|state| state.dice.below(3)) {
                    0 => {}
                    1 => self.tear(offset, bytes)?,
                    _ => self.file.write_at(offset, bytes)?,
                }
                Err(eio())
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.storage.fate(|faults| faults.sync_fails, true) {
            Fate::Done => self.file.sync(),
            Fate::PowerCut => Err(eio()),
            Fate::Fails => {
                // As Linux does: the pages are clean from now on although they never reached the disk, they can still
                // be read, and the next sync has nothing to do and says that all is well.
                if self.mode == WriteMode::Buffered && self.storage.with(|state| state.dice.below(2)) == 0 {
                    self.storage.memory.pending_dropped(self.node);
                }
                Err(eio())
            }
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.storage.live()?;
        self.file.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
