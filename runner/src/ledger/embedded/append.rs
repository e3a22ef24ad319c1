//! Appending: looked at where it is cheap, judged where it is sure.

use std::sync::{Arc, OnceLock};

use eventlog::segment::{self, Entry, Payload, Rejected};

use super::Core;
use super::index::{IndexError, Recalled};
use super::pack::KIND_COMMIT;
use super::table::{Known, Refusal, judge};
use crate::ids::RunId;
use crate::ledger::codec::{self, Heading, Turn};
use crate::ledger::rules;
use crate::ledger::store::{AppendError, Commit, Committed};

/// Runs that are over and that the index has not come to. More than so many, and no run is admitted until it has: it is
/// stuck, or so slow that memory would not do.
const UNINDEXED_MAX: u64 = 1_000_000;

/// What the writer's thread has said, for whoever waits.
type Verdict = Arc<OnceLock<Result<Committed, Refusal>>>;

pub(super) async fn append(core: Arc<Core>, commit: Commit) -> Result<Committed, AppendError> {
    rules::check(&commit)?;
    let commit = Arc::new(commit);
    let mut settled = core.table.settled();
    loop {
        // From here on the run does not leave the table, until the writer's thread has judged.
        let pin = core.table.pin(commit.run);
        let known = match core.table.look(commit.run) {
            Some(known) => Some(known),
            None => recall(&core, &commit).await?,
        };
        // What is durable is never undone: who is refused by it now would be refused later too.
        if known.is_none_or(|known| !known.is_pending) {
            judge(known, &commit)?;
        }
        let heading = heading(&commit, known);
        let now = core.clock.unix_ms();
        let payload = codec::encode(&heading, &commit.bodies, now);
        let verdict = Verdict::default();
        let check = {
            let (core, commit, verdict) = (Arc::clone(&core), Arc::clone(&commit), Arc::clone(&verdict));
            move |_: &segment::CheckContext| {
                let taken = core.table.take(&commit, &heading);
                let answer = taken.as_ref().map(|_| ()).map_err(|_| Rejected("by the ledger".into()));
                verdict.set(taken).ok();
                drop(pin);
                answer
            }
        };
        let entry = Entry {
            stream: 0,
            time_unix_ms: now,
            kind: KIND_COMMIT,
            payload: Payload::from(payload),
            check: Some(Box::new(check)),
        };
        let appended = core.journal.append(entry).await;
        match (appended, verdict.get()) {
            (Ok(_), Some(Ok(committed))) => return Ok(*committed),
            (Err(segment::AppendError::Rejected(_)), Some(Err(refusal))) => match refusal {
                Refusal::No(error) => return Err(error.clone()),
                Refusal::Unsettled(batches) => {
                    settled.wait_for(|settled| settled > batches).await.map_err(|_| AppendError::Closed)?;
                }
                Refusal::LeaseMoved => {}
            },
            (Err(segment::AppendError::QueueFull), _) => {
                settled.borrow_and_update();
                // Others wait: there is room when a batch of theirs is done. If that was between the two lines, soon again.
                let next = tokio::time::timeout(QUEUE_PAUSE, settled.changed()).await;
                if matches!(next, Ok(Err(_))) {
                    return Err(AppendError::Closed);
                }
            }
            (Err(error), _) => return Err(told(&error)),
            (Ok(_), _) => return Err(AppendError::Unavailable("the writer did not say what it did".into())),
        }
    }
}

/// How long somebody waits at most who found the queue full, before it looks again.
const QUEUE_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

fn heading(commit: &Commit, known: Option<Known>) -> Heading {
    let takes = rules::Change::of(commit).takes.map(|lease| lease.lease);
    Heading {
        tenant: commit.tenant.clone(),
        run: commit.run,
        first: commit.expected + 1,
        count: u16::try_from(commit.bodies.len()).unwrap_or(u16::MAX),
        lease: takes.unwrap_or_else(|| known.map_or(0, |known| known.lease)),
        at_unix_ms: commit.at_unix_ms,
        turn: Turn::of(&commit.bodies),
    }
}

/// What the index knows of a run that is not in the table; the table has it then too. Whoever asks has pinned it.
async fn recall(core: &Arc<Core>, commit: &Commit) -> Result<Option<Known>, AppendError> {
    let is_admission = commit.expected == 0;
    let recalled = look_up(core, commit.run, is_admission).await?;
    match recalled {
        Recalled::Never => Ok(None),
        Recalled::Known(known) => {
            core.table.restore(commit.run, known);
            // Others may have gone on meanwhile.
            Ok(Some(core.table.look(commit.run).unwrap_or(known)))
        }
        // It had an admission at least.
        Recalled::Gone if is_admission => Err(AppendError::Conflict { seq: 1 }),
        Recalled::Gone => Err(AppendError::Invalid("the run is past its retention")),
    }
}

async fn look_up(core: &Arc<Core>, run: RunId, is_admission: bool) -> Result<Recalled, AppendError> {
    {
        let progress = core.progress.borrow();
        if let Some(failed) = &progress.failed {
            return Err(unavailable(failed));
        }
        if is_admission && core.table.commits().saturating_sub(progress.commits) > UNINDEXED_MAX {
            return Err(unavailable("its index is behind"));
        }
    }
    // All of it, and not the index alone: whoever sees the lock free knows that nobody is in the index.
    let core = Arc::clone(core);
    let recalled = tokio::task::spawn_blocking(move || core.index.recall(run)).await;
    let recalled = recalled.map_err(|_| unavailable("its thread ended"))?;
    recalled.map_err(|error: IndexError| unavailable(&error.to_string()))
}

pub(super) async fn renew(core: Arc<Core>, run: RunId, lease: u64) -> Result<(), AppendError> {
    let known = match core.table.look(run) {
        Some(known) => known,
        None => match look_up(&core, run, false).await? {
            Recalled::Known(known) => known,
            Recalled::Never | Recalled::Gone => return Err(AppendError::Conflict { seq: 0 }),
        },
    };
    if lease < known.lease {
        return Err(AppendError::Fenced { lease: known.lease });
    }
    if lease > known.lease || lease == 0 {
        return Err(AppendError::Invalid("nobody has taken this lease"));
    }
    Ok(())
}

fn unavailable(reason: &str) -> AppendError {
    AppendError::Unavailable(reason.into())
}

fn told(error: &segment::AppendError) -> AppendError {
    match error {
        segment::AppendError::Full => AppendError::Full,
        segment::AppendError::TooLarge { bytes, bytes_max } => {
            AppendError::TooLarge { bytes: *bytes, bytes_max: *bytes_max }
        }
        segment::AppendError::Closed => AppendError::Closed,
        segment::AppendError::QueueFull
        | segment::AppendError::Unavailable { .. }
        | segment::AppendError::Rejected(_) => AppendError::Unavailable(error.to_string().into()),
    }
}
