//! What a bucket costs in Redis that nobody uses, and that it has an end.

use std::sync::Arc;

use ratelimit::quota::redis::RedisCentre;
use ratelimit::quota::{Acquire, Answer, Body, Centre, Class, HolderId, Kind, Leg, Lessee, Level, Op, Rule, Tally};
use redis::aio::MultiplexedConnection;
use serde::Serialize;

use super::redis_server::Server;
use super::things::{SHARE, application, metered, name, rule};
use crate::Result;

/// Askers at a time.
const ASKERS: usize = 32;
/// Keys that are looked at one by one.
const SAMPLE: usize = 2_000;
const DAY_MS: u64 = 86_400_000;

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Row {
    pub buckets: usize,
    /// By the allocator's count, indexes of keys included.
    pub used_bytes: f64,
    pub resident_bytes: f64,
    /// By `MEMORY USAGE`, of all keys of a bucket; indexes of keys are not in it.
    pub usage_bytes: f64,
    pub keys_each: f64,
    /// Of the keys that were looked at, those without an end.
    pub endless: usize,
    /// The latest end of them, from now.
    pub longest_ms: i64,
}

impl Row {
    pub(super) fn forgotten(&self) -> String {
        let hours = self.longest_ms as f64 / 3_600_000.0;
        if self.endless == 0 { format!("in {hours:.1} h") } else { format!("never {}", self.endless) }
    }
}

pub(super) async fn measure(server: &Server, buckets: usize) -> Result<Row> {
    let mut look = server.look().await?;
    let centre = server.centre()?;
    let daily = rule(Kind::Fixed { window_ms: DAY_MS, offset_ms: 0 }, 5_000, 2_000, 500);
    // What the library and the first bucket bring is nobody's; and a server that has just begun grants nothing at first.
    super::acquire::until_granted(&centre, &ask(buckets, &daily)).await?;
    let before = look.memory().await?;
    let keys_before = keys(&mut look.0).await?;
    let mut askers = tokio::task::JoinSet::new();
    for first in 0..ASKERS {
        let (centre, daily) = (centre.clone(), Arc::clone(&daily));
        askers.spawn(async move { fill(&centre, &daily, (first..buckets).step_by(ASKERS)).await });
    }
    while let Some(ended) = askers.join_next().await {
        ended??;
    }
    let after = look.memory().await?;
    let made = keys(&mut look.0).await? - keys_before;
    let each = |after: f64, before: f64| (after - before) / buckets as f64;
    let sampled = sample(&mut look.0).await?;
    Ok(Row {
        buckets,
        used_bytes: each(after.0, before.0),
        resident_bytes: each(after.1, before.1),
        usage_bytes: sampled.bytes_per_key * made / buckets as f64,
        keys_each: made / buckets as f64,
        endless: sampled.endless,
        longest_ms: sampled.longest_ms,
    })
}

async fn fill(centre: &RedisCentre, rule: &Arc<Rule>, numbers: impl Iterator<Item = usize>) -> Result<()> {
    for number in numbers {
        let reply = centre.ask(&ask(number, rule)).await?;
        if !matches!(reply.answer, Answer::Granted(_)) {
            return Err(format!("bucket {number}: {:?}", reply.answer).into());
        }
    }
    Ok(())
}

async fn keys(connection: &mut MultiplexedConnection) -> Result<f64> {
    Ok(redis::cmd("DBSIZE").query_async(connection).await?)
}

struct Sampled {
    bytes_per_key: f64,
    endless: usize,
    longest_ms: i64,
}

/// Keys of buckets, any of them. Those of the application itself are longer with each bucket and are left out.
async fn sample(connection: &mut MultiplexedConnection) -> Result<Sampled> {
    let mut sampled = Sampled { bytes_per_key: 0.0, endless: 0, longest_ms: 0 };
    let (mut cursor, mut looked_at) = (0_u64, 0_usize);
    while looked_at < SAMPLE {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg("*con_*").arg("COUNT").arg(500);
        let (next, keys): (u64, Vec<String>) = scan.query_async(connection).await?;
        for key in &keys {
            let bytes: f64 =
                redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query_async(connection).await?;
            let ttl_ms: i64 = redis::cmd("PTTL").arg(key).query_async(connection).await?;
            sampled.bytes_per_key += bytes;
            sampled.endless += usize::from(ttl_ms < 0);
            sampled.longest_ms = sampled.longest_ms.max(ttl_ms);
            looked_at += 1;
        }
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    sampled.bytes_per_key /= looked_at.max(1) as f64;
    Ok(sampled)
}

fn ask(number: usize, rule: &Arc<Rule>) -> Op {
    let scope = format!("con_{:016x}", (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let leg = Leg {
        bucket: metered(Level::Connection, &scope, rule),
        seq: 1,
        least: 1,
        want: 10,
        unspent: 0,
        demand_milli: 1_000,
        tally: Tally::default(),
        heard: 0,
    };
    let lessee = Lessee { holder: HolderId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef), tenant: name("ten_0123456789") };
    let body = Body::Acquire(Acquire { lessee, class: Class::Interactive, share: SHARE, legs: vec![leg] });
    Op { application: application("memory"), body }
}
