//! Waiting for the thing itself, with an end.

use std::time::Duration;

/// Long enough for a debug build on a busy two-core machine; a scenario that needs more has hung.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until the condition holds, and fails the scenario when it never does. The condition may `.await`.
#[macro_export]
macro_rules! eventually {
    ($condition:expr $(,)?) => { $crate::eventually!($condition, "{}", stringify!($condition)) };
    ($condition:expr, $($why:tt)+) => {{
        let deadline = std::time::Instant::now() + $crate::patience::PATIENCE;
        loop {
            if $condition {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "it never came true: {}", format_args!($($why)+));
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }};
}

/// A number from the environment, for runs that are longer than the usual one.
pub fn how_many(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().map_or(usual, |text| text.parse().expect("a number"))
}
