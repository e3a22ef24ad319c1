//! An epoch's first segment: made at once where that can be done, else as soon as it can. A process that starts
//! on a full disk reads what is there and waits here for room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::entry::AppendError;
use super::fresh::fresh;
use super::helper::Helper;
use super::make::{Made, MakeError};
use super::options::Backoff;
use super::position::SegmentId;
use super::queue::{Load, Pending};
use super::shared::Shared;
use super::writer::Writer;

/// What the writer's thread does: write, once there is a segment.
#[derive(Debug)]
pub(crate) struct Writing {
    shared: Arc<Shared>,
    helper: Arc<Helper>,
    heal: Backoff,
    batch_bytes: u32,
    writer: Option<Writer>,
}

impl Writing {
    /// With the first segment, or without it where the disk was full.
    pub(crate) fn new(
        shared: Arc<Shared>,
        helper: Arc<Helper>,
        heal: Backoff,
        batch_bytes: u32,
        first: Option<Made>,
    ) -> Self {
        let mut writing = Self { shared, helper, heal, batch_bytes, writer: None };
        writing.writer = first.map(|first| writing.writer(first, VecDeque::new()));
        writing
    }

    fn writer(&self, first: Made, taken: VecDeque<Pending>) -> Writer {
        Writer::new(Arc::clone(&self.shared), Arc::clone(&self.helper), self.heal, self.batch_bytes, first, taken)
    }

    pub(crate) fn run(mut self) {
        match self.writer.take().or_else(|| self.wait_for_room()) {
            Some(writer) => writer.run(),
            // Closed before there was any room: there is nothing to seal.
            None => self.helper.stop(),
        }
    }

    /// Waits until something is to be appended and makes the first segment for it. The queue's door is shut while the
    /// disk is full, and looked at once a second: nobody comes here more often than that.
    fn wait_for_room(&self) -> Option<Writer> {
        let id = SegmentId { epoch: self.shared.epoch, sequence: 0 };
        let queue = &self.shared.queue;
        let mut taken = VecDeque::new();
        while queue.take(Load::default(), &mut taken) {
            // There is no segment that could be left.
            queue.asked_to_roll();
            if taken.is_empty() {
                continue;
            }
            match self.helper.prepared(id) {
                Ok(made) => return Some(self.writer(made, taken)),
                Err(MakeError::Full) => {
                    queue.set_full(true);
                    queue.refuse(std::mem::take(&mut taken), &AppendError::Full);
                }
                Err(MakeError::Io(error)) => {
                    let reason: Arc<str> = error.to_string().into();
                    tracing::error!(segment = %id, %error, "the log's disk failed: appends are refused");
                    self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
                    let waiting = queue.make_unavailable(&reason);
                    taken.extend(waiting);
                    queue.refuse(std::mem::take(&mut taken), &AppendError::Unavailable { reason });
                    let made = fresh(&self.shared, self.heal, id)?;
                    queue.make_available();
                    return Some(self.writer(made, taken));
                }
            }
        }
        None
    }
}
