//! What is set aside of each limit for the time in which the centre cannot be asked.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::quota::answer::Answer;
use crate::quota::core::{Core, Epoch, Memory, SweepCursor};
use crate::quota::name::HolderId;
use crate::quota::op::{Acquire, Body, GiveBack, LEGS_MAX, Leg, Lessee, Metered, Op, Tally, Unspent};
use crate::quota::rule::{Kind, Rule, RuleSpec};

use super::held::Term;
use super::queue::Call;
use super::settings::Degraded;

/// Buckets of which a part is counted here at a time. A call that needs a further one is parked.
const BUCKETS: usize = 100_000;
/// Buckets that one look at them goes through.
const SWEEP: usize = 256;
/// Both clocks are read in whole ms.
const ROUNDING_MS: u64 = 2;

/// A centre of this node alone, which counts this node's part of each limit: the same arithmetic, windows and guards as
/// the real one, on a smaller cap. What it granted stays counted when the real one is there again.
#[derive(Debug)]
pub(super) struct Reserve {
    degraded: Degraded,
    own: Mutex<Own>,
    /// From the holder's ms to Unix ms, as of the last tick.
    offset_ms: AtomicI64,
}

#[derive(Debug)]
struct Own {
    core: Core,
    cursor: SweepCursor,
    seq: u64,
}

impl Reserve {
    pub(super) fn new(degraded: Degraded) -> Self {
        let core = Core::new(Epoch { id: 1, since_ms: 0, memory: Memory::Whole }, BUCKETS);
        let own = Mutex::new(Own { core, cursor: SweepCursor::default(), seq: 1 });
        Self { degraded, own, offset_ms: AtomicI64::new(0) }
    }

    /// The rule by which the centre counts: what is set aside on all nodes is not its to grant.
    pub(super) fn rule_of(&self, rule: &Arc<Rule>) -> Arc<Rule> {
        self.split(rule).map_or_else(|| Arc::clone(rule), |(centre, _)| Arc::new(centre))
    }

    /// The centre's part and this node's, if a part of this limit is set aside.
    fn split(&self, rule: &Rule) -> Option<(Rule, Rule)> {
        let nodes = u32::from(self.degraded.nodes);
        let part = |whole: u32| {
            let share = u64::from(whole) * u64::from(self.degraded.permille) / 1_000 / u64::from(nodes);
            u32::try_from(share).ok().filter(|&share| share > 0)
        };
        let spec: RuleSpec = **rule;
        let share = part(spec.cap)?;
        let kinds = match spec.kind {
            Kind::Concurrency => None,
            Kind::Bucket { window_ms, burst } => {
                let own = part(burst)?;
                Some((Kind::Bucket { window_ms, burst: burst - own * nodes }, Kind::Bucket { window_ms, burst: own }))
            }
            kind @ (Kind::Fixed { .. } | Kind::Anchored { .. } | Kind::Calendar { .. } | Kind::Sliding { .. }) => {
                Some((kind, kind))
            }
        };
        let (centre, own) = kinds?;
        let centre = Rule::checked(RuleSpec { kind: centre, cap: spec.cap - share * nodes, ..spec }).ok()?;
        let own = Rule::checked(RuleSpec { kind: own, cap: share, ..spec }).ok()?;
        Some((centre, own))
    }

    /// This node's part of a level's limit.
    fn own_rule(&self, call: &Call<'_>, leg: usize) -> Option<Arc<Rule>> {
        let provider = &call.route.0.legs.get(leg)?.provider;
        self.split(provider).map(|(_, own)| Arc::new(own))
    }

    /// Units of these legs, all or none, to be spent at once.
    pub(super) fn take(&self, holder: HolderId, call: &Call<'_>, missing: u8, now_ms: u64) -> Option<[Term; LEGS_MAX]> {
        let legs: Vec<usize> = (0..call.route.len()).filter(|leg| missing & (1 << leg) != 0).collect();
        let stations = &call.route.0.legs;
        let lessee = Lessee { holder, tenant: call.route.0.party.tenant.clone() };
        let unix_ms = now_ms.saturating_add_signed(self.offset_ms.load(Ordering::Relaxed));
        let mut own = self.own();
        let mut terms = [Term::NONE; LEGS_MAX];
        let mut granted: Vec<Op> = Vec::new();
        for group in legs.chunk_by(|&one, &other| Arc::ptr_eq(&stations[one].bucket.app, &stations[other].bucket.app)) {
            own.seq += 1;
            let seq = own.seq;
            let asked: Option<Vec<Leg>> = group.iter().map(|&leg| self.leg(call, leg, seq)).collect();
            let body = Acquire {
                lessee: lessee.clone(),
                class: call.class,
                share: call.route.0.party.share,
                legs: asked.unwrap_or_default(),
            };
            let application = stations[group[0]].bucket.app.name.clone();
            let op = Op { application: application.clone(), body: Body::Acquire(body) };
            let Answer::Granted(leases) = own.core.step(unix_ms, &op).answer else {
                for back in &granted {
                    own.core.step(unix_ms, back);
                }
                return None;
            };
            let mut backs = Vec::new();
            for (&leg, lease) in group.iter().zip(&leases) {
                let expires_ms = (now_ms + u64::from(lease.ttl_ms)).saturating_sub(ROUNDING_MS);
                let units = stations[leg].units(call.cost);
                terms[leg] = Term { lease_seq: 0, ask: 0, generation: u64::MAX, wid: u64::MAX, expires_ms, units };
                let key = Arc::clone(&stations[leg].bucket.key);
                let (generation, wid) = (lease.generation, lease.tally.wid);
                backs.push(Unspent { key, seq, generation, wid, units });
            }
            let body = Body::GiveBack(GiveBack { lessee: lessee.clone(), legs: backs });
            granted.push(Op { application, body });
        }
        Some(terms)
    }

    fn leg(&self, call: &Call<'_>, leg: usize, seq: u64) -> Option<Leg> {
        let station = &call.route.0.legs[leg];
        let units = station.units(call.cost);
        let bucket = Metered { key: Arc::clone(&station.bucket.key), rule: self.own_rule(call, leg)? };
        let (demand_milli, tally, heard) = (0, Tally::default(), 0);
        Some(Leg { bucket, seq, least: units, want: units, unspent: 0, demand_milli, tally, heard })
    }

    pub(super) fn tick(&self, now_ms: u64, unix_ms: u64) {
        let offset_ms = i64::try_from(unix_ms).unwrap_or(i64::MAX).saturating_sub_unsigned(now_ms);
        self.offset_ms.store(offset_ms, Ordering::Relaxed);
        let mut own = self.own();
        let Own { core, cursor, .. } = &mut *own;
        core.sweep(unix_ms, cursor, SWEEP);
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
