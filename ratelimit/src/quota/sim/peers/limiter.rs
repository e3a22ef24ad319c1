//! What a node has instead of leases.

use crate::quota::rule::{Kind, Rule};
use crate::quota::sim::Dice;

/// What a call waits that was refused and knows the provider's `Retry-After`.
const RETRY_AFTER_MS: u64 = 1_000;
/// First and longest wait of clients that back off, of which a random part is waited, as SDKs have it.
const BACKOFF_MS: u64 = 1_000;
const BACKOFF_MS_MAX: u64 = 20_000;

/// How nodes keep a limit without asking anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Every node has its part of the limit, limit over nodes: a token bucket that holds what refills in a second (of a
    /// provider that is a bucket itself, its part of that burst), of concurrency so many slots. A call that is refused
    /// all the same comes again after the provider's `Retry-After`, which is a second.
    PerNode,
    /// Every call is sent when it comes. One that is refused is sent again after a random part of 1, 2, 4, … 20
    /// seconds, as often as it takes.
    Backoff,
}

impl Way {
    pub const ALL: [Self; 2] = [Self::PerNode, Self::Backoff];

    /// How long a call waits that was refused so many times before this one.
    pub(super) fn wait_ms(self, refusals: u32, dice: &mut Dice) -> u64 {
        match self {
            Self::PerNode => RETRY_AFTER_MS,
            Self::Backoff => {
                let most_ms = (BACKOFF_MS << refusals.min(8)).min(BACKOFF_MS_MAX);
                1 + (dice.unit() * most_ms as f64) as u64
            }
        }
    }
}

/// Of one node.
#[derive(Debug, Clone)]
pub(super) enum Limiter {
    None,
    Tokens { left: f64, burst: f64, per_ms: f64, at_ms: u64 },
    Slots { free: u64 },
}

/// Whether a call may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Go,
    /// Not before.
    At(u64),
    /// Once another one is over.
    Waits,
}

impl Limiter {
    pub(super) fn new(way: Way, rule: &Rule, nodes: usize, now_ms: u64) -> Self {
        if way == Way::Backoff {
            return Self::None;
        }
        let part = nodes.max(1) as f64;
        let cap = f64::from(rule.cap) / part;
        let tokens = |per_ms: f64, burst: f64| {
            let burst = burst.max(1.0);
            Self::Tokens { left: burst, burst, per_ms, at_ms: now_ms }
        };
        match rule.kind {
            Kind::Concurrency => Self::Slots { free: (cap as u64).max(1) },
            Kind::Bucket { window_ms, burst } => tokens(cap / window_ms as f64, f64::from(burst) / part),
            Kind::Fixed { .. } | Kind::Sliding { .. } | Kind::Anchored { .. } | Kind::Calendar { .. } => {
                let per_ms = cap / rule.window_ms() as f64;
                tokens(per_ms, per_ms * 1_000.0)
            }
        }
    }

    pub(super) fn take(&mut self, now_ms: u64) -> Take {
        match self {
            Self::None => Take::Go,
            Self::Slots { free: 0 } => Take::Waits,
            Self::Slots { free } => {
                *free -= 1;
                Take::Go
            }
            Self::Tokens { left, burst, per_ms, at_ms } => {
                *left = (*left + (now_ms - *at_ms) as f64 * *per_ms).min(*burst);
                *at_ms = now_ms;
                if *left >= 1.0 {
                    *left -= 1.0;
                    return Take::Go;
                }
                Take::At(now_ms + (((1.0 - *left) / *per_ms).ceil() as u64).max(1))
            }
        }
    }

    /// A call is over.
    pub(super) fn give_back(&mut self) {
        if let Self::Slots { free } = self {
            *free += 1;
        }
    }
}
