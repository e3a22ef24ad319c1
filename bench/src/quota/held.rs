//! What a call within a held block costs: hold, check, sent, drop, at three levels.
//!
//! Each count of buckets has a process of its own, whose memory nothing has stretched before. Ten connections are of
//! one tenant, a hundred tenants of one application and of one source address, so that a tenant has ten leases of
//! connections, one of its application and one of the address; a call takes one unit of each of three. Units are
//! granted by [`Plenty`], before anything is measured.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ratelimit::quota::holder::{Holder, Route, Settings};
use ratelimit::quota::{CAP_MAX, Class, HolderId, Kind, Level};
use serde::{Deserialize, Serialize};

use super::plenty::{HeldClock, Plenty};
use super::things::{SHARE, application, name, need, rule};
use crate::Result;

/// Buckets of connections that are held.
pub const BUCKETS: [usize; 4] = [1, 1_000, 100_000, 1_000_000];
/// Calls of one thread in one measurement.
pub const CALLS: usize = 2_000_000;

const CONNECTIONS_PER_TENANT: usize = 10;
const TENANTS_PER_APPLICATION: usize = 100;
/// Callers that fill at a time.
const FILLERS: usize = 64;

/// Which routes calls take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One route again and again; each thread its own.
    Hot,
    /// One route for all threads: they meet at one lock.
    HotShared,
    /// Any of all routes each time: its leases come from far away in memory.
    Cold,
}

impl Pattern {
    pub fn label(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::HotShared => "hot, one for all",
            Self::Cold => "cold",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Row {
    /// Buckets of connections.
    pub buckets: usize,
    /// Leases in all, those of applications and addresses counted.
    pub leases: usize,
    pub pattern: Pattern,
    pub threads: usize,
    /// Processor time of a call, ns.
    pub cpu_ns: f64,
    /// Calls of all threads per second by the clock.
    pub per_second: f64,
}

/// Everything about one count of buckets.
pub fn measure(buckets: usize, calls: usize) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let clock = Arc::new(HeldClock::held());
    // A call that is not within its block would wait, by the runtime's timers: here it is an error.
    let _entered = runtime.enter();
    let settings = Settings { cells: 4_000_000, ..Settings::default() };
    let holder = Holder::new(settings, HolderId(1), Arc::clone(&clock) as Arc<dyn domain::Clock>)?;
    let routes: Arc<[Route]> = (0..buckets).map(|at| route(&holder, at)).collect::<Result<Vec<_>>>()?.into();
    runtime.block_on(fill(&holder, &routes, calls))?;
    let leases = holder.sizes().0;
    let mut rows = Vec::new();
    for threads in [1, 2] {
        for pattern in [Pattern::Hot, Pattern::HotShared, Pattern::Cold] {
            let is_told = match pattern {
                Pattern::Hot => buckets > CONNECTIONS_PER_TENANT * (threads - 1),
                Pattern::HotShared => threads > 1,
                Pattern::Cold => buckets > 1,
            };
            if is_told {
                rows.push(run(&holder, &routes, &clock, (buckets, leases), (pattern, threads, calls))?);
            }
        }
    }
    Ok(rows)
}

fn route(holder: &Holder, connection: usize) -> Result<Route> {
    let tenant = connection / CONNECTIONS_PER_TENANT;
    let group = tenant / TENANTS_PER_APPLICATION;
    // No limit here is ever the narrow one.
    let rule = rule(Kind::Fixed { window_ms: 86_400_000, offset_ms: 0 }, CAP_MAX, 60_000, 100);
    let (app, address) = (application(&format!("app-{group}")), application(&format!("src-192.0.2.{group}")));
    let needs = [
        need(&app, Level::Connection, &format!("con-{connection}"), &rule),
        need(&app, Level::App, "-", &rule),
        need(&address, Level::Source, &format!("192.0.2.{group}"), &rule),
    ];
    Ok(holder.route(&name(&format!("tenant-{tenant}")), SHARE, &needs)?)
}

/// Takes what all calls of all measurements need of each lease, and puts it back unspent.
async fn fill(holder: &Holder, routes: &Arc<[Route]>, calls: usize) -> Result<()> {
    let asking = holder.clone();
    let asks = tokio::spawn(async move {
        asking.run(Arc::new(Plenty), std::future::pending(), Duration::ZERO).await;
    });
    // Three patterns, two threads; a tenant's lease is used by all its connections.
    let each = u32::try_from(CONNECTIONS_PER_TENANT * 6 * calls / routes.len() + 1_000)?.min(CAP_MAX / 4);
    let mut fillers = tokio::task::JoinSet::new();
    for first in 0..FILLERS {
        let (holder, routes) = (holder.clone(), Arc::clone(routes));
        fillers.spawn(async move {
            // One tenant's after each other: what one call has of a lease that another one replaces is lost.
            for tenant in routes.chunks(CONNECTIONS_PER_TENANT).skip(first).step_by(FILLERS) {
                for route in tenant {
                    take(&holder, route, each).await?;
                }
            }
            Ok::<(), String>(())
        });
    }
    while let Some(ended) = fillers.join_next().await {
        ended??;
    }
    for route in routes.iter().step_by(CONNECTIONS_PER_TENANT).take(2) {
        take(holder, route, each.max(u32::try_from(calls * 8)?)).await?;
    }
    asks.abort();
    Ok(())
}

async fn take(holder: &Holder, route: &Route, units: u32) -> Result<(), String> {
    let held = holder.hold(route, Class::Bulk, units, Some(Duration::from_secs(20))).await;
    held.map_err(|parked| format!("a block is not filled: {parked:?}"))?.not_sent();
    Ok(())
}

fn run(
    holder: &Holder,
    routes: &[Route],
    clock: &HeldClock,
    (buckets, leases): (usize, usize),
    (pattern, threads, calls): (Pattern, usize, usize),
) -> Result<Row> {
    let local_before = holder.counters().local;
    clock.let_go();
    let began = Instant::now();
    let cpu = std::thread::scope(|scope| {
        let runtime = tokio::runtime::Handle::current();
        let thread = |thread: usize| {
            let runtime = runtime.clone();
            scope.spawn(move || {
                let _entered = runtime.enter();
                caller(holder, routes, pattern, thread, calls)
            })
        };
        let running: Vec<_> = (0..threads).map(thread).collect();
        running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a caller ended".to_owned())?)
            .sum::<Result<f64, _>>()
    })?;
    let took = began.elapsed();
    clock.hold();
    let all = (threads * calls) as u64;
    if holder.counters().local - local_before != all {
        return Err(format!("of {all} calls {} were within blocks", holder.counters().local - local_before).into());
    }
    let per_second = all as f64 / took.as_secs_f64();
    Ok(Row { buckets, leases, pattern, threads, cpu_ns: cpu * 1e9 / all as f64, per_second })
}

/// Makes calls; the processor seconds that this thread spent on them.
fn caller(holder: &Holder, routes: &[Route], pattern: Pattern, thread: usize, calls: usize) -> Result<f64, String> {
    let own = match pattern {
        Pattern::Hot => (thread * CONNECTIONS_PER_TENANT) % routes.len(),
        Pattern::HotShared | Pattern::Cold => 0,
    };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread as u64 + 1);
    let began = cpu_seconds();
    for _ in 0..calls {
        let at = if pattern == Pattern::Cold {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            ((u128::from(random) * routes.len() as u128) >> 64) as usize
        } else {
            own
        };
        if !call(holder, &routes[at]) {
            return Err(format!("a call by bucket {at} was not within its block"));
        }
    }
    Ok(cpu_seconds() - began)
}

/// One call as egress makes it, without what is written in between.
fn call(holder: &Holder, route: &Route) -> bool {
    let hold = pin!(holder.hold(route, Class::Bulk, 1, None));
    let Poll::Ready(Ok(held)) = hold.poll(&mut Context::from_waker(Waker::noop())) else { return false };
    let is_ok = held.check().is_ok();
    held.sent();
    is_ok
}

/// What this thread has used: nearly the same however busy the machine is.
fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

pub(super) fn print(rows: &[Row]) {
    println!("\na call within held blocks, three levels: hold, check, sent, drop");
    println!("{:>9} {:>9} {:<17} {:>7} {:>10} {:>13}", "buckets", "leases", "route", "threads", "CPU ns", "calls/s");
    for row in rows {
        let (pattern, per_second) = (row.pattern.label(), row.per_second);
        println!(
            "{:>9} {:>9} {pattern:<17} {:>7} {:>10.0} {per_second:>13.0}",
            row.buckets, row.leases, row.threads, row.cpu_ns
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measured_call_is_within_its_block() {
        let one = measure(1, 2_000).unwrap();
        let patterns: Vec<_> = one.iter().map(|row| (row.threads, row.pattern)).collect();
        assert_eq!(patterns, [(1, Pattern::Hot), (2, Pattern::HotShared)]);
        assert_eq!(one[0].leases, 3);
        let many = measure(1_000, 2_000).unwrap();
        assert_eq!(many.len(), 5);
        assert_eq!(many[0].leases, 1_000 + 2 * 100);
        assert!(many.iter().all(|row| row.cpu_ns > 1.0));
    }
}
