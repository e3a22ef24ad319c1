//! Ending an answer from outside while it is written.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};

/// Whoever may end an answer in the middle: also while its body says nothing, and while its client takes nothing.
pub trait Halt: Send + Sync {
    /// Whom the end wakes from now on: one task at a time.
    fn wakes(&self, waker: &Waker);
    /// Whether the end has come. It stays.
    fn has_come(&self) -> bool;
}

/// Looks whether the end has come: one load each time, and the task is told of once.
pub struct Watch {
    halt: Arc<dyn Halt>,
    woken: Option<Waker>,
}

impl Watch {
    /// Nobody is woken yet.
    pub fn new(halt: Arc<dyn Halt>) -> Self {
        Self { halt, woken: None }
    }

    /// Whether it has. If not, the task is woken when it comes.
    pub fn has_come(&mut self, cx: &Context<'_>) -> bool {
        if !self.woken.as_ref().is_some_and(|woken| woken.will_wake(cx.waker())) {
            self.halt.wakes(cx.waker());
            self.woken = Some(cx.waker().clone());
        }
        // Behind that: an end that comes in between is seen here.
        self.halt.has_come()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
