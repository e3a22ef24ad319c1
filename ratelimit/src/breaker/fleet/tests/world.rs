//! Several nodes, each with its own clock, and the register between them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use domain::{Clock, ManualClock};
use tokio::runtime::{Builder, Runtime};

use super::net::Wire;
use crate::breaker::fleet::{FleetBreakers, FleetRules, FleetSettings, FleetTicket};
use crate::breaker::{Fault, Faults, Outcome, Refused, Rules};
use crate::moment::Now;
use crate::pair::{PairKey, ProviderKey};

pub(super) const BAD: Outcome = Outcome::Failed(Fault::Timeout);
pub(super) const LEASE_MS: u64 = 400;

pub(super) fn provider() -> ProviderKey {
    ProviderKey::from_u64(9)
}

pub(super) fn settings() -> FleetSettings {
    let gate = Rules {
        open_ms: 100,
        open_max_ms: 400,
        probe_lease_ms: 400,
        // Longer than what all steps of a keeper's clock come to: it forgets nothing by them.
        memory_ms: 3_000_000,
        slot_ms: 10,
        ..Rules::default()
    };
    let rules = FleetRules { tenants_min: 3, volume_min: 6, fresh_ms: 1_500, gate, ..FleetRules::default() };
    FleetSettings { rules, window_ms: 300, interval_ms: 300, alone_ms: u32::MAX, providers_max: 8, troubled_max: 4 }
}

pub(super) struct Node {
    pub(super) breakers: Arc<FleetBreakers>,
    pub(super) clock: Arc<ManualClock>,
    exchange: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Calls that are out, by the number that the test gave them.
    pub(super) tickets: Vec<(u64, FleetTicket)>,
}

pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    pub(super) wire: Wire,
    pub(super) settings: FleetSettings,
    /// Since the start, by no clock that anybody has.
    pub(super) true_ms: u64,
    holders: u64,
    /// Time limits of exchanges need one; they are never over, since nothing drives it.
    runtime: Runtime,
}

impl World {
    pub(super) fn new(settings: FleetSettings, nodes: u64) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let wire = Wire::new();
        wire.net().keeper_ms = 1_000_000;
        let mut world = Self { nodes: Vec::new(), wire, settings, true_ms: 0, holders: 0, runtime };
        for nth in 0..nodes {
            let clock = ManualClock::at_unix_ms(77_000_000);
            // No two machines have started together.
            clock.advance(Duration::from_millis(10_000 + 777 * nth));
            let node = world.node(clock);
            world.nodes.push(node);
        }
        world
    }

    fn node(&mut self, clock: Arc<ManualClock>) -> Node {
        self.holders += 1;
        let breakers = Arc::new(FleetBreakers::new(self.settings, self.holders).unwrap());
        Node { breakers, clock, exchange: None, tickets: Vec::new() }
    }

    /// It is gone, with all that it knew, and another process begins in its place.
    pub(super) fn kill(&mut self, nth: usize) {
        let clock = Arc::clone(&self.nodes[nth].clock);
        self.nodes[nth] = self.node(clock);
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.true_ms += ms;
        self.wire.net().keeper_ms += ms;
        for node in &self.nodes {
            node.clock.advance(Duration::from_millis(ms));
        }
    }

    /// Begins an exchange of the provider, or of the list, if none is under way and the node looks after it.
    pub(super) fn begin(&mut self, nth: usize, is_board: bool) {
        let node = &mut self.nodes[nth];
        if node.exchange.is_some() {
            return;
        }
        let now = Now::of(&*node.clock);
        node.breakers.look(now);
        let (breakers, clock, wire) = (Arc::clone(&node.breakers), Arc::clone(&node.clock), self.wire.clone());
        if is_board {
            node.exchange = Some(Box::pin(async move { drop(breakers.exchange_board(&wire, &*clock).await) }));
        } else if breakers.with(provider(), |_| ()).is_some() {
            node.exchange = Some(Box::pin(async move { breakers.exchange(provider(), &wire, &*clock).await }));
        }
        self.poll();
    }

    /// Goes on with every exchange that has its answer.
    pub(super) fn poll(&mut self) {
        let _entered = self.runtime.enter();
        for node in &mut self.nodes {
            let Some(exchange) = &mut node.exchange else { continue };
            if exchange.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                node.exchange = None;
            }
        }
    }

    /// A whole exchange without faults.
    pub(super) fn exchange(&mut self, nth: usize) {
        self.begin(nth, false);
        self.finish();
    }

    pub(super) fn exchange_board(&mut self, nth: usize) {
        self.begin(nth, true);
        self.finish();
    }

    /// All that is under way comes to its end.
    pub(super) fn finish(&mut self) {
        for _ in 0..100 {
            self.wire.net().deliver_all();
            self.poll();
            if self.nodes.iter().all(|node| node.exchange.is_none()) {
                return;
            }
        }
        panic!("an exchange does not end");
    }

    /// The exchange's first question is not answered.
    pub(super) fn fail(&mut self, nth: usize) {
        self.begin(nth, false);
        self.wire.net().lose(0);
        self.poll();
        assert!(self.nodes[nth].exchange.is_none());
    }

    pub(super) fn now(&self, nth: usize) -> Now {
        Now::of(&*self.nodes[nth].clock)
    }

    pub(super) fn admit(&self, nth: usize) -> Result<FleetTicket, Refused> {
        self.nodes[nth].breakers.admit(provider(), self.now(nth))
    }

    /// What an operator is told; it takes no probe and wants none.
    pub(super) fn refusal(&self, nth: usize) -> Option<Refused> {
        self.nodes[nth].breakers.refusal(provider(), self.now(nth))
    }

    pub(super) fn report(&self, nth: usize, tenant: u64, ticket: FleetTicket, outcome: Outcome) {
        let (breakers, now) = (&self.nodes[nth].breakers, self.now(nth));
        breakers.report(provider(), PairKey::of(tenant, 1), ticket, outcome, Faults::ALL, now);
    }

    /// So many calls of each of the tenants; they must be admitted.
    pub(super) fn calls(&self, nth: usize, tenants: std::ops::Range<u64>, times: u32, outcome: Outcome) {
        for tenant in tenants {
            for _ in 0..times {
                let ticket = self.admit(nth).unwrap();
                assert!(!ticket.is_probe());
                self.report(nth, tenant, ticket, outcome);
            }
        }
    }

    pub(super) fn sum(&self, of: impl Fn(super::super::Snapshot) -> u64) -> u64 {
        self.nodes.iter().map(|node| of(node.breakers.counters())).sum()
    }

    pub(super) fn unix_ms(&self, nth: usize) -> u64 {
        self.nodes[nth].clock.unix_ms()
    }
}
