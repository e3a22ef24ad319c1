//! What bounds the memory: buckets that nobody uses are packed, and forgotten once nothing of them matters.

use std::ops::Bound;

use crate::quota::key::Application;

use super::Core;
use super::packed::{Kept, PackedKey};

/// How long a bucket stays unpacked after its last use.
const REST_MS: u64 = 10_000;

/// Where a sweep stopped, to go on from there.
#[derive(Debug, Clone, Default)]
pub struct SweepCursor(Option<(Application, Option<PackedKey>)>);

impl Core {
    /// Looks at up to `buckets_max` buckets, so that whoever holds the lock holds it for a bounded time. The next call
    /// goes on behind them, and begins again at the end.
    pub fn sweep(&mut self, now_ms: u64, cursor: &mut SweepCursor, buckets_max: usize) {
        self.now_ms = self.now_ms.max(now_ms);
        let now_ms = self.now_ms;
        let mut left = buckets_max;
        while left > 0 {
            let Some((application, after)) = self.place(cursor) else {
                cursor.0 = None;
                return;
            };
            let Some(buckets) = self.applications.get_mut(&application) else { return };
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let mut gone = Vec::new();
            let mut last = None;
            for (key, kept) in buckets.range_mut((from, Bound::Unbounded)).take(left) {
                left -= 1;
                last = Some(key.clone());
                if looked_at(kept, now_ms) {
                    gone.push(key.clone());
                }
            }
            for key in &gone {
                buckets.remove(key);
            }
            self.buckets -= gone.len();
            if buckets.is_empty() {
                self.applications.remove(&application);
            }
            *cursor = SweepCursor(Some((application, last)));
        }
    }

    /// The application to go on with, and behind which of its buckets. Applications go in the order of their names.
    fn place(&self, cursor: &SweepCursor) -> Option<(Application, Option<PackedKey>)> {
        match &cursor.0 {
            Some((application, Some(after))) if self.applications.contains_key(application) => {
                Some((application.clone(), Some(after.clone())))
            }
            Some((application, _)) => Some((
                self.applications
                    .range::<Application, _>((Bound::Excluded(application), Bound::Unbounded))
                    .next()?
                    .0
                    .clone(),
                None,
            )),
            None => Some((self.applications.first_key_value()?.0.clone(), None)),
        }
    }
}

/// Whether the bucket can be forgotten; one that only rests is packed.
fn looked_at(kept: &mut Kept, now_ms: u64) -> bool {
    if now_ms < kept.due_ms() {
        return false;
    }
    let is_resting = matches!(kept, Kept::Idle(_));
    // Bytes that cannot be read back hold nothing that could still be counted; they are our own, so there are none.
    let Some(bucket) = kept.live() else { return true };
    let is_over = bucket.forget(now_ms);
    let is_idle = bucket.touched_ms + REST_MS <= now_ms && bucket.shares.is_none();
    if !is_over && (is_idle || is_resting) {
        kept.rest();
    }
    is_over
}
