//! A fleet of holders that keep to the contract, a network that does not keep to anything, and a provider that counts.

use std::collections::{BTreeMap, VecDeque};

use super::super::entry::Entry;
use super::super::meter::Meter;
use super::*;
use crate::quota::answer::Lease;
use crate::quota::op::{GiveBack, Penalise, Renew, Slots, Unspent, Why};

/// What happens to an operation on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    Twice,
    ReplyLost,
    RequestLost,
    LateMs(u64),
}

/// Units of one bucket that a lessee has.
#[derive(Debug, Clone, Default)]
struct Held {
    seq: u64,
    /// Of the lease, not of what was asked since.
    lease_seq: u64,
    units: u32,
    /// Of concurrency: how many may be in use.
    usable: u32,
    generation: u64,
    wid: u64,
    expires_ms: u64,
    tally: Tally,
    /// Highest that any answer told.
    heard: u64,
    /// Spent since the pending acquire was sent.
    spent_since: u32,
    /// When calls that are in flight end: of concurrency.
    calls: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Message {
    op: Op,
    sent_ms: u64,
    lessee: usize,
}

#[derive(Debug)]
struct Member {
    lessee: Lessee,
    held: Vec<Held>,
    pending: Option<(Op, u64)>,
}

/// The state of the centre before an operation, and what only a test knows.
#[derive(Debug, Clone)]
struct Past {
    core: Core,
    parks: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Fleet {
    core: Core,
    past: VecDeque<Past>,
    pub(super) now_ms: u64,
    pub(super) buckets: Vec<Metered>,
    members: Vec<Member>,
    late: BTreeMap<(u64, u64), Message>,
    messages: u64,
    parks: Vec<u64>,
    epoch: u64,
    report_by_ms: Option<u64>,
    /// What the provider saw, by bucket: when, and how much; of concurrency when it ended.
    pub(super) arrivals: Vec<Vec<(u64, u64)>>,
    /// What holders that died, or a failover's dead, may have spent that no centre knows of.
    pub(super) forgotten: u64,
    next_holder: u128,
    behind_ms: u64,
}

/// How far back a failover may go, in operations.
const PAST_MAX: usize = 12;

impl Fleet {
    pub(super) fn new(buckets: Vec<Metered>, holders: usize, tenants: usize) -> Self {
        let lessees = (0..holders).flat_map(|holder| (0..tenants).map(move |tenant| (holder, tenant)));
        let members = lessees.map(|(holder, tenant)| Member {
            lessee: lessee(holder as u128 + 1, &format!("t{tenant}")),
            held: vec![Held::default(); buckets.len()],
            pending: None,
        });
        Self {
            core: core(),
            past: VecDeque::new(),
            now_ms: START_MS,
            members: members.collect(),
            late: BTreeMap::new(),
            messages: 0,
            parks: vec![0; buckets.len()],
            epoch: 1,
            report_by_ms: None,
            arrivals: vec![Vec::new(); buckets.len()],
            forgotten: 0,
            next_holder: 1_000,
            behind_ms: 0,
            buckets,
        }
    }

    /// Time passes; what is late arrives, and what has to be told after a failover is told as late as it may be.
    pub(super) fn tick(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        loop {
            let late = self.late.first_key_value().map(|(&(at_ms, _), _)| at_ms).filter(|&at_ms| at_ms <= until_ms);
            let report = self.report_by_ms.filter(|&at_ms| at_ms <= until_ms);
            match (late, report) {
                (_, Some(at_ms)) if late.is_none_or(|late_ms| at_ms <= late_ms) => {
                    self.now_ms = self.now_ms.max(at_ms);
                    self.report_by_ms = None;
                    (0..self.members.len()).for_each(|member| self.report(member));
                }
                (Some(at_ms), _) => {
                    self.now_ms = self.now_ms.max(at_ms);
                    let (_, message) = self.late.pop_first().unwrap();
                    self.deliver(&message, true);
                }
                _ => break,
            }
        }
        self.now_ms = until_ms;
    }

    /// Asks for units of these buckets, or again for what is still unanswered.
    pub(super) fn ask(&mut self, member: usize, buckets: &[usize], want: u32, least: u32, fate: Fate) {
        let now_ms = self.now_ms;
        let lease_ms = self.buckets.iter().map(|bucket| u64::from(bucket.rule.lease_ms)).max().unwrap();
        let who = &mut self.members[member];
        let op = match who.pending.clone() {
            Some((op, asked_ms)) if asked_ms + lease_ms > now_ms => op,
            _ => {
                let legs = buckets.iter().map(|&at| who.held[at].leg(&self.buckets[at], now_ms, want, least));
                let op = acquire(who.lessee.clone(), legs.collect());
                for &at in buckets {
                    who.held[at].seq += 1;
                    who.held[at].spent_since = 0;
                }
                who.pending = Some((op.clone(), now_ms));
                op
            }
        };
        self.send(member, op, fate);
    }

    /// One call: a unit of each of these buckets, if the lessee has them all. It arrives within the guard.
    pub(super) fn call(&mut self, member: usize, buckets: &[usize], latency_ms: u64, lasts_ms: u64) {
        let now_ms = self.now_ms;
        let may = |at: usize| {
            let (held, rule) = (&self.members[member].held[at], &self.buckets[at].rule);
            let usable = held.units.min(held.usable);
            let has_room = if rule.is_rate() { held.units > 0 } else { held.in_use(now_ms) < usable };
            // A call does not outlive the slot that it has.
            let ends_ms = if rule.is_rate() { now_ms } else { now_ms + latency_ms + lasts_ms };
            has_room && ends_ms < held.expires_ms && held.generation >= held.heard
        };
        if !buckets.iter().all(|&at| may(at)) {
            return;
        }
        for &at in buckets {
            let rule = &self.buckets[at].rule;
            let arrives_ms = now_ms + latency_ms.min(u64::from(rule.guard_ms).saturating_sub(1));
            let held = &mut self.members[member].held[at];
            if rule.is_rate() {
                held.units -= 1;
                held.spent_since += 1;
                self.arrivals[at].push((arrives_ms, arrives_ms));
            } else {
                held.calls.push(now_ms + latency_ms + lasts_ms);
                self.arrivals[at].push((arrives_ms, now_ms + latency_ms + lasts_ms));
            }
        }
    }

    pub(super) fn give_back(&mut self, member: usize, at: usize, units: u32, fate: Fate) {
        let who = &mut self.members[member];
        let held = &mut who.held[at];
        let is_rate = self.buckets[at].rule.is_rate();
        let free = if is_rate { held.units } else { held.units.saturating_sub(held.in_use(self.now_ms)) };
        let units = units.min(free);
        if units == 0 || who.pending.is_some() {
            return;
        }
        held.units -= units;
        let unspent = Unspent {
            key: Arc::clone(&self.buckets[at].key),
            seq: held.lease_seq,
            generation: held.generation,
            wid: held.wid,
            units,
        };
        let back = GiveBack { lessee: who.lessee.clone(), legs: vec![unspent] };
        self.send(member, Op { application: application(), body: Body::GiveBack(back) }, fate);
    }

    pub(super) fn renew(&mut self, member: usize, at: usize, fate: Fate) {
        let who = &mut self.members[member];
        if self.buckets[at].rule.is_rate() || who.pending.is_some() {
            return;
        }
        let held = &mut who.held[at];
        held.seq += 1;
        held.units = held.held_slots(self.now_ms);
        let slots = Slots { bucket: self.buckets[at].clone(), seq: held.seq, held: held.units, heard: held.heard };
        let renew = Renew { lessee: who.lessee.clone(), legs: vec![slots] };
        self.send(member, Op { application: application(), body: Body::Renew(renew) }, fate);
    }

    pub(super) fn penalise(&mut self, at: usize, delta_ms: u64, generation: Option<u64>, fate: Fate) {
        let penalise = Penalise { bucket: self.buckets[at].clone(), delta_ms, generation, why: Why::Provider };
        self.send(0, Op { application: application(), body: Body::Penalise(penalise) }, fate);
    }

    /// A process dies and another one starts. Its calls are over when its slots are.
    pub(super) fn crash(&mut self, member: usize) {
        let holder = self.members[member].lessee.holder;
        self.next_holder += 1;
        for who in self.members.iter_mut().filter(|who| who.lessee.holder == holder) {
            for (held, bucket) in who.held.iter().zip(&self.buckets) {
                if bucket.rule.is_rate() {
                    self.forgotten += held.tally.units + held.tally.before;
                }
            }
            who.lessee.holder = HolderId(self.next_holder);
            who.held.iter_mut().for_each(|held| *held = Held::default());
            who.pending = None;
        }
    }

    /// A replica takes over that has not heard of the newest operations.
    pub(super) fn fail_over(&mut self, lost: usize) {
        let lost = lost.min(self.past.len());
        if lost > 0 {
            let past = self.past[self.past.len() - lost].clone();
            (self.core, self.parks) = (past.core, past.parks);
        }
        self.past.clear();
        self.epoch += 1;
        let since_ms = self.core.now_ms().max(self.now_ms - self.behind_ms);
        self.core.begin(Epoch { id: self.epoch, since_ms, memory: Memory::LostSuffix });
        let lease_ms = self.buckets.iter().map(|bucket| u64::from(bucket.rule.lease_ms)).min().unwrap();
        self.report_by_ms = Some(self.now_ms + lease_ms - 1);
    }

    /// Packs and forgets what nobody uses.
    pub(super) fn sweep(&mut self) {
        let mut cursor = SweepCursor::default();
        self.core.sweep(self.now_ms.saturating_sub(self.behind_ms), &mut cursor, 100);
    }

    /// The centre's clock goes back, and stays behind from then on.
    pub(super) fn step_back(&mut self, ms: u64) {
        self.behind_ms += ms;
    }

    fn report(&mut self, member: usize) {
        let now_ms = self.now_ms;
        let who = &mut self.members[member];
        who.pending = None;
        for at in 0..self.buckets.len() {
            let who = &mut self.members[member];
            let mut leg = who.held[at].leg(&self.buckets[at], now_ms, 0, 0);
            leg.want = leg.unspent;
            let op = acquire(who.lessee.clone(), vec![leg]);
            who.held[at].seq += 1;
            self.deliver(&Message { op, sent_ms: now_ms, lessee: member }, false);
            if !self.buckets[at].rule.is_rate() {
                self.renew(member, at, Fate::Answered);
            }
        }
    }

    fn send(&mut self, member: usize, op: Op, fate: Fate) {
        let message = Message { op, sent_ms: self.now_ms, lessee: member };
        match fate {
            Fate::Answered => self.deliver(&message, true),
            Fate::Twice => {
                self.deliver(&message, true);
                self.deliver(&message, true);
            }
            Fate::ReplyLost => self.deliver(&message, false),
            Fate::RequestLost => {}
            Fate::LateMs(ms) => {
                self.messages += 1;
                self.late.insert((self.now_ms + ms, self.messages), message);
            }
        }
    }

    fn deliver(&mut self, message: &Message, is_heard: bool) {
        self.past.push_back(Past { core: self.core.clone(), parks: self.parks.clone() });
        if self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
        let before = self.core.clone();
        let answer = self.core.step(self.now_ms - self.behind_ms, &message.op).answer;
        self.check(&before, &message.op, &answer);
        if let (Body::Penalise(penalise), Answer::ParkedFor { ms, .. }) = (&message.op.body, &answer) {
            let at = self.at(&penalise.bucket.key);
            let core_ms = self.core.now_ms();
            let until_ms = self.parks[at].max(core_ms + penalise.delta_ms);
            assert_eq!(core_ms + ms, until_ms, "parks merge by the later");
            self.parks[at] = until_ms;
        }
        if is_heard {
            self.hear(message, &answer);
        }
    }

    fn hear(&mut self, message: &Message, answer: &Answer) {
        let keys: Vec<_> = match &message.op.body {
            Body::Acquire(acquire) => acquire.legs.iter().map(|leg| (Arc::clone(&leg.bucket.key), leg.seq)).collect(),
            Body::Renew(renew) => renew.legs.iter().map(|leg| (Arc::clone(&leg.bucket.key), leg.seq)).collect(),
            _ => return,
        };
        let who = &mut self.members[message.lessee];
        let is_pending = who.pending.as_ref().is_some_and(|(op, _)| *op == message.op);
        let is_renewal = matches!(message.op.body, Body::Renew(_));
        if is_pending {
            who.pending = None;
        }
        let (Answer::Granted(leases) | Answer::Replayed(leases) | Answer::Renewed(leases)) = answer else { return };
        if !is_pending && !is_renewal {
            return;
        }
        let is_of_who = match &message.op.body {
            Body::Acquire(acquire) => acquire.lessee == who.lessee,
            Body::Renew(renew) => renew.lessee == who.lessee,
            _ => false,
        };
        if !is_of_who {
            return;
        }
        let ats: Vec<_> = keys.iter().map(|(key, seq)| (self.at(key), *seq)).collect();
        for ((at, seq), lease) in ats.into_iter().zip(leases) {
            let is_rate = self.buckets[at].rule.is_rate();
            self.members[message.lessee].held[at].take(seq, lease, message.sent_ms, is_rate, is_renewal);
        }
    }

    fn at(&self, key: &BucketKey) -> usize {
        self.buckets.iter().position(|bucket| *bucket.key == *key).unwrap()
    }

    fn check(&self, before: &Core, op: &Op, answer: &Answer) {
        assert!(!matches!(answer, Answer::Malformed(_)), "{answer:?} to {op:?}");
        if let (Body::Acquire(acquire), Answer::Granted(_)) = (&op.body, answer) {
            for leg in &acquire.legs {
                let park_ms = self.parks[self.at(&leg.bucket.key)];
                assert!(self.core.now_ms() >= park_ms, "granted before a park ends");
            }
        }
        for at in 0..self.buckets.len() {
            self.check_bucket(before, answer, at);
        }
    }

    fn check_bucket(&self, before: &Core, answer: &Answer, at: usize) {
        let (now_ms, application) = (self.core.now_ms, application());
        let key = Arc::clone(&self.buckets[at].key);
        let state = |core: &Core| {
            let mut core = core.clone();
            core.now_ms = now_ms;
            core.known_bucket(&application, &key).map(|bucket| bucket.clone())
        };
        let (old, Some(new)) = (state(before), state(&self.core)) else { return };
        let rule = &self.buckets[at].rule;
        let granted: u64 = match new.meter {
            Meter::Window(_) => new.entries.iter().filter(|entry| entry.tally.wid == new.wid(now_ms)).map(net).sum(),
            Meter::Slots(_) | Meter::Debt(_) | Meter::Held => 0,
        };
        if let Meter::Window(window) = new.meter {
            assert!(window.used >= granted, "{} used, {granted} granted and not given back", window.used);
            let is_healed = self.epoch > 1;
            assert!(is_healed || window.used == granted, "{} used, {granted} granted", window.used);
        }
        let most = match rule.kind {
            Kind::Bucket { burst, .. } => burst,
            _ => rule.cap,
        };
        let is_within = new.used() <= u64::from(most) || self.epoch > 1;
        assert!(is_within, "{} used of {most}", new.used());
        for entry in &new.entries {
            assert!(entry.credited <= entry.tally.units + entry.tally.before, "more credited than granted: {entry:?}");
        }
        let Some(old) = old else { return };
        assert!(new.generation >= old.generation && new.rule.cfgver >= old.rule.cfgver);
        for entry in &old.entries {
            let later = new.entries.iter().find(|other| (other.holder, &other.tenant) == (entry.holder, &entry.tenant));
            assert!(later.is_some_and(|later| later.seq >= entry.seq), "a seq fell");
        }
        // All or none: what is refused has taken nothing anywhere.
        let is_refusal = matches!(
            answer,
            Answer::Denied { .. } | Answer::Stale { .. } | Answer::Parked { .. } | Answer::Replayed(_)
        );
        if is_refusal && self.epoch == 1 {
            assert_eq!(new.meter, old.meter, "{answer:?} took something");
            for entry in &old.entries {
                assert!(new.entries.contains(entry), "{answer:?} changed a lease");
            }
        }
    }
}

fn net(entry: &Entry) -> u64 {
    entry.tally.units - entry.credited.min(entry.tally.units)
}

impl Held {
    fn leg(&self, bucket: &Metered, now_ms: u64, want: u32, least: u32) -> Leg {
        let is_rate = bucket.rule.is_rate();
        let is_live = self.expires_ms > now_ms && self.generation >= self.heard;
        let unspent = match is_rate {
            true if is_live => self.units,
            true => 0,
            false => self.held_slots(now_ms),
        };
        let mut leg = leg(bucket, self.seq + 1, least, want.max(unspent));
        (leg.unspent, leg.tally, leg.heard) = (unspent, self.tally, self.heard);
        leg
    }

    fn in_use(&self, now_ms: u64) -> u32 {
        u32::try_from(self.calls.iter().filter(|&&ends_ms| ends_ms > now_ms).count()).unwrap()
    }

    /// Slots that calls run in, and others that may still be used.
    fn held_slots(&self, now_ms: u64) -> u32 {
        let kept = if self.expires_ms > now_ms { self.units.min(self.usable) } else { 0 };
        self.in_use(now_ms).max(kept)
    }

    fn take(&mut self, seq: u64, lease: &Lease, sent_ms: u64, is_rate: bool, is_renewal: bool) {
        assert!(lease.generation >= self.heard, "a generation fell: {} after {}", lease.generation, self.heard);
        self.heard = lease.generation;
        if seq <= self.lease_seq {
            return;
        }
        self.lease_seq = seq;
        let spent = if is_rate { self.spent_since } else { 0 };
        self.units = if is_renewal { self.units } else { lease.units.saturating_sub(spent) };
        self.usable = lease.units;
        (self.generation, self.wid, self.tally) = (lease.generation, lease.tally.wid, lease.tally);
        self.expires_ms = sent_ms + u64::from(lease.ttl_ms);
        self.spent_since = 0;
    }
}
