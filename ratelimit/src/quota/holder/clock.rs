//! A clock that runs while the machine sleeps.

use std::time::Duration;

use domain::{Clock, SystemClock};

/// The machine's clocks, of which the monotonic one is `CLOCK_BOOTTIME`: a lease does not outlive the suspension of a
/// virtual machine, as it would by `CLOCK_MONOTONIC`, which stands still meanwhile.
#[derive(Debug, Clone, Default)]
pub struct BootClock {
    wall: SystemClock,
}

impl Clock for BootClock {
    fn unix_ms(&self) -> u64 {
        self.wall.unix_ms()
    }

    fn monotonic(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}
