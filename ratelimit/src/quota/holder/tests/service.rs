use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use domain::Clock;
use tokio::time::Instant;

use crate::quota::holder::{Holder, Need, Per, Reason, Route, Settings};
use crate::quota::{AskError, Centre, Class, Core, Epoch, HolderId, Kind, Level, Memory, Op, Reply};

use super::bench::{SHARE, START_MS, fixed, name, need, rule};

#[derive(Debug)]
struct Virtual(Instant);

impl Clock for Virtual {
    fn unix_ms(&self) -> u64 {
        START_MS + u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

#[derive(Debug)]
struct OneCentre {
    core: Mutex<Core>,
    clock: Arc<dyn Clock>,
    answers_after: Duration,
    is_gone: AtomicBool,
    asked: AtomicU64,
}

#[async_trait]
impl Centre for OneCentre {
    async fn ask(&self, op: &Op) -> Result<Reply, AskError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.answers_after).await;
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(AskError::Gone);
        }
        Ok(self.core.lock().unwrap().step(self.clock.unix_ms(), op))
    }
}

struct House {
    holder: Holder,
    centre: Arc<OneCentre>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

fn house(answers_after_ms: u64) -> House {
    let clock: Arc<dyn Clock> = Arc::new(Virtual(Instant::now()));
    let centre = Arc::new(OneCentre {
        core: Mutex::new(Core::new(Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole }, 1_000)),
        clock: Arc::clone(&clock),
        answers_after: Duration::from_millis(answers_after_ms),
        is_gone: AtomicBool::new(false),
        asked: AtomicU64::new(0),
    });
    another(&centre, 1)
}

fn another(centre: &Arc<OneCentre>, id: u128) -> House {
    let holder = Holder::new(Settings::default(), HolderId(id), Arc::clone(&centre.clock)).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (runs, asked) = (holder.clone(), Arc::clone(centre));
    let task = tokio::spawn(async move {
        let stop = async {
            drop(stopped.await);
        };
        runs.run(asked, stop, Duration::from_secs(2)).await;
    });
    House { holder, centre: Arc::clone(centre), stop: Some(stop), task }
}

impl House {
    fn route(&self, needs: &[Need]) -> Route {
        self.holder.route(&name("t"), SHARE, needs).unwrap()
    }

    async fn close(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_gives_back_what_was_not_sent() {
    let house = house(1);
    let route = house.route(&[need("a", Level::Connection, "minute", fixed(1))]);
    for _ in 0..3 {
        let held = house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap();
        held.check().unwrap();
        held.not_sent();
    }
    let held = house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap();
    held.sent();
    drop(held);
    let parked = house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap_err();
    assert!(matches!(parked.reason, Reason::Denied(_)), "{parked:?}");
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_centre_is_waited_for_no_longer_than_the_budget() {
    let house = house(10_000);
    let route = house.route(&[need("a", Level::Connection, "minute", fixed(1))]);
    let began = Instant::now();
    let parked = house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap_err();
    assert_eq!(parked.reason, Reason::Slow);
    assert!((50..=60).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    house.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_centre_that_is_not_there_at_first_is_found_later() {
    let house = house(1);
    house.centre.is_gone.store(true, Ordering::Relaxed);
    let route = house.route(&[need("a", Level::Connection, "minute", fixed(10))]);
    let parked = house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap_err();
    assert!(matches!(parked.reason, Reason::Gone | Reason::Slow), "{parked:?}");
    assert!(parked.release_ms > 0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    house.centre.is_gone.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(6)).await;
    house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap().not_sent();
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_inside_for_as_long_as_it_asked_to() {
    let house = house(1);
    let bucket = rule(Kind::Bucket { window_ms: 1_000, burst: 1 }, 1);
    let route = house.route(&[need("a", Level::Connection, "slow", bucket)]);
    house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap().sent();
    house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap_err();
    let began = Instant::now();
    house.holder.hold(&route, Class::Bulk, 1, Some(Duration::from_secs(10))).await.unwrap().sent();
    assert!((500..4_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_waiting_leaves_everything_to_others() {
    let house = house(5);
    let route = house.route(&[need("a", Level::Connection, "calls", rule(Kind::Concurrency, 1))]);
    let held = house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap();
    for _ in 0..10 {
        let waits = house.holder.hold(&route, Class::Bulk, 1, Some(Duration::from_secs(5)));
        tokio::time::timeout(Duration::from_millis(100), waits).await.unwrap_err();
    }
    drop(held);
    house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap().sent();
    house.holder.hold(&route, Class::Bulk, 1, None).await.unwrap().sent();
    assert_eq!(house.holder.sizes().1, 0);
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn many_callers_at_once_ask_once() {
    let house = house(5);
    let route = house.route(&[need("a", Level::Connection, "minute", fixed(100_000))]);
    let calls = (0..100).map(|_| house.holder.hold(&route, Class::Bulk, 1, None));
    for held in futures_util::future::join_all(calls).await {
        held.unwrap().sent();
    }
    assert!(house.centre.asked.load(Ordering::Relaxed) <= 2);
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_leaves_its_units_to_the_next_one() {
    let first = house(1);
    let centre = Arc::clone(&first.centre);
    let needs = [need("a", Level::Connection, "calls", rule(Kind::Concurrency, 1))];
    let route = first.route(&needs);
    first.holder.hold(&route, Class::Bulk, 1, None).await.unwrap().sent();
    let second = another(&centre, 2);
    let other = second.route(&needs);
    second.holder.hold(&other, Class::Bulk, 1, None).await.unwrap_err();
    let began = Instant::now();
    first.close().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    tokio::time::sleep(Duration::from_millis(300)).await;
    second.holder.hold(&other, Class::Bulk, 1, None).await.unwrap().sent();
    second.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_park_of_what_is_only_heeded_stops_every_node_and_asks_nobody_of_a_call() {
    let first = house(1);
    let centre = Arc::clone(&first.centre);
    let needs = [Need { per: Per::Nothing, ..need("a", Level::Connection, "any", fixed(1)) }];
    let route = first.route(&needs);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = centre.asked.load(Ordering::Relaxed);
    for _ in 0..100 {
        first.holder.hold(&route, Class::Bulk, 1, None).await.unwrap().sent();
    }
    assert_eq!(centre.asked.load(Ordering::Relaxed), asked, "a cap is not held");
    let held = first.holder.hold(&route, Class::Bulk, 1, None).await.unwrap();
    held.throttled(0, 5_000, crate::quota::Why::Provider);
    held.check().unwrap_err();
    let parked = first.holder.hold(&route, Class::Bulk, 1, None).await.unwrap_err();
    assert_eq!((parked.reason, parked.level), (Reason::Park(crate::quota::Why::Provider), Level::Connection));
    tokio::time::sleep(Duration::from_millis(100)).await;

    // One that comes to know of the bucket afterwards is told.
    let second = another(&centre, 2);
    let other = second.route(&needs);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let parked = second.holder.hold(&other, Class::Bulk, 1, None).await.unwrap_err();
    assert!((4_000..=5_500).contains(&parked.release_ms), "{parked:?}");
    let began = Instant::now();
    second.holder.hold(&other, Class::Bulk, 1, Some(Duration::from_secs(20))).await.unwrap().sent();
    assert!((4_000..=6_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    drop(held);
    first.close().await;
    second.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_look_that_nobody_answers_is_done_again() {
    let first = house(1);
    let centre = Arc::clone(&first.centre);
    let needs = [
        need("a", Level::App, "minute", fixed(100)),
        Need { per: Per::Nothing, ..need("a", Level::Connection, "any", fixed(1)) },
    ];
    let route = first.route(&needs);
    first.holder.hold(&route, Class::Bulk, 1, None).await.unwrap().throttled(1, 30_000, crate::quota::Why::Provider);
    tokio::time::sleep(Duration::from_millis(100)).await;
    centre.is_gone.store(true, Ordering::Relaxed);
    let second = another(&centre, 2);
    let other = second.route(&needs);
    tokio::time::sleep(Duration::from_millis(500)).await;
    centre.is_gone.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let parked = second.holder.hold(&other, Class::Bulk, 1, None).await.unwrap_err();
    assert_eq!(parked.level, Level::Connection);
    first.close().await;
    second.close().await;
}

/// A look at a bucket asks for that one, whatever else there is of its application.
#[tokio::test(start_paused = true)]
async fn limits_of_other_requests_do_not_hide_a_park_of_what_is_only_heeded() {
    let first = house(1);
    let centre = Arc::clone(&first.centre);
    let any = Need { per: Per::Nothing, ..need("a", Level::Connection, "any", fixed(1)) };
    let counted = first.route(&[need("a", Level::Connection, "analytics", fixed(100))]);
    first.holder.hold(&counted, Class::Bulk, 1, None).await.unwrap().sent();
    let heeding = first.route(std::slice::from_ref(&any));
    let held = first.holder.hold(&heeding, Class::Bulk, 1, None).await.unwrap();
    held.throttled(0, 30_000, crate::quota::Why::Provider);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let second = another(&centre, 2);
    let other = second.route(&[any]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    second.holder.hold(&other, Class::Bulk, 1, None).await.unwrap_err();
    drop(held);
    first.close().await;
    second.close().await;
}

#[derive(Debug, Default)]
struct Counted(domain::SystemClock, AtomicU64);

impl Clock for Counted {
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }

    fn monotonic(&self) -> Duration {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.monotonic()
    }
}

#[derive(Debug)]
struct Silent;

#[async_trait]
impl Centre for Silent {
    async fn ask(&self, _: &Op) -> Result<Reply, AskError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn looks_that_wait_for_room_keep_nobody_busy_and_no_end_waits_for_them() {
    let clock = Arc::new(Counted::default());
    let holder = Holder::new(Settings::default(), HolderId(1), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    for connection in 0..400 {
        let mut any = need("a", Level::Connection, "any", fixed(1));
        Arc::make_mut(&mut any.bucket.key).scope = name(&format!("c{connection}"));
        holder.route(&name("t"), SHARE, &[Need { per: Per::Nothing, ..any }]).unwrap();
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let runs = holder.clone();
    let task = tokio::spawn(async move {
        let stop = async {
            drop(stopped.await);
        };
        runs.run(Arc::new(Silent), stop, Duration::from_mins(1)).await;
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = clock.1.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let read = clock.1.load(Ordering::Relaxed) - before;
    assert!(read < 100, "the clock was read {read} times while nothing happened");
    drop(stop);
    // What was asked before is waited for; what was not, is not asked any more.
    let began = Instant::now();
    task.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}
