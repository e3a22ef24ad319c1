use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use domain::{EndpointId, ManualClock, SystemClock, TenantId};
use proptest::prelude::*;

use super::*;
use crate::Subject;

fn tenant(name: &str) -> Subject {
    Subject::tenant(&TenantId::parse(name).unwrap())
}

fn endpoint(name: &str) -> Subject {
    Subject::endpoint(&EndpointId::parse(name).unwrap())
}

fn rate(per_second: u32, burst: u32) -> Rate {
    Rate::new(per_second, burst).unwrap()
}

fn ask(key: LimitKey, rate: Rate, amount: u32) -> Ask {
    Ask { key, rate: Some(rate), amount }
}

struct Fixture {
    clock: Arc<ManualClock>,
    limits: LocalLimits,
    key: LimitKey,
}

fn fixture() -> Fixture {
    let clock = ManualClock::at_unix_ms(0);
    let limits = LocalLimits::new(Arc::<ManualClock>::clone(&clock));
    Fixture { clock, limits, key: tenant("acme").events() }
}

impl Fixture {
    fn advance_ms(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    fn advance_ns(&self, ns: u64) {
        self.clock.advance(Duration::from_nanos(ns));
    }

    fn wait(&self, rate: Rate, amount: u32) -> Option<Duration> {
        self.limits.check(self.key, rate, amount).err().map(|over| over.retry_after)
    }

    fn take(&self, rate: Rate, amount: u32) -> Standing {
        self.limits.check(self.key, rate, amount).unwrap()
    }
}

#[test]
fn the_burst_passes_and_the_next_waits_exactly_as_long_as_it_must() {
    let f = fixture();
    let rate = rate(10, 3);
    for left in [2, 1, 0] {
        assert_eq!(f.take(rate, 1).remaining, left);
    }
    assert_eq!(f.wait(rate, 1), Some(Duration::from_millis(100)));
    f.advance_ns(99_999_999);
    assert_eq!(f.wait(rate, 1), Some(Duration::from_nanos(1)));
    f.advance_ns(1);
    assert_eq!(f.wait(rate, 1), None);
    assert_eq!(f.wait(rate, 1), Some(Duration::from_millis(100)));
}

#[test]
fn the_wait_does_not_grow_with_the_age_of_the_process() {
    let f = fixture();
    f.clock.advance(Duration::from_hours(24 * 365));
    f.take(rate(10, 1), 1);
    assert_eq!(f.wait(rate(10, 1), 1), Some(Duration::from_millis(100)));
}

#[test]
fn a_body_larger_than_the_burst_passes_a_full_bucket_and_is_paid_for_in_full() {
    const MIB: u32 = 1 << 20;
    let f = fixture();
    let rate = rate(MIB, MIB);
    f.take(rate, 1);
    let wait = f.wait(rate, 2 * MIB).expect("the bucket is not full");
    assert!(wait < Duration::from_micros(3), "{wait:?}");
    f.advance_ns(u64::try_from(wait.as_nanos()).unwrap());
    assert_eq!(f.take(rate, 2 * MIB).remaining, 0);
    // Two seconds' worth is owed; one second of it has to be paid before the last byte of the burst is there.
    let wait = f.wait(rate, 1).unwrap().as_secs_f64();
    assert!((0.999..1.002).contains(&wait), "{wait}");
    let wait = f.wait(rate, MIB).unwrap().as_secs_f64();
    assert!((1.999..2.003).contains(&wait), "{wait}");
}

#[test]
fn the_neighbours_of_the_burst() {
    for (amount, fits) in [(9, true), (10, true), (11, true)] {
        let f = fixture();
        assert_eq!(f.wait(rate(1, 10), amount).is_none(), fits, "{amount} into a full bucket of 10");
    }
    for (amount, fits) in [(8, true), (9, true), (10, false), (11, false)] {
        let f = fixture();
        f.take(rate(1, 10), 1);
        assert_eq!(f.wait(rate(1, 10), amount).is_none(), fits, "{amount} into 9 of 10");
    }
}

#[test]
fn nothing_costs_nothing_and_no_limit_refuses_nothing() {
    let f = fixture();
    f.take(rate(1, 1), 1);
    assert_eq!(f.wait(rate(1, 1), 0), None, "an empty body passes a spent bucket");
    let unlimited = Ask { key: tenant("other").events(), rate: None, amount: u32::MAX };
    for _ in 0..3 {
        f.limits.admit(&[unlimited]).unwrap();
    }
    assert_eq!(f.limits.tracked(), 1);
}

#[test]
fn a_refusal_at_one_level_spends_nothing_at_another() {
    let f = fixture();
    let (tenant, endpoint) = (tenant("acme"), endpoint("wh_1"));
    let asks = [
        ask(tenant.events(), rate(100, 100), 1),
        ask(tenant.bytes(), rate(1_000_000, 1_000_000), 1_024),
        ask(endpoint.events(), rate(1, 1), 1),
        ask(endpoint.bytes(), rate(1_000, 2_048), 1_024),
    ];
    f.limits.admit(&asks).unwrap();
    for _ in 0..50 {
        let over = f.limits.admit(&asks).unwrap_err();
        assert_eq!(over.key, endpoint.events());
        assert_eq!(over.retry_after, Duration::from_secs(1));
        assert_eq!(over.standing.remaining, 0);
    }
    let left = asks.map(|ask| f.limits.standing(ask.key, ask.rate.unwrap()).remaining);
    assert_eq!(left, [99, 998_976, 0, 1_024]);
}

#[test]
fn the_longest_wait_is_told() {
    let f = fixture();
    let asks = [
        ask(tenant("a").events(), rate(10, 1), 1),
        ask(tenant("b").events(), rate(1, 1), 1),
        ask(tenant("c").events(), rate(5, 1), 1),
    ];
    f.limits.admit(&asks).unwrap();
    let over = f.limits.admit(&asks).unwrap_err();
    assert_eq!((over.key, over.retry_after), (tenant("b").events(), Duration::from_secs(1)));
    f.clock.advance(over.retry_after);
    f.limits.admit(&asks).expect("the wait that was told is enough for all of them");
}

#[test]
fn the_same_key_asked_twice_is_charged_twice() {
    let f = fixture();
    let once = ask(f.key, rate(1, 3), 1);
    f.limits.admit(&[once, once]).unwrap();
    assert_eq!(f.limits.standing(f.key, rate(1, 3)).remaining, 1);
    assert!(f.limits.admit(&[once, once]).is_err());
    assert_eq!(f.limits.standing(f.key, rate(1, 3)).remaining, 1);
}

#[test]
fn a_reload_keeps_the_debt_in_units() {
    let f = fixture();
    f.take(rate(10, 20), 20);
    // Twice the rate: 20 owed of 40, so that exactly 20 pass.
    let faster = rate(20, 40);
    for _ in 0..20 {
        f.take(faster, 1);
    }
    assert_eq!(f.wait(faster, 1), Some(Duration::from_millis(50)));
    // A tenth of the rate: 40 are still owed, and a burst of 40 has room in half a second.
    assert_eq!(f.wait(rate(2, 40), 1), Some(Duration::from_millis(500)));
}

#[test]
fn a_key_that_is_always_refused_drains_at_its_new_rate() {
    let f = fixture();
    f.take(rate(1_000, 100), 100);
    let slower = rate(1, 100);
    for _ in 0..10 {
        assert!(f.wait(slower, 100).is_some());
        f.advance_ms(100);
    }
    // One second at the new rate: one unit. At the old one it would be all hundred.
    assert_eq!(f.limits.standing(f.key, slower).remaining, 1);
}

#[test]
fn a_smaller_burst_holds_at_once() {
    let f = fixture();
    f.take(rate(10, 100), 50);
    assert_eq!(f.limits.standing(f.key, rate(10, 20)).remaining, 0);
    assert_eq!(f.wait(rate(10, 20), 1), Some(Duration::from_millis(3_100)));
}

#[test]
fn settled_buckets_are_forgotten() {
    let f = fixture();
    for n in 0..1_000 {
        f.limits.check(tenant(&format!("t{n}")).events(), rate(1, 10), 1).unwrap();
    }
    f.limits.check(f.key, rate(1, 10), 5).unwrap();
    assert_eq!(f.limits.tracked(), 1_001);
    f.advance_ms(999);
    assert_eq!(f.limits.sweep(), 1_001);
    f.advance_ms(1);
    assert_eq!(f.limits.sweep(), 1);
    assert_eq!(f.limits.standing(f.key, rate(1, 10)).remaining, 6);
}

#[test]
fn memory_is_bounded_by_what_is_owed_even_if_nobody_sweeps() {
    let f = fixture();
    // 200,000 keys in 200 s, each owing for one second: about 1,000 of them at any time.
    for n in 0..200_000 {
        f.limits.check(tenant(&format!("t{n}")).events(), rate(1, 10), 1).unwrap();
        f.advance_ms(1);
    }
    let capacity: usize = f.limits.buckets.each().map(|buckets| buckets.capacity()).sum();
    assert!(capacity < 8 * 1_000, "{capacity}");
}

#[test]
fn threads_are_granted_exactly_the_burst_and_refusals_spend_nothing() {
    let f = fixture();
    let (limits, granted) = (&f.limits, [const { AtomicU64::new(0) }; 4]);
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let granted = &granted;
            scope.spawn(move || {
                let own = endpoint(&format!("wh_{}", thread % 4));
                // The order of the keys differs between threads: no order may deadlock.
                let mut asks = [
                    ask(tenant("acme").events(), rate(1, 5_000), 1),
                    ask(tenant("acme").bytes(), rate(1, 1_000_000), 100),
                    ask(own.events(), rate(1, 1_500), 1),
                    ask(own.bytes(), rate(1, 200_000), 100),
                ];
                asks.rotate_left(thread % 4);
                for _ in 0..5_000 {
                    if limits.admit(&asks).is_ok() {
                        granted[thread % 4].fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let granted = granted.map(AtomicU64::into_inner);
    assert_eq!(granted.iter().sum::<u64>(), 5_000, "the tenant's burst, to the last event");
    assert_eq!(limits.standing(tenant("acme").bytes(), rate(1, 1_000_000)).remaining, 500_000);
    for (at, granted) in granted.into_iter().enumerate() {
        let own = endpoint(&format!("wh_{at}"));
        let left = |key, burst| u64::from(limits.standing(key, rate(1, burst)).remaining);
        assert!(granted <= 1_500);
        assert_eq!(left(own.events(), 1_500), 1_500 - granted, "an endpoint pays for what it was granted");
        assert_eq!(left(own.bytes(), 200_000), 200_000 - granted * 100);
    }
}

#[test]
fn threads_on_the_real_clock_stay_within_the_rate_across_reloads() {
    let limits = LocalLimits::new(SystemClock::shared());
    let clock = SystemClock::shared();
    let (granted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut turn = 0_u32;
                while !done.load(Ordering::SeqCst) {
                    turn += 1;
                    // "Reloads" all the time, between threads that do not agree: never more than the larger rate.
                    let rate = rate(if turn.is_multiple_of(2) { 1_000 } else { 10_000 }, 50);
                    granted
                        .fetch_add(u64::from(limits.check(tenant("acme").events(), rate, 1).is_ok()), Ordering::SeqCst);
                }
            });
        }
        while clock.monotonic() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        done.store(true, Ordering::SeqCst);
    });
    let bound = clock.monotonic().as_secs_f64() * 10_000.0 + 50.0;
    let granted = granted.into_inner();
    assert!(granted > 50, "it drains");
    assert!(f64::from(u32::try_from(granted).unwrap()) <= bound, "{granted} of {bound}");
}

/// One step of a history of one key.
#[derive(Debug, Clone)]
enum Step {
    Advance(u64),
    Ask(u32),
    Reload(Rate),
    Sweep,
}

/// The plain model of one bucket, in billionths of a unit.
#[derive(Debug)]
struct Model {
    now_ns: u128,
    /// When it was last asked, and the rate that has drained it since.
    asked: (u128, Rate),
    owed: u128,
    /// How much more may have been charged than was owed: all the roundings to the strict side.
    strict: u128,
}

const UNIT: u128 = 1_000_000_000;

impl Model {
    fn drain(&mut self, rate: Rate) {
        let (then_ns, then) = self.asked;
        let drained = self.owed.min((self.now_ns - then_ns) * u128::from(then.per_second.get()));
        self.owed -= drained;
        // A period is rounded up by less than a nanosecond, and is never shorter than 256.
        self.strict += drained * u128::from(then.per_second.get()).min(UNIT / 256) / UNIT;
        self.asked = (self.now_ns, rate);
    }

    fn room(rate: Rate, amount: u32) -> u128 {
        u128::from(rate.burst.get().max(amount)) * UNIT
    }

    fn granule(rate: Rate) -> u128 {
        u128::from(rate.per_second.get() / 3_906_250 + 1) * 2 * UNIT
    }

    fn may_refuse(&mut self, rate: Rate, amount: u32) -> bool {
        self.drain(rate);
        let rounded = if rate.per_second.get() > 3_906_250 { Self::granule(rate) } else { 2 };
        self.owed + u128::from(amount) * UNIT + self.strict + rounded > Self::room(rate, amount)
    }

    /// Is it within the bound with `amount` on top?
    fn grant(&mut self, rate: Rate, amount: u32) -> bool {
        self.drain(rate);
        self.owed += u128::from(amount) * UNIT;
        self.strict += if rate.per_second.get() > 3_906_250 { Self::granule(rate) } else { 2 };
        amount == 0 || self.owed <= Self::room(rate, amount)
    }
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let per_second = prop_oneof![1..20_u32, 1_000..2_000_000_u32, 1_u32 << 28..=u32::MAX];
    let burst = prop_oneof![1..30_u32, 1_000..10_000_000_u32];
    (per_second, burst).prop_map(|(per_second, burst)| rate(per_second, burst))
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![0..2_000_u64, 0..3_000_000_000_u64].prop_map(Step::Advance),
        6 => prop_oneof![0..8_u32, 0..60_u32, 0..20_000_000_u32].prop_map(Step::Ask),
        1 => any_rate().prop_map(Step::Reload),
        1 => Just(Step::Sweep),
    ]
}

proptest! {
    /// The bound that the type promises, over every span of a history, and its counterparts: nobody is refused who
    /// had room, and the wait that is told is exact.
    #[test]
    fn granted_is_within_rate_times_time_plus_burst(
        first in any_rate(),
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let f = fixture();
        let mut model = Model { now_ns: 0, asked: (0, first), owed: 0, strict: 0 };
        let mut rate = first;
        for step in steps {
            match step {
                Step::Advance(ns) => {
                    f.advance_ns(ns);
                    model.now_ns += u128::from(ns);
                }
                Step::Reload(new) => rate = new,
                Step::Sweep => {
                    f.limits.sweep();
                }
                Step::Ask(amount) => {
                    if let Some(wait) = f.wait(rate, amount) {
                        prop_assert!(model.may_refuse(rate, amount), "refused {amount} at {rate:?}: {model:?}");
                        let wait_ns = u64::try_from(wait.as_nanos()).unwrap();
                        f.advance_ns(wait_ns - 1);
                        prop_assert_eq!(f.wait(rate, amount), Some(Duration::from_nanos(1)));
                        f.advance_ns(1);
                        model.now_ns += u128::from(wait_ns);
                        prop_assert_eq!(f.wait(rate, amount), None, "after {:?}", wait);
                    }
                    prop_assert!(model.grant(rate, amount), "granted {amount} at {rate:?}: {model:?}");
                }
            }
        }
    }

    #[test]
    fn no_refusal_spends(
        rates in prop::collection::vec(any_rate(), 4),
        asks in prop::collection::vec((prop::array::uniform4(0..4_usize), prop::array::uniform4(0..40_u32), 0..500_000_000_u64), 1..60),
    ) {
        let f = fixture();
        let keys = [tenant("a").events(), tenant("a").bytes(), endpoint("a").events(), endpoint("a").bytes()];
        let standings = || [0, 1, 2, 3].map(|at| f.limits.standing(keys[at], rates[at]));
        for (which, amounts, advance) in asks {
            f.advance_ns(advance);
            let before = standings();
            let asks = [0, 1, 2, 3].map(|at| ask(keys[which[at]], rates[which[at]], amounts[at]));
            if f.limits.admit(&asks).is_err() {
                prop_assert_eq!(standings(), before);
            } else {
                for (at, (after, before)) in standings().iter().zip(before).enumerate() {
                    let spent: u32 = (0..4).filter(|ask| which[*ask] == at).map(|ask| amounts[ask]).sum();
                    prop_assert!(after.remaining <= before.remaining.saturating_sub(spent));
                }
            }
        }
    }
}
