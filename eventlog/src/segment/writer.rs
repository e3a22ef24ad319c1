//! The writer's thread: the only one that appends.
//!
//! There is no timer: while one batch is being made durable the next one gathers in the queue, so that a lone record
//! waits for nobody and a thousand share one durable write. A record is acknowledged after its batch is durable, and
//! never otherwise. After any error of the disk nothing is written to that segment again, ever: what a failed write
//! or sync left behind cannot be known. Recovery tells what is there by the chain of hashes: the first batch of the
//! fresh segment names its predecessor, and whatever lies behind that one is disowned.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::aligned::AlignedBuf;
use super::catalog::{SegmentInfo, SegmentState};
use super::entry::{AppendError, Appended, CheckContext, Waiter};
use super::format::{
    BATCH_HEADER_BYTES, BatchHeader, Encoder, HEADER_BLOCK, Hash, Identity, IndexEntry, RECORD_HEADER_BYTES,
    RecordFields, Records, note_index, padded, tail_reserve,
};
use super::fresh::fresh;
use super::helper::Helper;
use super::make::{Made, MakeError, write_durably};
use super::names::{free_name, segment_path};
use super::options::Backoff;
use super::position::{Position, SegmentId};
use super::queue::{Load, Pending};
use super::seal::Sealing;
use super::shared::{Shared, locked};
use super::trim_time;

/// How old the last look at the free space may get while records are appended.
const SPACE_AGE: Duration = Duration::from_secs(1);

/// Enough to share a write's price among; beyond it everybody only waits longer.
const GATHER_RECORDS: usize = 256;
/// A bound for a machine whose processors are never free: some ten turns of whoever else runs.
const GATHER_ROUNDS: usize = 4;

/// The segment that is written.
#[derive(Debug)]
struct Current {
    made: Made,
    identity: Identity,
    /// Where the next batch goes, and where no batch may reach.
    offset: u64,
    limit: u64,
    info: SegmentInfo,
    batches: u64,
    index: Vec<IndexEntry>,
}

/// What one batch came to, until it is durable.
#[derive(Debug, Default)]
struct Batch {
    waiters: Vec<(Waiter, Appended)>,
    /// Streams as they were before, newest last.
    undo: Vec<(u64, u64)>,
    load: Load,
    min_unix_ms: u64,
    max_unix_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    helper: Arc<Helper>,
    heal: Backoff,
    current: Current,
    /// Hash of the last acknowledged batch.
    chain: Hash,
    /// Last sequence of each stream under this epoch. Bounded by the streams that were written to: 16 bytes each.
    sequences: HashMap<u64, u64>,
    buffer: AlignedBuf,
    taken: VecDeque<Pending>,
    batch: Batch,
    /// When it was looked last whether the segment is where it is looked for.
    looked: Duration,
}

/// How long acknowledgements may go on into a file that somebody has taken away. Two system calls each time.
const PLACE_AGE: Duration = Duration::from_secs(1);

/// Why a batch was not written.
enum Stop {
    /// The next record does not fit the segment.
    SegmentFull,
    Disk(io::Error),
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        helper: Arc<Helper>,
        heal: Backoff,
        batch_bytes: u32,
        first: Made,
        taken: VecDeque<Pending>,
    ) -> Self {
        let identity = shared.identity(first.id);
        let buffer = AlignedBuf::zeroed(usize::try_from(padded(u64::from(batch_bytes))).unwrap_or(usize::MAX));
        let current = Current::new(&shared, first, identity.seed());
        let looked = shared.clock.monotonic();
        Self {
            shared,
            helper,
            heal,
            current,
            chain: identity.seed(),
            sequences: HashMap::new(),
            buffer,
            taken,
            batch: Batch::default(),
            looked,
        }
    }

    pub(crate) fn run(mut self) {
        self.helper.prepare(self.next_id());
        let mut done = Load::default();
        while self.shared.queue.take(done, &mut self.taken) {
            done = Load::default();
            self.roll_if_old();
            self.gather();
            let stop = match self.write_batch() {
                Ok(load) => {
                    done = load;
                    continue;
                }
                Err(stop) => stop,
            };
            let healthy = match stop {
                Stop::SegmentFull => self.roll(),
                Stop::Disk(error) => self.heal(&error),
            };
            if !healthy {
                // Closed while the disk was failing: the segment stays as it is, for recovery to judge.
                self.helper.stop();
                return;
            }
        }
        self.finish();
    }

    /// Lets those who are about to append do so, for as long as more of them do. Where processors are free this
    /// returns at once and a lone record waits for nobody; where they are not, whoever is served first makes the
    /// next write carry more, and on a fast disk the price of a write is in its system call and its wake-ups.
    fn gather(&mut self) {
        for _ in 0..GATHER_ROUNDS {
            let before = self.taken.len();
            std::thread::yield_now();
            self.shared.queue.take_more(&mut self.taken);
            if self.taken.len() == before || self.taken.len() >= GATHER_RECORDS {
                return;
            }
        }
    }

    fn next_id(&self) -> SegmentId {
        let id = self.current.made.id;
        SegmentId { epoch: id.epoch, sequence: id.sequence + 1 }
    }

    /// Takes what fits from the front, makes it durable, and tells everybody.
    fn write_batch(&mut self) -> Result<Load, Stop> {
        let Some(front) = self.taken.front() else { return Ok(Load::default()) };
        let room = self.current.limit - self.current.offset;
        let least = padded((BATCH_HEADER_BYTES + RECORD_HEADER_BYTES + front.entry.payload.len()) as u64);
        if least > room {
            return Err(Stop::SegmentFull);
        }
        // A record that is larger than a batch should be gets one of its own.
        let mut large = (least > self.buffer.len() as u64).then(|| AlignedBuf::zeroed(size(least)));
        let mut buffer = std::mem::replace(&mut self.buffer, AlignedBuf::zeroed(0));
        let bytes = large.as_mut().unwrap_or(&mut buffer).as_mut_slice();
        let cap = bytes.len().min(size(room));
        let written = self.encode(&mut bytes[..cap]).map_or(Ok(()), |header| {
            self.note_time();
            let whole = &bytes[..size(header.padded())];
            self.commit(&header, whole)
        });
        self.buffer = buffer;
        written?;
        Ok(std::mem::take(&mut self.batch.load))
    }

    /// Fills the buffer; `None` if every record was rejected by its check.
    fn encode(&mut self, bytes: &mut [u8]) -> Option<BatchHeader> {
        let mut encoder = Encoder::new(self.current.identity, self.current.offset, bytes);
        let epoch = self.shared.epoch;
        self.batch.min_unix_ms = u64::MAX;
        self.batch.max_unix_ms = 0;
        while let Some(front) = self.taken.front() {
            if !encoder.fits(front.entry.payload.len()) {
                break;
            }
            let Some(Pending { mut entry, waiter }) = self.taken.pop_front() else { break };
            let last = if entry.stream == 0 { 0 } else { self.sequences.get(&entry.stream).copied().unwrap_or(0) };
            self.batch.load.add(entry.payload.len());
            if let Some(check) = entry.check.take()
                && let Err(rejected) = check(&CheckContext { last_sequence: last, epoch })
            {
                answer(waiter, Err(AppendError::Rejected(rejected)));
                continue;
            }
            let sequence = if entry.stream == 0 { 0 } else { last + 1 };
            if entry.stream != 0 {
                self.sequences.insert(entry.stream, sequence);
                self.batch.undo.push((entry.stream, last));
            }
            let fields =
                RecordFields { stream: entry.stream, sequence, time_unix_ms: entry.time_unix_ms, kind: entry.kind };
            let parts = [&entry.payload.head[..], &entry.payload.middle[..], &entry.payload.tail[..]];
            let position = encoder.push(&fields, parts);
            self.batch.min_unix_ms = self.batch.min_unix_ms.min(entry.time_unix_ms);
            self.batch.max_unix_ms = self.batch.max_unix_ms.max(entry.time_unix_ms);
            self.batch.waiters.push((waiter, Appended { position, sequence, epoch }));
        }
        (encoder.records() > 0).then(|| encoder.finish(self.chain))
    }

    /// What came under a clock that has fallen is as young as it is: that is on the disk before it, or a crash would leave
    /// records that look old. Where it cannot be written, the next trim tries again.
    fn note_time(&self) {
        let shared = &self.shared;
        let min_unix_ms = self.batch.min_unix_ms;
        let is_news = locked(&shared.trim_clock).stamped(&*shared.clock, min_unix_ms, self.current.made.id);
        if is_news && let Err(error) = trim_time::keep(shared) {
            tracing::warn!(%error, "the time that retention goes by could not be written down");
        }
    }

    /// A file that was removed, or whose directory was moved away, takes writes as ever, and nobody will find them.
    fn look_for_place(&mut self) -> Result<(), Stop> {
        let now = self.shared.clock.monotonic();
        if now.saturating_sub(self.looked) < PLACE_AGE {
            return Ok(());
        }
        self.looked = now;
        let path = segment_path(&self.shared.settings.directory, self.current.made.id);
        // Whoever may not look learns nothing, which is no reason to stop.
        if self.current.made.file.is_at(&path).unwrap_or(true) {
            return Ok(());
        }
        Err(Stop::Disk(io::Error::new(
            io::ErrorKind::NotFound,
            "the segment that is written is not in its place any more",
        )))
    }

    fn commit(&mut self, header: &BatchHeader, whole: &[u8]) -> Result<(), Stop> {
        self.look_for_place()?;
        let offset = self.current.offset;
        let mode = self.shared.mode();
        write_durably(&*self.current.made.file, mode, offset, whole).map_err(Stop::Disk)?;

        // Durable. From here on nothing can fail.
        let bytes = &whole[..header.bytes as usize];
        self.current.committed(header, &self.batch);
        *locked(&self.shared.growing) = Some(self.current.info);
        let durable = Position::at(self.current.made.id, self.current.offset, 0);
        // The observer first: whoever sees the new end may ask an index what lies before it.
        if let Some(observer) = &self.shared.observer {
            let records = Records::new(&self.current.identity, offset, header, bytes);
            observer.committed(self.current.made.id, &mut records.map_while(Result::ok).map(|located| located.view));
        }
        self.shared.publish(durable);
        self.batch.undo.clear();
        for (waiter, appended) in self.batch.waiters.drain(..) {
            answer(waiter, Ok(appended));
        }
        self.shared.changes.send_replace(durable);
        // After the answers: nobody waits for the hash but the next batch.
        self.chain = *blake3::hash(bytes).as_bytes();
        self.current.info.root = self.chain;
        self.count(header, whole.len());
        Ok(())
    }

    fn count(&self, header: &BatchHeader, bytes: usize) {
        let counters = &self.shared.counters;
        counters.batches.fetch_add(1, Ordering::Relaxed);
        counters.records.fetch_add(u64::from(header.records), Ordering::Relaxed);
        counters.record_bytes.fetch_add(u64::from(header.bytes), Ordering::Relaxed);
        let now = self.shared.clock.monotonic();
        locked(&self.shared.rate).add(now, bytes as u64);
        if now.saturating_sub(locked(&self.shared.space).looked) >= SPACE_AGE {
            self.helper.look_at_space();
        }
    }

    /// Goes on in the prepared segment. False only if the queue was closed meanwhile.
    fn roll(&mut self) -> bool {
        let next = self.next_id();
        match self.helper.prepared(next) {
            Ok(made) => {
                self.go_on_in(made);
                true
            }
            Err(MakeError::Full) => {
                // The current segment stays; what waits is told, and so is who comes until there is room.
                self.shared.queue.set_full(true);
                let taken = std::mem::take(&mut self.taken);
                self.shared.queue.refuse(taken, &AppendError::Full);
                true
            }
            Err(MakeError::Io(error)) => self.heal(&error),
        }
    }

    /// A segment is dropped whole, when its last record is over age: one that fills in a year would keep records for a
    /// year. So it is left when its first one is over age. For that nobody waits: without a segment at hand it stays
    /// until the next trim.
    fn roll_if_old(&mut self) {
        let Some(before_unix_ms) = self.shared.queue.asked_to_roll() else { return };
        let info = &self.current.info;
        if info.records > 0
            && info.min_unix_ms < before_unix_ms
            && let Some(made) = self.helper.ready(self.next_id())
        {
            self.go_on_in(made);
        }
    }

    fn go_on_in(&mut self, made: Made) {
        let info = self.close_current();
        let index = std::mem::take(&mut self.current.index);
        let side = self.shared.observer.as_ref().and_then(|observer| observer.sealed(&info));
        self.helper.seal(Sealing { info, batches: self.current.batches, index, last: false, side });
        self.open(made);
    }

    /// Puts the current segment's final state into the catalog.
    fn close_current(&self) -> SegmentInfo {
        let mut info = self.current.info;
        info.state = SegmentState::Closed;
        info.end = self.current.offset;
        self.shared.catalog().segments.insert(info.id, info);
        info
    }

    fn open(&mut self, made: Made) {
        self.current = Current::new(&self.shared, made, self.chain);
        self.helper.prepare(self.next_id());
    }

    /// Fails everything, then tries until a fresh segment has proved the disk. False if the queue was closed before.
    fn heal(&mut self, error: &io::Error) -> bool {
        let reason: Arc<str> = error.to_string().into();
        tracing::error!(segment = %self.current.made.id, %error, "the log's disk failed: appends are refused");
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        let waiting = self.shared.queue.make_unavailable(&reason);
        let unavailable = AppendError::Unavailable { reason: Arc::clone(&reason) };
        for (stream, before) in self.batch.undo.drain(..).rev() {
            self.sequences.insert(stream, before);
        }
        for (waiter, _) in self.batch.waiters.drain(..) {
            answer(waiter, Err(unavailable.clone()));
        }
        self.shared.queue.release(std::mem::take(&mut self.batch.load));
        let taken = std::mem::take(&mut self.taken);
        self.shared.queue.refuse(taken, &unavailable);
        self.shared.queue.refuse(waiting, &unavailable);

        let info = self.close_current();
        if let Some(observer) = &self.shared.observer {
            // Nothing is written beside a segment that the disk has failed on; the next open makes it up.
            drop(observer.sealed(&info));
        }
        // A segment that was prepared before the failure proves nothing: its number is taken by a fresh file.
        self.helper.settle();
        let Some(made) = fresh(&self.shared, self.heal, self.next_id()) else { return false };
        self.open(made);
        self.shared.queue.make_available();
        true
    }

    /// A clean end: the segment is sealed as the epoch's last.
    fn finish(mut self) {
        // The next segment goes first, so that no crash leaves it without the one in front of it. Also if its
        // preparation failed: that may have been after it got its name.
        self.helper.settle();
        let next_is_gone = self.give_up(self.next_id());
        if self.current.batches == 0 {
            if next_is_gone {
                self.shared.catalog().segments.remove(&self.current.made.id);
                self.give_up(self.current.made.id);
            }
        } else {
            let info = self.close_current();
            let index = std::mem::take(&mut self.current.index);
            let side = self.shared.observer.as_ref().and_then(|observer| observer.sealed(&info));
            self.helper.seal(Sealing { info, batches: self.current.batches, index, last: true, side });
        }
        self.helper.stop();
    }

    /// A segment that was never written to waits for reuse. If that fails, recovery finds it empty. True if there is
    /// none of that name any more.
    fn give_up(&self, id: SegmentId) -> bool {
        let directory = &self.shared.settings.directory;
        let name = free_name(id);
        match self.shared.storage.rename(&segment_path(directory, id), &directory.join(&name)) {
            Ok(()) => {
                self.shared.catalog().recyclable.push(name);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

impl Current {
    /// Begins a segment: readers see it from here on, still empty.
    fn new(shared: &Shared, made: Made, root: Hash) -> Self {
        let bytes = shared.settings.segment_bytes;
        let info = SegmentInfo::empty(made.id, SegmentState::Active, bytes, root);
        shared.catalog().segments.insert(made.id, info);
        Self {
            identity: shared.identity(made.id),
            made,
            offset: HEADER_BLOCK,
            limit: bytes - tail_reserve(bytes),
            info,
            batches: 0,
            index: Vec::new(),
        }
    }

    fn committed(&mut self, header: &BatchHeader, batch: &Batch) {
        let info = &mut self.info;
        note_index(&mut self.index, self.offset, info.records, info.max_unix_ms);
        info.min_unix_ms = if info.records == 0 { batch.min_unix_ms } else { info.min_unix_ms.min(batch.min_unix_ms) };
        info.max_unix_ms = info.max_unix_ms.max(batch.max_unix_ms);
        info.records += u64::from(header.records);
        self.batches += 1;
        self.offset += header.padded();
    }
}

/// A waiter that went away withdraws nothing and is no error.
fn answer(waiter: Waiter, answer: Result<Appended, AppendError>) {
    waiter.send(answer).ok();
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
