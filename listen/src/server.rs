//! The server: runs services until it is told to stop, and lets what is in flight finish.
//!
//! Pingora's own graceful stop sleeps for its whole grace period, however idle it is, and then drops what has not
//! finished. So the drain happens here, inside the wait for Pingora's signal: services stop accepting and connections finish;
//! as soon as the last one is gone, or the drain's time is up, Pingora is told to stop at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server as PingoraServer, ShutdownSignal, ShutdownSignalWatch};
use tokio::sync::watch;

use crate::connection::DRAIN_IDLE;
use crate::drain::Connections;
use crate::service::Service;

/// Runs services. Blocks the thread that runs it; each service brings its own threads.
pub struct Server {
    pingora: PingoraServer,
    drains: Vec<Arc<Connections>>,
    drain_timeout: Duration,
    stop: watch::Sender<Stop>,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Requests that were read and not answered when the time was up.
    pub cut: usize,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    Drain,
    Now,
}

/// Stops a running server, from anywhere.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    stop: watch::Sender<Stop>,
}

impl ServerHandle {
    /// Begins the drain. Asked again, it changes nothing.
    pub fn drain(&self) {
        self.at_least(Stop::Drain);
    }

    /// Ends the drain, finished or not.
    pub fn stop_now(&self) {
        self.at_least(Stop::Now);
    }

    pub fn is_draining(&self) -> bool {
        *self.stop.borrow() != Stop::No
    }

    /// Returns when the drain begins.
    pub async fn draining(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives in `self`: this cannot fail.
        let _begun = stop.wait_for(|stop| *stop != Stop::No).await;
    }

    fn at_least(&self, stop: Stop) {
        self.stop.send_if_modified(|have| {
            let more = *have < stop;
            if more {
                *have = stop;
            }
            more
        });
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("services", &self.drains.len()).finish_non_exhaustive()
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    pub fn new() -> Self {
        // Nothing of Pingora's grace is used, see the module's essay; no daemon, no upgrade socket.
        let conf = ServerConf {
            grace_period_seconds: Some(0),
            graceful_shutdown_timeout_seconds: Some(0),
            ..ServerConf::default()
        };
        Self {
            pingora: PingoraServer::new_with_opt_and_conf(None, conf),
            drains: Vec::new(),
            drain_timeout: Duration::ZERO,
            stop: watch::Sender::new(Stop::No),
        }
    }

    /// Adds a service. Its addresses are bound already; connections wait in their backlog until [`Self::run`].
    pub fn add(&mut self, service: Service) {
        self.drains.push(Arc::clone(service.connections()));
        self.drain_timeout = self.drain_timeout.max(service.drain_timeout());
        self.pingora.add_service(service.into_pingora());
    }

    pub fn handle(&self) -> ServerHandle {
        ServerHandle { stop: self.stop.clone() }
    }

    /// Serves until its handle asks for a drain, and until that is done or cut short. Signals are the caller's: what they
    /// ask for goes through the handle.
    pub fn run(self) -> Drained {
        let (cut, counted) = std::sync::mpsc::sync_channel(1);
        let watcher = Watcher { handle: self.handle(), drains: self.drains, drain_timeout: self.drain_timeout, cut };
        self.pingora.run(RunArgs { shutdown_signal: Box::new(watcher) });
        Drained { cut: counted.try_recv().unwrap_or(0) }
    }
}

struct Watcher {
    handle: ServerHandle,
    drains: Vec<Arc<Connections>>,
    drain_timeout: Duration,
    cut: std::sync::mpsc::SyncSender<usize>,
}

#[async_trait]
impl ShutdownSignalWatch for Watcher {
    async fn recv(&self) -> ShutdownSignal {
        self.drained().await;
        let cut = self.drains.iter().map(|connections| connections.busy()).sum();
        // Only a full channel fails, and this is sent once.
        let _sent = self.cut.try_send(cut);
        // To Pingora the rest is a plain end.
        ShutdownSignal::FastShutdown
    }
}

impl Watcher {
    async fn drained(&self) {
        self.handle.draining().await;
        tracing::info!("draining");
        for connections in &self.drains {
            connections.drain();
        }
        let gone = async {
            // A connection that was accepted a moment ago counts only when its task has run: every drain lasts at
            // least as long as an idle connection is given.
            tokio::time::sleep(DRAIN_IDLE).await;
            for connections in &self.drains {
                connections.gone().await;
            }
        };
        let mut stop = self.handle.stop.subscribe();
        tokio::select! {
            () = gone => tracing::info!("drained"),
            () = tokio::time::sleep(self.drain_timeout) => tracing::warn!("the drain's time is up"),
            _ = stop.wait_for(|stop| *stop == Stop::Now) => tracing::warn!("the drain was cut short"),
        }
    }
}
