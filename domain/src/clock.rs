//! Time, injected: production reads the machine's clocks, tests own theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a part takes its time from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall clock, in milliseconds since the Unix epoch. It may step, also backwards.
    fn unix_ms(&self) -> u64;

    /// Time since some fixed moment of this process; never goes backwards.
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is given")]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }

    /// The same, ready to be shared.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is given")]
    fn unix_ms(&self) -> u64 {
        // Before 1970 the machine has no usable clock: zero is then as good as anything and refuses nothing.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that moves only when it is told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    unix_ms: AtomicU64,
    monotonic_ns: AtomicU64,
}

impl ManualClock {
    pub fn at_unix_ms(unix_ms: u64) -> Arc<Self> {
        Arc::new(Self { unix_ms: AtomicU64::new(unix_ms), monotonic_ns: AtomicU64::new(0) })
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.unix_ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.monotonic_ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Steps the wall clock alone, as NTP or an operator would; the monotonic clock does not move.
    pub fn step_to_unix_ms(&self, unix_ms: u64) {
        self.unix_ms.store(unix_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn unix_ms(&self) -> u64 {
        self.unix_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(Ordering::SeqCst))
    }
}
