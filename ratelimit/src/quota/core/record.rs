//! Buckets as records of a journal: the last record of a bucket is the bucket, with one lessee or with all.

use std::sync::Arc;

use crate::quota::key::{Application, BucketKey, Level};

use super::bytes::{Reader, Writer};
use super::packed::{Kept, PackedKey, pack, unpack};
use super::{Change, Core, Touched, is_journalled};

impl Core {
    /// What the last operation changed that has to be on disk before its answer is given.
    pub fn records(&self) -> Vec<Vec<u8>> {
        self.touched.iter().filter_map(|touched| self.record(touched)).collect()
    }

    fn record(&self, touched: &Touched) -> Option<Vec<u8>> {
        let Kept::Live(bucket) = self.applications.get(&touched.application)?.get(&PackedKey::of(&touched.key))? else {
            return None;
        };
        if touched.change == Change::Units && !is_journalled(&bucket.rule) {
            return None;
        }
        let entry = touched.lessee.as_ref().and_then(|lessee| bucket.entry(lessee));
        let mut out = head(&touched.application, &touched.key);
        out.bytes.extend_from_slice(&pack(bucket, entry));
        Some(out.bytes)
    }

    /// Every bucket as a record: with `everything` all of them, else those that a crash must not forget.
    pub fn snapshot(&self, everything: bool, mut each: impl FnMut(&[u8])) {
        for (application, buckets) in &self.applications {
            for (key, kept) in buckets {
                let (Some(key), Some(bucket)) = (key.unpack(), kept.copy()) else { continue };
                if everything || is_journalled(&bucket.rule) || bucket.release.is_some() {
                    let mut out = head(application, &key);
                    out.bytes.extend_from_slice(&pack(&bucket, &bucket.entries));
                    each(&out.bytes);
                }
            }
        }
    }

    /// Takes up what a record says, on top of the records before it. No if it is none of ours.
    pub fn restore(&mut self, record: &[u8]) -> bool {
        self.restored(record).is_some()
    }

    fn restored(&mut self, record: &[u8]) -> Option<()> {
        let mut input = Reader::of(record);
        let application = Application { provider: input.name()?, name: input.name()? };
        let level = usize::try_from(input.int()?).ok()?;
        let key = BucketKey { level: *Level::ALL.get(level)?, scope: input.name()?, policy: input.name()? };
        let mut bucket = unpack(input.rest())?;
        let kept = self.applications.entry(application).or_default();
        match kept.get_mut(&PackedKey::of(&key)) {
            None => {
                self.buckets += 1;
                kept.insert(PackedKey::of(&key), Kept::Live(Box::new(bucket)));
            }
            Some(there) => {
                let old = there.live()?;
                for entry in std::mem::take(&mut old.entries) {
                    let is_newer =
                        bucket.entries.iter().any(|new| (new.holder, &new.tenant) == (entry.holder, &entry.tenant));
                    if !is_newer {
                        bucket.entries.push(entry);
                    }
                }
                bucket.entries.sort_by(|one, other| (one.holder, &one.tenant).cmp(&(other.holder, &other.tenant)));
                if bucket.rule == old.rule {
                    bucket.rule = Arc::clone(&old.rule);
                }
                *old = bucket;
            }
        }
        Some(())
    }

    /// After the last record: the time goes on from here, in another life.
    pub fn resume(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }
}

fn head(application: &Application, key: &BucketKey) -> Writer {
    let mut out = Writer::default();
    out.name(&application.provider);
    out.name(&application.name);
    out.int(Level::ALL.iter().position(|&level| level == key.level).unwrap_or(0) as u64);
    out.name(&key.scope);
    out.name(&key.policy);
    out
}
