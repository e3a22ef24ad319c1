//! A provider that does what it is told, and counts what it was asked to do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use tidegate_runner::call::{Answer, Call, Caller, ParkSource, Reply};
use tidegate_runner::ids::RunId;
use tidegate_runner::ledger::{BoxFuture, SendState};

/// A call that has arrived, or was about to.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) run: RunId,
    pub(crate) tenant: Box<str>,
    /// Its path.
    pub(crate) path: String,
    /// What stands in `Idempotency-Key`.
    pub(crate) key: Option<String>,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Value,
    pub(crate) at: tokio::time::Instant,
}

/// What happens to a call.
#[derive(Debug, Clone)]
pub(crate) enum Does {
    Answers(Answer),
    /// Its worker goes down with it.
    Panics,
}

#[derive(Debug, Default)]
pub(crate) struct Provider {
    script: Mutex<BTreeMap<String, VecDeque<(Duration, Does)>>>,
    /// What it does where nothing was scripted: after so long, 200.
    usual: Mutex<Duration>,
    calls: Mutex<Vec<Made>>,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    by_tenant: BTreeMap<Box<str>, usize>,
    most: BTreeMap<Box<str>, usize>,
    by_path: BTreeMap<String, usize>,
    most_by_path: BTreeMap<String, usize>,
    /// Calls that were answered.
    ended: usize,
}

/// Counts a call for as long as somebody waits for it.
#[derive(Debug)]
struct Counted {
    provider: Arc<Provider>,
    tenant: Box<str>,
    path: String,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut under_way = lock(&self.provider.under_way);
        *under_way.by_tenant.entry(self.tenant.clone()).or_default() -= 1;
        *under_way.by_path.entry(self.path.clone()).or_default() -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Provider {
    /// The next answers to a path, one after the other; behind them it answers 200.
    pub(crate) fn answers(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        self.answers_after(path, Duration::from_millis(1), answers);
    }

    pub(crate) fn answers_after(&self, path: &str, after: Duration, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().map(|answer| (after, Does::Answers(answer)));
        lock(&self.script).entry(path.to_owned()).or_default().extend(answers);
    }

    pub(crate) fn panics(&self, path: &str, times: usize) {
        let panics = std::iter::repeat_n((Duration::from_millis(1), Does::Panics), times);
        lock(&self.script).entry(path.to_owned()).or_default().extend(panics);
    }

    pub(crate) fn takes(&self, usual: Duration) {
        *lock(&self.usual) = usual;
    }

    pub(crate) fn calls(&self) -> Vec<Made> {
        lock(&self.calls).clone()
    }

    /// Paths, in the order in which they were called.
    pub(crate) fn called(&self) -> Vec<String> {
        self.calls().into_iter().map(|made| made.path).collect()
    }

    pub(crate) fn count(&self, path: &str) -> usize {
        lock(&self.calls).iter().filter(|made| made.path == path).count()
    }

    /// The most calls of a tenant that were under way at once.
    pub(crate) fn most_of(&self, tenant: &str) -> usize {
        lock(&self.under_way).most.get(tenant).copied().unwrap_or(0)
    }

    /// The last call was given up before its end.
    pub(crate) fn is_busy(&self) -> bool {
        lock(&self.calls).len() != lock(&self.under_way).ended
    }

    pub(crate) fn most_at(&self, path: &str) -> usize {
        lock(&self.under_way).most_by_path.get(path).copied().unwrap_or(0)
    }

    fn begins(self: &Arc<Self>, tenant: &str, path: &str) -> Counted {
        let mut under_way = lock(&self.under_way);
        let UnderWay { by_tenant, most, by_path, most_by_path, .. } = &mut *under_way;
        let now = by_tenant.entry(tenant.into()).or_default();
        *now += 1;
        let most = most.entry(tenant.into()).or_default();
        *most = (*most).max(*now);
        let now = by_path.entry(path.to_owned()).or_default();
        *now += 1;
        let most = most_by_path.entry(path.to_owned()).or_default();
        *most = (*most).max(*now);
        Counted { provider: Arc::clone(self), tenant: tenant.into(), path: path.to_owned() }
    }
}

/// The door to it, as the engine has it.
#[derive(Debug)]
pub(crate) struct Door(pub(crate) Arc<Provider>);

impl Caller for Door {
    fn call(&self, call: Call) -> BoxFuture<'_, Answer> {
        let path = call.target.split('?').next().unwrap_or_default().to_owned();
        let key = call.headers.iter().find(|(name, _)| name == "idempotency-key");
        let text = str::from_utf8(&call.body).unwrap_or_default();
        let body = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        let made = Made {
            run: call.run,
            tenant: call.tenant.as_str().into(),
            path: path.clone(),
            key: key.map(|(_, value)| value.to_str().unwrap().to_owned()),
            headers: call.headers.iter().map(|(name, _)| name.as_str().to_owned()).collect(),
            body,
            at: tokio::time::Instant::now(),
        };
        lock(&self.0.calls).push(made);
        let scripted = lock(&self.0.script).get_mut(&path).and_then(VecDeque::pop_front);
        let usual = *lock(&self.0.usual);
        let (after, does) = scripted.unwrap_or_else(|| (usual, Does::Answers(response(200, "{}"))));
        let counted = self.0.begins(call.tenant.as_str(), &path);
        Box::pin(async move {
            tokio::time::sleep(after).await;
            lock(&counted.provider.under_way).ended += 1;
            drop(counted);
            match does {
                Does::Answers(answer) => answer,
                Does::Panics => panic!("as a test has asked"),
            }
        })
    }
}

pub(crate) fn response(status: u16, body: &'static str) -> Answer {
    whole(status, Bytes::from_static(body.as_bytes()))
}

pub(crate) fn whole(status: u16, body: Bytes) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/json".parse().unwrap());
    let reply = Reply::Response { status, headers: Arc::new(headers), body, cut: None };
    Answer { send_state: SendState::Response, correlation: Some("call_1".into()), reply }
}

/// It was sent, and nothing came.
pub(crate) fn silence() -> Answer {
    failed(SendState::SentNoResponse, "response-timeout")
}

pub(crate) fn failed(send_state: SendState, code: &str) -> Answer {
    Answer { send_state, correlation: None, reply: Reply::Failed { code: code.into(), detail: "as told".into() } }
}

/// The provider says when.
pub(crate) fn not_before(release_unix_ms: u64) -> Answer {
    let reply = Reply::Parked { release_unix_ms, source: ParkSource::Provider, status: Some(429) };
    Answer { send_state: SendState::Response, correlation: None, reply }
}
