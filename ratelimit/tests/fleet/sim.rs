//! A fleet of holders, one pure centre, a network that loses, delays and repeats, and a provider that counts strictly.
//! Everything happens in virtual time, by one seed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tidegate_ratelimit::quota::holder::{
    Hold, Leases, Need, Parked, Per, Route, Settings, Taken, Ticket, Token, Verdict,
};
use tidegate_ratelimit::quota::{
    Answer, Application, AskError, Body, BucketKey, Class, Core, Epoch, HolderId, Kind, Level, Memory, Metered, Name,
    Op, Reply, Rule, Share, Why,
};

/// When the simulation begins, as Unix ms.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller(pub(crate) u64);

impl Token for Caller {
    fn is_gone(&self) -> bool {
        false
    }
}

/// Any numbers, by a seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    pub(crate) fn permille(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// Exponentially distributed with this mean, bounded by ten times of it.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (-(1.0 - unit).ln() * mean).min(mean * 10.0)
    }
}

/// What a tenant's calls are like on each node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Calls per second and node, at exponential distances.
    pub(crate) per_second: f64,
    pub(crate) class: Class,
    pub(crate) weight: u16,
    pub(crate) cost: u32,
    /// Asks to wait inside for so long.
    pub(crate) wait_ms: u64,
}

impl Load {
    pub(crate) fn of(per_second: f64) -> Self {
        Self { per_second, class: Class::Bulk, weight: 1, cost: 1, wait_ms: 50 }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) loads: Vec<Load>,
    /// The application's own bucket, which the provider counts strictly.
    pub(crate) rule: Rule,
    /// A bucket of each tenant's connection that is never the narrow one.
    pub(crate) has_connections: bool,
    pub(crate) settings: Settings,
    /// One way to the centre.
    pub(crate) centre_ms: u64,
    /// Requests and answers that the network loses, each.
    pub(crate) loss_permille: u64,
    pub(crate) twice_permille: u64,
    pub(crate) late_permille: u64,
    /// To the provider, on average; bounded by `arrive_ms_max`.
    pub(crate) arrive_ms: u64,
    pub(crate) arrive_ms_max: u64,
    /// How long a call takes there.
    pub(crate) serve_ms: u64,
    /// The provider's clock is so much ahead.
    pub(crate) skew_ms: i64,
    /// From hold to the request being written, up to.
    pub(crate) think_ms: u64,
    /// A call that is parked comes again, once it may.
    pub(crate) comes_again: bool,
    /// How many calls of a tenant and node are not over at a time; further ones are not begun.
    pub(crate) backlog: usize,
}

impl Scene {
    pub(crate) fn new(seed: u64, rule: Rule, nodes: usize, loads: Vec<Load>) -> Self {
        Self {
            seed,
            nodes,
            loads,
            rule,
            has_connections: false,
            settings: Settings::default(),
            centre_ms: 1,
            loss_permille: 0,
            twice_permille: 0,
            late_permille: 0,
            arrive_ms: 20,
            arrive_ms_max: 200,
            serve_ms: 5,
            skew_ms: 0,
            think_ms: 3,
            comes_again: true,
            backlog: 200,
        }
    }
}

#[derive(Debug)]
enum Event {
    Call { node: usize, tenant: usize, begun_ms: u64, is_fresh: bool },
    AtCentre { node: usize, life: u64, ticket: Ticket, op: Arc<Op>, sent_ms: u64, is_lost: bool },
    Answer { node: usize, life: u64, ticket: Ticket, sent_ms: u64, result: Result<Reply, AskError> },
    Write { node: usize, life: u64, call: u64 },
    Arrive { call: u64, node: usize, life: u64, tenant: usize },
    Response { node: usize, life: u64, call: u64, is_ok: bool },
    Pushed { node: usize, generation: u64, ms: u64 },
    Tick { node: usize, life: u64 },
}

#[derive(Debug)]
struct Call {
    tenant: usize,
    begun_ms: u64,
    taken: Option<Taken>,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) leases: Leases<Caller>,
    routes: Vec<Route>,
    life: u64,
    /// Its clock begins here.
    origin_ms: u64,
    calls: HashMap<u64, Call>,
    open: Vec<usize>,
    tick_ms: u64,
    /// Nothing gets through to the centre.
    pub(crate) is_cut_off: bool,
}

/// What became of a tenant's calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) wanted: u64,
    pub(crate) sent: u64,
    pub(crate) waits_ms: Vec<u64>,
}

/// A provider, as strict as it says.
#[derive(Debug)]
pub(crate) struct Provider {
    rule: Rule,
    skew_ms: i64,
    window: (u64, u64),
    recent: VecDeque<u64>,
    owed: f64,
    at_ms: u64,
    pub(crate) in_flight: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The most by which a refused arrival was over the limit.
    pub(crate) worst: u64,
}

pub(crate) struct Fleet {
    pub(crate) scene: Scene,
    pub(crate) core: Core,
    pub(crate) now_ms: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) provider: Provider,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) operations: u64,
    pub(crate) acquires: u64,
    /// Penalties reach other nodes only by their own asking.
    pub(crate) are_pushes_lost: bool,
    /// What a refusal of the provider parks the bucket for.
    pub(crate) penalty_ms: u64,
    pub(crate) parked: u64,
    pub(crate) spoilt: u64,
    pub(crate) on_parked: Vec<Parked>,
    dice: Dice,
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    application: Application,
    key: Arc<BucketKey>,
    snapshots: VecDeque<(u64, Core)>,
    lives: u64,
}

impl Provider {
    pub(crate) fn new(rule: Rule, skew_ms: i64) -> Self {
        Self {
            rule,
            skew_ms,
            window: (0, 0),
            recent: VecDeque::new(),
            owed: 0.0,
            at_ms: 0,
            in_flight: 0,
            accepted: 0,
            refused: 0,
            worst: 0,
        }
    }

    pub(crate) fn arrive(&mut self, now_ms: u64, cost: u32) -> bool {
        let own_ms = now_ms.saturating_add_signed(self.skew_ms);
        let (cap, cost) = (u64::from(self.rule.cap), u64::from(cost));
        let used = match self.rule.kind {
            Kind::Fixed { window_ms, offset_ms } => {
                let window = (own_ms - offset_ms) / window_ms;
                if self.window.0 != window {
                    self.window = (window, 0);
                }
                self.window.1 += cost;
                self.window.1
            }
            Kind::Sliding { window_ms, .. } | Kind::Anchored { window_ms, .. } => {
                while self.recent.front().is_some_and(|&at_ms| at_ms + window_ms <= own_ms) {
                    self.recent.pop_front();
                }
                self.recent.extend(std::iter::repeat_n(own_ms, cost as usize));
                self.recent.len() as u64
            }
            Kind::Bucket { window_ms, burst } => {
                let drained = (own_ms - self.at_ms.min(own_ms)) as f64 * cap as f64 / window_ms as f64;
                self.owed = (self.owed - drained).max(0.0) + cost as f64;
                self.at_ms = own_ms;
                // In thousandths, so that rounding is no excess.
                return self.judge((self.owed * 1_000.0) as u64, u64::from(burst) * 1_000 + 1);
            }
            Kind::Concurrency => {
                self.in_flight += 1;
                self.in_flight
            }
            Kind::Calendar { .. } => unreachable!("no scene has it"),
        };
        self.judge(used, cap)
    }

    fn judge(&mut self, used: u64, cap: u64) -> bool {
        let is_ok = used <= cap;
        if is_ok {
            self.accepted += 1;
        } else {
            self.refused += 1;
            self.worst = self.worst.max(used - cap);
        }
        is_ok
    }
}

impl Fleet {
    pub(crate) fn new(scene: Scene) -> Self {
        let name = |text: &str| Name::parse(text).unwrap();
        let application = Application { provider: name("acme"), name: name("one") };
        let key = Arc::new(BucketKey { level: Level::App, scope: name("-"), policy: name("main") });
        let core = Core::new(Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole }, 10_000);
        let provider = Provider::new(scene.rule, scene.skew_ms);
        let tallies = vec![Tally::default(); scene.loads.len()];
        let mut fleet = Self {
            dice: Dice(scene.seed),
            core,
            now_ms: START_MS,
            nodes: Vec::new(),
            provider,
            tallies,
            operations: 0,
            acquires: 0,
            are_pushes_lost: false,
            penalty_ms: 1_000,
            parked: 0,
            spoilt: 0,
            on_parked: Vec::new(),
            events: BTreeMap::new(),
            number: 0,
            application,
            key,
            snapshots: VecDeque::new(),
            lives: 0,
            scene,
        };
        for at in 0..fleet.scene.nodes {
            let node = fleet.boot();
            fleet.nodes.push(node);
            for tenant in 0..fleet.scene.loads.len() {
                fleet.next_call(at, tenant);
            }
        }
        fleet
    }

    fn boot(&mut self) -> Node {
        self.lives += 1;
        let leases = Leases::new(self.scene.settings, HolderId(u128::from(self.lives)), self.dice.next()).unwrap();
        let routes = (0..self.scene.loads.len()).map(|tenant| self.route(&leases, tenant)).collect();
        Node {
            leases,
            routes,
            life: self.lives,
            // Any clock: a holder's says nothing to anybody else.
            origin_ms: self.now_ms - 1 - self.dice.below(1_000_000),
            calls: HashMap::new(),
            open: vec![0; self.scene.loads.len()],
            tick_ms: u64::MAX,
            is_cut_off: false,
        }
    }

    fn route(&self, leases: &Leases<Caller>, tenant: usize) -> Route {
        let name = |text: &str| Name::parse(text).unwrap();
        let load = &self.scene.loads[tenant];
        let mut needs = vec![Need {
            application: self.application.clone(),
            bucket: Metered { key: Arc::clone(&self.key), rule: Arc::new(self.scene.rule) },
            per: Per::Cost,
        }];
        if self.scene.has_connections {
            let key = BucketKey { level: Level::Connection, scope: name(&format!("c{tenant}")), policy: name("wide") };
            let kind = Kind::Bucket { window_ms: 1_000, burst: 1_000 };
            let spec = tidegate_ratelimit::quota::RuleSpec { kind, cap: 1_000, ..*self.scene.rule };
            let spec = tidegate_ratelimit::quota::RuleSpec { lease_ms: 400, guard_ms: 100, skew_ms: 0, ..spec };
            let bucket = Metered { key: Arc::new(key), rule: Arc::new(Rule::checked(spec).unwrap()) };
            needs.push(Need { application: self.application.clone(), bucket, per: Per::Call });
        }
        let share = Share { weight: load.weight, floor_permille: 0, ceiling_permille: 1_000 };
        leases.route(&name(&format!("t{tenant}")), share, &needs).unwrap()
    }

    fn at(&mut self, at_ms: u64, event: Event) {
        self.number += 1;
        self.events.insert((at_ms.max(self.now_ms), self.number), event);
    }

    fn own_ms(&self, node: usize) -> u64 {
        self.now_ms - self.nodes[node].origin_ms
    }

    fn next_call(&mut self, node: usize, tenant: usize) {
        let per_second = self.scene.loads[tenant].per_second;
        if per_second <= 0.0 {
            return;
        }
        let after_ms = self.dice.exponential(1_000.0 / per_second).round() as u64;
        let begun_ms = self.now_ms + after_ms;
        self.at(begun_ms, Event::Call { node, tenant, begun_ms, is_fresh: true });
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, for_ms: u64) {
        let end_ms = self.now_ms + for_ms;
        while let Some(entry) = self.events.first_entry() {
            let at_ms = entry.key().0;
            if at_ms > end_ms {
                break;
            }
            let event = entry.remove();
            self.now_ms = at_ms;
            self.step(event);
        }
        self.now_ms = end_ms;
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Call { node, tenant, begun_ms, is_fresh } => self.call(node, tenant, begun_ms, is_fresh),
            Event::AtCentre { node, life, ticket, op, sent_ms, is_lost } => {
                self.at_centre(node, life, ticket, &op, sent_ms, is_lost);
            }
            Event::Answer { node, life, ticket, sent_ms, result } => {
                if self.nodes[node].life == life {
                    let own_ms = self.own_ms(node);
                    let effects = self.nodes[node].leases.answered(ticket, sent_ms, result, own_ms);
                    self.effects(node, effects.sends, effects.verdicts);
                }
            }
            Event::Write { node, life, call } => self.write(node, life, call),
            Event::Arrive { call, node, life, tenant } => {
                let is_ok = self.provider.arrive(self.now_ms, self.scene.loads[tenant].cost);
                let back_ms = self.now_ms + self.scene.serve_ms;
                self.at(back_ms, Event::Response { node, life, call, is_ok });
            }
            Event::Response { node, life, call, is_ok } => self.response(node, life, call, is_ok),
            Event::Pushed { node, generation, ms } => {
                let own_ms = self.own_ms(node);
                self.nodes[node].leases.pushed(&self.application, &self.key, generation, ms, Why::Provider, own_ms);
            }
            Event::Tick { node, life } => {
                // One that an earlier one came before is none.
                if self.nodes[node].life == life && self.nodes[node].tick_ms == self.now_ms {
                    self.nodes[node].tick_ms = u64::MAX;
                    let own_ms = self.own_ms(node);
                    let effects = self.nodes[node].leases.tick(own_ms, self.now_ms);
                    self.effects(node, effects.sends, effects.verdicts);
                }
            }
        }
    }

    fn call(&mut self, node: usize, tenant: usize, begun_ms: u64, is_fresh: bool) {
        if is_fresh {
            self.next_call(node, tenant);
            self.tallies[tenant].wanted += 1;
            if self.nodes[node].open[tenant] >= self.scene.backlog {
                return;
            }
            self.nodes[node].open[tenant] += 1;
        }
        self.number += 1;
        let id = self.number;
        let own_ms = self.own_ms(node);
        let load = self.scene.loads[tenant];
        let at = &mut self.nodes[node];
        at.calls.insert(id, Call { tenant, begun_ms, taken: None });
        let route = at.routes[tenant].clone();
        let (hold, effects) = at.leases.hold(&route, load.class, load.cost, load.wait_ms, own_ms, || Caller(id));
        match hold {
            Hold::Held(taken) => self.held(node, id, taken),
            Hold::Parked(parked) => self.park(node, id, parked),
            Hold::Waits => {}
        }
        self.effects(node, effects.sends, effects.verdicts);
    }

    fn effects(
        &mut self,
        node: usize,
        sends: Vec<tidegate_ratelimit::quota::holder::Sending>,
        verdicts: Vec<(Caller, Verdict)>,
    ) {
        for sending in sends {
            self.send(node, sending.ticket, sending.op);
        }
        for (Caller(id), verdict) in verdicts {
            match verdict {
                Verdict::Held(taken) => self.held(node, id, taken),
                Verdict::Parked(parked) => self.park(node, id, parked),
            }
        }
        let due_ms = (self.nodes[node].origin_ms + self.nodes[node].leases.next_due_ms()).max(self.now_ms);
        if due_ms < self.nodes[node].tick_ms {
            self.nodes[node].tick_ms = due_ms;
            let life = self.nodes[node].life;
            self.at(due_ms, Event::Tick { node, life });
        }
    }

    /// An operation that is lost, or whose answer is, comes to nothing after the store's own time.
    fn send(&mut self, node: usize, ticket: Ticket, op: Arc<Op>) {
        const STORE_MS: u64 = 50;
        self.operations += 1;
        self.acquires += u64::from(matches!(op.body, Body::Acquire(_)));
        let (life, sent_ms) = (self.nodes[node].life, self.own_ms(node));
        let scene = &self.scene;
        let (loss, twice, late, centre_ms) =
            (scene.loss_permille, scene.twice_permille, scene.late_permille, scene.centre_ms);
        if self.nodes[node].is_cut_off || self.dice.permille(loss) {
            let result = Err(AskError::Timeout);
            return self.at(self.now_ms + STORE_MS, Event::Answer { node, life, ticket, sent_ms, result });
        }
        let after_ms = if self.dice.permille(late) { self.dice.below(400) } else { centre_ms };
        if self.dice.permille(twice) {
            let again_ms = self.now_ms + after_ms + self.dice.below(100);
            let again =
                Event::AtCentre { node, life, ticket, op: Arc::clone(&op), sent_ms, is_lost: self.dice.permille(500) };
            self.at(again_ms, again);
        }
        let is_lost = self.dice.permille(loss) || after_ms > STORE_MS;
        if is_lost {
            let result = Err(AskError::Timeout);
            self.at(self.now_ms + STORE_MS, Event::Answer { node, life, ticket, sent_ms, result });
        }
        // What is late is at times heard all the same, when it is no longer waited for.
        let is_lost = is_lost && self.dice.permille(700);
        self.at(self.now_ms + after_ms, Event::AtCentre { node, life, ticket, op, sent_ms, is_lost });
    }

    fn at_centre(&mut self, node: usize, life: u64, ticket: Ticket, op: &Arc<Op>, sent_ms: u64, is_lost: bool) {
        let reply = self.core.step(self.now_ms, op);
        if let Answer::ParkedFor { ms, generation } = reply.answer {
            for other in (0..self.nodes.len()).filter(|&other| other != node) {
                if !self.are_pushes_lost {
                    let after_ms = self.dice.below(20);
                    self.at(self.now_ms + after_ms, Event::Pushed { node: other, generation, ms });
                }
            }
        }
        if !is_lost {
            let back_ms = self.now_ms + self.scene.centre_ms;
            self.at(back_ms, Event::Answer { node, life, ticket, sent_ms, result: Ok(reply) });
        }
    }

    fn held(&mut self, node: usize, id: u64, taken: Taken) {
        let think_ms = self.dice.below(self.scene.think_ms + 1);
        let life = self.nodes[node].life;
        if let Some(call) = self.nodes[node].calls.get_mut(&id) {
            call.taken = Some(taken);
        }
        self.at(self.now_ms + think_ms, Event::Write { node, life, call: id });
    }

    fn park(&mut self, node: usize, id: u64, parked: Parked) {
        self.parked += 1;
        if self.on_parked.len() < 100_000 {
            self.on_parked.push(parked);
        }
        let Some(call) = self.nodes[node].calls.remove(&id) else { return };
        if self.scene.comes_again {
            let at_ms = self.now_ms + parked.release_ms;
            self.at(at_ms, Event::Call { node, tenant: call.tenant, begun_ms: call.begun_ms, is_fresh: false });
        } else {
            self.leave(node, call.tenant);
        }
    }

    fn write(&mut self, node: usize, life: u64, id: u64) {
        if self.nodes[node].life != life {
            return;
        }
        let own_ms = self.own_ms(node);
        let Some(taken) = self.nodes[node].calls.get(&id).and_then(|call| call.taken.clone()) else { return };
        if let Err(spoilt) = self.nodes[node].leases.check(&taken, own_ms) {
            self.spoilt += 1;
            let parked = self.nodes[node].leases.spoilt(&taken, spoilt, own_ms);
            let effects = self.nodes[node].leases.finish(&taken, false, own_ms);
            self.park(node, id, parked);
            return self.effects(node, effects.sends, effects.verdicts);
        }
        let arrive_ms = self.dice.exponential(self.scene.arrive_ms as f64) as u64;
        let arrive_ms = self.now_ms + arrive_ms.min(self.scene.arrive_ms_max);
        let (tenant, begun_ms) = {
            let call = &self.nodes[node].calls[&id];
            (call.tenant, call.begun_ms)
        };
        let tally = &mut self.tallies[tenant];
        tally.sent += 1;
        tally.waits_ms.push(self.now_ms - begun_ms);
        self.at(arrive_ms, Event::Arrive { call: id, node, life, tenant });
    }

    fn response(&mut self, node: usize, life: u64, id: u64, is_ok: bool) {
        if !self.scene.rule.is_rate() {
            self.provider.in_flight -= 1;
        }
        if self.nodes[node].life != life {
            return;
        }
        let own_ms = self.own_ms(node);
        let Some(Call { tenant, taken: Some(taken), .. }) = self.nodes[node].calls.remove(&id) else { return };
        self.leave(node, tenant);
        if !is_ok && self.penalty_ms > 0 {
            self.nodes[node].leases.throttled(&taken, 0, self.penalty_ms, Why::Provider, own_ms);
        }
        let effects = self.nodes[node].leases.finish(&taken, true, own_ms);
        self.effects(node, effects.sends, effects.verdicts);
    }

    /// Calls of a process that crashed may come again in the next one, which has not counted them.
    fn leave(&mut self, node: usize, tenant: usize) {
        let open = &mut self.nodes[node].open[tenant];
        *open = open.saturating_sub(1);
    }

    /// A node's process ends without a word, and another one begins.
    pub(crate) fn crash(&mut self, node: usize) {
        self.nodes[node] = self.boot();
    }

    /// Keeps the centre as it is now, to go back to.
    pub(crate) fn remember(&mut self) {
        self.snapshots.push_back((self.now_ms, self.core.clone()));
        if self.snapshots.len() > 64 {
            self.snapshots.pop_front();
        }
    }

    /// A replica takes over that has all but what was granted in the last `lag_ms`.
    pub(crate) fn fail_over(&mut self, lag_ms: u64) {
        let at = self.snapshots.iter().rposition(|&(at_ms, _)| at_ms + lag_ms <= self.now_ms);
        let Some(at) = at else { return };
        let epoch = Epoch { id: self.core.epoch().id + 1, since_ms: self.now_ms, memory: Memory::LostSuffix };
        let mut core = self.snapshots[at].1.clone();
        core.begin(epoch);
        self.core = core;
        self.snapshots.clear();
    }

    pub(crate) fn sent(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.sent).sum()
    }

    /// An operator's or test's penalty at the centre, as if another node had told it.
    pub(crate) fn penalise(&mut self, ms: u64) {
        let bucket = Metered { key: Arc::clone(&self.key), rule: Arc::new(self.scene.rule) };
        let penalise =
            tidegate_ratelimit::quota::Penalise { bucket, delta_ms: ms, generation: None, why: Why::Provider };
        let op = Op { application: self.application.clone(), body: Body::Penalise(penalise) };
        let reply = self.core.step(self.now_ms, &op);
        if let Answer::ParkedFor { ms, generation } = reply.answer
            && !self.are_pushes_lost
        {
            for node in 0..self.nodes.len() {
                let after_ms = self.dice.below(20);
                self.at(self.now_ms + after_ms, Event::Pushed { node, generation, ms });
            }
        }
    }
}

/// The value under which this part of them is, in hundredths.
pub(crate) fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}
