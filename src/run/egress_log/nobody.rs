//! Records of calls of which nobody knows whose they are: bounded, so that they leave room for those of tenants.
//!
//! Whoever reaches the listener can be refused as often as he likes: what is no request, a proof that does not hold. Each
//! refusal is a record, and a thousand a second would push a month of tenants' calls out of the store within hours. So
//! these have a budget of their own, which is ample for mistakes. What is beyond it is counted, and the log has a sample of
//! it as of everything that is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One a second is 2.6 million in a month: 650 MB, a twelfth of the store's usual size.
const PERIOD: Duration = Duration::from_secs(1);
/// At once: somebody who tries for ten minutes.
const BURST: u32 = 600;

/// Lets so many through, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Nobody {
    /// When what was let through is made up for, in milliseconds of the monotonic clock.
    settled_ms: AtomicU64,
    left_out: AtomicU64,
}

impl Nobody {
    /// May one more be stored?
    pub(super) fn admits(&self, now: Duration) -> bool {
        let now_ms = millis(now);
        let admitted = self.settled_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |settled| {
            let settled = settled.max(now_ms) + millis(PERIOD);
            (settled - now_ms <= millis(PERIOD * BURST)).then_some(settled)
        });
        if admitted.is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        admitted.is_ok()
    }

    /// Not stored, since the start.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2)
}
