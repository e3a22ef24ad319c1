//! Opening a directory: who lives in it, what is in it, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use domain::Clock;

use super::catalog::{Catalog, SegmentInfo, SegmentState};
use super::damage::{Damage, DamageKind};
use super::epoch::{Case, Epoch, EpochError, Torn};
use super::format::{HEADER_BLOCK, LogId, SegmentHeader};
use super::names::{self, LOG_ID, Name, TRIM_MARK, end_path, free_name, lock_path, segment_path, side_path};
use super::position::{Position, SegmentId};
use super::scan::Manner;
use super::storage::{Lock, Storage, WriteMode, ignore_missing, is_full, read_or_nothing};
use super::trim_mark::{decode_mark, encode_mark, stored_mark};
use super::window::Window;

/// What was found when a journal was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The epoch that this process writes under.
    pub epoch: u64,
    pub segments: usize,
    /// Segments whose batches had to be read, since their writer did not seal them.
    pub scanned: usize,
    pub records: u64,
    /// Batches that were being written when the writer ended: never acknowledged, cut.
    pub torn: Vec<Torn>,
    /// Batches that were given up after an error of the disk, and turned out to be there: not shown to readers.
    pub disowned: Vec<Torn>,
    /// Quarantined: nothing of it is read without `skip_damage`, and nothing of it is overwritten.
    pub damage: Vec<Damage>,
    /// Epochs of other processes that append right now; readers wait at what these had when we looked.
    pub live_epochs: Vec<u64>,
}

/// Why a journal did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Options(#[from] super::options::InvalidOptions),
    #[error("segment {0} was written by a later version of Tidegate")]
    LaterVersion(SegmentId),
    #[error("the disk does not take direct I/O, and nothing else is allowed")]
    DirectRefused,
    #[error(
        "no epoch is left: the file {file} claims one that no log gets to. Nothing was changed; if no appliance wrote it, \
         move it away, else begin a new log in another directory"
    )]
    NoEpochLeft { file: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl OpenError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl From<EpochError> for OpenError {
    fn from(error: EpochError) -> Self {
        match error {
            EpochError::Io(segment, source) => Self::Io { what: format!("reading segment {segment}"), source },
            EpochError::LaterVersion(segment) => Self::LaterVersion(segment),
        }
    }
}

/// The files of a directory, sorted by what they are.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) segments: BTreeMap<SegmentId, u64>,
    pub(crate) unfinished: BTreeSet<SegmentId>,
    pub(crate) ends: BTreeSet<SegmentId>,
    pub(crate) sides: BTreeSet<SegmentId>,
    pub(crate) free: Vec<(String, u64)>,
    pub(crate) locks: BTreeSet<u64>,
    /// By name, with the epoch that each belongs to, if it is one's.
    pub(crate) temporary: Vec<(String, Option<u64>)>,
}

impl Listing {
    pub(crate) fn read(storage: &dyn Storage, directory: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        for file in storage.list(directory)? {
            match names::parse(&file.name) {
                Some(Name::Segment(id)) => drop(listing.segments.insert(id, file.bytes)),
                Some(Name::Unfinished(id)) => drop(listing.unfinished.insert(id)),
                Some(Name::End(id)) => drop(listing.ends.insert(id)),
                Some(Name::Side(id)) => drop(listing.sides.insert(id)),
                Some(Name::Free) => listing.free.push((file.name, file.bytes)),
                Some(Name::Lock(epoch)) => drop(listing.locks.insert(epoch)),
                Some(Name::Temporary(epoch)) => listing.temporary.push((file.name, Some(epoch))),
                Some(Name::TemporaryOfAll) => listing.temporary.push((file.name, None)),
                None => {}
            }
        }
        listing.free.sort();
        Ok(listing)
    }

    pub(crate) fn epochs(&self) -> BTreeSet<u64> {
        self.segments.keys().map(|id| id.epoch).chain(self.locks.iter().copied()).collect()
    }

    /// The highest epoch that a file claims, and that file.
    fn max_epoch(&self) -> Option<(u64, PathBuf)> {
        let nowhere = Path::new("");
        let lock = self.locks.last().map(|epoch| (*epoch, lock_path(nowhere, *epoch)));
        let segment = self.segments.last_key_value().map(|(id, _)| (id.epoch, segment_path(nowhere, *id)));
        let unfinished = self.unfinished.last().map(|id| (id.epoch, names::unfinished_path(nowhere, *id)));
        [lock, segment, unfinished].into_iter().flatten().max_by_key(|(epoch, _)| *epoch)
    }
}

/// The log's id: from its file, else from any segment, else `fresh`.
pub(crate) fn log_id(storage: &dyn Storage, directory: &Path, fresh: LogId) -> io::Result<LogId> {
    let path = directory.join(LOG_ID);
    if let Some(id) = stored_log_id(storage, directory)? {
        return Ok(id);
    }
    let id = header_log_id(storage, directory)?.unwrap_or(fresh);
    let mut bytes = id.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&id).to_le_bytes());
    if storage.put_new(&path, &bytes)? {
        return Ok(id);
    }
    if let Some(id) = stored_log_id(storage, directory)? {
        return Ok(id);
    }
    // There is a file and it is damaged.
    storage.put(&path, &bytes)?;
    Ok(id)
}

pub(crate) fn stored_log_id(storage: &dyn Storage, directory: &Path) -> io::Result<Option<LogId>> {
    let Some(bytes) = read_or_nothing(storage, &directory.join(LOG_ID), 4096)? else { return Ok(None) };
    let whole = bytes.split_last_chunk::<4>().filter(|(id, crc)| crc32c::crc32c(id) == u32::from_le_bytes(**crc));
    Ok(whole.and_then(|(id, _)| id.try_into().ok()))
}

pub(crate) fn header_log_id(storage: &dyn Storage, directory: &Path) -> io::Result<Option<LogId>> {
    for id in Listing::read(storage, directory)?.segments.keys() {
        let file = storage.open_read(&segment_path(directory, *id), WriteMode::Buffered)?;
        let Ok(block) = Window::new(file).get(0, HEADER_BLOCK, HEADER_BLOCK) else { continue };
        if let Ok(header) = SegmentHeader::decode(&block) {
            return Ok(Some(header.identity.log));
        }
    }
    Ok(None)
}

/// An empty file takes no block, but its name may: on a full disk, where the piece of the directory that it belongs to
/// has no room left. Another name belongs to another piece. Of a hundred pieces some are always half empty.
const NAMES_ON_FULL_DISK: usize = 32;

/// The last epoch that is taken. A log that starts a thousand times a second gets there in 292 million years, so a file
/// that claims a later one is none of ours: most likely its name is all ones. It is refused at once, and not when the
/// numbers run out, since by then segments would lie behind it.
const EPOCH_MAX: u64 = u64::MAX >> 1;

/// Takes an epoch that nobody had before. Locked from the moment that others can see it. The trim mark is such a claim
/// too: where the segments were removed and the mark was not, what is written under it would be taken for trimmed.
pub(crate) fn take_epoch(
    storage: &dyn Storage,
    directory: &Path,
    log: &LogId,
) -> Result<(u64, Box<dyn Lock>), OpenError> {
    let taking = || OpenError::io("taking an epoch");
    let listed = Listing::read(storage, directory).map_err(taking())?.max_epoch();
    let mark = stored_mark(storage, directory, log).map_err(OpenError::io("the trim mark"))?;
    let trimmed = mark.map(|mark| (mark.epoch(), PathBuf::from(TRIM_MARK)));
    let claimed = [trimmed, listed].into_iter().flatten().max_by_key(|(epoch, _)| *epoch);
    let mut epoch = claimed.as_ref().map_or(0, |(epoch, _)| *epoch);
    let mut without_room = 0;
    loop {
        epoch = epoch.checked_add(1).filter(|epoch| *epoch <= EPOCH_MAX).ok_or_else(|| OpenError::NoEpochLeft {
            file: claimed.as_ref().map(|(_, file)| directory.join(file).display().to_string()).unwrap_or_default(),
        })?;
        match storage.lock_new(&lock_path(directory, epoch)) {
            Ok(Some(lock)) => {
                storage.sync_directory(directory).map_err(taking())?;
                return Ok((epoch, lock));
            }
            Ok(None) => {}
            Err(error) if is_full(&error) && without_room < NAMES_ON_FULL_DISK => without_room += 1,
            Err(error) => return Err(taking()(error)),
        }
    }
}

pub(crate) struct Opening<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) directory: &'a Path,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) log: LogId,
    pub(crate) own: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) recycle_max: usize,
}

impl Opening<'_> {
    /// Looks at everything that is there, finishes what a crash left half done, and says what is wrong.
    pub(crate) fn recover(&self) -> Result<(Catalog, BTreeSet<u64>, Recovery), OpenError> {
        let listing = Listing::read(self.storage, self.directory).map_err(OpenError::io("listing the log"))?;
        let mark = read_or_nothing(self.storage, &self.directory.join(TRIM_MARK), 4096);
        let mark = mark.map_err(OpenError::io("the trim mark"))?;
        if mark.is_none() {
            self.set_up_mark().map_err(OpenError::io("the first trim mark"))?;
        }
        let trimmed = mark.and_then(|bytes| decode_mark(&self.log, &bytes)).unwrap_or(Position::START);
        let mut catalog = Catalog::new(trimmed);
        let mut recovery = Recovery { epoch: self.own, ..Recovery::default() };
        let mut foreign = BTreeSet::new();
        for epoch in listing.epochs().into_iter().filter(|epoch| *epoch != self.own) {
            let lock = lock_path(self.directory, epoch);
            let live = self.storage.is_locked(&lock).map_err(OpenError::io("the lock of an epoch"))?;
            let judged = self.epoch(epoch, live, trimmed, &listing.segments)?;
            if live {
                foreign.insert(epoch);
                recovery.live_epochs.push(epoch);
            }
            recovery.scanned += judged.segments.iter().filter(|looked| looked.scanned).count();
            recovery.torn.extend(&judged.torn);
            recovery.disowned.extend(&judged.disowned);
            enter(&mut catalog, epoch, live, &judged);
        }
        self.clean(&listing, &foreign, &mut catalog).map_err(OpenError::io("cleaning the log's directory"))?;
        recovery.segments = catalog.segments.len();
        recovery.records = catalog.segments.values().map(|info| info.records).sum();
        recovery.damage.clone_from(&catalog.damage);
        Ok((catalog, foreign, recovery))
    }

    /// A mark at the very beginning, so that the first trim of a full disk finds a block to write its own in.
    fn set_up_mark(&self) -> io::Result<()> {
        let mark = encode_mark(&self.log, Position::START);
        match self.storage.put_new(&self.directory.join(TRIM_MARK), &mark) {
            // The next open tries again.
            Err(error) if is_full(&error) => Ok(()),
            done => done.map(drop),
        }
    }

    pub(crate) fn epoch(
        &self,
        epoch: u64,
        live: bool,
        trimmed: Position,
        files: &BTreeMap<SegmentId, u64>,
    ) -> Result<Epoch, OpenError> {
        let manner = if live { Manner::Live } else { Manner::Settled };
        let (storage, directory, log) = (self.storage, self.directory, self.log);
        let case = Case { storage, directory, log, epoch, files, trimmed, manner, whole: false, read_only: false };
        let mut judged = case.judge(&mut |_| {})?;
        if live {
            return Ok(judged);
        }
        // Segments at the end that were prepared and never written to. Whatever is wrong with one says that it was.
        while let Some(looked) =
            judged.segments.pop_if(|looked| looked.held.sums.batches == 0 && looked.held.damage.is_empty())
        {
            self.give_up(looked.id, looked.file_bytes).map_err(OpenError::io("an empty segment"))?;
        }
        let last = judged.segments.last().map(|looked| looked.id);
        for looked in &mut judged.segments {
            let is_last = Some(looked.id) == last;
            if looked.sealed.is_some() && !(is_last && looked.lacks_witness()) {
                continue;
            }
            let cut = is_last && looked.sealed.is_none();
            match looked.record_end(&case, self.clock.unix_ms(), cut) {
                // It is read again at the next open, and that is all.
                Err(error) if is_full(&error) => {
                    tracing::warn!(segment = %looked.id, %error, "no room to write down where a segment ends");
                }
                result => result.map_err(OpenError::io(format!("the end of segment {}", looked.id)))?,
            }
        }
        Ok(judged)
    }

    fn give_up(&self, id: SegmentId, file_bytes: u64) -> io::Result<()> {
        let path = segment_path(self.directory, id);
        ignore_missing(self.storage.remove(&end_path(self.directory, id)))?;
        ignore_missing(self.storage.remove(&side_path(self.directory, id)))?;
        if file_bytes == self.segment_bytes {
            ignore_missing(self.storage.rename(&path, &self.directory.join(free_name(id))))
        } else {
            ignore_missing(self.storage.remove(&path))
        }
    }

    /// Removes what nobody needs: of epochs that ended only.
    fn clean(&self, listing: &Listing, foreign: &BTreeSet<u64>, catalog: &mut Catalog) -> io::Result<()> {
        let mut gone = Vec::new();
        let ended = |id: &SegmentId| id.epoch != self.own && !foreign.contains(&id.epoch);
        gone.extend(
            listing.unfinished.iter().filter(|id| ended(id)).map(|id| names::unfinished_path(self.directory, *id)),
        );
        let unknown = |id: &&SegmentId| ended(id) && !catalog.segments.contains_key(id);
        gone.extend(listing.ends.iter().filter(unknown).map(|id| end_path(self.directory, *id)));
        gone.extend(listing.sides.iter().filter(unknown).map(|id| side_path(self.directory, *id)));
        let trimmed = |id: &&SegmentId| unknown(id) && **id <= catalog.trimmed.segment();
        gone.extend(listing.segments.keys().filter(trimmed).map(|id| segment_path(self.directory, *id)));
        let with_segments: BTreeSet<u64> = catalog.segments.keys().map(|id| id.epoch).collect();
        let idle = |epoch: &&u64| **epoch < self.own && !foreign.contains(epoch) && !with_segments.contains(epoch);
        gone.extend(listing.locks.iter().filter(idle).map(|epoch| lock_path(self.directory, *epoch)));
        // What belongs to no epoch may be anybody's who lives.
        let left = listing.temporary.iter().filter(|(_, epoch)| {
            epoch.map_or(foreign.is_empty(), |epoch| epoch < self.own && !foreign.contains(&epoch))
        });
        gone.extend(left.map(|(name, _)| self.directory.join(name)));
        for path in gone {
            ignore_missing(self.storage.remove(&path))?;
        }
        // A second listing: empty segments became free files meanwhile.
        for (name, bytes) in Listing::read(self.storage, self.directory)?.free {
            if bytes == self.segment_bytes && catalog.recyclable.len() < self.recycle_max {
                catalog.recyclable.push(name);
            } else {
                ignore_missing(self.storage.remove(&self.directory.join(name)))?;
            }
        }
        self.storage.sync_directory(self.directory)
    }
}

/// Puts an epoch into the catalog, in place of what it had of it.
pub(crate) fn enter(catalog: &mut Catalog, epoch: u64, live: bool, judged: &Epoch) {
    catalog.segments.retain(|id, _| id.epoch != epoch);
    catalog.damage.retain(|damage| damage.segment.epoch != epoch);
    let last = judged.segments.iter().rposition(|looked| looked.held.sums.batches > 0).unwrap_or(0);
    for (at, looked) in judged.segments.iter().enumerate() {
        let state = match (live, looked.sealed.is_some()) {
            (_, true) => SegmentState::Sealed,
            (true, false) if at >= last => SegmentState::Foreign,
            (_, false) => SegmentState::Closed,
        };
        catalog.segments.insert(looked.id, looked.info(state));
    }
    if live && !judged.segments.iter().any(|looked| looked.sealed.is_none()) {
        // Readers wait here although nothing is there yet: more of this epoch may come.
        let sequence = judged.segments.last().map_or(0, |looked| looked.id.sequence.saturating_add(1));
        let id = SegmentId { epoch, sequence };
        catalog.segments.insert(id, SegmentInfo::empty(id, SegmentState::Foreign, 0, [0; 32]));
    }
    for damage in judged.damage.iter().filter(|damage| damage.kind != DamageKind::Padding) {
        catalog.add_damage(*damage);
    }
}

impl super::look::Looked {
    /// Is the footer all that says where the batches end? No segment behind the last one of an epoch names what was
    /// before, and where the file is as long as it was made, one without footer could be one that was never full.
    fn lacks_witness(&self) -> bool {
        let own_footer = self.sealed.is_some_and(|footer| footer.index_offset > 0);
        own_footer && self.held.damage.is_empty() && self.made_bytes.is_some_and(|made| self.file_bytes >= made)
    }
}
