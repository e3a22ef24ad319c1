//! One holder and one centre whose operations go to and fro when a test says so.

use std::sync::Arc;

use crate::quota::holder::{Effects, Hold, Leases, Need, Parked, Per, Route, Sending, Settings, Taken, Token, Verdict};
use crate::quota::{
    Application, AskError, Body, BucketKey, BucketView, Class, Core, Describe, Epoch, HolderId, Kind, Level, Memory,
    Metered, Name, Op, Reply, Rule, RuleSpec, Share,
};

pub(super) const START_MS: u64 = 1_700_000_000_000;

impl Token for u64 {
    fn is_gone(&self) -> bool {
        false
    }
}

pub(super) struct Bench {
    pub(super) core: Core,
    pub(super) leases: Leases<u64>,
    /// By the holder's clock; the centre's is `START_MS` ahead.
    pub(super) now_ms: u64,
    pub(super) sends: Vec<Sending>,
    pub(super) verdicts: Vec<(u64, Verdict)>,
    pub(super) is_gone: bool,
    callers: u64,
}

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(super) fn rule(kind: Kind, cap: u32) -> Rule {
    Rule::checked(RuleSpec { cfgver: 1, kind, cap, lease_ms: 1_000, guard_ms: 100, skew_ms: 0 }).unwrap()
}

pub(super) fn fixed(cap: u32) -> Rule {
    rule(Kind::Fixed { window_ms: 60_000, offset_ms: 0 }, cap)
}

pub(super) fn need(application: &str, level: Level, policy: &str, rule: Rule) -> Need {
    let key = Arc::new(BucketKey { level, scope: name("one"), policy: name(policy) });
    let application = Application { provider: name("acme"), name: name(application) };
    Need { application, bucket: Metered { key, rule: Arc::new(rule) }, per: Per::Cost }
}

pub(super) const SHARE: Share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };

impl Bench {
    pub(super) fn new(settings: Settings) -> Self {
        let epoch = Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole };
        Self {
            core: Core::new(epoch, 1_000),
            leases: Leases::new(settings, HolderId(1), 1).unwrap(),
            now_ms: 1_000,
            sends: Vec::new(),
            verdicts: Vec::new(),
            is_gone: false,
            callers: 0,
        }
    }

    pub(super) fn route(&self, tenant: &str, needs: &[Need]) -> Route {
        self.leases.route(&name(tenant), SHARE, needs).unwrap()
    }

    /// Begins a call; what has to be sent is not sent yet.
    pub(super) fn begin(&mut self, route: &Route, class: Class, cost: u32, wait_ms: u64) -> (u64, Hold) {
        self.callers += 1;
        let caller = self.callers;
        let (hold, effects) = self.leases.hold(route, class, cost, wait_ms, self.now_ms, || caller);
        self.take_up(effects);
        (caller, hold)
    }

    /// A call with all that it takes; the centre answers at once.
    pub(super) fn hold(&mut self, route: &Route, cost: u32) -> Result<Taken, Parked> {
        let (caller, hold) = self.begin(route, Class::Bulk, cost, 50);
        match hold {
            Hold::Held(taken) => {
                self.exchange();
                Ok(taken)
            }
            Hold::Parked(parked) => Err(parked),
            Hold::Waits => {
                self.exchange();
                for _ in 0..20 {
                    if let Some(verdict) = self.verdict(caller) {
                        return verdict;
                    }
                    self.pass(10);
                }
                panic!("no verdict");
            }
        }
    }

    pub(super) fn verdict(&mut self, caller: u64) -> Option<Result<Taken, Parked>> {
        let at = self.verdicts.iter().position(|(other, _)| *other == caller)?;
        Some(match self.verdicts.remove(at).1 {
            Verdict::Held(taken) => Ok(taken),
            Verdict::Parked(parked) => Err(parked),
        })
    }

    pub(super) fn take_up(&mut self, effects: Effects<u64>) {
        self.sends.extend(effects.sends);
        self.verdicts.extend(effects.verdicts);
    }

    /// Everything that is to be sent is answered, also what follows from answers.
    pub(super) fn exchange(&mut self) {
        while !self.sends.is_empty() {
            let sending = self.sends.remove(0);
            let reply = self.ask(&sending.op);
            self.answer(&sending, reply);
        }
    }

    pub(super) fn ask(&mut self, op: &Op) -> Result<Reply, AskError> {
        if self.is_gone { Err(AskError::Timeout) } else { Ok(self.core.step(START_MS + self.now_ms, op)) }
    }

    pub(super) fn answer(&mut self, sending: &Sending, result: Result<Reply, AskError>) {
        let effects = self.leases.answered(sending.ticket, self.now_ms, result, self.now_ms);
        self.take_up(effects);
    }

    /// Lets time pass, ms by ms.
    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            if self.leases.next_due_ms() <= self.now_ms {
                let effects = self.leases.tick(self.now_ms, START_MS + self.now_ms);
                self.take_up(effects);
            }
            self.exchange();
        }
    }

    pub(super) fn finish(&mut self, taken: &Taken, is_sent: bool) {
        let effects = self.leases.finish(taken, is_sent, self.now_ms);
        self.take_up(effects);
    }

    /// What the centre counts of a bucket.
    pub(super) fn used(&mut self, need: &Need) -> u64 {
        self.view(need).map_or(0, |view| view.used)
    }

    /// The bucket's generation at the centre; 0 of one that it does not have.
    pub(super) fn generation(&mut self, need: &Need) -> u64 {
        self.view(need).map_or(0, |view| view.generation)
    }

    fn view(&mut self, need: &Need) -> Option<BucketView> {
        let describe = Body::Describe(Describe { after: None, limit: 100 });
        let op = Op { application: need.application.clone(), body: describe };
        let crate::quota::Answer::Buckets(views) = self.core.step(START_MS + self.now_ms, &op).answer else {
            panic!("not a view");
        };
        views.into_iter().find(|view| view.key == *need.bucket.key)
    }
}
