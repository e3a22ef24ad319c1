//! Until when a tunnel may go on.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::end::End;
use super::live::{Live, Order};

/// What a tunnel may use up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// For the client's whole `ClientHello`, from the `200`.
    pub hello_timeout: Duration,
    /// Without a byte in either direction. What waits for a reader that does not read is none that passes.
    pub idle_timeout: Duration,
    /// From beginning to end.
    pub lifetime: Duration,
    /// When the caller's proof runs out. Read off the wall clock when the tunnel opens: a clock that is set while it is
    /// open does not move it.
    pub until: Option<Instant>,
    /// From the client to the destination.
    pub sent_bytes_max: Option<u64>,
    /// From the destination to the client.
    pub received_bytes_max: Option<u64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            hello_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(10),
            lifetime: Duration::from_hours(24),
            until: None,
            sent_bytes_max: None,
            received_bytes_max: None,
        }
    }
}

/// How long nothing has passed where a tunnel is idle enough to be drained: longer than the pauses within an exchange
/// on a slow line, and short beside any deadline of a drain.
const DRAIN_QUIET: Duration = Duration::from_secs(1);

/// Looks after time and orders, with one timer for the whole life of a tunnel. The timer is moved only where it would
/// ring too late; where it rings too early, since bytes have passed, it is set again. That is once per time-out and not
/// once per read.
#[derive(Debug)]
pub(super) struct Watch<'a, M> {
    live: &'a Live<M>,
    bounds: &'a Bounds,
    timer: Pin<&'a mut Sleep>,
    last_passed: Instant,
}

impl<'a, M> Watch<'a, M> {
    pub(super) fn new(live: &'a Live<M>, bounds: &'a Bounds, timer: Pin<&'a mut Sleep>) -> Self {
        Self { live, bounds, timer, last_passed: Instant::now() }
    }

    /// Something passed.
    pub(super) fn passed(&mut self) {
        self.last_passed = Instant::now();
    }

    /// Whether it has to end now. If not, the task is woken when it has to. `holds` is whether something has come that a
    /// reader has not taken; `also` is a deadline of the moment.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>, holds: bool, also: Option<(Instant, End)>) -> Poll<End> {
        self.live.register(cx.waker());
        let order = self.live.order();
        if let Some(Order::Stop(why)) = order {
            return Poll::Ready(End::Revoked(why));
        }
        let (due, end) = self.due(order, holds, also);
        if self.timer.deadline() > due {
            self.timer.as_mut().reset(due);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.timer.deadline() >= due {
                return Poll::Ready(end);
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    /// What comes first.
    fn due(&self, order: Option<Order>, holds: bool, also: Option<(Instant, End)>) -> (Instant, End) {
        let mut first = (later(self.live.opened(), self.bounds.lifetime), End::Lifetime);
        let mut at = |due: Instant, end: End| {
            if due < first.0 {
                first = (due, end);
            }
        };
        at(later(self.last_passed, self.bounds.idle_timeout), if holds { End::Stalled } else { End::Idle });
        if let Some(until) = self.bounds.until {
            at(until, End::GrantExpired);
        }
        if let Some(Order::Drain { deadline }) = order {
            // A reader that pauses has not got everything, so that its tunnel is not idle, however quiet it is.
            if !holds {
                at(self.last_passed + DRAIN_QUIET, End::Drained);
            }
            at(deadline, End::DrainDeadline);
        }
        if let Some((due, end)) = also {
            at(due, end);
        }
        first
    }
}

/// A bound that no clock reaches is none.
pub(super) fn later(from: Instant, by: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(30 * 365 * 24);
    from + by.min(FAR)
}
