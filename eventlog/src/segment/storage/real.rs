//! The machine's own files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};

use super::{FileInfo, Lock, Space, Storage, StorageFile, WriteMode, refuses_direct};
use crate::segment::aligned::AlignedBuf;

/// `O_DSYNC`: the data, and what is needed to read it again. rustix's `DSYNC` is `O_SYNC`, which waits for timestamps
/// too, and with them for a commit of the file system's journal.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
const DSYNC: OFlags = OFlags::from_bits_retain(0x1000);
/// Elsewhere the number is another one, and the stronger flag is as safe.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const DSYNC: OFlags = OFlags::DSYNC;

/// Zeros are written in pieces of this size: large enough for the disk, small enough for memory.
const ZERO_BYTES: usize = 1 << 20;

/// Files of ours hold other people's data: nobody else reads them.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);

#[derive(Debug, Clone, Copy, Default)]
pub struct RealStorage;

#[derive(Debug)]
struct RealFile(File);

#[derive(Debug)]
struct RealLock {
    _held: File,
}

impl Lock for RealLock {}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    Ok(File::from(rustix::fs::open(path, flags | OFlags::CLOEXEC, PRIVATE)?))
}

/// Some file systems take the flag when a file is opened, and refuse the first read. Any other failure is for whoever
/// reads to meet.
fn takes_direct(read: impl Fn(&mut [u8]) -> io::Result<usize>) -> bool {
    let mut block = AlignedBuf::zeroed(4096);
    !read(block.as_mut_slice()).is_err_and(|error| refuses_direct(&error))
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    open(directory, OFlags::RDONLY | OFlags::DIRECTORY)?.sync_all()
}

/// A name beside `path` that nobody else uses, nor left behind: in a container every process is number 1.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(path.with_file_name(format!("{name}.{:016x}.tmp", u64::from_le_bytes(random))))
}

/// Writes a file under a temporary name, durably.
fn write_temporary(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let temporary = temporary(path)?;
    let mut file = open(&temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map(|()| temporary.clone()).inspect_err(|_| {
        fs::remove_file(&temporary).ok();
    })
}

/// Gives the temporary file its name unless that is taken; the temporary name is gone in any case. It may be gone
/// before: somebody who opened the directory meanwhile took it for one that was left behind.
fn link_new(temporary: &Path, path: &Path) -> io::Result<bool> {
    let linked = fs::hard_link(temporary, path);
    let removed = fs::remove_file(temporary);
    match linked {
        Ok(()) => removed.map(|()| true),
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

impl Storage for RealStorage {
    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = Vec::new();
        let mut at = Some(directory);
        while let Some(path) = at.filter(|path| !path.as_os_str().is_empty() && !path.exists()) {
            missing.push(path);
            at = path.parent();
        }
        fs::create_dir_all(directory)?;
        for path in missing {
            let above = parent(path);
            sync_directory(if above.as_os_str().is_empty() { Path::new(".") } else { above })?;
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<FileInfo>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // A file that another process removes meanwhile is not in the listing.
            let Ok(metadata) = entry.metadata() else { continue };
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                files.push(FileInfo { name, bytes: metadata.len() });
            }
        }
        Ok(files)
    }

    fn create_zeroed(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = open(path, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        // All of the space at once: a full disk is found before anything is written, and extents are long.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let piece = usize::try_from(bytes).unwrap_or(usize::MAX).min(ZERO_BYTES);
        let zeros = AlignedBuf::zeroed(piece);
        // Past the page cache where possible: zeros for later are no use in memory.
        let direct = open(path, OFlags::RDWR | OFlags::DIRECT).ok();
        let mut offset = 0;
        while offset < bytes {
            let length = usize::try_from(bytes - offset).unwrap_or(usize::MAX).min(piece);
            let zeros = &zeros.as_slice()[..length];
            match direct.as_ref().map(|file| file.write_all_at(zeros, offset)) {
                Some(Ok(())) => {}
                Some(Err(error)) if !refuses_direct(&error) => return Err(error),
                Some(Err(_)) | None => file.write_all_at(zeros, offset)?,
            }
            offset += length as u64;
        }
        file.sync_all()
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
        let flags = match mode {
            WriteMode::Direct => OFlags::RDWR | OFlags::DIRECT | DSYNC,
            WriteMode::Buffered => OFlags::RDWR,
        };
        Ok(Arc::new(RealFile(open(path, flags)?)))
    }

    fn open_read(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
        if mode == WriteMode::Direct {
            match open(path, OFlags::RDONLY | OFlags::DIRECT) {
                Ok(file) if takes_direct(|into| file.read_at(into, 0)) => return Ok(Arc::new(RealFile(file))),
                Ok(_) => {}
                Err(error) if refuses_direct(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let file = open(path, OFlags::RDONLY)?;
        // Advice only: a file system that takes none still reads.
        let advice = if mode == WriteMode::Direct { Advice::DontNeed } else { Advice::Sequential };
        rustix::fs::fadvise(&file, 0, None, advice).ok();
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        sync_directory(directory)
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match open(path, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is longer than it can be"));
        }
        Ok(Some(bytes))
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = write_temporary(path, bytes)?;
        fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        sync_directory(parent(path))
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let temporary = write_temporary(path, bytes)?;
        let new = link_new(&temporary, path)?;
        sync_directory(parent(path))?;
        Ok(new)
    }

    fn lock_new(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let temporary = temporary(path)?;
        let file = open(&temporary, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        let new = link_new(&temporary, path)?;
        Ok(new.then(|| Box::new(RealLock { _held: file }) as Box<dyn Lock>))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match open(path, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        // Shared, so that two who ask at once do not take each other for the owner.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
    }
}

impl StorageFile for RealFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A direct read that goes on behind the end of the file, at an odd place: there is no more.
                Err(error) if done > 0 && refuses_direct(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // Not std's: that one asks again after an interrupt, and a sync that failed must never be asked again.
        Ok(rustix::fs::fdatasync(&self.0)?)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = self.0.metadata()?;
        match fs::metadata(path) {
            Ok(found) => Ok((own.dev(), own.ino()) == (found.dev(), found.ino())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::ManualClock;

    use super::*;
    use crate::segment::tests::rig::{append, entry, on_disk, read_all};
    use crate::segment::{AppendError, Journal, Options};

    #[test]
    fn a_file_system_that_refuses_direct_reads_late_is_read_through_the_cache() {
        let fails = |errno: rustix::io::Errno| takes_direct(move |_| Err(errno.into()));
        assert!(!fails(rustix::io::Errno::INVAL) && !fails(rustix::io::Errno::OPNOTSUPP));
        assert!(fails(rustix::io::Errno::IO), "a disk that fails is not one that refuses");
        assert!(takes_direct(|into| Ok(into.len())) && takes_direct(|_| Ok(0)));
    }

    #[test]
    fn what_a_process_of_the_same_number_left_behind_stops_nobody_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let name = |text: String| directory.path().join(text);
        for n in 0..5_000 {
            fs::write(name(format!("0000000000000001.lock.{}-{n}.tmp", std::process::id())), "").unwrap();
        }
        let (journal, _) = Journal::open(on_disk(directory.path())).unwrap();
        append(&journal, "first");
        journal.close();
        fs::write(name("0000000000000001-00000000.end.1-0.tmp".to_owned()), "half").unwrap();
        for of in ["log.id", "trim.mark", "trim.time"] {
            fs::write(name(format!("{of}.00000000000000ff.tmp")), "half").unwrap();
        }
        let (journal, _) = Journal::open(on_disk(directory.path())).unwrap();
        let left = |ending: &str| {
            let files = fs::read_dir(directory.path()).unwrap();
            files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(ending)).count()
        };
        assert_eq!((left(".tmp"), read_all(&journal).len()), (0, 1));
        // Beside somebody who lives, it may be theirs.
        fs::write(name("trim.mark.00000000000000ff.tmp".to_owned()), "half").unwrap();
        let (_younger, _) = Journal::open(on_disk(directory.path())).unwrap();
        assert_eq!(left(".tmp"), 1);
    }

    /// What is written into a file that nobody can find again is not kept: it is refused.
    #[test]
    fn a_segment_that_was_taken_away_is_written_no_more() {
        let takes: [fn(&Path); 3] = [
            |directory| {
                for file in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                    if file.file_name().to_string_lossy().ends_with(".seg") {
                        fs::remove_file(file.path()).unwrap();
                    }
                }
            },
            |directory| {
                fs::rename(directory, directory.with_extension("away")).unwrap();
                fs::create_dir(directory).unwrap();
            },
            // The next segment may be on its way into it.
            |directory| while fs::remove_dir_all(directory).is_err() && directory.exists() {},
        ];
        for (nth, take) in takes.into_iter().enumerate() {
            let root = tempfile::tempdir().unwrap();
            let directory = root.path().join("log");
            let clock = ManualClock::at_unix_ms(1_000);
            let options = Options { clock: Arc::clone(&clock) as _, ..on_disk(&directory) };
            let (journal, _) = Journal::open(options).unwrap();
            append(&journal, "before");
            take(&directory);
            clock.advance(Duration::from_secs(2));
            let lost = journal.append(entry(1, 1_000, "lost")).wait();
            assert!(matches!(lost, Err(AppendError::Unavailable { .. })), "{nth}: {lost:?}");
            if nth == 2 {
                fs::create_dir(&directory).unwrap();
            }
            while journal.append(entry(1, 1_000, "after")).wait().is_err() {
                std::thread::yield_now();
            }
            let is_there =
                |file: fs::DirEntry| fs::read(file.path()).unwrap().windows(5).any(|bytes| bytes == b"after");
            assert!(fs::read_dir(&directory).unwrap().any(|file| is_there(file.unwrap())), "{nth}");
        }
    }
}
