//! Random schedules of appends, reopenings and crashes, against a model: heads by [`rules`], and their records.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::made::{
    admitted, cancel_requested, dismissed, intent, late_outcome, lease, outcome, parked, quarantined, released, rerun,
    resolved, terminal,
};
use super::{Subject, by, drain, new_run, of_runs, read};
use crate::ids::RunId;
use crate::ledger::record::{Body, Record, RunStatus};
use crate::ledger::rules::{self, Head, Lapse};
use crate::ledger::store::{AppendError, Commit, Committed, LedgerStore, TailPosition, Writer};

/// Runs of a schedule.
const RUNS: usize = 3;

#[derive(Debug, Clone)]
enum Op {
    Append(Ask),
    Reopen,
    /// These are under way when it comes, at most one of each run, and so many microseconds old.
    Crash(Vec<Ask>, u64),
}

/// A commit that knows its run's head only when it is made.
#[derive(Debug, Clone)]
struct Ask {
    run: usize,
    /// How far the writer is behind.
    behind: u64,
    who: Who,
    bodies: Vec<Kind>,
    is_foreign: bool,
}

#[derive(Debug, Clone, Copy)]
enum Who {
    Anyone,
    Holder,
    /// One who was fenced.
    Former,
    /// One whose lease nobody has seen.
    Unheard,
    /// Takes a lease that is higher by so much.
    Takes(u64),
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Admitted,
    Intent(u32),
    Outcome(u32),
    Late(u32),
    StepParked,
    Parked,
    Released,
    Resolved,
    Rerun,
    Cancel,
    Quarantined,
    Terminal,
    Dismissed,
}

impl Kind {
    fn body(self) -> Body {
        match self {
            Self::Admitted => admitted(),
            Self::Intent(nth) => intent("a", nth),
            Self::Outcome(nth) => outcome("a", nth),
            Self::Late(nth) => late_outcome("a", nth),
            Self::StepParked => parked(Some("a"), Some(7)),
            Self::Parked => parked(None, Some(7)),
            Self::Released => released(),
            Self::Resolved => resolved("a", 1),
            Self::Rerun => rerun("a", 2),
            Self::Cancel => cancel_requested(),
            Self::Quarantined => quarantined(),
            Self::Terminal => terminal(RunStatus::Failed),
            Self::Dismissed => dismissed(),
        }
    }
}

fn worked() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => (1..9_u32).prop_map(Kind::Intent),
        4 => (1..9_u32).prop_map(Kind::Outcome),
        1 => Just(Kind::StepParked),
        1 => Just(Kind::Parked),
        1 => Just(Kind::Quarantined),
        1 => Just(Kind::Terminal),
    ]
}

fn said() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (1..9_u32).prop_map(Kind::Late),
        Just(Kind::Released),
        Just(Kind::Resolved),
        Just(Kind::Rerun),
        Just(Kind::Cancel),
        Just(Kind::Dismissed),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let many = |kind: BoxedStrategy<Kind>| prop::collection::vec(kind, 1..4);
    let any_kind = prop_oneof![Just(Kind::Admitted), worked(), said()].boxed();
    let what = prop_oneof![
        2 => Just((Who::Anyone, vec![Kind::Admitted])),
        3 => (1..3_u64, prop::collection::vec(worked(), 0..3)).prop_map(|(by, bodies)| (Who::Takes(by), bodies)),
        4 => many(worked().boxed()).prop_map(|bodies| (Who::Holder, bodies)),
        2 => many(said().boxed()).prop_map(|bodies| (Who::Anyone, bodies)),
        1 => (prop_oneof![Just(Who::Former), Just(Who::Unheard), Just(Who::Takes(0))], many(worked().boxed())),
        1 => (prop_oneof![Just(Who::Anyone), Just(Who::Holder)], many(any_kind)),
    ];
    let behind = prop_oneof![12 => Just(0), 1 => 1..3_u64];
    (0..RUNS, behind, what, prop::bool::weighted(0.03)).prop_map(|(run, behind, (who, bodies), is_foreign)| Ask {
        run,
        behind,
        who,
        bodies,
        is_foreign,
    })
}

fn schedule() -> impl Strategy<Value = Vec<Op>> {
    let crash = (prop::collection::vec(ask(), 0..3), 0..3000_u64).prop_map(|(asks, micros)| Op::Crash(asks, micros));
    let op = prop_oneof![16 => ask().prop_map(Op::Append), 1 => Just(Op::Reopen), 1 => crash];
    prop::collection::vec(op, 1..40)
}

/// What has to be there.
#[derive(Debug, Clone, Default)]
struct Model {
    heads: HashMap<RunId, Head>,
    records: HashMap<RunId, Vec<Record>>,
}

impl Model {
    fn commit(&self, ask: &Ask, runs: &[RunId]) -> Commit {
        let run = runs[ask.run];
        let head = self.heads.get(&run);
        let (seq, held) = head.map_or((0, 0), |head| (head.seq, head.lease));
        let mut bodies: Vec<Body> = ask.bodies.iter().map(|kind| kind.body()).collect();
        let writer = match ask.who {
            Who::Anyone => Writer::Anyone,
            Who::Holder => Writer::Lease(held.max(1)),
            Who::Former => Writer::Lease(held.saturating_sub(1).max(1)),
            Who::Unheard => Writer::Lease(held + 1),
            Who::Takes(by) => {
                // It lapses as it begins: whoever comes next may take the next.
                bodies.insert(0, lease(held + by, &format!("worker {}", held + by), 0));
                Writer::Lease(held + by)
            }
        };
        let is_admission = matches!(ask.bodies[..], [Kind::Admitted, ..]);
        let expected = if is_admission { 0 } else { seq.saturating_sub(ask.behind) };
        let mut commit = by(writer, run, expected, bodies);
        // The first comer's it is: only who comes later can be another.
        if ask.is_foreign && head.is_some() {
            commit.tenant = super::tenant("other");
        }
        commit
    }

    fn append(&mut self, commit: &Commit) -> Result<Committed, AppendError> {
        rules::check(commit)?;
        let head = Head::after(self.heads.get(&commit.run), commit, Lapse::Known)?;
        self.records.entry(commit.run).or_default().extend(rules::records(commit, head.lease));
        let committed = head.committed();
        self.heads.insert(commit.run, head);
        Ok(committed)
    }

    fn of(&self, run: RunId) -> &[Record] {
        self.records.get(&run).map(Vec::as_slice).unwrap_or_default()
    }
}

pub async fn random_schedules_end_as_the_model_does(subject: &mut dyn Subject) {
    let config = Config { cases: subject.schedules(), failure_persistence: None, ..Config::default() };
    let state = RefCell::new(subject);
    let runtime = tokio::runtime::Handle::current();
    let passed = TestRunner::new(config).run(&schedule(), |ops| {
        let subject = &mut **state.borrow_mut();
        tokio::task::block_in_place(|| runtime.block_on(go_through(subject, &ops)));
        Ok(())
    });
    if let Err(failed) = passed {
        super::unexpected(&failed.to_string());
    }
}

async fn go_through(subject: &mut dyn Subject, ops: &[Op]) {
    let mut ledger = subject.open().await;
    let runs: Vec<RunId> = (0..RUNS).map(|_| new_run(subject)).collect();
    let (_, from) = drain(&*ledger, TailPosition::start(), 1000).await;
    let mut model = Model::default();
    for op in ops {
        match op {
            Op::Append(ask) => {
                let commit = model.commit(ask, &runs);
                let expected = model.append(&commit);
                assert_eq!(ledger.append(commit.clone()).await, expected, "{commit:?}");
            }
            Op::Reopen => {
                drop(ledger);
                ledger = subject.open().await;
            }
            Op::Crash(asks, micros) => {
                ledger = crash(subject, ledger, &mut model, &runs, (asks, *micros)).await;
            }
        }
    }
    for run in &runs {
        assert_eq!(read(&*ledger, *run).await, model.of(*run));
    }
    let (tail, _) = drain(&*ledger, from, 17).await;
    for run in &runs {
        assert_eq!(of_runs(tail.clone(), &[*run]), model.of(*run));
    }
}

/// What was under way is there as a whole or not at all, and what was answered is as it was answered.
async fn crash(
    subject: &mut dyn Subject,
    ledger: Arc<dyn LedgerStore>,
    model: &mut Model,
    runs: &[RunId],
    (asks, micros): (&[Ask], u64),
) -> Arc<dyn LedgerStore> {
    let mut commits: Vec<Commit> = Vec::new();
    for commit in asks.iter().map(|ask| model.commit(ask, runs)) {
        if commits.iter().all(|other| other.run != commit.run) {
            commits.push(commit);
        }
    }
    let appends = join_all(commits.iter().map(|commit| ledger.append(commit.clone())));
    let answered = tokio::time::timeout(Duration::from_micros(micros), appends).await.ok();
    let ledger = subject.crash(ledger).await;
    for (at, commit) in commits.iter().enumerate() {
        let mut after = model.clone();
        let expected = after.append(commit);
        if let Some(answered) = &answered {
            assert_eq!(answered[at], expected, "{commit:?}");
        }
        let found = read(&*ledger, commit.run).await;
        if found == after.of(commit.run) {
            *model = after;
        } else {
            assert!(answered.is_none(), "it was acknowledged and is not there: {commit:?}");
            assert_eq!(found, model.of(commit.run), "a part of {commit:?}");
        }
    }
    ledger
}
