//! From the journal's writer to the index: what became durable, bounded.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use eventlog::segment::Position;

use super::table::Pointer;

#[derive(Debug, Default)]
struct State {
    pointers: Vec<Pointer>,
    /// Some found no room: the journal has to be read.
    missed: bool,
    /// Durable commits so far, and where the last one is.
    commits: u64,
    last: Option<Position>,
    is_new: bool,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Feed {
    state: Mutex<State>,
    wake: Condvar,
    max: usize,
}

/// What there is to index.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) pointers: Vec<Pointer>,
    pub(super) missed: bool,
    /// All commits up to this number are in it, or are to be read.
    pub(super) commits: u64,
    /// Where the last one is.
    pub(super) last: Option<Position>,
}

impl Feed {
    pub(super) fn new(max: usize) -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch is durable. None: what it holds has to be read.
    pub(super) fn push(&self, commits: u64, last: Position, pointers: Option<Vec<Pointer>>) {
        let mut state = self.state();
        (state.commits, state.last, state.is_new) = (commits, Some(last), true);
        match pointers {
            // What comes behind a gap is read with it.
            Some(mut pointers) if !state.missed && state.pointers.len() + pointers.len() <= self.max => {
                state.pointers.append(&mut pointers);
            }
            _ => state.missed = true,
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Sleeps until there is something; none when there never will be.
    pub(super) fn take(&self) -> Option<Work> {
        let mut state = self.state();
        while !state.is_new {
            if state.closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_new = false;
        let (pointers, missed) = (std::mem::take(&mut state.pointers), std::mem::take(&mut state.missed));
        Some(Work { pointers, missed, commits: state.commits, last: state.last })
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.wake.notify_all();
    }
}
