//! One timer per connection, for whatever it waits for.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The time was up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// A timer that is only set when something has to be waited for, and then only when it would ring too late.
///
/// Most waits end long before their deadline, and the next one ends later than the last: a timer that rings too early
/// is looked at and set again, which happens once a deadline and not twice a request.
#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    pub(crate) fn new(first: Duration) -> Self {
        Self { sleep: Box::pin(sleep_until(Instant::now() + first)) }
    }

    /// Waits for `future` until the deadline, which is asked for only if there is anything to wait for.
    pub(crate) async fn until<F: Future>(
        &mut self,
        deadline: impl FnOnce() -> Instant,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut deadline = Lazy::Unasked(deadline);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_elapsed(deadline.get(), cx).map(Err),
        })
        .await
    }

    pub(crate) async fn within<F: Future>(&mut self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        self.until(|| Instant::now() + limit, future).await
    }

    pub(crate) fn poll_elapsed(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<Elapsed> {
        if self.sleep.deadline() > deadline {
            self.sleep.as_mut().reset(deadline);
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(Elapsed);
            }
            self.sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

enum Lazy<F> {
    Unasked(F),
    At(Instant),
    Asking,
}

impl<F: FnOnce() -> Instant> Lazy<F> {
    fn get(&mut self) -> Instant {
        let at = match std::mem::replace(self, Self::Asking) {
            Self::Unasked(ask) => ask(),
            Self::At(at) => at,
            Self::Asking => Instant::now(),
        };
        *self = Self::At(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test(start_paused = true)]
    async fn rings_at_the_deadline_however_it_was_set_before() {
        let mut timer = Timer::new(Duration::from_mins(1));
        let began = Instant::now();
        for (limit, total) in [(10, 10), (60, 70), (5, 75), (120, 195), (1, 196)] {
            let limit = Duration::from_secs(limit);
            assert_eq!(timer.within(limit, pending::<()>()).await, Err(Elapsed));
            let passed = began.elapsed();
            let expected = Duration::from_secs(total);
            assert!(passed >= expected && passed < expected + Duration::from_millis(20), "{passed:?} {expected:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ready_needs_no_deadline() {
        let mut timer = Timer::new(Duration::from_secs(1));
        assert_eq!(timer.until(|| panic!("asked"), async { 7 }).await, Ok(7));
        assert_eq!(timer.within(Duration::from_secs(9), tokio::time::sleep(Duration::from_secs(8))).await, Ok(()));
    }
}
