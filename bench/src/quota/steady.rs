//! What a governed call costs Redis in steady state: operations, and its processor time; leases beside one `INCRBY` and
//! a GCRA script for each call, at the same rates.
//!
//! Nodes are holders in this process, each with a connection of its own to the Redis. All rates are of calls that are
//! due at random moments (exponential distances), all nodes together; each bucket has so many calls per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit::quota::holder::{BootClock, Holder, Need, Route, Settings};
use ratelimit::quota::sim::Dice;
use ratelimit::quota::{Class, HolderId, Kind, Level, Pace, Rule};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::counted::Counted;
use super::redis_server::{Look, Server};
use super::things::{SHARE, application, name, need, rule};
use crate::Result;

/// Calls per second of all buckets together.
const TOTAL: u32 = 2_000;
const NODES: [usize; 2] = [1, 4];
/// Blocks have grown to what the rate needs.
const WARM_UP: Duration = Duration::from_secs(4);
/// How often calls that are due are begun.
const STEP: Duration = Duration::from_millis(1);

/// How a limit stands to what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// A window of a minute of which a quarter is used.
    Wide,
    /// A token bucket of a second's burst of which 90 % is used: blocks are bounded by what a lease may delay.
    Narrow,
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    Leases,
    Incrby,
    Gcra,
}

/// One load.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub who: Who,
    pub levels: usize,
    /// None where each call asks, and it makes no difference.
    pub limit: Option<Limit>,
    pub per_second_each: u32,
    pub nodes: usize,
    pub calls: u64,
    /// Calls that went, of those that came.
    pub went: f64,
    pub operations_per_call: f64,
    /// What they come to with the largest blocks that rate and limit allow; none of those that ask for each call.
    pub operations_least: Option<f64>,
    /// Processor µs of Redis per call, less what it takes idle.
    pub cpu_us_per_call: f64,
}

/// One load to be measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    who: Who,
    levels: usize,
    limit: Option<Limit>,
    per_second_each: u32,
    nodes: usize,
}

fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for limit in [Limit::Wide, Limit::Narrow] {
        for per_second_each in [10, 100, 1_000] {
            let of = |nodes| Load { who: Who::Leases, levels: 1, limit: Some(limit), per_second_each, nodes };
            loads.extend(NODES.map(of));
        }
    }
    for nodes in NODES {
        loads.push(Load { who: Who::Leases, levels: 3, limit: Some(Limit::Wide), per_second_each: 100, nodes });
    }
    for who in [Who::Incrby, Who::Gcra] {
        for levels in [1, 3] {
            let of = |nodes| Load { who, levels, limit: None, per_second_each: 100, nodes };
            loads.extend(NODES.map(of));
        }
    }
    loads
}

pub(super) async fn measure(server: &Server, seconds: u64) -> Result<Vec<Row>> {
    let mut look = server.look().await?;
    let idle_us_per_s = idle(&mut look).await?;
    let gcra = Counted::gcra(&mut look.0).await?;
    let mut rows = Vec::new();
    for (number, load) in loads().into_iter().enumerate() {
        eprintln!("steady: {load:?}, {seconds} s …");
        let mut nodes = Vec::new();
        for node in 0..load.nodes {
            nodes.push(Arc::new(Node::start(server, load, &gcra, number, node).await?));
        }
        ready(&nodes[0]).await?;
        run(&nodes, load, WARM_UP).await?;
        let before = Seen::now(&mut look, load).await?;
        let (began, seen) = (Instant::now(), run(&nodes, load, Duration::from_secs(seconds)).await?);
        let after = Seen::now(&mut look, load).await?;
        let idle_us = idle_us_per_s * began.elapsed().as_secs_f64();
        for node in nodes {
            node.stop().await?;
        }
        rows.push(Row {
            who: load.who,
            levels: load.levels,
            limit: load.limit,
            per_second_each: load.per_second_each,
            nodes: load.nodes,
            calls: seen.came,
            went: seen.went as f64 / seen.came as f64,
            operations_least: (load.who == Who::Leases).then(|| least(load)),
            operations_per_call: (after.operations - before.operations) / seen.went as f64,
            cpu_us_per_call: (after.cpu_us - before.cpu_us - idle_us) / seen.went as f64,
        });
    }
    Ok(rows)
}

/// Waits until calls go: a server that does not know an application grants nothing for the time of a lease.
async fn ready(node: &Node) -> Result<()> {
    for _ in 0..300 {
        if node.call(0).await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("nothing is granted".into())
}

/// Processor µs that the server takes in a second in which nobody asks anything.
async fn idle(look: &mut Look) -> Result<f64> {
    const FOR: Duration = Duration::from_secs(10);
    let before = look.cpu_us().await?;
    tokio::time::sleep(FOR).await;
    Ok((look.cpu_us().await? - before) / FOR.as_secs_f64())
}

struct Seen {
    cpu_us: f64,
    operations: f64,
}

impl Seen {
    async fn now(look: &mut Look, load: Load) -> Result<Self> {
        let command = match load.who {
            Who::Leases => "fcall",
            Who::Incrby => "incrby",
            Who::Gcra => "evalsha",
        };
        Ok(Self { cpu_us: look.cpu_us().await?, operations: look.command(command).await?.0 })
    }
}

/// One node, and how it decides.
enum Node {
    Leases { holder: Holder, routes: Vec<Route>, stop: oneshot::Sender<()>, asks: JoinHandle<()> },
    Counted { counted: Counted, connection: MultiplexedConnection, keys: Vec<Vec<String>> },
}

impl Node {
    async fn start(server: &Server, load: Load, gcra: &Counted, number: usize, node: usize) -> Result<Self> {
        let buckets = TOTAL / load.per_second_each;
        let counted = match load.who {
            Who::Leases => return Self::leases(server, load, number, node),
            Who::Incrby => Counted::Incrby,
            Who::Gcra => gcra.clone(),
        };
        let key = |bucket, level| match level {
            0 => format!("steady:{number}:{bucket}"),
            _ => format!("steady:{number}:-{level}"),
        };
        let keys = (0..buckets).map(|bucket| (0..load.levels).map(|level| key(bucket, level)).collect()).collect();
        Ok(Self::Counted { counted, connection: server.connection().await?, keys })
    }

    fn leases(server: &Server, load: Load, number: usize, node: usize) -> Result<Self> {
        // Never drawn twice: each load and node has one.
        let id = HolderId((number as u128 + 1) << 64 | node as u128);
        let holder = Holder::new(Settings::default(), id, Arc::new(BootClock::default()))?;
        let routes = (0..TOTAL / load.per_second_each)
            .map(|bucket| Ok(holder.route(&name(&format!("tenant-{bucket}")), SHARE, &needs(load, number, bucket))?))
            .collect::<Result<Vec<_>>>()?;
        let (stop, stopped) = oneshot::channel();
        let (asking, centre) = (holder.clone(), server.centre()?);
        let asks = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            asking.run(Arc::new(centre), stopped, Duration::from_secs(2)).await;
        });
        Ok(Self::Leases { holder, routes, stop, asks })
    }

    /// One call; whether it went.
    async fn call(&self, bucket: usize) -> Result<bool> {
        match self {
            Self::Leases { holder, routes, .. } => {
                let Ok(held) = holder.hold(&routes[bucket], Class::Interactive, 1, None).await else {
                    return Ok(false);
                };
                let is_ok = held.check().is_ok();
                if is_ok {
                    held.sent();
                }
                Ok(is_ok)
            }
            Self::Counted { counted, connection, keys } => {
                counted.call(&mut connection.clone(), &keys[bucket]).await?;
                Ok(true)
            }
        }
    }

    async fn stop(self: Arc<Self>) -> Result<()> {
        // Calls that were under way have ended with the run that they were of.
        match Arc::into_inner(self).ok_or("a call goes on after its load")? {
            Self::Leases { stop, asks, .. } => {
                drop(stop);
                Ok(asks.await?)
            }
            Self::Counted { .. } => Ok(()),
        }
    }
}

/// A connection's bucket; at three levels the application's and the address's too, which have room for all.
fn needs(load: Load, number: usize, bucket: u32) -> Vec<Need> {
    let app = application(&format!("steady-{number}"));
    let own = limit(load.limit.unwrap_or(Limit::Wide), load.per_second_each);
    let mut needs = vec![need(&app, Level::Connection, &format!("con-{bucket}"), &own)];
    if load.levels == 3 {
        let all = limit(Limit::Wide, TOTAL);
        needs.push(need(&app, Level::App, "-", &all));
        needs.push(need(&application(&format!("steady-{number}-src")), Level::Source, "192.0.2.1", &all));
    }
    needs
}

/// Operations per call with the largest blocks that there may be: what a node's calls of a bucket need for as long as a
/// block is to last, and no more than a twentieth of what the centre may grant at a time over the nodes.
fn least(load: Load) -> f64 {
    let rule = limit(load.limit.unwrap_or(Limit::Wide), load.per_second_each);
    let lasts_ms = Settings::default().horizon_ms.min(u64::from(rule.lease_ms) * 3 / 4);
    let wanted = f64::from(load.per_second_each) / load.nodes as f64 * lasts_ms as f64 / 1e3;
    let whole = match rule.kind {
        Kind::Bucket { window_ms, burst } => {
            let pace = Pace::of(rule.cap, window_ms, burst, rule.lease_ms + rule.guard_ms);
            pace.most as f64 / pace.unit as f64
        }
        _ => f64::from(rule.cap),
    };
    let block = wanted.min(whole / 20.0 / load.nodes as f64).max(1.0);
    // The source address is an application of its own.
    let applications = if load.levels == 3 { 2.0 } else { 1.0 };
    applications / block
}

fn limit(limit: Limit, per_second: u32) -> Arc<Rule> {
    match limit {
        Limit::Wide => rule(Kind::Fixed { window_ms: 60_000, offset_ms: 0 }, per_second * 60 * 4, 5_000, 500),
        Limit::Narrow => {
            let cap = per_second * 10 / 9;
            rule(Kind::Bucket { window_ms: 1_000, burst: cap }, cap, 300, 200)
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    came: u64,
    went: u64,
}

/// Calls of all nodes for so long; all of them are over when it returns.
async fn run(nodes: &[Arc<Node>], load: Load, length: Duration) -> Result<Outcome> {
    let mut generators = JoinSet::new();
    for (at, node) in nodes.iter().enumerate() {
        let per_ms = f64::from(TOTAL) / 1_000.0 / load.nodes as f64;
        generators.spawn(generate(Arc::clone(node), at as u64, per_ms, TOTAL / load.per_second_each, length));
    }
    let mut all = Outcome { came: 0, went: 0 };
    while let Some(ended) = generators.join_next().await {
        let of = ended??;
        (all.came, all.went) = (all.came + of.came, all.went + of.went);
    }
    if all.went == 0 { Err(format!("no call went: {load:?}").into()) } else { Ok(all) }
}

/// Begins calls when they are due, each of any bucket.
async fn generate(node: Arc<Node>, seed: u64, per_ms: f64, buckets: u32, length: Duration) -> Result<Outcome> {
    let mut dice = Dice(seed);
    let went = Arc::new(AtomicU64::new(0));
    let (began, mut due_ms, mut came) = (Instant::now(), 0.0, 0);
    let mut steps = tokio::time::interval(STEP);
    let mut calls = JoinSet::new();
    while began.elapsed() < length {
        steps.tick().await;
        let now_ms = began.elapsed().as_secs_f64() * 1e3;
        while due_ms <= now_ms {
            due_ms += dice.exponential(1.0 / per_ms);
            came += 1;
            let (node, went) = (Arc::clone(&node), Arc::clone(&went));
            let bucket = dice.below(u64::from(buckets)) as usize;
            calls.spawn(async move {
                went.fetch_add(u64::from(node.call(bucket).await?), Ordering::Relaxed);
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            });
        }
        while let Some(ended) = calls.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }
    Ok(Outcome { came, went: went.load(Ordering::Relaxed) })
}

pub(super) fn print(rows: &[Row]) {
    println!("\nwhat a governed call costs Redis in steady state, {TOTAL} calls/s in all");
    println!(
        "{:<8} {:>6} {:<8} {:>11} {:>6} {:>8} {:>7} {:>10} {:>9} {:>8}",
        "who", "levels", "limit", "per bucket", "nodes", "calls", "went", "ops/call", "at least", "CPU µs"
    );
    for row in rows {
        let who = match row.who {
            Who::Leases => "leases",
            Who::Incrby => "INCRBY",
            Who::Gcra => "GCRA",
        };
        let limit = row.limit.map_or("-", |limit| match limit {
            Limit::Wide => "wide",
            Limit::Narrow => "narrow",
        });
        println!(
            "{who:<8} {:>6} {limit:<8} {:>9}/s {:>6} {:>8} {:>6.1}% {:>10.4} {:>9} {:>8.2}",
            row.levels,
            row.per_second_each,
            row.nodes,
            row.calls,
            row.went * 100.0,
            row.operations_per_call,
            row.operations_least.map_or_else(|| "-".into(), |least| format!("{least:.4}")),
            row.cpu_us_per_call
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_operations_are_those_of_the_largest_blocks() {
        let load = |limit, per_second_each, nodes, levels| Load {
            who: Who::Leases,
            levels,
            limit: Some(limit),
            per_second_each,
            nodes,
        };
        // 1.5 s of 100 calls each, in one piece and in four.
        assert!((least(load(Limit::Wide, 100, 1, 1)) - 1.0 / 150.0).abs() < 1e-9);
        assert!((least(load(Limit::Wide, 100, 4, 1)) - 4.0 / 150.0).abs() < 1e-9);
        assert!((least(load(Limit::Wide, 100, 1, 3)) - 2.0 / 150.0).abs() < 1e-9);
        // A burst of 11 of which half may be on its way: no blocks at all.
        assert!((least(load(Limit::Narrow, 10, 1, 1)) - 1.0).abs() < 1e-9);
    }
}
