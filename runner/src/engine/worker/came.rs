//! What came of a call, as an outcome.

use std::time::Duration;

use bytes::Bytes;
use domain::TenantId;
use serde_json::Value;

use crate::automation::{ConnectionState, Kind};
use crate::call::Cut;
use crate::failure::FailureClass;
use crate::ledger::payloads::BEGINNING_BYTES;
use crate::ledger::{Kept, Outcome, ParkReason, Payload, StepResult};

use super::super::ports::Notice;
use super::super::state::StepState;
use super::super::verdict::{self, Asked, Came, Tried};
use super::Engine;
use super::commit::pause;
use super::turn::{Ending, UnderWay, Work};

/// How often what must not be lost is tried again, first after 50 ms.
const TRIES: u32 = 5;

/// Kept of an output whose store cannot be reached.
const STUMP_BYTES: usize = 1_024;

impl Engine {
    /// The effect has happened, and that has to be written whether its output can be kept or not.
    async fn keep_whatever(&self, tenant: &TenantId, output: &Value) -> Payload {
        // Not for as long as the lease holds: the outcome has to be written under it.
        let tries = async {
            let mut wait = Duration::from_millis(50);
            for _ in 0..TRIES {
                if let Ok(kept) = self.keep(tenant, output).await {
                    return Some(kept);
                }
                pause(&mut wait).await;
            }
            None
        };
        if let Ok(Some(kept)) = tokio::time::timeout(self.settings.lease / 2, tries).await {
            return kept;
        }
        tracing::error!(%tenant, "the output of a step cannot be kept whole");
        let bytes = Bytes::from(output.to_string());
        Payload {
            bytes: bytes.len() as u64,
            digest: *blake3::hash(&bytes).as_bytes(),
            kept: Kept::Truncated(bytes.slice(..bytes.len().min(STUMP_BYTES))),
        }
    }
}

/// An answer that was cut: what it begins with, and what is known of all of it.
fn cut_payload(beginning: &Bytes, cut: Cut) -> Payload {
    let kept = Bytes::copy_from_slice(beginning.get(..BEGINNING_BYTES).unwrap_or(beginning));
    let kept = if cut.is_whole { Kept::Truncated(kept) } else { Kept::Beginning(kept) };
    Payload { bytes: cut.bytes, digest: cut.digest, kept }
}

impl UnderWay {
    fn asked(&self) -> Asked<'_> {
        Asked { action: &*self.action, input: &self.input, effect: self.effect }
    }
}

impl Work<'_> {
    /// Judges what came of a call, and puts it among what is to be written.
    pub(super) async fn came(&mut self, ending: Ending) {
        let Some(call) = self.under_way.remove(&ending.at) else { return };
        let Some(node) = self.automation.nodes.get(ending.at) else { return };
        let step = node.id.clone();
        let tried = self.tried(ending.at, &call);
        let (came, provider) = verdict::judge(&ending.answer, &call.asked(), &tried);
        let result = match came {
            Came::Done(output) => {
                StepResult::Done { output: self.engine.keep_whatever(&self.state.tenant, &output).await }
            }
            Came::DoneCut(beginning, cut) => StepResult::Done { output: cut_payload(&beginning, cut) },
            Came::Other(result) => result,
            Came::Dead(reason) => self.dead(ending.at, reason, &tried).await,
        };
        self.unsaved.push_back(Outcome { step, attempt: ending.attempt, result, provider: Some(provider) });
    }

    fn tried(&self, at: usize, call: &UnderWay) -> Tried {
        let fresh = StepState::default();
        let node = self.automation.nodes.get(at);
        let step = node.and_then(|node| self.state.steps.get(&node.id)).unwrap_or(&fresh);
        Tried {
            is_read_back: call.is_read_back,
            safety: call.safety,
            is_harmless: call.is_harmless,
            physical: call.attempt.physical,
            tries: step.tries,
            attempts_max: node.map_or(1, |node| node.retry.attempts_max),
            is_in_doubt: step.doubt.is_some(),
            read_backs: step.read_backs,
            deferrals: step.deferrals,
            unavailable_ms: self.unavailable_ms(at),
            now_unix_ms: self.engine.ports.clock.unix_ms(),
        }
    }

    /// The connection has to be made anew: that is said of the connection before it is said of the run, so that no run waits
    /// for what nobody was told.
    async fn dead(&mut self, at: usize, reason: Box<str>, tried: &Tried) -> StepResult {
        let Some(Kind::Call { connection, .. }) = self.automation.nodes.get(at).map(|node| &node.kind) else {
            return StepResult::Failed { class: FailureClass::AuthenticationExpired, detail: reason };
        };
        let (tenant, connection) = (self.state.tenant.clone(), connection.clone());
        let mut wait = Duration::from_millis(50);
        for _ in 0..TRIES {
            let state = ConnectionState::NeedsReconnect { since_unix_ms: tried.now_unix_ms, reason: reason.clone() };
            let set = self.engine.ports.definitions.set_connection_state(&tenant, &connection, state);
            match self.engine.within(set).await {
                Ok(is_new) => {
                    if is_new {
                        let (run, reason) = (self.state.run, reason.clone());
                        let notice = Notice::NeedsReconnect { tenant, connection: connection.clone(), run, reason };
                        self.engine.ports.notices.tell(notice);
                    }
                    self.dead.insert(connection, true);
                    return StepResult::Failed { class: FailureClass::AuthenticationExpired, detail: reason };
                }
                Err(error) => {
                    tracing::warn!(%connection, %error, "that a connection is dead cannot be kept");
                    pause(&mut wait).await;
                }
            }
        }
        let until_unix_ms = tried.now_unix_ms.saturating_add(tried.unavailable_ms);
        StepResult::Deferred { until_unix_ms, reason: ParkReason::Unavailable }
    }
}
