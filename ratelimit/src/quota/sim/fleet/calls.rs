//! The way of a call: it takes units or waits, is written, arrives, and is answered.

use crate::quota::holder::{Hold, Parked, Taken};
use crate::quota::op::Why;

use super::{Call, Caller, Event, Fleet};

impl Fleet {
    pub(super) fn next_call(&mut self, node: usize, tenant: usize) {
        let after_ms = match &mut self.demand {
            Some(demand) => demand.after_ms(node, tenant),
            None => self.scene.loads[tenant].mean_ms().map(|mean_ms| self.dice.exponential(mean_ms).round() as u64),
        };
        let Some(after_ms) = after_ms else { return };
        let begun_ms = self.now_ms + after_ms;
        self.at(begun_ms, Event::Call { node, tenant, begun_ms, is_fresh: true });
    }

    pub(super) fn call(&mut self, node: usize, tenant: usize, begun_ms: u64, is_fresh: bool) {
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

    pub(super) fn held(&mut self, node: usize, id: u64, taken: Taken) {
        let think_ms = self.dice.below(self.scene.think_ms + 1);
        let life = self.nodes[node].life;
        if let Some(call) = self.nodes[node].calls.get_mut(&id) {
            call.taken = Some(taken);
        }
        self.at(self.now_ms + think_ms, Event::Write { node, life, call: id });
    }

    pub(super) fn park(&mut self, node: usize, id: u64, parked: Parked) {
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

    pub(super) fn write(&mut self, node: usize, life: u64, id: u64) {
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

    pub(super) fn response(&mut self, node: usize, life: u64, id: u64, is_ok: bool) {
        self.provider.answered(is_ok);
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
}
