//! The thread that writes.

use std::collections::HashSet;
use std::sync::Arc;

use domain::{Clock, TenantId};
use eventlog::segment::{Append, AppendError, Entry, Journal};
use tokio::sync::mpsc;

use super::super::store::{ConnectionState, StoreError, Stored};
use super::projection::{Mark, Projection};
use super::record::Fact;
use super::request::{Change, Request, Waiting};
use crate::ids::AutomationId;

/// What one durable write holds at most.
const BATCH_MAX: usize = 256;

pub(super) struct Writer {
    journal: Arc<Journal>,
    index: Arc<Projection>,
    clock: Arc<dyn Clock>,
    requests: mpsc::Receiver<Request>,
    /// An append or the index has failed: what is durable has to be found out before anything is judged.
    is_behind: bool,
}

/// What is to be written, and who waits for it.
struct Writing {
    fact: Fact,
    bytes: Vec<u8>,
    waiting: Waiting,
}

impl Writer {
    pub(super) fn new(
        journal: Arc<Journal>,
        index: Arc<Projection>,
        clock: Arc<dyn Clock>,
        requests: mpsc::Receiver<Request>,
    ) -> Self {
        Self { journal, index, clock, requests, is_behind: false }
    }

    pub(super) fn run(mut self) {
        let mut held = None;
        while let Some(first) = held.take().or_else(|| self.requests.blocking_recv()) {
            let mut batch = vec![first];
            let mut tenants: HashSet<TenantId> = batch.iter().map(|request| request.tenant.clone()).collect();
            while batch.len() < BATCH_MAX
                && let Ok(next) = self.requests.try_recv()
            {
                // What is judged by what another one writes waits until that is written.
                if !tenants.insert(next.tenant.clone()) {
                    held = Some(next);
                    break;
                }
                batch.push(next);
            }
            self.write(batch);
        }
    }

    fn write(&mut self, batch: Vec<Request>) {
        if self.is_behind
            && let Err(why) = self.index.catch_up_from_mark(&self.journal)
        {
            let why = StoreError::Unavailable(format!("the index is behind the journal: {why:?}").into());
            for request in batch {
                refuse(request.change, &why);
            }
            return;
        }
        self.is_behind = false;
        let now = self.clock.unix_ms();
        let writing: Vec<Writing> = batch.into_iter().filter_map(|request| self.judge(request, now)).collect();
        let appends: Vec<(Writing, Append)> = writing
            .into_iter()
            .map(|writing| {
                let entry = Entry {
                    stream: 0,
                    time_unix_ms: now,
                    kind: writing.fact.kind(),
                    payload: writing.bytes.clone().into(),
                    check: None,
                };
                let append = self.journal.append(entry);
                (writing, append)
            })
            .collect();
        let (mut facts, mut waiting, mut mark) = (Vec::new(), Vec::new(), None);
        for (writing, append) in appends {
            match append.wait() {
                Ok(appended) => {
                    mark = Some(Mark::of(appended.position, &writing.bytes));
                    facts.push((writing.fact, writing.bytes));
                    waiting.push(writing.waiting);
                }
                Err(error) => {
                    self.is_behind = true;
                    writing.waiting.answer(Err(not_appended(&error)));
                }
            }
        }
        let Some(mark) = mark else { return };
        // Where one of them failed, the mark must not pass over it: all is read from the journal then.
        let entered = if self.is_behind {
            self.index.catch_up_from_mark(&self.journal).map_err(|why| format!("{why:?}"))
        } else {
            self.index.enter(&facts, &mark)
        };
        if let Err(why) = &entered {
            self.is_behind = true;
            tracing::error!(%why, "the index of definitions could not be written");
        }
        for waiting in waiting {
            let unseen =
                |why: &String| StoreError::Unavailable(format!("it is stored, and not yet to be seen: {why}").into());
            waiting.answer(entered.as_ref().map_err(unseen).copied());
        }
    }

    /// What is to be written for a request; who asks for what cannot be, or is so already, is answered at once.
    fn judge(&self, request: Request, now: u64) -> Option<Writing> {
        let Request { tenant, change } = request;
        let (fact, waiting) = match change {
            Change::Put(stored, answer) => match self.judge_put(&stored) {
                Ok(()) => (Fact::Put(*stored), Waiting::Done(answer)),
                Err(why) => {
                    drop(answer.send(Err(why)));
                    return None;
                }
            },
            Change::Delete(id, by, answer) => match self.is_there(&tenant, id) {
                Ok(true) => (Fact::Deleted { tenant, id, at_unix_ms: now, by }, Waiting::Changed(answer)),
                other => {
                    drop(answer.send(other));
                    return None;
                }
            },
            Change::Connection(connection, state, answer) => {
                let needs = |state: &ConnectionState| matches!(state, ConnectionState::NeedsReconnect { .. });
                match self.index.connection(&tenant, &connection) {
                    Ok(before) if needs(&before) != needs(&state) => {
                        let fact = Fact::Connection { tenant, connection, at_unix_ms: now, state: bounded(state) };
                        (fact, Waiting::Changed(answer))
                    }
                    other => {
                        drop(answer.send(other.map(|_| false)));
                        return None;
                    }
                }
            }
        };
        let bytes = fact.encode();
        Some(Writing { fact, bytes, waiting })
    }

    fn judge_put(&self, stored: &Stored) -> Result<(), StoreError> {
        let head = self.index.head(&stored.tenant, stored.id)?;
        let last = head.as_ref().map_or(0, |head| head.version);
        if head.is_some_and(|head| head.is_deleted) {
            return Err(StoreError::Deleted);
        }
        if last.checked_add(1) != Some(stored.version.get()) {
            return Err(StoreError::Conflict { last });
        }
        if *blake3::hash(stored.json.as_bytes()).as_bytes() != stored.digest {
            return Err(StoreError::Damaged("the digest is not that of the text".into()));
        }
        match self.index.by_name(&stored.tenant, &stored.name)? {
            Some(other) if other != stored.id => Err(StoreError::NameTaken),
            Some(_) | None => Ok(()),
        }
    }

    fn is_there(&self, tenant: &TenantId, id: AutomationId) -> Result<bool, StoreError> {
        Ok(self.index.head(tenant, id)?.is_some_and(|head| !head.is_deleted))
    }
}

/// Of a reason, as much as anybody reads.
fn bounded(state: ConnectionState) -> ConnectionState {
    match &state {
        ConnectionState::NeedsReconnect { since_unix_ms, reason } if reason.len() > 1024 => {
            let reason = reason[..reason.floor_char_boundary(1024)].into();
            ConnectionState::NeedsReconnect { since_unix_ms: *since_unix_ms, reason }
        }
        ConnectionState::NeedsReconnect { .. } | ConnectionState::Connected => state,
    }
}

fn refuse(change: Change, why: &StoreError) {
    match change {
        Change::Put(_, answer) => drop(answer.send(Err(why.clone()))),
        Change::Delete(_, _, answer) | Change::Connection(_, _, answer) => drop(answer.send(Err(why.clone()))),
    }
}

fn not_appended(error: &AppendError) -> StoreError {
    StoreError::Unavailable(error.to_string().into())
}
