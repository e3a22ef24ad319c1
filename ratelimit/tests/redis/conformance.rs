//! The suite of all centres over a real server: with its real clock and the library as it is, and with a clock in hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use tidegate_ratelimit::quota::conformance::Subject;
use tidegate_ratelimit::quota::conformance::asks::name;
use tidegate_ratelimit::quota::redis::RedisCentre;
use tidegate_ratelimit::quota::{Answer, Application, AskError, Body, Centre, Describe, Name, Op, Reply};

use crate::differential::{START_MS, about, library};
use crate::server::Server;

struct Real {
    _server: Server,
    centre: RedisCentre,
}

impl Real {
    async fn new() -> Self {
        let server = Server::start().await;
        let (centre, _) = server.centre();
        // A server that has just begun may have forgotten everything: scenarios begin when that no longer matters.
        let application = Application { provider: name("conformance"), name: name("new") };
        let nothing = Op { application, body: Body::Describe(Describe { after: None, limit: 0 }) };
        assert!(matches!(centre.ask(&nothing).await.unwrap().answer, Answer::Malformed(_)));
        tokio::time::sleep(Duration::from_millis(1_050)).await;
        Self { _server: server, centre }
    }
}

#[async_trait]
impl Subject for Real {
    fn centre(&self) -> Arc<dyn Centre> {
        Arc::new(self.centre.clone())
    }

    fn application(&mut self) -> Name {
        name("new")
    }

    async fn pass(&mut self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn fail_over(&mut self, _lost: usize) -> bool {
        false
    }
}

/// With the library's clock in hand, and any part of the past to be lost.
struct Timed {
    _server: Server,
    clock: Arc<Clocked>,
}

struct Clocked {
    redis: RedisCentre,
    connection: MultiplexedConnection,
    state: Mutex<Past>,
}

#[derive(Default)]
struct Past {
    now_ms: u64,
    ops: Vec<(u64, Op)>,
}

impl std::fmt::Debug for Clocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clocked")
    }
}

impl Clocked {
    async fn set(&self, key: &str, value: &str) {
        let _: () = redis::cmd("SET").arg(key).arg(value).query_async(&mut self.connection.clone()).await.unwrap();
    }

    async fn begin_life(&self, number: u64) {
        self.set("about", &about(number)).await;
        let load = redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library()).to_owned();
        let _: String = load.query_async(&mut self.connection.clone()).await.unwrap();
    }

    /// A life that has lasted for so long that a new application is known to be one.
    async fn begin_old_life(&self, now_ms: u64) {
        self.begin_life(1).await;
        self.set("clock", &(now_ms - 100_000).to_string()).await;
        let application = Application { provider: name("elsewhere"), name: name("-") };
        let look = Op { application, body: Body::Describe(Describe { after: None, limit: 1 }) };
        self.redis.ask(&look).await.unwrap();
    }
}

#[async_trait]
impl Centre for Clocked {
    async fn ask(&self, op: &Op) -> Result<Reply, AskError> {
        let now_ms = {
            let mut past = self.state.lock().unwrap();
            let now_ms = past.now_ms;
            past.ops.push((now_ms, op.clone()));
            now_ms
        };
        self.set("clock", &now_ms.to_string()).await;
        self.redis.ask(op).await
    }
}

impl Timed {
    async fn new() -> Self {
        let server = Server::start().await;
        let (redis, _) = server.centre();
        let state = Mutex::new(Past { now_ms: START_MS, ops: Vec::new() });
        let clock = Arc::new(Clocked { redis, connection: server.connection().await, state });
        clock.begin_old_life(START_MS).await;
        Self { _server: server, clock }
    }
}

#[async_trait]
impl Subject for Timed {
    fn centre(&self) -> Arc<dyn Centre> {
        Arc::clone(&self.clock) as Arc<dyn Centre>
    }

    fn application(&mut self) -> Name {
        name("new")
    }

    async fn pass(&mut self, ms: u64) {
        self.clock.state.lock().unwrap().now_ms += ms;
    }

    /// What was not lost happens again at its time, and then another server answers.
    async fn fail_over(&mut self, lost: usize) -> bool {
        let ops = self.clock.state.lock().unwrap().ops.clone();
        let _: () = redis::cmd("FLUSHALL").query_async(&mut self.clock.connection.clone()).await.unwrap();
        self.clock.begin_old_life(START_MS).await;
        for (at_ms, op) in &ops[..ops.len() - lost] {
            self.clock.set("clock", &at_ms.to_string()).await;
            self.clock.redis.ask(op).await.unwrap();
        }
        self.clock.begin_life(2).await;
        true
    }
}

mod timed {
    tidegate_ratelimit::centre_conformance!(super::Timed::new().await);
}

/// By its own clock: none in which each ask has to be within its slot of a tenth of a second.
mod real {
    tidegate_ratelimit::centre_conformance! { @any_clock super::Real::new().await }
}
