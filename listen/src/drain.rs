//! Draining: no new connections, no connection kept alive, and word when the last one is gone.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

    /// Ends the connections that are still open.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// Returns when what is still open is to end.
    pub(crate) fn until_cut(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut cut = self.cut.subscribe();
        async move {
            // An error is a service that is gone.
            let _cut = cut.wait_for(|cut| *cut).await;
        }
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
}
