//! What a runner stands on: files of this machine, or a PostgreSQL that nodes share. Above this everything is the same.

use std::path::PathBuf;
use std::sync::Arc;

use config::RunnerStore;
use runner::automation::DefinitionStore;
use runner::engine::Events;
use runner::ledger::LedgerStore;
use runner::ledger::embedded::Ages;
use runner::ledger::payloads::PayloadStore;
use runner::schedule;
use serde_json::Value;

use super::embedded::Embedded;
use super::fleet::Fleet;
use super::live::Opening;

/// Everything that is kept, open.
#[derive(Debug)]
pub(super) struct Stores {
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) definitions: Arc<dyn DefinitionStore>,
    pub(super) payloads: Arc<dyn PayloadStore>,
    pub(super) events: Arc<dyn Events>,
    /// Where the index of this ledger is. It is this node's own, whatever the ledger is.
    pub(super) index: PathBuf,
    pub(super) keeper: Keeper,
}

/// Who looks after what is kept.
#[derive(Debug, Clone)]
pub(super) enum Keeper {
    Embedded(Arc<Embedded>),
    Fleet(Arc<Fleet>),
}

/// How it is.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) open_runs: u64,
    /// On this machine.
    pub(super) ledger_bytes: u64,
    /// What is wrong with it, in sentences.
    pub(super) faults: Vec<String>,
    /// It goes on only when it is opened anew.
    pub(super) is_lost: bool,
}

impl Stores {
    /// In words, why not.
    pub(super) async fn open(opening: &Opening) -> Result<Self, String> {
        match opening.appliance.runner.store {
            RunnerStore::Embedded => super::embedded::open(opening).await,
            RunnerStore::Postgres => super::fleet::open(opening).await,
        }
    }
}

impl Keeper {
    /// What was wrong when it was opened, in sentences.
    pub(super) fn alarms(&self) -> &[String] {
        match self {
            Self::Embedded(embedded) => embedded.alarms(),
            Self::Fleet(_) => &[],
        }
    }

    /// None: it cannot be looked at now.
    pub(super) async fn look(&self) -> Option<Look> {
        match self {
            Self::Embedded(embedded) => embedded.look().await,
            Self::Fleet(fleet) => Some(fleet.look().await),
        }
    }

    pub(super) async fn stat(&self) -> Value {
        match self {
            Self::Embedded(embedded) => embedded.stat().await,
            Self::Fleet(fleet) => fleet.stat().await,
        }
    }

    /// Moves and drops what is over age; says so, and what did not go.
    pub(super) async fn retain(&self, ages: Ages) {
        match self {
            Self::Embedded(embedded) => embedded.retain(ages).await,
            Self::Fleet(fleet) => fleet.retain(ages).await,
        }
    }

    /// What runs beside the scheduler; it never ends.
    pub(super) async fn beside(&self, scheduler: schedule::Handle) {
        match self {
            Self::Embedded(_) => std::future::pending().await,
            Self::Fleet(fleet) => fleet.follow(scheduler).await,
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Embedded(embedded) => embedded.close().await,
            Self::Fleet(fleet) => fleet.close().await,
        }
    }
}
