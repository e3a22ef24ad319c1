//! A turn that the ledger has let down, and what it knows that is not written.
//!
//! An append without an answer may be durable all the same, with the lease and the intents that were in it. Only this process
//! knows that their calls were never made, and what came of those that were: it keeps that until its next turn of the run, which
//! reads the ledger again and goes on under the lease that it finds there, if that is its own. Whoever dies in between leaves
//! a lost worker's doubt, as ever.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures_util::stream::StreamExt;

use super::fenced::never_sent;
use super::turn::{Start, Work};
use crate::ids::RunId;
use crate::ledger::{Body, Outcome, Record};
use crate::schedule::Ended;

use super::super::state::RunState;

/// Runs that are remembered, of a few hundred bytes each: as many as there can be slots. Each is asked for again within a
/// minute.
const RUNS_MAX: usize = 65_536;

/// By run.
#[derive(Debug, Default)]
pub(super) struct Left(Mutex<HashMap<RunId, Unwritten>>);

/// What a turn has left.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// That it held, or has asked for, and under which name.
    lease: u64,
    owner: Box<str>,
    /// What came of calls, those that were never made among them.
    outcomes: Vec<Outcome>,
}

impl Left {
    fn put(&self, run: RunId, unwritten: Unwritten) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < RUNS_MAX {
            left.insert(run, unwritten);
        } else {
            tracing::error!(%run, "what came of a run's calls can neither be written nor remembered: it will be in doubt");
        }
    }

    pub(super) fn take(&self, run: RunId) -> Option<Unwritten> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&run)
    }
}

impl Unwritten {
    /// The lease in force is the one that was left: nobody has worked on the run since.
    pub(super) fn holds(&self, state: &RunState) -> bool {
        state.lease == self.lease && state.owner.as_ref() == Some(&self.owner) && state.is_worked_on
    }

    pub(super) fn owner(&self) -> Box<str> {
        self.owner.clone()
    }

    /// Those that are news: of an intent that is in the ledger, and not there yet.
    pub(super) fn news(self, records: &[Record]) -> impl Iterator<Item = Outcome> + '_ {
        self.outcomes.into_iter().filter(|outcome| {
            let is_of = |record: &Record| {
                matches!(&record.body, Body::Intent(intent)
                    if intent.step == outcome.step && intent.attempt == outcome.attempt)
            };
            let is_it = |record: &Record| {
                matches!(&record.body, Body::Outcome(known) | Body::LateOutcome(known) if known == outcome)
            };
            records.iter().any(is_of) && !records.iter().any(is_it)
        })
    }
}

impl Work<'_> {
    /// The ledger takes nothing now. Calls that are under way are waited for, each no longer than its own bound, and what is
    /// known is kept for the next turn.
    pub(super) async fn left(&mut self, never_begun: Vec<Start>, ended: Ended) -> Ended {
        for start in never_begun {
            let Some(node) = self.automation.nodes.get(start.at) else { continue };
            self.unsaved.push_back(never_sent(node.id.clone(), start.under_way.attempt));
        }
        while let Some(ending) = self.calls.next().await {
            self.came(ending).await;
        }
        let outcomes: Vec<Outcome> = self.unsaved.drain(..).collect();
        let unwritten = Unwritten { lease: self.known.lease, owner: self.owner.clone(), outcomes };
        self.engine.left.put(self.state.run, unwritten);
        ended
    }
}
