//! Walking one lane, with the index where there is one and a selection to make, else record by record.
//!
//! The place only ever moves over records that were looked at, or that an index of the whole segment says are not
//! wanted. Whatever an index does not cover (a segment with damage, one that another process still writes) is read,
//! so that damage comes out and is never passed over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lane::Lane;
use super::lane_index::Answer;
use super::place::{place_of, position_at, position_of, spot_of};
use crate::codec::decode_event;
use crate::error::ReadError;
use crate::index::{Wanted, endpoint_key};
use crate::log::{Filter, Scope};
use crate::position::Place;
use crate::scope::{Placed, selects};
use crate::segment::{self, Cursor, Record, SegmentId, SegmentState};

/// A wanted record that lies at most this many blocks of 4 KiB behind the last one is reached by reading on.
const NEAR_BLOCKS: u32 = 16;

/// What a reader is after.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) scope: Scope,
    pub(super) filter: Filter,
    endpoint: Option<u64>,
}

impl Query {
    pub(super) fn new(scope: Scope, filter: Filter) -> Self {
        let endpoint = filter.endpoint.as_ref().map(|endpoint| endpoint_key(endpoint.as_str()));
        Self { scope, filter, endpoint }
    }

    /// What an index is asked, `None` if everything is wanted.
    fn wanted(&self) -> Option<Wanted<'_>> {
        let asked = self.asked();
        let everything = asked.endpoint.is_none()
            && asked.tenant.is_none()
            && asked.from_unix_ms.is_none()
            && asked.until_unix_ms.is_none();
        (!everything).then_some(asked)
    }

    /// The same for the newest: an index that does not know counts for nothing.
    pub(super) fn certain(&self) -> Wanted<'_> {
        Wanted { only_certain: true, ..self.asked() }
    }

    /// A tenant's endpoint is asked for by its key alone, so that a record of it that is somebody else's is met and halts
    /// the read.
    fn asked(&self) -> Wanted<'_> {
        let tenant = match &self.scope {
            Scope::Tenant(tenant) if self.endpoint.is_none() => Some(tenant.as_str()),
            Scope::Tenant(_) | Scope::Operator => None,
        };
        let Filter { from_unix_ms, until_unix_ms, .. } = self.filter;
        Wanted { endpoint: self.endpoint, tenant, from_unix_ms, until_unix_ms, only_certain: false }
    }

    /// Is this record to be opened? What an index says is a tenant's is, so that the assertion sees whether that is
    /// true; of what was found by reading on, other tenants' records are passed over.
    fn selects(&self, record: &Record, found_by: FoundBy) -> bool {
        // Not an event: it is met, and opening it says so.
        let Ok(view) = decode_event(&record.payload) else { return true };
        let tenant = match (found_by, &self.scope) {
            (FoundBy::Index, Scope::Tenant(claimed)) => claimed.as_str(),
            (FoundBy::Index, Scope::Operator) | (FoundBy::Reading, _) => view.tenant,
        };
        selects(&self.scope, &self.filter, tenant, &view)
    }
}

#[derive(Debug, Clone, Copy)]
enum FoundBy {
    Index,
    Reading,
}

#[derive(Debug)]
pub(super) struct LaneReader {
    pub(super) lane: Arc<Lane>,
    /// What is read next. Does not pass the head.
    at: segment::Position,
    head: Option<Head>,
    cursor: Option<Cursor>,
    indexed: Option<Indexed>,
    /// The segment that is read record by record.
    streaming: Option<SegmentId>,
}

/// A record that is next in this lane.
#[derive(Debug)]
pub(super) struct Head {
    placed: Placed,
    behind: segment::Position,
}

/// What an index said about one segment.
#[derive(Debug)]
struct Indexed {
    segment: SegmentId,
    spots: VecDeque<u32>,
    /// The place behind everything that the answer covers.
    until: segment::Position,
}

impl LaneReader {
    pub(super) fn new(lane: Arc<Lane>, place: Option<Place>) -> Self {
        let at = place.map_or(segment::Position::START, position_of);
        Self { lane, at, head: None, cursor: None, indexed: None, streaming: None }
    }

    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Takes the head; the place does not move before `passed` is told.
    pub(super) fn take(&mut self) -> Option<Head> {
        self.head.take()
    }

    /// The record is dealt with.
    pub(super) fn passed(&mut self, behind: segment::Position) {
        self.at = behind;
    }

    /// The place to come back to; `None` at the beginning of the lane.
    pub(super) fn place(&self) -> Option<Place> {
        (self.at != segment::Position::START).then(|| place_of(self.at))
    }

    /// Goes on behind the damage that the last error named.
    pub(super) fn skip_damage(&mut self) -> bool {
        let skipped = self.cursor.as_mut().is_some_and(Cursor::skip_damage);
        if let (true, Some(cursor)) = (skipped, &self.cursor) {
            self.at = cursor.position();
            self.indexed = None;
            self.streaming = Some(self.at.segment());
        }
        skipped
    }

    /// What is next has been trimmed: goes on with the oldest record that is left, or with what is missing in front of it.
    pub(super) fn begin_again(&mut self) {
        self.at = segment::Position::START;
        self.head = None;
        self.cursor = None;
        self.indexed = None;
        self.streaming = None;
        // Where another process trims, nobody tells the index.
        self.lane.forget_trimmed();
    }

    /// May something be added in front of what this process writes, where this reader has not been?
    pub(super) fn awaits_others(&self) -> bool {
        self.lane.refresh();
        self.lane.awaits_others(self.at)
    }

    /// The record is no event that this version can read: goes on right behind it.
    pub(super) fn skip_record(&mut self, record: Place) {
        self.at = position_of(record).after();
    }

    /// Finds the next wanted record; false at the durable end.
    pub(super) fn fill(&mut self, query: &Query) -> Result<bool, ReadError> {
        while self.head.is_none() {
            let Some((record, found_by)) = self.candidate(query)? else { return Ok(false) };
            if query.selects(&record, found_by) {
                let placed = self.lane.placed(&record)?;
                self.head = Some(Head { placed, behind: record.position.after() });
            } else {
                self.at = record.position.after();
            }
        }
        Ok(true)
    }

    /// The next record that may be wanted; `None` at the durable end.
    fn candidate(&mut self, query: &Query) -> Result<Option<(Record, FoundBy)>, ReadError> {
        loop {
            if let Some(indexed) = &mut self.indexed {
                let Some(spot) = indexed.spots.front().copied() else {
                    self.at = self.at.max(indexed.until);
                    self.indexed = None;
                    continue;
                };
                let position = position_at(indexed.segment, spot);
                let record = self.record_at(position)?;
                if let Some(indexed) = &mut self.indexed {
                    indexed.spots.pop_front();
                }
                return Ok(Some((record, FoundBy::Index)));
            }
            let plan = query.wanted().map_or(Ok(Plan::Stream), |wanted| self.plan(&wanted))?;
            match plan {
                Plan::End => return Ok(None),
                Plan::Indexed => {}
                Plan::Stream => return Ok(self.stream()?.map(|record| (record, FoundBy::Reading))),
            }
        }
    }

    /// Decides how to go on from the place.
    fn plan(&mut self, wanted: &Wanted<'_>) -> Result<Plan, ReadError> {
        let begins_at_a_hole =
            self.at == segment::Position::START && self.lane.front_is_missing.load(Ordering::Relaxed);
        if begins_at_a_hole || self.streaming == Some(self.at.segment()) {
            return Ok(Plan::Stream);
        }
        self.lane.refresh();
        // The end first: what is committed meanwhile is for the next time.
        let durable = self.lane.segments.durable();
        if self.at >= durable {
            return Ok(Plan::End);
        }
        let index = &self.lane.index;
        let mut segment = index.at_or_behind(self.at.segment());
        if let Some(info) = segment.and_then(|segment| index.info(segment)).filter(|i| self.at >= i.end_position()) {
            if info.state == SegmentState::Foreign || index.is_lossy(info.id) {
                // An end that is one only for now is waited at, and what is missing behind a segment is met, by
                // reading on.
                self.streaming = Some(self.at.segment());
                return Ok(Plan::Stream);
            }
            segment = index.behind(info.id);
        }
        if segment != Some(self.at.segment())
            && self.lane.has_unknown_between(self.at.segment(), segment.unwrap_or_else(|| durable.segment()))
        {
            // The journal has more than was taken up: never pass over what no index has answered for.
            self.streaming = Some(self.at.segment());
            return Ok(Plan::Stream);
        }
        let Some(segment) = segment else { return Ok(Plan::End) };
        if segment != self.at.segment() && self.at != segment::Position::START {
            // Was what lies between trimmed away under us?
            self.lane.read(self.at)?;
        }
        let answer = match index.select(segment, wanted) {
            Answer::Broken(fault) => {
                tracing::warn!(lane = %self.lane.name(), %segment, %fault, "the index of a segment is built again");
                if let Some(info) = index.info(segment) {
                    self.lane.rebuild(&info);
                }
                index.select(segment, wanted)
            }
            answer @ (Answer::Found(_) | Answer::NotIndexed) => answer,
        };
        match answer {
            Answer::Found(mut spots) => {
                // A segment that was sealed meanwhile has an end; one that grows ends at what was durable before the
                // index was asked, and in any case where the next one begins.
                let end = match index.info(segment) {
                    Some(info) => info.end_position(),
                    None if durable.segment() == segment => durable,
                    None => position_at(index.behind(segment).unwrap_or_else(|| durable.segment()), 0),
                };
                let until = end.min(durable);
                spots.retain(|spot| (self.at..until).contains(&position_at(segment, *spot)));
                self.indexed = Some(Indexed { segment, spots: spots.into(), until });
                Ok(Plan::Indexed)
            }
            Answer::NotIndexed | Answer::Broken(_) => {
                if index.info(segment).is_some_and(|info| is_before(&info, wanted)) {
                    let until = index.info(segment).map_or(self.at, |info| info.end_position());
                    self.indexed = Some(Indexed { segment, spots: VecDeque::new(), until });
                    return Ok(Plan::Indexed);
                }
                self.streaming = Some(segment);
                Ok(Plan::Stream)
            }
        }
    }

    /// The next record, whatever it is.
    fn stream(&mut self) -> Result<Option<Record>, ReadError> {
        let cursor = match &mut self.cursor {
            Some(cursor) if cursor.position() == self.at => cursor,
            stale => stale.insert(self.lane.read(self.at)?),
        };
        let next = cursor.next_record();
        let at = cursor.position();
        match next {
            Ok(Some(record)) => Ok(Some(record)),
            Ok(None) => {
                // It may have gone on to the beginning of the next segment.
                self.at = at;
                Ok(None)
            }
            Err(fault) => Err(self.lane.fault(fault, at)),
        }
    }

    /// The record at a place that an index names.
    fn record_at(&mut self, position: segment::Position) -> Result<Record, ReadError> {
        let near = self.cursor.as_ref().is_some_and(|cursor| {
            let here = cursor.position();
            let blocks = (spot_of(position) >> 12).saturating_sub(spot_of(here) >> 12);
            here.segment() == position.segment() && here <= position && blocks <= NEAR_BLOCKS
        });
        if !near {
            self.cursor = None;
        }
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(self.lane.read(position)?),
        };
        loop {
            let next = cursor.next_record();
            let at = cursor.position();
            match next {
                Ok(Some(record)) if record.position < position => {}
                Ok(Some(record)) if record.position == position => return Ok(record),
                Ok(Some(_) | None) => {
                    return Err(ReadError::IndexMismatch { position: self.lane.position(position) });
                }
                Err(fault) => return Err(self.lane.fault(fault, at)),
            }
        }
    }
}

impl Head {
    pub(super) fn appended_unix_ms(&self) -> u64 {
        self.placed.appended_unix_ms
    }

    pub(super) fn into_parts(self) -> (Placed, segment::Position) {
        (self.placed, self.behind)
    }
}

/// How to go on.
enum Plan {
    Stream,
    /// The index has answered.
    Indexed,
    End,
}

/// Was everything in the segment appended, and so received, before what is wanted? A clock that stepped back between
/// the two is not worth reading a damaged segment for.
fn is_before(info: &segment::SegmentInfo, wanted: &Wanted<'_>) -> bool {
    info.state != SegmentState::Foreign
        && wanted.from_unix_ms.is_some_and(|from| info.records == 0 || info.max_unix_ms < from)
}
