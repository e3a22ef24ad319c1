//! What an operator sees.

use std::collections::HashMap;
use std::ops::Bound;

use crate::quota::answer::{Answer, BucketView, HOLDERS_SHOWN_MAX, HolderView, ParkView, RefusalView};
use crate::quota::key::Application;
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Class, Describe, Lessee};

use super::Core;
use super::bucket::{Asked, Bucket, No};
use super::meter::{Credit, Room};
use super::packed::PackedKey;

impl Core {
    pub(super) fn describe(&self, application: &Application, describe: &Describe) -> Answer {
        let Some(buckets) = self.applications.get(application) else { return Answer::Buckets(Vec::new()) };
        let after = describe.after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(PackedKey::of(key)));
        let page = buckets.range((after, Bound::Unbounded)).take(usize::from(describe.limit));
        // A look changes nothing, also not what is packed: it is done on a copy.
        let copies: Vec<_> = page.map(|(key, kept)| (key.unpack(), kept.copy())).collect();
        let views = copies.into_iter().filter_map(|(key, bucket)| Some((key?, bucket?))).map(|(key, mut bucket)| {
            bucket.advance(None, self.now_ms);
            let learning_ms = self.learning_ms(&bucket.rule);
            bucket.view(key, learning_ms, self.now_ms)
        });
        Answer::Buckets(views.collect())
    }
}

impl Bucket {
    fn view(&self, key: crate::quota::key::BucketKey, learning_ms: Option<u64>, now_ms: u64) -> BucketView {
        let park = self.park(now_ms).map(|(ms, why)| ParkView { ms, why });
        let room = match self.meter.room(&self.rule, self.cap(), Credit::default(), now_ms) {
            Room::Units { units, .. } if self.rule.is_rate() => units,
            Room::Units { units, .. } => units.saturating_sub(self.used()),
            Room::Shut { .. } | Room::NoWindow => 0,
        };
        let refusal = match (learning_ms, park) {
            (Some(ms), _) => Some(RefusalView::Learning { ms }),
            (None, Some(ParkView { ms, why })) => Some(RefusalView::Parked { ms, why }),
            (None, None) => self.refusal(now_ms),
        };
        let shares = self.shares.as_deref();
        BucketView {
            key,
            rule: *self.rule,
            used: self.used(),
            room,
            generation: self.generation,
            limit_seen: self.limit_seen.map(|(seen, _)| seen),
            park,
            alpha_milli: self.alpha_milli(),
            lambda_milli: shares.and_then(super::shares::Shares::lambda_milli),
            tenants: shares.map_or(0, |shares| u32::try_from(shares.tenants()).unwrap_or(u32::MAX)),
            learning_ms,
            holders: self.holder_views(now_ms),
            refusal,
        }
    }

    /// As to somebody who is not there yet.
    fn refusal(&self, now_ms: u64) -> Option<RefusalView> {
        let nobody = Lessee { holder: HolderId(0), tenant: Name::parse("-").ok()? };
        let asked = Asked { lessee: &nobody, class: Class::Interactive, least: 1, most: 1, unspent: 0 };
        let No { retry_ms, why } = self.plan(asked, now_ms).err()?;
        Some(RefusalView::Denied { retry_ms, why })
    }

    fn holder_views(&self, now_ms: u64) -> Vec<HolderView> {
        let mut holders: HashMap<HolderId, HolderView> = HashMap::new();
        for entry in self.entries.iter().filter(|entry| entry.is_live(now_ms)) {
            let ttl_ms = entry.ends_ms() - now_ms;
            let none = HolderView { holder: entry.holder, units: 0, ttl_ms: 0 };
            let view = holders.entry(entry.holder).or_insert(none);
            view.units += u64::from(entry.units);
            view.ttl_ms = view.ttl_ms.max(ttl_ms);
        }
        let mut views: Vec<_> = holders.into_values().collect();
        views.sort_unstable_by(|one, other| (other.units, one.holder).cmp(&(one.units, other.holder)));
        views.truncate(HOLDERS_SHOWN_MAX);
        views
    }
}
