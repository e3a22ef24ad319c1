//! Time zones, events of days ago, and histories that nobody can look through.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::{EventId, TenantId};
use serde_json::json;
use tidegate_runner::engine::RunState;
use tidegate_runner::failure::FailureClass;
use tidegate_runner::index::{RunFilter, RunIndex};
use tidegate_runner::ledger::{Body, BoxFuture, Cause, RunStatus};
use tidegate_runner::replay::{
    History, HistoryError, Order, Parts, PastRun, Refused, ReplayError, ReplayState, Replays, Selection, Settings, Why,
};

use crate::process::{Fleet, Process, until};
use crate::provider::response;
use crate::world::{NOW, World, acme, call, document, with};

const DAYS_90_MS: u64 = 90 * 86_400_000;

/// 43: with summer time everything happens an hour early, or late.
#[tokio::test(start_paused = true)]
async fn a_delay_ends_at_the_very_moment_that_its_offset_says_whatever_season_it_is() {
    // The night in which Europe's clocks go forward: an hour before that, within it, and after.
    let moments = [
        ("2027-03-28T01:30:00+01:00", 1_806_193_800_000),
        ("2027-03-28T03:30:00+02:00", 1_806_197_400_000),
        ("2027-03-28T02:30:00Z", 1_806_201_000_000),
        ("2027-03-28T09:00:00+02:00", 1_806_217_200_000),
    ];
    for (until, unix_ms) in moments {
        let began = tokio::time::Instant::now();
        let world = World::new();
        let wait = json!({ "id": "wait", "type": "delay", "until": "${event.body.at}" });
        let mut document = document(&json!([wait, call("a", "POST")]));
        document["deadlineMs"] = json!(DAYS_90_MS);
        let run = world.run_of("acme", &document, &json!({ "at": until })).await;
        assert_eq!(world.to_the_end(&world.engine("one"), run).await.status(), RunStatus::Succeeded);
        let late = NOW + u64::try_from((world.provider.calls()[0].at - began).as_millis()).unwrap();
        assert!((unix_ms..unix_ms + 1_000).contains(&late), "{until}: {late}");
    }
    // A time of a place that is not said is none.
    let world = World::new();
    let local = json!([{ "id": "wait", "type": "delay", "until": "${event.body.at}" }, call("a", "POST")]);
    let run = world.run_of("acme", &document(&local), &json!({ "at": "2027-03-28T02:30:00" })).await;
    world.to_the_end(&world.engine("one"), run).await;
    assert_eq!(world.terminal(run).await.class, Some(FailureClass::ExpressionFailed));
    assert!(world.provider.calls().is_empty());
}

#[derive(Debug)]
struct OfIndex(Arc<RunIndex>);

impl History for OfIndex {
    fn runs_of(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'static, Result<Vec<PastRun>, HistoryError>> {
        let (index, tenant) = (Arc::clone(&self.0), tenant.clone());
        Box::pin(async move {
            let page =
                index.runs_of(&tenant, event, 100).await.map_err(|fault| HistoryError(fault.to_string().into()))?;
            let past = page.runs.into_iter().map(|row| PastRun {
                tenant: row.tenant,
                run: row.run,
                automation: row.automation,
                status: row.status,
                failure: row.failure,
            });
            Ok(past.collect())
        })
    }
}

fn replays(world: &World, process: &Process) -> Replays {
    let queue = Arc::new(process.scheduler.clone());
    let parts = Parts {
        log: Arc::clone(&world.log) as Arc<dyn eventlog::EventLog>,
        ledger: Arc::clone(&world.ledger),
        definitions: Arc::new(world.definitions.clone()),
        triggers: Arc::clone(&world.triggers),
        history: Arc::new(OfIndex(Arc::clone(&process.index))),
        queue: Arc::<tidegate_runner::schedule::Handle>::clone(&queue),
        pace: queue,
        clock: Arc::clone(&world.clock),
    };
    Replays::new(parts, Settings::default())
}

/// 43: nothing can be replayed but one by one.
#[tokio::test(start_paused = true)]
async fn all_that_failed_is_replayed_at_once_after_it_was_counted() {
    let world = World::new();
    world.save("acme", &document(&json!([call("a", "POST"), call("b", "POST")]))).await;
    world.provider.answers("/b", std::iter::repeat_n(response(422, "{}"), 12));
    let process = Process::start(&world, "index", Fleet::Alone).await;
    let mut failed = BTreeSet::new();
    for n in 0..40 {
        let event = world.deliver("acme", &json!({ "n": n }));
        until("its end", || world.provider.count("/b") == n + 1).await;
        if n < 12 {
            failed.insert(event);
        }
    }
    for made in world.provider.calls().iter().filter(|made| made.path == "/b") {
        until_over(&world, made.run).await;
    }
    process.index.caught_up(Duration::from_secs(10)).await;
    let replays = replays(&world, &process);
    let selection = Selection {
        tenant: acme(),
        automation: None,
        endpoint: None,
        from_unix_ms: 0,
        until_unix_ms: u64::MAX,
        why: Why::FailedWith(FailureClass::InvalidRequest),
    };
    let plan = replays.plan(selection).await.unwrap();
    assert_eq!((plan.events, plan.runs, plan.may_duplicate), (12, 12, 12), "`a` had its effect in each of them");
    assert_eq!(world.provider.count("/a"), 40, "a plan does nothing");
    let order = |accepted_duplicates| Order { plan: plan.clone(), id: "once".into(), accepted_duplicates };
    let refused = replays.execute(order(0)).await.unwrap_err();
    assert!(matches!(refused, ReplayError::Refused(Refused::Duplicates { may_duplicate: 12, .. })), "{refused}");
    replays.execute(order(12)).await.unwrap();
    until("its end", || replays.progress(&acme(), "once").is_some_and(|it| it.state == ReplayState::Done)).await;
    until("the calls", || world.provider.count("/b") == 52).await;
    let records = world.memory.records();
    let replayed = records.iter().filter_map(|record| replayed(&record.body)).collect::<BTreeSet<_>>();
    assert_eq!(replayed, failed);
}

fn replayed(body: &Body) -> Option<EventId> {
    if let Body::Admitted(admitted) = body
        && let Cause::Replay { event, .. } = admitted.cause
    {
        return Some(event);
    }
    None
}

async fn until_over(world: &World, run: tidegate_runner::ids::RunId) {
    for _ in 0..1_000 {
        if RunState::fold(&world.records(run).await).is_some_and(|state| state.terminal.is_some()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not end");
}

/// 43: a history of hundreds overloads whoever looks at it, who only wants what has failed.
#[tokio::test(start_paused = true)]
async fn what_failed_is_listed_by_itself_in_pages_and_a_run_of_many_attempts_is_shown_in_part() {
    let world = World::new();
    world.save("acme", &document(&json!([call("a", "POST")]))).await;
    let process = Process::start(&world, "index", Fleet::Alone).await;
    world.provider.answers("/a", std::iter::repeat_n(response(422, "{}"), 25));
    for n in 0..300 {
        world.deliver("acme", &json!({ "n": n }));
    }
    until("the calls", || world.provider.count("/a") == 300).await;
    for made in world.provider.calls() {
        until_over(&world, made.run).await;
    }
    process.index.caught_up(Duration::from_secs(10)).await;
    let failed = RunFilter { statuses: RunFilter::FAILED.to_vec(), ..RunFilter::default() };
    let (mut after, mut pages, mut runs) = (None, 0, BTreeSet::new());
    loop {
        let page = process.index.list(&acme(), &failed, after, 10).await.unwrap();
        assert!(page.runs.len() <= 10 && page.runs.iter().all(|row| row.status == RunStatus::Failed));
        runs.extend(page.runs.iter().map(|row| row.run));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let wanted: BTreeSet<_> = world.provider.calls()[..25].iter().map(|made| made.run).collect();
    assert!(runs == wanted && pages <= 4, "{} in {pages} pages", runs.len());

    let many = World::new();
    let retry = json!({ "retryPolicy": { "maxAttempts": 100, "backoffMs": 100, "maxBackoffMs": 100 } });
    many.provider.answers("/a", std::iter::repeat_n(response(500, "{}"), 100));
    let run = many.run(&json!([with(call("a", "PUT"), retry)])).await;
    many.to_the_end(&many.engine("one"), run).await;
    let view = many.view(run).await;
    assert_eq!((view.nodes[0].attempts.len(), view.nodes[0].attempts_omitted), (20, 80));
}
