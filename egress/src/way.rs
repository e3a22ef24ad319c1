//! What follows a yes, by each door.

mod absolute;
mod connect;
mod governed;
mod upgrade;

use tokio::time::Instant;

/// When a proof that ends at this time of the wall clock does, by the clock that nobody sets.
pub(crate) fn instant_of(until_unix_ms: u64, now_unix_ms: u64) -> Instant {
    Instant::now() + std::time::Duration::from_millis(until_unix_ms.saturating_sub(now_unix_ms))
}
