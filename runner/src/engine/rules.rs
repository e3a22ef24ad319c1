//! The engine's rules, each with a test of its own: a worker over a ledger in memory, and a provider that answers as it is
//! told to.

mod acts;
mod doubt;
mod flow;
mod parks;
mod workers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use domain::{Clock, EndpointId};
use http::HeaderMap;
use tokio::sync::watch;

use super::acts::Acts;
use super::state::{RunState, StepState};
use super::testing::{KEY, Tables, TestConnectors, VirtualClock, automation_id, event, lock, step, tenant};
use super::worker::{Engine, Ports, Settings};
use crate::automation::Automation;
use crate::call::{Answer, Call, Caller, Cut, ParkSource, Reply};
use crate::ids::{RunId, Version};
use crate::ledger::memory::{MemoryLedger, MemoryLedgerStore};
use crate::ledger::{
    Admitted, Body, BoxFuture, Cause, Commit, LedgerStore, QueueClass, Record, RunStatus, SendState, Terminal, Writer,
};
use crate::schedule::{Drive, Ended, Turn};

/// A provider's next answer to a step, and after how long.
type Script = BTreeMap<String, VecDeque<(Duration, Answer)>>;

#[derive(Debug, Default)]
pub(super) struct Scripted {
    script: Mutex<Script>,
    pub(super) calls: Mutex<Vec<Made>>,
    under_way: Mutex<(usize, usize)>,
}

/// A call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) step: String,
    pub(super) key: String,
    pub(super) is_read_back: bool,
    pub(super) attempt: u32,
    pub(super) is_after_park: bool,
    pub(super) body: Bytes,
}

impl Caller for Scripted {
    fn call(&self, call: Call) -> BoxFuture<'_, Answer> {
        let is_read_back = call.method == http::Method::GET;
        let input: serde_json::Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let key = call.headers.iter().find(|(name, _)| *name == KEY).unwrap().1.to_str().unwrap().to_owned();
        let step = if is_read_back { "read-back" } else { input["for"].as_str().unwrap_or("edited") }.to_owned();
        lock(&self.calls).push(Made {
            step: step.clone(),
            key,
            is_read_back,
            attempt: call.attempt,
            is_after_park: call.is_after_park,
            body: call.body,
        });
        let scripted = lock(&self.script).get_mut(&step).and_then(VecDeque::pop_front);
        let (after, answer) = scripted.unwrap_or_else(|| (Duration::from_millis(1), response(200, "done")));
        Box::pin(async move {
            {
                let mut under_way = lock(&self.under_way);
                under_way.0 += 1;
                under_way.1 = under_way.1.max(under_way.0);
            }
            tokio::time::sleep(after).await;
            lock(&self.under_way).0 -= 1;
            answer
        })
    }
}

pub(super) fn response(status: u16, body: &'static str) -> Answer {
    let body = Bytes::from_static(body.as_bytes());
    let reply = Reply::Response { status, headers: Arc::new(HeaderMap::new()), body, cut: None };
    Answer { send_state: SendState::Response, correlation: Some("call_1".into()), reply }
}

/// A success that is larger than is kept.
pub(super) fn cut(beginning: &'static str, is_whole: bool) -> Answer {
    let mut answer = response(200, beginning);
    if let Reply::Response { cut, .. } = &mut answer.reply {
        *cut = Some(Cut { bytes: 9 << 20, digest: [9; 32], is_whole });
    }
    answer
}

pub(super) fn failed(send_state: SendState, code: &str) -> Answer {
    Answer { send_state, correlation: None, reply: Reply::Failed { code: code.into(), detail: "as told".into() } }
}

pub(super) fn refused(code: &str) -> Answer {
    let reply = Reply::Refused { code: code.into(), detail: "as told".into(), retry_after: None };
    Answer { send_state: SendState::NotSent, correlation: None, reply }
}

/// One run of one automation.
pub(super) struct Bench {
    pub(super) clock: Arc<VirtualClock>,
    pub(super) ledger: Arc<MemoryLedger>,
    pub(super) tables: Arc<Tables>,
    pub(super) provider: Arc<Scripted>,
    pub(super) engine: Arc<Engine>,
    pub(super) acts: Acts,
    pub(super) nudges: watch::Sender<u64>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) run: RunId,
}

impl Bench {
    pub(super) async fn new(automation: Automation) -> Self {
        Self::with(automation, Settings::new("node")).await
    }

    pub(super) async fn with(automation: Automation, settings: Settings) -> Self {
        let clock = VirtualClock::new();
        let ledger = Arc::new(MemoryLedger::of_one_process(&MemoryLedgerStore::default()));
        let tables = Arc::new(Tables::default());
        let deadline = automation.deadline;
        *lock(&tables.automation) = Some(Arc::new(automation));
        let provider = Arc::new(Scripted::default());
        let ports = Ports {
            clock: Arc::<VirtualClock>::clone(&clock),
            ledger: Arc::<MemoryLedger>::clone(&ledger),
            definitions: Arc::<Tables>::clone(&tables),
            automations: Arc::<Tables>::clone(&tables),
            events: Arc::<Tables>::clone(&tables),
            payloads: Arc::<Tables>::clone(&tables),
            connectors: Arc::new(TestConnectors),
            caller: Arc::<Scripted>::clone(&provider),
            authority: Arc::<Tables>::clone(&tables),
            notices: Arc::<Tables>::clone(&tables),
        };
        let acts = Acts {
            clock: Arc::<VirtualClock>::clone(&clock),
            ledger: Arc::<MemoryLedger>::clone(&ledger),
            definitions: Arc::<Tables>::clone(&tables),
            automations: Arc::<Tables>::clone(&tables),
            payloads: Arc::<Tables>::clone(&tables),
            queue: Arc::<Tables>::clone(&tables),
        };
        let engine = Arc::new(Engine::new(ports, settings));
        let run = RunId::of_event(&tenant(), automation_id(), Version::MIN, event());
        let bench = Self {
            clock,
            ledger,
            tables,
            provider,
            engine,
            acts,
            nudges: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            run,
        };
        bench.admit(deadline).await;
        bench
    }

    async fn admit(&self, deadline: Duration) {
        let now = self.clock.unix_ms();
        let admitted = Admitted {
            automation: automation_id(),
            version: Version::MIN,
            cause: Cause::Event { event: event(), endpoint: EndpointId::parse("wh_1").unwrap() },
            class: QueueClass::Interactive,
            deadline_unix_ms: now + u64::try_from(deadline.as_millis()).unwrap(),
            input: None,
        };
        self.append(Writer::Anyone, vec![Body::Admitted(admitted)]).await;
    }

    pub(super) async fn append(&self, writer: Writer, bodies: Vec<Body>) {
        let commit = Commit {
            tenant: tenant(),
            run: self.run,
            expected: self.ledger.records().len() as u64,
            writer,
            at_unix_ms: self.clock.unix_ms(),
            bodies,
        };
        self.ledger.append(commit).await.unwrap();
    }

    /// The next answers to a step, one after the other; behind them it answers 200.
    pub(super) fn answers(&self, step: &str, answers: impl IntoIterator<Item = Answer>) {
        self.answers_after(step, Duration::from_millis(1), answers);
    }

    pub(super) fn answers_after(&self, step: &str, after: Duration, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().map(|answer| (after, answer));
        lock(&self.provider.script).entry(step.to_owned()).or_default().extend(answers);
    }

    pub(super) fn parked(&self, after_ms: u64, source: ParkSource) -> Answer {
        self.parked_by(after_ms, source, 429)
    }

    pub(super) fn parked_by(&self, after_ms: u64, source: ParkSource, status: u16) -> Answer {
        let release_unix_ms = self.clock.unix_ms() + after_ms;
        let reply = Reply::Parked { release_unix_ms, source, status: Some(status) };
        Answer { send_state: SendState::Response, correlation: None, reply }
    }

    pub(super) fn a_turn(&self) -> Turn {
        let nudged = self.nudges.subscribe();
        let stopping = self.stopping.subscribe();
        Turn { tenant: tenant(), run: self.run, class: QueueClass::Interactive, nudged, stopping }
    }

    pub(super) async fn turn(&self) -> Ended {
        self.engine.drive(self.a_turn()).await
    }

    /// A worker that is lost so much later, or ends before.
    pub(super) async fn lost_after(&self, ms: u64) -> Option<Ended> {
        tokio::time::timeout(Duration::from_millis(ms), self.turn()).await.ok()
    }

    /// Turn after turn, until it is over or waits for somebody.
    pub(super) async fn to_the_end(&self) -> RunState {
        for _ in 0..100 {
            match self.turn().await {
                Ended::Parked { until_unix_ms: Some(until), .. } if self.state().status() == RunStatus::Parked => {
                    let wait = until.saturating_sub(self.clock.unix_ms());
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
                Ended::Terminal | Ended::Parked { .. } => return self.state(),
                Ended::Fenced => {}
                Ended::Unavailable { retry_ms } => tokio::time::sleep(Duration::from_millis(retry_ms)).await,
            }
        }
        panic!("it does not end: {:?}", self.state());
    }

    pub(super) fn clock_now(&self) -> u64 {
        self.clock.unix_ms()
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.ledger.records()
    }

    pub(super) fn state(&self) -> RunState {
        RunState::fold(&self.records()).unwrap()
    }

    pub(super) fn step(&self, name: &str) -> StepState {
        self.state().steps.get(&step(name)).cloned().unwrap_or_default()
    }

    pub(super) fn terminal(&self) -> Terminal {
        self.state().terminal.unwrap()
    }

    pub(super) fn calls(&self) -> Vec<Made> {
        lock(&self.provider.calls).clone()
    }

    /// Which steps were called, in order.
    pub(super) fn called(&self) -> Vec<String> {
        self.calls().into_iter().map(|made| made.step).collect()
    }

    pub(super) fn most_at_once(&self) -> usize {
        lock(&self.provider.under_way).1
    }
}
