//! Leases of several buckets, all or none.

use crate::quota::answer::{Answer, Lease};
use crate::quota::key::Application;
use crate::quota::op::{Acquire, Class, Leg};

use super::bucket::{Asked, Bucket, No, Plan, to_u32};
use super::meter::Credit;
use super::shares::Demand;
use super::touch::Change;
use super::{Core, full, leg_number};

impl Core {
    pub(super) fn acquire(&mut self, application: &Application, acquire: &Acquire) -> Answer {
        for (at, leg) in acquire.legs.iter().enumerate() {
            if !self.hear(application, acquire, leg) {
                return full(at);
            }
        }
        if let Some(answer) = self.replay(application, acquire) {
            return answer;
        }
        if let Some(answer) = self.wait(application, acquire) {
            return answer;
        }
        match self.plan(application, acquire) {
            Ok(plans) => Answer::Granted(self.commit(application, acquire, &plans)),
            Err((leg, No { retry_ms, why })) => Answer::Denied { leg: leg_number(leg), retry_ms: retry_ms.max(1), why },
        }
    }

    /// Takes up what the lessee says about itself: how much it wants, and what it was granted.
    fn hear(&mut self, application: &Application, acquire: &Acquire, leg: &Leg) -> bool {
        let now_ms = self.now_ms;
        let Some(bucket) = self.bucket(application, &leg.bucket) else { return false };
        if acquire.class == Class::Interactive {
            bucket.interactive_ms = now_ms;
        }
        bucket.hear(leg.heard);
        let missing = bucket.heal(&acquire.lessee, leg, now_ms);
        let is_heard = missing.is_some() && bucket.share(acquire, leg, now_ms);
        if missing.is_some_and(|units| units > 0) {
            self.touch(application, &leg.bucket.key, Some(&acquire.lessee), Change::Units);
        }
        is_heard
    }

    /// What is not to be granted, because it was granted or is late.
    fn replay(&mut self, application: &Application, acquire: &Acquire) -> Option<Answer> {
        let (now_ms, lessee) = (self.now_ms, &acquire.lessee);
        let mut known = 0;
        let mut leases = Vec::with_capacity(acquire.legs.len());
        for (at, leg) in acquire.legs.iter().enumerate() {
            let bucket = self.bucket(application, &leg.bucket)?;
            let Some(entry) = bucket.entry(lessee) else { continue };
            let stale = Answer::Stale { leg: leg_number(at), seq: entry.seq };
            if leg.seq < entry.seq {
                return Some(stale);
            }
            if leg.seq == entry.seq {
                if entry.is_closed || entry.generation != bucket.generation || now_ms >= entry.ends_ms() {
                    return Some(stale);
                }
                known += 1;
                let ttl_ms = to_u32(entry.ends_ms() - now_ms);
                leases.push(Lease { units: entry.units, ttl_ms, generation: entry.generation, tally: entry.tally });
            }
        }
        match known {
            0 => None,
            _ if known == acquire.legs.len() => Some(Answer::Replayed(leases)),
            // Of some legs only: it is not the acquire that was granted.
            _ => {
                let seq_of =
                    |core: &mut Self, leg: &Leg| Some(core.bucket(application, &leg.bucket)?.entry(lessee)?.seq);
                let at = acquire.legs.iter().position(|leg| seq_of(self, leg) == Some(leg.seq)).unwrap_or(0);
                Some(Answer::Stale { leg: leg_number(at), seq: acquire.legs[at].seq })
            }
        }
    }

    /// Why nothing at all is granted: what is not known, then what is parked; the longest of all legs.
    fn wait(&mut self, application: &Application, acquire: &Acquire) -> Option<Answer> {
        let now_ms = self.now_ms;
        let mut learning: Option<(u64, usize)> = None;
        let mut parked: Option<(u64, crate::quota::op::Why, usize)> = None;
        for (at, leg) in acquire.legs.iter().enumerate() {
            let bucket = self.bucket(application, &leg.bucket)?;
            let (park, rule) = (bucket.park(now_ms), super::same_rule(bucket));
            learning = learning.max(self.learning_ms(&rule).map(|ms| (ms, at)));
            if let Some((ms, why)) = park
                && parked.is_none_or(|(longest, ..)| ms > longest)
            {
                parked = Some((ms, why, at));
            }
        }
        match (learning, parked) {
            (Some((ms, at)), _) => Some(Answer::Learning { leg: leg_number(at), ms }),
            (None, Some((ms, why, at))) => Some(Answer::Parked { leg: leg_number(at), ms, why }),
            (None, None) => None,
        }
    }

    fn plan(&mut self, application: &Application, acquire: &Acquire) -> Result<Vec<Plan>, (usize, No)> {
        let now_ms = self.now_ms;
        let mut plans = Vec::with_capacity(acquire.legs.len());
        let mut no: Option<(usize, No)> = None;
        for (at, leg) in acquire.legs.iter().enumerate() {
            let asked = Asked {
                lessee: &acquire.lessee,
                class: acquire.class,
                least: leg.least,
                most: leg.want,
                unspent: leg.unspent,
            };
            let Some(bucket) = self.bucket(application, &leg.bucket) else { continue };
            match bucket.plan(asked, now_ms) {
                Ok(plan) => plans.push(plan),
                Err(other) if no.is_none_or(|(_, no)| other.retry_ms > no.retry_ms) => no = Some((at, other)),
                Err(_) => {}
            }
        }
        no.map_or(Ok(plans), Err)
    }

    fn commit(&mut self, application: &Application, acquire: &Acquire, plans: &[Plan]) -> Vec<Lease> {
        let now_ms = self.now_ms;
        let mut leases = Vec::with_capacity(plans.len());
        for (leg, plan) in acquire.legs.iter().zip(plans) {
            if let Some(bucket) = self.bucket(application, &leg.bucket)
                && let Some(lease) = bucket.grant(acquire, leg, *plan, now_ms)
            {
                leases.push(lease);
            }
            self.touch(application, &leg.bucket.key, Some(&acquire.lessee), Change::Units);
        }
        leases
    }
}

impl Bucket {
    /// Counts what the lessee was granted and is not known of here; none if there is no place for its fences.
    fn heal(&mut self, lessee: &crate::quota::op::Lessee, leg: &Leg, now_ms: u64) -> Option<u64> {
        let rule = super::same_rule(self);
        self.meter.reach(&rule, leg.tally.wid, now_ms);
        let (wid, continuous) = (self.wid(now_ms), self.meter.is_continuous());
        let is_rate = self.rule.is_rate();
        let entry = self.entry_mut(lessee)?;
        if !is_rate {
            return Some(0);
        }
        let missing = entry.heal(leg.tally, wid, continuous);
        self.meter.debit(&rule, missing, now_ms);
        Some(missing)
    }

    /// Remembers what is wanted of an application's bucket, and goes to this moment's slot of shares.
    fn share(&mut self, acquire: &Acquire, leg: &Leg, now_ms: u64) -> bool {
        if !self.is_shared() {
            return true;
        }
        let demand = Demand { class: acquire.class, worth: self.worth(acquire.share), wanted_milli: leg.demand_milli };
        let mut shares = self.shares.take().unwrap_or_default();
        let is_heard = shares.want(acquire.lessee.holder, &acquire.lessee.tenant, &demand, now_ms);
        shares.turn(now_ms, self.share_slot_ms(), |unclaimed_milli| self.capacity_milli(unclaimed_milli, now_ms));
        self.shares = Some(shares);
        is_heard
    }

    fn grant(&mut self, acquire: &Acquire, leg: &Leg, plan: Plan, now_ms: u64) -> Option<Lease> {
        let rule = super::same_rule(self);
        let credit =
            if plan.credit > 0 { self.creditable(&acquire.lessee, plan.credit, now_ms) } else { Credit::default() };
        self.meter.credit(&rule, credit);
        self.meter.debit(&rule, u64::from(plan.units), now_ms);
        let fresh = plan.units.saturating_sub(credit.units);
        if rule.is_rate() {
            if let Some(release) = self.release.as_deref_mut()
                && fresh > 0
            {
                release.debit(&rule, fresh, now_ms);
            }
            if let Some(shares) = self.shares.as_deref_mut() {
                shares.take(&acquire.lessee.tenant, fresh);
            }
        }
        let (wid, continuous, generation) = (self.wid(now_ms), self.meter.is_continuous(), self.generation);
        let entry = self.entry_mut(&acquire.lessee)?;
        entry.credited += u64::from(credit.units);
        if rule.is_rate() {
            entry.count(plan.units, wid, continuous);
        }
        entry.seq = leg.seq;
        (entry.units, entry.is_closed, entry.generation) = (plan.units, false, generation);
        (entry.granted_ms, entry.ttl_ms) = (now_ms, plan.ttl_ms);
        Some(Lease { units: plan.units, ttl_ms: plan.ttl_ms, generation, tally: entry.tally })
    }
}
