//! Draining: no new connections, no connection kept alive, and word when the last one is gone.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use tokio::sync::{Notify, watch};

/// How many connections a service has, and whether it is to lose them.
#[derive(Debug)]
pub(crate) struct Connections {
    open: AtomicUsize,
    /// Of those, the ones that a request was read from and not answered yet.
    busy: AtomicUsize,
    changed: Notify,
    /// The same as `draining`, for those who only want to look.
    has_begun: AtomicBool,
    draining: watch::Sender<bool>,
    /// The drain's time is up.
    cut: watch::Sender<bool>,
}

impl Connections {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            changed: Notify::new(),
            has_begun: AtomicBool::new(false),
            draining: watch::Sender::new(false),
            cut: watch::Sender::new(false),
        })
    }

    /// Counts one more, unless there are `max`.
    pub(crate) fn open(self: &Arc<Self>, max: usize) -> Option<Open> {
        let admitted = self
            .open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < max).then_some(open + 1))
            .is_ok();
        admitted.then(|| Open { connections: Arc::clone(self) })
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn opened(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn drain(&self) {
        self.has_begun.store(true, Ordering::Release);
        self.draining.send_replace(true);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Is true from the moment when the drain begins.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Ends the connections that are still open. The drain has begun by then.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Serves a connection to its end, or until what is still open is to end.
    pub(crate) async fn until_cut(&self, mut serving: Pin<&mut (impl Future<Output = ()> + Send)>) {
        let mut cut = self.cut.subscribe();
        // An error is a service that is gone.
        let mut cut = pin!(cut.wait_for(|cut| *cut));
        let mut woken: Option<Waker> = None;
        poll_fn(|cx| {
            if serving.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            // To ask takes a lock that all connections share. Whoever waits already is woken for it, and the drain has
            // begun by then.
            let waits = woken.as_ref().is_some_and(|woken| woken.will_wake(cx.waker()));
            if waits && !self.is_draining() {
                return Poll::Pending;
            }
            if !waits {
                woken = Some(cx.waker().clone());
            }
            cut.as_mut().poll(cx).map(drop)
        })
        .await;
    }

    /// Returns when no connection is open.
    pub(crate) async fn gone(&self) {
        loop {
            let changed = self.changed.notified();
            if self.opened() == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Open {
    connections: Arc<Connections>,
}

impl Open {
    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Marks the connection as having a request that wants its answer.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.connections.busy.fetch_add(1, Ordering::AcqRel);
        Busy { connections: &self.connections }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.connections.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.connections.changed.notify_waiters();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Busy<'a> {
    connections: &'a Connections,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.connections.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counts_to_the_cap_and_back() {
        let connections = Connections::new();
        let one = connections.open(2).unwrap();
        let two = connections.open(2).unwrap();
        assert!(connections.open(2).is_none());
        let busy = one.busy();
        assert_eq!((connections.opened(), connections.busy()), (2, 1));
        drop(busy);
        drop(two);
        assert_eq!((connections.opened(), connections.busy()), (1, 0));
        let waiting = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move { connections.gone().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(one);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_is_served_is_cut_whoever_polls_it_then() {
        let connections = Connections::new();
        let polled = AtomicUsize::new(0);
        let serving = pin!(poll_fn(|_| {
            polled.fetch_add(1, Ordering::Relaxed);
            Poll::<()>::Pending
        }));
        let mut served = Box::pin(connections.until_cut(serving));
        for _ in 0..3 {
            let mut cx = std::task::Context::from_waker(Waker::noop());
            assert!(served.as_mut().poll(&mut cx).is_pending());
        }
        // Another task has it now, and is the one to be woken.
        let cut = async {
            connections.drain();
            tokio::task::yield_now().await;
            connections.cut();
        };
        tokio::time::timeout(std::time::Duration::from_secs(5), async { tokio::join!(served, cut) }).await.unwrap();
        assert!(polled.load(Ordering::Relaxed) >= 4);
    }

    #[tokio::test]
    async fn whoever_is_done_waits_for_no_cut() {
        Connections::new().until_cut(pin!(std::future::ready(()))).await;
    }
}
