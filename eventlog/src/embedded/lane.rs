//! One lane: a journal, what is known of its segments, and the two ways of reading it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::EventId;

use super::lane_index::{Answer, Growing, KIND_EVENT, LaneIndex};
use super::layout::LanePlace;
use super::place::{place_of, position_at, position_of};
use crate::codec::{DecodeError, decode_key};
use crate::error::ReadError;
use crate::position::{Lane as LaneName, Place, Position};
use crate::scope::Placed;
use crate::segment::{self, Cursor, Journal, Near, Record, RecordView, SegmentId, SegmentInfo, SegmentState, View};

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) place: LanePlace,
    /// How long its events are kept; `None` for a class that is not in the settings.
    pub(crate) age: Option<Duration>,
    pub(crate) index: Arc<LaneIndex>,
    pub(crate) segments: Segments,
    /// Something is missing in front of the oldest segment: whoever begins there reads on, and meets it.
    pub(crate) front_is_missing: AtomicBool,
    /// Held while segments are taken up: whoever asks meanwhile waits, and does not go by half of them.
    pub(crate) taking_up: Mutex<()>,
    pub(crate) near: Near,
}

/// A journal that is written, or a look at one that is not ours.
#[derive(Debug)]
pub(crate) enum Segments {
    Journal(Journal),
    View(View),
}

impl Segments {
    pub(crate) fn read(&self, from: segment::Position) -> Result<Cursor, segment::ReadError> {
        match self {
            Self::Journal(journal) => journal.read(from),
            Self::View(view) => view.read(from),
        }
    }

    pub(crate) fn read_segment(&self, id: SegmentId) -> Cursor {
        match self {
            Self::Journal(journal) => journal.read_segment(id),
            Self::View(view) => view.read_segment(id),
        }
    }

    pub(crate) fn durable(&self) -> segment::Position {
        match self {
            Self::Journal(journal) => journal.durable(),
            Self::View(view) => view.durable(),
        }
    }

    pub(crate) fn segments(&self) -> Vec<SegmentInfo> {
        match self {
            Self::Journal(journal) => journal.segments(),
            Self::View(view) => view.segments(),
        }
    }

    pub(crate) fn damage(&self) -> Vec<segment::Damage> {
        match self {
            Self::Journal(journal) => journal.damage(),
            Self::View(view) => view.damage(),
        }
    }
}

impl Lane {
    pub(crate) fn name(&self) -> &LaneName {
        &self.place.lane
    }

    pub(crate) fn position(&self, at: segment::Position) -> Position {
        Position { lane: self.place.lane.clone(), place: place_of(at) }
    }

    pub(crate) fn durable(&self) -> Place {
        place_of(self.segments.durable())
    }

    /// Takes up segments that are new to the index: at open, and when another process's have become readable to
    /// their end. Segments with an intact index cost a small read each, others are read whole.
    pub(crate) fn take_up_segments(&self) {
        let lossy: Vec<SegmentId> =
            self.segments.damage().iter().filter(|damage| damage.kind.loses_records()).map(|d| d.segment).collect();
        let segments = self.segments.segments();
        let oldest = segments.first().map(|info| info.id);
        let in_front = |at: &SegmentId| oldest.is_none_or(|oldest| *at < oldest);
        self.front_is_missing.store(lossy.iter().any(in_front), Ordering::Relaxed);
        for (nth, info) in segments.iter().enumerate() {
            match info.state {
                SegmentState::Active => continue,
                SegmentState::Foreign => {
                    self.index.take_up_unfinished(info);
                    continue;
                }
                SegmentState::Closed | SegmentState::Sealed => {}
            }
            if self.index.is_finished(info.id) {
                continue;
            }
            // A segment that is missing is met at the end of the one before it.
            let next = segments.get(nth + 1).map(|next| next.id);
            let lossy = lossy.iter().any(|at| *at == info.id || *at > info.id && next.is_none_or(|next| *at < next));
            if lossy {
                let mut rebuilt = self.read_index(info);
                rebuilt.whole = false;
                self.index.take_up_rebuilt(info, rebuilt);
                self.index.settle_in_memory();
            } else if !self.index.take_up(info) {
                self.index.take_up_rebuilt(info, self.read_index(info));
                self.write_side(info);
            }
        }
        self.forget_trimmed();
    }

    /// Lets go of segments that were trimmed while their index was read: the trim came too early to tell the index. The
    /// place where another process's next segment would have been goes with them, when it ended without one.
    pub(crate) fn forget_trimmed(&self) {
        // In this order: what is known is in the catalog already, if it is anywhere.
        let known = self.index.known_segments();
        let there: BTreeSet<SegmentId> = self.segments.segments().iter().map(|info| info.id).collect();
        for gone in known.into_iter().filter(|segment| !there.contains(segment)) {
            self.index.forget(gone);
        }
    }

    /// Is there a segment from the one on and before the other that the index does not know (yet)?
    pub(crate) fn has_unknown_between(&self, from: SegmentId, before: SegmentId) -> bool {
        if from.epoch == before.epoch && before.sequence <= from.sequence.saturating_add(1) && self.index.knows(from) {
            return false;
        }
        let segments = self.segments.segments();
        segments.iter().any(|info| from <= info.id && info.id < before && !self.index.knows(info.id))
    }

    /// Can something be added in front of what this process writes, at this place or further on? What a view shows
    /// is what there was when it was opened, so nothing can.
    pub(crate) fn awaits_others(&self, from: segment::Position) -> bool {
        match &self.segments {
            Segments::Journal(_) => self.index.has_unfinished_from(from.segment()),
            Segments::View(_) => false,
        }
    }

    /// Takes up what another process left, if one has ended since.
    pub(crate) fn refresh(&self) {
        if self.index.unsettled().is_none() {
            return;
        }
        let _one_at_a_time = self.taking_up.lock().unwrap_or_else(PoisonError::into_inner);
        // What ends from here on is for the next time.
        let Some(settled) = self.index.unsettled() else { return };
        self.take_up_segments();
        self.index.set_taken_up(settled);
    }

    /// Builds a known segment's index again from its records, and writes it beside the segment if this process may.
    pub(crate) fn rebuild(&self, info: &SegmentInfo) {
        self.index.replace(info, self.read_index(info));
        self.write_side(info);
    }

    fn write_side(&self, info: &SegmentInfo) {
        if let (Segments::Journal(journal), Some(bytes)) = (&self.segments, self.index.side_bytes(info.id))
            && let Err(fault) = journal.write_side_file(info, &bytes)
        {
            tracing::warn!(segment = %info.id, %fault, "the index of a segment was not written and stays in memory");
        }
        // Whether it was written or not: a few indexes stay in memory, and not those of a whole log.
        self.index.settle_in_memory();
    }

    fn read_index(&self, info: &SegmentInfo) -> Growing {
        let mut index = Growing::new();
        let mut cursor = self.segments.read_segment(info.id);
        loop {
            match cursor.next_record() {
                Ok(Some(record)) => {
                    index.add(&view(&record));
                }
                Ok(None) => return index,
                Err(fault) => {
                    tracing::error!(lane = %self.name(), %fault, "a segment cannot be read whole");
                    index.whole = false;
                    if !cursor.skip_damage() {
                        return index;
                    }
                }
            }
        }
    }

    /// A cursor at a place that somebody was given.
    pub(crate) fn read(&self, from: segment::Position) -> Result<Cursor, ReadError> {
        self.segments.read(from).map_err(|fault| self.fault(fault, from))
    }

    /// The record of an id in one segment, by the index or, where there is none, by reading.
    pub(crate) fn find_in(&self, segment: SegmentId, id: EventId) -> Result<Option<Placed>, ReadError> {
        let mut answer = self.index.find(segment, id);
        if let (Answer::Broken(fault), Some(info)) = (&answer, self.index.info(segment)) {
            tracing::warn!(lane = %self.name(), %segment, %fault, "the index of a segment is built again");
            self.rebuild(&info);
            answer = self.index.find(segment, id);
        }
        let record = match answer {
            Answer::Found(None) => None,
            Answer::Found(Some(spot)) => {
                let position = position_at(segment, spot);
                let record = self.near.record(self.read(position)?).map_err(|fault| self.fault(fault, position))?;
                let fault = || ReadError::IndexMismatch { position: self.position(position) };
                Some(record.filter(|record| record.position == position).ok_or_else(fault)?)
            }
            Answer::NotIndexed | Answer::Broken(_) => self.search_segment(segment, |record| {
                record.kind == KIND_EVENT && decode_key(&record.payload).is_ok_and(|key| key.id == id)
            })?,
        };
        let Some(record) = record else { return Ok(None) };
        let placed = self.placed(&record)?;
        if placed.view()?.id == id {
            Ok(Some(placed))
        } else {
            Err(ReadError::IndexMismatch { position: placed.position })
        }
    }

    /// Every record of one segment that looks like what is searched, damage and all.
    fn search_segment(&self, id: SegmentId, wanted: impl Fn(&Record) -> bool) -> Result<Option<Record>, ReadError> {
        let mut cursor = self.segments.read_segment(id);
        let mut damage = None;
        loop {
            match cursor.next_record() {
                Ok(Some(record)) if wanted(&record) => return Ok(Some(record)),
                Ok(Some(_)) => {}
                // What could not be read may have been it: only then is the damage an answer.
                Ok(None) => return damage.map_or(Ok(None), Err),
                Err(fault) => {
                    damage = Some(self.fault(fault, cursor.position()));
                    if !cursor.skip_damage() {
                        return damage.map_or(Ok(None), Err);
                    }
                }
            }
        }
    }

    /// A record as an event's bytes. They are copied: a record shares memory with a mebibyte of its neighbours, and
    /// whoever keeps an event must not keep those.
    pub(crate) fn placed(&self, record: &Record) -> Result<Placed, ReadError> {
        let position = self.position(record.position);
        if record.kind != KIND_EVENT {
            return Err(ReadError::NotAnEvent { position, fault: DecodeError::Invalid { field: "kind" } });
        }
        Ok(Placed {
            bytes: Bytes::copy_from_slice(&record.payload),
            position,
            appended_unix_ms: record.time_unix_ms,
            sequence: record.sequence,
        })
    }

    /// The journal's error in the words of the log.
    pub(crate) fn fault(&self, fault: segment::ReadError, at: segment::Position) -> ReadError {
        let lane = self.place.lane.clone();
        match fault {
            segment::ReadError::Damaged(damage) => ReadError::Damaged {
                lane,
                segment: damage.segment.to_string(),
                offset: damage.offset,
                reason: damage.kind.label().to_owned(),
            },
            segment::ReadError::Trimmed { oldest } => {
                ReadError::Trimmed { position: self.position(at), earliest: self.position(oldest) }
            }
            segment::ReadError::NoSuchPosition(place) => ReadError::NoSuchPlace { position: self.position(place) },
            segment::ReadError::Io { segment, source } => {
                ReadError::Unreadable { lane, reason: format!("segment {segment}: {source}") }
            }
        }
    }

    /// Is this a place that this lane can have given out?
    pub(crate) fn check_place(&self, place: Place) -> Result<(), ReadError> {
        self.read(position_of(place)).map(drop)
    }
}

pub(crate) fn view(record: &Record) -> RecordView<'_> {
    RecordView {
        position: record.position,
        stream: record.stream,
        sequence: record.sequence,
        time_unix_ms: record.time_unix_ms,
        kind: record.kind,
        payload: &record.payload,
    }
}
