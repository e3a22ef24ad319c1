//! What happens to servers, over real ones: each time nothing is granted that a limit does not have, and no ask takes
//! longer than its budget.

use std::time::{Duration, Instant};

use redis::Value;
use tidegate_ratelimit::quota::conformance::asks::{LONG, leg, lessee, metered, name, spec};
use tidegate_ratelimit::quota::redis::{Fault, RedisCentre, RedisSettings};
use tidegate_ratelimit::quota::{
    Acquire, Answer, Application, AskError, Body, Centre, Class, Denial, Level, Metered, Op, Reply, Share, Tally,
};
use tokio::runtime::Handle;

use crate::server::Server;

/// A node: it asks one unit at a time and remembers what a holder has to.
pub(crate) struct Node {
    centre: RedisCentre,
    application: Application,
    holder: u128,
    seq: u64,
    tally: Tally,
    heard: u64,
    epoch: u64,
    pub(crate) spent: u64,
}

pub(crate) fn limit(cap: u32) -> Metered {
    metered(Level::Connection, "limit", spec(LONG, cap))
}

impl Node {
    pub(crate) fn new(centre: RedisCentre, holder: u128) -> Self {
        Self::of(centre, holder, "faults")
    }

    pub(crate) fn of(centre: RedisCentre, holder: u128, application: &str) -> Self {
        let application = Application { provider: name("test"), name: name(application) };
        Self { centre, application, holder, seq: 0, tally: Tally::default(), heard: 0, epoch: 0, spent: 0 }
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.centre.fault()
    }

    pub(crate) fn op(&self, body: Body) -> Op {
        Op { application: self.application.clone(), body }
    }

    /// Asks for one unit. An ask without an answer is counted as spent and never repeated: the dearest case.
    pub(crate) async fn ask(&mut self, bucket: &Metered) -> Result<Reply, AskError> {
        self.seq += 1;
        let mut leg = leg(bucket, 1, 1);
        (leg.seq, leg.tally, leg.heard) = (self.seq, self.tally, self.heard);
        let share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };
        let acquire = Acquire { lessee: lessee(self.holder, "t"), class: Class::Interactive, share, legs: vec![leg] };
        let reply = self.centre.ask(&self.op(Body::Acquire(acquire))).await?;
        self.epoch = reply.epoch;
        match &reply.answer {
            Answer::Granted(leases) => {
                self.spent += u64::from(leases[0].units);
                (self.tally, self.heard) = (leases[0].tally, self.heard.max(leases[0].generation));
            }
            Answer::Stale { seq, .. } => self.seq = self.seq.max(*seq),
            _ => {}
        }
        Ok(reply)
    }

    /// Asks until something is granted, for ten seconds; nothing but waiting and having no answer comes before.
    pub(crate) async fn ask_until_granted(&mut self, bucket: &Metered) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            match self.ask(bucket).await {
                Ok(Reply { answer: Answer::Granted(_), .. }) => return,
                Ok(Reply { answer: Answer::Learning { .. }, .. }) | Err(_) => {}
                answer => panic!("{answer:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nothing was granted again: {:?}", self.centre.fault());
    }

    pub(crate) async fn drain(&mut self, bucket: &Metered) {
        loop {
            match self.ask(bucket).await.map(|reply| reply.answer) {
                Ok(Answer::Granted(_)) => {}
                Ok(Answer::Denied { why: Denial::Exhausted, .. }) => return,
                answer => panic!("{answer:?}"),
            }
        }
    }
}

/// With the budget that the product has.
fn strict(server: &Server) -> RedisSettings {
    RedisSettings { budget: Duration::from_millis(50), ..server.settings() }
}

fn centre(settings: RedisSettings) -> RedisCentre {
    RedisCentre::new(settings, &Handle::current()).0
}

async fn faulty(node: &mut Node, bucket: &Metered, fault: Fault, error: AskError) {
    let answer = node.ask(bucket).await;
    assert_eq!((answer, node.centre.fault()), (Err(error), Some(fault)));
}

#[tokio::test]
async fn boot_does_not_need_it() {
    let mut server = Server::start().await;
    server.kill();
    let mut node = Node::new(centre(strict(&server)), 1);
    let begun = Instant::now();
    faulty(&mut node, &limit(10), Fault::NotReached, AskError::Gone).await;
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn after_a_crash_without_data_holders_tell_what_they_had() {
    let mut server = Server::start().await;
    let bucket = limit(100);
    let (mut one, mut two) = (Node::new(server.centre().0, 1), Node::new(server.centre().0, 2));
    for node in [&mut one, &mut two] {
        node.ask_until_granted(&bucket).await;
        for _ in 0..20 {
            node.ask(&bucket).await.unwrap();
        }
    }
    assert_eq!(one.spent + two.spent, 42);
    let epoch = one.epoch;
    server.crash_and_restart().await;
    // Both ask, as holders do that see another epoch; the first of them learns how long to wait.
    let mut has_learned = false;
    for _ in 0..40 {
        for node in [&mut one, &mut two] {
            match node.ask(&bucket).await {
                Ok(reply) => has_learned |= matches!(reply.answer, Answer::Learning { .. }),
                Err(error) => {
                    assert!(matches!(error, AskError::Gone | AskError::Timeout | AskError::Version), "{error}");
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(has_learned && one.epoch != epoch);
    one.drain(&bucket).await;
    two.drain(&bucket).await;
    assert_eq!(one.spent + two.spent, 100, "the limit is 100, crash or not");
}

#[tokio::test]
async fn with_data_on_disk_nothing_is_forgotten() {
    let mut server = Server::with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]).await;
    let bucket = limit(60);
    let (mut dies, mut lives) = (Node::new(server.centre().0, 1), Node::new(server.centre().0, 2));
    dies.ask_until_granted(&bucket).await;
    for _ in 0..29 {
        dies.ask(&bucket).await.unwrap();
    }
    server.crash_and_restart().await;
    lives.ask_until_granted(&bucket).await;
    lives.drain(&bucket).await;
    assert_eq!((dies.spent, lives.spent), (30, 30));
}

#[tokio::test]
async fn a_stopped_server_costs_the_budget_and_no_more() {
    let server = Server::start().await;
    let bucket = limit(1_000);
    let mut node = Node::new(centre(strict(&server)), 1);
    node.ask_until_granted(&bucket).await;
    server.signal("STOP");
    let mut longest = Duration::ZERO;
    for _ in 0..60 {
        let begun = Instant::now();
        node.ask(&bucket).await.unwrap_err();
        longest = longest.max(begun.elapsed());
    }
    server.signal("CONT");
    assert!(longest < Duration::from_millis(250), "{longest:?}");
    node.ask_until_granted(&bucket).await;
    // What was asked while it stood still was granted to nobody, and is charged to the holder: never the other way.
    let view = describe(&node).await;
    assert!(view.used >= node.spent, "{} of {} are counted", view.used, node.spent);
}

#[tokio::test]
async fn a_silent_server_is_asked_a_bounded_number_of_things() {
    let server = Server::start().await;
    let settings = RedisSettings { operations_max: 4, stall_limit: Duration::from_secs(30), ..strict(&server) };
    let bucket = limit(1_000);
    let mut node = Node::new(centre(settings), 1);
    node.ask_until_granted(&bucket).await;
    server.run(&["CLIENT", "PAUSE", "1500", "ALL"]).await.unwrap();
    for _ in 0..4 {
        faulty(&mut node, &bucket, Fault::Slow, AskError::Timeout).await;
    }
    for _ in 0..4 {
        faulty(&mut node, &bucket, Fault::Busy, AskError::Busy).await;
    }
    node.ask_until_granted(&bucket).await;
}

async fn describe(node: &Node) -> tidegate_ratelimit::quota::BucketView {
    let describe = tidegate_ratelimit::quota::Describe { after: None, limit: 1 };
    match node.centre.ask(&node.op(Body::Describe(describe))).await.unwrap().answer {
        Answer::Buckets(views) => views.into_iter().next().unwrap(),
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn a_library_that_is_gone_or_old_is_loaded_and_grants_nothing_meanwhile() {
    let server = Server::start().await;
    let bucket = limit(1_000);
    let mut node = Node::new(server.centre().0, 1);
    node.ask_until_granted(&bucket).await;
    server.run(&["FUNCTION", "FLUSH"]).await.unwrap();
    faulty(&mut node, &bucket, Fault::NoLibrary, AskError::Version).await;
    node.ask_until_granted(&bucket).await;
    // An older revision of it, as a node of an older release would have left it.
    let old = tidegate_ratelimit::quota::redis::LIBRARY.replace("local REVISION = 1\n", "local REVISION = 0\n");
    server.run(&["FUNCTION", "LOAD", "REPLACE", &old]).await.unwrap();
    faulty(&mut node, &bucket, Fault::OldLibrary, AskError::Version).await;
    node.ask_until_granted(&bucket).await;
    // Something else under our name: nothing it says is taken for an answer.
    let foreign = "#!lua name=tidegate_quota_v2\nredis.register_function('tidegate_quota_v2_acquire', \
                   function() return { 1, 'granted', 1000, 60000, 1, 1, 1, 0 } end)";
    server.run(&["FUNCTION", "LOAD", "REPLACE", foreign]).await.unwrap();
    assert!(matches!(node.ask(&bucket).await, Err(AskError::Store(_))));
    assert_eq!(node.centre.fault(), Some(Fault::Unreadable));
}

#[tokio::test]
async fn what_is_wrong_has_a_name() {
    let server = Server::start().await;
    let bucket = limit(1_000);
    let mut node = Node::new(server.centre().0, 1);
    node.ask_until_granted(&bucket).await;
    server.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    faulty(&mut node, &bucket, Fault::NoReplicas, AskError::ReadOnly).await;
    server.run(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await.unwrap();
    node.ask_until_granted(&bucket).await;
    server.run(&["CONFIG", "SET", "maxmemory", "100000"]).await.unwrap();
    faulty(&mut node, &bucket, Fault::OutOfMemory, AskError::Store("Redis has reached maxmemory")).await;
    server.run(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    node.ask_until_granted(&bucket).await;
    server.run(&["ACL", "SETUSER", "default", "-hget", "-hmget", "-hset"]).await.unwrap();
    let not_allowed = AskError::Store("the user of Redis may not do what quota needs");
    faulty(&mut node, &bucket, Fault::NoPermission, not_allowed).await;
    server.run(&["ACL", "SETUSER", "default", "+@all"]).await.unwrap();
    node.ask_until_granted(&bucket).await;
    server.run(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
    faulty(&mut node, &bucket, Fault::ReadOnly, AskError::ReadOnly).await;
    server.run(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    node.ask_until_granted(&bucket).await;
}

#[tokio::test]
async fn a_server_that_drops_keys_is_refused() {
    let server = Server::with(&["--save", "", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let mut node = Node::new(server.centre().0, 1);
    assert!(matches!(node.ask(&limit(10)).await, Err(AskError::Store(_))));
    assert_eq!(node.centre.fault(), Some(Fault::Evicts));
    // What an operator is told to do helps without a restart, and what somebody changes later is noticed.
    server.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.unwrap();
    node.ask_until_granted(&limit(100)).await;
    server.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let evicts = AskError::Store("Redis may drop keys: maxmemory-policy is not noeviction");
    faulty(&mut node, &limit(100), Fault::Evicts, evicts).await;
}

#[tokio::test]
async fn a_wrong_password_is_told_apart() {
    let server = Server::with(&["--save", "", "--requirepass", "right"]).await;
    let with = |password: Option<&[u8]>| {
        let mut settings = server.settings();
        settings.credentials.password = password.map(|bytes| domain::Secret::new(bytes.to_vec()));
        Node::new(centre(settings), 1)
    };
    faulty(
        &mut with(Some(b"wrong")),
        &limit(10),
        Fault::WrongPassword,
        AskError::Store("Redis refuses the user or the password"),
    )
    .await;
    faulty(
        &mut with(None),
        &limit(10),
        Fault::WrongPassword,
        AskError::Store("Redis refuses the user or the password"),
    )
    .await;
    with(Some(b"right")).ask_until_granted(&limit(10)).await;
}

#[tokio::test]
async fn a_replica_that_takes_over_learns_and_the_limit_holds() {
    let mut primary = Server::start().await;
    let replica = Server::start().await;
    replica.run(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]).await.unwrap();
    synced(&replica).await;
    let bucket = limit(400);
    let mut nodes: Vec<_> = (1..=3).map(|holder| Node::new(primary.centre().0, holder)).collect();
    for node in &mut nodes {
        node.ask_until_granted(&bucket).await;
        for _ in 0..20 {
            node.ask(&bucket).await.unwrap();
        }
    }
    // The replica hears nothing of what is granted from here on: a suffix that is lost.
    replica.run(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    for node in &mut nodes {
        for _ in 0..30 {
            node.ask(&bucket).await.unwrap();
        }
    }
    let before: u64 = nodes.iter().map(|node| node.spent).sum();
    primary.kill();
    for node in &mut nodes {
        node.centre = replica.centre().0;
    }
    let first = nodes[0].ask(&bucket).await.unwrap().answer;
    assert!(matches!(first, Answer::Learning { .. }), "{first:?}");
    for node in &mut nodes[1..] {
        node.ask(&bucket).await.unwrap();
    }
    assert_eq!(describe(&nodes[0]).await.used, before, "what was lost has been told");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for node in &mut nodes {
        node.drain(&bucket).await;
    }
    assert_eq!(nodes.iter().map(|node| node.spent).sum::<u64>(), 400);
}

async fn synced(replica: &Server) {
    for _ in 0..200 {
        let Ok(Value::VerbatimString { text: info, .. } | Value::SimpleString(info)) =
            replica.run(&["INFO", "replication"]).await.map(|value| match value {
                Value::BulkString(bytes) => Value::SimpleString(String::from_utf8(bytes).unwrap()),
                value => value,
            })
        else {
            panic!("no INFO")
        };
        if info.contains("master_link_status:up") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the replica does not follow");
}

#[tokio::test]
async fn keys_live_as_long_as_they_matter_and_no_longer() {
    let server = Server::start().await;
    let day = metered(
        Level::Connection,
        "day",
        spec(tidegate_ratelimit::quota::Kind::Sliding { window_ms: 86_400_000, slots: 96 }, 100),
    );
    let mut node = Node::new(server.centre().0, 1);
    node.ask_until_granted(&day).await;
    let Value::Array(keys) = server.run(&["KEYS", "*"]).await.unwrap() else { panic!() };
    assert_eq!(keys.len(), 5, "{keys:?}");
    for key in keys {
        let Value::BulkString(key) = key else { panic!() };
        let key = String::from_utf8(key).unwrap();
        let Value::Int(ttl_ms) = server.run(&["PTTL", &key]).await.unwrap() else { panic!() };
        assert!(ttl_ms >= 2 * 86_400_000, "{key} matters for two days and lives {ttl_ms} ms");
        assert!(ttl_ms < 3 * 86_400_000, "{key} lives {ttl_ms} ms");
    }
}
