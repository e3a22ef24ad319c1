//! Everything but acquiring: units that come back, slots that are kept, what providers and operators say.

use std::sync::Arc;

use crate::quota::answer::{Answer, Lease};
use crate::quota::key::{Application, BucketKey};
use crate::quota::op::{GiveBack, Observe, Penalise, Renew, Settle, Slots, Unspent};

use super::bucket::{Bucket, burst, to_u32};
use super::meter::{Credit, Meter};
use super::release::Release;
use super::touch::Change;
use super::{Core, full, leg_number, same_rule};

impl Core {
    /// Credits each leg that matches its lease as it stands; one that does not is left out.
    pub(super) fn give_back(&mut self, application: &Application, back: &GiveBack) -> Answer {
        let now_ms = self.now_ms;
        let mut credited = 0_u32;
        for leg in &back.legs {
            let Some(bucket) = self.known_bucket(application, &leg.key) else { continue };
            let Some(units) = bucket.give_back(&back.lessee, leg, now_ms) else { continue };
            credited = credited.saturating_add(units);
            self.touch(application, &leg.key, Some(&back.lessee), Change::Units);
        }
        Answer::Done { units: credited }
    }

    /// Slots that are held count for as long again, also those of which nothing is known here any more. The check of
    /// all fences comes first: a renewal is done in every bucket or in none.
    pub(super) fn renew(&mut self, application: &Application, renew: &Renew) -> Answer {
        let now_ms = self.now_ms;
        for (at, leg) in renew.legs.iter().enumerate() {
            let Some(bucket) = self.bucket(application, &leg.bucket) else { return full(at) };
            let Some(entry) = bucket.entry_mut(&renew.lessee) else { return full(at) };
            // The same renewal again is done again: it says the same.
            if leg.seq < entry.seq {
                return Answer::Stale { leg: leg_number(at), seq: entry.seq };
            }
        }
        let mut leases = Vec::with_capacity(renew.legs.len());
        for leg in &renew.legs {
            if let Some(bucket) = self.bucket(application, &leg.bucket)
                && let Some(lease) = bucket.renew(renew, leg, now_ms)
            {
                leases.push(lease);
            }
            self.touch(application, &leg.bucket.key, Some(&renew.lessee), Change::Units);
        }
        Answer::Renewed(leases)
    }

    pub(super) fn penalise(&mut self, application: &Application, penalise: &Penalise) -> Answer {
        let now_ms = self.now_ms;
        let Some(bucket) = self.bucket(application, &penalise.bucket) else { return full(0) };
        let before = bucket.release.as_deref().copied();
        let is_known = penalise.generation.is_some_and(|generation| generation < bucket.generation);
        let release = match before {
            Some(mut release) if is_known => {
                release.extend(now_ms, penalise.delta_ms, penalise.why);
                release
            }
            before => {
                bucket.fence(now_ms);
                Release::penalised(before, now_ms, penalise.delta_ms, penalise.why)
            }
        };
        bucket.release = Some(Box::new(release));
        let answer =
            Answer::ParkedFor { ms: release.park_until_ms.saturating_sub(now_ms), generation: bucket.generation };
        self.touch(application, &penalise.bucket.key, None, Change::Park);
        answer
    }

    pub(super) fn observe(&mut self, application: &Application, observe: &Observe) -> Answer {
        let now_ms = self.now_ms;
        let Some(bucket) = self.bucket(application, &observe.bucket) else { return full(0) };
        let before = (bucket.used(), bucket.limit_seen);
        bucket.observe(observe, now_ms);
        let counted = to_u32(bucket.used().saturating_sub(before.0));
        // Nearly every response says what is known already: that is written nowhere.
        if before != (bucket.used(), bucket.limit_seen) {
            self.touch(application, &observe.bucket.key, None, Change::Units);
        }
        Answer::Done { units: counted }
    }

    pub(super) fn settle(&mut self, application: &Application, settle: &Settle) -> Answer {
        let now_ms = self.now_ms;
        let Some(bucket) = self.known_bucket(application, &settle.key) else { return Answer::Done { units: 0 } };
        let Some(units) = bucket.settle(settle, now_ms) else { return Answer::Done { units: 0 } };
        self.touch(application, &settle.key, Some(&settle.lessee), Change::Units);
        Answer::Done { units }
    }

    pub(super) fn release(&mut self, application: &Application, key: &BucketKey) -> Answer {
        let now_ms = self.now_ms;
        let Some(bucket) = self.known_bucket(application, key) else { return Answer::NoBucket };
        if let Some(release) = bucket.release.as_deref_mut() {
            release.park_until_ms = now_ms;
            release.clean_since_ms = now_ms;
        }
        self.touch(application, key, None, Change::Park);
        Answer::Done { units: 0 }
    }

    pub(super) fn reset(&mut self, application: &Application, key: &BucketKey) -> Answer {
        let now_ms = self.now_ms;
        let Some(bucket) = self.known_bucket(application, key) else { return Answer::NoBucket };
        let used = to_u32(bucket.used());
        bucket.reset(now_ms);
        self.touch(application, key, None, Change::Park);
        Answer::Done { units: used }
    }
}

impl Bucket {
    fn give_back(&mut self, lessee: &crate::quota::op::Lessee, leg: &Unspent, now_ms: u64) -> Option<u32> {
        let is_rate = self.rule.is_rate();
        let entry = self.entry(lessee)?;
        let is_it = entry.seq == leg.seq && !entry.is_closed && leg.units <= entry.units;
        let is_valid = !is_rate || (entry.generation == leg.generation && entry.tally.wid == leg.wid);
        if !is_it || !is_valid || leg.units == 0 {
            return None;
        }
        if is_rate {
            let credit = self.creditable(lessee, leg.units, now_ms);
            if credit.units == 0 {
                return None;
            }
            let rule = same_rule(self);
            self.meter.credit(&rule, credit);
            if let Some(shares) = self.shares.as_deref_mut() {
                shares.give_back(&lessee.tenant, credit.units);
            }
        }
        let entry = self.entry_mut(lessee)?;
        entry.is_closed = true;
        entry.units -= leg.units;
        if is_rate {
            entry.credited += u64::from(leg.units);
        }
        Some(leg.units)
    }

    fn renew(&mut self, renew: &Renew, leg: &Slots, now_ms: u64) -> Option<Lease> {
        self.hear(leg.heard);
        let (cap, ttl_ms, generation) = (self.cap(), self.rule.lease_ms, self.generation);
        let share = self.slots_of(&renew.lessee.tenant, &renew.lessee).unwrap_or(cap);
        let usable = if self.park(now_ms).is_some() { 0 } else { leg.held.min(share).min(cap) };
        let entry = self.entry_mut(&renew.lessee)?;
        entry.seq = leg.seq;
        (entry.units, entry.is_closed, entry.generation) = (leg.held, false, generation);
        (entry.granted_ms, entry.ttl_ms) = (now_ms, ttl_ms);
        Some(Lease { units: usable, ttl_ms, generation, tally: entry.tally })
    }

    /// Only ever lowers what is granted, and never by what is said of another window.
    fn observe(&mut self, observe: &Observe, now_ms: u64) {
        let rule = same_rule(self);
        let wid = self.wid(now_ms);
        let is_recent = observe.wid == wid || (self.meter.is_continuous() && observe.wid + 1 == wid);
        if !is_recent || !rule.is_rate() && observe.limit.is_none() {
            return;
        }
        if let (Meter::Slots(slots), Some(reset_ms)) = (&mut self.meter, observe.reset_ms) {
            slots.learn_end(&rule, reset_ms, now_ms);
            slots.advance(&rule, now_ms);
        }
        let whole = burst(&rule);
        if let Some(limit) = observe.limit.filter(|&limit| limit < whole) {
            let until_ms = self.meter.window().map_or_else(|| now_ms + rule.window_ms(), |window| window.end_ms);
            let least = self.limit_seen.map_or(limit, |(seen, _)| seen.min(limit));
            self.limit_seen = Some((least, until_ms));
        }
        if let Some(remaining) = observe.remaining {
            // What a limit above ours leaves is not ours to have; it says how much was used all the same.
            let limit = observe.limit.unwrap_or(whole);
            if let Some(used) = limit.checked_sub(remaining) {
                self.meter.raise_to(&rule, u64::from(used), now_ms);
            }
        }
    }

    fn settle(&mut self, settle: &Settle, now_ms: u64) -> Option<u32> {
        let rule = same_rule(self);
        let is_now = self.meter.is_continuous() || settle.wid == self.wid(now_ms);
        let entry = self.entry_mut(&settle.lessee)?;
        if settle.seq <= entry.settle_seq || !rule.is_rate() {
            return None;
        }
        entry.settle_seq = settle.seq;
        if settle.actual >= settle.estimate {
            // What is over the estimate is a debt, whenever it was.
            let more = settle.actual - settle.estimate;
            self.meter.debit(&rule, u64::from(more), now_ms);
            if let Some(shares) = self.shares.as_deref_mut() {
                shares.take(&settle.lessee.tenant, more);
            }
            return Some(more);
        }
        let less = u64::from(settle.estimate - settle.actual);
        let bound = entry.tally.units.saturating_add(entry.tally.before).saturating_sub(entry.credited);
        let units = to_u32(less.min(bound));
        if !is_now || units == 0 {
            return Some(0);
        }
        entry.credited += u64::from(units);
        self.meter.credit(&rule, Credit { units, granted_ms: now_ms.saturating_sub(settle.age_ms) });
        if let Some(shares) = self.shares.as_deref_mut() {
            shares.give_back(&settle.lessee.tenant, units);
        }
        Some(units)
    }

    /// As a new bucket, but for the fences of its lessees. What they hold is void, and what they remember of before
    /// does not come back.
    fn reset(&mut self, now_ms: u64) {
        let rule = Arc::clone(&self.rule);
        self.meter = Meter::new(&rule);
        self.meter.advance(&rule, now_ms);
        self.fence(now_ms);
        self.release = None;
        self.limit_seen = None;
        self.shares = None;
        for entry in &mut self.entries {
            entry.is_closed = true;
            if rule.is_rate() {
                entry.units = 0;
            }
        }
    }
}
