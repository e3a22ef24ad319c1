//! The fleet's breakers over a real server, whole: nodes with their tasks, and what becomes of them when it dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use domain::{Clock, SystemClock, TenantId};
use redis::Value;
use tidegate_ratelimit::breaker::fleet::conformance::{Subject, provider};
use tidegate_ratelimit::breaker::fleet::{
    FleetBreakers, FleetRules, FleetSettings, FleetTicket, ProcessRegister, Register, Snapshot, Written,
};
use tidegate_ratelimit::breaker::{Fault, Faults, Outcome, Phase, Rules};
use tidegate_ratelimit::quota::AskError;
use tidegate_ratelimit::quota::redis::RedisCentre;
use tidegate_ratelimit::{Now, PairKey, ProviderKey};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::server::Server;

const BAD: Outcome = Outcome::Failed(Fault::ServerError);
const LONG: Duration = Duration::from_mins(1);

struct Real {
    _server: Server,
    centre: RedisCentre,
}

impl Real {
    async fn new() -> Self {
        let server = Server::start().await;
        let (centre, _) = server.centre();
        Self { _server: server, centre }
    }
}

#[async_trait]
impl Subject for Real {
    fn register(&self) -> Arc<dyn Register> {
        Arc::new(self.centre.clone())
    }

    async fn pass(&mut self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

tidegate_ratelimit::register_conformance!(Real::new().await);

fn github() -> ProviderKey {
    provider("github")
}

fn settings() -> FleetSettings {
    let gate = Rules {
        open_ms: 300,
        open_max_ms: 1_000,
        probe_lease_ms: 2_000,
        memory_ms: 20_000,
        slot_ms: 10,
        ..Rules::default()
    };
    let rules =
        FleetRules { tenants_min: 3, volume_min: 10, hear_ms: 400, fresh_ms: 4_000, gate, ..FleetRules::default() };
    FleetSettings { rules, window_ms: 1_000, interval_ms: 200, alone_ms: 1_000, providers_max: 8, troubled_max: 8 }
}

/// A node with its task.
struct Node {
    breakers: Arc<FleetBreakers>,
    clock: Arc<dyn Clock>,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Node {
    fn start(holder: u64, register: Arc<dyn Register>) -> Self {
        let breakers = Arc::new(FleetBreakers::new(settings(), holder).unwrap());
        let clock = SystemClock::shared();
        let (stop, stopped) = oneshot::channel();
        let ends = async move { drop(stopped.await) };
        let task = tokio::spawn(Arc::clone(&breakers).run(register, Arc::clone(&clock), ends));
        Self { breakers, clock, task, stop }
    }

    fn now(&self) -> Now {
        Now::of(&*self.clock)
    }

    fn admit(&self) -> Option<FleetTicket> {
        self.breakers.admit(github(), self.now()).ok()
    }

    fn report(&self, tenant: u32, ticket: FleetTicket, outcome: Outcome) {
        let tenant = TenantId::parse(&format!("tenant-{tenant}")).unwrap();
        let key = PairKey::connector(&tenant, &domain::ConnectorId::parse("github").unwrap());
        self.breakers.report(github(), key, ticket, outcome, Faults::ALL, self.now());
    }

    /// One call of each of some tenants; whether any was refused.
    fn calls(&self, outcome: Outcome) -> bool {
        let mut is_refused = false;
        for tenant in 0..8 {
            match self.admit() {
                Some(ticket) => self.report(tenant, ticket, outcome),
                None => is_refused = true,
            }
        }
        is_refused
    }

    fn phase(&self) -> Phase {
        self.breakers.phase(github())
    }

    fn counters(&self) -> Snapshot {
        self.breakers.counters()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(5), self.task).await.unwrap().unwrap();
    }
}

fn sum(nodes: &[Node], of: impl Fn(Snapshot) -> u64) -> u64 {
    nodes.iter().map(|node| of(node.counters())).sum()
}

/// Until it is so, for ten seconds.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until_open(nodes: &[Node], outcome: Outcome) {
    until("all of them refuse", || {
        let refused = nodes.iter().filter(|node| node.calls(outcome)).count();
        refused == nodes.len() && nodes.iter().all(|node| node.phase() == Phase::Open)
    })
    .await;
}

/// Calls until all are closed, each probe with a pause in which another one would be found.
async fn until_closed(nodes: &[Node]) -> u32 {
    let (out, probes) = (AtomicU32::new(0), AtomicU32::new(0));
    let call = async |node: &Node| {
        let begun = Instant::now();
        while node.phase() != Phase::Closed {
            assert!(begun.elapsed() < Duration::from_secs(15), "it never closed: {:?}", node.counters());
            if let Some(ticket) = node.admit() {
                let is_probe = ticket.is_probe();
                if is_probe {
                    assert_eq!(out.fetch_add(1, Ordering::SeqCst), 0, "two probes are out");
                    probes.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(150)).await;
                    out.fetch_sub(1, Ordering::SeqCst);
                }
                node.report(1, ticket, Outcome::Answered);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    futures_util::future::join_all(nodes.iter().map(call)).await;
    probes.into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_open_together_send_one_probe_at_a_time_and_close() {
    let server = Server::start().await;
    let nodes: Vec<_> = (1..=3).map(|holder| Node::start(holder, Arc::new(server.centre().0))).collect();
    until_open(&nodes, BAD).await;
    assert_eq!(sum(&nodes, |counters| counters.opened), 1, "it is one breaker");
    assert_eq!(until_closed(&nodes).await, 2);
    assert_eq!(sum(&nodes, |counters| counters.closed), 1);
    assert_eq!(sum(&nodes, |counters| counters.failures + counters.unreadable + counters.forgotten), 0);
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_alone_does_the_same_in_its_own_memory() {
    let register = Arc::new(ProcessRegister::new(SystemClock::shared(), 8));
    let nodes = [Node::start(1, register)];
    until_open(&nodes, BAD).await;
    assert_eq!(until_closed(&nodes).await, 2);
    let counters = nodes[0].counters();
    assert_eq!((counters.opened, counters.closed, counters.failures, counters.conflicts), (1, 1, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_with_a_broken_network_does_not_speak_for_all() {
    let server = Server::start().await;
    let nodes: Vec<_> = (1..=3).map(|holder| Node::start(holder, Arc::new(server.centre().0))).collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(!nodes[0].calls(BAD));
        assert!(!nodes[1].calls(Outcome::Answered) && !nodes[2].calls(Outcome::Answered));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sum(&nodes, |counters| counters.opened), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_leaves_nodes_to_themselves_and_one_that_comes_back_joins_them() {
    let mut server = Server::start().await;
    let nodes: Vec<_> = (1..=3).map(|holder| Node::start(holder, Arc::new(server.centre().0))).collect();
    until_open(&nodes, BAD).await;
    server.kill();
    // Each goes by itself after a while: nobody stays shut.
    until("each has closed by itself", || {
        let _: usize = nodes.iter().filter(|node| node.calls(Outcome::Answered)).count();
        nodes.iter().all(|node| node.phase() == Phase::Closed)
    })
    .await;
    assert!(nodes.iter().all(|node| node.counters().alone > 0));
    // And by its own counts it opens again.
    until_open(&nodes, BAD).await;
    assert!(sum(&nodes, |counters| counters.opened) >= 4);
    server.crash_and_restart().await;
    let before = sum(&nodes, |counters| counters.exchanges);
    until("they exchange again", || {
        let _: usize = nodes.iter().filter(|node| node.calls(BAD)).count();
        sum(&nodes, |counters| counters.exchanges) > before + 6
    })
    .await;
    until_open(&nodes, BAD).await;
    // Leases that were taken alone may last as long as a lease does; from then on there is one.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    until_closed(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_forgets_the_nodes_remember() {
    let mut server = Server::start().await;
    let nodes: Vec<_> = (1..=3).map(|holder| Node::start(holder, Arc::new(server.centre().0))).collect();
    until_open(&nodes, BAD).await;
    let opened = sum(&nodes, |counters| counters.opened);
    // Killed, and there again at once, without anything.
    server.crash_and_restart().await;
    until("it is told again", || sum(&nodes, |counters| counters.forgotten) > 0).await;
    assert!(nodes.iter().all(|node| node.phase() != Phase::Closed));
    until_closed(&nodes).await;
    assert_eq!(sum(&nodes, |counters| counters.opened), opened);
}

#[tokio::test]
async fn a_value_has_its_key_its_end_and_is_not_taken_from_another_type() {
    let server = Server::start().await;
    let (register, _) = server.centre();
    register.write(github(), 0, b"value", LONG).await.unwrap();
    let Value::Array(keys) = server.run(&["KEYS", "*"]).await.unwrap() else { panic!() };
    let key = format!("{{q:{:016x}}}:breaker", github().as_u64());
    assert_eq!(keys, [Value::BulkString(key.clone().into_bytes())]);
    let Value::Int(ttl_ms) = server.run(&["PTTL", &key]).await.unwrap() else { panic!() };
    assert!((50_000..=60_000).contains(&ttl_ms), "{ttl_ms} ms");
    // What somebody else has put there is nothing, or an error; it is never a value.
    server.run(&["SET", &key, "short"]).await.unwrap();
    assert_eq!(register.read(github()).await.unwrap().version, 0);
    assert!(matches!(register.write(github(), 0, b"", LONG).await, Ok(Written::Done { .. })));
    server.run(&["DEL", &key]).await.unwrap();
    server.run(&["HSET", &key, "a", "b"]).await.unwrap();
    assert!(matches!(register.read(github()).await, Err(AskError::Store(_))));
}

#[tokio::test]
async fn a_library_that_is_gone_is_loaded_again() {
    let server = Server::start().await;
    let (register, _) = server.centre();
    register.write(github(), 0, b"value", LONG).await.unwrap();
    server.run(&["FUNCTION", "FLUSH"]).await.unwrap();
    assert_eq!(register.read(github()).await, Err(AskError::Version));
    for _ in 0..100 {
        if let Ok(kept) = register.read(github()).await {
            assert_eq!(kept.bytes, b"value");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it was not loaded");
}
