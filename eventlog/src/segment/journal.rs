//! The handle: opens a directory, starts the threads, hands out everything else.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::catalog::{SegmentInfo, SegmentState};
use super::cursor::{Cursor, ReadError};
use super::damage::Damage;
use super::entry::{Append, AppendError, Entry};
use super::first::Writing;
use super::format::{Identity, LogId, payload_bytes_max};
use super::helper::Helper;
use super::look::Place;
use super::make::MakeError;
use super::names::side_path;
use super::options::{Options, SyncMode};
use super::position::{Position, SegmentId};
use super::queue::{Load, Pending, Queue};
use super::recover::{OpenError, Opening, Recovery, log_id, take_epoch};
use super::shared::{Parts, Settings, Shared, locked};
use super::side;
use super::stat::Stat;
use super::storage::{Lock, RealStorage, Storage, WriteMode, refuses_direct};
use super::trim::{self, Trimmed};
use super::trim_clock;
use super::trim_time;
use super::verify::{self, Report};

/// A directory of segments, open for appending and reading. Dropping it is closing it.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    helper: Arc<Helper>,
    payload_bytes_max: u64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Given back when the threads have ended: whoever sees it free knows that nothing more comes.
    lock: Mutex<Option<Box<dyn Lock>>>,
}

/// Shuts the queue when the writer's thread ends, in whichever way: nobody waits for a writer that is not there.
struct Last(Arc<Shared>, Arc<Helper>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.queue.close();
        drop(self.0.queue.make_unavailable(&Arc::from("the log's writer ended")));
        self.1.stop();
    }
}

struct Ended(Arc<Helper>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended();
    }
}

impl Journal {
    /// Takes an epoch of its own, judges what is there, and starts to write a segment of its own. Reads the tails of
    /// segments that were not sealed; blocks for as long as that takes. On a full disk it opens without a segment: then
    /// all can be read, appends fail with `Full`, and go on when there is room.
    #[expect(clippy::needless_pass_by_value, reason = "options are for one journal")]
    pub fn open(options: Options) -> Result<(Self, Recovery), OpenError> {
        options.check()?;
        let storage = Arc::clone(&options.storage);
        let directory = options.directory.as_path();
        storage.create_directory(directory).map_err(OpenError::io("making the log's directory"))?;
        let mut fresh: LogId = [0; 16];
        getrandom::fill(&mut fresh)
            .map_err(|error| OpenError::io("randomness")(io::Error::other(error.to_string())))?;
        let log = log_id(&*storage, directory, fresh).map_err(OpenError::io("the log's id"))?;
        let (epoch, lock) = take_epoch(&*storage, directory, &log)?;
        let opening = Opening {
            storage: &*storage,
            directory,
            clock: &*options.clock,
            log,
            own: epoch,
            segment_bytes: options.segment_bytes,
            recycle_max: options.recycle_max,
        };
        let (catalog, foreign, recovery) = opening.recover()?;
        for damage in &recovery.damage {
            tracing::error!(%damage, "damage in the log");
        }
        let belief = trim_time::kept(&*storage, directory, &log).map_err(OpenError::io("the believed time"))?;
        let space = storage.space(directory).unwrap_or_default();
        let settings = Settings {
            directory: options.directory.clone(),
            segment_bytes: options.segment_bytes,
            when_full: options.when_full,
            reserve_bytes: options.reserve_bytes,
            recycle_max: options.recycle_max,
            sync: options.sync,
            read_only: false,
        };
        let most = Load { records: options.queue_records, bytes: options.queue_bytes };
        let queue = Queue::new(most, Arc::clone(&options.clock));
        let (clock, observer) = (Arc::clone(&options.clock), options.observer.clone());
        let parts = Parts { settings, storage, clock, observer, log, epoch, queue, catalog, foreign, space, belief };
        let shared = Arc::new(Shared::new(parts));
        // Before the first record: what is believed now is what no record vouches for.
        trim_time::keep(&shared).map_err(OpenError::io("the believed time"))?;
        let helper = Arc::new(Helper::new(Arc::clone(&shared)));
        let first = match helper.make(SegmentId { epoch, sequence: 0 }) {
            Ok(made) => Some(made),
            Err(MakeError::Full) => {
                // What is there can be read all the same, and appends go on by themselves when there is room.
                tracing::error!(directory = %options.directory.display(), "there is no room for a segment of the log");
                shared.queue.set_full(true);
                None
            }
            Err(MakeError::Io(error)) if options.sync == SyncMode::Direct && refuses_direct(&error) => {
                return Err(OpenError::DirectRefused);
            }
            Err(MakeError::Io(error)) => return Err(OpenError::io("making the first segment")(error)),
        };
        let writing =
            Writing::new(Arc::clone(&shared), Arc::clone(&helper), options.heal, options.batch_bytes_max, first);
        let journal = Self {
            payload_bytes_max: payload_bytes_max(options.segment_bytes),
            shared,
            helper,
            threads: Mutex::default(),
            lock: Mutex::new(Some(lock)),
        };
        journal.start(writing).map_err(OpenError::io("starting the log's threads"))?;
        Ok((journal, recovery))
    }

    fn start(&self, writing: Writing) -> io::Result<()> {
        let helper = Arc::clone(&self.helper);
        let last = Last(Arc::clone(&self.shared), Arc::clone(&self.helper));
        let name = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let helping = name("log-helper").spawn(move || {
            let _ended = Ended(Arc::clone(&helper));
            helper.run();
        })?;
        locked(&self.threads).push(helping);
        let writer = name("log-writer").spawn(move || {
            let _last = last;
            writing.run();
        });
        match writer {
            Ok(thread) => locked(&self.threads).push(thread),
            Err(error) => {
                self.helper.stop();
                return Err(error);
            }
        }
        self.helper.look_at_space();
        Ok(())
    }

    /// Hands the record to the writer. Never blocks: what cannot be taken is refused at once.
    pub fn append(&self, entry: Entry) -> Append {
        let bytes = entry.payload.len() as u64;
        if bytes > self.payload_bytes_max {
            return Append::refused(AppendError::TooLarge { bytes, bytes_max: self.payload_bytes_max });
        }
        let (waiter, append) = Append::waiting();
        match self.shared.queue.push(Pending { entry, waiter }) {
            Ok(()) => append,
            Err((error, _)) => {
                self.heal_after(&error);
                Append::refused(error)
            }
        }
    }

    /// Why an append would be refused if it came now, whatever its size. The free space is looked at as for an append that
    /// is refused: whoever asks first does not append.
    pub fn refuses(&self) -> Option<AppendError> {
        self.shared.queue.refuses().inspect(|error| self.heal_after(error))
    }

    fn heal_after(&self, refusal: &AppendError) {
        if *refusal == AppendError::Full {
            self.ask_for_space();
        }
    }

    /// While the disk is full nobody appends, so whoever is refused has the free space looked at: once a second.
    fn ask_for_space(&self) {
        let looked = locked(&self.shared.space).looked;
        if self.shared.clock.monotonic().saturating_sub(looked) >= std::time::Duration::from_secs(1) {
            self.helper.look_at_space();
        }
    }

    /// The largest payload that one record may have.
    pub fn payload_bytes_max(&self) -> u64 {
        self.payload_bytes_max
    }

    /// The epoch of this process.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch
    }

    /// Behind the last durable record.
    pub fn durable(&self) -> Position {
        self.shared.durable()
    }

    /// Changes when something more is durable: what a reader at the end waits for.
    pub fn changes(&self) -> watch::Receiver<Position> {
        self.shared.changes.subscribe()
    }

    /// Reads from a place on: one that was given out, or `Position::START` for the oldest record that is left.
    pub fn read(&self, from: Position) -> Result<Cursor, ReadError> {
        Cursor::new(Arc::clone(&self.shared), from)
    }

    /// Reads one segment alone, whatever its state.
    pub fn read_segment(&self, segment: SegmentId) -> Cursor {
        Cursor::of_segment(Arc::clone(&self.shared), segment)
    }

    /// A place such that every record before it that is still there is older than `unix_ms`. Reads an index, and
    /// records only of segments that have none.
    pub fn seek_time(&self, unix_ms: u64) -> Result<Position, ReadError> {
        let segments = self.segments();
        let found = segments.iter().find(|info| {
            info.records > 0 && info.max_unix_ms >= unix_ms
                || matches!(info.state, SegmentState::Active | SegmentState::Foreign)
        });
        let Some(info) = found else { return Ok(self.durable()) };
        if info.state != SegmentState::Sealed {
            return Ok(info.first());
        }
        let place = self.place(info.id);
        let index = place.index(info.file_bytes).map_err(|source| ReadError::Io { segment: info.id, source })?;
        let at = index.iter().rev().find(|entry| entry.max_unix_ms_before < unix_ms);
        let offset =
            at.map(|entry| entry.file_offset).filter(|offset| *offset < info.end && offset.is_multiple_of(4096));
        Ok(offset.map_or_else(|| info.first(), |offset| Position::at(info.id, offset, 0)))
    }

    fn place(&self, segment: SegmentId) -> Place<'_> {
        let identity = Identity { log: self.shared.log, segment };
        Place { storage: &*self.shared.storage, directory: &self.shared.settings.directory, identity }
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let durable = self.shared.durable();
        let growing = *locked(&self.shared.growing);
        let catalog = self.shared.catalog();
        let mut segments: Vec<SegmentInfo> = catalog.segments.values().copied().collect();
        drop(catalog);
        for info in
            segments.iter_mut().filter(|info| info.state == SegmentState::Active && info.id == durable.segment())
        {
            info.end = durable.file_offset();
            // Which may be those of a batch more.
            if let Some(sums) = growing.filter(|growing| growing.id == info.id) {
                (info.records, info.min_unix_ms, info.max_unix_ms) = (sums.records, sums.min_unix_ms, sums.max_unix_ms);
            }
        }
        segments
    }

    pub(crate) fn log(&self) -> LogId {
        self.shared.log
    }

    /// Everything before this was trimmed.
    pub(crate) fn trimmed(&self) -> Position {
        self.shared.catalog().trimmed
    }

    /// Those that take no more records, oldest first.
    pub fn sealed(&self) -> Vec<SegmentInfo> {
        let mut segments = self.segments();
        segments.retain(|info| matches!(info.state, SegmentState::Sealed | SegmentState::Closed));
        segments
    }

    /// Known damage.
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.catalog().damage.clone()
    }

    /// The segment's side file, if there is a whole one that was made from exactly these batches.
    pub fn side_file(&self, segment: &SegmentInfo) -> io::Result<Option<Vec<u8>>> {
        let path = side_path(&self.shared.settings.directory, segment.id);
        let file = self.shared.storage.read(&path, side::SIDE_BYTES_MAX)?;
        Ok(file.and_then(|file| side::unwrap(&self.shared.identity(segment.id), &segment.root, file)))
    }

    /// Replaces the segment's side file; for segments that the observer was not asked for one of.
    pub fn write_side_file(&self, segment: &SegmentInfo, bytes: &[u8]) -> io::Result<()> {
        super::seal::write_side(&self.shared, segment.id, &segment.root, bytes)
    }

    /// The time that ages are counted from: the clock's, except that a step forward is believed only when it has lasted
    /// for hours. An hour in which a clock says 2099 would else be the end of all that is kept.
    pub fn trim_unix_ms(&self) -> u64 {
        self.shared.believed_unix_ms()
    }

    /// When a record of this segment that says `unix_ms` was appended at the latest, by the clock that ages are counted
    /// by. It is later than it says where it came under a clock that was behind.
    pub fn latest_unix_ms(&self, segment: SegmentId, unix_ms: u64) -> u64 {
        locked(&self.shared.trim_clock).latest(segment, unix_ms)
    }

    /// Drops the oldest segments as long as none of their records is as young as `before_unix_ms`, which is an age
    /// before `trim_unix_ms`. The segment that is written is left soon if it has an older one, so that a later trim can
    /// drop it.
    pub fn trim(&self, before_unix_ms: u64) -> io::Result<Trimmed> {
        let latest = self.latest_times(self.shared.believed_unix_ms());
        let trimmed = trim::trim(&self.shared, trim::Keep::File, |info| {
            // One that the writer has left since then, or that has no records.
            let of_era = || if info.records == 0 { 0 } else { self.latest_unix_ms(info.id, info.max_unix_ms) };
            latest.get(&info.id).copied().unwrap_or_else(of_era) < before_unix_ms
        });
        self.leave_old(before_unix_ms);
        if let Err(error) = trim_time::keep(&self.shared) {
            tracing::warn!(%error, "the time that retention goes by could not be written down");
        }
        trimmed
    }

    /// Asks the writer to go on in another segment if its own has records from before this. Nothing is dropped: whoever
    /// keeps something of a segment elsewhere before it drops it has to see it complete first.
    pub fn leave_old(&self, before_unix_ms: u64) {
        self.shared.queue.ask_to_roll(before_unix_ms);
    }

    /// The latest time of each segment, by the clock that is believed now. One that is still to come was written under a
    /// clock that was wrong: then it is that of the next segment, which is younger. A time that was stands at least as it
    /// is: a clock that once fell back must not make what lies before it old.
    fn latest_times(&self, now_unix_ms: u64) -> BTreeMap<SegmentId, u64> {
        let mut behind = None;
        let mut latest = BTreeMap::new();
        for info in self.segments().iter().rev().filter(|info| info.records > 0) {
            let mut at = self.latest_unix_ms(info.id, info.max_unix_ms);
            if at > now_unix_ms.saturating_add(trim_clock::SLACK_MS) {
                let own = Some(info.min_unix_ms).filter(|min| *min <= now_unix_ms);
                at = behind.map_or(at, |behind: u64| behind.max(own.unwrap_or(0)));
            }
            behind = Some(at);
            latest.insert(info.id, at);
        }
        latest
    }

    /// Drops the oldest segments as long as all of their records are before this place.
    pub fn trim_before(&self, position: Position) -> io::Result<Trimmed> {
        trim::trim(&self.shared, trim::Keep::File, |info| info.end_position() <= position)
    }

    pub fn stat(&self) -> Stat {
        let shared = &self.shared;
        let (load, full, unavailable) = shared.queue.look();
        let last_fault = shared.queue.last_fault();
        let now = shared.clock.monotonic();
        self.ask_for_space();
        let space = locked(&shared.space).space;
        let append_bytes_per_second = locked(&shared.rate).per_second(now);
        let counters = &shared.counters;
        let segments = self.segments();
        let times = || segments.iter().filter(|info| info.records > 0);
        let catalog = shared.catalog();
        Stat {
            epoch: shared.epoch,
            sync: match shared.mode.get() {
                Some(WriteMode::Direct) => SyncMode::Direct,
                Some(WriteMode::Buffered) => SyncMode::Fdatasync,
                None => shared.settings.sync,
            },
            durable: shared.durable(),
            segments: catalog.segments.len(),
            recyclable: catalog.recyclable.len(),
            bytes_used: catalog.bytes_used() + catalog.recyclable.len() as u64 * shared.settings.segment_bytes,
            bytes_free: space.free,
            bytes_total: space.total,
            append_bytes_per_second,
            records: counters.records.load(Ordering::Relaxed),
            record_bytes: counters.record_bytes.load(Ordering::Relaxed),
            batches: counters.batches.load(Ordering::Relaxed),
            queued_records: load.records,
            queued_bytes: load.bytes,
            full,
            unavailable,
            last_fault,
            failures: counters.failures.load(Ordering::Relaxed),
            heals: counters.heals.load(Ordering::Relaxed),
            damaged: catalog.damage.iter().filter(|damage| damage.kind.loses_records()).count(),
            oldest_unix_ms: times().map(|info| info.min_unix_ms).min(),
            newest_unix_ms: times().map(|info| info.max_unix_ms).max(),
        }
    }

    /// Takes nothing more, makes durable what waits, and seals, and gives the epoch up. Reading goes on.
    pub fn close(&self) {
        self.shared.queue.close();
        let threads = std::mem::take(&mut *locked(&self.threads));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the log died");
            }
        }
        drop(locked(&self.lock).take());
    }

    /// Reads everything that a directory has and checks all of it: checksums, chain, footers, sequences. Changes
    /// nothing; a process that appends at the same time is no harm.
    pub fn verify(directory: &Path) -> Result<Report, OpenError> {
        verify::verify(&RealStorage, directory)
    }

    /// The same on other storage.
    pub fn verify_in(storage: &dyn Storage, directory: &Path) -> Result<Report, OpenError> {
        verify::verify(storage, directory)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
    }
}
