//! Three nodes under load while something happens to what they share.
//!
//! Two providers are wanted more of than there is, the whole time, by two tenants that wait inside and by one that asks
//! without waiting, so that how long a call is kept at most is seen. A third one has a limit of a minute, which is used up
//! in the course of each scenario: whatever of it is forgotten comes too many at the end.

use std::time::Duration;

use tidegate_tests::callers::{Called, Callers, End, quantile};
use tidegate_tests::eventually;
use tidegate_tests::fleet::Fleet;
use tidegate_tests::patience::PATIENCE;
use tidegate_tests::redis::Redis;
use tidegate_tests::strict::{Kind, Limit, Strict, Terms, Verdict};
use tokio::sync::SemaphorePermit;

use crate::lab::{beside_another, ends, prepare, tenants};

/// Of the short ones, and how long is looked for what comes behind: one more.
pub const WINDOW: Duration = Duration::from_secs(3);
/// The budget is 50 ms; the rest is a machine that has other things to do.
const KEPT_MAX: Duration = Duration::from_millis(350);
/// Who asks without waiting.
const ASKS: &str = "asks";
/// Who uses up the minute.
const USES_UP: &str = "uses up";
/// Calls in a minute, and how many a second want to be.
const MINUTE: u32 = 300;
const OF_MINUTE: f64 = 45.0;

pub struct Storm {
    pub redis: Redis,
    pub fleet: Fleet,
    pub sliding: Strict,
    pub token: Strict,
    pub minute: Strict,
    pub callers: Callers,
    _turn: SemaphorePermit<'static>,
}

impl Storm {
    /// Nodes that share this Redis and have not been started; nobody calls.
    pub async fn gathers(redis: impl AsyncFnOnce() -> Option<Redis>, settings: &[(&str, &str, &str)]) -> Option<Self> {
        let turn = beside_another().await;
        let redis = redis().await?;
        let terms = |limit| Terms { limits: vec![limit], skew_ms: 0, latency: Duration::from_millis(50), tells: false };
        let sliding = Strict::start(terms(Limit::app("sliding", Kind::Sliding { window: WINDOW }, 90)));
        let kind = Kind::Token { window: Duration::from_secs(1), burst: 60 };
        let token = Strict::start(terms(Limit::connection("token", kind, 15)));
        let kind = Kind::Sliding { window: Duration::from_mins(1) };
        let minute = Strict::start(terms(Limit::connection("minute", kind, MINUTE)));
        let providers = [("sliding", &sliding), ("token", &token), ("minute", &minute)];
        let fleet = prepare(3, &redis, &tenants(3), &providers, settings);
        Some(Self { redis, fleet, sliding, token, minute, callers: Callers::new(), _turn: turn })
    }

    /// Nodes that run, under load that goes.
    pub async fn begins(settings: &[(&str, &str, &str)]) -> Option<Self> {
        let mut storm = Self::gathers(Redis::start, settings).await?;
        storm.fleet.up().await;
        storm.load();
        storm.goes().await;
        // So that there is something to forget.
        tokio::time::sleep(WINDOW).await;
        Some(storm)
    }

    pub fn load(&mut self) {
        for connector in ["sliding", "token"] {
            for tenant in ["t01", "t02"] {
                self.callers.greedy(&self.fleet.caller(tenant, connector).waiting(2), 9);
            }
            self.callers.steady(&self.fleet.caller("t03", connector).named(ASKS), 15.0);
        }
        self.callers.steady(&self.fleet.caller("t01", "minute").named(USES_UP), OF_MINUTE);
    }

    /// Calls that arrived at any provider.
    pub fn arrived(&self) -> usize {
        [&self.sliding, &self.token, &self.minute].iter().map(|provider| provider.count()).sum()
    }

    /// Waits until calls go at every node again; how long that took.
    pub async fn goes(&self) -> Duration {
        let from = self.callers.now();
        let nodes = self.fleet.egress.len();
        eventually!({
            let book = self.callers.so_far();
            let is_counted = |called: &Called| called.at >= from && *called.who != *USES_UP;
            let of = |node: usize| book.iter().filter(move |called| called.node == node && is_counted(called));
            (0..nodes).all(|node| of(node).filter(|called| called.end == End::Answered(200)).count() >= 3)
        });
        self.callers.now().saturating_sub(from)
    }

    /// The end, a window later and when the minute is used up: what was called, and nothing of it over a limit.
    pub async fn passes(self, what: &str) -> Vec<Called> {
        let (book, verdicts) = self.ends(what).await;
        for verdict in verdicts {
            verdict.expect_none_over(what);
        }
        book
    }

    /// The same, and what the providers say of it.
    pub async fn ends(self, what: &str) -> (Vec<Called>, [Verdict; 3]) {
        tokio::time::sleep(WINDOW + Duration::from_millis(500)).await;
        eventually!({
            let book = self.callers.so_far();
            let last: Vec<_> = book.iter().rev().filter(|called| *called.who == *USES_UP).take(30).collect();
            last.len() == 30 && last.iter().all(|called| matches!(called.end, End::Parked(_)))
        });
        let Self { sliding, token, minute, callers, fleet, .. } = self;
        let book = callers.settle().await;
        drop(fleet);
        let used = u32::try_from(minute.count()).expect("some hundred");
        println!("{what}: {used} of {MINUTE} units of a minute are used; {}", ends(&book));
        let verdicts = [sliding.verdict(), token.verdict(), minute.verdict()];
        for verdict in &verdicts {
            println!("{what}: {verdict:?}");
        }
        // What a crash took with it is not there; most is.
        assert!(used >= MINUTE * 3 / 4, "{what}: {used} of {MINUTE} units of a minute are used");
        (book, verdicts)
    }
}

/// Whoever asked without waiting within this time and was parked knew it within the budget; and this part of all were, in
/// per cent.
#[track_caller]
pub fn expect_prompt(book: &[Called], (from, to): (Duration, Duration), part: usize, what: &str) {
    let asked: Vec<&Called> =
        book.iter().filter(|called| *called.who == *ASKS && (from..to).contains(&called.at)).collect();
    let parked: Vec<Duration> =
        asked.iter().filter(|called| matches!(called.end, End::Parked(_))).map(|called| called.took).collect();
    println!(
        "{what}: {} of {} parked, half within {:?}, 99 of 100 within {:?}",
        parked.len(),
        asked.len(),
        quantile(parked.iter().copied(), 500),
        quantile(parked.iter().copied(), 990)
    );
    let enough = (asked.len() * part).div_ceil(100).max(1);
    assert!(parked.len() >= enough, "{what}: {} of {} are parked", parked.len(), asked.len());
    let longest = quantile(parked, 990);
    assert!(longest <= KEPT_MAX, "{what}: 99 of 100 parked answers within {longest:?}");
    assert!(longest < PATIENCE);
}
