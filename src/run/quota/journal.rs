//! Opening the journal: what must survive the process, in the state directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::Clock;
use ratelimit::quota::{InProcess, OpenError};

/// In `tenants.state_directory`.
pub(super) const FILE: &str = "quota.journal";
/// Buckets that are counted in this process. Each is some 200 bytes while it is idle, and is dropped after a while; a call
/// that needs one more is parked.
const BUCKETS_MAX: usize = 1_000_000;
/// How long a predecessor that is about to end may keep it. Its calls have ended by then; what it still does is to write
/// everything down.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Opens the journal of this directory, for which it may wait.
pub(super) fn open(directory: &Path, clock: &Arc<dyn Clock>, patience: Duration) -> Result<InProcess, OpenError> {
    let path = directory.join(FILE);
    let began = clock.monotonic();
    let mut is_told = false;
    loop {
        match InProcess::open(&path, Arc::clone(clock), BUCKETS_MAX) {
            Err(OpenError::InUse { .. }) if clock.monotonic().saturating_sub(began) < patience => {
                if !is_told {
                    is_told = true;
                    tracing::info!(path = %path.display(), "the journal of quota is in use: waiting for it");
                }
                std::thread::park_timeout(LOOK_AGAIN);
            }
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimit::quota::holder::BootClock;

    use super::*;

    #[test]
    fn a_predecessor_is_waited_for_and_not_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(BootClock::default());
        let predecessor = open(directory.path(), &clock, PATIENCE).unwrap();
        let refused = open(directory.path(), &clock, Duration::from_millis(150));
        assert!(matches!(refused, Err(OpenError::InUse { .. })), "{refused:?}");

        let ends = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(300));
            predecessor.hand_over().unwrap();
        });
        open(directory.path(), &clock, PATIENCE).unwrap().hand_over().unwrap();
        ends.join().unwrap();
    }
}
