//! Waiting until more is durable, without asking again and again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tokio::sync::watch;

use crate::segment;

/// Tells a reader at the durable end that there may be more. Made before the reader looks, so that nothing comes between.
///
/// Whoever appends does not wait for it, and pays for it as for anybody who waits for his own append. What another process
/// appends is not told: who reads beside one looks again from time to time all the same.
#[derive(Debug, Default)]
pub struct Changes(Vec<Source>);

#[derive(Debug)]
pub(crate) enum Source {
    Journal(watch::Receiver<segment::Position>),
    #[cfg(any(test, feature = "test-util"))]
    Count(watch::Receiver<u64>),
}

impl Changes {
    /// Of an engine that tells nobody.
    pub fn none() -> Self {
        Self::default()
    }

    pub(crate) fn of(sources: impl IntoIterator<Item = Source>) -> Self {
        Self(sources.into_iter().collect())
    }

    /// Ready when something became durable since this was made, or since it was ready last. Never ready where nothing
    /// tells, and when the log has gone. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        type Told<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
        let mut waiting: Vec<Option<Told<'_>>> = self.0.iter_mut().map(|source| Some(source.changed())).collect();
        poll_fn(|context| {
            for told in &mut waiting {
                match told.as_mut().map(|told| told.as_mut().poll(context)) {
                    Some(Poll::Ready(true)) => return Poll::Ready(()),
                    // Its journal is gone: it has nothing more to tell.
                    Some(Poll::Ready(false)) => *told = None,
                    Some(Poll::Pending) | None => {}
                }
            }
            Poll::Pending
        })
        .await;
    }
}

impl Source {
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        match self {
            Self::Journal(receiver) => Box::pin(async { receiver.changed().await.is_ok() }),
            #[cfg(any(test, feature = "test-util"))]
            Self::Count(receiver) => Box::pin(async { receiver.changed().await.is_ok() }),
        }
    }
}
