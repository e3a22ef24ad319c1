//! A register behind a network that loses, delays and repeats, driven step by step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use crate::breaker::fleet::{Kept, Register, Written};
use crate::pair::ProviderKey;
use crate::quota::AskError;

#[derive(Debug, Clone)]
enum Op {
    Read,
    Write { expected: u64, bytes: Vec<u8>, ttl_ms: u64 },
}

#[derive(Debug)]
enum Answer {
    Kept(Kept),
    Written(Written),
    Lost,
}

/// What is under way, what was, and what the keeper has.
#[derive(Debug, Default)]
pub(super) struct Net {
    pub(super) keeper_ms: u64,
    values: HashMap<ProviderKey, (u64, Vec<u8>, u64)>,
    last_version: u64,
    /// Whom nobody waits for any more are there as well: they may come late, or again.
    messages: Vec<(u64, ProviderKey, Op)>,
    answers: HashMap<u64, Answer>,
    last_id: u64,
}

/// A node's way to the register.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    net: Arc<Mutex<Net>>,
    pub(super) is_shared: bool,
}

impl Wire {
    pub(super) fn new() -> Self {
        Self { net: Arc::default(), is_shared: true }
    }

    pub(super) fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap()
    }

    async fn ask(&self, provider: ProviderKey, op: Op) -> Answer {
        let id = {
            let mut net = self.net();
            net.last_id += 1;
            let id = net.last_id;
            net.messages.push((id, provider, op));
            id
        };
        std::future::poll_fn(|_| match self.net().answers.remove(&id) {
            Some(answer) => std::task::Poll::Ready(answer),
            None => std::task::Poll::Pending,
        })
        .await
    }
}

#[async_trait]
impl Register for Wire {
    async fn read(&self, provider: ProviderKey) -> Result<Kept, AskError> {
        match self.ask(provider, Op::Read).await {
            Answer::Kept(kept) => Ok(kept),
            Answer::Written(_) | Answer::Lost => Err(AskError::Timeout),
        }
    }

    async fn write(
        &self,
        provider: ProviderKey,
        expected: u64,
        bytes: &[u8],
        ttl: Duration,
    ) -> Result<Written, AskError> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap();
        match self.ask(provider, Op::Write { expected, bytes: bytes.to_vec(), ttl_ms }).await {
            Answer::Written(written) => Ok(written),
            Answer::Kept(_) | Answer::Lost => Err(AskError::Timeout),
        }
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }
}

impl Net {
    pub(super) fn kept(&mut self, provider: ProviderKey) -> Kept {
        let now_ms = self.keeper_ms;
        self.values.retain(|_, (.., until_ms)| *until_ms > now_ms);
        let (version, bytes, _) = self.values.get(&provider).cloned().unwrap_or_default();
        Kept { version, bytes, now_ms }
    }

    pub(super) fn set(&mut self, provider: ProviderKey, bytes: &[u8]) {
        self.last_version += 1;
        self.values.insert(provider, (self.last_version, bytes.to_vec(), u64::MAX));
    }

    /// Everything is forgotten.
    pub(super) fn flush(&mut self) {
        self.values.clear();
    }

    /// Another server takes over that has this, and not what came after.
    pub(super) fn snapshot(&self) -> HashMap<ProviderKey, (u64, Vec<u8>, u64)> {
        self.values.clone()
    }

    pub(super) fn take_over(&mut self, snapshot: HashMap<ProviderKey, (u64, Vec<u8>, u64)>) {
        self.values = snapshot;
    }

    fn apply(&mut self, provider: ProviderKey, op: &Op) -> Answer {
        let kept = self.kept(provider);
        match op {
            Op::Read => Answer::Kept(kept),
            Op::Write { expected, .. } if *expected != kept.version => Answer::Written(Written::Newer(kept)),
            Op::Write { bytes, ttl_ms, .. } => {
                self.last_version += 1;
                let version = self.last_version;
                self.values.insert(provider, (version, bytes.clone(), self.keeper_ms + ttl_ms));
                Answer::Written(Written::Done { version })
            }
        }
    }

    fn pick(&self, nth: usize) -> Option<usize> {
        nth.checked_rem(self.messages.len())
    }

    /// A message arrives, and its answer does.
    pub(super) fn deliver(&mut self, nth: usize) {
        let Some(at) = self.pick(nth) else { return };
        let (id, provider, op) = self.messages.remove(at);
        let answer = self.apply(provider, &op);
        self.answers.insert(id, answer);
    }

    /// Everything that is under way arrives, in its order.
    pub(super) fn deliver_all(&mut self) -> bool {
        let any = !self.messages.is_empty();
        while !self.messages.is_empty() {
            self.deliver(0);
        }
        any
    }

    /// A message arrives, and will once more; its answer does not.
    pub(super) fn repeat(&mut self, nth: usize) {
        let Some(at) = self.pick(nth) else { return };
        let (id, provider, op) = self.messages[at].clone();
        self.apply(provider, &op);
        self.answers.insert(id, Answer::Lost);
    }

    /// Who sent it waits no longer; it may arrive all the same.
    pub(super) fn delay(&mut self, nth: usize) {
        let Some(at) = self.pick(nth) else { return };
        let id = self.messages[at].0;
        self.answers.insert(id, Answer::Lost);
    }

    /// It never arrives.
    pub(super) fn lose(&mut self, nth: usize) {
        let Some(at) = self.pick(nth) else { return };
        let (id, ..) = self.messages.remove(at);
        self.answers.insert(id, Answer::Lost);
    }
}
