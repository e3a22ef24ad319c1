//! Reading all lanes as one: by append time between lanes, older generations of a class before newer ones.

use std::sync::Arc;

use super::lane::Lane;
use super::lane_reader::{LaneReader, Query};
use super::layout::shard_of;
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
        let mut readers = Vec::new();
        for lane in lanes.iter().filter(can_have) {
            let place = match start {
                Start::Earliest => None,
                Start::Latest => Some(lane.durable()),
                Start::At(cursor) => cursor.place(lane.name()),
            };
            if let Some(place) = place {
                lane.check_place(place)?;
            }
            readers.push(LaneReader::new(Arc::clone(lane), place));
        }
        Ok(Self { query: Query::new(scope, filter), lanes: readers, halted: None })
    }

    /// The lane whose record is next.
    fn next_lane(&mut self) -> Result<Option<usize>, Halt> {
        let mut next: Option<(u64, usize)> = None;
        for at in 0..self.lanes.len() {
            // A class's newer generation waits until the older ones are read to their end.
            let waits = at > 0 && {
                let name = self.lanes[at].lane.name();
                let older = self.lanes[..at].iter().rev().take_while(|before| before.lane.name().class == name.class);
                older
                    .into_iter()
                    .any(|before| before.lane.name().generation < name.generation && before.head().is_some())
            };
            if waits {
                continue;
            }
            self.lanes[at].fill(&self.query).map_err(|fault| Halt { fault, lane: at })?;
            if let Some(head) = self.lanes[at].head() {
                let time = head.appended_unix_ms();
                if next.is_none_or(|(earliest, _)| time < earliest) {
                    next = Some((time, at));
                }
            }
        }
        Ok(next.map(|(_, at)| at))
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
        let damaged = matches!(halt.fault, ReadError::Damaged { .. });
        let skipped = damaged && self.lanes[halt.lane].skip_damage();
        if skipped {
            self.halted = None;
        }
        skipped
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
