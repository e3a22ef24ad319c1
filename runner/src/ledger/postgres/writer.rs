//! One task per shard: what waits while a batch is under way is the next one.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::batch::Batch;
use crate::ledger::rules::commit_bytes;
use crate::ledger::store::{AppendError, Commit, Committed};
use crate::postgres::{Fault, Pool, Tries, fly};

/// Of all that waits, in all queues.
pub(super) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Of a batch: little enough that the shard's row is held for milliseconds.
const BATCH_COMMITS_MAX: usize = 256;
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// A commit and who waits for it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) commit: Commit,
    pub(super) answer: oneshot::Sender<Result<Committed, AppendError>>,
    /// Nobody waits for longer.
    pub(super) until: Instant,
    pub(super) _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct Writing {
    shard: u8,
    pool: Arc<Pool>,
    changes: watch::Sender<u64>,
}

impl Writing {
    pub(super) fn new(shard: u8, pool: Arc<Pool>, changes: watch::Sender<u64>) -> Self {
        Self { shard, pool, changes }
    }

    /// Until nobody can ask any more and everybody is answered.
    pub(super) async fn run(self, mut queue: mpsc::UnboundedReceiver<Asked>) {
        let mut waiting = VecDeque::new();
        let mut taken = Vec::with_capacity(BATCH_COMMITS_MAX);
        loop {
            if waiting.is_empty() && queue.recv_many(&mut taken, BATCH_COMMITS_MAX).await == 0 {
                return;
            }
            while let Ok(asked) = queue.try_recv() {
                taken.push(asked);
            }
            // What has waited behind a database that does not answer is not begun: whoever asked has long been told.
            let now = Instant::now();
            waiting.extend(taken.drain(..));
            waiting.retain(|asked| now < asked.until);
            let batch = next_batch(&mut waiting);
            self.write(batch).await;
        }
    }

    async fn write(&self, batch: Vec<Asked>) {
        let answers = match self.commit(&batch).await {
            Ok(answers) => answers,
            Err(fault) => batch.iter().map(|_| Err(told(&fault))).collect(),
        };
        if answers.iter().any(Result::is_ok) {
            self.changes.send_modify(|change| *change += 1);
        }
        for (asked, answer) in batch.into_iter().zip(answers) {
            // Whoever has gone does not want to know.
            let _is_gone = asked.answer.send(answer).is_err();
        }
    }

    /// Tries again only what is known to have left nothing.
    async fn commit(&self, asked: &[Asked]) -> Result<Vec<Result<Committed, AppendError>>, Fault> {
        let token = token()?;
        let commits = || asked.iter().map(|asked| &asked.commit);
        let batch = Batch::new(self.shard, token, commits());
        let mut tries = Tries::new(self.pool.settings.answer_within);
        loop {
            let fault = match timeout_at(tries.until, self.try_once(&batch)).await {
                Ok(Ok(heads)) => return Ok(batch.answers(commits(), &heads)),
                Ok(Err(fault @ Fault::Undone(_))) => fault,
                Ok(Err(fault)) => return Err(fault),
                Err(_) => return Err(tries.given_up()),
            };
            tries.again_after(fault).await?;
        }
    }

    async fn try_once(&self, batch: &Batch) -> Result<Vec<tokio_postgres::Row>, Fault> {
        let mut session = self.pool.session().await?;
        let mut rows = fly(&mut session, &batch.statements()).await?;
        session.give_back();
        Ok(rows.pop().unwrap_or_default())
    }
}

/// The first of each run, in the order in which they were asked for. Those that wait behind one of their own run go with
/// the next.
fn next_batch(waiting: &mut VecDeque<Asked>) -> Vec<Asked> {
    let mut batch = Vec::new();
    let mut runs = HashSet::new();
    let mut later = VecDeque::new();
    let mut bytes = 0;
    while let Some(asked) = waiting.pop_front() {
        if batch.len() == BATCH_COMMITS_MAX || (bytes >= BATCH_BYTES_MAX && !batch.is_empty()) {
            later.push_back(asked);
            break;
        }
        if runs.insert(asked.commit.run) {
            bytes += commit_bytes(&asked.commit);
            batch.push(asked);
        } else {
            later.push_back(asked);
        }
    }
    later.append(waiting);
    *waiting = later;
    batch
}

fn token() -> Result<i64, Fault> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Fault::Refused(error.to_string().into()))?;
    Ok(i64::from_ne_bytes(bytes))
}

fn told(fault: &Fault) -> AppendError {
    match fault {
        Fault::Full(_) => AppendError::Full,
        Fault::Undone(_) | Fault::Unknown(_) | Fault::Duplicate { .. } | Fault::Refused(_) => {
            AppendError::Unavailable(fault.to_string().into())
        }
    }
}
