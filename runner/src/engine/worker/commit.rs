//! Reading and writing the run, whatever the ledger answers.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use std::collections::BTreeMap;

use crate::failure::FailureClass;
use crate::ledger::{
    AppendError, Body, Commit, Lease, Outcome, Quarantined, ReadError, Record, RunStatus, Terminal, Writer,
};
use crate::schedule::{Ended, Turn};

use super::super::plan::{Known, facts};
use super::super::ports::PortError;
use super::super::state::{RunState, Standing};
use super::Engine;
use super::decide::Round;
use super::input::Inputs;
use super::left::Unwritten;
use super::turn::Work;

/// Before the second try of a read or append; doubled for each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// When the ledger is asked again for a run that was left.
const LEFT_MS: u64 = 5_000;

/// The same, after a fault that time alone does not mend.
const FAULT_MS: u64 = 60_000;

/// What became of a round.
pub(super) enum Wrote {
    All,
    /// The run has gone on meanwhile: it was read, and has to be decided anew.
    Again,
    /// Another has it. Whether the round, and with it the intents of its calls, was taken before.
    Fenced {
        is_written: bool,
    },
    /// The ledger takes nothing now.
    Nothing(Ended),
}

/// Whose a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Ours,
    Anothers,
    /// The ledger does not say. While nobody else has taken it, it is ours, lapsed or not.
    Unknown,
}

impl<'a> Work<'a> {
    /// Reads the run and its automation. The lease is taken with the first commit.
    pub(super) async fn begin(engine: &'a Engine, turn: Turn) -> Result<Self, Ended> {
        let records = read(engine, &turn).await.map_err(|error| left(&turn, &error))?;
        let Some(state) = RunState::fold(&records) else {
            tracing::error!(run = %turn.run, "a run that is not in the ledger was to be worked on");
            return Err(Ended::Terminal);
        };
        if state.terminal.is_some() {
            return Err(Ended::Terminal);
        }
        let admitted = &state.admitted;
        let asked = engine.ports.automations.load(&state.tenant, admitted.automation, admitted.version);
        let loaded = engine.within(asked).await;
        let automation = match loaded {
            Ok(automation) => automation,
            Err(error) => {
                tracing::error!(run = %turn.run, automation = %admitted.automation, %error, "an automation is not there");
                return Err(match error {
                    PortError::Gone(_) => end_without_automation(engine, state).await,
                    PortError::Unavailable(_) => Ended::Unavailable { retry_ms: LEFT_MS },
                    PortError::Tenant => Ended::Unavailable { retry_ms: FAULT_MS },
                });
            }
        };
        let left = engine.left.take(turn.run);
        let is_taken = left.as_ref().is_some_and(|left| left.holds(&state));
        let owner = left.as_ref().filter(|_| is_taken).map_or_else(|| engine.owner(), Unwritten::owner);
        let mut unsaved: VecDeque<Outcome> = left.into_iter().flat_map(|left| left.news(&records)).collect();
        if is_taken {
            // Whatever else is open under it nobody works on.
            let lost = facts(&state, state.lease.saturating_add(1));
            let is_known =
                |lost: &Outcome| unsaved.iter().any(|known| known.step == lost.step && known.attempt == lost.attempt);
            let is_open = |lost: &Outcome| {
                state.steps.get(&lost.step).is_some_and(|step| matches!(step.standing, Standing::Open(_)))
            };
            let lost: Vec<Outcome> = lost.into_iter().filter(|lost| is_open(lost) && !is_known(lost)).collect();
            unsaved.extend(lost);
        }
        let known = Known {
            lease: state.lease.saturating_add(u64::from(!is_taken)),
            workers_lost_max: engine.settings.workers_lost_max,
            is_alone: engine.settings.is_alone,
            ..Known::default()
        };
        Ok(Self {
            engine,
            owner,
            inputs: Inputs::new(&state),
            state,
            automation,
            known,
            is_taken,
            // Of a lease that was left it is made sure of before a call is begun.
            held_until: Duration::ZERO,
            dead: HashMap::new(),
            under_way: BTreeMap::new(),
            calls: FuturesUnordered::new(),
            unsaved,
            turn,
        })
    }

    /// Writes a round. What it has said of the run is in `state` already; where it was not taken, the state is read again.
    pub(super) async fn commit(&mut self, round: &Round) -> Wrote {
        let commit = Commit {
            tenant: self.state.tenant.clone(),
            run: self.state.run,
            expected: round.expected,
            writer: Writer::Lease(self.known.lease),
            at_unix_ms: round.at_unix_ms,
            bodies: round.bodies.clone(),
        };
        let asked_at = self.engine.ports.clock.monotonic();
        let mut wait = FIRST_WAIT;
        for _ in 0..self.engine.settings.ledger_tries.max(1) {
            let error = match append(self.engine, commit.clone()).await {
                Ok(()) => {
                    self.written(&commit, asked_at);
                    return Wrote::All;
                }
                Err(error) => error,
            };
            match &error {
                AppendError::Fenced { .. } => {
                    // An earlier try of it may have been taken, unanswered: then it may be our own lease that is in the way,
                    // and we go on with it. Where another has taken the run since, the intents are ours all the same, and
                    // their calls were never made.
                    let Ok(records) = read(self.engine, &self.turn).await else {
                        return Wrote::Fenced { is_written: false };
                    };
                    if !is_there(&records, &commit) {
                        return Wrote::Fenced { is_written: false };
                    }
                    return self.was_taken(&commit, asked_at, &records);
                }
                AppendError::Conflict { .. } => {}
                AppendError::Unavailable(_) => pause(&mut wait).await,
                AppendError::Invalid(_) | AppendError::TooLarge { .. } => {
                    return refused(self.engine, &self.turn, &error).await;
                }
                AppendError::Tenant | AppendError::Full | AppendError::Closed => {
                    tracing::error!(run = %self.state.run, %error, "the ledger refuses a commit");
                    return Wrote::Nothing(Ended::Unavailable { retry_ms: FAULT_MS });
                }
            }
            match read(self.engine, &self.turn).await {
                Ok(records) if is_there(&records, &commit) => return self.was_taken(&commit, asked_at, &records),
                Ok(records) if records.len() as u64 != commit.expected => return self.decide_again(&records),
                Ok(_) => {}
                Err(error) => return Wrote::Nothing(left(&self.turn, &error)),
            }
        }
        tracing::warn!(run = %self.state.run, "the ledger takes nothing: the run is left for later");
        Wrote::Nothing(Ended::Unavailable { retry_ms: LEFT_MS })
    }

    /// The commit is in the ledger, whatever was answered.
    fn was_taken(&mut self, commit: &Commit, asked_at: Duration, records: &[Record]) -> Wrote {
        self.written(commit, asked_at);
        if records.len() as u64 == self.state.seq {
            return Wrote::All;
        }
        // And somebody else has appended since; the calls that it has intents for are ours to make all the same.
        self.learn(records);
        if self.state.lease > self.known.lease { Wrote::Fenced { is_written: true } } else { Wrote::All }
    }

    fn decide_again(&mut self, records: &[Record]) -> Wrote {
        let seen = self.known.lease;
        self.learn(records);
        // Somebody has taken it: of ours, or of us before we have begun.
        if self.state.lease >= seen && !(self.is_taken && self.state.lease == seen) {
            return Wrote::Fenced { is_written: false };
        }
        Wrote::Again
    }

    fn written(&mut self, commit: &Commit, asked_at: Duration) {
        let has = |outcome: &Outcome| {
            commit
                .bodies
                .iter()
                .any(|body| matches!(body, Body::Outcome(written) | Body::LateOutcome(written) if written == outcome))
        };
        self.unsaved.retain(|outcome| !has(outcome));
        if !self.is_taken {
            self.is_taken = true;
            self.held_until = asked_at.saturating_add(self.engine.settings.lease);
        }
    }

    /// Holds on to the lease.
    pub(super) async fn renew(&mut self) -> Held {
        let Engine { ports, settings, .. } = self.engine;
        let asked_at = ports.clock.monotonic();
        let span = u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX);
        let until = ports.clock.unix_ms().saturating_add(span);
        let renewed = ports.ledger.renew(self.state.run, self.known.lease, until);
        match tokio::time::timeout(settings.ledger_timeout, renewed).await {
            Ok(Ok(())) => {
                self.held_until = asked_at.saturating_add(settings.lease);
                Held::Ours
            }
            Ok(Err(AppendError::Fenced { .. })) => Held::Anothers,
            Ok(Err(_)) | Err(_) => Held::Unknown,
        }
    }

    /// Whether calls may be begun: a worker that was held up for long first makes sure that the run is still its own. Where
    /// nobody can say so it may not: another worker may have taken the run, read back that nothing has happened, and done it.
    pub(super) async fn still_holds(&mut self) -> bool {
        let now = self.engine.ports.clock.monotonic();
        let is_fresh = now.saturating_add(self.engine.settings.lease / 3) < self.held_until;
        is_fresh || self.renew().await == Held::Ours
    }
}

/// A commit that breaks the ledger's rules is a fault of ours, and would be made again: the run is set aside, where
/// somebody sees it.
async fn refused(engine: &Engine, turn: &Turn, error: &AppendError) -> Wrote {
    tracing::error!(run = %turn.run, %error, "the ledger refuses a commit of ours");
    let state = match read(engine, turn).await {
        Ok(records) => RunState::fold(&records),
        Err(error) => return Wrote::Nothing(left(turn, &error)),
    };
    let Some(state) = state.filter(|state| state.terminal.is_none()) else {
        return Wrote::Nothing(Ended::Terminal);
    };
    let reason = format!("what the engine would write about it is refused: {error}").into();
    let aside = Body::Quarantined(Quarantined { crashes: state.workers_lost, reason });
    let class = state.admitted.class;
    Wrote::Nothing(match write_alone(engine, &state, vec![aside]).await {
        Ok(()) => Ended::Parked { until_unix_ms: None, class },
        Err(_) => Ended::Unavailable { retry_ms: FAULT_MS },
    })
}

/// Nothing can be planned without the graph: the run ends, and says so, and what is in doubt with it.
async fn end_without_automation(engine: &Engine, mut state: RunState) -> Ended {
    let lost = facts(&state, state.lease.saturating_add(1));
    for outcome in &lost {
        let body = Body::Outcome(outcome.clone());
        let (seq, at_unix_ms) = (state.seq, state.last_unix_ms);
        let (run, tenant, lease) = (state.run, state.tenant.clone(), state.lease);
        state.apply(&Record { run, tenant, seq, lease, at_unix_ms, body });
    }
    let doubt = state.in_doubt().map(|(id, _)| id.clone());
    let terminal = Terminal {
        status: if doubt.is_some() { RunStatus::EndedAmbiguous } else { RunStatus::Failed },
        class: Some(if doubt.is_some() { FailureClass::Ambiguous } else { FailureClass::ConfigurationMissing }),
        failed_at: doubt,
    };
    let bodies = lost.into_iter().map(Body::Outcome).chain([Body::Terminal(terminal)]).collect();
    match write_alone(engine, &state, bodies).await {
        Ok(()) => Ended::Terminal,
        Err(AppendError::Fenced { .. }) => Ended::Fenced,
        Err(_) => Ended::Unavailable { retry_ms: LEFT_MS },
    }
}

/// Under a lease that is taken for this alone. The next worker looks again, whatever comes of it.
async fn write_alone(engine: &Engine, state: &RunState, bodies: Vec<Body>) -> Result<(), AppendError> {
    let now = engine.ports.clock.unix_ms();
    let lease = state.lease.saturating_add(1);
    let taken = Lease { lease, owner: engine.owner(), until_unix_ms: now.saturating_add(1) };
    let commit = Commit {
        tenant: state.tenant.clone(),
        run: state.run,
        expected: state.seq,
        writer: Writer::Lease(lease),
        at_unix_ms: now,
        bodies: std::iter::once(Body::Lease(taken)).chain(bodies).collect(),
    };
    append(engine, commit).await
}

/// With a bound on time: a ledger that never answers is one that cannot be written.
pub(super) async fn append(engine: &Engine, commit: Commit) -> Result<(), AppendError> {
    match tokio::time::timeout(engine.settings.ledger_timeout, engine.ports.ledger.append(commit)).await {
        Ok(appended) => appended.map(drop),
        Err(_) => Err(AppendError::Unavailable("no answer in time".into())),
    }
}

pub(super) async fn read(engine: &Engine, turn: &Turn) -> Result<Vec<Record>, ReadError> {
    let mut wait = FIRST_WAIT;
    let mut last = ReadError::Unavailable("not tried".into());
    for _ in 0..engine.settings.ledger_tries.max(1) {
        let records = engine.ports.ledger.read(&turn.tenant, turn.run);
        last = match tokio::time::timeout(engine.settings.ledger_timeout, records).await {
            Ok(Ok(records)) => return Ok(records),
            Ok(Err(error @ ReadError::Unavailable(_))) => error,
            Ok(Err(error)) => return Err(error),
            Err(_) => ReadError::Unavailable("no answer in time".into()),
        };
        pause(&mut wait).await;
    }
    Err(last)
}

pub(super) async fn pause(wait: &mut Duration) {
    tokio::time::sleep(*wait).await;
    *wait *= 2;
}

fn left(turn: &Turn, error: &ReadError) -> Ended {
    let is_passing = matches!(error, ReadError::Unavailable(_));
    if is_passing {
        tracing::warn!(run = %turn.run, %error, "a run cannot be read: it is left for later");
    } else {
        tracing::error!(run = %turn.run, tenant = %turn.tenant, %error, "a run must not be worked on");
    }
    Ended::Unavailable { retry_ms: if is_passing { LEFT_MS } else { FAULT_MS } }
}

/// A commit of which nobody knew whether it was taken: it was, whole, if its records are there.
fn is_there(records: &[Record], commit: &Commit) -> bool {
    let Writer::Lease(lease) = commit.writer else { return false };
    let Ok(expected) = usize::try_from(commit.expected) else { return false };
    let mut found = records.iter().skip(expected);
    commit.bodies.iter().all(|body| found.next().is_some_and(|record| record.lease == lease && record.body == *body))
}
