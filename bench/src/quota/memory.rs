//! What a bucket costs that nobody uses but that has to be remembered, and that it is forgotten in the end: on the node
//! and in the centre of one process. Time is an argument there, so that a day passes at once.
//!
//! A connection's daily quota of which something is used: a tenant of its own for each, as the dearest case.

use std::sync::Arc;

use ratelimit::quota::holder::{Leases, Route, Settings, Token, Verdict};
use ratelimit::quota::{
    Acquire, Answer, BUCKETS_MAX, Body, Class, Core, Epoch, HolderId, Kind, Leg, Lessee, Level, Memory, Op, Rule,
    SweepCursor, Tally,
};
use serde::{Deserialize, Serialize};

use super::plenty::Plenty;
use super::things::{SHARE, application, metered, name, need, rule};
use crate::{Result, process};

pub const BUCKETS: usize = 200_000;

const DAY_MS: u64 = 86_400_000;
const START_MS: u64 = 1_800_000_000_000;

/// Resident bytes per bucket.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Row {
    pub buckets: usize,
    /// Routes with their names: what a connection costs whether or not it is called. None of a centre.
    pub route_bytes: Option<f64>,
    /// While it is in use.
    pub busy_bytes: f64,
    /// While it only has to be remembered.
    pub idle_bytes: f64,
    /// How many are remembered once nothing of them matters any more.
    pub left: usize,
    /// Of what the buckets took, the part that is still resident then.
    pub left_part: f64,
}

struct Nobody;

impl Token for Nobody {
    fn is_gone(&self) -> bool {
        false
    }
}

fn resident_bytes() -> Result<u64> {
    Ok(process::memory(std::process::id())?.resident_bytes)
}

fn each(bytes: u64, before: u64, buckets: usize) -> f64 {
    bytes.saturating_sub(before) as f64 / buckets as f64
}

fn daily(lease_ms: u32) -> Arc<Rule> {
    rule(Kind::Fixed { window_ms: DAY_MS, offset_ms: 0 }, 5_000, lease_ms, 500)
}

/// Ids are drawn at random: so are these, as far as the order of keys goes.
fn scope(number: usize) -> String {
    format!("con_{:016x}", (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Leases of one node.
pub fn node(buckets: usize) -> Result<Row> {
    let settings = Settings { cells: 4_000_000, ..Settings::default() };
    let leases = Leases::<Nobody>::new(settings, HolderId(1), 1)?;
    let (app, rule) = (application("one"), daily(60_000));
    let start = resident_bytes()?;
    let mut routes = Vec::with_capacity(buckets);
    for number in 0..buckets {
        let needs = [need(&app, Level::Connection, &scope(number), &rule)];
        routes.push(leases.route(&name(&format!("ten_{number:010}")), SHARE, &needs)?);
    }
    let before = resident_bytes()?;
    let mut now_ms = 1_000;
    for route in &routes {
        take(&leases, route, now_ms)?;
    }
    let busy = resident_bytes()?;
    // Given back after a while without use, and still to be remembered.
    now_ms = pass(&leases, now_ms, 30_000);
    let kept = leases.sizes().0;
    if kept != buckets {
        return Err(format!("of {buckets} leases {kept} are remembered within their window").into());
    }
    let idle = resident_bytes()?;
    pass(&leases, now_ms, DAY_MS + 120_000);
    let after = resident_bytes()?;
    Ok(Row {
        buckets,
        route_bytes: Some(each(before, start, buckets)),
        busy_bytes: each(busy, before, buckets),
        idle_bytes: each(idle, before, buckets),
        left: leases.sizes().0,
        left_part: after.saturating_sub(before) as f64 / busy.saturating_sub(before).max(1) as f64,
    })
}

/// One call, sent.
fn take(leases: &Leases<Nobody>, route: &Route, now_ms: u64) -> Result<()> {
    let (_, effects) = leases.hold(route, Class::Bulk, 1, 50, now_ms, || Nobody);
    for sending in effects.sends {
        let answered = leases.answered(sending.ticket, now_ms, Ok(Plenty::reply(&sending.op)), now_ms);
        for (_, verdict) in answered.verdicts {
            let Verdict::Held(taken) = verdict else { return Err("a call was parked".into()) };
            drop(leases.finish(&taken, true, now_ms));
        }
    }
    Ok(())
}

/// Lets time pass, in steps in which everything that is due is done; the moment after it.
fn pass(leases: &Leases<Nobody>, from_ms: u64, for_ms: u64) -> u64 {
    let end_ms = from_ms + for_ms;
    let mut now_ms = from_ms;
    while now_ms < end_ms {
        let due_ms = leases.next_due_ms();
        // A little later than it is due, so that a step has more than one thing to do.
        now_ms = (due_ms.max(now_ms) + (for_ms / 1_000).max(50)).min(end_ms);
        // At one moment a part of what is due is done at a time.
        while leases.next_due_ms() <= now_ms {
            for sending in leases.tick(now_ms, START_MS + now_ms).sends {
                drop(leases.answered(sending.ticket, now_ms, Ok(Plenty::reply(&sending.op)), now_ms));
            }
        }
    }
    end_ms
}

/// Buckets of the centre that is in the process.
pub fn in_process(buckets: usize) -> Result<Row> {
    let mut core = Core::new(Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole }, BUCKETS_MAX);
    let rule = daily(2_000);
    let before = resident_bytes()?;
    let mut cursor = SweepCursor::default();
    for number in 0..buckets {
        // Packed as it goes, as a running centre does.
        let now_ms = START_MS + number as u64 * 10;
        let reply = core.step(now_ms, &ask(number, &rule));
        if !matches!(reply.answer, Answer::Granted(_)) {
            return Err(format!("bucket {number}: {:?}", reply.answer).into());
        }
        if number % 500 == 0 {
            core.sweep(now_ms, &mut cursor, buckets);
        }
    }
    let busy = resident_bytes()?;
    sweep_all(&mut core, START_MS + buckets as u64 * 10 + 60_000, buckets);
    if core.buckets() != buckets {
        return Err(format!("of {buckets} buckets {} are remembered within their window", core.buckets()).into());
    }
    let idle = resident_bytes()?;
    sweep_all(&mut core, START_MS + 3 * DAY_MS, buckets);
    let after = resident_bytes()?;
    Ok(Row {
        buckets,
        route_bytes: None,
        busy_bytes: each(busy, before, buckets),
        idle_bytes: each(idle, before, buckets),
        left: core.buckets(),
        left_part: after.saturating_sub(before) as f64 / busy.saturating_sub(before).max(1) as f64,
    })
}

/// Twice around, whatever was looked at before.
fn sweep_all(core: &mut Core, now_ms: u64, buckets: usize) {
    let mut cursor = SweepCursor::default();
    for _ in 0..2 * buckets.div_ceil(4_000) + 2 {
        core.sweep(now_ms, &mut cursor, 4_000);
    }
}

fn ask(number: usize, rule: &Arc<Rule>) -> Op {
    let leg = Leg {
        bucket: metered(Level::Connection, &scope(number), rule),
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
    Op { application: application("one"), body }
}

pub(super) fn print(node: Option<&Row>, in_process: Option<&Row>, redis: Option<&super::redis_memory::Row>) {
    println!("\nbytes per bucket: a connection's daily quota, of which something is used");
    println!("{:<12} {:>9} {:>9} {:>9} {:>9} {:>12}", "where", "buckets", "route", "in use", "idle", "forgotten");
    for (place, row) in [("node", node), ("in process", in_process)] {
        let Some(row) = row else { continue };
        let route = row.route_bytes.map_or_else(|| "-".into(), |bytes| format!("{bytes:.0}"));
        let forgotten = if row.left == 0 { "all".into() } else { format!("all but {}", row.left) };
        println!(
            "{place:<12} {:>9} {route:>9} {:>9.0} {:>9.0} {forgotten:>12}",
            row.buckets, row.busy_bytes, row.idle_bytes
        );
    }
    if let Some(row) = redis {
        println!(
            "{:<12} {:>9} {:>9} {:>9} {:>9.0} {:>12}",
            "Redis",
            row.buckets,
            "-",
            "-",
            row.used_bytes,
            row.forgotten()
        );
        println!(
            "Redis: by its own count; {:.0} by MEMORY USAGE of the {:.1} keys of each, {:.0} resident",
            row.usage_bytes, row.keys_each, row.resident_bytes
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_uses_is_forgotten() {
        for row in [node(2_000).unwrap(), in_process(2_000).unwrap()] {
            assert_eq!((row.buckets, row.left), (2_000, 0));
        }
    }
}
