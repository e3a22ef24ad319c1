//! Strict providers: every kind, with a latency tail and a clock that is not ours. How many calls they refuse, and how
//! much of the limit is used, while four nodes want more than there is.

use super::*;

/// A small generator: the same runs every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// 5 ms, and an exponential tail of 50 ms in the mean, by halving.
    fn latency_ms(&mut self) -> u64 {
        let halvings = u64::from(self.next().trailing_zeros());
        5 + halvings * 35 + self.next() % 35
    }
}

const NODES: usize = 4;

#[derive(Clone, Copy)]
enum Spending {
    /// As soon as it is there.
    Eager,
    /// As late as the lease allows.
    Late,
}

#[derive(Clone, Default)]
struct Node {
    seq: u64,
    units: u32,
    expires_ms: u64,
    tally: Tally,
    ask_ms: u64,
}

/// Arrivals at the provider over so many seconds, in order.
fn arrivals(spec: RuleSpec, spending: Spending, seconds: u64) -> Vec<u64> {
    let bucket = metered(Level::App, "limit", spec);
    let (mut core, mut random) = (core(), Random(42));
    let mut nodes = vec![Node::default(); NODES];
    let mut arrivals = Vec::new();
    for now_ms in (START_MS..START_MS + seconds * 1_000).step_by(5) {
        for (at, node) in nodes.iter_mut().enumerate() {
            let is_time = match spending {
                Spending::Eager => true,
                Spending::Late => now_ms + 10 >= node.expires_ms,
            };
            if now_ms < node.expires_ms && is_time {
                arrivals.extend((0..node.units).map(|_| now_ms + random.latency_ms()));
                node.units = 0;
            }
            if now_ms < node.ask_ms || node.units > 0 && now_ms < node.expires_ms {
                continue;
            }
            node.seq += 1;
            let mut leg = leg(&bucket, node.seq, 1, 50);
            (leg.tally, leg.demand_milli) = (node.tally, 10_000_000);
            match core.step(now_ms, &acquire(lessee(at as u128 + 1, &format!("t{at}")), vec![leg])).answer {
                Answer::Granted(leases) => {
                    (node.units, node.tally) = (leases[0].units, leases[0].tally);
                    node.expires_ms = now_ms + u64::from(leases[0].ttl_ms);
                }
                Answer::Denied { retry_ms, .. } => node.ask_ms = now_ms + retry_ms.min(100),
                answer => panic!("answered {answer:?}"),
            }
        }
    }
    arrivals.sort_unstable();
    arrivals
}

/// How many a provider takes and refuses whose clock is ahead of ours by `skew_ms`. What it refuses does not count.
fn judge(kind: Kind, cap: u32, arrivals: &[u64], skew_ms: i64) -> (usize, usize) {
    let cap = cap as usize;
    let mut taken: Vec<u64> = Vec::new();
    let (mut level, mut last_ms) = (None, 0);
    let mut refused = 0;
    for &at_ms in arrivals {
        let at_ms = at_ms.checked_add_signed(skew_ms).unwrap();
        let is_taken = match kind {
            Kind::Fixed { window_ms, .. } => {
                taken.iter().rev().take_while(|&&then| then / window_ms == at_ms / window_ms).count() < cap
            }
            Kind::Sliding { window_ms, .. } => {
                taken.iter().rev().take_while(|&&then| then + window_ms > at_ms).count() < cap
            }
            Kind::Anchored { window_ms, .. } => {
                // A window begins with the first call after the last one.
                let start = taken.iter().fold(0, |start, &then| if then >= start + window_ms { then } else { start });
                let in_it = taken.iter().rev().take_while(|&&then| then >= start).count();
                at_ms >= start + window_ms || in_it < cap
            }
            Kind::Bucket { window_ms, burst } => {
                let full = u64::from(burst) * window_ms;
                let now = (level.unwrap_or(full) + (at_ms - last_ms) * cap as u64).min(full);
                last_ms = at_ms;
                level = Some(now.checked_sub(window_ms).unwrap_or(now));
                now >= window_ms
            }
            Kind::Calendar { .. } | Kind::Concurrency => unreachable!("not asked"),
        };
        if is_taken { taken.push(at_ms) } else { refused += 1 }
    }
    (taken.len(), refused)
}

fn check(kind: Kind, cap: u32, window_ms: u64, spec: RuleSpec, skews_ms: &[i64], least_percent: usize) {
    for spending in [Spending::Eager, Spending::Late] {
        let arrivals = arrivals(spec, spending, 60);
        for &skew_ms in skews_ms {
            let (taken, refused) = judge(kind, cap, &arrivals, skew_ms);
            assert!(refused * 1_000 <= taken, "{kind:?} skew {skew_ms}: {refused} refused of {}", taken + refused);
            // Who spends late has its block for all that time, and no other.
            if matches!(spending, Spending::Late) {
                continue;
            }
            let most = cap as usize * 60_000 / usize::try_from(window_ms).unwrap();
            let percent = taken * 100 / most;
            assert!(percent >= least_percent, "{kind:?} skew {skew_ms}: {percent} % of the limit, {taken} of {most}");
        }
    }
}

#[test]
fn fixed_windows_refuse_nothing_whatever_the_clocks_say() {
    let kind = Kind::Fixed { window_ms: 10_000, offset_ms: 0 };
    let spec = RuleSpec { lease_ms: 1_000, guard_ms: 500, skew_ms: 2_000, ..rule(kind, 400) };
    check(kind, 400, 10_000, spec, &[-1_900, 0, 1_900], 95);
}

#[test]
fn fixed_windows_of_clocks_that_agree_need_the_guard_alone() {
    let kind = Kind::Fixed { window_ms: 10_000, offset_ms: 0 };
    check(kind, 400, 10_000, RuleSpec { lease_ms: 1_000, guard_ms: 500, ..rule(kind, 400) }, &[0], 95);
}

#[test]
fn sliding_windows_refuse_nothing() {
    let kind = Kind::Sliding { window_ms: 10_000, slots: 20 };
    let spec = RuleSpec { lease_ms: 500, guard_ms: 500, ..rule(kind, 400) };
    check(kind, 400, 10_000, spec, &[0], 83);
}

#[test]
fn windows_that_begin_whenever_the_provider_likes_refuse_nothing() {
    let kind = Kind::Anchored { window_ms: 10_000, slots: 20 };
    let spec = RuleSpec { lease_ms: 500, guard_ms: 500, ..rule(kind, 400) };
    check(kind, 400, 10_000, spec, &[-1_900, 1_900], 83);
}

#[test]
fn buckets_that_refill_refuse_nothing() {
    let kind = Kind::Bucket { window_ms: 1_000, burst: 100 };
    let spec = RuleSpec { lease_ms: 250, guard_ms: 300, ..rule(kind, 100) };
    check(kind, 100, 1_000, spec, &[0], 95);
    // One at a time: every call is as far from the last as the lease delay and the refill together.
    let kind = Kind::Bucket { window_ms: 1_000, burst: 1 };
    let spec = RuleSpec { lease_ms: 30, guard_ms: 300, ..rule(kind, 1) };
    check(kind, 1, 1_000, spec, &[0], 70);
}

/// Calls that last 200 ms and a tail, in slots of four nodes: never more than the cap at a time, and nearly always that.
#[test]
fn slots_are_never_more_than_the_cap_and_seldom_idle() {
    let cap = 20;
    let spec = RuleSpec { lease_ms: 5_000, ..rule(Kind::Concurrency, cap) };
    let bucket = metered(Level::Connection, "slots", spec);
    let (mut core, mut random) = (core(), Random(7));
    let mut calls: Vec<Vec<u64>> = vec![Vec::new(); NODES];
    let (mut held, mut seqs) = ([0_u32; NODES], [0_u64; NODES]);
    let mut busy = 0;
    for now_ms in (START_MS..START_MS + 60_000).step_by(5) {
        for at in 0..NODES {
            calls[at].retain(|&ends_ms| ends_ms > now_ms);
            if calls[at].len() >= held[at] as usize || now_ms % 1_000 == 0 {
                seqs[at] += 1;
                let mut leg = leg(&bucket, seqs[at], held[at], held[at] + 1);
                leg.unspent = held[at];
                if let Answer::Granted(leases) =
                    core.step(now_ms, &acquire(lessee(at as u128 + 1, "t"), vec![leg])).answer
                {
                    held[at] = leases[0].units;
                }
            }
            while calls[at].len() < held[at] as usize {
                calls[at].push(now_ms + 200 + random.latency_ms());
            }
        }
        let open: usize = calls.iter().map(Vec::len).sum();
        assert!(open <= cap as usize, "{open} at a time");
        busy += open;
    }
    let percent = busy * 100 / (12_000 * cap as usize);
    assert!(percent >= 90, "{percent} % of the slots were in use");
}
