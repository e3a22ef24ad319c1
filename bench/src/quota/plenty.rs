//! A centre that has all there is, and a clock that stands still until it is wanted: where the holder is what is
//! measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use domain::Clock;
use ratelimit::quota::holder::BootClock;
use ratelimit::quota::{Answer, AskError, Body, Centre, Lease, Op, Reply, Tally};

/// Grants whatever is wanted, for as long as a lease may be valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plenty;

impl Plenty {
    pub(super) fn reply(op: &Op) -> Reply {
        let lease = |units, rule: &ratelimit::quota::Rule| {
            let tally = Tally { wid: 1, units: u64::from(units), before: 0 };
            Lease { units, ttl_ms: rule.lease_ms, generation: 1, tally }
        };
        let answer = match &op.body {
            Body::Acquire(acquire) => {
                Answer::Granted(acquire.legs.iter().map(|leg| lease(leg.want, &leg.bucket.rule)).collect())
            }
            Body::Renew(renew) => {
                Answer::Renewed(renew.legs.iter().map(|leg| lease(leg.held, &leg.bucket.rule)).collect())
            }
            Body::GiveBack(back) => Answer::Done { units: back.legs.iter().map(|leg| leg.units).sum() },
            Body::Penalise(penalise) => Answer::ParkedFor { ms: penalise.delta_ms, generation: 2 },
            Body::Observe(_) | Body::Settle(_) | Body::Release(_) | Body::Reset(_) => Answer::Done { units: 0 },
            Body::Describe(_) => Answer::Buckets(Vec::new()),
        };
        Reply { epoch: 1, answer }
    }
}

#[async_trait]
impl Centre for Plenty {
    async fn ask(&self, op: &Op) -> Result<Reply, AskError> {
        Ok(Self::reply(op))
    }
}

/// The holder's own clock, read each time as it always is, that says the same until it is let go: so that no lease ends
/// while a million of them are taken.
#[derive(Debug, Default)]
pub(super) struct HeldClock {
    clock: BootClock,
    /// What it says while it is held, in ns; 0 once it runs.
    stands_at_ns: AtomicU64,
    behind_ns: AtomicU64,
}

impl HeldClock {
    pub(super) fn held() -> Self {
        let clock = Self::default();
        clock.hold();
        clock
    }

    pub(super) fn hold(&self) {
        self.stands_at_ns.store(self.now_ns().max(1), Ordering::SeqCst);
    }

    pub(super) fn let_go(&self) {
        let at_ns = self.stands_at_ns.swap(0, Ordering::SeqCst);
        if at_ns > 0 {
            self.behind_ns.store(ns(self.clock.monotonic()).saturating_sub(at_ns), Ordering::SeqCst);
        }
    }

    fn now_ns(&self) -> u64 {
        let real_ns = ns(self.clock.monotonic());
        match self.stands_at_ns.load(Ordering::Relaxed) {
            0 => real_ns - self.behind_ns.load(Ordering::Relaxed),
            at_ns => at_ns,
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Clock for HeldClock {
    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_clock_stands_still_and_goes_on_from_there() {
        let clock = HeldClock::held();
        let passed = |since: Duration| clock.monotonic().saturating_sub(since);
        let before = clock.monotonic();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(clock.monotonic(), before);
        let began = std::time::Instant::now();
        clock.let_go();
        std::thread::sleep(Duration::from_millis(30));
        let passed_ms = passed(before).as_millis();
        // What passed while it was held is not in it.
        assert!(passed_ms >= 29 && passed_ms <= began.elapsed().as_millis() + 1, "{passed_ms}");
        clock.hold();
        let again = clock.monotonic();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(clock.monotonic(), again);
    }
}
