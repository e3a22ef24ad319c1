//! When a body is too slow: a total, and a rate that it has to keep up with once its grace is over.

use std::time::Duration;

use tokio::time::Instant;

/// Only the time in which the client is waited for counts. While whoever takes the body has no room for more of it, the
/// client is not slow but held up.
#[derive(Debug)]
pub(crate) struct Pace {
    total: Duration,
    grace: Duration,
    rate: u32,
    bytes: u64,
    /// How long the client was waited for, until it was last waited for.
    waited: Duration,
    since: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(settings: &config::Listener) -> Self {
        Self {
            total: settings.body_timeout,
            grace: settings.body_rate_grace,
            rate: settings.body_rate_min,
            bytes: 0,
            waited: Duration::ZERO,
            since: None,
        }
    }

    /// So many bytes have come.
    pub(crate) fn came(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The client is waited for, until [`Self::pause`]: the moment by which more must have come.
    pub(crate) fn deadline(&mut self) -> Instant {
        let since = *self.since.get_or_insert_with(Instant::now);
        let earned = match self.rate {
            0 => self.total,
            rate => Duration::from_secs(self.bytes / u64::from(rate)),
        };
        since + self.total.min(self.grace.saturating_add(earned)).saturating_sub(self.waited)
    }

    /// The client is not waited for.
    pub(crate) fn pause(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pace_is_a_rate_after_a_grace_and_never_more_than_the_total() {
        let mut pace = Pace::new(&config::Listener::default());
        let began = Instant::now();
        let mut allowed = |more: u64| {
            pace.came(more);
            (pace.deadline() - began).as_secs()
        };
        assert_eq!(allowed(0), 5);
        assert_eq!(allowed(1023), 5);
        assert_eq!(allowed(9 * 1024 + 1), 15);
        assert_eq!(allowed(1 << 30), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_is_waited_for_does_not_count() {
        let mut pace = Pace::new(&config::Listener::default());
        let second = Duration::from_secs(1);
        pace.deadline();
        tokio::time::advance(2 * second).await;
        pace.pause();
        tokio::time::advance(100 * second).await;
        pace.pause();
        assert_eq!(pace.deadline(), Instant::now() + 3 * second);
        tokio::time::advance(second).await;
        assert_eq!(pace.deadline(), Instant::now() + 2 * second, "asked again, it is the same moment");
    }
}
