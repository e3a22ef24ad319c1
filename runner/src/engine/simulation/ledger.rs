//! The ledger as it may be: it fails before or after it is durable, answers late, or never.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::TenantId;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::testing::lock;
use super::choices::Choices;
use crate::ids::RunId;
use crate::ledger::memory::{Fault, MemoryLedger};
use crate::ledger::{
    AppendError, BoxFuture, Claimable, Commit, Committed, LedgerStore, ReadError, Record, Tail, TailPosition,
};

#[derive(Debug)]
pub(super) struct Chaotic {
    pub(super) inner: Arc<MemoryLedger>,
    pub(super) choices: Arc<Choices>,
    pub(super) deafness: Mutex<Deafness>,
}

/// A time in which it answers nobody.
#[derive(Debug)]
pub(super) struct Deafness {
    /// It begins with this append.
    pub(super) left: Option<u32>,
    /// It has begun, and ends then.
    pub(super) until: Option<Instant>,
}

impl Chaotic {
    pub(super) fn was_deaf(&self) -> bool {
        lock(&self.deafness).until.is_some()
    }

    fn is_deaf(&self) -> bool {
        lock(&self.deafness).until.is_some_and(|until| Instant::now() < until)
    }

    /// Counts an append. The one that it begins with is durable.
    fn deafness_begins(&self) -> bool {
        let mut deafness = lock(&self.deafness);
        let Some(left) = deafness.left.as_mut() else { return false };
        *left = left.saturating_sub(1);
        let begins = *left == 0;
        if begins {
            deafness.left = None;
            deafness.until = Some(Instant::now() + Duration::from_secs(40));
        }
        begins
    }

    fn fault(&self) -> Option<Fault> {
        match self.choices.one_of(6, 170) {
            0 => None,
            1 => Some(Fault::FailBefore),
            2 => Some(Fault::FailAfter),
            3 => Some(Fault::NoReply),
            4 => Some(Fault::Late(Duration::from_millis(self.choices.millis()))),
            _ => Some(Fault::LateReply(Duration::from_millis(self.choices.millis()))),
        }
    }
}

impl LedgerStore for Chaotic {
    fn append(&self, commit: Commit) -> BoxFuture<'static, Result<Committed, AppendError>> {
        let drawn = self.fault();
        let fault = match (self.is_deaf(), self.deafness_begins()) {
            (true, _) => Some(Fault::FailBefore),
            (false, true) => Some(Fault::FailAfter),
            (false, false) => drawn,
        };
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            tokio::task::yield_now().await;
            if let Some(fault) = fault {
                inner.next(fault);
            }
            let appended = inner.append(commit).await;
            tokio::task::yield_now().await;
            appended
        })
    }

    fn read(&self, tenant: &TenantId, run: RunId) -> BoxFuture<'static, Result<Vec<Record>, ReadError>> {
        let fails = self.choices.one_of(2, 240) == 1 || self.is_deaf();
        let read = self.inner.read(tenant, run);
        Box::pin(async move {
            tokio::task::yield_now().await;
            if fails { Err(ReadError::Unavailable("as was drawn".into())) } else { read.await }
        })
    }

    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, Result<Tail, ReadError>> {
        self.inner.tail(from, max)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }

    fn renew(&self, run: RunId, lease: u64, until_unix_ms: u64) -> BoxFuture<'static, Result<(), AppendError>> {
        if self.choices.one_of(2, 200) == 1 || self.is_deaf() {
            return Box::pin(std::future::ready(Err(AppendError::Unavailable("as was drawn".into()))));
        }
        self.inner.renew(run, lease, until_unix_ms)
    }

    fn claimable(&self, now_unix_ms: u64, max: usize) -> BoxFuture<'static, Result<Vec<Claimable>, ReadError>> {
        self.inner.claimable(now_unix_ms, max)
    }
}
