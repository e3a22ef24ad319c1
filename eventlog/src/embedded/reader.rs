//! Reading all lanes as one: by append time between lanes, older generations of a class before newer ones.

use std::sync::Arc;

use super::lane::Lane;
use super::lane_reader::{LaneReader, Query};
use super::layout::shard_of;
use super::place::place_of;
use crate::error::ReadError;
use crate::event::StoredEvent;
use crate::log::{EventReader, Filter, Scope, Start};
use crate::position::Cursor;

#[derive(Debug)]
pub(super) struct EmbeddedReader {
    query: Query,
    /// In the order of class, generation, shard.
    lanes: Vec<LaneReader>,
    halted: Option<Halt>,
}

/// Why the reader yields nothing more, and in which lane.
#[derive(Debug)]
struct Halt {
    fault: ReadError,
    lane: usize,
}

impl EmbeddedReader {
    pub(super) fn new(lanes: &[Arc<Lane>], scope: Scope, start: &Start, filter: Filter) -> Result<Self, ReadError> {
        // An endpoint's events are in one shard of each generation.
        let slot = filter.endpoint.as_ref().map(|endpoint| domain::Slot::of(endpoint.as_str()));
        let can_have =
            |lane: &&Arc<Lane>| slot.is_none_or(|slot| shard_of(slot, lane.place.shards) == lane.name().shard);
        let query = Query::new(scope, filter);
        let mut readers = Vec::new();
        for lane in lanes.iter().filter(can_have) {
            let place = match start {
                Start::Earliest => None,
                Start::Newest(count) => lane.newest(&query.certain(), *count).map(place_of),
                Start::Latest => Some(lane.durable()),
                Start::At(cursor) => cursor.place(lane.name()),
            };
            // The newest are where they are: if they are trimmed by now, reading says so.
            if let Some(place) = place.filter(|_| !matches!(start, Start::Newest(_))) {
                lane.check_place(place)?;
            }
            readers.push(LaneReader::new(Arc::clone(lane), place));
        }
        Ok(Self { query, lanes: readers, halted: None })
    }

    /// The lane whose record is next.
    fn next_lane(&mut self) -> Result<Option<usize>, Halt> {
        let mut next: Option<(u64, usize)> = None;
        // Lanes behind which nothing newer of their class may come yet.
        let mut unfinished = vec![false; self.lanes.len()];
        for at in 0..self.lanes.len() {
            // A class's newer generation waits until the older ones are read to their end.
            let waits = at > 0 && {
                let name = self.lanes[at].lane.name();
                let of_class = |before: &usize| self.lanes[*before].lane.name().class == name.class;
                let older = |before: &usize| self.lanes[*before].lane.name().generation < name.generation;
                (0..at).rev().take_while(of_class).filter(older).any(|before| unfinished[before])
            };
            if waits {
                // Those behind wait with it.
                unfinished[at] = true;
                continue;
            }
            unfinished[at] = self.fill(at)?;
            if let Some(head) = self.lanes[at].head() {
                let time = head.appended_unix_ms();
                if next.is_none_or(|(earliest, _)| time < earliest) {
                    next = Some((time, at));
                }
            }
        }
        Ok(next.map(|(_, at)| at))
    }

    /// Finds the lane's next record. True if the lane is not read to its end for good: it has a record, or another
    /// process that lives may still append to it.
    fn fill(&mut self, at: usize) -> Result<bool, Halt> {
        let lane = &mut self.lanes[at];
        if lane.head().is_some() {
            return Ok(true);
        }
        loop {
            // Asked first: what ends while the lane is read may have left something.
            let awaits = lane.awaits_others();
            if lane.fill(&self.query).map_err(|fault| Halt { fault, lane: at })? {
                return Ok(true);
            }
            if !awaits || lane.awaits_others() {
                return Ok(awaits);
            }
        }
    }

    fn step(&mut self) -> Result<Option<StoredEvent>, Halt> {
        let Some(at) = self.next_lane()? else { return Ok(None) };
        let Some(head) = self.lanes[at].take() else { return Ok(None) };
        let (placed, behind) = head.into_parts();
        let event = placed.open(&self.query.scope).map_err(|fault| Halt { fault, lane: at })?;
        self.lanes[at].passed(behind);
        Ok(Some(event))
    }
}

impl EventReader for EmbeddedReader {
    fn next(&mut self) -> Result<Option<StoredEvent>, ReadError> {
        if let Some(halt) = &self.halted {
            return Err(halt.fault.clone());
        }
        self.step().map_err(|halt| {
            let fault = halt.fault.clone();
            self.halted = Some(halt);
            fault
        })
    }

    fn skip_damage(&mut self) -> bool {
        let Some(halt) = &self.halted else { return false };
        let lane = &mut self.lanes[halt.lane];
        let skipped = match &halt.fault {
            ReadError::Damaged { .. } => lane.skip_damage(),
            ReadError::NotAnEvent { position, .. } => {
                lane.skip_record(position.place);
                true
            }
            ReadError::ScopeMismatch { .. }
            | ReadError::IndexMismatch { .. }
            | ReadError::Trimmed { .. }
            | ReadError::NoSuchPlace { .. }
            | ReadError::Unreadable { .. } => false,
        };
        if skipped {
            self.halted = None;
        }
        skipped
    }

    fn skip_trimmed(&mut self) -> bool {
        let Some(Halt { fault: ReadError::Trimmed { .. }, lane }) = &self.halted else { return false };
        self.lanes[*lane].begin_again();
        self.halted = None;
        true
    }

    fn cursor(&self) -> Cursor {
        let mut cursor = Cursor::default();
        for reader in &self.lanes {
            if let Some(place) = reader.place() {
                cursor.set(reader.lane.name().clone(), place);
            }
        }
        cursor
    }
}
