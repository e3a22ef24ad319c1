//! One bucket: its rule, what it has counted, its park, its lessees.

use std::collections::HashSet;
use std::sync::Arc;

use crate::quota::answer::Denial;
use crate::quota::key::Level;
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Class, Lessee, Metered, Share, Why};
use crate::quota::rule::{Kind, LONG_WINDOW_MS, Rule};

use super::entry::Entry;
use super::meter::{Credit, Meter, Room};
use super::release::{ALPHA_WHOLE, Release};
use super::shares::{RESERVE_PERCENT, Shares, Worth};
use super::slots::slot_ms;

/// Most lessees of one bucket. A further one is refused until others have been quiet for long enough.
pub(super) const LESSEES_MAX: usize = 65_536;
/// Part of a limit that one block may be, in hundredths, over the number of holders: what a crash forfeits.
const BLOCK_PERCENT: u64 = 5;
/// How long fences of a lessee are kept that has no lease and no tally that matters: longer than anything is under way.
const FENCE_MS: u64 = 120_000;

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) level: Level,
    pub(super) rule: Arc<Rule>,
    pub(super) meter: Meter,
    /// Begins as the time in ms at which the bucket was made and hardly ever grows faster than time: a bucket that is
    /// forgotten and made again has none that was used before, also for who does not say what it has heard of.
    pub(super) generation: u64,
    pub(super) release: Option<Box<Release>>,
    /// A limit that the provider told, lower than the rule's, and until when it is believed.
    pub(super) limit_seen: Option<(u32, u64)>,
    /// Sorted by lessee.
    pub(super) entries: Vec<Entry>,
    pub(super) shares: Option<Box<Shares>>,
    pub(super) interactive_ms: u64,
    pub(super) touched_ms: u64,
}

/// What an ask may have of a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) units: u32,
    pub(super) credit: u32,
    pub(super) ttl_ms: u32,
}

/// A leg as a bucket sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) lessee: &'a Lessee,
    pub(super) class: Class,
    pub(super) least: u32,
    pub(super) most: u32,
    pub(super) unspent: u32,
}

/// Not now, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct No {
    pub(super) retry_ms: u64,
    pub(super) why: Denial,
}

impl Bucket {
    pub(super) fn new(metered: &Metered, now_ms: u64) -> Self {
        Self {
            level: metered.key.level,
            rule: Arc::clone(&metered.rule),
            meter: Meter::new(&metered.rule),
            generation: now_ms,
            release: None,
            limit_seen: None,
            entries: Vec::new(),
            shares: None,
            interactive_ms: 0,
            touched_ms: now_ms,
        }
    }

    /// Takes up a newer rule, and goes to this moment.
    pub(super) fn advance(&mut self, rule: Option<&Arc<Rule>>, now_ms: u64) {
        if let Some(rule) = rule {
            self.adopt(rule, now_ms);
        }
        self.meter.advance(&self.rule, now_ms);
        if self.release.as_deref_mut().is_some_and(|release| !release.advance(&self.rule, now_ms)) {
            self.release = None;
        }
        if self.limit_seen.is_some_and(|(_, until_ms)| until_ms <= now_ms) {
            self.limit_seen = None;
        }
        if !self.rule.is_rate() {
            for entry in &mut self.entries {
                // Slots of a holder that is heard of no more come back.
                if entry.ends_ms() <= now_ms {
                    entry.units = 0;
                }
            }
        }
    }

    fn adopt(&mut self, rule: &Arc<Rule>, now_ms: u64) {
        let is_later_day = match (rule.kind, self.rule.kind) {
            (Kind::Calendar { bounds_ms: new }, Kind::Calendar { bounds_ms: old }) => {
                rule.cfgver == self.rule.cfgver && new > old
            }
            _ => false,
        };
        if rule.cfgver <= self.rule.cfgver && !is_later_day {
            return;
        }
        // What was used until now is counted as it was; from here on by the new rule.
        self.meter.advance(&self.rule, now_ms);
        let (used, is_same_kind) = (self.meter.used(), same_meter(rule.kind, self.rule.kind));
        let is_less = rule.cap < self.rule.cap || burst(rule) < burst(&self.rule);
        if !is_same_kind {
            self.meter = Meter::new(rule);
            self.meter.advance(rule, now_ms);
            self.meter.debit(rule, used, now_ms);
        }
        if !is_same_kind || is_less {
            self.fence(now_ms);
        }
        if rule.cfgver > self.rule.cfgver {
            self.limit_seen = None;
        }
        self.rule = Arc::clone(rule);
    }

    /// Goes on from a generation that a holder has heard of. It was lost here, and with it what it voided.
    pub(super) fn hear(&mut self, heard: u64) {
        self.generation = self.generation.max(heard);
    }

    /// Voids every lease.
    pub(super) fn fence(&mut self, now_ms: u64) {
        self.generation = now_ms.max(self.generation + 1);
    }

    pub(super) fn wid(&self, now_ms: u64) -> u64 {
        self.meter.wid(&self.rule, now_ms)
    }

    pub(super) fn park(&self, now_ms: u64) -> Option<(u64, Why)> {
        let release = self.release.as_deref()?;
        (now_ms < release.park_until_ms).then(|| (release.park_until_ms - now_ms, release.why))
    }

    pub(super) fn alpha_milli(&self) -> u16 {
        self.release.as_deref().map_or(ALPHA_WHOLE, |release| release.alpha_milli)
    }

    /// What may be granted at most at once: the rule's, or what the provider told.
    pub(super) fn cap(&self) -> u32 {
        let cap = match self.rule.kind {
            Kind::Bucket { burst, .. } => burst,
            Kind::Concurrency => {
                let paced = u64::from(self.rule.cap) * u64::from(self.alpha_milli()) / u64::from(ALPHA_WHOLE);
                u32::try_from(paced.max(1)).unwrap_or(self.rule.cap)
            }
            Kind::Fixed { .. } | Kind::Anchored { .. } | Kind::Calendar { .. } | Kind::Sliding { .. } => self.rule.cap,
        };
        self.limit_seen.map_or(cap, |(seen, _)| cap.min(seen))
    }

    /// The slots that everybody else holds.
    fn held_by_others(&self, lessee: &Lessee) -> u64 {
        let others = self.entries.iter().filter(|entry| !is_of(entry, lessee));
        others.map(|entry| u64::from(entry.units)).sum()
    }

    pub(super) fn used(&self) -> u64 {
        match self.meter {
            Meter::Held => self.entries.iter().map(|entry| u64::from(entry.units)).sum(),
            Meter::Window(_) | Meter::Slots(_) | Meter::Debt(_) => self.meter.used(),
        }
    }

    /// What of a lease's unspent units is credited when they are counted anew.
    pub(super) fn creditable(&self, lessee: &Lessee, unspent: u32, now_ms: u64) -> Credit {
        let none = Credit::default();
        let Some(entry) = self.entry(lessee) else { return none };
        let is_it = !entry.is_closed && entry.generation == self.generation && unspent <= entry.units;
        let is_in_window = self.meter.is_continuous() || entry.tally.wid == self.wid(now_ms);
        let is_bounded = entry.credited + u64::from(unspent) <= entry.tally.units;
        if is_it && is_in_window && is_bounded { Credit { units: unspent, granted_ms: entry.granted_ms } } else { none }
    }

    /// What this ask may have now. Nothing is changed.
    pub(super) fn plan(&self, asked: Asked<'_>, now_ms: u64) -> Result<Plan, No> {
        if asked.least > burst(&self.rule) {
            return Err(No { retry_ms: self.rule.window_ms(), why: Denial::OverCap });
        }
        if self.rule.is_rate() { self.plan_rate(asked, now_ms) } else { self.plan_slots(asked, now_ms) }
    }

    fn plan_rate(&self, asked: Asked<'_>, now_ms: u64) -> Result<Plan, No> {
        let cap = self.cap();
        let credit = self.creditable(asked.lessee, asked.unspent, now_ms);
        let (room, ttl_ms) = match self.meter.room(&self.rule, cap, credit, now_ms) {
            Room::Units { units, ttl_ms } => (to_u32(units), to_u32(ttl_ms)),
            Room::Shut { retry_ms } => return Err(No { retry_ms, why: Denial::Guard }),
            Room::NoWindow => return Err(No { retry_ms: self.rule.window_ms(), why: Denial::NoWindow }),
        };
        let needed = asked.least.max(credit.units).max(u32::from(asked.most > 0));
        if room < needed {
            let retry_ms = self.meter.retry_ms(&self.rule, cap, needed - credit.units.min(needed), now_ms);
            return Err(No { retry_ms, why: Denial::Exhausted });
        }
        // What is counted anew was paced and shared when it was granted first.
        let fresh = needed - credit.units;
        let mut most = asked.most.min(room);
        let block = self.block(Meter::whole(&self.rule, cap), asked.lessee.holder, now_ms);
        most = most.min(block.max(needed));
        if let Some(release) = self.release.as_deref() {
            let paced = release.room(now_ms, fresh);
            if paced < fresh {
                return Err(No { retry_ms: release.paced_until_ms - now_ms, why: Denial::Paced });
            }
            most = most.min(credit.units + paced);
        }
        if asked.class == Class::Bulk {
            let left = room.saturating_sub(self.reserve(now_ms));
            if left < needed && fresh > 0 {
                let retry_ms = self.meter.retry_ms(&self.rule, cap, needed, now_ms).min(1_000);
                return Err(No { retry_ms, why: Denial::Reserved });
            }
            most = most.min(left.max(needed));
        }
        if let Some(shares) = self.shares.as_deref()
            && let Some(left_milli) = shares.left_milli(&asked.lessee.tenant, asked.class, now_ms)
        {
            if left_milli == 0 && fresh > 0 {
                return Err(No { retry_ms: shares.retry_ms(&asked.lessee.tenant, now_ms), why: Denial::Share });
            }
            most = most.min((credit.units + to_u32(left_milli.div_ceil(1_000))).max(needed));
        }
        Ok(Plan { units: most.max(needed), credit: credit.units, ttl_ms })
    }

    fn plan_slots(&self, asked: Asked<'_>, now_ms: u64) -> Result<Plan, No> {
        let cap = self.cap();
        let free = to_u32(u64::from(cap).saturating_sub(self.held_by_others(asked.lessee)));
        let step = self.block(cap, asked.lessee.holder, now_ms);
        let mut most = asked.most.min(free).min(asked.unspent.saturating_add(step).max(asked.least));
        let retry_ms = self.meter.retry_ms(&self.rule, cap, asked.least, now_ms);
        if most < asked.least {
            return Err(No { retry_ms, why: Denial::Exhausted });
        }
        if asked.class == Class::Bulk {
            let left = free.saturating_sub(self.reserve(now_ms));
            if left < asked.least && asked.least > asked.unspent {
                return Err(No { retry_ms, why: Denial::Reserved });
            }
            most = most.min(left.max(asked.least));
        }
        if let Some(share) = self.slots_of(&asked.lessee.tenant, asked.lessee) {
            if share < asked.least && asked.least > asked.unspent {
                return Err(No { retry_ms, why: Denial::Share });
            }
            most = most.min(share.max(asked.unspent.min(asked.least)));
        }
        Ok(Plan { units: most.max(asked.unspent), credit: 0, ttl_ms: self.rule.lease_ms })
    }

    /// Slots that a lessee may use of its tenant's fair share, where there is one.
    pub(super) fn slots_of(&self, tenant: &Name, lessee: &Lessee) -> Option<u32> {
        let shares = self.shares.as_deref()?;
        let lambda_milli = shares.level_of(tenant)?;
        let elsewhere = self.entries.iter().filter(|entry| entry.tenant == *tenant && !is_of(entry, lessee));
        let elsewhere = elsewhere.map(|entry| u64::from(entry.units)).sum::<u64>();
        Some(to_u32((lambda_milli / 1_000).max(1).saturating_sub(elsewhere)))
    }

    /// Units that are kept for interactive calls of a bucket that has seen one lately.
    fn reserve(&self, now_ms: u64) -> u32 {
        // An application's bucket keeps them inside each tenant's share.
        let is_wanted = match self.level {
            Level::App => false,
            Level::Connection | Level::Region | Level::Source => {
                self.interactive_ms > 0 && self.interactive_ms + self.rule.window_ms().clamp(1_000, 60_000) > now_ms
            }
        };
        if !is_wanted {
            return 0;
        }
        let whole = u64::from(Meter::whole(&self.rule, self.cap())) * RESERVE_PERCENT / 100;
        // Towards the end of a window it is not kept for what no longer comes.
        let left = self.meter.window().map(|window| window.opening(&self.rule)).map_or(whole, |(open_ms, close_ms)| {
            part(whole, close_ms.saturating_sub(now_ms), close_ms.saturating_sub(open_ms)).min(whole)
        });
        to_u32(left)
    }

    /// What a tenant's share is in this bucket's units.
    pub(super) fn worth(&self, share: Share) -> Worth {
        let rate_milli = match self.rule.kind {
            Kind::Concurrency => u64::from(self.rule.cap) * 1_000,
            Kind::Fixed { .. }
            | Kind::Anchored { .. }
            | Kind::Calendar { .. }
            | Kind::Sliding { .. }
            | Kind::Bucket { .. } => part(u64::from(self.rule.cap), 1_000_000, self.rule.window_ms()),
        };
        let permille = |part_of| part(rate_milli, u64::from(part_of), 1_000);
        let ceiling_milli = (share.ceiling_permille < 1_000).then(|| permille(share.ceiling_permille).max(1));
        Worth { weight: share.weight, floor_milli: permille(share.floor_permille), ceiling_milli }
    }

    /// Whether an ask of this bucket is shared out fairly.
    pub(super) fn is_shared(&self) -> bool {
        self.level == Level::App
    }

    /// Length of the slots in which shares are taken: a tenth of the window, a second at most.
    pub(super) fn share_slot_ms(&self) -> u64 {
        (self.rule.window_ms() / 10).clamp(10, 1_000)
    }

    /// Thousandths of a unit that this slot may grant: what the rate refills, and what was left of before.
    pub(super) fn capacity_milli(&self, unclaimed_milli: u64, now_ms: u64) -> u64 {
        let cap = self.cap();
        let Room::Units { units: room, .. } = self.meter.room(&self.rule, cap, Credit::default(), now_ms) else {
            return 0;
        };
        let (room_milli, slot) = (room * 1_000, self.share_slot_ms());
        let capacity = match self.rule.kind {
            Kind::Fixed { .. } | Kind::Calendar { .. } => {
                let Some((open_ms, close_ms)) = self.meter.window().map(|window| window.opening(&self.rule)) else {
                    return 0;
                };
                let left_ms = close_ms.saturating_sub(now_ms).max(1);
                let after_ms = left_ms.saturating_sub(slot);
                // What is above the straight line from all to nothing was not asked for in time, and is free now.
                let planned = part(u64::from(cap) * 1_000, after_ms, (close_ms - open_ms).max(1));
                let even = room_milli.saturating_sub(planned).max(part(room_milli, slot.min(left_ms), left_ms));
                even.max(self.ahead_milli(room_milli, planned))
            }
            Kind::Anchored { window_ms, .. } | Kind::Sliding { window_ms, .. } => {
                let whole_ms = window_ms + slot_ms(&self.rule) + super::meter::late_ms(&self.rule);
                let even = part(u64::from(cap) * 1_000, slot, whole_ms);
                // All of the room at once would leave the rest of the window without: it refills only as that ends. What
                // the last slot left is this one's.
                let ahead = self.ahead_milli(room_milli, u64::from(cap) * 1_000);
                room_milli.min((even + unclaimed_milli.min(even)).max(ahead))
            }
            Kind::Bucket { window_ms, .. } => {
                // What has gathered is shared out by halves: were all of it this slot's, who comes first would have it.
                let refill = part(u64::from(self.rule.cap) * 1_000, slot, window_ms);
                refill + room_milli.saturating_sub(refill) / 2
            }
            Kind::Concurrency => u64::from(cap) * slot,
        };
        part(capacity, u64::from(self.alpha_milli()), u64::from(ALPHA_WHOLE))
    }

    /// A limit of an hour or a day says nothing of a second: a quarter of what is planned for later may be had early, an
    /// eighth of that in each slot. The rest is for whoever comes later. In shorter windows the wait is short, and who
    /// comes early would take it from those who ask evenly.
    fn ahead_milli(&self, room_milli: u64, planned_milli: u64) -> u64 {
        if self.rule.window_ms() < LONG_WINDOW_MS {
            return 0;
        }
        room_milli.saturating_sub(planned_milli / 4 * 3) / 8
    }

    /// How large one block may be: what a crash forfeits.
    fn block(&self, whole: u32, holder: HolderId, now_ms: u64) -> u32 {
        (block_of(whole) / self.holders(holder, now_ms)).max(1)
    }

    /// How many holders have had leases that would not be over yet, this one counted. What was given back is not looked
    /// at: a store that keeps one time per holder counts the same.
    fn holders(&self, holder: HolderId, now_ms: u64) -> u32 {
        let live = self.entries.iter().filter(|entry| now_ms < entry.ends_ms()).map(|entry| entry.holder);
        let holders: HashSet<HolderId> = live.chain([holder]).collect();
        to_u32(holders.len() as u64)
    }

    pub(super) fn entry(&self, lessee: &Lessee) -> Option<&Entry> {
        self.entries.binary_search_by(|entry| order(entry, lessee)).ok().map(|at| &self.entries[at])
    }

    /// The lessee's entry, made where there is none; none where there are too many.
    pub(super) fn entry_mut(&mut self, lessee: &Lessee) -> Option<&mut Entry> {
        let at = match self.entries.binary_search_by(|entry| order(entry, lessee)) {
            Ok(at) => at,
            Err(_) if self.entries.len() >= LESSEES_MAX => return None,
            Err(at) => {
                self.entries.insert(at, Entry::new(lessee));
                at
            }
        };
        self.entries.get_mut(at)
    }

    /// A moment before which [`Self::forget`] does not say that there is nothing to remember.
    pub(super) fn due_ms(&self) -> u64 {
        let told_ms = self.meter.window().filter(|_| !self.entries.is_empty()).map_or(0, |window| window.end_ms);
        told_ms.max(self.touched_ms + FENCE_MS)
    }

    /// Forgets lessees of whom nothing matters any more; whether there is nothing else to remember either.
    pub(super) fn forget(&mut self, now_ms: u64) -> bool {
        self.advance(None, now_ms);
        let (wid, continuous) = (self.wid(now_ms), self.meter.is_continuous());
        let is_rate = self.rule.is_rate();
        self.entries.retain(|entry| {
            let is_told = is_rate && entry.tally.units > 0 && entry.tally.wid + u64::from(continuous) >= wid;
            is_told || entry.ends_ms() + FENCE_MS > now_ms
        });
        if self.shares.as_deref().is_some_and(|shares| shares.is_quiet(now_ms)) {
            self.shares = None;
        }
        let is_blank = self.meter.is_blank(now_ms) && self.release.is_none() && self.limit_seen.is_none();
        is_blank && self.entries.is_empty() && self.shares.is_none() && self.touched_ms + FENCE_MS <= now_ms
    }
}

/// What one block may be of a limit, before it is divided among holders.
fn block_of(whole: u32) -> u32 {
    to_u32(part(u64::from(whole), BLOCK_PERCENT, 100))
}

/// `of · over / under`, without overflow.
fn part(of: u64, over: u64, under: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(over) / u128::from(under.max(1))).unwrap_or(u64::MAX)
}

/// What a bucket has when nothing of it is used.
pub(super) fn burst(rule: &Rule) -> u32 {
    match rule.kind {
        Kind::Bucket { burst, .. } => burst,
        Kind::Fixed { .. }
        | Kind::Anchored { .. }
        | Kind::Calendar { .. }
        | Kind::Sliding { .. }
        | Kind::Concurrency => rule.cap,
    }
}

/// Whether what was counted by the one kind can go on to be counted by the other.
fn same_meter(one: Kind, other: Kind) -> bool {
    let meter = |kind| match kind {
        Kind::Fixed { .. } | Kind::Calendar { .. } => 0,
        Kind::Anchored { .. } | Kind::Sliding { .. } => 1,
        Kind::Bucket { .. } => 2,
        Kind::Concurrency => 3,
    };
    meter(one) == meter(other)
}

fn order(entry: &Entry, lessee: &Lessee) -> std::cmp::Ordering {
    (entry.holder, &entry.tenant).cmp(&(lessee.holder, &lessee.tenant))
}

fn is_of(entry: &Entry, lessee: &Lessee) -> bool {
    order(entry, lessee).is_eq()
}

pub(super) fn to_u32(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
