//! The index beside a model: the ledger's records, folded whole.

mod histories;
mod measured;
mod scenarios;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::ManualClock;
use proptest::prelude::*;

use super::store::Store;
use super::*;
use crate::engine::state::RunState;
use crate::failure::FailureClass;
use crate::ids::RunId;
use crate::ledger::{Cause, LedgerStore as _, Record, RunStatus, TailPosition};
use histories::{BEGIN_UNIX_MS, World, automation_of, event_of, offers, tenant_of};

const LONG: Duration = Duration::from_secs(20);

fn settings() -> IndexSettings {
    IndexSettings { period_ms: 4_000, batch_records: 7, linger: Duration::ZERO, ..IndexSettings::default() }
}

async fn open(at: &Path, world: &World) -> Arc<RunIndex> {
    let clock = ManualClock::at_unix_ms(BEGIN_UNIX_MS);
    RunIndex::open(at, settings(), world.ledger(), clock).await.unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Every key and value of an index that nobody has open.
fn dump(directory: &Path) -> BTreeMap<(String, Vec<u8>), Vec<u8>> {
    let current = generation::current(directory).unwrap().unwrap();
    let store = Store::open(&generation::path(directory, current), &settings(), &Arc::default()).unwrap();
    let mut all = BTreeMap::new();
    let mut take = |name: String, keyspace: &fjall::Keyspace| {
        for guard in keyspace.iter() {
            let (key, value) = guard.into_inner().unwrap();
            all.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    };
    take("open".into(), &store.open);
    for (period, pair) in store.periods() {
        take(format!("rows-{period}"), &pair.rows);
        take(format!("lists-{period}"), &pair.lists);
    }
    all
}

/// All pages of a list.
async fn all(index: &RunIndex, tenant: &domain::TenantId, filter: &RunFilter, max: usize) -> Vec<RunRow> {
    let (mut runs, mut after) = (Vec::new(), None);
    loop {
        let page = index.list(tenant, filter, after, max).await.unwrap();
        runs.extend(page.runs);
        let Some(next) = page.next else { return runs };
        after = Some(next.to_string().parse().unwrap());
    }
}

fn filters() -> Vec<RunFilter> {
    let none = RunFilter::default();
    let failed = RunFilter { statuses: RunFilter::FAILED.to_vec(), ..none.clone() };
    vec![
        none.clone(),
        RunFilter { automation: Some(automation_of(1)), ..none.clone() },
        failed.clone(),
        RunFilter { automation: Some(automation_of(2)), ..failed },
        RunFilter { statuses: vec![RunStatus::Succeeded, RunStatus::Parked], ..none.clone() },
        RunFilter { statuses: vec![RunStatus::Queued, RunStatus::Running, RunStatus::Running], ..none.clone() },
        RunFilter { failure: Some(FailureClass::ProviderUnavailable), ..none.clone() },
        RunFilter { event: Some(event_of(4)), ..none.clone() },
        RunFilter { replay: Some("replay 0".into()), ..none.clone() },
        RunFilter { cause: Some(CauseKind::Manual), ..none.clone() },
        RunFilter { dead_letters: true, ..none.clone() },
        RunFilter {
            from_unix_ms: Some(BEGIN_UNIX_MS + 2_000),
            before_unix_ms: Some(BEGIN_UNIX_MS + 9_000),
            ..none.clone()
        },
        RunFilter { from_unix_ms: Some(BEGIN_UNIX_MS + 9_000), before_unix_ms: Some(BEGIN_UNIX_MS + 2_000), ..none },
    ]
}

/// What a filter says, said again without looking at how it is done.
fn fits(row: &RunRow, filter: &RunFilter) -> bool {
    let replay = |cause: &Cause| match cause {
        Cause::Replay { replay, .. } | Cause::Again { replay, .. } => Some(replay.clone()),
        Cause::Event { .. } | Cause::Manual { .. } => None,
    };
    !(filter.automation.is_some_and(|wanted| wanted != row.automation)
        || (!filter.statuses.is_empty() && !filter.statuses.contains(&row.status))
        || (filter.failure.is_some() && filter.failure != row.failure)
        || (filter.event.is_some() && filter.event != row.event())
        || (filter.replay.is_some() && filter.replay != replay(&row.cause))
        || filter.cause.is_some_and(|kind| kind != CauseKind::of(&row.cause))
        || filter.from_unix_ms.is_some_and(|from| row.admitted_unix_ms < from)
        || filter.before_unix_ms.is_some_and(|before| row.admitted_unix_ms >= before)
        || (filter.dead_letters && !row.is_dead_letter()))
}

async fn compare(index: &RunIndex, world: &World) {
    assert_eq!(index.caught_up(LONG).await, Freshness { is_stale: false });
    let histories = world.histories();
    let rows: Vec<RunRow> = histories.values().map(|records| RunRow::fold(records).unwrap()).collect();
    for tenant in [0, 1, 2].map(tenant_of) {
        for filter in filters() {
            let mut wanted: Vec<_> =
                rows.iter().filter(|row| row.tenant == tenant && fits(row, &filter)).cloned().collect();
            wanted.sort_by_key(|row| std::cmp::Reverse((row.admitted_unix_ms, row.run)));
            for max in [2, 100] {
                assert_eq!(all(index, &tenant, &filter, max).await, wanted, "{filter:?}");
            }
        }
        compare_inbox(index, &rows, &tenant).await;
    }
    compare_open(index, &rows).await;
    for row in &rows {
        assert_eq!(index.get(&row.tenant, row.run).await.unwrap().as_ref(), Some(row));
        for other in [0, 1, 2].map(tenant_of).iter().filter(|other| **other != row.tenant) {
            assert_eq!(index.get(other, row.run).await.unwrap(), None, "not yours and not there are one");
        }
    }
}

async fn compare_inbox(index: &RunIndex, rows: &[RunRow], tenant: &domain::TenantId) {
    let mut wanted: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.tenant == *tenant) {
        let doubt = row.waits.iter().find(|wait| wait.reason.word() == "ambiguous");
        let (why, step, connection, since) =
            match (row.status, doubt.or_else(|| row.waits.first()).or(row.park.as_ref())) {
                (RunStatus::Quarantined, _) => ("quarantined", None, None, row.quarantined_unix_ms.unwrap()),
                (_, Some(park)) if !matches!(park.reason.word(), "delay" | "backoff") => {
                    (park.reason.word(), park.step.clone(), park.connection.clone(), park.since_unix_ms)
                }
                _ => continue,
            };
        let of = wanted.entry(format!("{why} {} {step:?} {connection:?}", row.automation)).or_insert((0, u64::MAX));
        *of = (of.0 + 1, of.1.min(since));
    }
    let inbox = index.repair_inbox(tenant).await.unwrap();
    assert!(!inbox.is_partial && inbox.groups.is_sorted_by_key(|group| group.oldest_unix_ms));
    let found = inbox.groups.iter().map(|group| {
        let RepairGroup { why, automation, step, connection, count, oldest_unix_ms, .. } = group;
        (format!("{} {automation} {step:?} {connection:?}", why.word()), (*count, *oldest_unix_ms))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), wanted);
}

async fn compare_open(index: &RunIndex, rows: &[RunRow]) {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (runs, next) = index.open_runs(after, 2).await.unwrap();
        found.extend(runs.into_iter().map(|active| (active.tenant, active.run, active.status, active.until_unix_ms)));
        if next.is_none() {
            break;
        }
        after = next;
    }
    let until = |row: &RunRow| match &row.park {
        _ if row.is_cancel_requested => Some(0),
        park => park.as_ref().and_then(|park| park.until_unix_ms),
    };
    let open = rows.iter().filter(|row| !is_over(row.status));
    let mut wanted: Vec<_> = open.map(|row| (row.tenant.clone(), row.run, row.status, until(row))).collect();
    wanted.sort_by_key(|(tenant, run, ..)| (tenant.as_str().len(), tenant.clone(), *run));
    assert_eq!(found, wanted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Record by record is what the fold of the engine says of all of them, and what the disk gives back.
    #[test]
    fn a_row_is_a_fold(offers in offers(120)) {
        block_on(async {
            let mut world = World::new();
            for offer in &offers {
                world.offer(offer).await;
            }
            for records in world.histories().values() {
                for upto in 1..=records.len() {
                    let (row, state) = (RunRow::fold(&records[..upto]).unwrap(), RunState::fold(&records[..upto]).unwrap());
                    assert_eq!(row.status, state.status(), "{records:#?}");
                    assert_eq!((row.seq, row.ended_unix_ms), (state.seq, state.ended_unix_ms));
                    assert_eq!(row.deadline_unix_ms, state.deadline_unix_ms);
                    assert_eq!(row.is_cancel_requested, state.cancel.is_some());
                    assert_eq!(row.failure, state.terminal.as_ref().and_then(|terminal| terminal.class));
                    let park = row.park.as_ref().map(|park| (park.reason, park.step.clone(), park.until_unix_ms));
                    assert_eq!(park, state.parked.as_ref().map(|park| (park.reason, park.step.clone(), park.until_unix_ms)));
                    assert_eq!(row.dismissed_unix_ms.is_some(), state.dismissed.is_some());
                    let read = row_codec::decode(&row_codec::encode(&row)).unwrap();
                    assert_eq!(read, row);
                }
            }
        });
    }

    #[test]
    fn no_bytes_of_a_row_panic(bytes: Vec<u8>, cut in 0..200_usize, flip: u8) {
        prop_assert!(row_codec::decode(&bytes).is_err());
        let mut world = World::new();
        block_on(async {
            for run in 0..3 {
                world.offer(&histories::Offer { run, body: 0, detail: 1, later_ms: 1 }).await;
            }
        });
        for record in world.ledger.records() {
            let mut row = row_codec::encode(&RunRow::admit(&record).unwrap());
            row.truncate(cut.max(1));
            let at = cut.min(row.len() - 1);
            row[at] ^= flip;
            let _whatever = row_codec::decode(&row).is_ok();
        }
    }

    #[test]
    fn no_text_of_a_cursor_panics(text: String, bytes in any::<[u8; 29]>()) {
        prop_assert!(text.len() > 40 || text.parse::<Cursor>().is_err());
        let _whatever = data_encoding::BASE32_NOPAD.encode(&bytes).parse::<Cursor>().is_ok();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Every list, group and row is what the records say, whatever happens between them: starts, rebuilds, and starts
    /// after which the place is older than what is there and of that, by a power loss, only some.
    #[test]
    fn the_index_is_what_the_ledger_says(
        parts in proptest::collection::vec((offers(60), 0..4_u8, any::<u64>()), 1..5),
    ) {
        block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let mut world = World::new();
            let mut index = open(directory.path(), &world).await;
            for (offers, then, seed) in &parts {
                for offer in offers {
                    world.offer(offer).await;
                }
                compare(&index, &world).await;
                match then {
                    0 => { index.rebuild().await.unwrap(); }
                    1 => {
                        index.close().await;
                        drop(index);
                        lose_power(directory.path(), &world, *seed).await;
                        index = open(directory.path(), &world).await;
                    }
                    2 => {
                        index.close().await;
                        drop(index);
                        delete(directory.path()).unwrap();
                        index = open(directory.path(), &world).await;
                    }
                    _ => {
                        index.close().await;
                        drop(index);
                        index = open(directory.path(), &world).await;
                    }
                }
                compare(&index, &world).await;
            }
            index.close().await;
            drop(index);
            let before = dump(directory.path());
            delete(directory.path()).unwrap();
            let index = open(directory.path(), &world).await;
            assert!(!index.caught_up(LONG).await.is_stale);
            index.close().await;
            drop(index);
            assert_eq!(dump(directory.path()), before, "made anew, it is the same to the last key");
        });
    }
}

/// The place is one of before, and of what was written behind it some is there and some is not.
async fn lose_power(directory: &Path, world: &World, seed: u64) {
    let records = world.ledger.records();
    let seen = usize::try_from(seed).unwrap_or_default() % (records.len() + 1);
    let place = world.ledger.tail(TailPosition::default(), seen).await.unwrap();
    let place = if seen == 0 { TailPosition::default() } else { place.next };
    let current = generation::current(directory).unwrap().unwrap();
    let store = Store::open(&generation::path(directory, current), &settings(), &Arc::default()).unwrap();
    let mut dice = seed;
    let mut roll = |of: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % of
    };
    for (run, history) in world.histories() {
        let certain = records[..seen].iter().filter(|record| record.run == run).count();
        if certain == history.len() {
            continue;
        }
        lose_some(&store, &history, certain, &mut roll);
    }
    store.settle(&place).unwrap();
}

fn lose_some(store: &Store, history: &[Record], certain: usize, roll: &mut impl FnMut(u64) -> u64) {
    let states: Vec<RunRow> = (1..=history.len()).map(|upto| RunRow::fold(&history[..upto]).unwrap()).collect();
    let last = &states[states.len() - 1];
    let run: RunId = last.run;
    let (period, _) = store.row(&last.tenant, run).unwrap().unwrap();
    let pair = store.pair(period).unwrap();
    // The row is as it was at some time since.
    let kept = certain + usize::try_from(roll((history.len() - certain) as u64 + 1)).unwrap();
    if kept == 0 {
        pair.rows.remove(key::row(&last.tenant, run)).unwrap();
    } else {
        pair.rows.insert(key::row(&last.tenant, run), row_codec::encode(&states[kept - 1])).unwrap();
    }
    // Keys that the certain part has and the later states do not were removed, or were not; later ones came, or did not.
    for state in &states[certain.saturating_sub(1)..] {
        for list in key::lists(state) {
            match roll(3) {
                0 => pair.lists.insert(list, []).unwrap(),
                1 => pair.lists.remove(list).unwrap(),
                _ => {}
            }
        }
    }
    match roll(3) {
        0 => store.open.remove(key::row(&last.tenant, run)).unwrap(),
        1 => store.open.insert(key::row(&last.tenant, run), period.to_be_bytes()).unwrap(),
        _ => {}
    }
}
