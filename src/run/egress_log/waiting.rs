//! Records on their way to the store: a bounded queue that nobody waits for.
//!
//! A push is one short lock. The writer is woken for the first record and when a chunk's worth of them waits, and not for
//! each: under load the path makes no system call for its records.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egress::Record;

/// Most records that wait: half a second of the fastest calls there are, some 16 MiB.
pub(super) const RECORDS_MAX: usize = 8_192;
/// As many are worth a write by themselves.
const CHUNK_RECORDS: usize = 128;
/// How long a few records wait for more. A write is a block of the disk however little is in it, so that a node with one
/// call a second would else take eight times what its records are. A process that is killed loses what waits here; the log
/// has the lines.
const GATHER: Duration = Duration::from_secs(5);

/// A record that waits, with its JSON where its line needed that.
#[derive(Debug)]
pub(super) struct Waited {
    pub(super) record: Record,
    pub(super) json: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<Waited>,
    /// Somebody wants to read what waits.
    wanted: bool,
    closed: bool,
    /// How many were pushed, and how many of those were dealt with.
    pushed: u64,
    done: u64,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    /// For the writer: there is something to do.
    filled: Condvar,
    /// For who wants to read: something was dealt with.
    emptied: Condvar,
}

/// What the writer is to do.
#[derive(Debug)]
pub(super) enum Turn {
    Write(Vec<Waited>),
    /// Nothing came for as long as it was told to wait.
    Idle,
    /// Nothing will come any more.
    End,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        // Changes under this lock are single steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits. False if there is no room, or nobody who would write it.
    pub(super) fn push(&self, record: Waited) -> bool {
        let mut state = self.state();
        if state.closed || state.records.len() >= RECORDS_MAX {
            return false;
        }
        state.records.push(record);
        state.pushed += 1;
        let wakes = matches!(state.records.len(), 1 | CHUNK_RECORDS);
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
        true
    }

    pub(super) fn len(&self) -> usize {
        self.state().records.len()
    }

    /// The writer's next turn: what came is taken all at once, when it is worth a write, when it has waited, or when
    /// somebody wants it. It reports what it has `done` since.
    pub(super) fn take(&self, done: u64, idle: Duration) -> Turn {
        let mut state = self.state();
        state.done += done;
        self.emptied.notify_all();
        let wait = self.filled.wait_timeout_while(state, idle, |state| state.records.is_empty() && !state.closed);
        state = wait.unwrap_or_else(PoisonError::into_inner).0;
        if state.records.is_empty() {
            return if state.closed { Turn::End } else { Turn::Idle };
        }
        let wait = self.filled.wait_timeout_while(state, GATHER, |state| {
            state.records.len() < CHUNK_RECORDS && !state.wanted && !state.closed
        });
        state = wait.unwrap_or_else(PoisonError::into_inner).0;
        state.wanted = false;
        Turn::Write(std::mem::take(&mut state.records))
    }

    /// Waits until everything that was pushed before is dealt with; false if that takes longer than it may.
    pub(super) fn settle(&self, limit: Duration) -> bool {
        let mut state = self.state();
        let pushed = state.pushed;
        state.wanted = !state.records.is_empty();
        self.filled.notify_one();
        let wait = self.emptied.wait_timeout_while(state, limit, |state| state.done < pushed);
        wait.unwrap_or_else(PoisonError::into_inner).0.done >= pushed
    }

    /// Takes nothing more; what waits is still written.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn record(nth: u64) -> Waited {
        Waited { record: sample::record(nth), json: None }
    }

    const NOT_LONG: Duration = Duration::from_millis(1);

    #[test]
    fn it_is_bounded_and_says_so() {
        let waiting = Waiting::default();
        let taken = (0..10_000).filter(|nth| waiting.push(record(*nth))).count();
        assert_eq!((taken, waiting.len()), (RECORDS_MAX, RECORDS_MAX));
        let Turn::Write(records) = waiting.take(0, NOT_LONG) else { panic!("nothing") };
        assert_eq!(records.len(), RECORDS_MAX);
        assert!(waiting.push(record(1)), "there is room again");
        waiting.close();
        assert!(!waiting.push(record(2)));
        assert!(matches!(waiting.take(0, NOT_LONG), Turn::Write(records) if records.len() == 1));
        assert!(matches!(waiting.take(1, NOT_LONG), Turn::End));
    }

    #[test]
    fn who_wants_to_read_waits_for_what_was_there_and_no_longer() {
        let waiting = Waiting::default();
        assert!(waiting.settle(NOT_LONG), "nothing waits");
        assert!(matches!(waiting.take(0, NOT_LONG), Turn::Idle));
        waiting.push(record(1));
        assert!(!waiting.settle(NOT_LONG), "nobody writes");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let Turn::Write(records) = waiting.take(0, NOT_LONG) else { panic!("nothing") };
                assert!(matches!(waiting.take(records.len() as u64, NOT_LONG), Turn::Idle));
            });
            assert!(waiting.settle(Duration::from_mins(1)));
        });
    }
}
