//! How long something may take, with one timer that is moved and not made anew.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Times of one hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// From the last byte of the request to the head of the answer.
    pub first_byte: Duration,
    /// Without any progress, while a request is sent and while an answer comes.
    pub idle: Duration,
    /// For the whole of it, dialling included; none for what may last, as server-sent events do.
    pub total: Option<Duration>,
}

impl Default for Waits {
    fn default() -> Self {
        Self { first_byte: Duration::from_mins(1), idle: Duration::from_mins(1), total: Some(Duration::from_mins(5)) }
    }
}

/// Which time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Nothing happened for too long.
    Idle,
    /// It took too long as a whole.
    Total,
}

/// A timer for what has to go on, within an end for all of it.
#[derive(Debug)]
pub(crate) struct Patience {
    sleep: Pin<Box<Sleep>>,
    since: Instant,
    end: Option<Instant>,
}

impl Patience {
    /// From now.
    pub(crate) fn new(end: Option<Instant>, allowed: Duration) -> Self {
        let since = Instant::now();
        Self { sleep: Box::pin(sleep_until(due(since, allowed, end).0)), since, end }
    }

    /// Something happened.
    pub(crate) fn renew(&mut self) {
        self.since = Instant::now();
    }

    /// Ready when nothing has happened for as long as is allowed, or when the end has come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, allowed: Duration) -> Poll<Expired> {
        let (due, which) = due(self.since, allowed, self.end);
        // A timer that is early costs one look; it is only moved when that look comes, or when it would be late.
        if self.sleep.deadline() > due {
            self.sleep.as_mut().reset(due);
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            if self.sleep.deadline() >= due {
                return Poll::Ready(which);
            }
            self.sleep.as_mut().reset(due);
        }
        Poll::Pending
    }
}

fn due(since: Instant, allowed: Duration, end: Option<Instant>) -> (Instant, Expired) {
    match end {
        Some(end) if end <= since + allowed => (end, Expired::Total),
        Some(_) | None => (since + allowed, Expired::Idle),
    }
}
