//! What is to be said of all calls that arrived, refused ones too: how many were too many, and by how much at most.

use std::collections::BTreeMap;

use super::Arrival;
use super::limit::{Kind, Limit};

/// Over all limits of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Calls.
    pub arrived: usize,
    /// Calls that were refused because of a limit: a caller that keeps to it has none.
    pub refused: usize,
    /// By which limit, and how often.
    pub refused_by: BTreeMap<&'static str, usize>,
    /// By limit, the largest excess over it.
    pub excess: BTreeMap<&'static str, Excess>,
}

/// By how much a limit was exceeded, where it was most.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Excess {
    pub units: u64,
    /// Whose calls; empty where all are counted together.
    pub scope: String,
    /// In ms since the provider's start.
    pub at_ms: u64,
}

impl Verdict {
    pub(super) fn of(limits: &[Limit], arrivals: &[Arrival], started_unix_ms: u64) -> Self {
        let mut verdict =
            Self { arrived: arrivals.len(), refused: 0, refused_by: BTreeMap::new(), excess: BTreeMap::new() };
        for by in arrivals.iter().filter_map(|arrival| arrival.refused_by) {
            verdict.refused += 1;
            *verdict.refused_by.entry(by).or_default() += 1;
        }
        for limit in limits {
            let mut scopes: BTreeMap<&str, Vec<&Arrival>> = BTreeMap::new();
            for arrival in arrivals {
                scopes.entry(limit.scope(&arrival.scope)).or_default().push(arrival);
            }
            let each = scopes.iter().map(|(scope, arrivals)| {
                let (units, at_ms) = excess(limit, arrivals, started_unix_ms);
                Excess { units, scope: (*scope).to_owned(), at_ms }
            });
            verdict.excess.insert(limit.name, each.max().unwrap_or_default());
        }
        verdict
    }

    /// The largest excess over any limit.
    pub fn worst(&self) -> u64 {
        self.excess.values().map(|excess| excess.units).max().unwrap_or_default()
    }

    /// Refused calls of a million.
    pub fn refused_ppm(&self) -> usize {
        self.refused * 1_000_000 / self.arrived.max(1)
    }

    /// Nothing arrived that a limit does not allow.
    #[track_caller]
    pub fn expect_none_over(&self, scenario: &str) {
        assert!(self.worst() == 0 && self.refused == 0, "{scenario}: {self:#?}");
    }
}

/// Units beyond the limit at the worst moment, and when that was.
fn excess(limit: &Limit, arrivals: &[&Arrival], started_unix_ms: u64) -> (u64, u64) {
    let (window_ms, cap) = (limit.window_ms(), u64::from(limit.cap));
    let mut worst = (0, 0);
    let mut note = |units: u64, at_ms: u64| worst = worst.max((units, at_ms));
    match limit.kind {
        Kind::Fixed { .. } | Kind::Daily => {
            let mut windows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for arrival in arrivals {
                let window = windows.entry((started_unix_ms + arrival.at_ms) / window_ms).or_default();
                *window = (window.0 + limit.units(arrival.cost), arrival.at_ms);
            }
            for &(used, at_ms) in windows.values() {
                note(used.saturating_sub(cap), at_ms);
            }
        }
        Kind::Sliding { .. } => {
            let (mut first, mut used) = (0, 0);
            for arrival in arrivals {
                used += limit.units(arrival.cost);
                while arrival.at_ms - arrivals[first].at_ms >= window_ms {
                    used -= limit.units(arrivals[first].cost);
                    first += 1;
                }
                note(used.saturating_sub(cap), arrival.at_ms);
            }
        }
        Kind::Token { burst, .. } => {
            // Debts: what was taken and has not flowed back.
            let (mut debt, mut since_ms) = (0_u64, 0);
            for arrival in arrivals {
                debt = debt.saturating_sub(cap * (arrival.at_ms - since_ms)) + limit.units(arrival.cost) * window_ms;
                since_ms = arrival.at_ms;
                note(debt.saturating_sub(u64::from(burst) * window_ms).div_ceil(window_ms), arrival.at_ms);
            }
        }
        Kind::Concurrent => {
            // At the same moment, ends come first.
            let mut steps: Vec<(u64, i64)> = Vec::new();
            for arrival in arrivals {
                steps.push((arrival.at_ms, 1));
                if let Some(ended_ms) = arrival.ended_ms {
                    steps.push((ended_ms.max(arrival.at_ms + 1), -1));
                }
            }
            steps.sort_unstable();
            let mut running = 0_i64;
            for (at_ms, step) in steps {
                running += step;
                note(u64::try_from(running).unwrap_or_default().saturating_sub(cap), at_ms);
            }
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WINDOW: Duration = Duration::from_millis(100);

    fn arrivals(at: &[(u64, u32)]) -> Vec<Arrival> {
        let arrival = |&(at_ms, cost): &(u64, u32)| Arrival {
            at_ms,
            ended_ms: Some(at_ms + 50),
            scope: "one".to_owned(),
            cost,
            refused_by: None,
            is_broken: false,
        };
        at.iter().map(arrival).collect()
    }

    fn worst(limit: Limit, at: &[(u64, u32)]) -> u64 {
        Verdict::of(&[limit], &arrivals(at), 1_000).worst()
    }

    #[test]
    fn a_fixed_window_is_exceeded_by_what_is_in_it_and_no_other() {
        let limit = Limit::app("l", Kind::Fixed { window: WINDOW }, 2);
        assert_eq!(worst(limit, &[(10, 1), (99, 1), (100, 1), (199, 1)]), 0);
        assert_eq!(worst(limit, &[(10, 1), (98, 1), (99, 1), (100, 1)]), 1);
        // By its own clock: the same moments, in another window.
        assert_eq!(Verdict::of(&[limit], &arrivals(&[(10, 1), (98, 1), (99, 1)]), 1_005).worst(), 0);
    }

    #[test]
    fn a_sliding_window_is_any_span() {
        let limit = Limit::app("l", Kind::Sliding { window: WINDOW }, 2);
        assert_eq!(worst(limit, &[(10, 1), (99, 1), (110, 1), (199, 1)]), 0);
        assert_eq!(worst(limit, &[(10, 1), (99, 1), (109, 1)]), 1);
        assert_eq!(worst(limit.points(1), &[(10, 1), (99, 1), (111, 3)]), 2, "points");
    }

    #[test]
    fn a_bucket_refills_and_is_never_fuller_than_full() {
        let limit = Limit::app("l", Kind::Token { window: WINDOW, burst: 2 }, 1);
        assert_eq!(worst(limit, &[(500, 1), (500, 1), (600, 1), (700, 1)]), 0);
        assert_eq!(worst(limit, &[(500, 1), (500, 1), (599, 1)]), 1);
        assert_eq!(worst(limit, &[(500, 1), (501, 1), (501, 1), (502, 1)]), 2);
    }

    #[test]
    fn concurrent_calls_are_those_without_an_answer() {
        let limit = Limit::app("l", Kind::Concurrent, 1);
        assert_eq!(worst(limit, &[(10, 1), (60, 1), (110, 1)]), 0);
        assert_eq!(worst(limit, &[(10, 1), (59, 1)]), 1);
    }

    #[test]
    fn accounts_are_counted_each_and_an_application_together() {
        let limit = Limit::connection("l", Kind::Sliding { window: WINDOW }, 1);
        let mut both = arrivals(&[(10, 1), (20, 1)]);
        both[1].scope = "two".to_owned();
        assert_eq!(Verdict::of(&[limit], &both, 0).worst(), 0);
        let limit = Limit { level: super::super::Level::App, ..limit };
        assert_eq!(Verdict::of(&[limit], &both, 0).worst(), 1);
    }
}
