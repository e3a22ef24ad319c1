//! One turn of a run, from its lease to where it parks, ends or is taken away.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use domain::ConnectionId;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;

use crate::automation::{Automation, ConnectionState};
use crate::call::{Answer, Call, Reply};
use crate::connector::Action;
use crate::ledger::{Attempt, BoxFuture, Outcome, Record, SendState};
use crate::schedule::{Ended, Turn};

use super::super::plan::Known;
use super::super::state::RunState;
use super::Engine;
use super::commit::{Held, Wrote, read};
use super::input::Inputs;

/// A wait of this length at most, so that a wall clock that steps is noticed.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// The run as its worker has it.
pub(super) struct Work<'a> {
    pub(super) engine: &'a Engine,
    pub(super) turn: Turn,
    pub(super) owner: Box<str>,
    pub(super) state: RunState,
    pub(super) automation: Arc<Automation>,
    pub(super) known: Known,
    /// Our lease is in the ledger.
    pub(super) is_taken: bool,
    /// Until when it holds, by the monotonic clock.
    pub(super) held_until: Duration,
    pub(super) inputs: Inputs,
    /// What the definitions say of connections, for this turn: whether they are dead.
    pub(super) dead: HashMap<ConnectionId, bool>,
    pub(super) under_way: BTreeMap<usize, UnderWay>,
    pub(super) calls: FuturesUnordered<BoxFuture<'a, Ending>>,
    /// What came of calls and is not in the ledger yet. Whatever happens to a commit, these stay until they are.
    pub(super) unsaved: VecDeque<Outcome>,
}

/// A call that was begun.
pub(super) struct UnderWay {
    pub(super) attempt: Attempt,
    pub(super) action: Arc<dyn Action>,
    pub(super) input: serde_json::Value,
    pub(super) effect: crate::ids::EffectKey,
    pub(super) is_read_back: bool,
    /// Its method has no effect.
    pub(super) is_harmless: bool,
    pub(super) safety: crate::connector::ReplaySafety,
}

/// A call that is over.
pub(super) struct Ending {
    pub(super) at: usize,
    pub(super) attempt: Attempt,
    pub(super) answer: Answer,
}

/// A call that may be begun as soon as its intent is durable.
pub(super) struct Start {
    pub(super) at: usize,
    pub(super) under_way: UnderWay,
    pub(super) call: Call,
}

/// What a round has decided.
pub(super) enum Next {
    /// Calls are under way; at this time something else is to be done.
    Await {
        until_unix_ms: u64,
    },
    /// There is more to be decided at once.
    More,
    End(Ended),
}

enum Woken {
    Came(Option<Ending>),
    Nudged,
    Renew,
    Time,
}

pub(super) async fn run(engine: &Engine, turn: Turn) -> Ended {
    match Work::begin(engine, turn).await {
        Ok(mut work) => work.run().await,
        Err(ended) => ended,
    }
}

impl Work<'_> {
    async fn run(&mut self) -> Ended {
        loop {
            let round = self.decide().await;
            if !round.bodies.is_empty() {
                match self.commit(&round).await {
                    Wrote::All => {}
                    Wrote::Again => continue,
                    Wrote::Fenced { is_written: true } => return self.fenced(round.starts).await,
                    Wrote::Fenced { is_written: false } => return self.fenced(Vec::new()).await,
                    Wrote::Nothing(ended) => return self.left(round.starts, ended).await,
                }
            }
            for notice in round.notices {
                self.engine.ports.notices.tell(notice);
            }
            if !round.starts.is_empty() {
                if !self.still_holds().await {
                    return self.fenced(round.starts).await;
                }
                for start in round.starts {
                    self.start(start);
                }
            }
            match round.next {
                Next::End(ended @ Ended::Parked { .. }) if !self.dead.is_empty() => {
                    let dead = self.dead.iter().filter(|(_, is_dead)| **is_dead);
                    let dead = dead.map(|(connection, _)| connection.clone()).collect();
                    return parked(self.engine, &self.turn, dead, ended).await;
                }
                Next::End(ended) => return ended,
                Next::More => {}
                Next::Await { until_unix_ms } => {
                    if let Some(ended) = self.wait(until_unix_ms).await {
                        return ended;
                    }
                }
            }
        }
    }

    /// Takes in the records as they are now.
    pub(super) fn learn(&mut self, records: &[Record]) {
        if let Some(state) = RunState::fold(records) {
            self.state = state;
        }
        self.known.dead.clear();
        self.known.safety.clear();
        self.dead.clear();
        // What was decided and not written is in there, too, by sequences that other records may have now.
        self.inputs.steps.clear();
        if !self.is_taken {
            self.known.lease = self.state.lease.saturating_add(1);
        }
    }

    fn start(&mut self, start: Start) {
        let Start { at, under_way, call } = start;
        let attempt = under_way.attempt;
        self.under_way.insert(at, under_way);
        let caller = &self.engine.ports.caller;
        let given_up = call.timeout.saturating_add(self.engine.settings.call_grace);
        self.calls.push(Box::pin(async move {
            let answer = tokio::time::timeout(given_up, caller.call(call)).await;
            Ending { at, attempt, answer: answer.unwrap_or_else(|_| never_answered()) }
        }));
    }

    /// Waits until something can be done. Says how the turn ends, if the run is ours no longer.
    async fn wait(&mut self, until_unix_ms: u64) -> Option<Ended> {
        let woken = self.woken(until_unix_ms).await;
        match woken {
            Woken::Time => None,
            Woken::Came(ending) => {
                let mut next = ending;
                while let Some(ending) = next {
                    self.came(ending).await;
                    next = self.calls.next().now_or_never().flatten();
                }
                None
            }
            Woken::Renew => {
                if self.renew().await == Held::Anothers {
                    Some(self.fenced(Vec::new()).await)
                } else {
                    None
                }
            }
            Woken::Nudged => match read(self.engine, &self.turn).await {
                Ok(records) => {
                    self.learn(&records);
                    if self.state.lease > self.known.lease { Some(self.fenced(Vec::new()).await) } else { None }
                }
                // Whatever it was, the next append finds out.
                Err(_) => None,
            },
        }
    }

    async fn woken(&mut self, until_unix_ms: u64) -> Woken {
        let clock = &self.engine.ports.clock;
        let wait = Duration::from_millis(until_unix_ms.saturating_sub(clock.unix_ms())).min(WAIT_MAX);
        let third = self.engine.settings.lease / 3;
        let renew_at = self.held_until.saturating_sub(third * 2);
        let renew = renew_at.saturating_sub(clock.monotonic()).max(third / 10);
        let mut time = pin!(tokio::time::sleep(wait));
        let mut renew = pin!(tokio::time::sleep(renew));
        let mut nudged = pin!(nudge(&mut self.turn.nudged));
        tokio::select! {
            biased;
            () = &mut nudged => Woken::Nudged,
            ending = self.calls.next(), if !self.calls.is_empty() => Woken::Came(ending),
            () = &mut renew => Woken::Renew,
            () = &mut time => Woken::Time,
        }
    }
}

/// Whoever could nudge is gone: then nobody does.
async fn nudge(nudged: &mut watch::Receiver<u64>) {
    if nudged.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn never_answered() -> Answer {
    Answer {
        send_state: SendState::SentNoResponse,
        correlation: None,
        reply: Reply::Failed { code: "egress-timeout".into(), detail: "the call was given up".into() },
    }
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("run", &self.state.run).field("lease", &self.known.lease).finish_non_exhaustive()
    }
}

/// Whoever connects an account anew lets those go on that he sees waiting. One that parked in the same moment looks once
/// more, and nobody has to find it.
async fn parked(engine: &Engine, turn: &Turn, dead: Vec<ConnectionId>, ended: Ended) -> Ended {
    for connection in &dead {
        let state = engine.within(engine.ports.definitions.connection_state(&turn.tenant, connection)).await;
        if matches!(state, Ok(ConnectionState::Connected)) {
            return Ended::Parked { until_unix_ms: Some(engine.ports.clock.unix_ms()), class: turn.class };
        }
    }
    ended
}
