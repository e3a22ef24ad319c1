//! Holders, a centre and a provider, and the events between them in the order of their times.

mod calls;
mod centre;
mod trouble;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::quota::answer::{AskError, Reply};
use crate::quota::core::{Core, Epoch, Memory};
use crate::quota::holder::{Leases, Need, Parked, Per, Route, Taken, Ticket, Token};
use crate::quota::key::{Application, BucketKey, Level};
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Metered, Op, Share, Why};
use crate::quota::rule::{Kind, Rule, RuleSpec};

use super::START_MS;
use super::demand::Demand;
use super::dice::Dice;
use super::provider::Provider;
use super::scene::Scene;
use super::tally::Tally;

/// Who waits: the number of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller(pub u64);

impl Token for Caller {
    fn is_gone(&self) -> bool {
        false
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

/// One node: its holder, and the calls that are not over.
#[derive(Debug)]
pub struct Node {
    pub leases: Leases<Caller>,
    routes: Vec<Route>,
    life: u64,
    /// Its clock begins here.
    origin_ms: u64,
    calls: HashMap<u64, Call>,
    open: Vec<usize>,
    tick_ms: u64,
    /// Nothing gets through to the centre.
    pub is_cut_off: bool,
}

/// Holders on several nodes, their centre, and whom they call.
#[derive(Debug)]
pub struct Fleet {
    pub scene: Scene,
    pub core: Core,
    pub now_ms: u64,
    pub nodes: Vec<Node>,
    pub provider: Provider,
    pub tallies: Vec<Tally>,
    /// Operations that were sent to the centre, again ones counted.
    pub operations: u64,
    /// Those of them that want units.
    pub acquires: u64,
    /// Penalties reach other nodes only by their own asking.
    pub are_pushes_lost: bool,
    /// What a refusal of the provider parks the bucket for.
    pub penalty_ms: u64,
    /// How often a call was told to come again.
    pub parked: u64,
    /// How often units were held that could not be spent any more when the request was about to be written.
    pub spoilt: u64,
    /// What the first of those that were parked were told.
    pub on_parked: Vec<Parked>,
    dice: Dice,
    demand: Option<Demand>,
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    application: Application,
    key: Arc<BucketKey>,
    snapshots: VecDeque<(u64, Core)>,
    lives: u64,
}

impl Fleet {
    pub fn new(scene: Scene) -> Self {
        let application = Application { provider: name("acme"), name: name("one") };
        let key = Arc::new(BucketKey { level: Level::App, scope: name("-"), policy: name("main") });
        let core = Core::new(Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole }, 10_000);
        let provider = Provider::new(scene.rule, scene.skew_ms).counting_refused(scene.are_refused_counted);
        let demand = scene.own_demand.is_some().then(|| Demand::new(&scene));
        let tallies = vec![Tally::default(); scene.loads.len()];
        let mut fleet = Self {
            dice: Dice(scene.seed),
            demand,
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
        let id = HolderId(u128::from(self.lives));
        let leases =
            Leases::new(self.scene.settings, id, self.dice.next()).expect("a scene's settings are within their bounds");
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
        let load = &self.scene.loads[tenant];
        let mut needs = vec![Need {
            application: self.application.clone(),
            bucket: Metered { key: Arc::clone(&self.key), rule: Arc::new(self.scene.rule) },
            per: Per::Cost,
        }];
        if self.scene.has_connections {
            let key = BucketKey { level: Level::Connection, scope: name(&format!("c{tenant}")), policy: name("wide") };
            let kind = Kind::Bucket { window_ms: 1_000, burst: 1_000 };
            let cfgver = self.scene.rule.cfgver;
            let spec = RuleSpec { cfgver, kind, cap: 1_000, lease_ms: 400, guard_ms: 100, skew_ms: 0 };
            let rule = Rule::checked(spec).expect("its figures are within their bounds");
            let bucket = Metered { key: Arc::new(key), rule: Arc::new(rule) };
            needs.push(Need { application: self.application.clone(), bucket, per: Per::Call });
        }
        let share = Share { weight: load.weight, floor_permille: 0, ceiling_permille: 1_000 };
        leases.route(&name(&format!("t{tenant}")), share, &needs).expect("one or two levels")
    }

    fn at(&mut self, at_ms: u64, event: Event) {
        self.number += 1;
        self.events.insert((at_ms.max(self.now_ms), self.number), event);
    }

    fn own_ms(&self, node: usize) -> u64 {
        self.now_ms - self.nodes[node].origin_ms
    }

    /// Lets time pass.
    pub fn run(&mut self, for_ms: u64) {
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

    /// Requests that were written.
    pub fn sent(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.sent).sum()
    }
}

/// Names here are short and plain.
fn name(text: &str) -> Name {
    Name::parse(text).expect("letters and digits")
}
