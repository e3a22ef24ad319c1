//! Takes runs as far as they go: the engine, for the scheduler.
//!
//! A worker is a future that holds a lease and nothing else. In each round it writes what has come of calls, and what
//! follows from that, as one commit; only then it makes the calls whose intents that commit has made durable. Dropping it at
//! any point loses nothing that the next one could not find in the ledger: an intent without an outcome is a doubt, and
//! [`super::plan`] says what becomes of one.

mod came;
mod commit;
mod decide;
mod fenced;
mod input;
mod left;
mod node;
mod port;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::Clock;

use crate::automation::DefinitionStore;
use crate::call::Caller;
use crate::connector::Connectors;
use crate::ledger::{BoxFuture, LedgerStore};
use crate::schedule::{Drive, Ended, Turn};

use super::ports::{Authority, Automations, Events, Notices, Payloads};

/// What the engine stands on.
#[derive(Debug, Clone)]
pub struct Ports {
    pub clock: Arc<dyn Clock>,
    pub ledger: Arc<dyn LedgerStore>,
    pub definitions: Arc<dyn DefinitionStore>,
    pub automations: Arc<dyn Automations>,
    pub events: Arc<dyn Events>,
    pub payloads: Arc<dyn Payloads>,
    pub connectors: Arc<dyn Connectors>,
    pub caller: Arc<dyn Caller>,
    pub authority: Arc<dyn Authority>,
    pub notices: Arc<dyn Notices>,
}

/// Bounds of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A name of this process that no other one has, nor had.
    pub owner: Box<str>,
    /// How long a lease holds unless it is renewed, which is done three times in that span.
    pub lease: Duration,
    /// Workers that may be lost over a run, or one step of it, before it is quarantined.
    pub workers_lost_max: u32,
    /// A run older than this is asked again before it has an effect whether it still may.
    pub authorise_after: Duration,
    /// Beyond a node's timeout, before a call is given up that should have ended itself.
    pub call_grace: Duration,
    /// For one append or read.
    pub ledger_timeout: Duration,
    /// For one look at anything else: a definition, an event, a payload, a right.
    pub port_timeout: Duration,
    /// No other process works on these runs, and calls leave by this one: what a lost worker had under way is over when its
    /// run is taken up again.
    pub is_alone: bool,
    /// How often an append or read is tried before the run is left for later. The waits between double from 50 ms.
    pub ledger_tries: u32,
}

impl Settings {
    pub fn new(owner: &str) -> Self {
        Self {
            owner: owner.into(),
            lease: Duration::from_secs(30),
            workers_lost_max: 5,
            authorise_after: Duration::from_hours(24),
            call_grace: Duration::from_secs(5),
            ledger_timeout: Duration::from_secs(10),
            port_timeout: Duration::from_secs(10),
            is_alone: false,
            ledger_tries: 8,
        }
    }
}

/// The engine: all of its state is in the ledger, but for what could not be written yet ([`left`]).
#[derive(Debug)]
pub struct Engine {
    ports: Ports,
    settings: Settings,
    /// Counts turns, so that no two have the same owner.
    turns: AtomicU64,
    /// What turns knew that the ledger did not take.
    left: left::Left,
}

impl Engine {
    pub fn new(ports: Ports, settings: Settings) -> Self {
        Self { ports, settings, turns: AtomicU64::new(0), left: left::Left::default() }
    }

    fn owner(&self) -> Box<str> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        format!("{}#{turn}", self.settings.owner).into()
    }
}

impl Drive for Engine {
    fn drive(&self, turn: Turn) -> BoxFuture<'_, Ended> {
        Box::pin(turn::run(self, turn))
    }
}
