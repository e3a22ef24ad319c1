//! The events of a fleet without a centre.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::limiter::{Limiter, Take, Way};
use crate::quota::sim::{Demand, Dice, Provider, START_MS, Scene};

/// Nodes that know nothing of each other, and whom they call. Of the scene they have everything but what is about the
/// centre: with [`Scene::own_demand`] there, the same calls come as to a [`crate::quota::sim::Fleet`].
#[derive(Debug)]
pub struct Peers {
    pub provider: Provider,
    /// Calls that were sent, however often.
    pub calls: u64,
    /// Those of them that were refused once or more.
    pub calls_refused: u64,
    way: Way,
    scene: Scene,
    now_ms: u64,
    nodes: Vec<Node>,
    under_way: HashMap<u64, Call>,
    demand: Demand,
    dice: Dice,
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
}

#[derive(Debug)]
struct Node {
    limiter: Limiter,
    /// Calls that may not go yet, in the order in which they came.
    queue: VecDeque<u64>,
    open: Vec<usize>,
    /// When the queue is looked at again; never is the maximum.
    look_ms: u64,
}

#[derive(Debug)]
struct Call {
    node: usize,
    tenant: usize,
    is_sent: bool,
    refusals: u32,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Call { node: usize, tenant: usize },
    Again { call: u64 },
    Look { node: usize },
    Arrive { call: u64 },
    Response { call: u64, is_ok: bool },
}

impl Peers {
    pub fn new(way: Way, scene: Scene) -> Self {
        let node = || Node {
            limiter: Limiter::new(way, &scene.rule, scene.nodes, START_MS),
            queue: VecDeque::new(),
            open: vec![0; scene.loads.len()],
            look_ms: u64::MAX,
        };
        let mut peers = Self {
            provider: Provider::new(scene.rule, scene.skew_ms).counting_refused(scene.are_refused_counted),
            calls: 0,
            calls_refused: 0,
            way,
            now_ms: START_MS,
            nodes: (0..scene.nodes).map(|_| node()).collect(),
            under_way: HashMap::new(),
            demand: Demand::new(&scene),
            dice: Dice(scene.seed),
            events: BTreeMap::new(),
            number: 0,
            scene,
        };
        for node in 0..peers.scene.nodes {
            for tenant in 0..peers.scene.loads.len() {
                peers.next_call(node, tenant);
            }
        }
        peers
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
            Event::Call { node, tenant } => self.begin(node, tenant),
            Event::Again { call } => self.enqueue(call),
            Event::Look { node } => {
                if self.nodes[node].look_ms == self.now_ms {
                    self.nodes[node].look_ms = u64::MAX;
                    self.drain(node);
                }
            }
            Event::Arrive { call } => {
                let Some(tenant) = self.under_way.get(&call).map(|call| call.tenant) else { return };
                let is_ok = self.provider.arrive(self.now_ms, self.scene.loads[tenant].cost);
                self.at(self.now_ms + self.scene.serve_ms, Event::Response { call, is_ok });
            }
            Event::Response { call, is_ok } => self.response(call, is_ok),
        }
    }

    fn next_call(&mut self, node: usize, tenant: usize) {
        if let Some(after_ms) = self.demand.after_ms(node, tenant) {
            self.at(self.now_ms + after_ms, Event::Call { node, tenant });
        }
    }

    fn begin(&mut self, node: usize, tenant: usize) {
        self.next_call(node, tenant);
        let open = &mut self.nodes[node].open[tenant];
        if *open >= self.scene.backlog {
            return;
        }
        *open += 1;
        self.number += 1;
        let id = self.number;
        self.under_way.insert(id, Call { node, tenant, is_sent: false, refusals: 0 });
        self.enqueue(id);
    }

    fn enqueue(&mut self, id: u64) {
        let Some(node) = self.under_way.get(&id).map(|call| call.node) else { return };
        self.nodes[node].queue.push_back(id);
        self.drain(node);
    }

    /// Sends what may go.
    fn drain(&mut self, node: usize) {
        while let Some(&id) = self.nodes[node].queue.front() {
            match self.nodes[node].limiter.take(self.now_ms) {
                Take::Go => {
                    self.nodes[node].queue.pop_front();
                    self.send(id);
                }
                Take::At(at_ms) if at_ms < self.nodes[node].look_ms => {
                    self.nodes[node].look_ms = at_ms;
                    return self.at(at_ms, Event::Look { node });
                }
                Take::At(_) | Take::Waits => return,
            }
        }
    }

    fn send(&mut self, id: u64) {
        let Some(call) = self.under_way.get_mut(&id) else { return };
        if !call.is_sent {
            call.is_sent = true;
            self.calls += 1;
        }
        let think_ms = self.dice.below(self.scene.think_ms + 1);
        let arrive_ms = (self.dice.exponential(self.scene.arrive_ms as f64) as u64).min(self.scene.arrive_ms_max);
        self.at(self.now_ms + think_ms + arrive_ms, Event::Arrive { call: id });
    }

    fn response(&mut self, id: u64, is_ok: bool) {
        self.provider.answered(is_ok);
        let Some(call) = self.under_way.get_mut(&id) else { return };
        let (node, tenant, refusals) = (call.node, call.tenant, call.refusals);
        self.nodes[node].limiter.give_back();
        if is_ok {
            self.under_way.remove(&id);
            self.nodes[node].open[tenant] -= 1;
        } else {
            call.refusals += 1;
            self.calls_refused += u64::from(refusals == 0);
            let wait_ms = self.way.wait_ms(refusals, &mut self.dice);
            self.at(self.now_ms + wait_ms, Event::Again { call: id });
        }
        self.drain(node);
    }

    fn at(&mut self, at_ms: u64, event: Event) {
        self.number += 1;
        self.events.insert((at_ms, self.number), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::sim::{Fleet, Load};
    use crate::quota::{Kind, Rule, RuleSpec};

    fn scene(kind: Kind, cap: u32) -> Scene {
        let spec = RuleSpec { cfgver: 1, kind, cap, lease_ms: 250, guard_ms: 200, skew_ms: 0 };
        let mut scene = Scene::new(3, Rule::checked(spec).unwrap(), 4, vec![Load::of(10.0); 5]);
        (scene.own_demand, scene.are_refused_counted, scene.backlog) = (Some(vec![2.0]), false, 20);
        scene
    }

    fn bucket() -> Scene {
        scene(Kind::Bucket { window_ms: 1_000, burst: 100 }, 100)
    }

    #[test]
    fn the_same_calls_come_whatever_is_done_about_them() {
        let mut fleet = Fleet::new(Scene { backlog: usize::MAX, ..bucket() });
        fleet.run(20_000);
        let wanted: u64 = fleet.tallies.iter().map(|tally| tally.wanted).sum();
        for way in Way::ALL {
            let mut peers = Peers::new(way, Scene { backlog: usize::MAX, ..bucket() });
            peers.run(20_000);
            let begun: usize = peers.nodes.iter().flat_map(|node| &node.open).sum();
            // A call that is over was accepted once.
            assert_eq!(begun as u64 + peers.provider.accepted - in_answer(&peers), wanted, "{way:?}");
        }
    }

    /// Accepted, and not told yet.
    fn in_answer(peers: &Peers) -> u64 {
        let is_one = |event: &&Event| matches!(event, Event::Response { is_ok: true, .. });
        peers.events.values().filter(is_one).count() as u64
    }

    #[test]
    fn who_sends_until_it_is_refused_is_refused_often() {
        let mut peers = Peers::new(Way::Backoff, bucket());
        peers.run(60_000);
        assert!(peers.calls_refused * 10 > peers.calls, "{} of {}", peers.calls_refused, peers.calls);
        assert!(peers.provider.accepted > 3_000);
    }

    #[test]
    fn a_part_of_slots_for_each_node_is_never_refused_and_used() {
        let mut peers = Peers::new(Way::PerNode, Scene { serve_ms: 200, ..scene(Kind::Concurrency, 40) });
        peers.run(60_000);
        assert_eq!(peers.calls_refused, 0);
        assert!(peers.provider.accepted > 60 * 140, "{}", peers.provider.accepted);
        assert!(peers.under_way.len() <= 20 * 20);
    }

    #[test]
    fn one_seed_is_one_run() {
        let run = |way| {
            let mut peers = Peers::new(way, bucket());
            peers.run(20_000);
            (peers.calls, peers.calls_refused, peers.provider.accepted, peers.provider.refused)
        };
        for way in Way::ALL {
            assert_eq!(run(way), run(way));
        }
    }
}
