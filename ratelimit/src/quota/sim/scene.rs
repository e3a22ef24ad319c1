//! What is simulated.

use crate::quota::holder::Settings;
use crate::quota::op::Class;
use crate::quota::rule::Rule;

/// What a tenant's calls are like on each node.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Calls per second and node, at exponential distances.
    pub per_second: f64,
    pub class: Class,
    pub weight: u16,
    pub cost: u32,
    /// Asks to wait inside for so long.
    pub wait_ms: u64,
}

impl Load {
    pub fn of(per_second: f64) -> Self {
        Self { per_second, class: Class::Bulk, weight: 1, cost: 1, wait_ms: 50 }
    }

    /// Mean time between two calls at a node; none if there are no calls.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.per_second > 0.0).then(|| 1_000.0 / self.per_second)
    }
}

/// All that a simulation has to be told.
#[derive(Debug, Clone)]
pub struct Scene {
    pub seed: u64,
    pub nodes: usize,
    pub loads: Vec<Load>,
    /// The application's own bucket, which the provider counts strictly.
    pub rule: Rule,
    /// A bucket of each tenant's connection that is never the narrow one.
    pub has_connections: bool,
    pub settings: Settings,
    /// One way to the centre.
    pub centre_ms: u64,
    /// Requests and answers that the network loses, each.
    pub loss_permille: u64,
    pub twice_permille: u64,
    pub late_permille: u64,
    /// To the provider, on average; bounded by `arrive_ms_max`.
    pub arrive_ms: u64,
    pub arrive_ms_max: u64,
    /// How long a call takes there.
    pub serve_ms: u64,
    /// The provider's clock is so much ahead.
    pub skew_ms: i64,
    /// From hold to the request being written, up to.
    pub think_ms: u64,
    /// A call that is parked comes again, once it may.
    pub comes_again: bool,
    /// How many calls of a tenant and node are not over at a time; further ones are not begun.
    pub backlog: usize,
    /// Calls come by dice of their own ([`super::Demand`]), not by those that everything else is drawn from, and a node
    /// has so many times its load; those behind the end have it once.
    pub own_demand: Option<Vec<f64>>,
    /// The provider counts what it refuses, too: who goes on sending is refused for longer.
    pub are_refused_counted: bool,
}

impl Scene {
    pub fn new(seed: u64, rule: Rule, nodes: usize, loads: Vec<Load>) -> Self {
        Self {
            seed,
            nodes,
            loads,
            rule,
            has_connections: false,
            settings: Settings::default(),
            centre_ms: 1,
            loss_permille: 0,
            twice_permille: 0,
            late_permille: 0,
            arrive_ms: 20,
            arrive_ms_max: 200,
            serve_ms: 5,
            skew_ms: 0,
            think_ms: 3,
            comes_again: true,
            backlog: 200,
            own_demand: None,
            are_refused_counted: true,
        }
    }
}
