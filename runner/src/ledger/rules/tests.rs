use super::*;
use crate::ledger::conformance::made::*;
use crate::ledger::record::RunStatus;

const NOW: u64 = 1_800_000_000_000;

fn head(commits: &[Commit]) -> Head {
    let apply = |head: Option<Head>, commit: &Commit| {
        check(commit).unwrap();
        Some(Head::after(head.as_ref(), commit, Lapse::At(NOW)).unwrap())
    };
    commits.iter().fold(None, apply).unwrap()
}

fn refused(commits: &[Commit], last: &Commit) -> AppendError {
    check(last).and_then(|()| Head::after(Some(&head(commits)), last, Lapse::At(NOW))).unwrap_err()
}

fn under(expected: u64, number: u64, bodies: Vec<Body>) -> Commit {
    commit("acme", run(1), expected, Writer::Lease(number), bodies)
}

fn anyone(expected: u64, bodies: Vec<Body>) -> Commit {
    commit("acme", run(1), expected, Writer::Anyone, bodies)
}

#[test]
fn a_commit_has_a_form() {
    let many = vec![cancel_requested(); BODIES_MAX + 1];
    let cases = [
        (anyone(0, vec![]), "it has no body"),
        (anyone(1, many), "it has more than 256 bodies"),
        (anyone(u64::MAX, vec![cancel_requested()]), "its sequence is out of range"),
        (under(1, 0, vec![intent("a", 1)]), "its lease is out of range"),
        (under(1, u64::MAX, vec![intent("a", 1)]), "its lease is out of range"),
        (under(0, 1, vec![admitted()]), "no lease is there before the admission"),
        (under(1, 1, vec![intent("a", 1), lease(1, "one", 9)]), "a lease is taken by the first body"),
        (under(1, 1, vec![lease(2, "one", 9)]), "a lease is taken by whoever will hold it"),
        (anyone(1, vec![lease(2, "one", 9)]), "this body needs a lease"),
        (anyone(1, vec![terminal(RunStatus::Failed)]), "this body needs a lease"),
    ];
    for (commit, why) in cases {
        assert_eq!(check(&commit), Err(AppendError::Invalid(why)), "{commit:?}");
    }
    for commit in
        [anyone(1, vec![admitted()]), anyone(0, vec![cancel_requested()]), anyone(0, vec![admitted(), admitted()])]
    {
        assert_eq!(
            check(&commit),
            Err(AppendError::Invalid(
                "an admission is the first record of a run, and the first record is an admission"
            )),
        );
    }
    let ended = |after: Body| check(&under(1, 1, vec![terminal(RunStatus::Failed), after]));
    let over = AppendError::Invalid("only a late outcome, a dismissal or a re-run follows a terminal record");
    assert_eq!(ended(intent("a", 1)), Err(over));
    assert_eq!(ended(late_outcome("a", 1)), Ok(()));
    assert_eq!(check(&under(1, 1, vec![terminal(RunStatus::Failed), rerun("a", 2), intent("a", 1)])), Ok(()));
}

#[test]
fn a_large_commit_is_refused_by_its_size() {
    let at_most = |bytes: usize| check(&under(1, 1, vec![outcome_of("a", 1, vec![7; bytes])]));
    let most = usize::try_from(COMMIT_BYTES_MAX).unwrap() - 128 - "a".len();
    assert_eq!(at_most(most), Ok(()));
    let bytes = COMMIT_BYTES_MAX + 1;
    assert_eq!(at_most(most + 1), Err(AppendError::TooLarge { bytes, bytes_max: COMMIT_BYTES_MAX }));
}

#[test]
fn the_first_broken_rule_is_told() {
    let begun = [admission(run(1)), under(1, 5, vec![lease(5, "one", 1000)])];
    let mut foreign = under(9, 3, vec![intent("a", 1)]);
    foreign.tenant = tenant("other");
    assert_eq!(refused(&begun, &foreign), AppendError::Tenant);
    assert_eq!(refused(&begun, &under(9, 3, vec![intent("a", 1)])), AppendError::Fenced { lease: 5 });
    assert_eq!(refused(&begun, &under(9, 5, vec![intent("a", 1)])), AppendError::Conflict { seq: 2 });
    let untaken = AppendError::Invalid("nobody has taken this lease");
    assert_eq!(refused(&begun, &under(2, 6, vec![intent("a", 1)])), untaken);
    let unknown = Head::after(None, &anyone(3, vec![cancel_requested()]), Lapse::Known);
    assert_eq!(unknown, Err(AppendError::Conflict { seq: 0 }));
}

#[test]
fn a_lease_that_has_not_lapsed_is_only_its_owner_s() {
    let begun = [admission(run(1)), under(1, 5, vec![lease(5, "one", 1000)])];
    let taking = |number, owner: &str| under(2, number, vec![lease(number, owner, 1000)]);
    assert_eq!(refused(&begun, &taking(6, "two")), AppendError::Fenced { lease: 5 });
    assert_eq!(refused(&begun, &taking(5, "one")), AppendError::Fenced { lease: 5 });
    let head = head(&begun);
    let after = |owner: &str, lapse| Head::after(Some(&head), &taking(6, owner), lapse).map(|head| head.lease);
    assert_eq!(after("one", Lapse::At(NOW)), Ok(6));
    assert_eq!(after("two", Lapse::At(NOW + 999)), Err(AppendError::Fenced { lease: 5 }));
    assert_eq!(after("two", Lapse::At(NOW + 1000)), Ok(6));
    assert_eq!(after("two", Lapse::Known), Ok(6));
}

/// Spans, not times: the writer's clock is an hour ahead of the store's.
#[test]
fn a_lease_lasts_by_the_store_s_clock() {
    let mut commit = under(1, 1, vec![lease(1, "one", 3_601_000)]);
    commit.at_unix_ms += 3_600_000;
    assert_eq!(head(&[admission(run(1)), commit]).lease_until_unix_ms, NOW + 1000);
}

#[test]
fn a_run_that_waits_is_let_go_and_a_step_that_waits_is_not() {
    let begun = [admission(run(1)), under(1, 1, vec![lease(1, "one", 1000)])];
    let with = |last: Commit| head(&[&begun[..], &[last]].concat());
    let step = with(under(2, 1, vec![parked(Some("a"), Some(NOW + 9000))]));
    assert_eq!((step.lease_until_unix_ms, step.wake), (NOW + 1000, Wake::At(0)));
    let run = with(under(2, 1, vec![parked(Some("a"), None), parked(None, Some(NOW + 9000))]));
    assert_eq!((run.lease_until_unix_ms, run.wake), (0, Wake::At(NOW + 9000)));
    assert!(!run.is_claimable(NOW, NOW + 8999) && run.is_claimable(NOW, NOW + 9000));
    let forever = with(under(2, 1, vec![parked(None, None)]));
    assert!(!forever.is_claimable(NOW, u64::MAX));
    for body in [released(), resolved("a", 1), rerun("a", 2), cancel_requested(), late_outcome("a", 1)] {
        let woken = Head::after(Some(&forever), &anyone(3, vec![body]), Lapse::At(NOW)).unwrap();
        assert!(woken.is_claimable(NOW, NOW));
    }
}

#[test]
fn nobody_takes_a_quarantined_run_from_a_list() {
    let begun = [admission(run(1)), under(1, 1, vec![lease(1, "one", 1000), quarantined()])];
    let head = head(&begun);
    assert!(!head.is_claimable(u64::MAX, u64::MAX));
    let after = |body| Head::after(Some(&head), &anyone(3, vec![body]), Lapse::At(NOW)).unwrap();
    assert!(after(released()).is_claimable(NOW, NOW));
    assert!(!after(late_outcome("a", 1)).is_claimable(NOW, NOW), "evidence is no release");
}

#[test]
fn a_run_that_is_over_takes_evidence_and_a_re_run() {
    let over = [admission(run(1)), under(1, 1, vec![lease(1, "one", 1000), terminal(RunStatus::Failed)])];
    let is_over = AppendError::Invalid("the run is over");
    for body in [released(), resolved("a", 1), cancel_requested()] {
        assert_eq!(refused(&over, &anyone(3, vec![body])), is_over);
    }
    assert_eq!(refused(&over, &under(3, 1, vec![intent("a", 1)])), is_over);
    assert_eq!(refused(&over, &under(3, 2, vec![lease(2, "one", 1000)])), is_over);
    let head = head(&over);
    let late = Head::after(Some(&head), &anyone(3, vec![late_outcome("a", 1)]), Lapse::At(NOW)).unwrap();
    assert_eq!((late.standing, late.is_claimable(NOW, NOW)), (Standing::Terminal, false));
    let again =
        Head::after(Some(&late), &anyone(4, vec![late_outcome("a", 1), rerun("a", 2)]), Lapse::At(NOW)).unwrap();
    assert_eq!((again.standing, again.is_claimable(NOW, NOW)), (Standing::Open, true));
}

#[test]
fn renewing_extends_what_is_in_force_and_nothing_else() {
    let mut head = head(&[admission(run(1)), under(1, 5, vec![lease(5, "one", 1000)])]);
    assert_eq!(head.renew(4, NOW + 5000), Err(AppendError::Fenced { lease: 5 }));
    assert_eq!(head.renew(6, NOW + 5000), Err(AppendError::Invalid("nobody has taken this lease")));
    assert_eq!(head.renew(5, NOW + 5000), Ok(()));
    assert!(!head.is_claimable(NOW + 4999, NOW) && head.is_claimable(NOW + 5000, NOW));
    head.renew(5, 0).unwrap();
    assert!(head.is_claimable(NOW, NOW), "it was let go");
}
