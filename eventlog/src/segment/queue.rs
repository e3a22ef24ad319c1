//! The bounded hand-off to the writer's thread.
//!
//! A push is one short lock; the system is asked to wake the writer only when it sleeps, so under load a push costs
//! no system call. The writer takes everything that waits at once.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use domain::Clock;

use super::entry::{AppendError, Entry, Waiter};
use super::stat::Fault;

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) entry: Entry,
    pub(crate) waiter: Waiter,
}

/// What waits, or is being written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) records: usize,
    pub(crate) bytes: u64,
}

impl Load {
    pub(crate) fn add(&mut self, payload: usize) {
        self.records += 1;
        self.bytes += payload as u64;
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Pending>,
    load: Load,
    asleep: bool,
    closed: bool,
    full: bool,
    unavailable: Option<Arc<str>>,
    last_fault: Option<Fault>,
    /// The writer is asked to go on in another segment if its own has records from before this.
    roll_before_unix_ms: Option<u64>,
}

impl State {
    fn refusal(&self, max: Load, bytes: usize) -> Option<AppendError> {
        if self.closed {
            Some(AppendError::Closed)
        } else if let Some(reason) = &self.unavailable {
            Some(AppendError::Unavailable { reason: Arc::clone(reason) })
        } else if self.full {
            Some(AppendError::Full)
        } else if self.load.records >= max.records
            || (self.load.records > 0 && self.load.bytes + bytes as u64 > max.bytes)
        {
            Some(AppendError::QueueFull)
        } else {
            None
        }
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    max: Load,
    clock: Arc<dyn Clock>,
}

impl Queue {
    pub(crate) fn new(max: Load, clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), max, clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing below panics half-way through a change, so a poisoned lock still guards a sound state.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Never waits. On an error the entry is dropped.
    pub(crate) fn push(&self, pending: Pending) -> Result<(), (AppendError, Waiter)> {
        let bytes = pending.entry.payload.len();
        let mut state = self.state();
        if let Some(refusal) = state.refusal(self.max, bytes) {
            drop(state);
            return Err((refusal, pending.waiter));
        }
        state.load.add(bytes);
        state.waiting.push_back(pending);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Why a push would be refused now, however few bytes it has.
    pub(crate) fn refuses(&self) -> Option<AppendError> {
        self.state().refusal(self.max, 0)
    }

    /// Gives back the room of what was dealt with, and moves everything that waits behind what is already `taken`.
    /// Sleeps while there is nothing to do at all; false when there never will be.
    pub(crate) fn take(&self, done: Load, taken: &mut VecDeque<Pending>) -> bool {
        let mut state = self.state();
        state.load.records -= done.records;
        state.load.bytes -= done.bytes;
        while state.waiting.is_empty() && taken.is_empty() && state.roll_before_unix_ms.is_none() {
            if state.closed {
                return false;
            }
            state.asleep = true;
            state = self.wake.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.asleep = false;
        if taken.is_empty() {
            std::mem::swap(&mut state.waiting, taken);
        } else {
            taken.append(&mut state.waiting);
        }
        true
    }

    pub(crate) fn ask_to_roll(&self, before_unix_ms: u64) {
        let mut state = self.state();
        state.roll_before_unix_ms = Some(before_unix_ms);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    pub(crate) fn asked_to_roll(&self) -> Option<u64> {
        self.state().roll_before_unix_ms.take()
    }

    /// Moves what waits behind what is already `taken`, without sleeping.
    pub(crate) fn take_more(&self, taken: &mut VecDeque<Pending>) {
        taken.append(&mut self.state().waiting);
    }

    /// From now on appends fail with this reason; what waits is handed out to be failed too.
    pub(crate) fn make_unavailable(&self, reason: &Arc<str>) -> VecDeque<Pending> {
        let unix_ms = self.clock.unix_ms();
        let mut state = self.state();
        state.unavailable = Some(Arc::clone(reason));
        state.last_fault = Some(Fault { unix_ms, reason: Arc::clone(reason) });
        std::mem::take(&mut state.waiting)
    }

    pub(crate) fn make_available(&self) {
        self.state().unavailable = None;
    }

    /// Tells everybody of these that nothing was stored, and gives their room back.
    pub(crate) fn refuse(&self, pending: VecDeque<Pending>, error: &AppendError) {
        let mut load = Load::default();
        for Pending { entry, waiter } in pending {
            load.add(entry.payload.len());
            // A waiter that went away is no error.
            waiter.send(Err(error.clone())).ok();
        }
        self.release(load);
    }

    pub(crate) fn release(&self, done: Load) {
        let mut state = self.state();
        state.load.records -= done.records;
        state.load.bytes -= done.bytes;
    }

    /// Sleeps for `pause`; true when the queue is closed meanwhile or before.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.state();
        let wait = self.wake.wait_timeout_while(state, pause, |state| !state.closed);
        wait.unwrap_or_else(std::sync::PoisonError::into_inner).0.closed
    }

    pub(crate) fn set_full(&self, full: bool) {
        let unix_ms = self.clock.unix_ms();
        let mut state = self.state();
        if full && !state.full {
            state.last_fault = Some(Fault { unix_ms, reason: AppendError::Full.to_string().into() });
        }
        state.full = full;
    }

    /// Why appends were refused last: from when the door was shut, whether or not it has opened since.
    pub(crate) fn last_fault(&self) -> Option<Fault> {
        self.state().last_fault.clone()
    }

    /// No more pushes; what waits is still taken.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.wake.notify_all();
    }

    pub(crate) fn look(&self) -> (Load, bool, Option<Arc<str>>) {
        let state = self.state();
        (state.load, state.full, state.unavailable.clone())
    }
}
