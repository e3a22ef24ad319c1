//! Whether a connection is alive: one that is silent while calls are on it is asked by a PING.
//!
//! A peer that went away without a word is noticed by nobody else: what is written lies in the kernel, which tries for a
//! quarter of an hour, and every call that is put on the connection waits for its own time. Any byte is a sign of life.
//! An idle connection is not asked: it ends before that would be of use. Nor is one more than twice while nothing of an
//! answer comes: servers take that for an attack. Calls wait for their own times then.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

use super::pace::Pace;
use super::{PING_AFTER, PINGS_MAX, PONG_WITHIN};

pub(super) struct Liveness {
    pings: PingPong,
    /// h2 sends one at a time.
    is_under_way: bool,
    read: u64,
    since: Instant,
    asked: Option<Instant>,
    /// PINGs since something of an answer came.
    pings_sent: u32,
    answers: u64,
    sleep: Pin<Box<Sleep>>,
}

impl Liveness {
    pub(super) fn new(pings: PingPong) -> Self {
        let since = Instant::now();
        let sleep = Box::pin(sleep_until(since + PING_AFTER));
        Self { pings, is_under_way: false, read: 0, since, asked: None, pings_sent: 0, answers: 0, sleep }
    }

    /// Ready when it is dead. The pace knows what came so far; `is_busy` is whether calls are on it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, pace: &Pace, is_busy: bool) -> Poll<()> {
        let (read, answers) = (pace.read(), pace.answers());
        if answers != self.answers {
            self.answers = answers;
            self.pings_sent = 0;
        }
        if self.is_under_way && self.pings.poll_pong(cx).is_ready() {
            self.is_under_way = false;
        }
        if read != self.read || !is_busy {
            self.read = read;
            self.since = Instant::now();
            self.asked = None;
        }
        if !is_busy {
            return Poll::Pending;
        }
        loop {
            if self.asked.is_none() && self.pings_sent >= PINGS_MAX {
                return Poll::Pending;
            }
            let due = self.asked.map_or(self.since + PING_AFTER, |asked| asked + PONG_WITHIN);
            // As long as something comes, the timer is early, and is moved only then.
            if self.sleep.deadline() > due {
                self.sleep.as_mut().reset(due);
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if self.sleep.deadline() < due {
                self.sleep.as_mut().reset(due);
                continue;
            }
            if self.asked.is_some() {
                return Poll::Ready(());
            }
            self.is_under_way |= self.pings.send_ping(Ping::opaque()).is_ok();
            self.asked = Some(Instant::now());
            self.pings_sent += 1;
        }
    }
}
