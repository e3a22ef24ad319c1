//! The server: runs services until it is told to stop, and lets what is in flight finish.
//!
//! Pingora's own graceful stop sleeps for its whole grace period, however idle it is, and then drops what has not
//! finished. So the drain happens here, inside the wait for Pingora's signal: services stop accepting and connections finish.
//! Each service has its own time for that, and what is open after it is cut, however long another one has; as soon as the
//! last service is done, Pingora is told to stop at once.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server as PingoraServer, ShutdownSignal, ShutdownSignalWatch};
use tokio::sync::watch;

use crate::connection::DRAIN_IDLE;
use crate::drain::Connections;
use crate::service::Service;

/// What is left beyond a drain's time, for tunnels that end themselves when it is up: they write down that they did.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Runs services. Blocks the thread that runs it; each service brings its own threads.
pub struct Server {
    pingora: PingoraServer,
    drains: Vec<Drain>,
    stop: watch::Sender<Stop>,
}

/// The drain of one service.
#[derive(Debug)]
struct Drain {
    service: String,
    connections: Arc<Connections>,
    timeout: Duration,
    /// Requests that were cut off, once they are.
    cut_off: OnceLock<usize>,
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
            stop: watch::Sender::new(Stop::No),
        }
    }

    /// Adds a service. Its addresses are bound already; connections wait in their backlog until [`Self::run`].
    pub fn add(&mut self, service: Service) {
        self.drains.push(Drain {
            service: service.name().to_owned(),
            connections: Arc::clone(service.connections()),
            timeout: service.drain_timeout(),
            cut_off: OnceLock::new(),
        });
        self.pingora.add_service(service.into_pingora());
    }

    pub fn handle(&self) -> ServerHandle {
        ServerHandle { stop: self.stop.clone() }
    }

    /// Serves until its handle asks for a drain, and until that is done or cut short. Signals are the caller's: what they
    /// ask for goes through the handle.
    pub fn run(self) -> Drained {
        let (cut, counted) = std::sync::mpsc::sync_channel(1);
        let watcher = Watcher { handle: self.handle(), drains: self.drains, cut };
        self.pingora.run(RunArgs { shutdown_signal: Box::new(watcher) });
        Drained { cut: counted.try_recv().unwrap_or(0) }
    }
}

struct Watcher {
    handle: ServerHandle,
    drains: Vec<Drain>,
    cut: std::sync::mpsc::SyncSender<usize>,
}

#[async_trait]
impl ShutdownSignalWatch for Watcher {
    async fn recv(&self) -> ShutdownSignal {
        let cut = self.drained().await;
        // Only a full channel fails, and this is sent once.
        let _sent = self.cut.try_send(cut);
        // To Pingora the rest is a plain end.
        ShutdownSignal::FastShutdown
    }
}

impl Watcher {
    /// Drains every service, and says how many requests were cut off.
    async fn drained(&self) -> usize {
        self.handle.draining().await;
        tracing::info!("draining");
        for drain in &self.drains {
            drain.connections.drain();
        }
        let mut stop = self.handle.stop.subscribe();
        let all = join_all(self.drains.iter().map(Drain::to_its_end));
        tokio::select! {
            _ = all => tracing::info!("drained"),
            _ = stop.wait_for(|stop| *stop == Stop::Now) => tracing::warn!("the drain was cut short"),
        }
        self.drains.iter().map(Drain::cut_off).sum()
    }
}

impl Drain {
    /// Waits until the last connection is gone, and ends those that are left when the time is up.
    async fn to_its_end(&self) {
        let gone = async {
            // A connection that was accepted a moment ago counts only when its task has run: every drain lasts at
            // least as long as an idle connection is given.
            tokio::time::sleep(DRAIN_IDLE).await;
            self.connections.gone().await;
        };
        if tokio::time::timeout(self.timeout, gone).await.is_ok() {
            return;
        }
        let (open, requests) = (self.connections.opened(), self.cut_off());
        tracing::warn!(service = self.service, open, requests, "the drain's time is up");
        // However this ends, it is the end.
        let _gone = tokio::time::timeout(LAST_WORDS, self.connections.gone()).await;
        self.connections.cut();
    }

    /// How many requests are cut off: those of the first time when that is asked, which is when the end has come.
    fn cut_off(&self) -> usize {
        *self.cut_off.get_or_init(|| self.connections.busy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_cut_off_counts_once_also_when_told_to_hurry_then() {
        let connections = Connections::new();
        let open = connections.open(1).unwrap();
        let _busy = open.busy();
        let timeout = Duration::from_secs(1);
        let drain = Drain { service: "a".to_owned(), connections, timeout, cut_off: OnceLock::new() };
        let handle = ServerHandle { stop: watch::Sender::new(Stop::Drain) };
        let (cut, _counted) = std::sync::mpsc::sync_channel(1);
        let watcher = Watcher { handle: handle.clone(), drains: vec![drain], cut };
        let hurry = async {
            tokio::time::sleep(timeout + LAST_WORDS / 2).await;
            handle.stop_now();
        };
        assert_eq!(tokio::join!(watcher.drained(), hurry).0, 1);
    }
}
