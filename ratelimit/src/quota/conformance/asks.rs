//! Asking a centre shortly.

use std::sync::Arc;

use super::Subject;
use crate::quota::answer::{Answer, BucketView, Denial, Lease};
use crate::quota::key::{Application, BucketKey, Level};
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{
    Acquire, Body, Class, Describe, GiveBack, Leg, Lessee, Metered, Observe, Op, Penalise, Renew, Settle, Share, Slots,
    Tally, Unspent, Why,
};
use crate::quota::rule::{Kind, Rule, RuleSpec};

/// One application at a subject, and one lessee's fences.
#[derive(Debug)]
pub struct Asks<'a, S> {
    pub subject: &'a mut S,
    pub application: Application,
    pub lessee: Lessee,
    pub class: Class,
    pub seq: u64,
}

impl<'a, S: Subject> Asks<'a, S> {
    pub fn new(subject: &'a mut S) -> Self {
        let application = Application { provider: name("conformance"), name: subject.application() };
        Self { subject, application, lessee: lessee(1, "one"), class: Class::Interactive, seq: 0 }
    }

    pub async fn ask(&mut self, body: Body) -> Answer {
        let op = Op { application: self.application.clone(), body };
        self.subject.centre().ask(&op).await.expect("the subject answers").answer
    }

    /// The same op, with the next seq in every leg, sent until it is neither learned nor guarded.
    pub async fn acquire(&mut self, legs: &[Leg]) -> Answer {
        loop {
            let acquire = self.next(legs);
            match self.ask(Body::Acquire(acquire)).await {
                Answer::Learning { ms, .. } => self.subject.pass(ms).await,
                Answer::Denied { retry_ms, why: Denial::Guard, .. } => self.subject.pass(retry_ms).await,
                answer => return answer,
            }
        }
    }

    pub fn next(&mut self, legs: &[Leg]) -> Acquire {
        self.seq += 1;
        let mut legs = legs.to_vec();
        for leg in &mut legs {
            leg.seq = self.seq;
        }
        let share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };
        Acquire { lessee: self.lessee.clone(), class: self.class, share, legs }
    }

    /// One lease of one bucket of exactly so many units.
    pub async fn take(&mut self, bucket: &Metered, units: u32) -> Lease {
        match self.acquire(&[leg(bucket, units, units)]).await {
            Answer::Granted(leases) => leases[0],
            answer => panic!("{units} of {} were not granted: {answer:?}", bucket.key),
        }
    }

    /// Units one at a time, until no.
    pub async fn drain(&mut self, bucket: &Metered, most: u32) -> (u32, Answer) {
        let mut units = 0;
        loop {
            match self.acquire(&[leg(bucket, 1, 1)]).await {
                Answer::Granted(leases) if units < most => units += leases[0].units,
                answer => return (units, answer),
            }
        }
    }

    pub async fn give_back(&mut self, bucket: &Metered, seq: u64, lease: &Lease, units: u32) -> u32 {
        let (generation, wid) = (lease.generation, lease.tally.wid);
        let unspent = Unspent { key: Arc::clone(&bucket.key), seq, generation, wid, units };
        let back = GiveBack { lessee: self.lessee.clone(), legs: vec![unspent] };
        done(&self.ask(Body::GiveBack(back)).await)
    }

    pub async fn renew(&mut self, bucket: &Metered, held: u32) -> Answer {
        self.seq += 1;
        let slots = Slots { bucket: bucket.clone(), seq: self.seq, held, heard: 0 };
        self.ask(Body::Renew(Renew { lessee: self.lessee.clone(), legs: vec![slots] })).await
    }

    /// The park as it stands then, and the generation.
    pub async fn penalise(&mut self, bucket: &Metered, delta_ms: u64, generation: Option<u64>) -> (u64, u64) {
        let penalise = Penalise { bucket: bucket.clone(), delta_ms, generation, why: Why::Provider };
        match self.ask(Body::Penalise(penalise)).await {
            Answer::ParkedFor { ms, generation } => (ms, generation),
            answer => panic!("a penalty was answered {answer:?}"),
        }
    }

    pub async fn observe(&mut self, bucket: &Metered, wid: u64, limit: Option<u32>, remaining: Option<u32>) {
        let observe = Observe { bucket: bucket.clone(), wid, limit, remaining, reset_ms: None };
        done(&self.ask(Body::Observe(observe)).await);
    }

    pub async fn settle(&mut self, bucket: &Metered, seq: u64, wid: u64, estimate: u32, actual: u32) -> u32 {
        let (lessee, key) = (self.lessee.clone(), Arc::clone(&bucket.key));
        done(&self.ask(Body::Settle(Settle { lessee, key, seq, wid, age_ms: 0, estimate, actual })).await)
    }

    pub async fn view(&mut self, bucket: &Metered) -> BucketView {
        let views = self.page(None, 100).await;
        let view = views.into_iter().find(|view| view.key == *bucket.key);
        view.unwrap_or_else(|| panic!("{} is not described", bucket.key))
    }

    pub async fn page(&mut self, after: Option<BucketKey>, limit: u16) -> Vec<BucketView> {
        match self.ask(Body::Describe(Describe { after, limit })).await {
            Answer::Buckets(views) => views,
            answer => panic!("a description was answered {answer:?}"),
        }
    }
}

pub fn done(answer: &Answer) -> u32 {
    match answer {
        Answer::Done { units } => *units,
        answer => panic!("not done: {answer:?}"),
    }
}

pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a scenario's names are names")
}

pub fn lessee(holder: u128, tenant: &str) -> Lessee {
    Lessee { holder: HolderId(holder), tenant: name(tenant) }
}

pub fn metered(level: Level, policy: &str, spec: RuleSpec) -> Metered {
    let key = BucketKey { level, scope: name("-"), policy: name(policy) };
    let rule = Rule::checked(spec).expect("a scenario's rules are rules");
    Metered { key: Arc::new(key), rule: Arc::new(rule) }
}

pub fn spec(kind: Kind, cap: u32) -> RuleSpec {
    RuleSpec { cfgver: 1, kind, cap, lease_ms: 1_000, guard_ms: 50, skew_ms: 0 }
}

/// A window that no scenario outlives, unless it begins at its end.
pub const LONG: Kind = Kind::Fixed { window_ms: 3_600_000, offset_ms: 0 };

pub fn leg(bucket: &Metered, least: u32, want: u32) -> Leg {
    let demand_milli = u64::from(want) * 1_000;
    Leg { bucket: bucket.clone(), seq: 0, least, want, unspent: 0, demand_milli, tally: Tally::default(), heard: 0 }
}
