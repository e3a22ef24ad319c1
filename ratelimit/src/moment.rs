//! One moment on both clocks of the machine.

use domain::Clock;

/// Now, as the guards of outbound calls are told it. Both in milliseconds.
///
/// Everything that is timed inside one process (how long a breaker is open, a probe's lease, a sample) is timed by
/// `mono_ms`, which never steps. `unix_ms` is used where a time must mean something to another process or a person:
/// in records, for the hour of the week, for the end of an announced spike. It may step either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub mono_ms: u64,
    pub unix_ms: u64,
}

impl Now {
    pub fn of(clock: &dyn Clock) -> Self {
        Self { mono_ms: u64::try_from(clock.monotonic().as_millis()).unwrap_or(u64::MAX), unix_ms: clock.unix_ms() }
    }
}
