use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use domain::ManualClock;
use tokio::sync::Notify;

use super::*;

/// Answers by script: each name has its outcomes, the last one for ever.
#[derive(Debug, Default)]
struct Script {
    outcomes: Mutex<HashMap<String, Vec<Result<Answer, ResolveError>>>>,
    asked: AtomicUsize,
    /// When set, a lookup waits for it.
    gate: Option<Arc<Notify>>,
}

impl Script {
    fn with(name: &str, outcomes: Vec<Result<Answer, ResolveError>>) -> Self {
        let script = Self::default();
        script.outcomes.lock().unwrap().insert(name.to_owned(), outcomes);
        script
    }
}

#[async_trait]
impl Resolve for Script {
    async fn resolve(&self, name: &HostName) -> Result<Answer, ResolveError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.notified().await;
        }
        let mut outcomes = self.outcomes.lock().unwrap();
        match outcomes.get_mut(name.as_str()) {
            Some(left) if left.len() > 1 => left.remove(0),
            Some(left) => left[0].clone(),
            None => answer("8.8.8.8", 60),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it is one of the outcomes")]
fn answer(address: &str, ttl_s: u64) -> Result<Answer, ResolveError> {
    Ok(Answer { addresses: Arc::new([address.parse().unwrap()]), ttl: Duration::from_secs(ttl_s) })
}

fn name(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

fn cached(script: Script, settings: CacheSettings) -> (CachedResolver<Script>, Arc<ManualClock>) {
    let clock = ManualClock::at_unix_ms(0);
    (CachedResolver::new(script, settings, Arc::clone(&clock) as Arc<dyn Clock>), clock)
}

/// How often the servers were asked, when the name is asked for at these seconds.
async fn asked_at(outcome: Result<Answer, ResolveError>, seconds: &[u64]) -> Vec<usize> {
    let (resolver, clock) = cached(Script::with("a.example", vec![outcome]), CacheSettings::default());
    let (mut now, mut asked) = (0, Vec::new());
    for at in seconds {
        clock.advance(Duration::from_secs(at - now));
        now = *at;
        let _outcome = resolver.resolve(&name("a.example")).await;
        asked.push(resolver.resolver.asked.load(Ordering::SeqCst));
    }
    asked
}

#[tokio::test]
async fn answers_are_kept_between_floor_and_ceiling() {
    assert_eq!(asked_at(answer("8.8.8.8", 60), &[0, 59, 60, 119, 120]).await, [1, 1, 2, 2, 3]);
    assert_eq!(asked_at(answer("8.8.8.8", 0), &[0, 0, 1]).await, [1, 1, 2]);
    assert_eq!(asked_at(answer("8.8.8.8", 86_400), &[0, 299, 300]).await, [1, 1, 2]);
}

#[tokio::test]
async fn noes_are_kept_shorter_and_failures_for_a_moment() {
    let not_found = |ttl: Option<u64>| Err(ResolveError::NotFound { ttl: ttl.map(Duration::from_secs) });
    assert_eq!(asked_at(not_found(Some(3600)), &[0, 29, 30]).await, [1, 1, 2]);
    assert_eq!(asked_at(not_found(Some(5)), &[0, 4, 5]).await, [1, 1, 2]);
    assert_eq!(asked_at(not_found(None), &[0, 29, 30]).await, [1, 1, 2]);
    assert_eq!(asked_at(Err(ResolveError::Timeout), &[0, 0, 1, 2]).await, [1, 1, 2, 3]);
    assert_eq!(asked_at(Err(ResolveError::Busy), &[0, 0, 0]).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_later_answer_takes_the_place_of_the_earlier_one() {
    let script = Script::with("a.example", vec![answer("93.184.216.34", 1), answer("169.254.169.254", 1)]);
    let (resolver, clock) = cached(script, CacheSettings::default());
    let first = resolver.resolve(&name("a.example")).await.unwrap();
    assert_eq!(resolver.resolve(&name("A.example.")).await.unwrap(), first);
    clock.advance(Duration::from_secs(1));
    let second = resolver.resolve(&name("a.example")).await.unwrap();
    assert_eq!(second.addresses[0].to_string(), "169.254.169.254");
    assert_eq!(resolver.resolve(&name("a.example")).await.unwrap(), second);
    resolver.forget(&name("a.example")).await;
    let _third = resolver.resolve(&name("a.example")).await;
    assert_eq!(resolver.resolver.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_hundred_who_ask_at_once_cost_one_lookup() {
    let gate = Arc::new(Notify::new());
    let script = Script { gate: Some(Arc::clone(&gate)), ..Script::default() };
    let (resolver, _clock) = cached(script, CacheSettings::default());
    let resolver = Arc::new(resolver);
    let ask = |resolver: &Arc<CachedResolver<Script>>| {
        let resolver = Arc::clone(resolver);
        tokio::spawn(async move { resolver.resolve(&name("a.example")).await })
    };
    let mut all: Vec<_> = (0..100).map(|_| ask(&resolver)).collect();
    while resolver.resolver.asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // The one that is asking goes away; somebody else takes the lookup over.
    all.remove(0).abort();
    for _turn in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    gate.notify_waiters();
    for one in all {
        let outcome = tokio::time::timeout(Duration::from_secs(5), one).await.expect("nobody waits for ever").unwrap();
        assert_eq!(outcome, answer("8.8.8.8", 60));
    }
    assert!(resolver.resolver.asked.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn the_cache_holds_no_more_than_it_may() {
    let (resolver, _clock) = cached(Script::default(), CacheSettings { names_max: 100, ..CacheSettings::default() });
    for index in 0..5000 {
        let _outcome = resolver.resolve(&name(&format!("n{index}.example"))).await;
    }
    resolver.entries.run_pending_tasks().await;
    assert!(resolver.names() <= 100, "{}", resolver.names());
}

#[tokio::test]
async fn nobody_has_more_lookups_under_way_than_its_share() {
    let gate = Arc::new(Notify::new());
    let script = Script { gate: Some(Arc::clone(&gate)), ..Script::default() };
    let settings = CacheSettings { lookups_max: 4, lookups_per_tenant_max: 2, ..CacheSettings::default() };
    let (resolver, _) = cached(script, settings);
    let resolver = Arc::new(resolver);
    let resolve = |tenant: &str, host: &str| {
        let (resolver, tenant, host) = (Arc::clone(&resolver), TenantId::parse(tenant).unwrap(), name(host));
        tokio::spawn(async move { resolver.resolve_for(&tenant, &host).await })
    };
    // Six calls, and two look-ups.
    let mut waiting: Vec<_> =
        ["a.example", "b.example"].repeat(3).into_iter().map(|host| resolve("acme", host)).collect();
    tokio::task::yield_now().await;
    assert_eq!(resolve("acme", "c.example").await.unwrap(), Err(ResolveError::TenantBusy));
    // Another tenant has its own share, and the refused name is not spoilt for it.
    waiting.push(resolve("other", "c.example"));
    while resolver.resolver.asked.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    while waiting.iter().any(|waits| !waits.is_finished()) {
        gate.notify_waiters();
        tokio::task::yield_now().await;
    }
    for waits in waiting {
        assert!(waits.await.unwrap().is_ok());
    }
    assert_eq!(resolver.resolver.asked.load(Ordering::SeqCst), 3);
    // What is kept is nobody's share.
    let acme = TenantId::parse("acme").unwrap();
    assert!(resolver.resolve_for(&acme, &name("c.example")).await.is_ok());
}
