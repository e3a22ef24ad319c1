//! How a call is decided about when it comes.

use std::collections::VecDeque;

use super::limit::{Kind, Limit};

/// What a limit has counted of a scope. Times are ms by the provider's clock.
#[derive(Debug)]
pub(super) enum Counter {
    Fixed {
        window: u64,
        used: u64,
    },
    Sliding {
        taken: VecDeque<(u64, u64)>,
        used: u64,
    },
    /// Units times the window's ms, so that every ms adds a whole number.
    Token {
        level: u64,
        at_ms: u64,
    },
    Concurrent {
        running: u64,
    },
}

impl Counter {
    pub(super) fn new(limit: &Limit, now_ms: u64) -> Self {
        match limit.kind {
            Kind::Fixed { .. } | Kind::Daily => Self::Fixed { window: 0, used: 0 },
            Kind::Sliding { .. } => Self::Sliding { taken: VecDeque::new(), used: 0 },
            Kind::Token { burst, .. } => Self::Token { level: u64::from(burst) * limit.window_ms(), at_ms: now_ms },
            Kind::Concurrent => Self::Concurrent { running: 0 },
        }
    }

    /// Whether so many units are left; if not, in how many ms they could be.
    pub(super) fn has_room(&mut self, limit: &Limit, now_ms: u64, units: u64) -> Result<(), u64> {
        let (window_ms, cap) = (limit.window_ms(), u64::from(limit.cap));
        match self {
            Self::Fixed { window, used } => {
                let current = now_ms / window_ms;
                if *window != current {
                    (*window, *used) = (current, 0);
                }
                if *used + units <= cap { Ok(()) } else { Err((current + 1) * window_ms - now_ms) }
            }
            Self::Sliding { taken, used } => {
                while taken.front().is_some_and(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= window_ms) {
                    *used -= taken.pop_front().map_or(0, |(_, units)| units);
                }
                let first_ms = taken.front().map_or(now_ms, |(at_ms, _)| *at_ms);
                if *used + units <= cap { Ok(()) } else { Err((first_ms + window_ms).saturating_sub(now_ms)) }
            }
            Self::Token { level, at_ms } => {
                let Kind::Token { burst, .. } = limit.kind else { unreachable!("it was made of this limit") };
                let most = u64::from(burst) * window_ms;
                *level = (*level + cap * now_ms.saturating_sub(*at_ms)).min(most);
                *at_ms = now_ms;
                let wanted = units * window_ms;
                if *level >= wanted { Ok(()) } else { Err((wanted - *level).div_ceil(cap)) }
            }
            Self::Concurrent { running } => {
                if *running + units <= cap {
                    Ok(())
                } else {
                    Err(100)
                }
            }
        }
    }

    /// There was room.
    pub(super) fn take(&mut self, limit: &Limit, now_ms: u64, units: u64) {
        match self {
            Self::Fixed { used, .. } => *used += units,
            Self::Sliding { taken, used } => {
                taken.push_back((now_ms, units));
                *used += units;
            }
            Self::Token { level, .. } => *level -= units * limit.window_ms(),
            Self::Concurrent { running } => *running += units,
        }
    }

    pub(super) fn left(&self, limit: &Limit) -> u64 {
        let cap = u64::from(limit.cap);
        match self {
            Self::Fixed { used, .. } | Self::Sliding { used, .. } => cap - used,
            Self::Token { level, .. } => level / limit.window_ms(),
            Self::Concurrent { running } => cap - running,
        }
    }

    /// A call that was counted has ended.
    pub(super) fn ended(&mut self) {
        if let Self::Concurrent { running } = self {
            *running -= 1;
        }
    }
}
