//! Slot-seconds of one tenant over the last 60 s.

/// The span, in seconds.
pub(super) const WINDOW_SECONDS: u64 = 60;
const BUCKETS: usize = 60;

/// Slot-milliseconds by second. The second that is under way counts as one of the sixty, so that the span is between 59
/// and 60 seconds.
#[derive(Debug)]
pub(super) struct Window {
    buckets: [u32; BUCKETS],
    total: u64,
    /// Up to when it is counted, on the monotonic clock.
    counted_ms: u64,
}

impl Window {
    pub(super) fn new(now_ms: u64) -> Self {
        Self { buckets: [0; BUCKETS], total: 0, counted_ms: now_ms }
    }

    /// Slot-milliseconds.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// So many slots were held from the last time until now.
    pub(super) fn advance(&mut self, now_ms: u64, slots: u32) {
        let second = |ms: u64| ms / 1000;
        if second(now_ms).saturating_sub(second(self.counted_ms)) >= WINDOW_SECONDS {
            self.buckets = [0; BUCKETS];
            self.total = 0;
            self.counted_ms = (second(now_ms) + 1 - WINDOW_SECONDS) * 1000;
        }
        while self.counted_ms < now_ms {
            let end = ((second(self.counted_ms) + 1) * 1000).min(now_ms);
            let held_ms = u32::try_from(end - self.counted_ms).unwrap_or(1000).saturating_mul(slots);
            *self.bucket() += held_ms;
            self.total += u64::from(held_ms);
            self.counted_ms = end;
            if end.is_multiple_of(1000) {
                let left = std::mem::take(self.bucket());
                self.total -= u64::from(left);
            }
        }
    }

    fn bucket(&mut self) -> &mut u32 {
        let at = usize::try_from(self.counted_ms / 1000 % WINDOW_SECONDS).unwrap_or(0);
        &mut self.buckets[at]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What is counted is what was held since the beginning of the second that lies 59 s back.
        #[test]
        fn it_counts_the_last_sixty_seconds(
            start in 0..200_000_u64,
            steps in prop::collection::vec((0..90_000_u64, 0..600_u32), 1..40),
        ) {
            let (mut window, mut now, mut held) = (Window::new(start), start, Vec::new());
            for (by, slots) in steps {
                held.push((now, now + by, u64::from(slots)));
                now += by;
                window.advance(now, slots);
                let from = (now / 1000).saturating_sub(59) * 1000;
                let expected: u64 =
                    held.iter().map(|(a, b, slots)| b.saturating_sub(*a.max(&from)).saturating_mul(*slots)).sum();
                prop_assert_eq!(window.total(), expected);
            }
        }
    }
}
