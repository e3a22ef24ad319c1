//! The end of a worker that has lost its run: what still comes of its calls is evidence.

use std::time::Duration;

use futures_util::stream::StreamExt;

use crate::failure::FailureClass;
use crate::ledger::{AppendError, Body, Commit, Outcome, Provider, SendState, StepResult, Writer};
use crate::schedule::{Ended, Turn};

use super::Engine;
use super::commit::{append, pause, read};
use super::turn::{Start, Work};

impl Work<'_> {
    /// Waits for the calls that are under way, each no longer than its own bound, and leaves what comes of them in the ledger.
    /// Intents whose calls were never begun are proof that nothing was sent.
    pub(super) async fn fenced(&mut self, never_begun: Vec<Start>) -> Ended {
        tracing::info!(run = %self.state.run, lease = self.known.lease, "another worker has the run");
        for start in never_begun {
            let Some(node) = self.automation.nodes.get(start.at) else { continue };
            self.unsaved.push_back(never_sent(node.id.clone(), start.under_way.attempt));
        }
        self.leave().await;
        while let Some(ending) = self.calls.next().await {
            self.came(ending).await;
            self.leave().await;
        }
        Ended::Fenced
    }

    async fn leave(&mut self) {
        while let Some(outcome) = self.unsaved.pop_front() {
            if let Err(error) = leave_one(self.engine, &self.turn, &outcome).await {
                let (run, step) = (self.state.run, &outcome.step);
                tracing::error!(%run, %step, %error, "what came of a call late cannot be kept");
            }
        }
    }
}

async fn leave_one(engine: &Engine, turn: &Turn, outcome: &Outcome) -> Result<(), AppendError> {
    let mut last = AppendError::Unavailable("not tried".into());
    let mut wait = Duration::from_millis(5);
    for _ in 0..engine.settings.ledger_tries.max(1) {
        let records = read(engine, turn).await;
        let records = records.map_err(|error| AppendError::Unavailable(error.to_string().into()))?;
        let body = Body::LateOutcome(outcome.clone());
        if records.iter().any(|record| record.body == body) {
            return Ok(());
        }
        let commit = Commit {
            tenant: turn.tenant.clone(),
            run: turn.run,
            expected: records.len() as u64,
            writer: Writer::Anyone,
            at_unix_ms: engine.ports.clock.unix_ms(),
            bodies: vec![body],
        };
        match append(engine, commit).await {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
        pause(&mut wait).await;
    }
    Err(last)
}

pub(super) fn never_sent(step: crate::ids::StepId, attempt: crate::ledger::Attempt) -> Outcome {
    let provider =
        Provider { send_state: SendState::NotSent, status: None, message: None, request_id: None, correlation: None };
    let detail = "the worker lost the run before it sent anything".into();
    let result = StepResult::Failed { class: FailureClass::Unreachable, detail };
    Outcome { step, attempt, result, provider: Some(provider) }
}
