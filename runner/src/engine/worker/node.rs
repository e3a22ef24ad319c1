//! Beginning a node: conditions, values, waits, and the intent of a call.

use std::sync::Arc;

use http::Method;
use serde_json::Value;

use crate::automation::{
    Automation, ConnectionState, Delay, ExpressionFailed, Kind, Needs, Node, Scope, parse_rfc3339,
};
use crate::call::Call;
use crate::connector::{Action, ReplaySafety, Request};
use crate::failure::FailureClass;
use crate::ids::EffectKey;
use crate::ledger::{Body, Intent, Kept, ParkReason, Payload, QueueClass, StepResult};

use super::super::backoff;
use super::super::ports::{Asked, Permission};
use super::super::state::{RunState, StepState};
use super::super::verdict;
use super::Engine;
use super::decide::Round;
use super::input::{INLINE_BYTES_MAX, Inputs, Lacks};
use super::turn::{Start, UnderWay, Work};

/// What a call is made of.
struct Prepared {
    action: Arc<dyn Action>,
    input: Value,
    kept: Payload,
}

type Evaluated<T> = Result<T, ExpressionFailed>;

impl Work<'_> {
    pub(super) async fn begin_node(&mut self, round: &mut Round, at: usize) {
        let began = self.try_begin(round, at).await;
        self.or_say(round, at, began);
    }

    /// What a step lacks is its outcome.
    fn or_say(&mut self, round: &mut Round, at: usize, done: Result<(), Lacks>) {
        match done {
            Ok(()) => {}
            Err(Lacks::Failed(class, detail)) => {
                let step = self.automation.nodes.get(at).and_then(|node| self.state.steps.get(&node.id));
                let is_in_doubt = step.is_some_and(|step| step.doubt.is_some());
                let detail = if is_in_doubt { verdict::doubtful(&detail) } else { verdict::cut(&detail) };
                self.settle(round, at, StepResult::Failed { class, detail });
            }
            Err(Lacks::Later) => {
                // From now on: it may have been waited for since the round began.
                let now_unix_ms = self.engine.ports.clock.unix_ms().max(round.at_unix_ms);
                let until_unix_ms = now_unix_ms.saturating_add(self.unavailable_ms(at).max(1));
                self.settle(round, at, StepResult::Deferred { until_unix_ms, reason: ParkReason::Unavailable });
            }
        }
    }

    async fn try_begin(&mut self, round: &mut Round, at: usize) -> Result<(), Lacks> {
        let automation = Arc::clone(&self.automation);
        let Some(node) = automation.nodes.get(at) else { return Ok(()) };
        if let Some(when) = &node.when {
            let holds = self.evaluate(at, when.needs().clone(), |node, scope| {
                node.when.as_ref().map_or(Ok(true), |when| when.holds(scope))
            });
            if !holds.await? {
                self.settle(round, at, StepResult::Skipped);
                return Ok(());
            }
        }
        match &node.kind {
            Kind::Call { .. } => self.try_intend(round, at, false).await?,
            Kind::Branch { cases } => {
                let mut needs = Needs::default();
                cases.iter().for_each(|(_, condition)| needs.add(condition.needs()));
                let case = self.evaluate(at, needs, choose).await?;
                let output = inline(&Value::String(case));
                self.settle(round, at, StepResult::Done { output });
            }
            Kind::Transform { value } => {
                let value = self.evaluate(at, value.needs().clone(), |node, scope| {
                    let Kind::Transform { value } = &node.kind else { return Ok(Value::Null) };
                    value.render(scope)
                });
                let value = value.await?;
                let output = self.engine.keep(&self.state.tenant, &value).await?;
                self.settle(round, at, StepResult::Done { output });
            }
            Kind::Delay(delay) => {
                let until_unix_ms = match delay {
                    Delay::For(span) => {
                        let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                        round.at_unix_ms.saturating_add(span)
                    }
                    Delay::Until(until) => {
                        let value = self.evaluate(at, until.needs().clone(), |node, scope| {
                            let Kind::Delay(Delay::Until(until)) = &node.kind else { return Ok(Value::Null) };
                            until.render(scope)
                        });
                        time(&value.await?)?
                    }
                };
                if until_unix_ms > round.at_unix_ms {
                    self.settle(round, at, StepResult::Deferred { until_unix_ms, reason: ParkReason::Delay });
                } else {
                    self.settle(round, at, StepResult::Done { output: inline(&Value::Null) });
                }
            }
        }
        Ok(())
    }

    /// A node that makes no call and had to wait can go on: a delay is over, and what was not to be had is asked for again.
    pub(super) async fn wake(&mut self, round: &mut Round, at: usize) {
        let waited = self.automation.nodes.get(at).and_then(|node| self.state.steps.get(&node.id));
        let is_delay = waited.is_some_and(|step| {
            matches!(step.standing, super::super::state::Standing::Deferred { reason: ParkReason::Delay, .. })
        });
        if is_delay {
            self.settle(round, at, StepResult::Done { output: inline(&Value::Null) });
        } else {
            self.begin_node(round, at).await;
        }
    }

    async fn evaluate<T: Send + 'static>(
        &mut self,
        at: usize,
        needs: Needs,
        evaluate: fn(&Node, &Scope) -> Evaluated<T>,
    ) -> Result<T, Lacks> {
        self.fetch(&needs).await?;
        let run = move |automation: &Automation, scope: &Scope| match automation.nodes.get(at) {
            Some(node) => {
                evaluate(node, scope).map_err(|failed| Lacks::Failed(FailureClass::ExpressionFailed, failed.0))
            }
            None => Err(Lacks::Failed(FailureClass::ConfigurationMissing, "the node is not there".into())),
        };
        if self.inputs.bytes <= INLINE_BYTES_MAX {
            return run(&self.automation, &self.inputs.scope);
        }
        let (automation, scope) = (Arc::clone(&self.automation), std::mem::take(&mut self.inputs.scope));
        let ran = tokio::task::spawn_blocking(move || {
            let value = run(&automation, &scope);
            (scope, value)
        });
        let Ok((scope, value)) = ran.await else {
            // What had been fetched is gone with it.
            self.inputs = Inputs::new(&self.state);
            return Err(Lacks::Failed(FailureClass::ExpressionFailed, "the expression could not be evaluated".into()));
        };
        self.inputs.scope = scope;
        value
    }

    pub(super) async fn intend(&mut self, round: &mut Round, at: usize, is_read_back: bool) {
        let intended = self.try_intend(round, at, is_read_back).await;
        match intended {
            // What is in doubt does not fail for that it can neither be asked about nor made again: somebody may know.
            Err(Lacks::Failed(..)) if is_read_back || self.is_in_doubt(at) => {
                self.known.safety.insert(at, ReplaySafety::Unsafe);
            }
            other => self.or_say(round, at, other),
        }
    }

    async fn try_intend(&mut self, round: &mut Round, at: usize, is_read_back: bool) -> Result<(), Lacks> {
        let automation = Arc::clone(&self.automation);
        let Some(node) = automation.nodes.get(at) else { return Ok(()) };
        let Kind::Call { connection, .. } = &node.kind else { return Ok(()) };
        if self.is_dead(at, connection).await? {
            return Ok(());
        }
        let prepared = self.prepare(at, node).await?;
        let attempt = self.next_attempt(at);
        let effect = EffectKey::new(self.state.run, &node.id, attempt.logical);
        let safety = prepared.action.safety(&prepared.input);
        let request = if is_read_back {
            prepared.action.read_back(&prepared.input, effect).ok_or_else(no_read_back)?
        } else {
            ask_again(self.engine, &self.state, round.at_unix_ms, node).await?;
            prepared.action.request(&prepared.input, effect)
        };
        let request = request.map_err(|fault| Lacks::Failed(FailureClass::InputInvalid, fault.0))?;
        let intent = Intent {
            step: node.id.clone(),
            attempt,
            effect,
            is_read_back,
            connection: Some(connection.clone()),
            input: prepared.kept,
        };
        let call = self.call(node, connection, request, is_read_back);
        let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&call.method);
        let is_harmless = is_safe || !prepared.action.is_effectful(&prepared.input);
        let (action, input) = (prepared.action, prepared.input);
        let under_way = UnderWay { attempt, action, input, effect, is_read_back, is_harmless, safety };
        self.say(round, Body::Intent(intent));
        round.starts.push(Start { at, under_way, call });
        Ok(())
    }

    fn call(&self, node: &Node, connection: &domain::ConnectionId, request: Request, is_read_back: bool) -> Call {
        let step = self.state.steps.get(&node.id);
        let tries = step.filter(|_| !is_read_back).map_or(0, |step| step.tries);
        Call {
            tenant: self.state.tenant.clone(),
            connection: connection.clone(),
            run: self.state.run,
            automation: self.state.admitted.automation,
            is_bulk: self.state.admitted.class == QueueClass::Bulk,
            method: request.method,
            target: request.target,
            headers: request.headers,
            body: request.body,
            timeout: node.timeout,
            attempt: tries.saturating_add(1),
            is_after_park: step.is_some_and(|step| step.deferrals > 0),
        }
    }

    /// The input as the graph or the author gives it, and the action. What this asking has sent once is what it sends again:
    /// one effect key never stands for two requests.
    async fn prepare(&mut self, at: usize, node: &Node) -> Result<Prepared, Lacks> {
        let Kind::Call { connection, action, input } = &node.kind else {
            return Err(Lacks::Failed(FailureClass::ConfigurationMissing, "the node makes no call".into()));
        };
        let found = self.engine.ports.connectors.action(&self.state.tenant, connection, action);
        let action = found.map_err(|why| Lacks::Failed(FailureClass::ConfigurationMissing, why.to_string().into()))?;
        let step = self.state.steps.get(&node.id);
        let given = step.and_then(|step| step.input.clone());
        let sent = step.and_then(|step| step.sent.clone());
        if let Some(kept) = given {
            let input = self.engine.value(&self.state.tenant, &kept).await?;
            return Ok(Prepared { action, input, kept });
        }
        let made = self.evaluate(at, input.needs().clone(), |node, scope| {
            let Kind::Call { input, .. } = &node.kind else { return Ok(Value::Null) };
            input.render(scope)
        });
        let made = made.await;
        let Some(sent) = sent else {
            let input = made?;
            let kept = self.engine.keep(&self.state.tenant, &input).await?;
            return Ok(Prepared { action, input, kept });
        };
        if let Ok(input) = made
            && digest(&input) == Some(sent.digest)
        {
            return Ok(Prepared { action, input, kept: sent });
        }
        let input = self.engine.value(&self.state.tenant, &sent).await?;
        if digest(&input) == Some(sent.digest) {
            return Ok(Prepared { action, input, kept: sent });
        }
        let why = "what was sent before is no longer kept, and cannot be made again";
        Err(Lacks::Failed(FailureClass::InputExpired, why.into()))
    }

    /// How safe it is to do the node's action again. What is no longer configured is not safe, and neither is what only
    /// the provider's memory of the effect's key makes so, once that has ended.
    pub(super) async fn classify(&mut self, round: &mut Round, at: usize) {
        let automation = Arc::clone(&self.automation);
        let Some(node) = automation.nodes.get(at) else { return };
        let safety = match self.prepare(at, node).await {
            Ok(prepared) if self.is_forgotten(node, &prepared) => ReplaySafety::Unsafe,
            Ok(prepared) => prepared.action.safety(&prepared.input),
            // Nobody is asked for what a part of ours will say later.
            Err(Lacks::Later) => return self.or_say(round, at, Err(Lacks::Later)),
            Err(Lacks::Failed(..)) => ReplaySafety::Unsafe,
        };
        self.known.safety.insert(at, safety);
    }

    /// Whether the provider may have forgotten the effect's key, half a minute and a call's time before it does so by its own
    /// clock.
    fn is_forgotten(&self, node: &Node, prepared: &Prepared) -> bool {
        let Some(remembered) = prepared.action.remembered_for(&prepared.input) else { return false };
        let first = self.state.steps.get(&node.id).and_then(|step| step.first_sent_unix_ms);
        let now = self.engine.ports.clock.unix_ms();
        let age = first.map_or(0, |first| u128::from(now.saturating_sub(first)));
        age + node.timeout.as_millis() + 30_000 >= remembered.as_millis()
    }

    /// Whether the definitions say that the connection has to be made anew; asked once in a turn.
    async fn is_dead(&mut self, at: usize, connection: &domain::ConnectionId) -> Result<bool, Lacks> {
        let is_dead = if let Some(is_dead) = self.dead.get(connection) {
            *is_dead
        } else {
            let asked = self.engine.ports.definitions.connection_state(&self.state.tenant, connection);
            let state = self.engine.within(asked).await;
            let is_dead = matches!(state.map_err(|_| Lacks::Later)?, ConnectionState::NeedsReconnect { .. });
            self.dead.insert(connection.clone(), is_dead);
            is_dead
        };
        if is_dead {
            self.known.dead.insert(at);
        }
        Ok(is_dead)
    }

    fn is_in_doubt(&self, at: usize) -> bool {
        let step = self.automation.nodes.get(at).and_then(|node| self.state.steps.get(&node.id));
        step.and_then(|step| step.doubt.as_ref()).is_some_and(|doubt| !doubt.is_accepted)
    }

    pub(super) fn unavailable_ms(&self, at: usize) -> u64 {
        let Some(node) = self.automation.nodes.get(at) else { return 1_000 };
        let fresh = StepState::default();
        let step = self.state.steps.get(&node.id).unwrap_or(&fresh);
        backoff::unavailable_ms(self.state.run, &node.id, step)
    }
}

/// An old run asks again whether it may.
async fn ask_again(engine: &Engine, state: &RunState, now_unix_ms: u64, node: &Node) -> Result<(), Lacks> {
    let Kind::Call { connection, action, .. } = &node.kind else { return Ok(()) };
    let age = now_unix_ms.saturating_sub(state.admitted_unix_ms);
    if u128::from(age) < engine.settings.authorise_after.as_millis() {
        return Ok(());
    }
    let asked = Asked {
        tenant: state.tenant.clone(),
        automation: state.admitted.automation,
        run: state.run,
        step: node.id.clone(),
        connection: connection.clone(),
        action: action.clone(),
    };
    match engine.within(engine.ports.authority.may_call(asked)).await {
        Ok(Permission::Yes) => Ok(()),
        Ok(Permission::No(why)) => Err(Lacks::Failed(FailureClass::NoLongerAuthorised, why)),
        Err(_) => Err(Lacks::Later),
    }
}

fn no_read_back() -> Lacks {
    Lacks::Failed(FailureClass::ConfigurationMissing, "the action has no read-back".into())
}

fn choose(node: &Node, scope: &Scope) -> Evaluated<String> {
    let Kind::Branch { cases } = &node.kind else { return Ok(String::new()) };
    for (case, condition) in cases {
        if condition.holds(scope)? {
            return Ok(case.to_string());
        }
    }
    Ok("otherwise".to_owned())
}

/// A time in RFC 3339, or Unix seconds, in milliseconds since the Unix epoch.
fn time(value: &Value) -> Result<u64, Lacks> {
    let seconds = |seconds: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was looked at")]
        (seconds.is_finite() && (0.0..4e12).contains(&seconds)).then_some((seconds * 1_000.0) as u64)
    };
    let found = match value {
        Value::String(text) => parse_rfc3339(text),
        Value::Number(number) => number.as_f64().and_then(seconds),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    found.ok_or_else(|| {
        let why = "a delay's `until` is a time in RFC 3339 or in Unix seconds, and this is neither";
        Lacks::Failed(FailureClass::ExpressionFailed, why.into())
    })
}

fn digest(value: &Value) -> Option<[u8; 32]> {
    Some(*blake3::hash(&serde_json::to_vec(value).ok()?).as_bytes())
}

/// A small value of our own making.
fn inline(value: &Value) -> Payload {
    let bytes = bytes::Bytes::from(value.to_string());
    Payload { bytes: bytes.len() as u64, digest: *blake3::hash(&bytes).as_bytes(), kept: Kept::Inline(bytes) }
}
