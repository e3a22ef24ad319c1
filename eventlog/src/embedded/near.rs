//! The batches that single records were read from last: whoever asks for an event by its id asks for its neighbours next, as
//! the runs that a burst begins do, and a batch is read as a whole.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::segment::{Cursor, HeldBatch, ReadError, Record};

/// Most batches that are kept, and most bytes of them.
const BATCHES_MAX: usize = 64;
const BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
struct State {
    /// The one that was read last in front.
    batches: VecDeque<HeldBatch>,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Near {
    state: Mutex<State>,
    /// Held while a batch is read: many ask for one at the same time, and each would have memory for it.
    reading: Mutex<()>,
}

impl Near {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record at the cursor's place.
    pub(super) fn record(&self, mut cursor: Cursor) -> Result<Option<Record>, ReadError> {
        if self.lend(&mut cursor) {
            return cursor.next_record();
        }
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
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
