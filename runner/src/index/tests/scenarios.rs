//! One thing at a time.

use std::collections::HashSet;
use std::fs;

use domain::Clock as _;

use super::histories::Offer;
use super::*;
use crate::ledger::ReadError;
use crate::ledger::conformance::made;

fn offer(run: u8, body: u8, detail: u8, later_ms: u32) -> Offer {
    Offer { run, body, detail, later_ms }
}

/// Admits a run and ends it: 0 succeeded, 1 failed, 2 cancelled, 3 timed out, 4 ended ambiguous.
async fn ended(world: &mut World, run: u8, how: u8) {
    for (body, detail) in [(0, 0), (0, 0), (15, how)] {
        world.offer(&offer(run, body, detail, 1)).await;
    }
}

async fn with_clock(at: &Path, world: &World, clock: &Arc<ManualClock>) -> Arc<RunIndex> {
    let settings = IndexSettings { metadata: Duration::from_mins(1), dead_letters_max: 2, ..settings() };
    RunIndex::open(at, settings, world.ledger(), Arc::clone(clock) as _).await.unwrap()
}

async fn listed(index: &RunIndex, tenant: &domain::TenantId, dead_letters: bool) -> Vec<RunId> {
    let filter = RunFilter { dead_letters, ..RunFilter::default() };
    all(index, tenant, &filter, 1).await.into_iter().map(|row| row.run).collect()
}

#[tokio::test]
async fn what_is_past_its_time_goes_but_for_open_runs_and_dead_letters() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    // All of acme: two that succeeded, one that is open, dead letters, and much later one that succeeded.
    ended(&mut world, 0, 0).await;
    ended(&mut world, 3, 4).await;
    world.offer(&offer(6, 0, 0, 5_000)).await;
    ended(&mut world, 9, 4).await;
    world.now += 20_000;
    let now = world.now;
    ended(&mut world, 33, 0).await;
    let clock = ManualClock::at_unix_ms(now + 60_000);
    let index = with_clock(directory.path(), &world, &clock).await;
    let (acme, run) = (tenant_of(0), made::run);
    assert!(!index.caught_up(LONG).await.is_stale);
    assert_eq!(listed(&index, &acme, false).await.len(), 5);
    assert_eq!(listed(&index, &acme, true).await, [run(9), run(3)]);
    assert_eq!(index.dismiss(&acme, run(0), "ann").await.unwrap(), Dismissal::NoDeadLetter);
    assert_eq!(index.dismiss(&tenant_of(1), run(3), "ann").await.unwrap(), Dismissal::Unknown);

    let swept = index.sweep().await.unwrap();
    assert_eq!(swept, Swept { periods: 1, rows: 3, kept: 2, shed: 0 });
    assert_eq!(listed(&index, &acme, false).await, [run(33), run(6)], "open runs stay, whatever their age");
    assert_eq!(listed(&index, &acme, true).await, [run(9), run(3)], "dead letters stay dead letters");
    assert_eq!(index.get(&acme, run(3)).await.unwrap().unwrap().status, RunStatus::EndedAmbiguous);
    assert_eq!(index.get(&acme, run(0)).await.unwrap(), None);
    assert_eq!(index.get(&tenant_of(1), run(3)).await.unwrap(), None);
    assert_eq!(index.open_runs(None, 10).await.unwrap().0.len(), 1);
    assert_eq!(index.sweep().await.unwrap(), Swept::default(), "twice is once");

    // Put away, it is gone; and no rebuild brings it back, nor takes away the other.
    assert_eq!(index.dismiss(&acme, run(3), "ann").await.unwrap(), Dismissal::Dismissed);
    assert_eq!(index.dismiss(&acme, run(9), "ann").await.unwrap(), Dismissal::Dismissed);
    assert_eq!(index.get(&acme, run(3)).await.unwrap(), None);
    assert!(listed(&index, &acme, true).await.is_empty());

    // What was open ends, and goes with the next sweep, and its period with it.
    world.offer(&offer(6, 0, 0, 1)).await;
    world.offer(&offer(6, 15, 0, 1)).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    assert_eq!(index.sweep().await.unwrap(), Swept { periods: 1, rows: 1, kept: 0, shed: 0 });
    assert_eq!(listed(&index, &acme, false).await, [run(33)]);
    assert_eq!(index.stat().await.unwrap().periods, 1);
}

#[tokio::test]
async fn a_tenant_keeps_so_many_dead_letters_and_those_put_away_are_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    for run in [0, 3, 6, 9] {
        ended(&mut world, run, 4).await;
    }
    ended(&mut world, 1, 4).await;
    let clock = ManualClock::at_unix_ms(world.now);
    let index = with_clock(directory.path(), &world, &clock).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    let (acme, run) = (tenant_of(0), made::run);
    assert_eq!(index.dismiss(&acme, run(9), "ann").await.unwrap(), Dismissal::Dismissed);
    assert_eq!(listed(&index, &acme, true).await, [run(6), run(3), run(0)]);
    assert_eq!(listed(&index, &acme, false).await.len(), 4, "it is a run all the same");
    clock.advance(Duration::from_hours(1));
    assert_eq!(index.sweep().await.unwrap(), Swept { periods: 1, rows: 5, kept: 5, shed: 1 });
    assert_eq!(listed(&index, &acme, true).await, [run(6), run(3)], "two of them, the newest");
    assert_eq!(listed(&index, &tenant_of(1), true).await, [run(1)], "another's are not counted with them");
    // Its end is read again: rebuilt from a ledger that has them still, and swept again, it is the same.
    index.rebuild().await.unwrap();
    index.sweep().await.unwrap();
    assert_eq!(listed(&index, &acme, true).await.len(), 2);
    assert!(clock.unix_ms() > 0);
}

#[tokio::test]
async fn a_row_of_another_tenant_is_answered_to_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    world.offer(&offer(0, 0, 0, 1)).await;
    world.offer(&offer(1, 0, 0, 1)).await;
    let index = open(directory.path(), &world).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    index.close().await;
    drop(index);
    {
        let store = Store::open(&generation::path(directory.path(), 1), &settings(), &Arc::default()).unwrap();
        let (period, mut row) = store.row(&tenant_of(0), made::run(0)).unwrap().unwrap();
        row.tenant = tenant_of(1);
        store.pair(period).unwrap().rows.insert(key::row(&tenant_of(0), row.run), row_codec::encode(&row)).unwrap();
    }
    let index = open(directory.path(), &world).await;
    let fault = IndexError::Tenant { run: made::run(0) };
    assert_eq!(index.get(&tenant_of(0), made::run(0)).await, Err(fault.clone()));
    assert_eq!(index.list(&tenant_of(0), &RunFilter::default(), None, 10).await, Err(fault.clone()));
    assert_eq!(index.open_runs(None, 10).await, Err(fault.clone()));
    assert_eq!(index.list(&tenant_of(1), &RunFilter::default(), None, 10).await.unwrap().runs.len(), 1);
    assert_eq!(index.stat().await.unwrap().tenant_faults, 3, "each is counted");

    // And the follower goes no further when it meets it.
    world.offer(&offer(0, 0, 0, 1)).await;
    assert!(index.caught_up(LONG).await.is_stale);
    let stat = index.stat().await.unwrap();
    assert_eq!((stat.following, stat.tenant_faults), (Following::Halted(fault), 4));
    // Made anew, it is right.
    index.rebuild().await.unwrap();
    compare(&index, &world).await;
}

#[tokio::test]
async fn pages_neither_repeat_nor_leave_out_while_runs_come() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    let tenant = tenant_of(0);
    for run in [0, 3, 6, 9, 12, 15] {
        world.offer(&offer(run, 0, 0, 1_500)).await;
    }
    let index = open(directory.path(), &world).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    let (mut seen, mut after, mut come) = (Vec::new(), None, 18);
    loop {
        let page = index.list(&tenant, &RunFilter::default(), after, 2).await.unwrap();
        seen.extend(page.runs.iter().map(|row| row.run));
        world.offer(&offer(come, 0, 0, 700)).await;
        come += 3;
        // One of those that are there changes, too.
        world.offer(&offer(0, 0, 0, 0)).await;
        assert!(!index.caught_up(LONG).await.is_stale);
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    let wanted: Vec<_> = [15, 12, 9, 6, 3, 0].map(made::run).into();
    assert_eq!(seen, wanted);
    assert_eq!(all(&index, &tenant, &RunFilter::default(), 3).await.len(), 6 + usize::from(come - 18) / 3);
}

#[tokio::test]
async fn what_the_ledger_dropped_unseen_is_read_run_by_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    for run in 0..12 {
        world.offer(&offer(run, 0, 0, 1)).await;
    }
    let index = open(directory.path(), &world).await;
    compare(&index, &world).await;
    index.close().await;
    drop(index);
    for run in 0..12 {
        ended(&mut world, run, run).await;
    }
    world.ledger.trim(5);
    let index = open(directory.path(), &world).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    let stat = index.stat().await.unwrap();
    assert!(stat.healed > 0 && stat.orphans == 0, "{stat:?}");
    for records in world.histories().values().filter(|records| records.len() > 1) {
        let wanted = RunRow::fold(records).unwrap();
        let found = index.get(&wanted.tenant, wanted.run).await.unwrap().unwrap();
        let is_seen = found == wanted;
        assert!(is_seen || found.seq == 1, "as it is, or as it was before what nobody will tell again");
    }
}

#[tokio::test]
async fn an_index_that_cannot_be_used_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    for run in 0..12 {
        ended(&mut world, run, run).await;
    }
    let damages: [fn(&Path); 5] = [
        |at| fs::remove_dir_all(generation::path(at, generation::current(at).unwrap().unwrap())).unwrap(),
        |at| fs::write(at.join("current"), b"\xff\xfe no number").unwrap(),
        |at| fs::remove_file(at.join("current")).unwrap(),
        |at| garble(&generation::path(at, generation::current(at).unwrap().unwrap())),
        |at| {
            let current = generation::path(at, generation::current(at).unwrap().unwrap());
            let database = fjall::Database::builder(current).open().unwrap();
            database.keyspace("meta", Default::default).unwrap().insert("form", [99]).unwrap();
        },
    ];
    for damage in damages {
        let index = open(directory.path(), &world).await;
        compare(&index, &world).await;
        index.close().await;
        drop(index);
        damage(directory.path());
    }
    let index = open(directory.path(), &world).await;
    compare(&index, &world).await;
    let generations = fs::read_dir(directory.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("runs-"));
    assert_eq!(generations.count(), 1, "nothing is left of the former ones");
}

fn garble(at: &Path) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            garble(&path);
        } else {
            fs::write(path, [0xA5; 100]).unwrap();
        }
    }
}

/// No rebuild makes them anew, so that whoever has to do something is told which files it is about.
#[tokio::test]
async fn kept_dead_letters_that_are_damaged_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::new();
    drop(open(directory.path(), &world).await);
    let kept = directory.path().join("kept");
    garble(&kept);
    let clock = ManualClock::at_unix_ms(BEGIN_UNIX_MS);
    let opened = RunIndex::open(directory.path(), settings(), world.ledger(), Arc::clone(&clock) as _).await;
    let told = opened.unwrap_err().to_string();
    assert!(told.contains(&format!("move {} away", kept.display())), "{told}");
    fs::remove_dir_all(&kept).unwrap();
    RunIndex::open(directory.path(), settings(), world.ledger(), clock).await.unwrap();
}

#[tokio::test]
async fn one_process_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::new();
    let index = open(directory.path(), &world).await;
    let clock = ManualClock::at_unix_ms(BEGIN_UNIX_MS);
    let second = RunIndex::open(directory.path(), settings(), world.ledger(), clock).await;
    assert_eq!(second.unwrap_err(), IndexError::Locked);
    assert_eq!(delete(directory.path()), Err(IndexError::Locked));
    drop(index);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_be_read_makes_it_stale_and_no_worse() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    world.offer(&offer(0, 0, 0, 1)).await;
    let index = open(directory.path(), &world).await;
    compare(&index, &world).await;
    world.ledger.unreadable(Some(ReadError::Unavailable("for the time being".into())));
    world.offer(&offer(3, 0, 0, 1)).await;
    assert!(index.caught_up(Duration::from_secs(2)).await.is_stale);
    assert!(matches!(index.stat().await.unwrap().following, Following::Failing(IndexError::Ledger(_))));
    assert_eq!(listed(&index, &tenant_of(0), false).await.len(), 1, "what is there can be read");
    world.ledger.unreadable(None);
    compare(&index, &world).await;
    assert_eq!(index.stat().await.unwrap().following, Following::AtEnd);
}

#[tokio::test]
async fn a_rebuild_takes_over_while_runs_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    let index = open(directory.path(), &world).await;
    let rebuilder = tokio::spawn({
        let index = Arc::clone(&index);
        async move {
            for _ in 0..3 {
                index.rebuild().await.unwrap();
            }
        }
    });
    let mut seen = HashSet::new();
    for round in 0..200_u8 {
        world.offer(&offer(round % 12, round % 16, round, 30)).await;
        // Never less than there was.
        assert!(!index.caught_up(LONG).await.is_stale);
        let runs = listed(&index, &tenant_of(0), false).await;
        assert!(runs.len() >= seen.len(), "round {round}");
        seen.extend(runs);
    }
    rebuilder.await.unwrap();
    compare(&index, &world).await;
}

/// What was seen in the store before is in the one after, at once.
#[tokio::test]
async fn nobody_sees_a_store_that_is_behind() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut world = World::new();
    for run in 0..12 {
        ended(&mut world, run, run).await;
    }
    let index = open(directory.path(), &world).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    let before = listed(&index, &tenant_of(0), false).await;
    index.swap_to_empty(&other.path().join("empty")).await.unwrap();
    assert_eq!(listed(&index, &tenant_of(0), false).await, before);
    world.ledger.unreadable(Some(ReadError::Unavailable("for the time being".into())));
    assert!(index.swap_to_empty(&other.path().join("second")).await.is_err());
    assert_eq!(listed(&index, &tenant_of(0), false).await, before, "one that cannot be filled is not taken");
    world.ledger.unreadable(None);
    compare(&index, &world).await;
}

/// A clock that leaps about makes no more periods than there may be, and every run is found.
#[tokio::test]
async fn leaping_clocks_make_no_more_periods() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), &IndexSettings { period_ms: 1, ..settings() }, &Arc::default()).unwrap();
    for at in 0..3 {
        assert_eq!(store.period_for(at).unwrap(), u32::try_from(at).unwrap());
    }
    assert_eq!(store.period_for(u64::MAX).unwrap(), u32::MAX);
    assert_eq!(store.end_of(u32::MAX), 1 << 32);
    assert!(!store.has_strays());
}

#[tokio::test]
async fn a_run_that_was_cancelled_goes_on_at_once_whatever_it_waits_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    // Parked, and set aside; one of each is cancelled.
    for (run, body) in [(0, 7), (3, 7), (6, 13), (9, 13)] {
        for body in [0, 0, body] {
            world.offer(&offer(run, body, 1, 1)).await;
        }
    }
    for run in [3, 9] {
        world.offer(&offer(run, 12, 0, 1)).await;
    }
    let index = open(directory.path(), &world).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    let (open, _) = index.open_runs(None, 10).await.unwrap();
    let at_once: HashSet<RunId> = open.iter().filter(|run| run.until_unix_ms == Some(0)).map(|run| run.run).collect();
    assert_eq!((open.len(), at_once), (4, HashSet::from([made::run(3), made::run(9)])));
}

#[tokio::test]
async fn what_the_ledger_says_was_put_away_is_no_dead_letter_until_the_run_goes_wrong_anew() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    for run in [0, 3] {
        ended(&mut world, run, 4).await;
    }
    world.offer(&offer(3, 14, 0, 1)).await;
    let clock = ManualClock::at_unix_ms(world.now);
    let index = with_clock(directory.path(), &world, &clock).await;
    let (acme, run) = (tenant_of(0), made::run);
    assert!(!index.caught_up(LONG).await.is_stale);
    assert_eq!(listed(&index, &acme, true).await, [run(0)]);
    assert_eq!(listed(&index, &acme, false).await, [run(3), run(0)], "it is a run all the same");
    // Made anew from the ledger it is the same, and beyond retention it is not kept.
    index.rebuild().await.unwrap();
    assert_eq!(listed(&index, &acme, true).await, [run(0)]);
    world.offer(&offer(3, 11, 0, 1)).await;
    world.offer(&offer(3, 0, 0, 1)).await;
    world.offer(&offer(3, 15, 4, 1)).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    assert_eq!(listed(&index, &acme, true).await, [run(3), run(0)], "a re-run that went wrong, too");
    world.offer(&offer(0, 14, 0, 1)).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    clock.advance(Duration::from_hours(1));
    assert_eq!(index.sweep().await.unwrap().kept, 1);
    assert_eq!(listed(&index, &acme, true).await, [run(3)]);
}

#[tokio::test]
async fn runs_of_a_replay_are_counted_by_how_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new();
    // Of tenant `acm`: replays 0, 0 and 1; of `b`: one of a run that somebody had started.
    for (run, how) in [(1, 0), (4, 4), (7, 1), (2, 0)] {
        ended(&mut world, run, how).await;
    }
    let clock = ManualClock::at_unix_ms(world.now);
    let index = with_clock(directory.path(), &world, &clock).await;
    assert!(!index.caught_up(LONG).await.is_stale);
    let of = |name: &str| RunFilter { replay: Some(name.into()), ..RunFilter::default() };
    let tally = index.tally(&tenant_of(1), &of("replay 0")).await.unwrap();
    let wanted = [(RunStatus::Succeeded, 1), (RunStatus::EndedAmbiguous, 1)];
    assert_eq!((tally.by_status, tally.is_partial), (BTreeMap::from(wanted), false));
    let tally = index.tally(&tenant_of(2), &of("replay 0")).await.unwrap();
    assert_eq!(tally.by_status, BTreeMap::from([(RunStatus::Succeeded, 1)]));
    let page = index.list(&tenant_of(2), &of("replay 0"), None, 9).await.unwrap();
    assert_eq!(page.runs.iter().map(|row| CauseKind::of(&row.cause)).collect::<Vec<_>>(), [CauseKind::Replay]);
    assert_eq!(index.tally(&tenant_of(0), &of("replay 0")).await.unwrap(), Tally::default(), "another tenant's");
    let mut names = index.replays(&tenant_of(1), 9).await.unwrap();
    names.sort();
    assert_eq!(names, ["replay 0", "replay 1"].map(Box::from));
    assert_eq!(index.replays(&tenant_of(1), 1).await.unwrap().len(), 1);
    assert_eq!(index.replays(&tenant_of(2), 9).await.unwrap(), [Box::from("replay 0")]);
    assert!(index.replays(&tenant_of(0), 9).await.unwrap().is_empty());
}

/// Dead letters beyond retention are in no ledger any more: they are read as an earlier version wrote them.
#[test]
fn a_row_of_the_form_before_is_read() {
    let mut world = World::new();
    block_on(world.offer(&offer(0, 0, 0, 1)));
    let row = RunRow::admit(&world.ledger.records()[0]).unwrap();
    let mut bytes = row_codec::encode(&row);
    // Two bytes of length, the form's number; the last field, null, was not there.
    assert_eq!(bytes.pop(), Some(0xf6));
    assert_eq!(bytes[..3], [0x98, 25, 2]);
    bytes[..3].copy_from_slice(&[0x98, 24, 1]);
    assert_eq!(row_codec::decode(&bytes).unwrap(), row);
    bytes[2] = 2;
    assert!(row_codec::decode(&bytes).is_err(), "of this form it is no whole row");
}
