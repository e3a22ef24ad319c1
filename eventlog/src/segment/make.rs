//! Making segments: zeroed or recycled, with a header, under their name, all of it durable before the first batch.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::aligned::AlignedBuf;
use super::format::{HEADER_BLOCK, SegmentHeader};
use super::names::{segment_path, unfinished_path};
use super::options::SyncMode;
use super::position::SegmentId;
use super::shared::Shared;
use super::storage::{Storage, StorageFile, WriteMode, is_full, refuses_direct};

/// A segment that is ready for its first batch.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) id: SegmentId,
    pub(crate) header: SegmentHeader,
    pub(crate) file: Arc<dyn StorageFile>,
}

#[derive(Debug)]
pub(crate) enum MakeError {
    /// The file system has no room above the reserve.
    Full,
    Io(io::Error),
}

impl From<io::Error> for MakeError {
    fn from(error: io::Error) -> Self {
        if is_full(&error) { Self::Full } else { Self::Io(error) }
    }
}

/// Direct I/O asks for whole blocks at aligned addresses.
pub(crate) fn block() -> AlignedBuf {
    AlignedBuf::zeroed(usize::try_from(HEADER_BLOCK).unwrap_or(4096))
}

/// Writes, and makes durable, in the file's own way.
pub(crate) fn write_durably(file: &dyn StorageFile, mode: WriteMode, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_at(offset, bytes)?;
    match mode {
        WriteMode::Direct => Ok(()),
        WriteMode::Buffered => file.sync(),
    }
}

/// Makes a segment in the way that the file system takes; the first one finds out which that is.
pub(crate) fn make_segment(shared: &Shared, id: SegmentId, recycled: Option<&str>) -> io::Result<Made> {
    let settings = &shared.settings;
    let header = SegmentHeader {
        identity: shared.identity(id),
        created_unix_ms: shared.clock.unix_ms(),
        segment_bytes: settings.segment_bytes,
    };
    let attempt = |mode, recycled| make(&*shared.storage, &settings.directory, &header, mode, recycled);
    let (made, mode) = match (shared.mode.get(), settings.sync) {
        (Some(mode), _) => (attempt(*mode, recycled), *mode),
        (None, SyncMode::Fdatasync) => (attempt(WriteMode::Buffered, recycled), WriteMode::Buffered),
        (None, SyncMode::Direct) => (attempt(WriteMode::Direct, recycled), WriteMode::Direct),
        (None, SyncMode::Auto) => match attempt(WriteMode::Direct, recycled) {
            // The trimmed file went with the attempt, and left its room.
            Err(error) if refuses_direct(&error) => (attempt(WriteMode::Buffered, None), WriteMode::Buffered),
            made => (made, WriteMode::Direct),
        },
    };
    let made = made?;
    // Only one thread makes the first one.
    shared.mode.set(mode).ok();
    Ok(made)
}

/// Makes the segment from a trimmed file of the same size, or from zeros. What a trimmed file held does not parse
/// under the new identity.
fn make(
    storage: &dyn Storage,
    directory: &Path,
    header: &SegmentHeader,
    mode: WriteMode,
    recycled: Option<&str>,
) -> io::Result<Made> {
    let id = header.identity.segment;
    let unfinished = unfinished_path(directory, id);
    let result = (|| {
        match recycled {
            Some(name) => storage.rename(&directory.join(name), &unfinished)?,
            None => storage.create_zeroed(&unfinished, header.segment_bytes)?,
        }
        let file = storage.open_write(&unfinished, mode)?;
        let mut block = block();
        header.encode(block.as_mut_slice());
        write_durably(&*file, mode, 0, block.as_slice())?;
        storage.rename(&unfinished, &segment_path(directory, id))?;
        storage.sync_directory(directory)?;
        Ok(Made { id, header: *header, file })
    })();
    if result.is_err() {
        // Half a file is of no use; if it cannot be removed now, the next open does it.
        storage.remove(&unfinished).ok();
    }
    result
}

/// Reads the header back from the disk: what was written is what is there.
pub(crate) fn prove(storage: &dyn Storage, directory: &Path, header: &SegmentHeader) -> io::Result<()> {
    let file = storage.open_read(&segment_path(directory, header.identity.segment), WriteMode::Direct)?;
    let mut block = block();
    let read = file.read_at(0, block.as_mut_slice())?;
    if read == block.len() && SegmentHeader::decode(block.as_slice()) == Ok(*header) {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the disk gives back other bytes than were written"))
    }
}
