//! One round: what has come, and all that follows from it, as the bodies of one commit.

use std::time::Duration;

use futures_util::stream::FuturesUnordered;

use crate::failure::FailureClass;
use crate::ledger::{Ambiguity, Attempt, Body, Lease, Outcome, ParkReason, Parked, QueueClass, Record, StepResult};
use crate::schedule::Ended;

use super::super::plan::{Plan, Step, plan};
use super::super::ports::Notice;
use super::super::state::{Open, RunState, Standing};
use super::turn::{Next, Start, Work};

/// A round is written when it has as many bodies, and goes on behind that: a commit has at most 256, and a few more follow.
const BODIES_MAX: usize = 128;

/// What a round writes and does.
pub(super) struct Round {
    pub(super) expected: u64,
    pub(super) at_unix_ms: u64,
    pub(super) bodies: Vec<Body>,
    /// Calls whose intents are among the bodies.
    pub(super) starts: Vec<Start>,
    /// Told when it is durable.
    pub(super) notices: Vec<Notice>,
    pub(super) next: Next,
    /// When it began, by the monotonic clock.
    began: Duration,
}

impl Work<'_> {
    pub(super) async fn decide(&mut self) -> Round {
        let mut round = Round {
            expected: self.state.seq,
            at_unix_ms: self.engine.ports.clock.unix_ms(),
            bodies: Vec::new(),
            starts: Vec::new(),
            notices: Vec::new(),
            next: Next::More,
            began: self.engine.ports.clock.monotonic(),
        };
        // A record behind it has woken the run: then it is parked anew, for whoever looks for runs that can go on.
        let is_last = self.state.parked_seq == self.state.seq;
        let before = self.state.parked.clone().filter(|_| is_last);
        if let Some(ended) = self.is_out_of_reach() {
            round.next = Next::End(ended);
            return round;
        }
        // How safe it is to do something again is a matter of time, too: providers forget keys while a turn goes on.
        self.known.safety.clear();
        self.known.is_stopping = *self.turn.stopping.borrow();
        // And a connection that was dead may have been made anew.
        self.known.dead.clear();
        self.dead.retain(|_, is_dead| !*is_dead);
        self.take_lease(&mut round);
        self.save(&mut round);
        let next = self.go_on(&mut round).await;
        round.next = next;
        if is_as_before(&round, before.as_ref()) {
            round.bodies.clear();
        }
        round
    }

    /// Nothing that a worker may do.
    fn is_out_of_reach(&self) -> Option<Ended> {
        if self.state.terminal.is_some() {
            return Some(Ended::Terminal);
        }
        let is_held = self.state.quarantined.is_some() && self.state.cancel.is_none();
        is_held.then_some(Ended::Parked { until_unix_ms: None, class: self.state.admitted.class })
    }

    fn take_lease(&mut self, round: &mut Round) {
        if self.is_taken {
            return;
        }
        let span = u64::try_from(self.engine.settings.lease.as_millis()).unwrap_or(u64::MAX);
        let lease = Lease {
            lease: self.known.lease,
            owner: self.owner.clone(),
            until_unix_ms: round.at_unix_ms.saturating_add(span),
        };
        self.say(round, Body::Lease(lease));
    }

    /// What has come of calls goes first.
    fn save(&mut self, round: &mut Round) {
        for outcome in self.unsaved.clone() {
            let is_open =
                self.state.steps.get(&outcome.step).is_some_and(
                    |step| matches!(&step.standing, Standing::Open(open) if open.attempt == outcome.attempt),
                );
            // Nobody else closes what is ours, but evidence is not thrown away for that.
            let body = if is_open { Body::Outcome(outcome) } else { Body::LateOutcome(outcome) };
            self.say(round, body);
        }
    }

    async fn go_on(&mut self, round: &mut Round) -> Next {
        loop {
            if round.bodies.len() >= BODIES_MAX || self.is_slow(round) {
                return Next::More;
            }
            match plan(&self.state, &self.automation, round.at_unix_ms, &self.known) {
                Plan::Facts(outcomes) => {
                    for outcome in outcomes {
                        self.say(round, Body::Outcome(outcome));
                    }
                }
                Plan::GiveUp => self.give_up(round),
                Plan::Classify(at) => self.classify(round, at).await,
                Plan::Do(steps) => {
                    for step in steps {
                        self.perform(round, step).await;
                        // Where one has failed, the others may not be begun any more.
                        if round.bodies.last().is_some_and(is_failure) || self.is_slow(round) {
                            break;
                        }
                    }
                }
                Plan::Over => return Next::End(Ended::Terminal),
                Plan::Held => return Next::End(self.parked_for_ever()),
                Plan::End(terminal) => {
                    self.say(round, Body::Terminal(terminal));
                    return Next::End(Ended::Terminal);
                }
                Plan::Quarantine(quarantined) => {
                    round.notices.push(Notice::Quarantined {
                        tenant: self.state.tenant.clone(),
                        run: self.state.run,
                        reason: quarantined.reason.clone(),
                    });
                    self.say(round, Body::Quarantined(quarantined));
                    return Next::End(self.parked_for_ever());
                }
                Plan::Await { until_unix_ms } => return Next::Await { until_unix_ms },
                Plan::Park(parked) => return self.park(round, parked),
                Plan::Leave => return self.leave_it(round),
            }
        }
    }

    /// A part of ours keeps it waiting: what is decided is written first, while the lease holds.
    fn is_slow(&self, round: &Round) -> bool {
        let since = self.engine.ports.clock.monotonic().saturating_sub(round.began);
        !round.bodies.is_empty() && since >= self.engine.settings.lease / 3
    }

    /// Adds a body, and lets the state take it in as if it had been written.
    pub(super) fn say(&mut self, round: &mut Round, body: Body) {
        let record = Record {
            run: self.state.run,
            tenant: self.state.tenant.clone(),
            seq: self.state.seq.saturating_add(1),
            lease: self.known.lease,
            at_unix_ms: round.at_unix_ms,
            body,
        };
        self.state.apply(&record);
        round.bodies.push(record.body);
    }

    pub(super) async fn perform(&mut self, round: &mut Round, step: Step) {
        match step {
            Step::Skip(at) => self.settle(round, at, StepResult::Skipped),
            Step::Wake(at) => self.wake(round, at).await,
            Step::Begin(at) => self.begin_node(round, at).await,
            Step::Call(at) => self.intend(round, at, false).await,
            Step::ReadBack(at) => self.intend(round, at, true).await,
        }
    }

    /// What came of a step without a call.
    pub(super) fn settle(&mut self, round: &mut Round, at: usize, result: StepResult) {
        let Some(node) = self.automation.nodes.get(at) else { return };
        let id = node.id.clone();
        let attempt = self.next_attempt(at);
        self.say(round, Body::Outcome(Outcome { step: id, attempt, result, provider: None }));
    }

    /// The attempt that would be made now.
    pub(super) fn next_attempt(&self, at: usize) -> Attempt {
        let step = self.automation.nodes.get(at).and_then(|node| self.state.steps.get(&node.id));
        step.map_or(Attempt { logical: crate::ids::LogicalAttempt::MIN, physical: 1 }, |step| Attempt {
            logical: step.logical,
            physical: step.physical.saturating_add(1),
        })
    }

    /// Calls under way are dropped. What may have had an effect is in doubt, and the run's end will say so.
    fn give_up(&mut self, round: &mut Round) {
        self.calls = FuturesUnordered::new();
        let why = if self.state.cancel.is_some() { "the run was cancelled" } else { "the run's time was up" };
        for (step, open) in open_calls(&self.state) {
            let harmless = self
                .under_way
                .values()
                .any(|call| call.attempt == open.attempt && call.is_harmless && self.is_of(&step, call.attempt));
            let result = if harmless || open.is_read_back {
                StepResult::Failed { class: FailureClass::Timeout, detail: format!("given up: {why}").into() }
            } else {
                StepResult::Ambiguous(Ambiguity::NoAnswer)
            };
            self.say(round, Body::Outcome(Outcome { step, attempt: open.attempt, result, provider: None }));
        }
        // What is known of them stays: where the round is not taken, it is decided anew.
    }

    fn is_of(&self, step: &crate::ids::StepId, attempt: Attempt) -> bool {
        self.under_way.iter().any(|(at, call)| {
            call.attempt == attempt && self.automation.nodes.get(*at).is_some_and(|node| node.id == *step)
        })
    }

    fn park(&mut self, round: &mut Round, parked: Vec<Parked>) -> Next {
        let mut ended = self.parked_for_ever();
        for parked in parked {
            if let (ParkReason::Ambiguous, Some(step)) = (parked.reason, &parked.step) {
                round.notices.push(Notice::Ambiguous {
                    tenant: self.state.tenant.clone(),
                    run: self.state.run,
                    step: step.clone(),
                });
            }
            if parked.step.is_none() {
                ended = Ended::Parked { until_unix_ms: parked.until_unix_ms, class: self.class_after(parked.reason) };
            }
            self.say(round, Body::Parked(parked));
        }
        Next::End(ended)
    }

    /// It says that nobody works on the run any more, so that whoever comes next goes on at once and counts no lost worker.
    /// A run that was not begun is left as it is.
    fn leave_it(&mut self, round: &mut Round) -> Next {
        let (until_unix_ms, class) = (Some(round.at_unix_ms), self.turn.class);
        if !self.is_taken && matches!(round.bodies.as_slice(), [Body::Lease(_)]) {
            round.bodies.clear();
        } else {
            self.say(round, Body::Parked(Parked { reason: ParkReason::Restart, step: None, until_unix_ms }));
        }
        Next::End(Ended::Parked { until_unix_ms, class })
    }

    /// Bulk runs stay behind everybody else's.
    fn class_after(&self, reason: ParkReason) -> QueueClass {
        match (self.state.admitted.class, reason) {
            (QueueClass::Bulk, _) => QueueClass::Bulk,
            (_, ParkReason::Backoff) => QueueClass::Retry,
            _ => QueueClass::ParkedRelease,
        }
    }

    fn parked_for_ever(&self) -> Ended {
        Ended::Parked { until_unix_ms: None, class: self.state.admitted.class }
    }
}

fn open_calls(state: &RunState) -> Vec<(crate::ids::StepId, Open)> {
    let mut calls = Vec::new();
    for (id, step) in &state.steps {
        if let Standing::Open(open) = &step.standing {
            calls.push((id.clone(), open.clone()));
        }
    }
    calls
}

fn is_failure(body: &Body) -> bool {
    matches!(body, Body::Outcome(Outcome { result: StepResult::Failed { .. }, .. }))
}

/// Somebody has looked, and it is parked as it was: that is no news.
fn is_as_before(round: &Round, before: Option<&Parked>) -> bool {
    match (round.bodies.as_slice(), before) {
        ([Body::Lease(_), Body::Parked(now)], Some(before)) => now == before,
        _ => false,
    }
}
