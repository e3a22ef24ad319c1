//! What expressions see of a run, fetched as far as they need it.

use std::collections::BTreeMap;

use bytes::Bytes;
use domain::TenantId;
use serde_json::{Value, json};

use crate::automation::{Needs, Scope};
use crate::failure::FailureClass;
use crate::ids::StepId;
use crate::ledger::{Cause, Payload};

use super::super::ports::PortError;
use super::super::state::{RunState, Settled};
use super::Engine;
use super::turn::Work;

/// Evaluated where the worker is, if what they may look at is no larger: what that costs is bounded by the expression's own
/// budget. Larger ones go to a thread that may block.
pub(super) const INLINE_BYTES_MAX: u64 = 16 * 1024;

/// What was fetched so far, for one turn.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) scope: Scope,
    has_event: bool,
    has_input: bool,
    /// By the record that settled them.
    pub(super) steps: BTreeMap<StepId, u64>,
    /// All of it together.
    pub(super) bytes: u64,
}

/// Why a step cannot have what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lacks {
    /// For good.
    Failed(FailureClass, Box<str>),
    /// For now.
    Later,
}

impl From<PortError> for Lacks {
    fn from(error: PortError) -> Self {
        match error {
            PortError::Gone(why) => Self::Failed(FailureClass::InputExpired, why),
            PortError::Unavailable(_) => Self::Later,
            PortError::Tenant => {
                tracing::error!("what a run needs is another tenant's");
                Self::Failed(FailureClass::InputExpired, "what the step needs cannot be read".into())
            }
        }
    }
}

impl Inputs {
    pub(super) fn new(state: &RunState) -> Self {
        let admitted = &state.admitted;
        let scope = Scope::new(state.run, admitted.automation, admitted.version, state.admitted_unix_ms);
        Self { scope, has_event: false, has_input: false, steps: BTreeMap::new(), bytes: 0 }
    }
}

impl Work<'_> {
    /// Fetches what is needed and not there yet.
    pub(super) async fn fetch(&mut self, needs: &Needs) -> Result<(), Lacks> {
        if needs.event && !self.inputs.has_event {
            self.fetch_event().await?;
        }
        if needs.input && !self.inputs.has_input {
            if let Some(input) = self.state.admitted.input.clone() {
                let value = self.engine.value(&self.state.tenant, &input).await?;
                self.inputs.scope = std::mem::take(&mut self.inputs.scope).with_input(value);
                self.inputs.bytes += input.bytes;
            }
            self.inputs.has_input = true;
        }
        for id in &needs.steps {
            self.fetch_step(id).await?;
        }
        Ok(())
    }

    async fn fetch_event(&mut self) -> Result<(), Lacks> {
        let event = match &self.state.admitted.cause {
            Cause::Event { event, .. } | Cause::Replay { event, .. } => Some(*event),
            Cause::Manual { .. } | Cause::Again { .. } => None,
        };
        if let Some(event) = event {
            let facts = self.engine.within(self.engine.ports.events.read(&self.state.tenant, event)).await?;
            self.inputs.bytes += facts.body.len() as u64;
            self.inputs.scope = std::mem::take(&mut self.inputs.scope).with_event(facts);
        }
        self.inputs.has_event = true;
        Ok(())
    }

    async fn fetch_step(&mut self, id: &StepId) -> Result<(), Lacks> {
        let Some(step) = self.state.steps.get(id) else { return Ok(()) };
        let Some(settled) = step.settled() else { return Ok(()) };
        let seq = step.seq;
        if self.inputs.steps.get(id) == Some(&seq) {
            return Ok(());
        }
        let (status, output) = match settled.clone() {
            Settled::Done { output } => {
                self.inputs.bytes += output.bytes;
                ("done", self.engine.value(&self.state.tenant, &output).await?)
            }
            // Somebody has said to go on as if it had happened; what would have come of it nobody knows.
            Settled::Gap => ("done", Value::Null),
            Settled::Skipped => ("skipped", Value::Null),
            Settled::Failed { class, detail } => ("failed", json!({ "class": class.code(), "message": detail })),
        };
        self.inputs.scope.settle(id.clone(), status, output);
        self.inputs.steps.insert(id.clone(), seq);
        Ok(())
    }
}

impl Engine {
    /// A payload as JSON.
    pub(super) async fn value(&self, tenant: &TenantId, payload: &Payload) -> Result<Value, Lacks> {
        let bytes = self.within(self.ports.payloads.fetch(tenant, payload)).await?;
        serde_json::from_slice(&bytes)
            .map_err(|_| Lacks::Failed(FailureClass::InputExpired, "what is kept is not whole".into()))
    }

    /// Keeps a value.
    pub(super) async fn keep(&self, tenant: &TenantId, value: &Value) -> Result<Payload, Lacks> {
        let bytes = serde_json::to_vec(value).map_err(|_| Lacks::Later)?;
        Ok(self.within(self.ports.payloads.keep(tenant, Bytes::from(bytes))).await?)
    }
}
