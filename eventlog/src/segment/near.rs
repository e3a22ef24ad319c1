//! The batches that single records were read from last: whoever asks for one record asks for its neighbours next, as the
//! runs that a burst begins do, and a batch is read as a whole.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cursor::{Cursor, HeldBatch, ReadError, Record};
use super::position::Position;

/// Most batches that are kept, and most bytes of them.
const BATCHES_MAX: usize = 64;
const BYTES_MAX: usize = 4 << 20;
/// Batches that are read at the same time.
const READS: usize = 8;

#[derive(Debug, Default)]
struct State {
    /// The one that was read last in front.
    batches: VecDeque<HeldBatch>,
    bytes: usize,
}

/// Batches of one journal.
#[derive(Debug, Default)]
pub struct Near {
    state: Mutex<State>,
    /// Held while a batch is read, by its place: many ask for one at the same time, and each would have memory for it.
    reading: [Mutex<()>; READS],
}

/// Which lock a batch is read under.
fn way(at: Position) -> usize {
    usize::try_from((at.file_offset() >> 12) % READS as u64).unwrap_or_default()
}

impl Near {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record at the cursor's place, or behind it.
    ///
    /// # Errors
    /// As the cursor's own.
    pub fn record(&self, mut cursor: Cursor) -> Result<Option<Record>, ReadError> {
        if self.lend(&mut cursor) {
            return cursor.next_record();
        }
        let _one_at_a_time = self.reading[way(cursor.position())].lock().unwrap_or_else(PoisonError::into_inner);
        if self.lend(&mut cursor) {
            return cursor.next_record();
        }
        let record = cursor.next_record();
        if let Some(held) = cursor.held() {
            self.keep(held);
        }
        record
    }

    fn lend(&self, cursor: &mut Cursor) -> bool {
        let mut state = self.state();
        let Some(at) = state.batches.iter().position(|held| held.is_at(cursor.position())) else { return false };
        let Some(held) = state.batches.remove(at) else { return false };
        state.batches.push_front(held.clone());
        drop(state);
        cursor.hold(held)
    }

    fn keep(&self, held: HeldBatch) {
        if held.bytes() > BYTES_MAX {
            return;
        }
        let mut state = self.state();
        state.bytes += held.bytes();
        state.batches.push_front(held);
        while state.bytes > BYTES_MAX || state.batches.len() > BATCHES_MAX {
            let Some(last) = state.batches.pop_back() else { return };
            state.bytes -= last.bytes();
        }
    }
}
