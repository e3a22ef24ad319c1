//! What a call within held blocks costs, and what an idle lease weighs:
//! `cargo run --release -p tidegate-ratelimit --example held_quota`
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, reason = "a measurement prints")]

use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, SystemClock};
use tidegate_ratelimit::quota::holder::{Hold, Leases, Need, Per, Route, Settings, Token, Verdict};
use tidegate_ratelimit::quota::{
    Answer, Application, Body, BucketKey, Class, HolderId, Kind, Lease, Leg, Level, Metered, Name, Op, Reply, Rule,
    RuleSpec, Share, Tally,
};

const CALLS: usize = 2_000_000;
/// Units that are held of each bucket before anything is measured.
const FILLED: u32 = 10_000_000;

// As the appliance: a hundred bytes here or there are the allocator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Nobody;

impl Token for Nobody {
    fn is_gone(&self) -> bool {
        false
    }
}

struct Node {
    leases: Leases<Nobody>,
    rule: Arc<Rule>,
    application: Application,
    policy: Name,
    now_ms: u64,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

impl Node {
    fn new() -> Self {
        let settings = Settings { cells: 4_000_000, ..Settings::default() };
        let kind = Kind::Fixed { window_ms: 86_400_000, offset_ms: 0 };
        let spec = RuleSpec { cfgver: 1, kind, cap: 1 << 30, lease_ms: 60_000, guard_ms: 100, skew_ms: 0 };
        Self {
            leases: Leases::new(settings, HolderId(1), 1).unwrap(),
            rule: Arc::new(Rule::checked(spec).unwrap()),
            application: Application { provider: name("acme"), name: name("one") },
            policy: name("main"),
            now_ms: 1,
        }
    }

    /// A connection of its own tenant: the application's bucket, a region's, the connection's.
    fn route(&self, at: usize) -> Route {
        let need = |level, scope: &str| Need {
            application: self.application.clone(),
            bucket: Metered {
                key: Arc::new(BucketKey { level, scope: name(scope), policy: self.policy.clone() }),
                rule: Arc::clone(&self.rule),
            },
            per: Per::Cost,
        };
        let needs =
            [need(Level::App, "-"), need(Level::Region, &format!("r{at}")), need(Level::Connection, &format!("c{at}"))];
        let share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };
        // Tenants share an application's bucket; a hundred of them are enough to spread over all shards.
        self.leases.route(&name(&format!("t{}", at % 100)), share, &needs).unwrap()
    }

    /// A call that takes so much, and puts it back: what is asked for is there afterwards.
    fn fill(&self, route: &Route) {
        let (_, effects) = self.leases.hold(route, Class::Bulk, FILLED, 50, self.now_ms, || Nobody);
        for sending in effects.sends {
            let answered = self.leases.answered(sending.ticket, self.now_ms, Ok(granted(&sending.op)), self.now_ms);
            for (_, verdict) in answered.verdicts {
                if let Verdict::Held(taken) = verdict {
                    drop(self.leases.finish(&taken, false, self.now_ms));
                }
            }
        }
    }

    fn call(&self, route: &Route) -> bool {
        let (hold, effects) = self.leases.hold(route, Class::Bulk, 1, 50, self.now_ms, || Nobody);
        let Hold::Held(taken) = hold else { return false };
        let is_ok = self.leases.check(&taken, self.now_ms).is_ok() && effects.is_empty();
        drop(self.leases.finish(&taken, true, self.now_ms));
        is_ok
    }
}

/// What a centre answers that has all there is.
fn granted(op: &Op) -> Reply {
    let Body::Acquire(acquire) = &op.body else { unreachable!("only acquires are sent here") };
    let lease = |leg: &Leg| {
        let tally = Tally { wid: 1, units: u64::from(leg.want), before: 0 };
        Lease { units: leg.want, ttl_ms: 60_000, generation: 1, tally }
    };
    Reply { epoch: 1, answer: Answer::Granted(acquire.legs.iter().map(lease).collect()) }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

fn main() {
    let clock = SystemClock::new();
    for buckets in [3, 3_000, 100_000, 1_000_000] {
        let node = Node::new();
        let start = resident_bytes();
        let routes: Vec<Route> = (0..(buckets / 2).max(1)).map(|at| node.route(at)).collect();
        let before = resident_bytes();
        for route in &routes {
            node.fill(route);
        }
        let grown = resident_bytes().saturating_sub(before);
        let cells = node.leases.sizes().0;
        let mut local = 0_usize;
        let began = clock.monotonic();
        let calls = CALLS;
        for at in 0..calls {
            let route = &routes[at.wrapping_mul(2_654_435_761) % routes.len()];
            local += usize::from(node.call(route));
        }
        let took = clock.monotonic().saturating_sub(began);
        println!(
            "{cells:>8} leases: {:.0} ns a call over {calls} calls, {:.1} % within blocks; {:.0} bytes a lease, and {:.0} of names and routes",
            per(took, calls),
            local as f64 * 100.0 / calls as f64,
            grown as f64 / cells as f64,
            before.saturating_sub(start) as f64 / cells as f64,
        );
    }
}

fn per(took: Duration, count: usize) -> f64 {
    took.as_nanos() as f64 / count as f64
}
