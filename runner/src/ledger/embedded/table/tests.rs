use super::*;
use crate::ledger::conformance::made::*;
use crate::ledger::record::RunStatus;
use crate::ledger::store::Writer;

fn table(recent_max: usize) -> Arc<Table> {
    Arc::new(Table::new(recent_max))
}

fn take(table: &Table, commit: &Commit) -> Result<Committed, Refusal> {
    let known = table.look(commit.run);
    let takes = crate::ledger::rules::Change::of(commit).takes.map(|lease| lease.lease);
    let heading = Heading {
        tenant: commit.tenant.clone(),
        run: commit.run,
        first: commit.expected + 1,
        count: u16::try_from(commit.bodies.len()).unwrap(),
        lease: takes.or_else(|| known.map(|known| known.lease)).unwrap_or(0),
        at_unix_ms: commit.at_unix_ms,
        turn: Turn::of(&commit.bodies),
    };
    table.take(commit, &heading)
}

fn done(table: &Table, commits: usize) -> Vec<Pointer> {
    table.committed(&vec![Position::START; commits]).1.unwrap()
}

/// Admits the run and ends it, durably.
fn live(table: &Table, run: RunId) {
    take(table, &admission(run)).unwrap();
    take(table, &commit("acme", run, 1, Writer::Lease(1), vec![lease(1, "one", 1000), terminal(RunStatus::Succeeded)]))
        .unwrap();
    done(table, 2);
}

#[test]
fn what_fails_leaves_all_as_it_was() {
    let table = table(10);
    live(&table, run(1));
    let before = (table.look(run(1)), table.look(run(2)), table.counts());
    take(&table, &admission(run(2))).unwrap();
    take(&table, &commit("acme", run(2), 1, Writer::Lease(4), vec![lease(4, "one", 1000)])).unwrap();
    take(&table, &commit("acme", run(1), 3, Writer::Anyone, vec![rerun("a", 2)])).unwrap();
    take(&table, &commit("acme", run(2), 2, Writer::Lease(4), vec![terminal(RunStatus::Succeeded)])).unwrap();
    assert_eq!(table.counts(), (1, 2));
    table.rolled_back();
    assert_eq!((table.look(run(1)), table.look(run(2)), table.counts()), before);
    take(&table, &admission(run(2))).unwrap();
    done(&table, 1);
    assert_eq!(table.counts(), (1, 2));
}

#[test]
fn nobody_is_refused_for_what_is_only_pending() {
    let table = table(10);
    take(&table, &admission(run(1))).unwrap();
    let Err(Refusal::Unsettled(batches)) = take(&table, &admission(run(1))) else { panic!("it is only pending") };
    assert_eq!(*table.settled().borrow(), batches, "he waits until it is settled");
    done(&table, 1);
    assert!(*table.settled().borrow() > batches);
    assert_eq!(take(&table, &admission(run(1))), Err(Refusal::No(AppendError::Conflict { seq: 1 })));
    // And where it came to nothing, the second one is the first.
    take(&table, &admission(run(2))).unwrap();
    assert!(matches!(take(&table, &admission(run(2))), Err(Refusal::Unsettled(_))));
    table.rolled_back();
    take(&table, &admission(run(2))).unwrap();
}

#[test]
fn records_under_a_lease_that_has_moved_are_made_anew() {
    let table = table(10);
    take(&table, &admission(run(1))).unwrap();
    done(&table, 1);
    let commit = commit("acme", run(1), 1, Writer::Anyone, vec![cancel_requested()]);
    let heading = Heading {
        tenant: commit.tenant.clone(),
        run: commit.run,
        first: 2,
        count: 1,
        lease: 9,
        at_unix_ms: 0,
        turn: Turn::None,
    };
    assert_eq!(table.take(&commit, &heading), Err(Refusal::LeaseMoved));
    assert!(table.committed(&[]).1.unwrap().is_empty(), "and nothing was entered");
}

#[test]
fn a_run_leaves_when_it_is_over_and_indexed_and_nobody_has_pinned_it() {
    let table = table(0);
    live(&table, run(1));
    take(&table, &admission(run(2))).unwrap();
    done(&table, 1);
    table.evict(1);
    assert!(table.look(run(1)).is_some(), "the index has its admission and not its end");
    let pins = (table.pin(run(1)), table.pin(run(1)));
    table.evict(3);
    drop(pins.0);
    table.evict(3);
    assert!(table.look(run(1)).is_some(), "somebody looks for it");
    drop(pins.1);
    table.evict(3);
    assert_eq!((table.look(run(1)), table.counts()), (None, (1, 1)), "and the other one is not over");
}

#[test]
fn a_run_that_goes_on_again_stays() {
    let table = table(0);
    live(&table, run(1));
    take(&table, &commit("acme", run(1), 3, Writer::Anyone, vec![rerun("a", 2)])).unwrap();
    table.evict(2);
    assert!(table.look(run(1)).is_some(), "its last commit is pending");
    table.rolled_back();
    table.evict(2);
    assert!(table.look(run(1)).is_none(), "and was not written");

    live(&table, run(2));
    take(&table, &commit("acme", run(2), 3, Writer::Anyone, vec![rerun("a", 2)])).unwrap();
    done(&table, 1);
    table.evict(5);
    assert_eq!(table.counts(), (1, 1));
    // Evidence that comes late counts anew.
    live(&table, run(3));
    take(&table, &commit("acme", run(3), 3, Writer::Anyone, vec![late_outcome("a", 1)])).unwrap();
    done(&table, 1);
    table.evict(7);
    assert!(table.look(run(3)).is_some());
    table.evict(8);
    assert!(table.look(run(3)).is_none());
}

#[test]
fn what_was_restored_leaves_again() {
    let table = table(0);
    let known = Known { tenant: TenantTag::of(&tenant("acme")), seq: 7, lease: 3, is_over: true, is_pending: false };
    let pin = table.pin(run(1));
    table.restore(run(1), known);
    table.restore(run(1), Known { seq: 1, ..known });
    assert_eq!(table.look(run(1)), Some(known), "what is there is younger");
    table.evict(0);
    assert!(table.look(run(1)).is_some());
    drop(pin);
    table.evict(0);
    assert!(table.look(run(1)).is_none());
}

#[test]
fn another_tenant_s_run_is_refused() {
    let table = table(10);
    live(&table, run(1));
    let commit = commit("acme2", run(1), 3, Writer::Anyone, vec![late_outcome("a", 1)]);
    assert_eq!(take(&table, &commit), Err(Refusal::No(AppendError::Tenant)));
}

#[test]
fn an_account_that_does_not_fit_is_told() {
    let table = table(10);
    take(&table, &admission(run(1))).unwrap();
    assert_eq!(table.committed(&[Position::START; 2]), (2, None));
}

/// 100 bytes is the bound, at every size that a map grows to.
#[test]
fn an_open_run_costs_few_bytes() {
    let table = table(10);
    let known = Known { tenant: TenantTag(1), seq: 7, lease: 3, is_over: false, is_pending: false };
    for number in 0..120_000_u64 {
        table.restore(run(number), known);
        if number > 1000 {
            let bytes = table.bytes() / usize::try_from(number + 1).unwrap();
            assert!(bytes <= 100, "{bytes} bytes a run at {number}");
        }
    }
}
