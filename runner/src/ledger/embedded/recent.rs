//! The newest commits, as they were written: a run that was just admitted, or has just made a step, is read soon after.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use eventlog::segment::{Position, Record, RecordView};

/// What an entry costs beside its bytes, about.
const ENTRY_BYTES: usize = 128;

#[derive(Debug, Default)]
struct State {
    records: HashMap<Position, Record>,
    /// Oldest first.
    order: VecDeque<Position>,
    bytes: usize,
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

    /// Takes the records of a batch, and calls `each` with their places.
    pub(super) fn put(&self, records: &mut dyn Iterator<Item = RecordView<'_>>, mut each: impl FnMut(Position)) {
        let mut state = self.state();
        for record in records {
            each(record.position);
            let bytes = record.payload.len() + ENTRY_BYTES;
            if bytes > self.bytes_max {
                continue;
            }
            state.make_room(self.bytes_max - bytes);
            state.bytes += bytes;
            state.order.push_back(record.position);
            let kept = Record {
                position: record.position,
                stream: record.stream,
                sequence: record.sequence,
                time_unix_ms: record.time_unix_ms,
                kind: record.kind,
                payload: Bytes::copy_from_slice(record.payload),
            };
            state.records.insert(record.position, kept);
        }
    }

    pub(super) fn get(&self, position: Position) -> Option<Record> {
        self.state().records.get(&position).cloned()
    }
}

impl State {
    /// Drops the oldest until no more than so many bytes are left.
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(record) = self.records.remove(&oldest) {
                self.bytes -= record.payload.len() + ENTRY_BYTES;
            }
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
}
