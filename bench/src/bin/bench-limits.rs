//! What the limits cost per delivery: one admission of four keys, one look at the unauthenticated budget, one
//! reservation of body bytes. CPU time of one thread; then wall time with all threads on tenants of their own and on
//! one.

use std::hint::black_box;
use std::time::Instant;

use domain::{EndpointId, SystemClock, TenantId};
use ratelimit::{Ask, InFlight, LocalLimits, Rate, Source, Subject, Unauthenticated, unauthenticated};

const TENANTS: usize = 100_000;
const TURNS: usize = 2_000_000;

fn asks(n: usize) -> [Ask; 4] {
    let tenant = Subject::tenant(&TenantId::parse(&format!("t{n}")).expect("a name"));
    let endpoint = Subject::endpoint(&EndpointId::parse(&format!("wh_{n}")).expect("a name"));
    let events = Rate::new(1_000_000, 1_000_000);
    let bytes = Rate::new(1_000_000_000, 1_000_000_000);
    [
        Ask { key: tenant.events(), rate: events, amount: 1 },
        Ask { key: tenant.bytes(), rate: bytes, amount: 1_024 },
        Ask { key: endpoint.events(), rate: events, amount: 1 },
        Ask { key: endpoint.bytes(), rate: bytes, amount: 1_024 },
    ]
}

/// What this thread has used: the same however busy the machine is.
fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn timed(what: &str, turns: usize, mut turn: impl FnMut(usize)) {
    let started = cpu_seconds();
    for n in 0..turns {
        turn(n);
    }
    let each = (cpu_seconds() - started) * 1e9 / turns as f64;
    println!("{what:<58} {each:>7.0} ns");
}

fn main() {
    let limits = LocalLimits::new(SystemClock::shared());
    let all: Vec<_> = (0..TENANTS).map(asks).collect();
    // A stride that is no divisor: every turn another tenant, far from the last one in memory.
    let pick = |n: usize| n.wrapping_mul(7_919) % TENANTS;

    timed("admit, 4 keys, one tenant", TURNS, |_| _ = black_box(limits.admit(&all[0])));
    timed("admit, 4 keys, 100,000 tenants in turn", TURNS, |n| _ = black_box(limits.admit(&all[pick(n)])));
    let spent = all[1].map(|ask| Ask { rate: Rate::new(1, 1), ..ask });
    timed("admit, 4 keys, refused", TURNS, |_| _ = black_box(limits.admit(&spent)));
    println!("buckets kept: {}, after a sweep: {}", limits.tracked(), limits.sweep());

    let budget = Unauthenticated::new(&unauthenticated::Settings::default(), SystemClock::shared());
    let source = Source::of("192.0.2.1".parse().expect("an address"));
    timed("unauthenticated: admits + verified, one known pair", TURNS, |_| {
        _ = black_box(budget.admits(source, 7));
        budget.verified(source, 7);
    });
    timed("unauthenticated: admits + verified, 100,000 endpoints", TURNS, |n| {
        _ = black_box(budget.admits(source, pick(n) as u64));
        budget.verified(source, pick(n) as u64);
    });

    let in_flight = InFlight::new(1 << 30);
    timed("in flight: reserve + give back", TURNS, |n| {
        _ = black_box(in_flight.reserve(pick(n) as u64, 1_024));
    });

    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    for (what, shared) in [("tenants of their own", false), ("one tenant", true)] {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (limits, asks) = (&limits, &all[if shared { 0 } else { thread }]);
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        _ = black_box(limits.admit(asks));
                    }
                });
            }
        });
        let each = started.elapsed().as_nanos() as f64 / TURNS as f64;
        println!("{:<58} {each:>7.0} ns", format!("admit, 4 keys, {threads} threads, {what}"));
    }
}
