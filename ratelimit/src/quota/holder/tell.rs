//! What the centre has to be told: penalties, units that come back, what headers say, what calls really cost.
//!
//! None of it is waited for by a call. Penalties are told until the centre has them; the rest is tried a few times, and
//! its loss is on the safe side: units that are not given back count as spent. What is said often is put together, by
//! bucket: of a moment's observations the lowest, of settlements the sum.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::quota::answer::{Answer, AskError, Reply};
use crate::quota::key::{Application, BucketKey};
use crate::quota::op::{Body, Lessee, Metered, Observe, Op, Penalise, Settle, Why};
use crate::quota::rule::{CAP_MAX, Rule};

use super::bucket::Bucket;
use super::counters::{Counters, add};
use super::leases::{Common, Sending, Ticket};
use super::route::{Route, Station};

/// Most things that are remembered to be told. Beyond them observations and settlements are dropped; penalties and
/// units that come back are not, of which there are no more than buckets and leases.
const PENDING_MAX: usize = 16_384;
/// Operations that one tick begins.
const BATCH: usize = 256;
/// A bucket is observed once in so many responses, if that is not more often than each second.
const OBSERVED_CALLS: u32 = 100;
const OBSERVED_MS: u64 = 1_000;
/// However few responses there are, after so long.
const OBSERVED_MS_MAX: u64 = 10_000;
/// Soon, where little is left.
const URGENT_MS: u64 = 250;
/// Settlements are put together for so long.
const SETTLED_MS: u64 = 1_000;
/// How soon something is told again that nobody answered; doubled each time.
const AGAIN_MS: u64 = 50;
const AGAIN_MS_MAX: u64 = 5_000;
/// How often what is not a penalty is tried.
const ATTEMPTS: u32 = 3;
/// A debt is tried for longer: it is what others would spend.
const DEBT_ATTEMPTS: u32 = 20;

/// What a response's headers say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub limit: Option<u32>,
    pub remaining: Option<u32>,
    /// Until the provider's window ends.
    pub reset_ms: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Tell {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// When each is to be told; what is under way stands in `told` alone.
    due: BTreeSet<(u64, u64)>,
    told: HashMap<u64, Told>,
    /// By the bucket's mark.
    penalties: HashMap<u64, u64>,
    watches: HashMap<u64, Watch>,
    /// By the lease's hash and window.
    settlements: HashMap<(u64, u64), u64>,
}

#[derive(Debug)]
struct Told {
    what: What,
    attempts: u32,
}

#[derive(Debug)]
enum What {
    Penalty(Penalty),
    GiveBack(Arc<Op>),
    Observe(Arc<Op>),
    /// A look at a bucket that is observed.
    Watch(u64),
    /// Still put together; once it is sent it stays as it is.
    Settle {
        settling: Settling,
        sent: Option<Arc<Op>>,
    },
}

#[derive(Debug)]
struct Penalty {
    bucket: Arc<Bucket>,
    rule: Arc<Rule>,
    until_ms: u64,
    generation: Option<u64>,
    why: Why,
    /// More was said since it was sent.
    is_more: bool,
}

#[derive(Debug)]
struct Watch {
    bucket: Arc<Bucket>,
    rule: Arc<Rule>,
    wid: u64,
    limit: Option<u32>,
    remaining: Option<u32>,
    reset: Option<(u64, u64)>,
    calls: u32,
    sent_ms: u64,
    /// What was told last of this window.
    told: Option<u32>,
}

#[derive(Debug)]
struct Settling {
    application: Application,
    tenant: crate::quota::name::Name,
    key: Arc<BucketKey>,
    wid: u64,
    since_ms: u64,
    estimate: u32,
    actual: u32,
}

impl Tell {
    pub(super) fn penalise(&self, station: &Station, generation: Option<u64>, until_ms: u64, why: Why, now_ms: u64) {
        let bucket = &station.bucket;
        bucket.is_penalised.store(true, Ordering::Relaxed);
        let mut state = self.state();
        if let Some(&id) = state.penalties.get(&bucket.mark)
            && let Some(Told { what: What::Penalty(penalty), .. }) = state.told.get_mut(&id)
        {
            penalty.until_ms = penalty.until_ms.max(until_ms);
            penalty.generation = penalty.generation.max(generation);
            penalty.is_more = true;
            return;
        }
        let (bucket, rule) = (Arc::clone(bucket), Arc::clone(&station.rule));
        let mark = bucket.mark;
        let penalty = Penalty { bucket, rule, until_ms, generation, why, is_more: false };
        let id = state.add(What::Penalty(penalty), now_ms);
        state.penalties.insert(mark, id);
    }

    pub(super) fn give_back(&self, op: Op, now_ms: u64) {
        self.state().add(What::GiveBack(Arc::new(op)), now_ms);
    }

    /// Whether there was room to remember it.
    pub(super) fn observe(&self, station: &Station, wid: u64, seen: Seen, now_ms: u64) -> bool {
        let mark = station.bucket.mark;
        let mut state = self.state();
        let is_new = !state.watches.contains_key(&mark);
        if is_new && state.watches.len() >= PENDING_MAX {
            return false;
        }
        let watch = state.watches.entry(mark).or_insert_with(|| Watch {
            bucket: Arc::clone(&station.bucket),
            rule: Arc::clone(&station.rule),
            wid,
            limit: None,
            remaining: None,
            reset: None,
            calls: 0,
            sent_ms: 0,
            told: None,
        });
        watch.see(wid, seen, now_ms);
        let due_ms = watch.due_ms(now_ms);
        if is_new {
            state.add(What::Watch(mark), now_ms + OBSERVED_MS_MAX);
        }
        if due_ms <= now_ms
            && let Some(op) = state.watches.get_mut(&mark).and_then(|watch| watch.op(now_ms))
        {
            state.add(What::Observe(Arc::new(op)), now_ms);
        }
        true
    }

    /// Counts what a call paid and what it really cost. Whether there was room to remember it.
    pub(super) fn settle(
        &self,
        route: &Route,
        leg: usize,
        wid: u64,
        since_ms: u64,
        cost: (u32, u32),
        now_ms: u64,
    ) -> bool {
        let Some(station) = route.0.legs.get(leg) else { return false };
        let (estimate, actual) = cost;
        let at = (station.hash, wid);
        let mut state = self.state();
        if let Some(&id) = state.settlements.get(&at)
            && let Some(Told { what: What::Settle { settling, sent: None }, .. }) = state.told.get_mut(&id)
            && settling.estimate.max(settling.actual) <= CAP_MAX - estimate.max(actual).min(CAP_MAX)
        {
            settling.since_ms = settling.since_ms.min(since_ms);
            settling.estimate += estimate;
            settling.actual += actual;
            return true;
        }
        if state.told.len() >= PENDING_MAX {
            return false;
        }
        let settling = Settling {
            application: station.bucket.app.name.clone(),
            tenant: route.0.party.tenant.clone(),
            key: Arc::clone(&station.bucket.key),
            wid,
            since_ms,
            estimate: estimate.min(CAP_MAX),
            actual: actual.min(CAP_MAX),
        };
        let id = state.add(What::Settle { settling, sent: None }, now_ms + SETTLED_MS);
        state.settlements.insert(at, id);
        true
    }

    /// Begins what is due.
    pub(super) fn tick(&self, common: &Common, now_ms: u64, sends: &mut Vec<Sending>) {
        let mut state = self.state();
        for _ in 0..BATCH {
            let Some(&(due_ms, id)) = state.due.first() else { break };
            if due_ms > now_ms {
                break;
            }
            state.due.pop_first();
            if let Some(op) = state.begin(common, id, now_ms) {
                add(&common.counters.operations, 1);
                sends.push(Sending { ticket: Ticket::Tell { id }, op });
            }
        }
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.state().due.first().map(|&(due_ms, _)| due_ms)
    }

    pub(super) fn answered(&self, counters: &Counters, id: u64, result: Result<Reply, AskError>, now_ms: u64) {
        let mut state = self.state();
        let Some(told) = state.told.get(&id) else { return };
        if let (What::Observe(_), Ok(Reply { answer: Answer::Done { units }, .. })) = (&told.what, &result)
            && *units > 0
        {
            // More than all that was granted, spent or not: others use this quota too, or we went over it.
            add(&counters.overshoots, 1);
            add(&counters.overshoot_units, u64::from(*units));
        }
        let again_ms = now_ms + (AGAIN_MS << told.attempts.min(10)).min(AGAIN_MS_MAX);
        let is_lost = result.is_err();
        let is_again = match (&told.what, result) {
            (What::Penalty(penalty), Ok(reply)) => {
                match reply.answer {
                    Answer::ParkedFor { ms, generation } => {
                        penalty.bucket.park_until(now_ms + ms, penalty.why);
                        penalty.bucket.hear(generation);
                        penalty.is_more
                    }
                    // There is no room for another bucket, for now.
                    Answer::Denied { .. } => true,
                    Answer::Granted(_)
                    | Answer::Replayed(_)
                    | Answer::Stale { .. }
                    | Answer::Parked { .. }
                    | Answer::Learning { .. }
                    | Answer::Renewed(_)
                    | Answer::Done { .. }
                    | Answer::NoBucket
                    | Answer::Malformed(_)
                    | Answer::Buckets(_) => false,
                }
            }
            (What::Penalty(_), Err(_)) => true,
            (What::Settle { settling, .. }, Err(_)) if settling.actual > settling.estimate => {
                told.attempts < DEBT_ATTEMPTS
            }
            (What::GiveBack(_) | What::Settle { .. }, Err(_)) => told.attempts < ATTEMPTS,
            (What::GiveBack(_) | What::Settle { .. } | What::Observe(_) | What::Watch(_), _) => false,
        };
        if !is_again {
            return state.remove(id);
        }
        let due_ms = if is_lost { again_ms } else { now_ms + AGAIN_MS };
        state.due.insert((due_ms, id));
    }

    /// Whether nothing is left that others should know.
    pub(super) fn is_empty(&self) -> bool {
        self.state().told.values().all(|told| matches!(told.what, What::Watch(_)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, what: What, due_ms: u64) -> u64 {
        self.next_id += 1;
        self.told.insert(self.next_id, Told { what, attempts: 0 });
        self.due.insert((due_ms, self.next_id));
        self.next_id
    }

    fn remove(&mut self, id: u64) {
        if let Some(Told { what: What::Penalty(penalty), .. }) = self.told.remove(&id) {
            self.penalties.remove(&penalty.bucket.mark);
            penalty.bucket.is_penalised.store(false, Ordering::Relaxed);
        }
    }

    /// The operation that is due, if there is one.
    fn begin(&mut self, common: &Common, id: u64, now_ms: u64) -> Option<Arc<Op>> {
        let is_gone = common.health.is_gone();
        let told = self.told.get_mut(&id)?;
        told.attempts += 1;
        match &mut told.what {
            What::Penalty(penalty) => {
                penalty.is_more = false;
                Some(Arc::new(penalty.op(now_ms)))
            }
            // Nobody would hear it in time.
            What::GiveBack(_) | What::Observe(_) if is_gone => {
                self.remove(id);
                None
            }
            What::GiveBack(op) | What::Observe(op) => Some(Arc::clone(op)),
            What::Settle { settling, sent } => {
                let op = sent.get_or_insert_with(|| Arc::new(settling.op(common, now_ms)));
                let op = Arc::clone(op);
                self.settlements.retain(|_, other| *other != id);
                Some(op)
            }
            &mut What::Watch(mark) => {
                let watch = self.watches.get_mut(&mark)?;
                if watch.calls == 0 {
                    self.watches.remove(&mark);
                    self.told.remove(&id);
                    return None;
                }
                let op = watch.op(now_ms);
                self.due.insert((now_ms + OBSERVED_MS_MAX, id));
                if let Some(op) = op {
                    self.add(What::Observe(Arc::new(op)), now_ms);
                }
                None
            }
        }
    }
}

impl Penalty {
    fn op(&self, now_ms: u64) -> Op {
        let bucket = Metered { key: Arc::clone(&self.bucket.key), rule: Arc::clone(&self.rule) };
        let delta_ms = self.until_ms.saturating_sub(now_ms);
        let penalise = Penalise { bucket, delta_ms, generation: self.generation, why: self.why };
        Op { application: self.bucket.app.name.clone(), body: Body::Penalise(penalise) }
    }
}

impl Settling {
    fn op(&self, common: &Common, now_ms: u64) -> Op {
        let settle = Settle {
            lessee: Lessee { holder: common.holder, tenant: self.tenant.clone() },
            key: Arc::clone(&self.key),
            seq: common.next_seq(),
            wid: self.wid,
            age_ms: now_ms.saturating_sub(self.since_ms),
            estimate: self.estimate,
            actual: self.actual,
        };
        Op { application: self.application.clone(), body: Body::Settle(settle) }
    }
}

impl Watch {
    fn see(&mut self, wid: u64, seen: Seen, now_ms: u64) {
        if wid < self.wid {
            return;
        }
        if wid > self.wid {
            (self.wid, self.limit, self.remaining, self.reset, self.told) = (wid, None, None, None, None);
        }
        self.calls = self.calls.saturating_add(1);
        self.limit = lowest(self.limit, seen.limit);
        self.remaining = lowest(self.remaining, seen.remaining);
        if let Some(reset_ms) = seen.reset_ms {
            self.reset = Some((reset_ms, now_ms));
        }
    }

    /// When what was seen is to be told.
    fn due_ms(&self, now_ms: u64) -> u64 {
        // Many say what is left, and not of how much.
        let limit = self.limit.unwrap_or(self.rule.cap);
        let is_little = match (self.remaining, self.told) {
            (Some(0), told) => told != Some(0),
            (Some(remaining), told) => remaining < limit / 10 && told.is_none_or(|told| remaining < told / 2),
            (None, _) => false,
        };
        if is_little {
            self.sent_ms + URGENT_MS
        } else if self.calls >= OBSERVED_CALLS {
            self.sent_ms + OBSERVED_MS
        } else {
            now_ms + OBSERVED_MS_MAX
        }
    }

    fn op(&mut self, now_ms: u64) -> Option<Op> {
        let reset_ms = self.reset.map(|(reset_ms, at_ms)| reset_ms.saturating_sub(now_ms.saturating_sub(at_ms)));
        let observe = Observe {
            bucket: Metered { key: Arc::clone(&self.bucket.key), rule: Arc::clone(&self.rule) },
            wid: self.wid,
            limit: self.limit.map(|limit| limit.min(CAP_MAX)),
            remaining: self.remaining.map(|remaining| remaining.min(CAP_MAX)),
            reset_ms,
        };
        let is_said = observe.limit.is_some() || observe.remaining.is_some() || reset_ms.is_some();
        self.told = self.remaining.or(self.told);
        (self.calls, self.sent_ms, self.limit, self.remaining, self.reset) = (0, now_ms, None, None, None);
        is_said.then(|| Op { application: self.bucket.app.name.clone(), body: Body::Observe(observe) })
    }
}

fn lowest(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
