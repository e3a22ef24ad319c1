//! What every engine of the ledger must do, as tests that run over any of them.
//!
//! An engine joins by implementing [`Subject`] and expanding [`ledger_conformance!`](crate::ledger_conformance) in its
//! tests; one that many processes share expands it with `@shared` in front. Scenarios use nothing but the
//! [`LedgerStore`] trait, and runs of their own, so that one store may serve them all.

#![allow(clippy::panic, reason = "a scenario fails by it, in the tests of another crate as well")]
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever else is answered fails the scenario, and is shown")]

mod admitting;
mod appending;
mod leasing;
pub mod made;
mod model;
mod reading;
mod retaining;
mod sharing;
mod tailing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use made::{admission, lease, tenant};

pub use admitting::*;
pub use appending::*;
pub use leasing::*;
pub use model::random_schedules_end_as_the_model_does;
pub use reading::*;
pub use retaining::*;
pub use sharing::*;
pub use tailing::*;

use super::record::{Body, Record};
use super::store::{AppendError, Commit, Committed, LedgerStore, TailPosition, Writer};
use crate::ids::RunId;

/// An engine under test, with a place to store. Its injected clock shows [`made::WRITTEN_UNIX_MS`] at first, as those of all
/// writers of scenarios do.
#[async_trait]
pub trait Subject: Send {
    /// Opens what is stored, or an empty ledger. An engine of one process is opened when the last was dropped; one that is
    /// shared may be opened many times.
    async fn open(&mut self) -> Arc<dyn LedgerStore>;

    /// As after a crash of the process and of what is below it, as far as that can be had here.
    async fn crash(&mut self, last: Arc<dyn LedgerStore>) -> Arc<dyn LedgerStore> {
        drop(last);
        self.open().await
    }

    /// Lets so many ms of the clock pass by which leases lapse. Only engines that are shared have one.
    async fn pass(&mut self, ms: u64);

    /// A number that nobody has had of this store: scenarios name runs by it.
    fn number(&mut self) -> u64;

    /// How many random schedules it is to go through.
    fn schedules(&self) -> u32 {
        64
    }
}

/// Expands to one test per scenario over the engine that the expression makes.
#[macro_export]
macro_rules! ledger_conformance {
    (@shared $subject:expr) => {
        $crate::ledger_conformance! { $subject }
        $crate::ledger_conformance! { @each $subject;
            a_lease_is_another_s_until_it_lapses,
            a_renewed_lease_holds_on,
            whoever_let_go_is_claimable,
            what_waits_is_claimable_when_its_time_has_come,
            what_is_over_or_quarantined_is_never_claimable,
            claimable_runs_come_in_portions,
            two_processes_have_one_ledger,
            two_processes_admit_once,
        }
    };
    (@each $subject:expr; $($scenario:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $scenario() {
                let mut subject = $subject;
                $crate::ledger::conformance::$scenario(&mut subject).await;
            }
        )+
    };
    ($subject:expr) => {
        $crate::ledger_conformance! { @each $subject;
            a_run_is_admitted_once,
            racing_admissions_admit_once,
            an_admission_stays_after_the_end_and_after_reopening,
            what_is_appended_is_read_back_in_every_field,
            a_writer_that_is_behind_is_refused,
            of_writers_that_race_one_goes_on,
            a_commit_is_there_as_a_whole_or_not_at_all,
            commits_are_bounded,
            what_is_refused_leaves_nothing,
            appends_of_many_tasks_are_all_there_once,
            dropping_the_future_withdraws_nothing,
            a_higher_lease_fences_the_lower,
            of_workers_that_race_one_has_the_lease,
            anyone_appends_only_what_anyone_may,
            nothing_follows_the_end_but_evidence_and_a_re_run,
            a_lease_is_renewed_by_its_holder_alone,
            a_run_is_its_tenant_s_alone,
            a_run_that_never_was_is_empty,
            the_tail_has_every_record_in_each_run_s_order,
            a_tail_goes_on_where_it_was_left,
            a_tail_that_follows_writers_misses_nothing,
            whoever_waits_for_changes_hears_of_them,
            a_place_that_never_was_is_refused,
            everything_acknowledged_is_there_after_crashes,
            random_schedules_end_as_the_model_does,
        }
    };
}

/// A run of `acme` that this subject has not had.
fn new_run(subject: &mut dyn Subject) -> RunId {
    made::run(subject.number())
}

/// Appends what has to be taken.
async fn take(ledger: &dyn LedgerStore, commit: Commit) -> Committed {
    let shown = format!("{:?} at {}", commit.writer, commit.expected);
    ledger.append(commit).await.unwrap_or_else(|error| unexpected(&format!("{shown}: {error}")))
}

#[track_caller]
fn unexpected(what: &str) -> ! {
    panic!("{what}")
}

async fn refused(ledger: &dyn LedgerStore, commit: Commit) -> AppendError {
    match ledger.append(commit).await {
        Err(error) => error,
        Ok(committed) => unexpected(&format!("it was taken: {committed:?}")),
    }
}

/// A commit of `acme`.
fn by(writer: Writer, run: RunId, expected: u64, bodies: Vec<Body>) -> Commit {
    made::commit("acme", run, expected, writer, bodies)
}

fn anyone(run: RunId, expected: u64, bodies: Vec<Body>) -> Commit {
    by(Writer::Anyone, run, expected, bodies)
}

fn under(lease: u64, run: RunId, expected: u64, bodies: Vec<Body>) -> Commit {
    by(Writer::Lease(lease), run, expected, bodies)
}

/// A run with lease 1, held by `one` for a long time; two records.
async fn begun(subject: &mut dyn Subject, ledger: &dyn LedgerStore) -> RunId {
    let run = new_run(subject);
    take(ledger, admission(run)).await;
    take(ledger, under(1, run, 1, vec![lease(1, "one", 3_600_000)])).await;
    run
}

async fn read(ledger: &dyn LedgerStore, run: RunId) -> Vec<Record> {
    let records = ledger.read(&tenant("acme"), run).await.expect("a healthy ledger reads");
    for (record, seq) in records.iter().zip(1..) {
        assert_eq!((record.run, record.seq), (run, seq), "sequences are dense from 1");
    }
    records
}

async fn bodies(ledger: &dyn LedgerStore, run: RunId) -> Vec<Body> {
    read(ledger, run).await.into_iter().map(|record| record.body).collect()
}

/// All that is behind a place, in portions, and the place behind it.
async fn drain(ledger: &dyn LedgerStore, from: TailPosition, max: usize) -> (Vec<Record>, TailPosition) {
    let drained = tokio::time::timeout(PATIENCE, drain_on(ledger, from, max)).await;
    drained.expect("the tail has an end")
}

async fn drain_on(ledger: &dyn LedgerStore, mut from: TailPosition, max: usize) -> (Vec<Record>, TailPosition) {
    let mut records = Vec::new();
    loop {
        let tail = ledger.tail(from, max).await.expect("a healthy ledger reads");
        assert!(tail.records.len() <= max, "at most as many as were asked for");
        from = tail.next;
        if tail.records.is_empty() {
            return (records, from);
        }
        records.extend(tail.records);
        tokio::task::yield_now().await;
    }
}

/// What the tail has of these runs.
fn of_runs(records: Vec<Record>, runs: &[RunId]) -> Vec<Record> {
    records.into_iter().filter(|record| runs.contains(&record.run)).collect()
}

/// How long scenarios wait for what has to come.
const PATIENCE: Duration = Duration::from_secs(30);
