//! The newest commits, as they were written: a run that was just admitted, or has just made a step, is read soon after, and
//! whoever follows the ledger and keeps up never waits for the disk.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use eventlog::segment::{Position, Record, RecordView};

/// What an entry costs beside its bytes, about.
const ENTRY_BYTES: usize = 128;

#[derive(Debug, Default)]
struct State {
    /// In the order of the journal.
    records: VecDeque<Record>,
    bytes: usize,
    /// All that is durable at or behind it is here. None: nobody has said yet.
    floor: Option<Position>,
}

/// Durable records of this process, the newest of them, up to so many bytes.
#[derive(Debug)]
pub(super) struct Recent {
    state: Mutex<State>,
    bytes_max: usize,
}

impl Recent {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), bytes_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes from here on will be put here: this is where the journal ends before the first of them.
    pub(super) fn begin(&self, durable: Position) {
        let mut state = self.state();
        debug_assert!(state.records.is_empty(), "nothing was written before");
        state.floor = Some(durable);
    }

    /// Takes the records of a batch, and calls `each` with their places.
    pub(super) fn put(&self, records: &mut dyn Iterator<Item = RecordView<'_>>, mut each: impl FnMut(Position)) {
        let mut state = self.state();
        for record in records {
            each(record.position);
            let bytes = record.payload.len() + ENTRY_BYTES;
            let is_behind = state.records.back().is_none_or(|last| last.position < record.position);
            debug_assert!(is_behind, "a journal's places go up");
            if bytes > self.bytes_max || !is_behind {
                // There is a gap: nothing before it can be followed here.
                state.floor = Some(record.position.after());
                continue;
            }
            state.make_room(self.bytes_max - bytes);
            state.bytes += bytes;
            state.records.push_back(Record {
                position: record.position,
                stream: record.stream,
                sequence: record.sequence,
                time_unix_ms: record.time_unix_ms,
                kind: record.kind,
                payload: Bytes::copy_from_slice(record.payload),
            });
        }
    }

    pub(super) fn get(&self, position: Position) -> Option<Record> {
        let state = self.state();
        let at = state.records.binary_search_by_key(&position, |record| record.position).ok()?;
        state.records.get(at).cloned()
    }

    /// Records from a place on and before another, in order, until there are so many or they have so many bytes. None: some
    /// of them are not here, or nothing here says that there is such a place: the journal has to say what is there.
    pub(super) fn between(&self, from: Position, end: Position, max: usize, bytes_max: usize) -> Option<Vec<Record>> {
        let state = self.state();
        let floor = state.floor.filter(|floor| *floor <= from && from <= end)?;
        let first = state.records.partition_point(|record| record.position < from);
        let is_at = state.records.get(first).is_some_and(|record| record.position == from);
        let is_behind = first.checked_sub(1).is_some_and(|before| state.records[before].position.after() == from);
        if !is_at && !is_behind && from != floor && from != end {
            return None;
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        for record in state.records.range(first..).take_while(|record| record.position < end).take(max) {
            found.push(record.clone());
            bytes += record.payload.len();
            if bytes >= bytes_max {
                break;
            }
        }
        Some(found)
    }
}

impl State {
    /// Drops the oldest until no more than so many bytes are left.
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(oldest) = self.records.pop_front() else { return };
            self.bytes -= oldest.payload.len() + ENTRY_BYTES;
            let behind = oldest.position.after();
            self.floor = self.floor.map(|floor| floor.max(behind));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(n: u8, payload: &[u8]) -> RecordView<'_> {
        let position = Position::from_bytes([n; 16]);
        RecordView { position, stream: 0, sequence: 0, time_unix_ms: u64::from(n), kind: 1, payload }
    }

    #[test]
    fn the_newest_are_here_up_to_the_bound() {
        let recent = Recent::new(10 * (100 + ENTRY_BYTES));
        let place = |n: u8| Position::from_bytes([n; 16]);
        let mut seen = Vec::new();
        for n in 0..30 {
            let bytes = [n; 100];
            recent.put(&mut [view(n, &bytes)].into_iter(), |position| seen.push(position));
        }
        assert_eq!(seen, (0..30).map(place).collect::<Vec<_>>());
        assert!((0..20).all(|n| recent.get(place(n)).is_none()));
        assert!((20..30).all(|n| recent.get(place(n)).is_some_and(|r| r.payload == vec![n; 100])));
        // One that is too large for all of it drops nothing.
        let large = [0; 5000];
        recent.put(&mut [view(99, &large)].into_iter(), |_| ());
        assert!(recent.get(place(29)).is_some() && recent.get(place(99)).is_none());
        assert!(recent.state().bytes <= recent.bytes_max);
    }

    #[test]
    fn they_are_followed_where_all_of_them_are_here() {
        let recent = Recent::new(10 * (100 + ENTRY_BYTES));
        let place = |n: u8| Position::from_bytes([n; 16]);
        let put = |n: u8, bytes: usize| recent.put(&mut [view(n, &vec![n; bytes])].into_iter(), |_| ());
        let found = |from: Position, end: u8, max, bytes_max| {
            let found = recent.between(from, place(end), max, bytes_max)?;
            Some(found.iter().map(|record| record.time_unix_ms).collect::<Vec<_>>())
        };
        assert_eq!(found(place(0), 200, 9, 9_999), None, "nobody has said where they begin");
        recent.begin(place(10));
        assert_eq!(found(place(9), 200, 9, 9_999), None);
        assert_eq!(found(place(10), 200, 9, 9_999), Some(vec![]));
        for never in [place(11), place(201)] {
            assert_eq!(found(never, 200, 9, 9_999), None, "nobody knows such a place");
        }
        (20..24).for_each(|n| put(n, 100));
        assert_eq!(found(place(10), 200, 9, 9_999), Some(vec![20, 21, 22, 23]));
        assert_eq!(found(place(21), 23, 9, 9_999), Some(vec![21, 22]), "what is not published yet is not told");
        assert_eq!(found(place(21).after(), 200, 1, 9_999), Some(vec![22]));
        assert_eq!(found(place(10), 200, 9, 150), Some(vec![20, 21]));
        // Ten are here, 24 to 33: whoever has not seen 23 has to read it elsewhere.
        (24..34).for_each(|n| put(n, 100));
        assert_eq!(found(place(23), 200, 20, 9_999), None);
        assert_eq!(found(place(23).after(), 200, 20, 9_999).map(|found| found.len()), Some(10));
        assert_eq!(found(place(33).after(), 200, 20, 9_999), Some(vec![]));
        // And over one that found no room nobody goes.
        put(40, 5_000);
        put(41, 100);
        assert_eq!(found(place(33), 200, 20, 9_999), None);
        assert_eq!(found(place(40).after(), 200, 20, 9_999), Some(vec![41]));
    }
}
