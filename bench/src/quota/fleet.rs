//! A fleet in virtual time against a provider that counts strictly: leases beside limits that nodes keep for
//! themselves and clients that back off, with the same calls.
//!
//! Twice as much is wanted as the provider allows. Requests take 50 ms on average, exponentially distributed; the
//! guard of the rules is half a second, which one in 20,000 of them exceeds.

use ratelimit::quota::sim::peers::{Peers, Way};
use ratelimit::quota::sim::{Fleet, Load, Scene};
use ratelimit::quota::{Kind, Rule, RuleSpec};
use serde::Serialize;

use crate::Result;

const NODES: usize = 4;
const TENANTS: usize = 5;
/// The first window of a simulation ends after this: the measured time is of whole windows.
const WARM_UP_S: u64 = 40;
/// How many times an even node's calls come to each, where they come unevenly: 70 % to one of four.
const TILTED: [f64; NODES] = [2.8, 0.4, 0.4, 0.4];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    Leases,
    /// Limit over nodes, on each node.
    PerNode,
    /// Send until it is refused, then back off.
    Backoff,
}

impl Who {
    const ALL: [Self; 3] = [Self::Leases, Self::PerNode, Self::Backoff];

    fn label(self) -> &'static str {
        match self {
            Self::Leases => "leases",
            Self::PerNode => "limit/nodes",
            Self::Backoff => "back off",
        }
    }
}

/// One provider, and how the calls come.
#[derive(Debug, Clone, Copy)]
struct Setting {
    provider: &'static str,
    rule: Rule,
    per_second: f64,
    skew_ms: i64,
    is_tilted: bool,
    are_refused_counted: bool,
}

/// One way in one setting, over all seeds.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub provider: &'static str,
    pub per_second: f64,
    pub skew_ms: i64,
    /// 70 % of all calls come to one node of four.
    pub is_tilted: bool,
    /// The provider counts what it refuses, too.
    pub are_refused_counted: bool,
    pub who: Who,
    /// Of the calls that were sent, those that saw a 429, once or more.
    pub saw_429: Spread,
    /// Accepted, of what the provider allows in the measured time.
    pub throughput: Spread,
    /// Operations at the centre for each accepted call.
    pub operations_per_call: Option<f64>,
    pub seeds: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    pub median: f64,
    pub worst: f64,
}

impl Spread {
    /// Of figures of which the last is the worst.
    fn of(figures: &[f64]) -> Self {
        Self { median: figures[figures.len() / 2], worst: figures[figures.len() - 1] }
    }
}

/// What one run came to.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    saw_429: f64,
    throughput: f64,
    operations_per_call: f64,
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for per_second in [100, 1_000] {
        for (provider, rule, rate) in rules(per_second) {
            let plain =
                Setting { provider, rule, per_second: rate, skew_ms: 0, is_tilted: false, are_refused_counted: false };
            settings.push(plain);
            if per_second == 100 {
                settings.extend([-2_000, 2_000].map(|skew_ms| Setting { skew_ms, ..plain }));
                settings.push(Setting { is_tilted: true, ..plain });
                settings.push(Setting { are_refused_counted: true, ..plain });
            }
        }
    }
    settings
}

/// One of each kind, with what it allows per second.
fn rules(per_second: u32) -> [(&'static str, Rule, f64); 4] {
    let rule = |kind, cap, lease_ms, guard_ms, skew_ms| {
        let spec = RuleSpec { cfgver: 1, kind, cap, lease_ms, guard_ms, skew_ms };
        Rule::checked(spec).expect("its figures are within their bounds")
    };
    let rate = f64::from(per_second);
    // A call takes 200 ms there and 50 ms on the way, and has its slot for both: that is what the limit is here.
    let slots = per_second / 4;
    [
        ("fixed", rule(Kind::Fixed { window_ms: 60_000, offset_ms: 0 }, per_second * 60, 1_000, 500, 2_000), rate),
        ("sliding", rule(Kind::Sliding { window_ms: 10_000, slots: 40 }, per_second * 10, 500, 500, 0), rate),
        ("token bucket", rule(Kind::Bucket { window_ms: 1_000, burst: per_second }, per_second, 250, 500, 0), rate),
        ("concurrent", rule(Kind::Concurrency, slots, 5_000, 0, 0), rate),
    ]
}

fn scene(setting: &Setting, seed: u64) -> Scene {
    let is_rate = setting.rule.is_rate();
    let each = setting.per_second * 2.0 / (NODES * TENANTS) as f64;
    // A call that needs a slot waits for one, as callers of such providers do.
    let load = Load { wait_ms: if is_rate { 50 } else { 1_000 }, ..Load::of(each) };
    let mut scene = Scene::new(seed, setting.rule, NODES, vec![load; TENANTS]);
    (scene.arrive_ms, scene.arrive_ms_max) = (50, 2_000);
    scene.serve_ms = if is_rate { 5 } else { 200 };
    scene.skew_ms = setting.skew_ms;
    // A tenant has as many calls that are not over at a node as come there in two seconds.
    scene.backlog = ((each * 2.0) as usize).max(20);
    scene.own_demand = Some(if setting.is_tilted { TILTED.to_vec() } else { Vec::new() });
    scene.are_refused_counted = setting.are_refused_counted;
    scene
}

fn run(who: Who, setting: &Setting, seed: u64, seconds: u64) -> Outcome {
    let scene = scene(setting, seed);
    let allowed = setting.per_second * seconds as f64;
    let way = match who {
        Who::Leases => {
            let mut fleet = Fleet::new(scene);
            fleet.run(WARM_UP_S * 1_000);
            let (accepted, operations) = (fleet.provider.accepted, fleet.operations);
            fleet.run(seconds * 1_000);
            let accepted = (fleet.provider.accepted - accepted) as f64;
            let provider = &fleet.provider;
            // A call that was refused is over: each request is a call's only one.
            return Outcome {
                saw_429: provider.refused as f64 / (provider.accepted + provider.refused) as f64,
                throughput: accepted / allowed,
                operations_per_call: (fleet.operations - operations) as f64 / accepted,
            };
        }
        Who::PerNode => Way::PerNode,
        Who::Backoff => Way::Backoff,
    };
    let mut peers = Peers::new(way, scene);
    peers.run(WARM_UP_S * 1_000);
    let accepted = peers.provider.accepted;
    peers.run(seconds * 1_000);
    Outcome {
        saw_429: peers.calls_refused as f64 / peers.calls as f64,
        throughput: (peers.provider.accepted - accepted) as f64 / allowed,
        operations_per_call: 0.0,
    }
}

/// Every way in every setting, by so many seeds, on as many threads as there are processors.
pub(super) fn measure(seeds: u64, seconds: u64) -> Result<Vec<Row>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut rows = Vec::new();
    for setting in settings() {
        eprintln!("fleet: {}, {} per second …", setting.provider, setting.per_second);
        for who in Who::ALL {
            let outcomes = std::thread::scope(|scope| {
                let setting = &setting;
                let thread = |first| {
                    let seeds = (1 + first..=seeds).step_by(threads as usize);
                    scope.spawn(move || seeds.map(|seed| run(who, setting, seed, seconds)).collect::<Vec<_>>())
                };
                let running: Vec<_> = (0..threads).map(thread).collect();
                running.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Result<Vec<_>, _>>()
            });
            let outcomes = outcomes.map_err(|_| "a simulation ended")?.concat();
            rows.push(row(&setting, who, &outcomes));
        }
    }
    Ok(rows)
}

fn row(setting: &Setting, who: Who, outcomes: &[Outcome]) -> Row {
    let sorted = |figure: fn(&Outcome) -> f64| {
        let mut figures: Vec<f64> = outcomes.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let mut throughput = sorted(|outcome| outcome.throughput);
    throughput.reverse();
    let operations = sorted(|outcome| outcome.operations_per_call);
    Row {
        provider: setting.provider,
        per_second: setting.per_second,
        skew_ms: setting.skew_ms,
        is_tilted: setting.is_tilted,
        are_refused_counted: setting.are_refused_counted,
        who,
        saw_429: Spread::of(&sorted(|outcome| outcome.saw_429)),
        throughput: Spread::of(&throughput),
        operations_per_call: (who == Who::Leases).then(|| operations[operations.len() / 2]),
        seeds: outcomes.len() as u64,
    }
}

pub(super) fn print(rows: &[Row]) {
    println!(
        "\na simulated fleet of {NODES} nodes, twice the limit wanted, 50 ms to the provider; median and worst seed"
    );
    println!(
        "{:<13} {:>8} {:>6} {:<10} {:<12} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "provider", "limit", "skew", "calls", "who", "saw 429", "worst", "of limit", "worst", "ops/call"
    );
    for row in rows {
        let calls = match (row.is_tilted, row.are_refused_counted) {
            (true, _) => "uneven",
            (false, true) => "refusals*",
            (false, false) => "even",
        };
        println!(
            "{:<13} {:>6}/s {:>4} s {calls:<10} {:<12} {:>8.3}% {:>8.3}% {:>7.1}% {:>7.1}% {:>9}",
            row.provider,
            row.per_second,
            row.skew_ms / 1_000,
            row.who.label(),
            row.saw_429.median * 100.0,
            row.saw_429.worst * 100.0,
            row.throughput.median * 100.0,
            row.throughput.worst * 100.0,
            row.operations_per_call.map_or_else(|| "-".into(), |each| format!("{each:.3}")),
        );
    }
    println!(
        "* the provider counts what it refuses, too; everywhere else it does not, which is kind to those who are refused"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_not_refused_where_clients_that_back_off_are() {
        let (_, rule, per_second) = rules(20)[2];
        let setting = Setting {
            provider: "token bucket",
            rule,
            per_second,
            skew_ms: 0,
            is_tilted: false,
            are_refused_counted: false,
        };
        let leases = run(Who::Leases, &setting, 1, 30);
        let backoff = run(Who::Backoff, &setting, 1, 30);
        assert!(leases.saw_429 <= 0.001 && leases.throughput > 0.5, "{leases:?}");
        assert!(backoff.saw_429 > 0.1, "{backoff:?}");
        let per_node = run(Who::PerNode, &Setting { is_tilted: true, ..setting }, 1, 30);
        assert!(per_node.throughput > 0.5, "{per_node:?}");
    }

    #[test]
    fn the_worst_is_told_apart_from_the_median() {
        let setting = settings()[0];
        let outcome = |saw_429, throughput| Outcome { saw_429, throughput, operations_per_call: 0.0 };
        let row = row(&setting, Who::Leases, &[outcome(0.0, 0.9), outcome(0.5, 0.99), outcome(0.1, 1.0)]);
        assert_eq!((row.saw_429.median, row.saw_429.worst), (0.1, 0.5));
        assert_eq!((row.throughput.median, row.throughput.worst), (0.99, 0.9));
    }
}
